"""Several services in one scheduler and one network, each a whole cluster with its own disk, lock and faults.

Where services have shards, each shard is such a cluster: what follows says service and means that.

    clusters start -> clients visit while faults come to every service, and between them -> all is healed -> every visit
    has its answer, every outbox is empty, nobody waits -> the replicas of each service agree -> verdict

Half of the dense runs have maximums so small that windows, outboxes and queues of admission are full now and then.

Guarantees: `run_services` depends on its arguments alone. Does not: print. May import the simulation's parts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from deathless.base.limits import Limits
from deathless.base.shards import Sharding, shard_name
from deathless.simulation.checkers.history import Violation
from deathless.simulation.nodes.cluster import SPAN_US, Cluster, Setup, draw_setup
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.runs.between import BetweenInjector, draw_between, spread, with_more
from deathless.simulation.runs.faults import DRAWN, FaultPlan, draw_plan
from deathless.simulation.runs.injector import Injector
from deathless.simulation.runs.run import (
    ANSWER_BOUND_US,
    BEGIN_US,
    SETTLE_BOUND_US,
    Options,
    Result,
    allowed_stops,
    drawn_upgrade,
    with_copy,
)
from deathless.simulation.runs.services_verdict import judge_services
from deathless.simulation.runs.upgrades import Upgrades, draw_cut_faults
from deathless.simulation.workload.visits import NAMES, Visit, VisitProfile, draw_client, draw_visits, make_service
from deathless.simulation.workload.workload import Request
from deathless.simulation.world.lock import LockProfile
from deathless.simulation.world.network import Network
from deathless.simulation.world.scheduler import Scheduler, draw

SERVICES_MAX: Final = len(NAMES)
POLL_US: Final = 20_000
OPTIONS: Final = Options()
MEMORY_BYTES: Final = (Limits().outbox_memory_bytes_max, 4096, 200, 1)  # of outboxes; what is above goes to a spool
SLOW_LOCK: Final = LockProfile(latency_min_us=500, latency_max_us=40_000)


@dataclass(slots=True)
class Services:
    """Clusters that talk, each by its service's name, or as `ant-1` of several shards; what their clients ask for."""

    scheduler: Scheduler
    profile: VisitProfile
    clusters: dict[str, Cluster]
    visits: dict[str, Visit]  # by tag
    plans: dict[str, FaultPlan]
    upgrades: dict[str, Upgrades]  # of those that are upgraded

    def run_until(self, condition: Callable[[], bool], within_us: int) -> bool:
        """Let time pass until `condition` holds. False: it did not come to hold in time."""
        end_us = self.scheduler.now_us + within_us
        while not condition():
            if self.scheduler.now_us >= end_us:
                return False
            self.scheduler.run_until(min(end_us, self.scheduler.now_us + POLL_US))
        return True

    @property
    def heal_us(self) -> int:
        """When nothing is broken any more, anywhere."""
        return max(plan.heal_us for plan in self.plans.values())

    @property
    def served(self) -> bool:
        """Every client has its answers."""
        return all(cluster.served for cluster in self.clusters.values())

    @property
    def delivered(self) -> bool:
        """Nobody has anything left to send or to wait for."""
        return all(cluster.delivered for cluster in self.clusters.values())

    @property
    def settled(self) -> bool:
        """And the replicas of each service agree."""
        return self.delivered and all(cluster.settled for cluster in self.clusters.values())


def make_services(seed: int, count: int, options: Options = OPTIONS) -> Services:
    """Make the clusters of a seed, with their clients and faults."""
    scheduler = Scheduler(seed, keep_trace=options.keep_trace)
    first = draw_setup(seed, safeguards=options.safeguards)
    network = Network(scheduler, scheduler.fork("network"), first.network)
    profile = draw_visits(draw(seed, "visits"), count, span_us=SPAN_US)
    parts = _parts(profile.names, options.shards)
    setups = {name: _setup(seed, name, options, first, dense=profile.dense) for name in parts}
    directory = {
        shard_name(service, sharding.shard, sharding.shards): [f"{replica}:1" for replica in setups[name].names()]
        for name, (service, sharding) in parts.items()
    }
    clusters: dict[str, Cluster] = {}
    visits: dict[str, Visit] = {}
    plans: dict[str, FaultPlan] = {}
    upgrades: dict[str, Upgrades] = {}
    chance = draw(seed, "between")
    given = () if options.between is None and options.kinds is not None else options.between
    between = draw_between(chance, tuple(parts), BEGIN_US, SPAN_US, given)
    more = spread(chance, between, {name: setup.names() for name, setup in setups.items()})
    healed_us = max((fault.heal_us for fault in between), default=0) + 1_000
    for name, made in setups.items():
        service, sharding = parts[name]
        plan = draw_plan(
            draw(seed, f"plan/{name}"),
            replicas=made.names(),
            clients=made.client_names(),
            begin_us=BEGIN_US,
            end_us=SPAN_US,
            kinds=DRAWN if options.kinds is None else tuple(options.kinds),
        )
        setup = made
        if options.kinds is None:
            setup, plan = with_copy(draw(seed, f"copy/{name}"), made, plan)
        beside = Surroundings(scheduler, network, make_service(service), directory, sharding)
        cluster = clusters[name] = Cluster(seed, setup, beside=beside)
        cluster.outsiders = [r for other, each in setups.items() if other != name for r in each.names()]
        for client in setup.client_names():
            asked = draw_client(draw(seed, f"visits/{client}"), profile, service, client, sharding)
            visits |= {visit.request.tag: visit for visit in asked}
            cluster.add_client(client, [visit.request for visit in asked], profile.window, _encoder(visits))
        upgrade = drawn_upgrade(draw(seed, f"upgrade/{name}"), options)
        if upgrade is not None:
            plan = draw_cut_faults(draw(seed, f"cut/{name}"), plan, upgrade, setup.names(), setup.prefix)
            upgrades[name] = Upgrades(cluster, upgrade, draw(seed, f"upgraders/{name}"))
        plans[name] = with_more(plan, more[name], healed_us)
        Injector(cluster, plans[name])
    BetweenInjector(clusters, between)
    return Services(scheduler, profile, clusters, visits, plans, upgrades)


