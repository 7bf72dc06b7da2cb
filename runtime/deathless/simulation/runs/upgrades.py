"""Upgrades in a run: an upgrader is started and ordered to go, and the others follow it once the upgrade is made.

    start -> go, and again while it did not come to pass -> made: each other replica is started with the new code
         -> a way back, in some runs: the same, from the new code to the former one
         -> no more orders: an upgrader that made nothing becomes a replica like the others

Who runs a set of replicas does no more than this: it looks at what the log says again and again, and starts those that
have other code. So whatever faults do meanwhile, in the end all run the code of the log's generation.

Guarantees: the same seed gives the same upgrades; a seed without any is as it was drawn. Does not: judge. May import
the simulation's parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.base.errors import DeathlessError, UpgradeRequired
from deathless.core import events as ev
from deathless.engine.log.store import ShardLog
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.nodes.former import SimUpgrade
from deathless.simulation.nodes.replica_node import ReplicaNode
from deathless.simulation.runs.faults import DURATIONS_US, Fault, FaultKind, FaultPlan
from deathless.simulation.runs.injector import ADMIN_CONN
from deathless.simulation.runs.verdict import lock_view
from deathless.simulation.workload.codes import LabCode

SHARE: Final = 0.12  # of seeds in which somebody upgrades
BACK_SHARE: Final = 1 / 3  # of these, in which there is a way back
HIT_SHARE: Final = 0.7  # of these, in which a fault hits the cut
LOOK_US: Final = 50_000  # between two looks at what the log says
FOLLOW_MAX_US: Final = 600_000  # from the upgrade until a replica of the former code is started with the new one
PREPARE_MAX_US: Final = 600_000  # from the start of an upgrader to the order to go
CUT_MAX_US: Final = 120_000  # a cut is over by then, mostly
AGAIN_US: Final = 700_000  # an order that came to nothing is given again after this
ORDERS_US: Final = 4_000_000  # no order is given so long after the first one
QUIET_US: Final = 3_000_000  # what was ordered last is over by then

CUT_KINDS: Final = (
    FaultKind.KILL,
    FaultKind.KILL_BOTH,
    FaultKind.FREEZE,
    FaultKind.FREEZE_WORKER,
    FaultKind.POWER_CUT,
    FaultKind.PARTITION,
    FaultKind.CUT,
    FaultKind.SLOW_DISK,
    FaultKind.SYNC_ERROR,
    FaultKind.DISK_FULL,
    FaultKind.LOCK_SILENT,
    FaultKind.LOCK_CUT_OFF,
    FaultKind.STEAL,
    FaultKind.SWITCHOVER,
    FaultKind.STOP,
)
"""Kinds that hit a cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """What is to come to pass in a run.

    Attributes:
        start_us: when the first upgrader is started, virtual time.
        go_us: when it is first ordered to go.
        upgraders: how many are started; the second one is of the same code, and follows.
        back: the former code is to come back.
        until_us: no order is given after this.
        fails: so many migrations fail before one does not.
    """

    start_us: int
    go_us: int
    upgraders: int
    back: bool
    until_us: int
    fails: int


def draw_upgrade(chance: random.Random, *, begin_us: int, end_us: int, share: float = SHARE) -> UpgradePlan | None:
    """Draw whether, and when, a service is upgraded. None: it is not.

    Args:
        chance: generator that belongs to upgrades alone.
        begin_us: no upgrader is started before.
        end_us: no upgrader is started after.
        share: of seeds in which one is.
    """
    if chance.random() >= share:
        return None
    start_us = chance.randrange(begin_us, end_us)
    go_us = start_us + chance.randrange(PREPARE_MAX_US)
    back = chance.random() < BACK_SHARE
    return UpgradePlan(
        start_us=start_us,
        go_us=go_us,
        upgraders=chance.choice((1, 1, 2)),
        back=back,
        until_us=go_us + ORDERS_US * (2 if back else 1),
        fails=chance.choice((0, 0, 0, 1)),
    )


def draw_cut_faults(
    chance: random.Random, plan: FaultPlan, upgrade: UpgradePlan, replicas: Sequence[str], prefix: str = ""
) -> FaultPlan:
    """Draw what hits the cut itself, beside the faults of a plan; whatever becomes of it, it is over at the healing."""
    faults: list[Fault] = []
    if chance.random() < HIT_SHARE:
        for _ in range(chance.randrange(1, 4)):
            kind = chance.choice(CUT_KINDS)
            low, high = DURATIONS_US[kind]
            target = chance.choice((upgrader(0, prefix), upgrader(0, prefix), "primary", chance.choice(replicas)))
            duration_us = int(low * (high / low) ** chance.random()) if high and low else 0
            at_us = upgrade.go_us + chance.randrange(CUT_MAX_US)
            other = chance.choice(replicas)
            size = chance.randrange(1_000, 100_000) if kind is FaultKind.SLOW_DISK else 0
            faults.append(Fault(at_us=at_us, kind=kind, duration_us=duration_us, target=target, other=other, size=size))
    every = sorted([*plan.faults, *faults], key=lambda fault: fault.at_us)
    ends = [fault.at_us + fault.duration_us + 1_000 for fault in faults]
    heal_us = max([plan.heal_us, upgrade.until_us + QUIET_US, *ends])
    return FaultPlan(faults=tuple(every), heal_us=heal_us, enabled=(*plan.enabled, *(f.kind for f in faults)))


