"""Writes one large file beside a log that must not wait: what the child uses that writes a checkpoint (I9).

Why it exists: a gigabyte given to the page cache and then synced stands in the storage's queue, and the primary's next
sync behind it; synced piece by piece, each of its syncs is a commit of the file system's journal that the primary's
waits for. Measured beside a log, both let it write a third of what it writes alone. So the bytes go past the page cache
(O_DIRECT) in small blocks, one at a time, and after each block this writer rests for as long as the block took: the
storage is the log's for at least half of the time. Where the file system knows no O_DIRECT, each mebibyte is synced
before the next.

Guarantees: what was written is durable once `sync` returned, as the port says; `write` takes a file's bytes in order
only. Does not: rest longer than REST_MAX_S at a time; serve readers better or worse than its base class.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Callable
from typing import Final

from deathless.base.errors import Internal
from deathless.engine.ports import Handle
from deathless.shell.disk.filesystem import RealFileSystem

BLOCK_BYTES: Final = 256 << 10
UNSYNCED_BYTES_MAX: Final = 1 << 20  # in the page cache, without O_DIRECT
REST_MAX_S: Final = 0.005  # a storage that is slow for another reason does not get faster by our waiting


class _Tail:
    """What a file's writer holds back until it fills a block."""

    def __init__(self) -> None:
        self.buffer = mmap.mmap(-1, BLOCK_BYTES)  # aligned, as O_DIRECT wants it
        self.held = 0  # bytes in it
        self.offset = 0  # of the first of them in the file
        self.unsynced = 0  # bytes given to the page cache
        self.direct = False


class GentleFileSystem(RealFileSystem):
    """A directory whose new files are written so.

    Args:
        root: an existing folder.
        rest: sleeps so many seconds.
    """

    def __init__(self, root: str | os.PathLike[str], *, rest: Callable[[float], None] = time.sleep) -> None:
        super().__init__(root)
        self._rest = rest
        self._tails: dict[Handle, _Tail] = {}

    def create(self, path: str) -> Handle:
        """See the port."""
        handle = super().create(path)
        tail = self._tails[handle] = _Tail()
        with contextlib.suppress(OSError):  # tmpfs and others can't
            _set_direct(handle, on=True)
            tail.direct = True
        return handle

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See the port. Raises: Internal when `offset` is not the file's end."""
        tail = self._tails[handle]
        if offset != tail.offset + tail.held:
            raise Internal(f"a write at {offset} of a file that ends at {tail.offset + tail.held}")
        view = memoryview(data)
        while view:
            some = view[: BLOCK_BYTES - tail.held]
            tail.buffer[tail.held : tail.held + len(some)] = some
            tail.held += len(some)
            view = view[len(some) :]
            if tail.held == BLOCK_BYTES:
                self._write_out(handle, tail)

    def sync(self, handle: Handle) -> None:
        """See the port. What does not fill a block goes through the page cache, and so does all that comes later."""
        tail = self._tails[handle]
        if tail.held:
            if tail.direct:
                _set_direct(handle, on=False)
                tail.direct = False
            self._write_out(handle, tail)
        super().sync(handle)
        tail.unsynced = 0

    def close(self, handle: Handle) -> None:
        """See the port."""
        tail = self._tails.pop(handle, None)
        if tail is not None:
            tail.buffer.close()
        super().close(handle)

    def _write_out(self, handle: Handle, tail: _Tail) -> None:
        began = time.monotonic()
        with memoryview(tail.buffer) as whole:
            done = 0
            while done < tail.held:
                try:
                    with whole[done : tail.held] as rest:
                        done += os.pwrite(handle, rest, tail.offset + done)
                except OSError as error:
                    raise self._named(error, handle) from error
        tail.offset += tail.held
        tail.held = 0
        if not tail.direct:
            tail.unsynced += done
            if tail.unsynced >= UNSYNCED_BYTES_MAX:
                super().sync(handle)
                tail.unsynced = 0
        self._rest(min(time.monotonic() - began, REST_MAX_S))


def _set_direct(handle: Handle, *, on: bool) -> None:
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
