"""The former code of a simulated upgrader; twin of the shell's process that runs it.

Guarantees: as the port's; its answer takes a while, in which anything may happen. Does not: fork, or use pipes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from deathless.base.errors import DeathlessError, UpgradeCalledOff
from deathless.codec.frames import Frame
from deathless.codec.snapshot import Snapshot
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.simulation.workload.codes import LabCode, carried

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

MIGRATE_MAX_S: Final = 0.05


@dataclasses.dataclass(slots=True)
class SimUpgrade:
    """What a replica is started for.

    Attributes:
        id: 16 bytes.
        to: the code behind it.
        from_generation: of the log that it is made of.
        fails: the migration does; this and what follows is for scenarios to change.
        hangs: the migration never ends.
        unfit: what it gives can't be restored by the new code.
        behind: the former code loses the last frame that it was told of.
    """

    id: bytes
    to: LabCode
    from_generation: int = 1
    fails: bool = False
    hangs: bool = False
    unfit: bool = False
    behind: bool = False


class SimFormer:
    """Of one worker.

    Args:
        code: that it runs.
        seed: of the service.
    """

    def __init__(self, worker: WorkerNode, code: LabCode, upgrade: SimUpgrade, seed: bytes) -> None:
        self._worker = worker
        self._code = code
        self._upgrade = upgrade
        host = worker.host
        self._shard: Shard = open_shard(
            code.definition, worker.limits, seed, sharding=host.sharding, safeguards=host.safeguards
        )
        self.restore = self._shard.restore
        self._last: Frame | None = None  # that it was told of, where it may lose it

    def apply(self, frame: Frame) -> None:
        """See Former."""
        last, self._last = self._last, None
        if last is not None:
            self._shard.apply(last)
        if self._upgrade.behind:
            self._last = frame
        else:
            self._shard.apply(frame)

    def migrated(self, done: Callable[[Snapshot | DeathlessError], None]) -> None:
        """See Former."""
        worker, service = self._worker, self._worker.running.service
        held = self._shard.snapshot(
            service=service.name,
            service_id=service.service_id,
            incarnation=service.incarnation,
            epoch=worker.running.applying.log_epoch,
            fingerprint=self._code.fingerprint,
        )

        def answer() -> None:
            if self._upgrade.fails:
                worker.answered(lambda: done(UpgradeCalledOff("the migration failed")))
                return
            if self._upgrade.hangs:
                return
            lower = worker.host.safeguards.lower_on_the_way_back
            made = dataclasses.replace(held, state=carried(self._code, self._upgrade.to, held.state, lower=lower))
            if self._upgrade.unfit:
                made = dataclasses.replace(made, invocations=[b"of no handler"])
            worker.answered(lambda: done(made))

        worker.call_later(worker.host.chance.random() * MIGRATE_MAX_S, answer)
