"""Plans are functions of the seed, vary between seeds, and end."""

from collections import Counter

from deathless.simulation.faults import FAULTS_MAX, FaultKind, FaultPlan, draw_plan
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
    assert sorted(kinds) == sorted(FaultKind)
    assert max(len(plan(seed).enabled) for seed in range(400)) < len(FaultKind)
