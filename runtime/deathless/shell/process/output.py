"""Standard output and error of our processes: writing to them neither waits nor raises.

A handler that prints to a full disk must not fail in one replica and succeed in another, and a replica must not stop
because nobody reads its pipe. So what can't be written at once is dropped, and how much it was is said as soon as
something can be written again.

Guarantees: a write returns, whatever stands behind the descriptor. Does not: keep what was dropped; set the descriptor,
which others share, to anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable
from typing import Final, cast

CHUNK: Final = 512  # a pipe that is ready takes at least so much at once, on every system


def _dropped(count: int) -> bytes:
    return b"(%d bytes of output were dropped)\n" % count


class PatientStream(io.RawIOBase):
    """Writes to a descriptor what it takes at once, and drops the rest.

    Args:
        descriptor: where it writes.
        told: gives the line that says how many bytes were dropped.
    """

    def __init__(self, descriptor: int, told: Callable[[int], bytes] = _dropped) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._told = told
        self.dropped = 0  # bytes, since something could be written

    def writable(self) -> bool:
        """It is for nothing else."""
        return True

    def fileno(self) -> int:
        """See RawIOBase."""
        return self._descriptor

    def isatty(self) -> bool:
        """See RawIOBase."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Stay open: a handler that closes it closes nothing."""

    def write(self, data: object, /) -> int:
        """Write or drop; gives the length of `data` either way."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # whatever has bytes
        if self.dropped and self._put(self._told(self.dropped)):
            self.dropped = 0
        for start in range(0, len(view), CHUNK):
            if self.dropped or not self._put(view[start : start + CHUNK]):
                self.dropped += len(view) - start
                break
        return len(view)

    def _put(self, data: bytes | memoryview) -> bool:
        try:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return False
            return os.write(self._descriptor, data) == len(data)
        except (OSError, ValueError):
            return False


def never_wait(told: Callable[[int], bytes] = _dropped) -> None:
    """Have everything that this process prints from now on written so; `told`: see PatientStream."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        with contextlib.suppress(Exception):
            getattr(sys, name).flush()
        made = io.TextIOWrapper(
            cast("io.BufferedWriter", PatientStream(descriptor, told)),  # a raw stream serves as one without a buffer
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)
