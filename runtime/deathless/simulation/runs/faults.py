"""Which faults hit a run, and when: drawn from the seed before the run begins.

Why drawn as a swarm: a run with every kind of fault at once is mostly noise, and some losses need the absence of
another fault. So each seed switches most kinds off, gives the rest weights, and draws a handful of faults in bursts.
After ``heal_us`` nothing is broken any more, and everything asked for must come to its end.

Guarantees: the same seed, options and names give the same plan; at ``heal_us`` every fault has ended. Does not: carry
anything out (the cluster does). May import scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ENABLED_SHARE: Final = 0.35  # of the kinds, in one seed
FAULTS_MAX: Final = 14


class FaultKind(StrEnum):
    """What can go wrong."""

    KILL = "kill"  # kill -9 of a replica's worker; its supervisor starts it again
    KILL_BOTH = "kill-both"  # worker and supervisor at once; back after a while
    POWER_CUT = "power-cut"  # of all machines with the disk: what was not synced is lost or torn
    FREEZE = "freeze"  # SIGSTOP of worker and supervisor, then SIGCONT
    FREEZE_WORKER = "freeze-worker"  # of the worker alone
    PARTITION = "partition"  # one replica from all others; clients still reach it, or not
    PARTITION_ONE_WAY = "partition-one-way"  # from one replica to another
    CUT = "cut"  # as partition, connections time out
    RESET = "reset"  # connections of a replica are lost
    HALF_OPEN = "half-open"  # one end learns it only when it sends
    SLOW_NETWORK = "slow-network"  # of one replica
    SLOW_DISK = "slow-disk"  # syncs of one replica take long
    DISK_FULL = "disk-full"  # for a while, for all
    READ_ONLY = "read-only"  # the volume takes no change for a while, for all
    SLOW_STORAGE = "slow-storage"  # syncs of all replicas take long
    SYNC_ERROR = "sync-error"  # one sync of a replica fails and loses what it was to make durable
    DEAD_DISK = "dead-disk"  # every call of one replica fails for a while
    STALE_LOOKUPS = "stale-lookups"  # one replica's absent names and listings stay as first seen
    CLOCK_FORWARD = "clock-forward"  # of one replica's wall clock
    CLOCK_BACK = "clock-back"
    SLEEP = "sleep"  # of one machine, in a moment of virtual time; see DRAWN
    LOCK_SILENT = "lock-silent"  # the lock store gives no answer for a while
    LOCK_CUT_OFF = "lock-cut-off"  # from one replica
    STEAL = "steal"  # a standby takes over though the primary lives
    SWITCHOVER = "switchover"  # an operator orders it
    STOP = "stop"  # SIGTERM of a replica's supervisor: an orderly stop; started again after a while
    CLIENT_KILL = "client-kill"  # a client dies for good, its calls without answer
    CLIENT_RESET = "client-reset"  # a client's connection is lost
    FENCE = "fence"  # an operator keeps a replica's worker stopped for a while
    HANG = "hang"  # a worker's loop stands still for a while, in nothing that its page shows
    COPY = "copy"  # of the whole directory; its replicas wake up beside the original, and stay


VOLUME: Final = (FaultKind.READ_ONLY, FaultKind.SLOW_STORAGE)
"""Kinds that hit the volume, and with it all replicas at once; drawn beside the others, by `draw_volume_faults`."""

HOLDS: Final = (FaultKind.FENCE, FaultKind.HANG)
"""Kinds that are for a replica's supervisor; drawn beside the others, by `draw_holds`."""

APART: Final = frozenset({FaultKind.SLEEP, FaultKind.COPY, *VOLUME, *HOLDS})
DRAWN: Final = tuple(kind for kind in FaultKind if kind not in APART)
"""Kinds that seeds draw from. Sleep is brought about by `between`, and by tests that judge timers; a copy is drawn by
`draw_copy_fault`.
"""

UNUSABLE: Final = frozenset({FaultKind.READ_ONLY, FaultKind.DEAD_DISK})
"""While no secret can be written the newest one goes on to serve, and a copy made meanwhile has it (design 0014)."""
HOLDS_SHARE: Final = 0.4  # of seeds in which workers are held or hang
COPY_SHARE: Final = 0.1  # of seeds in which the directory is copied, of those without such faults

