"""How a worker that was started for an upgrade begins: with the former code's process, or as a replica like others.

Its config names an upgrade; whether that is still to be made the log says, for a worker may begin again at any time.
Where head's cut is of the generation that the upgrade is made of, the worker follows by the former code. Else it is
made, by this replica or another, and the worker runs its own code as any replica does.

Guarantees: nothing is started where nothing is to be made. Does not: make the upgrade (the engine does).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import DeathlessError
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import LockView, ServiceRecord
from deathless.engine.replica.applying import Code
from deathless.engine.replica.upgrade_steps import Upgrade, to_be_made
from deathless.execution.author.service import Service
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.process.turn_guards import guard_thread
from deathless.shell.upgrade.former import FormerProcess
from deathless.shell.upgrade.former_link import link_of
from deathless.shell.upgrade.migration import Migration


class Upgrader:
    """What the worker of an upgrader has beside other workers.

    Attributes:
        upgrade: for the engine.
        former: the process; the worker ends it.
        code: of the former code, by which the engine follows.
    """

    def __init__(self, upgrade: Upgrade, former: FormerProcess, code: Code) -> None:
        self.upgrade = upgrade
        self.former = former
        self.code = code

    def try_out(self, done: Callable[[dict[str, object]], None]) -> None:
        """Say what would come of the upgrade now; nothing is changed."""
        begun = time.monotonic()

        def answered(answer: Migrated | DeathlessError) -> None:
            if isinstance(answer, DeathlessError):
                done({"problem": str(answer)})
                return
            misfits = [{"word": each.word, "subject": each.subject, "text": each.text} for each in answer.misfits]
            done(
                {
                    "misfits": misfits,
                    "notes": [each.text for each in answer.notes],
                    "compatible": answer.compatible,
                    "keys": answer.keys,
                    "lsn": int(answer.snapshot.lsn),
                    "seconds": time.monotonic() - begun,
                }
            )

        self.former.tried(answered)

    def status(self) -> dict[str, object]:
        """What tools are told of it."""
        problem = self.former.problem
        return {
            "id": self.upgrade.id.hex(),
            "from_generation": self.upgrade.from_generation,
            "to_version": self.upgrade.to_version,
            "former_lsn": self.former.stands,
            "waiting_bytes": self.former.waiting_bytes,
            "problem": "" if problem is None else str(problem),
        }


def begin_upgrade(
    config: ReplicaConfig,
    *,
    log: ShardLog,
    view: LockView,
    record: ServiceRecord,
    service: Service,
    code: Code,
    scratch: str,
) -> Upgrader | None:
    """Give what is needed for the upgrade that the config names; None: there is none, or it is made.

    Args:
        config: of the replica.
        log: of the shard.
        view: of the lock, looked at just now.
        record: who the service is.
        service: whose code runs behind the upgrade.
        code: that one's, as the engine knows it.
        scratch: folder for what may be lost.

    Raises: what reading head's cut raises.
    """
    wanted = config.upgrade
    if wanted is None:
        return None
    migration = Migration(service, config, wanted, record.seed, hide=guard_thread)
    former = FormerProcess(
        msgspec.structs.replace(config, module=wanted.module, code=wanted.code, upgrade=None),
        link=link_of(wanted, record.hash_seed),
        seed=record.seed,
        fingerprint=bytes.fromhex(wanted.from_fingerprint),
        scratch=scratch,
        look=migration.look,
        back=migration.back,
    )
    upgrade = _upgrade(wanted, former, service, code)
    if not to_be_made(log.check_head(view.head) if view.head else None, upgrade):
        return None
    before = Code(bytes.fromhex(wanted.from_fingerprint), frozenset(), code.what_differs)
    return Upgrader(upgrade, former, before)


def _upgrade(wanted: UpgradeConfig, former: FormerProcess, service: Service, code: Code) -> Upgrade:
    return Upgrade(
        id=bytes.fromhex(wanted.id),
        from_generation=wanted.from_generation,
        former=former,
        code=code,
        from_version=wanted.from_version,
        to_version=service.version,
        time_us=wanted.time_us,
    )
