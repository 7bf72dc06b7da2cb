"""A lock store of one process's memory, as somebody adds it: its own module, and one entry in the list.

It is registered before the manifest's model is loaded; `tests/unit/deathless/base/test_lock_stores.py` opens a service
on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from deathless.base.config import ReplicaConfig
from deathless.base.lock_stores import STORE, LockStore, register
from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.ports import AsyncLock, FileSystem
from deathless.simulation.world.lock import SimLock, SimLockStore

KEYS = SimLockStore()


@contextlib.asynccontextmanager
async def open_toy(_config: ReplicaConfig, _filesystem: FileSystem, _process: str) -> AsyncIterator[AsyncLock]:
    """Open the lock of the one service there is."""
    yield SyncToAsync(SimLock(KEYS))


OPENER = f"{__name__}:open_toy"
register(LockStore(name="toy", fence=STORE, in_directory=False, opener=OPENER, looker=OPENER))
