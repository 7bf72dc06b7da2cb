"""The worker's file system: each call that may wait for the storage is marked in the page while it is under way.

A supervisor reads the page, so it can tell a worker whose storage hangs from one that is busy, without asking either.

Guarantees: the mark is set before the call and taken back whatever the call gives or raises. Does not: change a call.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from deathless.shell.disk.filesystem import LOCAL_TYPES, RealFileSystem, filesystem_type
from deathless.shell.link.status_page import CALLS, SLOWEST, STORAGE, Page

T = TypeVar("T")
P = ParamSpec("P")
SLOW_CALL_S: Final = 0.25  # a call that took less is no news
SLOW_KEPT_S: Final = 60.0  # one that took longer is told for so long


def _watched(call: Callable[Concatenate[WatchedFileSystem, P], T]) -> Callable[Concatenate[WatchedFileSystem, P], T]:
    """Give the same method, which marks the page while it is under way."""

    @functools.wraps(call)
    def watched(self: WatchedFileSystem, /, *args: P.args, **kwargs: P.kwargs) -> T:
        cells = self.cells
        cells[CALLS] += 1
        began = time.monotonic()
        try:
            return call(self, *args, **kwargs)
        finally:
            cells[CALLS] += 1
            now = time.monotonic()
            if now - began >= SLOW_CALL_S or self.slow_until:
                self.note(now - began, now)

    return watched


class WatchedFileSystem(RealFileSystem):
    """Marks each call that may wait for the storage in the page: a hung log is told from a busy worker by that."""

    def __init__(self, root: str, page: Page) -> None:
        # On network storage this machine's page cache may be older than what another machine wrote (design 0003, "The
        # log").
        super().__init__(root, bypass_cache=filesystem_type(root) not in LOCAL_TYPES)
        self.cells = page.cells
        self.slow_until = 0.0  # until when SLOWEST stands, monotonic seconds; 0: it is 0
        self.cells[SLOWEST] = self.cells[STORAGE] = 0

    def note(self, took_s: float, now: float) -> None:
        """Keep how long the slowest call of late took."""
        cells = self.cells
        if now > self.slow_until:
            cells[SLOWEST], self.slow_until = 0, 0.0
        if took_s >= SLOW_CALL_S and took_s * 1000 >= cells[SLOWEST]:
            cells[SLOWEST], self.slow_until = round(took_s * 1000), now + SLOW_KEPT_S

    def look(self) -> None:
        """Write to the page what keeps the file system from taking anything new, beside a lack of space."""
        found = self._statvfs()
        read_only, no_inode = found.f_flag & os.ST_RDONLY, found.f_files > 0 and found.f_favail == 0
        self.cells[STORAGE] = 1 if read_only else 2 if no_inode else 0

    @_watched
    def _statvfs(self) -> os.statvfs_result:
        return os.statvfs(self.root)

    create = _watched(RealFileSystem.create)
    open = _watched(RealFileSystem.open)
    write = _watched(RealFileSystem.write)
    read = _watched(RealFileSystem.read)
    sync = _watched(RealFileSystem.sync)
    allocate = _watched(RealFileSystem.allocate)
    truncate = _watched(RealFileSystem.truncate)
    close = _watched(RealFileSystem.close)
    link = _watched(RealFileSystem.link)
    rename = _watched(RealFileSystem.rename)
    unlink = _watched(RealFileSystem.unlink)
    exists = _watched(RealFileSystem.exists)
    listing = _watched(RealFileSystem.listing)
    sync_folder = _watched(RealFileSystem.sync_folder)
