"""Wakes somebody when something is written below a folder, where the kernel tells so (inotify).

Why it exists: rows of a topic are written by another process of this machine, most often, and to look for them a few
hundred times in a second costs more than to read them; to look less often costs every call that time.

Guarantees: what a process of this machine writes after `look` began wakes it; so does a folder that comes into being.
Does not: see what other machines write to a shared file system, or that a folder is there no more: whoever waits looks
by a clock as well. Imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MODIFY: Final = 0x2
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_EVENTS_BYTES: Final = 1 << 16
_libc: Final = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Watches folders; where the kernel gives none, nothing wakes.

    Args:
        roots: they and the folders in them are watched, those that come into being as well.
    """

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._changed = asyncio.Event()
        self._watched: set[str] = set()
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        self._look()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until something was written since the last call, or for so long; gives whether something was."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        woken = self._changed.is_set()
        self._changed.clear()
        if not self._watched:
            self._look()
        return woken

    def close(self) -> None:
        """Watch no more."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _look(self) -> None:
        """Watch folders that are not watched yet; one that came meanwhile may have rows already."""
        for root in self._roots if self._descriptor >= 0 else ():
            with contextlib.suppress(FileNotFoundError):
                for path in (root, *(each for each in root.iterdir() if each.is_dir())):
                    self._add(str(path))

    def _add(self, path: str) -> None:
        if path in self._watched:
            return
        if _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFY | _MOVED_TO | _CREATE) >= 0:
            self._watched.add(path)
            self._changed.set()
        elif ctypes.get_errno() == errno.ENOSPC:  # this user has as many as are allowed
            self.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, _EVENTS_BYTES)
        self._changed.set()
        self._look()
