"""Opens a shard's log and checkpoints on the real file system."""

from __future__ import annotations

import os
from pathlib import Path

from deathless.base.config import ReplicaConfig
from deathless.base.limits import Limits
from deathless.base.topics.settings import kept_by
from deathless.base.topics.sinks import held_by
from deathless.base.volume import find_shortage
from deathless.engine.log.checkpoint_store import CHECKPOINT_FOLDER, SUFFIX
from deathless.engine.log.route import Identity
from deathless.engine.log.store import PREPARED_BYTES, ShardLog
from deathless.engine.ports import SegmentMaker, ServiceRecord
from deathless.shell.disk.filesystem import LOCAL_TYPES, RealFileSystem, filesystem_type


def volume_bytes(directory: str) -> int:
    """Give the size of the file system that holds the directory, used or not. Raises: OSError."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize


def log_room_bytes(config: ReplicaConfig) -> int:
    """Give what of a volume is the log's, beside its topics; 0: it does not say how large it is. Raises: OSError."""
    size = volume_bytes(config.directory)
    return size and max(1, size - _topics_bytes(config))


def _topics_bytes(config: ReplicaConfig) -> int:
    """Give what the rows of all topics of the service may come to, with those that sinks hold."""
    held = held_by((sink.topic, sink.hold_bytes_max) for sink in config.sinks)
    return config.shards * (sum(kept_by(config.drivers).values()) + held)


def volume_shortage(config: ReplicaConfig, replicas: int) -> str | None:
    """Say what the volume of a shard's directory lacks for the service; None: nothing, or it can't be asked.

    Args:
        config: of any replica of the shard. Its directory may not be there yet: then its parents say.
        replicas: of each shard.

    Raises: InvalidConfig.
    """
    try:
        size = volume_bytes(str(_standing(Path(config.directory))))
        state = _newest_checkpoint_bytes(config.directory)
    except OSError:
        return None  # whoever uses the directory meets the same error, and says more about it
    return find_shortage(
        size,
        config.make_limits(),
        replicas=replicas,
        shards=config.shards,
        state_bytes=state,
        topics_bytes=_topics_bytes(config),
    )


def _standing(folder: Path) -> Path:
    """Give the folder, or the nearest of its parents that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _newest_checkpoint_bytes(directory: str) -> int:
    found = sorted((Path(directory) / CHECKPOINT_FOLDER).glob(f"*{SUFFIX}"))  # names sort by lsn
    return found[-1].stat().st_size if found else 0


def open_log(  # noqa: PLR0913 - what a log is opened with, each by its name
    filesystem: RealFileSystem,
    limits: Limits,
    replica: str,
    record: ServiceRecord,
    store_id: str,
    adopted_through: int = 0,
    former_services: frozenset[bytes] = frozenset(),
    *,
    instance: str = "",
    maker: SegmentMaker | None = None,
    nonce: str = "",
) -> ShardLog:
    """Open the log for one replica, with its spare segment.

    Args:
        filesystem: the shared directory.
        limits: sizes of segments and of the spare.
        replica: this replica's name.
        record: whose log it must be.
        store_id: the lock store it must belong to.
        adopted_through: cuts up to this epoch may name another store or fence; an operator has adopted them.
        former_services: ids of services that this one was made of; those cuts may name them.
        instance: which of several that call themselves this replica.
        maker: fills segments ahead of time, where the volume is large enough for that and of this machine.
        nonce: of this process, for their names.

    Raises: OSError.
    """
    identity = Identity(record.service_id, record.incarnation, record.fence, store_id, adopted_through, former_services)
    # Of a small volume each byte is for what must be there. On storage of other machines a takeover would read the
    # zeros over the network, where it reads nothing of space that nobody wrote to.
    local = filesystem_type(filesystem.root) in LOCAL_TYPES
    if limits.segment_bytes_max < 4 * PREPARED_BYTES or not local:
        maker = None
    log = ShardLog(filesystem, limits, replica, identity, instance=instance, maker=maker, nonce=nonce)
    log.prepare()
    return log
