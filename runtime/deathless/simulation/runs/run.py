"""Runs one seed from start to verdict.

    start -> clients ask while faults come -> all is healed -> all answers are in -> all replicas agree -> verdict

Guarantees: `run_seed` depends on its arguments alone; the same ones give the same trace hash in any process. Does not:
print. May import the simulation's parts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deathless.base.errors import LogTruncated, UpgradeRequired
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.checkers.history import Violation
from deathless.simulation.nodes.cluster import SPAN_US, Cluster, Setup, draw_setup
from deathless.simulation.runs.faults import (
    DRAWN,
    FaultKind,
    FaultPlan,
    draw_copy_fault,
    draw_holds,
    draw_plan,
    draw_volume_faults,
)
from deathless.simulation.runs.injector import Injector
from deathless.simulation.runs.upgrades import SHARE, UpgradePlan, Upgrades, draw_cut_faults, draw_upgrade
from deathless.simulation.runs.verdict import judge
from deathless.simulation.world.scheduler import draw

BEGIN_US: Final = 150_000  # no fault comes before: the first primary stands by then, usually
ANSWER_BOUND_US: Final = 12_000_000  # an answer is there that long after the healing, at the latest
SETTLE_BOUND_US: Final = 12_000_000  # and then all replicas stand at one place
UPGRADERS_MAX: Final = 3  # two, and one for the way back
CHECKPOINT_BYTES_MAX: Final = 1 << 16  # of the state of the lab, with its sessions and keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is not drawn but given; None and empty: drawn.

    Attributes:
        kinds: of faults that may come; None: all.
        between: kinds of faults between services that come, all of them and many; None: drawn.
        limits: of services, over what is drawn.
        upgrades: share of seeds in which a service is upgraded; None: of those whose faults are drawn a few.
        shards: of each service, where there are several services.
    """

    replicas: int | None = None
    fence: str | None = None
    kinds: Sequence[FaultKind] | None = None
    between: Sequence[str] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    upgrades: float | None = None
    shards: int = 1
    safeguards: Safeguards = ALL_SAFEGUARDS
    keep_trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one seed.

    Attributes:
        services: that call each other; 1: a single cluster.
        operations: that clients asked for.
        epochs: the last one, which is how often somebody took over.
        events: that the scheduler ran.
        virtual_s, cpu_s: seconds that passed inside, and for us.
        streams: that sources sent into the cluster.
        upgrade: that was to come to pass; None: none was.
        generations: of the code, at the end; of several services, of the one with most.
        trace: the last lines, or all of them.
    """

    seed: int
    violations: tuple[Violation, ...]
    trace_hash: str
    setup: Setup
    plan: FaultPlan
    operations: int
    epochs: int
    events: int
    virtual_s: float
    cpu_s: float
    services: int = 1
    streams: int = 0
    upgrade: UpgradePlan | None = None
    generations: int = 1
    trace: tuple[str, ...] = field(default=(), repr=False)

    @property
    def good(self) -> bool:
        """Nothing was wrong."""
        return not self.violations


def drawn(seed: int, options: Options) -> tuple[Setup, FaultPlan]:
    """Draw the cluster of a seed, and what befalls it."""
    setup = draw_setup(seed, replicas=options.replicas, fence=options.fence, safeguards=options.safeguards)
    plan = draw_plan(
        draw(seed, "plan"),
        replicas=setup.names(),
        clients=setup.client_names(),
        begin_us=BEGIN_US,
        end_us=SPAN_US,
        kinds=DRAWN if options.kinds is None else tuple(options.kinds),
    )
    return setup, plan


def result_of(
    seed: int, cluster: Cluster, setup: Setup, plan: FaultPlan, violations: Sequence[Violation], begun: float
) -> Result:
    """Give what a run came to that began when this process had used so much CPU time, in seconds."""
    scheduler = cluster.scheduler
    return Result(
        seed=seed,
        violations=tuple(violations),
        trace_hash=scheduler.trace.hexdigest(),
        setup=setup,
        plan=plan,
        operations=len(cluster.history),
        epochs=cluster.last_epoch,
        events=scheduler.events,
        virtual_s=scheduler.now_us / 1e6,
        cpu_s=time.process_time() - begun,
        trace=tuple(scheduler.trace.lines),
    )


def run_seed(seed: int, options: Options = Options()) -> Result:
    """Simulate the cluster of a seed and judge it."""
    begun = time.process_time()
    setup, plan = drawn(seed, options)
    upgrade = drawn_upgrade(draw(seed, "upgrade"), options)
    if options.kinds is None:
        setup = on_a_small_volume(draw(seed, "volume"), setup, more=UPGRADERS_MAX if upgrade is not None else 0)
        volume = draw(seed, "volume faults")
        plan = draw_volume_faults(volume, plan, replicas=setup.names(), begin_us=BEGIN_US, end_us=SPAN_US)
        holds = draw(seed, "holds")
        plan = draw_holds(holds, plan, replicas=setup.names(), begin_us=BEGIN_US, end_us=SPAN_US)
        setup, plan = with_copy(draw(seed, "copy"), setup, plan)
    if upgrade is not None:
        plan = draw_cut_faults(draw(seed, "cut"), plan, upgrade, setup.names())
    cluster = Cluster(seed, setup, keep_trace=options.keep_trace)
    try:
        upgrades = Upgrades(cluster, upgrade, draw(seed, "upgraders")) if upgrade is not None else None
        Injector(cluster, plan)
        cluster.start()
        violations = finish(cluster, plan.heal_us, allowed_stops(plan, upgraded=upgrade is not None))
        result = result_of(seed, cluster, setup, plan, violations, begun)
        generations = 1 if upgrades is None else 1 + upgrades.made
        return replace(result, upgrade=upgrade, generations=generations)
    finally:
        cluster.close()


def drawn_upgrade(chance: random.Random, options: Options) -> UpgradePlan | None:
    """Draw whether a service is upgraded; not where kinds of faults are given, unless upgrades are as well."""
    share = options.upgrades if options.upgrades is not None else SHARE if options.kinds is None else 0.0
    return draw_upgrade(chance, begin_us=BEGIN_US, end_us=SPAN_US, share=share)


def on_a_small_volume(chance: random.Random, setup: Setup, more: int = 0) -> Setup:
    """Give every fourth seed a volume that is little larger than the least that works, so that its log fills it.

    Args:
        chance: generator that belongs to the volume alone.
        setup: the cluster.
        more: replicas that may come to those of the cluster.
    """
    if chance.random() < 0.75:
        return setup
    least = setup.limits.least_volume_bytes(setup.replicas + more, state_bytes=CHECKPOINT_BYTES_MAX)
    capacity = int(least * (1.0 + chance.random()))
    return replace(setup, capacity_bytes=capacity, limits=setup.limits.fitted(capacity))


def with_copy(chance: random.Random, setup: Setup, plan: FaultPlan) -> tuple[Setup, FaultPlan]:
    """Have the directory copied in some seeds; then all who connect show where they stand."""
    plan = draw_copy_fault(chance, plan, begin_us=BEGIN_US, end_us=SPAN_US)
    return replace(setup, proofs=any(fault.kind is FaultKind.COPY for fault in plan.faults)), plan


def allowed_stops(plan: FaultPlan, *, upgraded: bool = False) -> frozenset[str]:
    """Who looks names up too early finds files missing, says so and stops: an error, never an end of the log.

    And who has the code of before an upgrade stops for that.
    """
    stale = any(fault.kind is FaultKind.STALE_LOOKUPS for fault in plan.faults)
    codes = {LogTruncated.code: stale, UpgradeRequired.code: upgraded}
    return frozenset(code for code, allowed in codes.items() if allowed)


def finish(cluster: Cluster, heal_us: int, allowed: frozenset[str] = frozenset()) -> list[Violation]:
    """Let a cluster come to its end after the last fault, and judge it; `allowed` as for `judge`."""
    cluster.scheduler.run_until(heal_us)
    cluster.run_until(lambda: cluster.served, ANSWER_BOUND_US)
    settled = cluster.run_until(lambda: cluster.settled, SETTLE_BOUND_US)
    violations = judge(cluster, healed_us=heal_us, bound_us=ANSWER_BOUND_US, allowed=allowed)
    if not settled:
        roles = ", ".join(f"{w.host.name} {w.running.core.role} lsn {w.running.place.lsn}" for w in cluster.workers())
        violations.append(Violation(checker="settling", text=f"the replicas do not come to one place: {roles}"))
    return violations
