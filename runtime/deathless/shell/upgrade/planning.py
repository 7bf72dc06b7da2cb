"""Which upgrade is to be made: from the generation of the log that head names, to the code that somebody has.

Whoever asks for one head and one code gets the same id: upgraders that were started by different processes, and whoever
leads through it, mean the same upgrade without a word to each other.

Guarantees: an upgrade is planned only from code whose interface is recorded. Does not: start anything.
"""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import UpgradeRefused
from deathless.codec.frames import Cut
from deathless.engine.ports import ServiceRecord
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.interface_record import needed
from deathless.shell.service_code.kept_code import former_spellings


class Head(NamedTuple):
    """Of a shard's log."""

    cut: Cut
    record: ServiceRecord

    def is_of(self, directory: str, described: Description) -> bool:
        """Was the log's end written by this code, in whichever way that is told?"""
        return self.cut.fingerprint in described.spellings | former_spellings(directory, described)


async def head_of(config: ReplicaConfig) -> Head:
    """Read head. Raises: as `inspect`; UpgradeRefused where there is no log yet; DataCorrupt errors, OSError."""
    found = await inspect(config)
    if not found.view.head:
        raise UpgradeRefused(
            f"{config.directory}: there is no log to be upgraded yet", remedy="start the service first"
        )
    return Head(found.reader.routes.cut(found.view.head), found.record)


def plan_upgrade(config: ReplicaConfig, head: Head, described: Description) -> UpgradeConfig:
    """Give the upgrade from what the log is of; how its former code is reached is the caller's to add.

    Args:
        config: of a replica of the shard.
        head: of its log.
        described: the code behind the upgrade.

    Raises: UpgradeRefused where nobody knows what the former code was.
    """
    cut, record = head
    named = b"%s %d %s" % (record.service_id, cut.generation, described.fingerprint)
    return UpgradeConfig(
        id=hashlib.blake2b(named, digest_size=16).hexdigest(),
        from_generation=cut.generation,
        from_fingerprint=cut.fingerprint.hex(),
        from_version=needed(config.directory, cut.fingerprint).version,
        time_us=time.time_ns() // 1000,
    )
