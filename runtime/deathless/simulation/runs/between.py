"""Faults between services: what one cluster's own faults do not bring about often enough.

    both      both ends are taken over, killed, frozen or lose their power within one network delay
    late      a primary's packets to a peer are held, a standby takes over from it, and they arrive after its own
    flap      the connections between two services are lost again and again, and each time what the one sent over the
              old one arrives after the new one was made
    apart     two services hear nothing of each other, while the machines of one sleep for weeks
    doubt     a proof's answer is under way for long; meanwhile a standby takes over, and the deposed one goes on

Why apart from `faults`: those are one cluster's, and the recorded seeds of single services stay as they are. What can
be said as faults of a cluster is (the plan of each service gets them); the rest is carried out here.

Guarantees: the same seed and names give the same plan; at `Between.heal_us` all of it has ended. May import the
simulation's parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deathless.engine.ports import Holder
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.runs.faults import PRIMARY_TARGET, Fault, FaultKind, FaultPlan
from deathless.simulation.runs.injector import steal

BETWEEN_MAX: Final = 6  # in one run
WEEK_US: Final = 7 * 86_400_000_000
DELAY_US: Final = 400  # a packet travels for about so long
FLAP_US: Final = 40_000  # between two losses
FLAP_LATE_US: Final = 60_000  # what was sent just before arrives so much later
FLAP_BEFORE_US: Final = 3_000
AT_BOTH: Final = (FaultKind.STEAL, FaultKind.STEAL, FaultKind.KILL, FaultKind.FREEZE, FaultKind.POWER_CUT)


class BetweenKind(StrEnum):
    """See the module."""

    BOTH = "both"
    LATE = "late"
    FLAP = "flap"
    APART = "apart"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class Between:
    """One fault, from `service` to `other`; `count` is how often, where that matters."""

    at_us: int
    kind: BetweenKind
    service: str
    other: str
    duration_us: int
    count: int = 1

    @property
    def heal_us(self) -> int:
        """When it has ended."""
        return self.at_us + self.duration_us

    def __str__(self) -> str:
        return f"{self.kind} {self.service} {self.other} for {self.duration_us} us, {self.count}"


def draw_between(
    chance: random.Random,
    names: tuple[str, ...],
    begin_us: int,
    end_us: int,
    given: Sequence[str] | None = None,
) -> list[Between]:
    """Draw the faults between the services of one run: none in some, and few kinds at a time; `given`: these kinds."""
    drawn = [kind for kind in BetweenKind if chance.random() < 0.5]
    kinds = drawn if given is None else [BetweenKind(kind) for kind in given]
    if not kinds:
        return []
    found: list[Between] = []
    for _ in range(chance.randrange(BETWEEN_MAX + 1) if given is None else BETWEEN_MAX):
        service, other = chance.sample(names, 2)
        kind = chance.choice(kinds)
        longest_us = 2_500_000 if kind is BetweenKind.APART else 900_000
        duration_us = int(20_000 * (longest_us / 20_000) ** chance.random())
        count = chance.randrange(2, 9)
        if kind is BetweenKind.FLAP:
            duration_us = count * FLAP_US
        found.append(Between(chance.randrange(begin_us, end_us), kind, service, other, duration_us, count))
    return sorted(found, key=lambda each: each.at_us)


def spread(
    chance: random.Random, faults: list[Between], replicas: Mapping[str, tuple[str, ...]]
) -> dict[str, list[Fault]]:
    """Give what of these faults is a fault of one cluster, by service."""
    found: dict[str, list[Fault]] = {name: [] for name in replicas}

    def add(name: str, at_us: int, kind: FaultKind, duration_us: int = 0) -> None:
        other = replicas[name][0]
        found[name].append(Fault(at_us=at_us, kind=kind, duration_us=duration_us, target=PRIMARY_TARGET, other=other))

    for each in faults:
        match each.kind:
            case BetweenKind.BOTH:
                kind = chance.choice(AT_BOTH)
                for name in (each.service, each.other):
                    add(name, each.at_us + chance.randrange(DELAY_US), kind, each.duration_us)
            case BetweenKind.LATE:
                add(each.service, each.at_us + DELAY_US, FaultKind.STEAL)
            case BetweenKind.APART:
                size = each.count * WEEK_US // 2
                for name in replicas[each.service]:
                    at_us = each.at_us + chance.randrange(each.duration_us)
                    sleep = Fault(at_us=at_us, kind=FaultKind.SLEEP, target=name, other=name, size=size)
                    found[each.service].append(sleep)
            case BetweenKind.FLAP | BetweenKind.DOUBT:
                pass
    return found


def with_more(plan: FaultPlan, more: list[Fault], heal_us: int) -> FaultPlan:
    """Give a plan with further faults, all of which have ended at `heal_us`."""
    faults = sorted((*plan.faults, *more), key=lambda fault: fault.at_us)
    return FaultPlan(faults=tuple(faults), heal_us=max(plan.heal_us, heal_us), enabled=plan.enabled)


class BetweenInjector:
    """Carries out what is no fault of one cluster."""

    def __init__(self, clusters: Mapping[str, Cluster], faults: list[Between]) -> None:
        self._clusters = clusters
        for fault in faults:
            clusters[fault.service].scheduler.call_at(fault.at_us, self._beginning(fault))

    def _beginning(self, fault: Between) -> Callable[[], None]:
        return lambda: self._begin(fault)

    def _begin(self, fault: Between) -> None:
        service, other = self._clusters[fault.service], self._clusters[fault.other]
        service.scheduler.note("between", str(fault))
        match fault.kind:
            case BetweenKind.LATE:
                self._hold(fault, [primary_host(service)], list(other.replicas), both_ways=False)
            case BetweenKind.APART:
                self._hold(fault, list(service.replicas), list(other.replicas), both_ways=True)
            case BetweenKind.FLAP:
                for index in range(fault.count):
                    service.scheduler.call_later(index * FLAP_US, lambda: self._delay(service, FLAP_LATE_US))
                    service.scheduler.call_later(index * FLAP_US + FLAP_BEFORE_US, lambda: self._lose(service, other))
            case BetweenKind.DOUBT:
                self._doubt(fault, service)
            case BetweenKind.BOTH:
                pass

    def _hold(self, fault: Between, sources: list[str], targets: list[str], *, both_ways: bool) -> None:
        network, scheduler = self._clusters[fault.service].network, self._clusters[fault.service].scheduler
        pairs = [(a, b) for a in sources for b in targets]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        for source, target in pairs:
            network.hold(source, target)

        def heal() -> None:
            for source, target in pairs:
                network.heal(source, target)

        scheduler.call_later(fault.heal_us - scheduler.now_us, heal)

    def _doubt(self, fault: Between, service: Cluster) -> None:
        """Hold the answer to the primary's next proof, and have another take over once it is under way."""
        store, scheduler = service.lock_store, service.scheduler
        if store is None:
            return  # a proof in the directory has its answer at once
        node = service.replicas[primary_host(service)]
        owns = store.owns

        def hooked(holder: Holder) -> bool:
            answer = owns(holder)
            if scheduler.current is node.channel and scheduler.now_us < fault.heal_us:
                store.owns = owns  # type: ignore[method-assign]  # once
                node.channel.freeze()
                scheduler.call_later(fault.heal_us - scheduler.now_us, node.channel.thaw)
                others = [name for name in service.replicas if name != node.name]
                self._hold(fault, [node.name], others, both_ways=True)  # or it would hear of its successor at once
                scheduler.call_later(DELAY_US, lambda: steal(service))
            return answer

        store.owns = hooked  # type: ignore[method-assign]  # until this primary ends

    def _delay(self, service: Cluster, by_us: int) -> None:
        for host in service.replicas:
            service.network.slow(host, by_us)

    def _lose(self, service: Cluster, other: Cluster) -> None:
        """Lose what connects two services; the other end learns it at once, later, or when it sends."""
        self._delay(service, 0)
        half_open = service.scheduler.now_us % 4 != 0
        for end in service.network.open_connections():
            hosts = {end.host, end.peer.host}
            if hosts & service.replicas.keys() and hosts & other.replicas.keys():
                service.network.reset(end, half_open=half_open)


def primary_host(cluster: Cluster) -> str:
    """Host of the primary; of any replica when nobody leads."""
    node = cluster.maybe_primary()
    return node.name if node is not None else next(iter(cluster.replicas))
