"""The clock of this machine since its boot, and what a replica remembers by it across its processes.

The steady clock of a process stands still while the machine sleeps; the boot's clock does not, and a later process on
the same boot reads the same. So a replica that is started again can tell what passed without asking a wall clock: its
page (`shell.link.status_page`) keeps where the shard's elapsed time stood, and the boot's clock then.

Guarantees: what was noted on another boot, by another service or in another time namespace is not given. A process that
is killed while it notes leaves less than what passed, never more. Does not: wait, do IO after it was made. Imports core
and base.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final

from deathless.core.tables.logical_time import Anchor
from deathless.shell.link.status_page import BOOT_ELAPSED, BOOT_ID, BOOT_NS

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
NAMESPACE_FILE: Final = "/proc/self/ns/time"


def boot_us() -> int:
    """Microseconds since the boot, sleep included."""
    return time.clock_gettime_ns(_CLOCK) // 1000


class MachineClock:
    """The clocks of this machine, what is remembered by the boot's, and the cells for it.

    Args:
        cells: of the replica's page.
        whose: identity of the service.
        boot_id_file: where the machine tells which boot this is.
    """

    def __init__(self, cells: memoryview[int], whose: bytes, boot_id_file: str = BOOT_ID_FILE) -> None:
        self._cells = cells
        self._boot_id = _boot_id(whose, boot_id_file)
        self._anchor: Anchor | None = None
        if self._boot_id and cells[BOOT_ID] == self._boot_id:
            self._anchor = Anchor(cells[BOOT_ELAPSED], cells[BOOT_NS] // 1000)
        else:
            cells[BOOT_ID] = 0  # until both of the others are of this boot

    # These two without a method of ours between: they are asked several times for each call.
    now = staticmethod(time.monotonic)
    boot_us = staticmethod(boot_us)

    @staticmethod
    def wall_us() -> int:
        """Wall clock in microseconds; may jump."""
        return time.time_ns() // 1000

    def anchor(self) -> Anchor | None:
        """What was noted last on this boot, by this process or one before; None: nothing."""
        return self._anchor

    def note_anchor(self, anchor: Anchor) -> None:
        """Note it. In this order: the later moment with the earlier count says that less has passed."""
        self._anchor = anchor
        cells = self._cells
        cells[BOOT_NS] = anchor.boot_us * 1000
        cells[BOOT_ELAPSED] = anchor.elapsed_us
        cells[BOOT_ID] = self._boot_id


def _boot_id(whose: bytes, path: str) -> int:
    """Give a number that no other boot, service or time namespace has; 0: the machine does not tell."""
    try:
        boot = Path(path).read_bytes()
    except OSError:
        return 0
    try:
        namespace = str(os.stat(NAMESPACE_FILE).st_ino).encode()
    except OSError:
        namespace = b""  # a kernel without time namespaces
    return int.from_bytes(hashlib.blake2b(boot + namespace + whose, digest_size=8).digest(), "little") or 1
