"""Timers under faults: none that was given by a duration fires before so much has passed, whatever is done to clocks.

A handler that a schedule calls takes a nap of half an hour, again and again; machines sleep, so that hours
pass in little virtual time, and wall clocks of single replicas step by up to weeks. What really passed between the two
turns is known to the simulation alone: all machines sleep alike, so that each of them could tell it.
"""

import datetime as dt
from dataclasses import replace

import msgspec
import pytest
from tests.sim.recorded_seeds import check_recorded

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
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
SLEEP_EVERY_US = 90_000  # of virtual time
SLEEPS_US = (HOUR_US // 6, HOUR_US // 3, HOUR_US)
AFTER = dt.timedelta(minutes=30)

# A machine without power begins anew, and knows what passed by its wall clock alone.
WITHOUT = {FaultKind.STALE_LOOKUPS, FaultKind.CLIENT_KILL, FaultKind.CLIENT_RESET, FaultKind.POWER_CUT}
KINDS = tuple(kind for kind in DRAWN if kind not in WITHOUT)


class State(msgspec.Struct):
    fired: int = 0


class Naps:
    """A cluster whose handlers take naps, and the true time of when they fell asleep and woke."""

    def __init__(self, seed: int, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        setup = replace(draw_setup(seed), safeguards=safeguards)
        scheduler = Scheduler(seed)
        network = Network(scheduler, scheduler.fork("network"), setup.network)
        self.cluster = Cluster(seed, setup, beside=Surroundings(scheduler, network, self.service()))
        self.chance = draw(seed, "sleeps")
        self.asleep: dict[int, int] = {}  # true time by lsn of the first turn, of whichever replica was first
        self.awake: dict[int, int] = {}
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

    def service(self) -> Service:
        service = Service("naps", state=State, single=True)

        @service.schedule("*/20 * * * *", missed="one")
        async def nap(state: State, ctx: Context) -> None:
            lsn = ctx.lsn
            self.asleep.setdefault(lsn, self.true_us)
            await ctx.timer(after=AFTER)
            self.awake.setdefault(lsn, self.true_us)
            state.fired += 1

        return service

    @property
    def true_us(self) -> int:
        return max(node.clock.true_us for node in self.cluster.replicas.values())

    def sleep(self) -> None:
        """All machines sleep, and will again."""
        by_us = self.chance.choice(SLEEPS_US)
        for node in self.cluster.replicas.values():
            node.clock.sleep(by_us)
        if self.cluster.scheduler.now_us < SPAN_US:
            self.cluster.scheduler.call_later(SLEEP_EVERY_US, self.sleep)

    def run(self) -> None:
        try:
            self.cluster.start()
            self.sleep()
            self.cluster.scheduler.run_until(self.heal_us)
            assert self.cluster.run_until(lambda: self.cluster.settled, SETTLE_BOUND_US)
        finally:
            self.cluster.close()

    def early(self) -> list[int]:
        """Give how long each nap was that was too short."""
        after_us = AFTER // dt.timedelta(microseconds=1)
        naps = [woke - self.asleep[lsn] for lsn, woke in self.awake.items()]
        return [us for us in naps if us < after_us - 1000]


@pytest.mark.parametrize("seed", range(12))
def test_no_timer_by_a_duration_is_early(seed: int) -> None:
    naps = Naps(seed)
    naps.run()
    assert naps.early() == []
    assert naps.awake, "and some fire"


@pytest.mark.parametrize("seed", [37, 45, 62])
def test_without_gap_by_own_clock_a_takeover_beside_a_wrong_clock_fires_timers_early(seed: int) -> None:
    check_recorded(seed, fires_early, "what gap_by_own_clock is for", tried_max=80)


def fires_early(seed: int) -> bool:
    naps = Naps(seed, replace(ALL_SAFEGUARDS, gap_by_own_clock=False))
    naps.run()
    return bool(naps.early())
