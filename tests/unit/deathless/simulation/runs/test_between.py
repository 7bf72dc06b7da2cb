"""Faults between services are drawn as their seed says, hit both ends where they must, and all end in time."""

import random

from deathless.simulation.runs.between import DELAY_US, Between, BetweenKind, draw_between, spread, with_more
from deathless.simulation.runs.faults import FaultKind, FaultPlan
from deathless.simulation.runs.run import Options
from deathless.simulation.runs.services import make_services
from deathless.simulation.world.scheduler import ProcessState

NAMES = ("ant", "bee", "cat")
REPLICAS = {name: (f"{name}-r0", f"{name}-r1") for name in NAMES}
BEGIN_US, END_US = 150_000, 2_400_000


def drawn(seeds: range) -> list[Between]:
    return [each for seed in seeds for each in draw_between(random.Random(seed), NAMES, BEGIN_US, END_US)]


def test_every_kind_is_drawn_between_two_services() -> None:
    found = drawn(range(40))
    assert {each.kind for each in found} == set(BetweenKind)
    assert all(each.service != each.other for each in found)
    assert all(BEGIN_US <= each.at_us < END_US and each.duration_us > 0 for each in found)


def test_the_same_seed_gives_the_same_faults() -> None:
    assert drawn(range(5)) == drawn(range(5))


def test_both_ends_are_hit_alike_within_one_delay() -> None:
    fault = Between(500_000, BetweenKind.BOTH, "ant", "cat", 100_000)
    more = spread(random.Random(1), [fault], REPLICAS)
    (first,), (second,) = more["ant"], more["cat"]
    assert first.kind is second.kind
    assert abs(first.at_us - second.at_us) < DELAY_US
    assert not more["bee"]


def test_a_primary_that_is_held_up_is_taken_over_from() -> None:
    more = spread(random.Random(1), [Between(500_000, BetweenKind.LATE, "ant", "cat", 100_000)], REPLICAS)
    assert [fault.kind for fault in more["ant"]] == [FaultKind.STEAL]
    assert not more["cat"]


def test_the_machines_of_one_end_sleep_for_weeks_while_they_are_apart() -> None:
    fault = Between(500_000, BetweenKind.APART, "ant", "cat", 100_000, 4)
    more = spread(random.Random(1), [fault], REPLICAS)["ant"]
    assert {each.target for each in more} == set(REPLICAS["ant"])
    assert all(fault.at_us <= each.at_us < fault.heal_us for each in more)
    assert all(each.size >= 14 * 86_400_000_000 for each in more)


def test_a_plan_with_more_heals_when_the_last_has_ended() -> None:
    plan = FaultPlan(faults=(), heal_us=1_000, enabled=())
    more = spread(random.Random(1), [Between(5_000, BetweenKind.LATE, "ant", "cat", 9_000)], REPLICAS)["ant"]
    assert with_more(plan, more, 14_000).heal_us == 14_000
    assert with_more(plan, more, 500).heal_us == 1_000
    assert with_more(plan, more, 500).faults == tuple(more)


def test_nothing_is_held_or_frozen_once_all_is_healed() -> None:
    """Of seeds that have faults of every kind between their services."""
    for seed in range(6):
        services = make_services(seed, 3, Options(replicas=2))
        clusters = list(services.clusters.values())
        for cluster in clusters:
            cluster.start()
        services.scheduler.run_until(services.heal_us + 10_000)
        assert not clusters[0].network._held
        channels = [node.channel for cluster in clusters for node in cluster.replicas.values()]
        assert ProcessState.FROZEN not in [channel.state for channel in channels]
        for cluster in clusters:
            cluster.close()
