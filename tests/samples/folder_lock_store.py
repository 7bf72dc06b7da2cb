"""A lock store in a folder apart from the log, with settings of its own, as somebody adds it.

It is registered before the models of manifest and config are loaded, so it imports neither; what opens it does
(`folder_lock.py`). `tests/unit/deathless/base/lock_stores` has services on it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import msgspec
from msgspec import Meta

from deathless.base.lock_stores import STORE, LockStore, register
from deathless.base.lock_stores.settings import ClusterRule, FindFile, LockSettings
from deathless.base.manifest_fields import FilePath, told
from deathless.base.schema_check import Problem


class FolderSettings(LockSettings, frozen=True):
    """Where the folder is."""

    rules: ClassVar[tuple[ClusterRule, ...]] = (
        ClusterRule("folder-is-whole", "!has(self.lock) || self.lock.folder.path != ''", "path is empty"),
    )

    path: Annotated[FilePath, told("The folder with the locks of all services.")]
    key_file: Annotated[FilePath, told("File with a key; if empty, none.")] = ""
    depth_max: Annotated[int, Meta(ge=1, le=9), told("How deep below it a lock may be.")] = 1

    def config(self) -> FolderConfig:
        """Give what replicas are told."""
        return FolderConfig(path=f"{self.path}/locks", key_file=self.key_file)

    def with_files(self, find: FindFile) -> Self:
        """Give the settings with an absolute path of the key."""
        return msgspec.structs.replace(self, key_file=find(("keyFile",), self.key_file, "a key"))

    def problems(self) -> list[Problem]:
        """Find a folder that others would look for elsewhere."""
        return [] if self.path.startswith("/") else [Problem(("path",), self.path, "is relative", "begin it with a /")]

    def ignored_locally(self) -> tuple[str, ...]:
        """Name a depth, which one machine has no use for."""
        return ("depthMax",) if self.depth_max > 1 else ()


class FolderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Where replicas find it."""

    path: str = "/nowhere"
    key_file: str = ""


OPENER = "tests.samples.folder_lock:open_folder"
register(
    LockStore(
        name="folder",
        fence=STORE,
        in_directory=False,
        opener=OPENER,
        looker=OPENER,
        settings=f"{__name__}:FolderSettings",
        config=FolderConfig,
        explanation="Which folder has the locks.",
    )
)
