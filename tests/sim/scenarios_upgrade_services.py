"""Upgrades of services that call each other, while handlers wait and outboxes are full of what was sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.sim.scenarios_services import Pair, visit_at, visit_of
from tests.sim.stage import SECOND_US, primary_of
from tests.sim.upgrade_stage import REFUSED, follow_suit, generation_of, go, upgrade_to, with_upgrader

from deathless.base.safeguards import Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster
from deathless.simulation.runs.verdict import recover
from deathless.simulation.workload.visits import Hop, Visit, applied_tags

CLIENTS: Final = 4
VISITS: Final = 3  # of each client
BURST: Final = 12


def upgraded_while_handlers_wait(safeguards: Safeguards) -> list[Violation]:
    """Both services are upgraded, and one of them back, while calls between them are on their way in both directions,
    handlers wait for them, and a cut-off receiver has filled the outbox: each visit is made once, in its order.
    """
    pair = Pair(safeguards, limits=replace(LAB_LIMITS, outbox_memory_bytes_max=200, checkpoint_every_messages=25))
    ant, bee = pair.ant, pair.bee
    wrong: list[str] = []
    number = 0
    for cluster, name in ((ant, "u0"), (bee, "u1"), (ant, "u2")):
        for host in bee.replicas:  # what ant sends waits in its outbox
            for node in ant.replicas:
                pair.network.hold(node, host)
        asked = [_visits(f"v{number + each}") for each in range(CLIENTS)]
        for each, visits in enumerate(asked):
            pair.ask(f"c{number + each}", *visits)
        number += CLIENTS
        ant.run_for(SECOND_US // 5)
        upgrader = with_upgrader(cluster, name)
        pair.directory[cluster.shared.beside.service_name].append(f"{name}:1")
        if not _waits(ant):
            wrong.append(f"{name}: no handler waits, or nothing is to be sent")
        if not upgrade_to(cluster, upgrader):
            wrong.append(f"{name}: the upgrade is not made")
        for host in bee.replicas:
            for node in ant.replicas:
                pair.network.heal(node, host)
        follow_suit(cluster)
        if not ant.run_until(lambda: ant.served, 10 * SECOND_US):
            wrong.append(f"{name}: a visit has no answer")
    settled = ant.run_until(lambda: ant.settled and bee.settled and ant.delivered and bee.delivered, 20 * SECOND_US)
    if (generation_of(ant), generation_of(bee)) != (3, 2):
        wrong.append(f"generations {generation_of(ant)} and {generation_of(bee)}")
    tags = applied_tags([recover(cluster).shard.executor.state() for cluster in (ant, bee)])
    wanted = [tag for count in range(number) for visit in _visits(f"v{count}") for tag in visit.tags()]
    if sorted(tags) != sorted(wanted):
        wrong.append(f"{len(tags)} visits, {len(set(tags))} of them once; {len(wanted)} were asked for")
    wrong += [f"{tag} gave {gave}" for tag, gave in pair.results().items() if not isinstance(gave, int)]
    return pair.end(*wrong, *([] if settled else ["the services do not come to rest"]), allowed=REFUSED)


def _visits(name: str) -> list[Visit]:
    back = Hop("ant", "d2", "call", rests=300_000)
    hops = (
        Hop("bee", "d1", "call", (back,), pad=1000),
        Hop("bee", "d1", "toss", times=BURST, pad=500),
        Hop("ant", "d1", "fork", rests=60_000),
    )
    return [visit_of(f"{name}.{number}", *hops) for number in range(VISITS)]


def _waits(cluster: Cluster) -> bool:
    worker = primary_of(cluster).worker_node
    assert worker is not None
    shard = worker.running.shard
    return bool(shard.executor.invocations()) and shard.outbox.bytes > 0


def upgraded_while_activities_run(safeguards: Safeguards) -> list[Violation]:
    """Activities that must run at most once are under way: the upgrade waits for them, and each outcome is known."""
    pair = Pair(safeguards)
    ant = pair.ant
    upgrader = with_upgrader(ant)
    pair.directory["ant"].append("u0:1")
    for key in range(6):
        pair.ask(f"c{key}", visit_at(f"d{key}", f"v{key}", acts="once"))
    while len(ant.shared.began) < 6:
        ant.run_for(50)
    go(ant)
    made = ant.run_until(lambda: ant.maybe_primary() is upgrader, 5 * SECOND_US)
    follow_suit(ant)
    settled = ant.run_until(lambda: ant.served and ant.settled and pair.bee.settled, 10 * SECOND_US)
    unknown = recover(ant).shard.unknown.snapshot()
    return pair.end(
        *([] if made else ["the upgrade is not made"]),
        *([] if settled else ["the service does not come to rest"]),
        *(f"nobody knows whether {record.activity} was done" for record in unknown),
        allowed=REFUSED,
    )
