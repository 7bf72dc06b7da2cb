"""Opens the lock store of `folder_lock_store.py`, with the settings that a replica's config carries."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tests.samples.folder_lock_store import FolderConfig

from deathless.base.config import ReplicaConfig
from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock, FileSystem
from deathless.shell.disk.filesystem import RealFileSystem


@contextlib.asynccontextmanager
async def open_folder(config: ReplicaConfig, _filesystem: FileSystem, process: str) -> AsyncIterator[AsyncLock]:
    """Open the lock in the folder that the settings name, which is there."""
    settings = config.lock_settings(FolderConfig)
    name = f"{config.replica}.{process}"
    lock = DirectoryLock(RealFileSystem(settings.path), process=name, fresh_store_id="folder")
    lock.prepare()
    yield SyncToAsync(lock)