DURATIONS_US: Final[dict[FaultKind, tuple[int, int]]] = {
    FaultKind.KILL: (0, 0),
    FaultKind.KILL_BOTH: (100_000, 1_500_000),
    FaultKind.POWER_CUT: (50_000, 500_000),
    FaultKind.FREEZE: (5_000, 2_500_000),
    FaultKind.FREEZE_WORKER: (5_000, 2_500_000),
    FaultKind.PARTITION: (50_000, 2_500_000),
    FaultKind.PARTITION_ONE_WAY: (50_000, 2_500_000),
    FaultKind.CUT: (50_000, 2_500_000),
    FaultKind.RESET: (0, 0),
    FaultKind.HALF_OPEN: (0, 0),
    FaultKind.SLOW_NETWORK: (100_000, 2_000_000),
    FaultKind.SLOW_DISK: (100_000, 2_000_000),
    FaultKind.DISK_FULL: (50_000, 1_000_000),
    FaultKind.READ_ONLY: (10_000, 2_000_000),
    FaultKind.SLOW_STORAGE: (200_000, 4_000_000),
    FaultKind.SYNC_ERROR: (0, 0),
    FaultKind.DEAD_DISK: (10_000, 1_000_000),
    FaultKind.STALE_LOOKUPS: (100_000, 3_000_000),
    FaultKind.CLOCK_FORWARD: (0, 0),
    FaultKind.CLOCK_BACK: (0, 0),
    FaultKind.SLEEP: (0, 0),
    FaultKind.LOCK_SILENT: (10_000, 1_500_000),
    FaultKind.LOCK_CUT_OFF: (10_000, 6_000_000),  # beyond the time after which another takes over
    FaultKind.STEAL: (0, 0),
    FaultKind.SWITCHOVER: (0, 0),
    FaultKind.STOP: (200_000, 2_000_000),
    FaultKind.CLIENT_KILL: (0, 0),
    FaultKind.CLIENT_RESET: (0, 0),
    FaultKind.FENCE: (100_000, 3_000_000),
    FaultKind.HANG: (100_000, 20_000_000),  # beyond turn_max_s
    FaultKind.COPY: (0, 0),
}
"""Shortest and longest duration of each kind, microseconds; 0: it is over at once."""

