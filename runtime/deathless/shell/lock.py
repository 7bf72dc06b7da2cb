"""Opens the lock that a config names, with awaitable methods whichever it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.engine.async_lock import SyncToAsync
from deathless.engine.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock, FileSystem


@contextlib.asynccontextmanager
async def open_lock(config: ReplicaConfig, filesystem: FileSystem, process: str) -> AsyncIterator[AsyncLock]:
    """Open the lock of the replica's shard; closes it at the end.

    Args:
        config: which lock, and how to reach it.
        filesystem: the shared directory, for the lock that lives there.
        process: tells this process from others of the replica that may open the lock at the same time.

    Raises: InvalidConfig for an unknown kind.
    """
    if config.lock == "directory":
        tail = f".{config.instance}" if config.instance else ""
        name = f"{config.replica}.{process}{tail}"
        directory = DirectoryLock(filesystem, process=name, fresh_store_id=os.urandom(8).hex())
        directory.prepare()
        yield SyncToAsync(directory)
        return
    if config.lock != "etcd":
        raise InvalidConfig(f"lock {config.lock!r} is not directory or etcd")
    from deathless.shell.etcd_open import open_etcd_lock  # noqa: PLC0415 needs the extra [etcd]

    async with open_etcd_lock(config) as lock:
        yield lock
