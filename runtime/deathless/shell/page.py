"""A file-backed page that a worker writes and its supervisor reads, also after the worker's death (I11).

Cells of u64 in the machine's byte order; the first three are `execution.running`'s:

    0 to 2   the message being run
    3        ticks: one more each time the worker's loop comes round
    4        calls of the file system: odd while one is under way
    5        when the primary was last heard, nanoseconds of the monotonic clock; 0: never
    6        lsn applied
    7        1 while the log has no room
    8        milliseconds that the primary's proof has been without an answer; 0: none is
    9        milliseconds for which the lock store has been answering this follower without a miss; 0: it was not
             asked, or does not answer
    10       when the last proof said that this primary's epoch stands, nanoseconds of the monotonic clock; 0: none did
    11       1 while the outbox has no room

The file lies in this machine's memory (`page_path`), not beside the log: a supervisor must be able to read it while the
log's storage hangs, and a worker that writes to it before each message must not wait for anybody's write-back.

Guarantees: the supervisor never waits for the worker; what was being run is known to a supervisor started anew. Does
not: survive a power cut, and need not.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from pathlib import Path
from typing import Final

from deathless.base.errors import PermissionRefused
from deathless.execution.running import Cells, Running, read_running

CELLS: Final = 16
PAGE_BYTES: Final = 8 * CELLS
TICKS, CALLS, UPSTREAM, LSN, FULL, UNPROVED, LOCK_ANSWERS, PROVED, OUTBOX_FULL = 3, 4, 5, 6, 7, 8, 9, 10, 11
MEMORY: Final = "/dev/shm"  # noqa: S108  what else may stand there is checked by `Page`


def page_path(directory: str, replica: str, memory: str = MEMORY, *, instance: str = "") -> str:
    """Where a replica's page is; beside its other files where the machine offers no folder in memory."""
    tail = f".{instance}" if instance else ""
    if not (os.path.isdir(memory) and os.access(memory, os.W_OK | os.X_OK)):
        return str(Path(directory) / "replicas" / replica / f"page{tail}")
    whose = f"{os.geteuid()}\0{os.path.realpath(directory)}\0{replica}{tail}".encode(errors="surrogateescape")
    return os.path.join(memory, f"deathless-{hashlib.blake2b(whose, digest_size=12).hexdigest()}.page")


class Page:
    """The page at `path`, created when missing; `fresh` clears what a former worker left.

    Raises: PermissionRefused when what stands there is not ours alone; OSError.
    """

    def __init__(self, path: str, *, fresh: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionRefused(f"{path} belongs to another user, or others may write it", remedy="remove it")
            if found.st_size < PAGE_BYTES:
                os.ftruncate(descriptor, PAGE_BYTES)
                fresh = True
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self.path = path
        self.cells = memoryview(self._map).cast("Q")
        self.running = Cells(memoryview(self._map)) if fresh else None
        if fresh:
            for cell in range(TICKS, CELLS):
                self.cells[cell] = 0

    @property
    def full(self) -> bool:
        """The log has no room."""
        return bool(self.cells[FULL])

    @property
    def outbox_full(self) -> bool:
        """The outbox has no room."""
        return bool(self.cells[OUTBOX_FULL])

    def read_running(self) -> Running | None:
        """The message that is, or was at its death, being run."""
        return read_running(bytes(self._map[:24]))

    def forget(self) -> None:
        """Remove the file: its replica ended in order. Whoever has it mapped keeps it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