def upgrader(number: int, prefix: str = "") -> str:
    """Name of an upgrader."""
    return f"{prefix}u{number}"


class Written(NamedTuple):
    """Whose code the log is of, as its head says."""

    code: LabCode
    generation: int


def written(cluster: Cluster) -> Written | None:
    """Give what head's cut says; None: there is no head yet, or it can't be read just now."""
    head = lock_view(cluster).head
    if not head:
        return None
    log = ShardLog(cluster.disk.view("upgrades"), cluster.setup.limits, "upgrades")
    try:
        cut = log.check_head(head)
    except (DeathlessError, OSError):
        return None
    return Written(cluster.shared.beside.code_of(cut.fingerprint), cut.generation)


def stopped_for_its_code(node: ReplicaNode) -> bool:
    """Did a replica stop because the log is of other code, so that an operator has to start it again?"""
    supervisor = node.supervisor_node
    return supervisor is not None and supervisor.machine.report.condition == UpgradeRequired.code


class Upgrades:
    """Carries an upgrade plan out on a cluster.

    Args:
        chance: of its own.
    """

    def __init__(self, cluster: Cluster, plan: UpgradePlan, chance: random.Random) -> None:
        self.made = 0  # upgrades that came to pass
        self._cluster = cluster
        self._plan = plan
        self._chance = chance
        self._fails = plan.fails
        self._follow_at: dict[str, int] = {}  # replica -> when it is started with the log's code
        self._go_at = plan.go_us
        first, second = cluster.shared.beside.codes
        prefix = cluster.setup.prefix
        for number in range(plan.upgraders):
            self._add(upgrader(number, prefix), first, second, 1)
            cluster.scheduler.call_at(
                plan.start_us + number * chance.randrange(1, PREPARE_MAX_US), self._starter(upgrader(number, prefix))
            )
        self._back = upgrader(plan.upgraders, prefix)
        cluster.scheduler.call_at(plan.start_us, self._look)

    def _add(self, name: str, code: LabCode, to: LabCode, generation: int) -> None:
        cluster = self._cluster
        upgrade = SimUpgrade(generation.to_bytes(16, "big"), to, generation, fails=self._fails > 0)
        cluster.add_upgrader(name, code, upgrade)
        addresses = cluster.shared.beside.directory.get(cluster.shared.beside.service_name)
        if addresses is not None:
            addresses.append(f"{name}:1")

    def _starter(self, name: str) -> Callable[[], None]:
        return self._cluster.replicas[name].start

    def _look(self) -> None:
        cluster, now_us = self._cluster, self._cluster.scheduler.now_us
        cluster.scheduler.call_later(LOOK_US, self._look)
        found = written(cluster)
        if found is None:
            return
        self.made = max(self.made, found.generation - 1)
        for name, node in list(cluster.replicas.items()):
            self._let_follow(name, node, found, now_us)
        self._maybe_go_back(found, now_us)
        if now_us < self._plan.until_us:
            self._maybe_order(found, now_us)
        else:
            self._end(found)

    def _let_follow(self, name: str, node: ReplicaNode, found: Written, now_us: int) -> None:
        """A replica of other code than the log's is started with that, some time after it was found out.

        So is one that stopped for its code before that came back.
        """
        same = node.code.fingerprint == found.code.fingerprint
        if node.upgrade is not None or (same and not stopped_for_its_code(node)):
            self._follow_at.pop(name, None)
            return
        due = self._follow_at.setdefault(name, now_us + self._chance.randrange(FOLLOW_MAX_US))
        if now_us >= due:
            del self._follow_at[name]
            self._become(node, found.code)

    def _become(self, node: ReplicaNode, code: LabCode) -> None:
        runs = node.powered
        node.kill_both()
        node.code, node.upgrade = code, None
        if runs:
            node.start()

    def _maybe_go_back(self, found: Written, now_us: int) -> None:
        if not self._plan.back or found.generation != 2 or self._back in self._cluster.replicas:
            return
        other = self._cluster.shared.beside.other_code(found.code)
        self._add(self._back, found.code, other, found.generation)
        self._go_at = now_us + self._chance.randrange(PREPARE_MAX_US)
        self._cluster.replicas[self._back].start()

    def _maybe_order(self, found: Written, now_us: int) -> None:
        """Order an upgrader of the log's generation to go."""
        node = self._cluster.maybe_primary()
        worker = node.worker_node if node is not None else None
        if now_us < self._go_at or worker is None:
            return
        ready = [
            each for each in self._cluster.replicas.values()
            if each.upgrade is not None and each.upgrade.from_generation == found.generation
        ]  # fmt: skip
        if not ready:
            return
        self._go_at = now_us + AGAIN_US
        chosen = self._chance.choice(ready)
        if self._fails:
            self._fails -= 1
        elif chosen.upgrade is not None:
            chosen.upgrade.fails = False
        order = ev.SwitchoverOrdered(ADMIN_CONN, 1, chosen.name, chosen.upgrade.id if chosen.upgrade else b"")
        self._cluster.scheduler.note(chosen.name, "is ordered to go")
        worker.process.post(lambda: worker.post(order))

    def _end(self, found: Written) -> None:
        """No upgrade comes to pass any more: who waits for one is a replica like the others."""
        for node in self._cluster.replicas.values():
            if node.upgrade is not None and node.upgrade.from_generation == found.generation:
                self._become(node, found.code)
