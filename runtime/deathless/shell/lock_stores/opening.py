"""Opens the lock that a config names, with awaitable methods whichever it is (base.lock_stores has the list).

Guarantees: a lock store's module is loaded only where a config names it, since it may need an extra.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

from deathless.base.config import ReplicaConfig
from deathless.base.lock_stores import lock_store
from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock, FileSystem
from deathless.shell.lock_stores.exported import refuse_to_run

Opener: TypeAlias = Callable[[ReplicaConfig, FileSystem, str], AbstractAsyncContextManager[AsyncLock]]


def open_lock(config: ReplicaConfig, filesystem: FileSystem, process: str) -> AbstractAsyncContextManager[AsyncLock]:
    """Open the lock of the replica's shard; closes it at the end.

    Args:
        config: which lock, and how to reach it.
        filesystem: the shared directory, for the lock that lives there.
        process: tells this process from others of the replica that may open the lock at the same time.

    Raises: InvalidConfig for an unknown kind, and where the log is an exported one.
    """
    refuse_to_run(config.directory)
    return _named(lock_store(config.lock).opener)(config, filesystem, process)


def open_lock_to_look(config: ReplicaConfig, filesystem: FileSystem) -> AbstractAsyncContextManager[AsyncLock]:
    """Open the lock without leaving a trace in it. Raises: InvalidConfig for an unknown kind."""
    return _named(lock_store(config.lock).looker)(config, filesystem, "tool")


@contextlib.asynccontextmanager
async def open_directory_lock(config: ReplicaConfig, filesystem: FileSystem, process: str) -> AsyncIterator[AsyncLock]:
    """Open the lock in the log's directory."""
    tail = f".{config.instance}" if config.instance else ""
    name = f"{config.replica}.{process}{tail}"
    directory = DirectoryLock(filesystem, process=name, fresh_store_id=os.urandom(8).hex())
    directory.prepare()
    yield SyncToAsync(directory)


@contextlib.asynccontextmanager
async def look_at_directory_lock(
    _config: ReplicaConfig, filesystem: FileSystem, process: str
) -> AsyncIterator[AsyncLock]:
    """Open the lock in the log's directory for a look: nothing is made there."""
    yield SyncToAsync(DirectoryLock(filesystem, process=process, fresh_store_id=""))


def _named(text: str) -> Opener:
    module, _, function = text.partition(":")
    return cast("Opener", getattr(importlib.import_module(module), function))
