"""Who a directory belongs to: the checks before a replica starts, and the very first start of a service.

Two sides know a service: the lock store (`service`), and the directory with each replica's private folder
(`service.json`, `replicas/<id>/identity.json`).
One that knows what the other does not is a half copy, an empty volume or a wrong directory: an error, never a first
start (design 0003, "The log").

Guarantees: several replicas that start together agree on one service record. Does not: take the lock.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForeignDirectory, HalfCopy, VolumeTooSmall
from deathless.base.lock_stores import SEAL, lock_store
from deathless.base.storage import storage_error
from deathless.codec.untrusted import read_json
from deathless.core.replica.witness import Owner, Sighting, check_epoch
from deathless.engine.ports import LockView, ServiceRecord
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.instance import unusable
from deathless.shell.directory.place import keep_place
from deathless.shell.directory.service_record import ServiceCopy, keep_copy, keep_shards, read_copy
from deathless.shell.disk.durable import replace_file
from deathless.shell.disk.filesystem import RealFileSystem, check_local, probe_storage
from deathless.shell.disk.open_log import volume_shortage
from deathless.shell.disk.small_files import read_small
from deathless.shell.link.status_page import confirmed_elsewhere
from deathless.shell.lock_stores.opening import open_lock

_LOG: Final = logging.getLogger("deathless.supervisor")


class Identity(msgspec.Struct, frozen=True):
    """A replica's own memory of whom it serves."""

    service: str
    service_id: bytes
    incarnation: int
    fence: str
    store_id: str


def identity_path(directory: str, replica: str) -> Path:
    """Where a replica keeps its identity."""
    return Path(directory) / "replicas" / replica / "identity.json"


def read_identities(directory: str) -> dict[str, Identity]:
    """Give what every replica remembers. Raises: HalfCopy when one can't be read; what the storage says."""
    found: dict[str, Identity] = {}
    for path in sorted((Path(directory) / "replicas").glob("*/identity.json")):
        try:
            found[path.parent.name] = read_json(read_small(path), Identity)
        except OSError as error:
            raise storage_error(error) or HalfCopy(f"{path}: {error}") from None
        except msgspec.MsgspecError as error:
            raise HalfCopy(f"{path}: {error}") from None
    return found


def write_identity(directory: str, replica: str, identity: Identity) -> None:
    """Write it durably; replaces what stood there only for `adopt`."""
    path = identity_path(directory, replica)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(identity))


async def prepare(config: ReplicaConfig) -> ServiceRecord:
    """Check the directory, write the service at its very first start, remember who it is; gives the record.

    Raises: PermissionRefused, InvalidConfig, StorageUnfit (it can't carry the log or the fence), VolumeTooSmall (at the
    very first start; one that was begun is warned of), ForeignDirectory, HalfCopy, CopiedDirectory, ShardsFixed,
    LogTruncated (a witness knows a later epoch than the lock: it was put back).
    """
    filesystem = open_directory(config)
    in_directory = lock_store(config.lock).in_directory
    if in_directory:
        keep_place(config.directory)
    keep_shards(config)
    async with open_lock(config, filesystem, "supervisor") as lock:
        # Who remembers a service has created it before: read in the other order, a neighbour's first start that comes
        # in between would look like half a copy.
        identities = read_identities(config.directory)
        kept = read_copy(config.directory)
        view = await lock.view()
        shortage = volume_shortage(config, len({*identities, config.replica}))
        if view.service is None:
            refuse_unless_new(config, filesystem, identities, kept)
            if shortage is not None:
                raise VolumeTooSmall(f"{config.directory}: {shortage}")
            record = await lock.create_service(draw_service(config))
            view = await lock.view()
        else:
            record = view.service
            if shortage is not None:
                _LOG.warning("volume is too small", extra={"code": VolumeTooSmall.code, "why": shortage})
    keep_copy(config.directory, record)
    adoption = read_adoption(config.directory)
    record = adoption.apply(record)
    check_identity(config, record, view, identities.get(config.replica))
    seen = confirmed_elsewhere(config.directory, config.replica, instance=config.instance)
    if view.confirmed is not None:
        seen.append(Sighting(view.confirmed, "lock store"))
    owner = Owner(record.service_id, record.incarnation, adoption.former_incarnations)
    check_epoch(seen, owner, view.epoch if in_directory else None)
    if config.replica not in identities:
        identity = Identity(record.name, record.service_id, record.incarnation, record.fence, view.store_id)
        write_identity(config.directory, config.replica, identity)
    return record


def open_directory(config: ReplicaConfig) -> RealFileSystem:
    """Open the shared directory and see whether it can carry the fence.

    Raises: PermissionRefused, InvalidConfig, StorageUnfit.
    """
    try:
        Path(config.directory).mkdir(parents=True, exist_ok=True)
        filesystem = RealFileSystem(config.directory)
        if config.fence == SEAL:
            check_local(config.directory, allow_any=config.allow_any_file_system)
        probe_storage(filesystem, f"{config.owner}.{os.getpid()}")
    except OSError as error:
        raise unusable(error, config.directory) from None
    return filesystem


def draw_service(config: ReplicaConfig) -> ServiceRecord:
    """Draw what a service keeps for its life."""
    return ServiceRecord(
        name=config.shard_name,
        service_id=os.urandom(16),
        incarnation=int.from_bytes(os.urandom(7), "little") | 1,
        seed=os.urandom(32),
        hash_seed=int.from_bytes(os.urandom(4), "little"),
        fence=config.fence,
        live=False,
    )


def refuse_unless_new(
    config: ReplicaConfig, filesystem: RealFileSystem, identities: dict[str, Identity], kept: ServiceCopy | None
) -> None:
    """A lock store that knows no service beside a directory that does: not a first start."""
    if identities:
        name, other = next(iter(identities.items()))
        raise HalfCopy(
            f"{config.directory}: replica {name} served {other.service!r} here, but the lock store knows no service",
            remedy="mount the right volume, restore the lock store, or `deathless adopt`",
        )
    if kept is not None:
        raise HalfCopy(
            f"{config.directory} is the directory of service {kept.name!r}, but the lock store knows no service",
            remedy="point lock at the right store, restore it, or `deathless adopt`",
        )
    try:
        segments = [name for name in filesystem.listing("log") if name.endswith(".seg")]
    except FileNotFoundError:
        segments = []
    if segments:
        raise HalfCopy(
            f"{config.directory}/log holds {len(segments)} segments, but the lock store knows no service",
            remedy="restore the rest of the directory, or `deathless adopt`",
        )


def check_identity(config: ReplicaConfig, record: ServiceRecord, view: LockView, mine: Identity | None) -> None:
    """Compare manifest, lock store and what this replica remembers. Raises: ForeignDirectory."""
    if record.name != config.shard_name:
        raise ForeignDirectory(f"{config.directory} belongs to service {record.name!r}, not {config.shard_name!r}")
    if record.fence != config.fence:
        raise ForeignDirectory(
            f"fence is {config.fence!r} in the manifest and {record.fence!r} in the log",
            remedy="stop all replicas, then `deathless adopt` the new fence",
        )
    if mine is None:
        return
    if mine.service_id != record.service_id or mine.incarnation != record.incarnation:
        raise ForeignDirectory(f"replica {config.replica} served another incarnation of {record.name!r}")
    if mine.store_id != view.store_id:
        raise ForeignDirectory(
            f"replica {config.replica} knows lock store {mine.store_id!r}, this one is {view.store_id!r}",
            remedy="point lock at the right store, or `deathless adopt` the new one",
        )
