"""Scenarios of services that call each other: what operators do to them, and what once failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.sim.stage import SECOND_US, primary_of

from deathless.base.errors import PeerReplaced
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.peer_messages import Adopt
from deathless.core import events as ev
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import LAB_LIMITS, Cluster, Setup
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.runs.injector import ADMIN_CONN
from deathless.simulation.runs.verdict import agreement, recover, stops
from deathless.simulation.workload.visits import Hop, Visit, applied_tags, make_service
from deathless.simulation.workload.workload import Request
from deathless.simulation.world.network import Network, NetworkProfile
from deathless.simulation.world.scheduler import Scheduler, draw

CALM: Final = NetworkProfile(spike_share=0.0, split_share=0.0)
NAMES: Final = ("ant", "bee")


def visit_of(tag: str, *hops: Hop) -> Visit:
    """A visit at key `d0` with these further ones."""
    request = Request(
        model="visit", action="visit", keys=("d0",), argument=None, tag=tag, idempotency_key=b"", pause_us=0
    )
    return Visit(request, Hop("ant", "d0", "call", hops))


class Pair:
    """`ant`, which calls and forks `bee`, and gets calls of it."""

    def __init__(self, safeguards: Safeguards, *, limits: Limits = LAB_LIMITS, proofs: bool = False) -> None:
        self.scheduler = Scheduler(1)
        self.network = Network(self.scheduler, self.scheduler.fork("network"), CALM)
        self.setup = Setup(limits=limits, network=CALM, proofs=proofs, safeguards=safeguards)
        self.directory: dict[str, list[str]] = {}
        self.ant, self.bee = (self.make(name, seed) for seed, name in enumerate(NAMES))

    def make(self, name: str, seed: int) -> Cluster:
        """Create a service, on hosts and under an identity of its own for each seed, and start it."""
        beside = Surroundings(self.scheduler, self.network, make_service(name), self.directory)
        cluster = Cluster(seed, replace(self.setup, prefix=f"{name}{seed}-"), beside=beside)
        self.directory[name] = [f"{host}:1" for host in cluster.replicas]
        for node in cluster.replicas.values():
            node.chance = draw(seed, node.name)
            node.start()
        assert cluster.run_until(lambda: cluster.maybe_primary() is not None, 2 * SECOND_US), "nobody became primary"
        return cluster

    def ask(self, name: str, *visits: Visit) -> None:
        """Have a new client of `ant` ask for these, one after the other."""
        encoded = {visit.request.tag: visit.encode() for visit in visits}
        self.ant.add_client(name, [visit.request for visit in visits], 1, lambda request: encoded[request.tag]).start()

    def results(self) -> dict[str, object]:
        """What was answered, by tag."""
        return {each.tag: each.result for each in self.ant.history if each.completed_us is not None}

    def end(self, *wrong: str, allowed: frozenset[str] = frozenset()) -> list[Violation]:
        """Judge both by their logs, and end; `allowed`: codes that workers may have stopped with."""
        violations = [Violation(checker="scenario", text=text) for text in wrong]
        for cluster in (self.ant, self.bee):
            violations += [Violation(checker="crash", text=text) for text in cluster.shared.failures]
            violations += stops(cluster, allowed)
            violations += agreement(cluster, recover(cluster))
        self.ant.close()
        return violations


def peer_created_anew(safeguards: Safeguards) -> list[Violation]:
    """A peer loses all it had and is created under its old name: nothing of the former counts for it, and once an
    operator adopts it, what is sent begins anew in both directions, and what waited for the former fails.
    """
    pair = Pair(safeguards)
    ant = pair.ant
    both = (Hop("bee", "d1", "call", (Hop("ant", "d2", "call"),)), Hop("bee", "d1", "fork"))
    pair.ask("before", visit_of("a", *both), visit_of("b", *both))
    before = ant.run_until(lambda: ant.served, 3 * SECOND_US)
    for node in pair.bee.replicas.values():
        node.kill_both()
    pair.ask("between", visit_of("c", *both))
    ant.run_for(SECOND_US // 2)
    pair.bee = bee = pair.make("bee", 7)
    ant.run_for(3 * SECOND_US)
    waited = not ant.served
    lost = [tag for tag in applied_tags([recover(bee).shard.executor.state()]) if not tag.startswith("c")]
    record = primary_of(bee).worker_node.running.service  # type: ignore[union-attr]  # it runs
    leads = primary_of(ant).worker_node
    assert leads is not None
    adopt = Adopt("bee", 0, record.service_id, record.incarnation)
    leads.process.post(lambda: leads.post(ev.OrderReceived(ADMIN_CONN, 1, adopt)))
    pair.ask("after", visit_of("d", *both), visit_of("e", *both))
    after = ant.run_until(lambda: ant.served and ant.settled and bee.settled and bee.delivered, 20 * SECOND_US)
    results = pair.results()
    tags = sorted(applied_tags([recover(bee).shard.executor.state()]))
    return pair.end(
        *([] if before and results["a"] == results["b"] == 3 else [f"it did not begin well: {results}"]),
        *([] if waited and not lost else [f"a peer that was not adopted was talked to: {lost}"]),
        *([] if after else ["the adopted peer is not talked to"]),
        *([] if results.get("c") == ("error", PeerReplaced.code) else [f"what waited gave {results.get('c')}"]),
        *([] if results.get("d") == results.get("e") == 3 else [f"what came after gave {results}"]),
        *([] if tags == ["d.0", "d.1", "e.0", "e.1"] else [f"the new one was asked for {tags}"]),
    )


def late_packets_of_a_deposed_primary(safeguards: Safeguards) -> list[Violation]:
    """A primary's packets are under way for long; its successor's come first, and then those: plain repetitions."""
    pair = Pair(safeguards)
    ant, bee = pair.ant, pair.bee
    pair.ask("before", visit_of("a", Hop("bee", "d1", "fork", times=1)))
    assert ant.run_until(lambda: ant.served, 3 * SECOND_US)
    node = primary_of(ant)
    for host in bee.replicas:
        pair.network.hold(node.name, host)
    burst = Hop("bee", "d1", "toss", times=12)
    pair.ask("during", *(visit_of(f"b{number}", burst) for number in range(4)))
    assert ant.run_until(lambda: ant.served, 3 * SECOND_US)
    node.freeze(supervisor_too=True)
    moved = ant.run_until(lambda: ant.maybe_primary() not in (None, node), 3 * SECOND_US)
    ant.run_for(SECOND_US)
    for host in bee.replicas:
        pair.network.heal(node.name, host)
    ant.run_for(SECOND_US // 2)
    node.thaw()
    settled = ant.run_until(lambda: ant.settled and bee.settled and ant.delivered and bee.delivered, 10 * SECOND_US)
    tags = applied_tags([recover(bee).shard.executor.state()])
    wanted = ["a.0", *(f"b{number}.0x{index}" for number in range(4) for index in range(12))]
    return pair.end(
        *([] if moved and settled else ["the services do not come to rest"]),
        *([] if tags == wanted else [f"{len(tags)} visits, {len(wanted)} were asked for, in their order"]),
    )


def own_work_above_the_maximum(safeguards: Safeguards) -> list[Violation]:
    """A service sends itself more than its outbox may hold: its own work goes on, and all of it is done once.

    The maximum stops what would add to it from outside, not what empties it; what one message may add is bounded by
    `operations_max`, so it is passed by what the messages of one frame send.
    """
    size = LAB_LIMITS.message_bytes_max
    pair = Pair(safeguards, limits=replace(LAB_LIMITS, peer_window_bytes_max=size, outbox_bytes_max=size))
    ant = pair.ant
    leads = primary_of(ant).worker_node
    assert leads is not None
    burst = Hop("ant", "d1", "fork", (Hop("ant", "d2", "toss", times=8, pad=1000),), times=4, pad=1000)
    for name in ("c0", "c1", "c2"):
        pair.ask(name, *(visit_of(f"{name}.{number}", burst) for number in range(4)))
    most = 0
    while not (ant.served and ant.delivered) and ant.scheduler.now_us < 30 * SECOND_US:
        ant.run_for(50)
        most = max(most, leads.running.shard.outbox.bytes)
    settled = ant.run_until(lambda: ant.settled and pair.bee.settled, 10 * SECOND_US)
    tags = applied_tags([recover(ant).shard.executor.state()])
    count = 12 * (1 + 4 * (1 + 8))
    return pair.end(
        *([] if settled else ["the service does not come to rest"]),
        *([] if most > 2 * size else [f"the outbox held {most} bytes at most: it was never above its maximum"]),
        *([] if len(tags) == len(set(tags)) == count else [f"{len(tags)} visits, {count} were asked for"]),
    )


ACTING: Final = 12  # activities that must run at most once, at a time


def visit_at(key: str, tag: str, *, acts: str = "") -> Visit:
    """A visit at a key, which runs an activity first if one is named."""
    return Visit(replace(visit_of(tag).request, keys=(key,)), Hop("ant", key, "call", acts=acts))


def hand_over_while_activities_run(safeguards: Safeguards) -> list[Violation]:
    """A primary hands over twice, by order of an operator and as it stops, while activities run that must not begin
    again: they end first and each outcome is known, and calls are answered all the while.
    """
    pair = Pair(safeguards)
    ant = pair.ant
    wrong: list[str] = []
    for how in ("switchover", "stop"):
        node, epoch, began = primary_of(ant), ant.last_epoch, len(ant.shared.began)
        for key in range(ACTING):
            pair.ask(f"{how}{key}", visit_at(f"d{key}", f"{how}{key}", acts="once"))
        while len(ant.shared.began) < began + ACTING:
            ant.run_for(50)
        leads = node.worker_node
        assert leads is not None
        if how == "stop":
            node.stop()
        else:
            leads.process.post(lambda: leads.post(ev.SwitchoverOrdered(ADMIN_CONN, 1, "")))  # noqa: B023  posted now
        ant.run_for(1_000)
        beside = f"beside {how}"
        pair.ask(beside, visit_at("calm", beside))
        ant.run_until(lambda: beside in pair.results(), 3 * SECOND_US)  # noqa: B023  as above
        if ant.last_epoch > epoch:
            wrong.append(f"{how}: a call was not answered before the hand-over")
        if not ant.run_until(lambda: ant.last_epoch > epoch and ant.served, 3 * SECOND_US):  # noqa: B023  as above
            wrong.append(f"{how}: nobody took over, or a call has no answer")
        if how == "stop":
            node.start()
    settled = ant.run_until(lambda: ant.settled and pair.bee.settled, 10 * SECOND_US)
    unknown = recover(ant).shard.unknown.snapshot()
    return pair.end(
        *wrong,
        *([] if settled else ["the service does not come to rest"]),
        *(f"nobody knows whether {record.activity} was done" for record in unknown),
    )
