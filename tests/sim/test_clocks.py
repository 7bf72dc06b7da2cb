"""Whatever compares times, with the product's own limits: steps, long stops, idle nights, takeovers between clocks
that are an hour apart.

The replicas' wall clocks differ by an hour each, and the one of whoever leads steps by days, ahead or back. All
programs stand still for an hour, in which every steady clock goes on, so that each patience, pause and backoff there
is has ended when they go on; machines sleep for days. Primaries are killed, robbed and handed over in between. In the
end every keyed call is asked for once more: what is remembered is answered, nothing is done twice, sessions go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import SPAN_US, Cluster, Setup, draw_setup
from deathless.simulation.runs.faults import FaultKind, draw_plan
from deathless.simulation.runs.injector import Injector
from deathless.simulation.runs.run import BEGIN_US, Options, allowed_stops, finish
from deathless.simulation.runs.services import make_services
from deathless.simulation.runs.services_verdict import judge_services
from deathless.simulation.workload.workload import WorkloadProfile, draw_requests
from deathless.simulation.world.scheduler import draw

pytestmark = pytest.mark.sim
HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
STEPS_US: Final = (3 * DAY_US, -3 * DAY_US, HOUR_US, -HOUR_US, 30 * DAY_US, -30 * DAY_US)
WAITS_US: Final = 12_000_000
KINDS: Final = (
    FaultKind.KILL,
    FaultKind.KILL_BOTH,
    FaultKind.STOP,
    FaultKind.STEAL,
    FaultKind.SWITCHOVER,
    FaultKind.FREEZE,
    FaultKind.CLOCK_FORWARD,
    FaultKind.CLOCK_BACK,
    FaultKind.LOCK_SILENT,
    FaultKind.PARTITION,
    FaultKind.CLIENT_RESET,
)
KEYED: Final = WorkloadProfile(
    requests=30,
    window=4,
    reads_share=0.2,
    keyed_share=1.0,
    twice_share=0.2,
    pause_max_us=2 * SPAN_US // 30,
    models=("bank", "counter", "register"),
)


def product_limits(limits: Limits) -> Limits:
    """The drawn sizes, and each period that is long in the product as it is there."""
    ours = Limits()
    return replace(
        limits,
        idempotency_window_s=ours.idempotency_window_s,
        session_idle_max_s=ours.session_idle_max_s,
        results_kept_s=ours.results_kept_s,
        sessions_max=ours.sessions_max,
        reign_min_s=ours.reign_min_s,
        reign_max_s=ours.reign_max_s,
    )


def freeze(cluster: Cluster) -> None:
    """Stop every program of a cluster and its clients."""
    for node in cluster.replicas.values():
        node.freeze(supervisor_too=True)
    for client in cluster.clients.values():
        client.process.freeze()


def thaw(cluster: Cluster) -> None:
    """Let them go on."""
    for node in cluster.replicas.values():
        node.thaw()
    for client in cluster.clients.values():
        client.process.thaw()


class Clocks:
    """A cluster whose clocks are apart, and what is done to them."""

    def __init__(self, seed: int, safeguards: Safeguards) -> None:
        drawn = draw_setup(seed, replicas=3, safeguards=safeguards)
        setup: Setup = replace(drawn, limits=product_limits(drawn.limits), workload=KEYED)
        self.seed = seed
        self.cluster = Cluster(seed, setup)
        for number, node in enumerate(self.cluster.replicas.values()):
            node.clock.jump((number - 1) * HOUR_US)
        plan = draw_plan(
            draw(seed, "plan"),
            replicas=setup.names(),
            clients=setup.client_names(),
            begin_us=BEGIN_US,
            end_us=SPAN_US,
            kinds=KINDS,
        )
        Injector(self.cluster, plan)
        self.heal_us = plan.heal_us

    def step(self) -> None:
        """The clock of whoever leads steps."""
        node = self.cluster.maybe_primary() or next(iter(self.cluster.replicas.values()))
        node.clock.jump(STEPS_US[self.seed % len(STEPS_US)])

    def stand_still(self, us: int) -> None:
        """Every program is stopped, and goes on so much later."""
        freeze(self.cluster)
        self.cluster.run_for(us)
        thaw(self.cluster)

    def sleep(self, us: int) -> None:
        """All machines sleep at once."""
        for node in self.cluster.replicas.values():
            node.clock.sleep(us)

    def ask_again(self) -> None:
        """A client that is new asks for everything that any other has been answered, with the same keys."""
        cluster = self.cluster
        answered = {key for key, _ in cluster.key_replies}
        again = cluster.add_client("again", [], 4)
        again.start()
        for name in cluster.setup.client_names():
            for request in draw_requests(cluster.scheduler.fork(f"requests/{name}"), KEYED, name):
                if request.idempotency_key.decode() in answered:
                    again.repeat(request)

    def take_over(self) -> None:
        """Somebody else leads, whose clock is an hour beside the former's."""
        cluster, node, epoch = self.cluster, self.cluster.maybe_primary(), self.cluster.last_epoch
        assert node is not None
        node.kill_worker()
        assert cluster.run_until(lambda: cluster.last_epoch > epoch and cluster.maybe_primary() is not None, WAITS_US)

    def run(self) -> list[Violation]:
        """Let all of it happen; gives what was wrong."""
        cluster = self.cluster
        try:
            cluster.start()
            cluster.scheduler.run_until(SPAN_US // 4)
            self.step()
            cluster.scheduler.run_until(self.heal_us)
            self.stand_still(HOUR_US)
            assert cluster.run_until(lambda: cluster.maybe_primary() is not None, WAITS_US), "nobody leads"
            self.take_over()
            self.step()
            self.sleep(3 * DAY_US)
            cluster.run_for(SPAN_US)
            self.stand_still(HOUR_US)
            assert cluster.run_until(lambda: cluster.served, WAITS_US), "a call has no answer"
            self.take_over()
            self.ask_again()
            return finish(cluster, cluster.scheduler.now_us)
        finally:
            cluster.close()


@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_forgotten_or_doubled_whatever_is_done_to_clocks(seed: int) -> None:
    clocks = Clocks(seed, ALL_SAFEGUARDS)
    violations = clocks.run()
    assert not violations, "\n".join(map(str, violations[:5]))
    assert len(clocks.cluster.key_replies) > 10


@pytest.mark.parametrize("seed", range(12))
def test_services_lose_and_double_nothing_whatever_is_done_to_clocks(seed: int) -> None:
    """Peers' pauses, deadlines, timers and activities that are tried again: each shard's clocks are apart as well."""
    services = make_services(seed, 2, Options(kinds=KINDS))
    clusters = services.clusters
    nodes = [node for cluster in clusters.values() for node in cluster.replicas.values()]
    try:
        for number, node in enumerate(nodes):
            node.clock.jump((number % 3 - 1) * HOUR_US)
        for cluster in clusters.values():
            cluster.start()
        services.scheduler.run_until(services.heal_us)
        for cluster in clusters.values():
            freeze(cluster)
        services.scheduler.run_until(services.scheduler.now_us + HOUR_US)
        for cluster in clusters.values():
            thaw(cluster)
        for node in nodes:
            node.clock.jump(STEPS_US[seed % len(STEPS_US)])
            node.clock.sleep(3 * DAY_US)
        answered = services.run_until(lambda: services.served, WAITS_US)
        settled = services.run_until(lambda: services.settled, WAITS_US)
        violations = judge_services(
            clusters,
            services.visits,
            healed_us=services.scheduler.now_us,
            bound_us=WAITS_US,
            allowed={name: allowed_stops(plan) for name, plan in services.plans.items()},
        )
        assert not violations, "\n".join(map(str, violations[:5]))
        assert answered
        assert settled
    finally:
        for cluster in clusters.values():
            cluster.close()


def test_without_age_without_clock_a_step_that_was_believed_doubles_calls() -> None:
    violations = Clocks(0, replace(ALL_SAFEGUARDS, age_without_clock=False)).run()
    assert {each.checker for each in violations} & {"exactly_once", "replies"}
