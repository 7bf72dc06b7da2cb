"""What a service keeps for its life, once more in its own directory: `service.json`.

The lock store holds the service's id, incarnation and seeds. Without the seeds no handler that draws chance can run the
log again, so a lock store that is lost would take a whole log with it. This copy is written at the first start and
compared at every later one; from it `deathless adopt` restores a lock store that was wiped. The directory of a service
with several shards keeps how many they are, and each shard's folder its own copy.

Guarantees: written whole or not at all, by one process alone, and never changed; durable when `keep_copy` returns. Does
not: count as the truth while the lock store has one. May import engine (ports) and base.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForeignDirectory, HalfCopy, ShardsFixed
from deathless.base.storage import storage_error
from deathless.codec.untrusted import read_json
from deathless.engine.ports import ServiceRecord
from deathless.shell.disk.durable import link_file
from deathless.shell.disk.small_files import read_small

FILE: Final = "service.json"


class ServiceCopy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The record's lasting part; bytes are base64."""

    name: str
    service_id: bytes
    incarnation: int
    seed: bytes
    hash_seed: int
    fence: str  # that of the first start; what `adopt` accepted since stands in adopted.json

    def record(self) -> ServiceRecord:
        """Give the record as a lock store begins with it."""
        return ServiceRecord(
            self.name, self.service_id, self.incarnation, self.seed, self.hash_seed, self.fence, live=False
        )


class Shards(msgspec.Struct, frozen=True):
    """How many shards a service was created with; read from the copy of a service with one shard too."""

    name: str
    shards: int = 1


def read_shards(directory: str) -> Shards | None:
    """Give what a service's directory says; None: no service was started in it.

    Raises: HalfCopy when it can't be read; what the storage says.
    """
    path = Path(directory) / FILE
    try:
        return read_json(read_small(path), Shards)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        said = storage_error(error) if isinstance(error, OSError) else None
        raise said or HalfCopy(f"{path}: {error}", remedy="restore the file") from None


def check_shards(config: ReplicaConfig) -> Shards | None:
    """Compare the number of shards with what the service's directory says; gives that.

    Raises: ShardsFixed, ForeignDirectory, HalfCopy.
    """
    folder = config.service_directory
    try:
        kept = read_shards(folder)
    except HalfCopy:
        if config.shards > 1:
            raise
        return None  # `read_copy` says what can be done
    if kept is not None and kept.shards != config.shards:
        raise ShardsFixed(
            f"{folder} holds service {kept.name!r} with spec.shards: {kept.shards}, the manifest says {config.shards}"
        )
    if kept is not None and config.shards > 1 and kept.name != config.service:
        raise ForeignDirectory(f"{folder} belongs to service {kept.name!r}, not {config.service!r}")
    return kept


def keep_shards(config: ReplicaConfig) -> None:
    """Write down how many shards there are where nothing says so, and compare. Raises: as `check_shards`; OSError."""
    if check_shards(config) is None and config.shards > 1:
        _write(config.service_directory, Shards(config.service, config.shards))
        check_shards(config)


def copy_of(record: ServiceRecord) -> ServiceCopy:
    """Give what of a record lasts."""
    return ServiceCopy(record.name, record.service_id, record.incarnation, record.seed, record.hash_seed, record.fence)


def read_copy(directory: str) -> ServiceCopy | None:
    """Give the copy; None: there is none.

    Raises: HalfCopy when it can't be read; what the storage says.
    """
    path = Path(directory) / FILE
    try:
        return read_json(read_small(path), ServiceCopy)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        said = storage_error(error) if isinstance(error, OSError) else None
        raise said or HalfCopy(
            f"{path}: {error}",
            remedy="restore the file; if the lock store is intact, remove the file: it is then recreated",
        ) from None


def keep_copy(directory: str, record: ServiceRecord) -> None:
    """Write the copy where there is none, else compare.

    Raises: ForeignDirectory when it is of another service, incarnation or seed; HalfCopy; OSError.
    """
    mine = copy_of(record)
    kept = read_copy(directory)
    if kept is None:
        _write(directory, mine)
        kept = read_copy(directory)
    for name in ServiceCopy.__struct_fields__:
        if name != "fence" and getattr(kept, name) != getattr(mine, name):
            raise ForeignDirectory(
                f"{directory}/{FILE} has another {name.replace('_', ' ')} than the lock store",
                remedy="point logStorage and lock at one service",
            )


def _write(directory: str, copy: ServiceCopy | Shards) -> None:
    # False: a neighbour's first start was faster; what it wrote is compared.
    link_file(Path(directory) / FILE, msgspec.json.format(msgspec.json.encode(copy), indent=2))
