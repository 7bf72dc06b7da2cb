"""Opens a shard's log and checkpoints on the real file system."""

from __future__ import annotations

from deathless.base.limits import Limits
from deathless.engine.log_route import Identity
from deathless.engine.log_store import ShardLog
from deathless.engine.ports import FileSystem, ServiceRecord


def open_log(filesystem: FileSystem, limits: Limits, replica: str, record: ServiceRecord, store_id: str) -> ShardLog:
    """Open the log for one replica, with its spare segment.

    Raises: OSError.
    """
    log = ShardLog(
        filesystem, limits, replica, Identity(record.service_id, record.incarnation, record.fence, store_id)
    )
    log.prepare()
    return log
