"""Plans are functions of the seed, vary between seeds, and end."""

from collections import Counter

from deathless.simulation.nodes.copies import draw_copy
from deathless.simulation.runs.faults import (
    COPY_SHARE,
    DRAWN,
    FAULTS_MAX,
    UNUSABLE,
    VOLUME,
    FaultKind,
    FaultPlan,
    draw_copy_fault,
    draw_plan,
    draw_volume_faults,
)
from deathless.simulation.world.scheduler import draw


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


def test_few_seeds_have_their_directory_copied_and_none_while_it_takes_no_secret() -> None:
    plans = [draw_copy_fault(draw(seed, "copy"), plan(seed), begin_us=1_000, end_us=2_000) for seed in range(600)]
    copied = [each for each in plans if each.enabled[-1:] == (FaultKind.COPY,)]
    assert 0 < len(copied) < 2 * COPY_SHARE * len(plans)
    for each in copied:
        kinds = [fault.kind for fault in each.faults]
        assert kinds.count(FaultKind.COPY) == 1
        assert not UNUSABLE & {*kinds}
        assert [fault.at_us for fault in each.faults] == sorted(fault.at_us for fault in each.faults)


def test_a_directory_is_copied_in_every_way_and_one_with_peers_by_files_alone() -> None:
    drawn = [draw_copy(draw(seed, "profile"), has_peers=False) for seed in range(200)]
    ways = {(each.by_blocks, each.pages, each.step_us > 0, each.left_out > 0, each.asleep > 0) for each in drawn}
    assert {way for way in ways if way[0]} == {
        (True, pages, False, False, asleep) for pages in (True, False) for asleep in (True, False)
    }
    assert {(pages, half, asleep) for blocks, pages, half, _, asleep in ways if not blocks} >= {
        (pages, half, asleep) for pages in (True, False) for half in (True, False) for asleep in (True, False)
    }
    assert any(each.left_out for each in drawn)
    assert not any(draw_copy(draw(seed, "profile"), has_peers=True).by_blocks for seed in range(200))