def _parts(names: tuple[str, ...], shards: int) -> dict[str, tuple[str, Sharding]]:
    """Give the service and shard of each cluster, by its name."""
    if shards == 1:
        return {name: (name, Sharding()) for name in names}
    return {
        f"{name}-{shard}": (name, Sharding(shard=shard, shards=shards, peers=dict.fromkeys(names, shards)))
        for name in names
        for shard in range(shards)
    }


def _setup(seed: int, name: str, options: Options, first: Setup, *, dense: bool) -> Setup:
    chance = draw(seed, f"setup/{name}")
    drawn = draw_setup(
        chance.randrange(1 << 40),
        replicas=options.replicas,
        fence=options.fence,
        safeguards=options.safeguards,
    )
    clients = min(drawn.clients, 2)
    limits = _tighten(chance, drawn.limits) if dense and chance.random() < 0.5 else drawn.limits
    memory = draw(seed, f"memory/{name}").choice(MEMORY_BYTES)
    limits = replace(limits, outbox_memory_bytes_max=memory)
    limits = replace(limits, **options.limits)
    lock = SLOW_LOCK if dense and chance.random() < 0.25 else drawn.lock
    return replace(
        drawn, prefix=f"{name}-", clients=clients, network=first.network, workload=None, limits=limits, lock=lock
    )


def _tighten(chance: random.Random, limits: Limits) -> Limits:
    """Draw maximums that are reached."""
    window = limits.message_bytes_max
    return replace(
        limits,
        peer_window_bytes_max=window,
        outbox_bytes_max=chance.choice((window, 4 * window)),
        pending_messages_max=chance.choice((2, 8, limits.pending_messages_max)),
        activities_max=chance.choice((1, limits.activities_max)),
        checkpoint_every_messages=chance.choice((25, limits.checkpoint_every_messages)),
    )


def _encoder(visits: dict[str, Visit]) -> Callable[[Request], bytes]:
    return lambda request: visits[request.tag].encode()


def run_services(seed: int, count: int, options: Options = OPTIONS) -> Result:
    """Simulate the services of a seed and judge them."""
    begun = time.process_time()
    services = make_services(seed, count, options)
    clusters = services.clusters
    try:
        for cluster in clusters.values():
            cluster.start()
        scheduler = services.scheduler
        scheduler.run_until(services.heal_us)
        services.run_until(lambda: services.served, ANSWER_BOUND_US)
        settled = services.run_until(lambda: services.settled, SETTLE_BOUND_US)
        violations = judge_services(
            clusters,
            services.visits,
            healed_us=services.heal_us,
            bound_us=ANSWER_BOUND_US,
            allowed={
                name: allowed_stops(plan, upgraded=name in services.upgrades) for name, plan in services.plans.items()
            },
        )
        if not settled:
            violations.append(Violation(checker="settling", text=_unsettled(services)))
        first = next(iter(clusters.values()))
        faults = sorted((f for plan in services.plans.values() for f in plan.faults), key=lambda fault: fault.at_us)
        return Result(
            seed=seed,
            services=count,
            violations=tuple(violations),
            trace_hash=scheduler.trace.hexdigest(),
            setup=first.setup,
            plan=FaultPlan(faults=tuple(faults), heal_us=services.heal_us, enabled=()),
            operations=sum(len(cluster.history) for cluster in clusters.values()),
            epochs=sum(cluster.last_epoch for cluster in clusters.values()),
            events=scheduler.events,
            virtual_s=scheduler.now_us / 1e6,
            cpu_s=time.process_time() - begun,
            generations=1 + max((each.made for each in services.upgrades.values()), default=0),
            trace=tuple(scheduler.trace.lines),
        )
    finally:
        for cluster in clusters.values():
            cluster.close()


def _unsettled(services: Services) -> str:
    words: list[str] = []
    for name, cluster in services.clusters.items():
        if cluster.delivered and cluster.settled:
            continue
        node = cluster.maybe_primary()
        worker = node.worker_node if node is not None else None
        if worker is None or worker.running.core.primary is None:
            words.append(f"{name} has no primary")
            continue
        shard, primary = worker.running.shard, worker.running.core.primary
        waits = [(view.invocation, view.waits_for) for view in shard.executor.invocations()]
        views = [
            (*view.target, str(view.stage), view.kept, view.problem) for view in primary.messaging.outreach.views()
        ]
        words.append(f"{name}: outbox {shard.outbox.bytes} bytes, peers {views}, waiting {waits}")
    return "the services do not come to rest: " + "; ".join(words)
