"""A schedule under faults: every hour of logical time has its tick, once and in order, in all replicas."""

import datetime as dt

import msgspec
import pytest

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.simulation.nodes.cluster import SPAN_US, Cluster, draw_setup
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.runs.faults import DRAWN, FaultKind, draw_plan
from deathless.simulation.runs.injector import Injector
from deathless.simulation.runs.run import BEGIN_US, SETTLE_BOUND_US
from deathless.simulation.world.network import Network
from deathless.simulation.world.scheduler import Scheduler, draw

pytestmark = pytest.mark.sim
HOUR_US = 3_600_000_000
LEAP_EVERY_US = 90_000  # of virtual time: a day of it would take too long, so all machines sleep now and then
LEAPS_US = (HOUR_US // 3, HOUR_US, 5 * HOUR_US)
WITHOUT = {FaultKind.STALE_LOOKUPS, FaultKind.CLIENT_KILL, FaultKind.CLIENT_RESET}
KINDS = tuple(kind for kind in DRAWN if kind not in WITHOUT)


class State(msgspec.Struct):
    ticks: list[int] = []


def make() -> Service:
    service = Service("clock", state=State, single=True)

    @service.schedule("0 * * * *", missed="all")
    def hourly(state: State, ctx: Context, tick: dt.datetime) -> None:
        assert ctx.now >= tick
        state.ticks.append(int(tick.timestamp()) * 1_000_000)

    return service


class Hours:
    """A cluster of that service, its faults and its clocks."""

    def __init__(self, seed: int) -> None:
        setup = draw_setup(seed)
        scheduler = Scheduler(seed)
        network = Network(scheduler, scheduler.fork("network"), setup.network)
        self.cluster = Cluster(seed, setup, beside=Surroundings(scheduler, network, make()))
        self.chance = draw(seed, "leaps")
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

    def leap(self) -> None:
        """All machines sleep, and will again."""
        by_us = self.chance.choice(LEAPS_US)
        for node in self.cluster.replicas.values():
            node.clock.sleep(by_us)
        if self.cluster.scheduler.now_us < SPAN_US:
            self.cluster.scheduler.call_later(LEAP_EVERY_US, self.leap)

    def run(self) -> None:
        self.cluster.start()
        self.leap()
        self.cluster.scheduler.run_until(self.heal_us)
        at_rest = self.cluster.run_until(lambda: self.cluster.settled and self.complete, SETTLE_BOUND_US)
        assert at_rest, (self.ticks, self.time_us)

    @property
    def time_us(self) -> int:
        node = self.cluster.maybe_primary()
        return node.worker_node.running.place.time_us if node is not None and node.worker_node is not None else 0

    @property
    def ticks(self) -> list[int]:
        node = self.cluster.maybe_primary()
        if node is None or node.worker_node is None:
            return []
        state = node.worker_node.running.shard.executor.state().get(b"")
        return msgspec.msgpack.decode(state, type=State).ticks if state is not None else []

    @property
    def complete(self) -> bool:
        """Has every full hour up to now had its tick?"""
        return self.ticks[-1:] == [self.time_us // HOUR_US * HOUR_US]


@pytest.mark.parametrize("seed", range(12))
def test_every_hour_has_its_tick_once_whatever_dies(seed: int) -> None:
    hours = Hours(seed)
    try:
        hours.run()
        ticks = hours.ticks
        assert ticks == list(range(ticks[0], hours.time_us + 1, HOUR_US))
        assert len(ticks) > 5
    finally:
        hours.cluster.close()
