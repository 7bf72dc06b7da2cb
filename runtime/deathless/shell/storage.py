"""Opens a shard's log and checkpoints on the real file system."""

from __future__ import annotations

from deathless.base.limits import Limits
from deathless.engine.log_route import Identity
from deathless.engine.log_store import ShardLog
from deathless.engine.ports import FileSystem, ServiceRecord


def open_log(
    filesystem: FileSystem,
    limits: Limits,
    replica: str,
    record: ServiceRecord,
    store_id: str,
    adopted_through: int = 0,
    *,
    instance: str = "",
) -> ShardLog:
    """Open the log for one replica, with its spare segment.

    Args:
        filesystem: the shared directory.
        limits: sizes of segments and of the spare.
        replica: this replica's name.
        record: whose log it must be.
        store_id: the lock store it must belong to.
        adopted_through: cuts up to this epoch may name another store or fence; an operator has adopted them.
        instance: which of several that call themselves this replica.

    Raises: OSError.
    """
    identity = Identity(record.service_id, record.incarnation, record.fence, store_id, adopted_through)
    log = ShardLog(filesystem, limits, replica, identity, instance=instance)
    log.prepare()
    return log
