"""The worker's file system: each call that may wait for the storage is marked in the page while it is under way.

A supervisor reads the page, so it can tell a worker whose storage hangs from one that is busy, without asking either.

Guarantees: the mark is set before the call and taken back whatever the call gives or raises. Does not: change a call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from deathless.engine.ports import Handle
from deathless.shell.filesystem import LOCAL_TYPES, RealFileSystem, filesystem_type
from deathless.shell.page import CALLS, SLOWEST, STORAGE, Page

T = TypeVar("T")
P = ParamSpec("P")
SLOW_CALL_S: Final = 0.25  # a call that took less is no news
SLOW_KEPT_S: Final = 60.0  # one that took longer is told for so long


class WatchedFileSystem(RealFileSystem):
    """Marks each call that may wait for the storage in the page: a hung log is told from a busy worker by that."""

    def __init__(self, root: str, page: Page) -> None:
        # On network storage this machine's page cache may be older than what another machine wrote (design 0003, "The
        # log").
        super().__init__(root, bypass_cache=filesystem_type(root) not in LOCAL_TYPES)
        self._cells = page.cells
        self._slow_until = 0.0  # until when SLOWEST stands, monotonic seconds; 0: it is 0
        self._cells[SLOWEST] = self._cells[STORAGE] = 0

    def _watched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        cells = self._cells
        cells[CALLS] += 1
        began = time.monotonic()
        try:
            return call(*args, **kwargs)
        finally:
            cells[CALLS] += 1
            now = time.monotonic()
            if now - began >= SLOW_CALL_S or self._slow_until:
                self._note(now - began, now)

    def _note(self, took_s: float, now: float) -> None:
        """Keep how long the slowest call of late took."""
        cells = self._cells
        if now > self._slow_until:
            cells[SLOWEST], self._slow_until = 0, 0.0
        if took_s >= SLOW_CALL_S and took_s * 1000 >= cells[SLOWEST]:
            cells[SLOWEST], self._slow_until = round(took_s * 1000), now + SLOW_KEPT_S

    def look(self) -> None:
        """Write to the page what keeps the file system from taking anything new, beside a lack of space."""
        found = self._watched(os.statvfs, self.root)
        read_only, no_inode = found.f_flag & os.ST_RDONLY, found.f_files > 0 and found.f_favail == 0
        self._cells[STORAGE] = 1 if read_only else 2 if no_inode else 0

    def create(self, path: str) -> Handle:
        """See the port."""
        return self._watched(super().create, path)

    def open(self, path: str, *, write: bool = False) -> Handle:
        """See the port."""
        return self._watched(super().open, path, write=write)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See the port."""
        self._watched(super().write, handle, offset, data)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """See the port."""
        return self._watched(super().read, handle, offset, size)

    def sync(self, handle: Handle) -> None:
        """See the port."""
        self._watched(super().sync, handle)

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """See the port."""
        self._watched(super().allocate, handle, offset, size)

    def truncate(self, handle: Handle, size: int) -> None:
        """See the port."""
        self._watched(super().truncate, handle, size)

    def close(self, handle: Handle) -> None:
        """See the port."""
        self._watched(super().close, handle)

    def link(self, source: str, target: str) -> None:
        """See the port."""
        self._watched(super().link, source, target)

    def rename(self, source: str, target: str) -> None:
        """See the port."""
        self._watched(super().rename, source, target)

    def unlink(self, path: str) -> None:
        """See the port."""
        self._watched(super().unlink, path)

    def exists(self, path: str) -> bool:
        """See the port."""
        return self._watched(super().exists, path)

    def listing(self, path: str) -> list[str]:
        """See the port."""
        return self._watched(super().listing, path)

    def sync_folder(self, path: str) -> None:
        """See the port."""
        self._watched(super().sync_folder, path)
