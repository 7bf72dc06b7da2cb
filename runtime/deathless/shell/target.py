"""Which service a command is about: from a manifest, or from the folder that a service runs in.

Guarantees: what is needed to reach its replicas and to read its log, or an error that says how to name it. Does not:
start or change anything. May import base.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, InvalidConfig, PermissionRefused
from deathless.shell.admin import Access, access_of
from deathless.shell.manifest import LoadedManifest, read_manifest


@dataclass(frozen=True, slots=True)
class Target:
    """One service on this machine."""

    config: ReplicaConfig  # of one of its replicas; all but the names of replicas and ports is the same in each
    where: str  # the file or folder it was found by, for messages
    loaded: LoadedManifest | None  # None: found by its folder

    @property
    def directory(self) -> Path:
        """The shard's folder, shared by all replicas."""
        return Path(self.config.directory)

    @property
    def access(self) -> Access:
        """What opens its ports."""
        return access_of(self.config)


def config_path(directory: str | Path, replica: str) -> Path:
    """Where a replica's config stands."""
    return Path(directory) / "replicas" / replica / "config.json"


def find_target(manifest: str, directory: str) -> Target:
    """Find a service by its folder if one is named, else by its manifest.

    Raises: InvalidManifest, InvalidArgument, InvalidConfig, PermissionRefused.
    """
    if directory:
        return Target(_config_in(Path(directory)), directory, None)
    loaded = read_manifest(manifest)
    return Target(loaded.replica_configs()[0], manifest, loaded)


def _config_in(folder: Path) -> ReplicaConfig:
    paths = sorted((folder / "replicas").glob("*/config.json"))
    if not paths:
        raise InvalidArgument(
            f"{folder}: no service was started here",
            remedy="name the folder that `deathless up` shows, or the manifest: -f service.yaml",
        )
    return read_config(paths[0])


def read_config(path: Path) -> ReplicaConfig:
    """Read one replica's config. Raises: PermissionRefused, InvalidConfig."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ReplicaConfig)
    except PermissionError:
        raise PermissionRefused(f"{path}: may not be read by this user") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidConfig(f"{path}: {error}", remedy="`deathless up` writes it anew") from None
