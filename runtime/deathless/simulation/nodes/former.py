"""The former code of a simulated upgrader; twin of the shell's process that runs it.

Guarantees: as the port's; its answer takes a while, in which anything may happen. Does not: fork, or use pipes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from deathless.base.errors import DeathlessError, UpgradeCalledOff
from deathless.codec.checkpoint_ahead import changes_between
from deathless.codec.frames import Frame
from deathless.codec.generations import NEWEST
from deathless.codec.map_entries import PREFIX
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.ready import Ready
from deathless.simulation.workload.codes import LabCode, carried

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

MIGRATE_MAX_S: Final = 0.05
AHEAD_PART: Final = 0.5
"""So many upgraders write the state ahead, at one of the first AHEAD_STEPS things that they are told of."""
AHEAD_STEPS: Final = 4


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
        level: newest format level that the build knows which runs the former code.
        ahead: number of things that it is told of before the state is written ahead, from 1; 0: by chance, or never.
    """

    id: bytes
    to: LabCode
    from_generation: int = 1
    fails: bool = False
    hangs: bool = False
    unfit: bool = False
    behind: bool = False
    ahead: int = 0
    level: int = NEWEST


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
        self.level = upgrade.level
        self._last: Frame | None = None  # that it was told of, where it may lose it
        # A chance of its own: whether something is written ahead changes nothing else of a run.
        chance = random.Random(f"{upgrade.id.hex()} {host.name} {seed.hex()}")
        by_chance = chance.randint(1, AHEAD_STEPS) if chance.random() < AHEAD_PART else 0
        self._until_ahead = upgrade.ahead or by_chance
        self._ahead: dict[bytes, bytes] = {}  # state that was written ahead, as the new code keeps it
        self._begun: Begun | None = None

    def restore(self, snapshot: Snapshot) -> None:
        """See Former."""
        self._shard.restore(snapshot)
        self._step()

    def apply(self, frame: Frame) -> None:
        """See Former."""
        last, self._last = self._last, None
        if last is not None:
            self._shard.apply(last)
        if self._upgrade.behind:
            self._last = frame
        else:
            self._shard.apply(frame)
        self._step()

    def _step(self) -> None:
        """Count what it is told of; at one of these the state is written ahead, and the cut needs what changes then."""
        self._until_ahead -= 1
        if self._until_ahead:
            return
        ahead, records = self._carried(dict(self._shard.executor.state())), self._shard.executor.suspended()

        def begun(begun: Begun | None) -> None:
            self._ahead, self._begun = ahead, begun
            if begun is not None and not any(key.startswith(PREFIX) for key in ahead):
                for _ in self._worker.running.takeover.make_ready(Ready(begun.digest, dict(ahead), records)):
                    pass

        self._worker.begin_first(ahead, begun)

    def _carried(self, state: dict[bytes, bytes]) -> dict[bytes, bytes]:
        lower = self._worker.host.safeguards.lower_on_the_way_back
        return carried(self._code, self._upgrade.to, state, lower=lower)

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
            made = dataclasses.replace(held, state=self._carried(held.state))
            if self._begun is not None:
                made.since = Since(self._begun, *changes_between(self._ahead, made.state))
            if self._upgrade.unfit:
                made = dataclasses.replace(made, invocations=[b"of no handler"])
            worker.answered(lambda: done(made))

        worker.call_later(worker.host.chance.random() * MIGRATE_MAX_S, answer)
