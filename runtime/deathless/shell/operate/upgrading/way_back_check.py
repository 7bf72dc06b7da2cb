"""Checks whether a service can go back to older code: the code that serves lowers a checkpoint, in its own process.

It is what an upgrader of the older code does, without a log behind the checkpoint, and without a replica.

Guarantees: nothing in the service's folder is changed, and no process is left. Does not: see what came behind the
checkpoint.
"""

from __future__ import annotations

import asyncio
import tempfile

import msgspec

from deathless.base.config import UpgradeConfig
from deathless.base.errors import DeathlessError
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.service import Service
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.lock_stores.inspection import Inspection
from deathless.shell.service_code.former_command import former_command
from deathless.shell.upgrade.former import Answer, FormerProcess
from deathless.shell.upgrade.former_link import OwnProcess
from deathless.shell.upgrade.migration import Migration


async def lowered_at(look: Inspection, snapshot: Snapshot, service: Service, version: int) -> Migrated:
    """Say what the older code would go on with at a checkpoint.

    Args:
        look: at the shard.
        snapshot: of the code that serves.
        service: with the older code.
        version: of the code that serves.

    Raises: FormerCodeMissing; UpgradeCalledOff where the process can't go on; what that says.
    """
    config, fingerprint = look.config, bytes(snapshot.fingerprint)
    interpreter, folder, module = former_command(config.directory, fingerprint)
    wanted = UpgradeConfig(
        id=bytes(16).hex(),
        from_generation=snapshot.generation.number,
        from_fingerprint=fingerprint.hex(),
        from_version=version,
        time_us=snapshot.times.time_us,
    )
    migration = Migration(service, config, wanted, look.record.seed)
    with tempfile.TemporaryDirectory(prefix="deathless-check-") as scratch:
        former = FormerProcess(
            msgspec.structs.replace(config, module=module, code=folder.name, upgrade=None),
            link=OwnProcess(interpreter, look.record.hash_seed),
            seed=look.record.seed,
            fingerprint=fingerprint,
            scratch=scratch,
            look=migration.look,
            back=migration.back,
        )
        told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            await former.start()
            former.restore(snapshot)
            former.tried(told.set_result)
            answer = await told
        finally:
            former.close()
    if isinstance(answer, DeathlessError):
        raise answer
    return answer