MAGNITUDES: Final[dict[FaultKind, tuple[int, int]]] = {
    FaultKind.SLOW_NETWORK: (1_000, 150_000),
    FaultKind.SLOW_DISK: (1_000, 200_000),
    FaultKind.SLOW_STORAGE: (5_000, 300_000),
    FaultKind.CLOCK_FORWARD: (1_000, 200_000_000_000),
    FaultKind.CLOCK_BACK: (1_000, 200_000_000_000),
}
"""Smallest and largest size of each kind that has one, microseconds, drawn evenly in its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        at_us: when it begins, virtual time.
        duration_us: how long it lasts; 0: at once.
        target: replica or client it is for; for replicas "primary" means whoever is primary then.
        other: second party of one that needs two, else empty.
        size: see MAGNITUDES; 0 for kinds without one.
    """

    at_us: int
    kind: FaultKind
    duration_us: int = 0
    target: str = ""
    other: str = ""
    size: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.target} {self.other} for {self.duration_us} us, size {self.size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """All faults of a run, by time; ``heal_us`` is when nothing is broken any more."""

    faults: tuple[Fault, ...]
    heal_us: int
    enabled: tuple[FaultKind, ...]


PRIMARY_TARGET: Final = "primary"
CLIENT_KINDS: Final = frozenset({FaultKind.CLIENT_KILL, FaultKind.CLIENT_RESET})


def draw_plan(
    chance: random.Random,
    *,
    replicas: Sequence[str],
    clients: Sequence[str],
    begin_us: int,
    end_us: int,
    kinds: Sequence[FaultKind] = DRAWN,
) -> FaultPlan:
    """Draw the faults of one run.

    Args:
        chance: generator that belongs to the plan alone.
        replicas: names, at least one.
        clients: names, at least one.
        begin_us: no fault begins before.
        end_us: no fault begins after; the last ends at most the longest duration later.
        kinds: that may be drawn at all.
    """
    enabled = tuple(kind for kind in kinds if chance.random() < ENABLED_SHARE)
    faults: list[Fault] = []
    if enabled:
        weights = [chance.choice((1, 1, 2, 5)) for _ in enabled]
        count = chance.randrange(1, FAULTS_MAX + 1)
        # Faults that come close together find more than faults far apart: half of them follow another at once.
        at_us = begin_us
        for _ in range(count):
            if not faults or chance.random() < 0.5:
                at_us = chance.randrange(begin_us, end_us)
            else:
                at_us = min(end_us, at_us + int(10 ** (chance.random() * 4.5 + 1)))
            kind = chance.choices(enabled, weights)[0]
            faults.append(_draw_fault(chance, kind, at_us, replicas, clients))
    faults.sort(key=lambda fault: fault.at_us)
    heal_us = max([end_us, *(fault.at_us + fault.duration_us for fault in faults)]) + 1_000
    return FaultPlan(faults=tuple(faults), heal_us=heal_us, enabled=enabled)


def draw_volume_faults(
    chance: random.Random, plan: FaultPlan, *, replicas: Sequence[str], begin_us: int, end_us: int
) -> FaultPlan:
    """Draw what becomes of the volume beside the faults of a plan; nothing at all in half of the seeds.

    Args:
        chance: generator that belongs to these faults alone, so that the others stay as they were drawn.
        plan: what happens already.
        replicas: names, at least one.
        begin_us: no fault begins before.
        end_us: no fault begins after.
    """
    return _draw_beside(chance, plan, VOLUME, 0.5, replicas, begin_us, end_us)


def draw_holds(
    chance: random.Random, plan: FaultPlan, *, replicas: Sequence[str], begin_us: int, end_us: int
) -> FaultPlan:
    """Draw what operators and hung workers ask of supervisors beside the faults of a plan; nothing in most seeds.

    Args:
        chance: generator that belongs to these faults alone, so that the others stay as they were drawn.
        plan: what happens already.
        replicas: names, at least one.
        begin_us: no fault begins before.
        end_us: no fault begins after.
    """
    return _draw_beside(chance, plan, HOLDS, HOLDS_SHARE, replicas, begin_us, end_us)


def _draw_beside(
    chance: random.Random,
    plan: FaultPlan,
    kinds: Sequence[FaultKind],
    share: float,
    replicas: Sequence[str],
    begin_us: int,
    end_us: int,
) -> FaultPlan:
    """Draw up to three faults more, in this share of the seeds."""
    if chance.random() >= share:
        return plan
    faults = [
        _draw_fault(chance, chance.choice(kinds), chance.randrange(begin_us, end_us), replicas, ())
        for _ in range(chance.randrange(1, 4))
    ]
    every = sorted([*plan.faults, *faults], key=lambda fault: fault.at_us)
    heal_us = max([plan.heal_us, *(fault.at_us + fault.duration_us + 1_000 for fault in faults)])
    enabled = (*plan.enabled, *sorted({fault.kind for fault in faults}))
    return FaultPlan(faults=tuple(every), heal_us=heal_us, enabled=enabled)


def draw_copy_fault(chance: random.Random, plan: FaultPlan, *, begin_us: int, end_us: int) -> FaultPlan:
    """Draw whether the directory is copied beside the faults of a plan; how is drawn from the copy's own chance.

    Args:
        chance: generator that belongs to this fault alone.
        plan: what happens already.
        begin_us: the copying begins no earlier.
        end_us: the copying begins no later.
    """
    if chance.random() >= COPY_SHARE or any(fault.kind in UNUSABLE for fault in plan.faults):
        return plan
    fault = Fault(at_us=chance.randrange(begin_us, end_us), kind=FaultKind.COPY)
    every = sorted([*plan.faults, fault], key=lambda fault: fault.at_us)
    return FaultPlan(faults=tuple(every), heal_us=plan.heal_us, enabled=(*plan.enabled, FaultKind.COPY))


def _draw_fault(
    chance: random.Random, kind: FaultKind, at_us: int, replicas: Sequence[str], clients: Sequence[str]
) -> Fault:
    low, high = DURATIONS_US[kind]
    duration_us = _draw_log(chance, low, high) if high else 0
    small, large = MAGNITUDES.get(kind, (0, 0))
    if kind in CLIENT_KINDS:
        target, other = chance.choice(clients), ""
    else:
        target = PRIMARY_TARGET if chance.random() < 0.6 else chance.choice(replicas)
        other = chance.choice(replicas)
    return Fault(
        at_us=at_us,
        kind=kind,
        duration_us=duration_us,
        target=target,
        other=other,
        size=_draw_log(chance, small, large) if large else 0,
    )


def _draw_log(chance: random.Random, low: int, high: int) -> int:
    """Draw from [low, high], evenly in the logarithm."""
    low = max(low, 1)
    return min(high, int(low * (high / low) ** chance.random()))
