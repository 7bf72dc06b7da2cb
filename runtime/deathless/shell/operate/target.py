"""Which service a command is about, and which of its shards: from a manifest, or from the folder it runs in.

Guarantees: what is needed to reach its replicas and to read its log, or an error that says how to name it. Does not:
start or change anything. May import base.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, InvalidConfig, PermissionRefused
from deathless.base.shards import FOLDER, checked_shard
from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small
from deathless.shell.net.admin_call import Access, access_of
from deathless.shell.operate.manifest_file import LoadedManifest, read_manifest
from deathless.shell.operate.status import Part, parts_of
from deathless.shell.pod.pod_config import read_plain_config, read_shared_config


@dataclass(frozen=True, slots=True)
class Target:
    """One service on this machine."""

    config: ReplicaConfig  # of one of its replicas; all but the names of replicas and ports is the same in each
    where: str  # the file or folder it was found by, for messages
    loaded: LoadedManifest | None  # None: found by its folder
    shards: tuple[ReplicaConfig, ...] = ()  # as `config`, of each shard it is about; empty: of that one

    @property
    def directory(self) -> Path:
        """The shard's folder, shared by all replicas."""
        return Path(self.config.directory)

    @property
    def access(self) -> Access:
        """What opens its ports."""
        return access_of(self.config)

    @property
    def parts(self) -> list[Part]:
        """The shards that it is about, to be looked at."""
        return parts_of(self.shards or (self.config,))


def find_target(
    manifest: str, directory: str, shard: int | None = None, *, every: bool = False, silent: bool = False
) -> Target:
    """Find a service by its folder if one is named, else by its manifest.

    Args:
        manifest: its path; a file that ends in .json is what the replicas of a pod share (see `pod`).
        directory: of the service or of one of its shards; empty: the manifest counts.
        shard: which one; None: the only one, or that of the folder.
        every: None means all of them, not one.
        silent: no replica is spoken to, so that the token which a pod's config names is not read.

    Raises: InvalidManifest, InvalidArgument, InvalidConfig, PermissionRefused.
    """
    shared = not directory and manifest.endswith(".json")
    loaded = None if directory or shared else read_manifest(manifest)
    if loaded is not None:
        configs = loaded.replica_configs()
    else:
        read = read_plain_config if silent else read_shared_config
        configs = [read(manifest)] if shared else _configs_in(Path(directory))
    first = {config.shard: config for config in reversed(configs)}
    count, where = configs[0].shards, directory or manifest
    if shard is not None:
        chosen = first.get(checked_shard(shard, count))
        if chosen is None:
            raise InvalidArgument(f"{where} has no shard {shard}", remedy="name the service's folder, or its manifest")
        return Target(chosen, where, loaded)
    if len(first) > 1 and not every:
        raise InvalidArgument(f"{where}: the service has {count} shards", remedy=f"add --shard 0 to {count - 1}")
    shards = tuple(config for _, config in sorted(first.items()))
    return Target(shards[0], where, loaded, shards)


def _configs_in(folder: Path) -> list[ReplicaConfig]:
    """Give a config of each shard in a folder."""
    folders = [folder, *(folder / FOLDER).glob("*")]
    found = [sorted((each / "replicas").glob("*/config.json"))[:1] for each in folders]
    if not any(found):
        raise InvalidArgument(
            f"{folder}: no service was started here",
            remedy="name the folder that `deathless up` shows, or the manifest: -f service.yaml",
        )
    # A copy of the folder carries configs along that name the other one.
    return [
        msgspec.structs.replace(read_config(path), directory=str(path.parents[2])) for paths in found for path in paths
    ]


def read_config(path: Path) -> ReplicaConfig:
    """Read one replica's config. Raises: PermissionRefused, InvalidConfig."""
    try:
        return read_json(read_small(path), ReplicaConfig)
    except PermissionError:
        raise PermissionRefused(f"{path}: may not be read by this user") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidConfig(f"{path}: {error}", remedy="`deathless up` rewrites it") from None
