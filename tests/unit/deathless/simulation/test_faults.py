"""Plans are functions of the seed, vary between seeds, and end."""

from collections import Counter

from deathless.simulation.faults import DRAWN, FAULTS_MAX, VOLUME, FaultPlan, draw_plan, draw_volume_faults
from deathless.simulation.scheduler import draw


def plan(seed: int) -> FaultPlan:
    return draw_plan(
        draw(seed, "faults"), replicas=("r0", "r1", "r2"), clients=("c0", "c1"), begin_us=1_000, end_us=3_000_000
    )


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(3) == plan(3)
    assert plan(3) != plan(4)


def test_every_fault_has_ended_when_the_plan_says_healed() -> None:
    for seed in range(200):
        drawn = plan(seed)
        assert len(drawn.faults) <= FAULTS_MAX
        assert [fault.at_us for fault in drawn.faults] == sorted(fault.at_us for fault in drawn.faults)
        for fault in drawn.faults:
            assert 1_000 <= fault.at_us <= 3_000_000
            assert fault.at_us + fault.duration_us < drawn.heal_us
            assert fault.kind in drawn.enabled


def test_every_kind_comes_up_and_no_seed_has_them_all() -> None:
    kinds = Counter(fault.kind for seed in range(400) for fault in plan(seed).faults)
    assert sorted(kinds) == sorted(DRAWN)
    assert max(len(plan(seed).enabled) for seed in range(400)) < len(DRAWN)


def test_faults_of_the_volume_are_drawn_beside_the_others_and_change_none_of_them() -> None:
    seen = set()
    for seed in range(60):
        drawn = plan(seed)
        more = draw_volume_faults(draw(seed, "volume"), drawn, replicas=("r0",), begin_us=1, end_us=1000)
        assert [fault for fault in more.faults if fault.kind not in VOLUME] == list(drawn.faults)
        assert all(fault.at_us + fault.duration_us < more.heal_us for fault in more.faults)
        seen |= {fault.kind for fault in more.faults} & set(VOLUME)
    assert seen == set(VOLUME)
