"""Makes every call of a file system or a lock a place where the simulation can stop its caller.

Why it exists: real code calls these ports synchronously. Wrapped, each call takes virtual time before and after it
is carried out, so that other processes run in between and the caller can be frozen or killed there: after an append
and before its sync, after a proof and before the release.

Guarantees: a call of a dead process is never carried out; a refusal of the ``DiskWeather`` comes before the call has
any effect. Does not: change what a call does, but for a write that others see half done for a while. May import
scheduler, engine.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from deathless.engine.ports import FileSystem, Handle
from deathless.simulation.world.inode import SECTOR
from deathless.simulation.world.scheduler import Process

ResultT = TypeVar("ResultT")


@dataclass(slots=True, kw_only=True)
class DiskWeather:
    """How one host's way to the shared directory is at the moment; changed by faults.

    Attributes:
        sync_min_us, sync_max_us: a sync takes between these.
        call_us: any other call takes up to this, and none at all half of the time.
        slow_us: added to every sync.
        all_slow_us: likewise, where the volume is slow for all.
        halves_share: of writes that others see half done for a while, [0, 1].
        full: writes that grow a file, and allocations, fail with ENOSPC.
    """

    sync_min_us: int = 80
    sync_max_us: int = 600
    call_us: int = 20
    slow_us: int = 0
    all_slow_us: int = 0
    halves_share: float = 0.05
    full: bool = False


class InterposedFileSystem:
    """A ``FileSystem`` seen by one process.

    Args:
        inner: the file system that carries the calls out.
        process: blocked while a call takes its time.
        chance: generator for durations and errors.
        weather: shared by the processes of a host.
    """

    def __init__(self, inner: FileSystem, process: Process, chance: random.Random, weather: DiskWeather) -> None:
        self._inner = inner
        self._process = process
        self._generation = process.generation
        self._chance = chance
        self.weather = weather

    def _call(self, carry_out: Callable[[], ResultT]) -> ResultT:
        chance = self._chance
        process = self._process
        process.check()
        if chance.random() < 0.5:
            process.pause(chance.randrange(self.weather.call_us + 1))
        result = carry_out()
        if chance.random() < 0.1:
            process.pause(chance.randrange(self.weather.call_us + 1))
        return result

    def _refuse_when_full(self, path: str) -> None:
        self._process.check()
        if self.weather.full:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def create(self, path: str) -> Handle:
        """See ``FileSystem.create``."""
        return self._call(lambda: self._inner.create(path))

    def open(self, path: str, *, write: bool = False) -> Handle:
        """See ``FileSystem.open``."""
        return self._call(lambda: self._inner.open(path, write=write))

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See ``FileSystem.write``."""
        self._process.check()
        if self.weather.full and offset + len(data) > self._inner.size(handle):
            raise OSError(errno.ENOSPC, "no space left on device")
        if len(data) > 1 and self._chance.random() < self.weather.halves_share:
            # A reader, or a kill -9, may come when only a part of a write has reached the page cache: of a kill whole
            # pages, as kernels look for fatal signals between pages (tests/process/test_killed_writes.py), so sectors.
            at = min(-(-self._chance.randrange(1, len(data)) // SECTOR) * SECTOR, len(data))
            self._inner.write(handle, offset, data[:at])
            self._process.pause(self._chance.randrange(1, self.weather.sync_max_us))
            self._inner.write(handle, offset + at, data[at:])
        else:
            self._call(lambda: self._inner.write(handle, offset, data))

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """See ``FileSystem.read``."""
        return self._call(lambda: self._inner.read(handle, offset, size))

    def sync(self, handle: Handle) -> None:
        """See ``FileSystem.sync``."""
        self._slow_sync(lambda: self._inner.sync(handle))

    def _slow_sync(self, carry_out: Callable[[], None]) -> None:
        weather, chance, process = self.weather, self._chance, self._process
        process.check()
        process.pause(chance.randrange(weather.sync_min_us, weather.sync_max_us + 1) // 2)
        carry_out()
        slow_us = weather.slow_us + weather.all_slow_us
        process.pause(chance.randrange(weather.sync_min_us, weather.sync_max_us + 1) // 2 + slow_us)

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """See ``FileSystem.allocate``."""
        self._refuse_when_full("")
        self._call(lambda: self._inner.allocate(handle, offset, size))

    def truncate(self, handle: Handle, size: int) -> None:
        """See ``FileSystem.truncate``."""
        self._call(lambda: self._inner.truncate(handle, size))

    def size(self, handle: Handle) -> int:
        """See ``FileSystem.size``."""
        return self._call(lambda: self._inner.size(handle))

    def close(self, handle: Handle) -> None:
        """See ``FileSystem.close``; a dead process's handles are closed by its host."""
        if self._process.alive and self._process.generation == self._generation:
            self._inner.close(handle)

    def link(self, source: str, target: str) -> None:
        """See ``FileSystem.link``."""
        self._call(lambda: self._inner.link(source, target))

    def rename(self, source: str, target: str) -> None:
        """See ``FileSystem.rename``."""
        self._call(lambda: self._inner.rename(source, target))

    def unlink(self, path: str) -> None:
        """See ``FileSystem.unlink``."""
        self._call(lambda: self._inner.unlink(path))

    def exists(self, path: str) -> bool:
        """See ``FileSystem.exists``."""
        return self._call(lambda: self._inner.exists(path))

    def listing(self, path: str) -> list[str]:
        """See ``FileSystem.listing``."""
        return self._call(lambda: self._inner.listing(path))

    def make_folder(self, path: str) -> None:
        """See ``FileSystem.make_folder``."""
        self._call(lambda: self._inner.make_folder(path))

    def sync_folder(self, path: str) -> None:
        """See ``FileSystem.sync_folder``."""
        self._slow_sync(lambda: self._inner.sync_folder(path))
