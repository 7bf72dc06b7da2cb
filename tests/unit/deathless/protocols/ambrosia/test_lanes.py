"""Lanes: positions, what is compared where, what may leave, and what a checkpoint keeps of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.items import EMPTY, OTHERS, bytes_of, chain_of, shape_of
from deathless.protocols.ambrosia.lanes import Compare, Difference, Expectation, Lane, Lanes, What
from deathless.protocols.ambrosia.messages import Kind, Rpc, make_call

BOUNDS = Bounds(targets_max=2, expectations_max=3)


def item(text: str, method: int = 1) -> Rpc:
    return make_call("b", method, Kind.FORK, text.encode())


def known(texts: str, *, method: int = 1, shape: bool = True) -> Expectation:
    """What another run says behind these items, one letter each."""
    chain = EMPTY
    for text in texts:
        chain = chain_of(chain, bytes_of(item(text, method)))
    return Expectation(len(texts), chain, shape_of(item("", method)) if shape else b"")


def lane_with(texts: str, policy: Compare = Compare.BYTES) -> Lane:
    lane = Lane("b", policy, BOUNDS)
    for text in texts:
        assert lane.emit(item(text))[1] == []
    return lane


def texts(lane: Lane, position: int = 1) -> list[tuple[int, str]]:
    return [(at, kept.arguments.decode()) for at, kept in lane.kept_from(position) if isinstance(kept, Rpc)]


def fatal(lane: Lane, found: list[Difference], position: int, what: What) -> bool:
    return lane.fatal and found == [Difference(target="b", position=position, what=what, fatal=True)]


def test_positions_count_from_one_without_gaps() -> None:
    lane = Lane("b", Compare.BYTES, BOUNDS)
    assert [lane.emit(item(text))[0] for text in "abc"] == [1, 2, 3]
    assert texts(lane) == [(1, "a"), (2, "b"), (3, "c")]
    assert texts(lane, 3) == [(3, "c")]


def test_what_had_its_effect_is_forgotten_and_the_rest_kept() -> None:
    lane = lane_with("abc")
    assert lane.confirm(known("ab")) == []
    assert texts(lane) == [(3, "c")]
    assert lane.confirm(known("a")) == [] and lane.floor == 2  # it never goes back


def test_a_floor_beyond_what_was_emitted_is_remembered() -> None:
    lane = lane_with("a")
    assert lane.confirm(known("abc")) == []
    assert texts(lane) == []
    for text in "bc":
        assert lane.emit(item(text))[1] == []
        assert texts(lane) == []
    assert lane.emit(item("d")) == (4, [])
    assert texts(lane) == [(4, "d")]
    assert lane.compared == 1


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("by", ["expect", "confirm", "welcome"])
def test_other_bytes_are_found_before_and_after_the_item(early: bool, by: str) -> None:
    lane = Lane("b", Compare.BYTES, BOUNDS)
    found: list[Difference] = []
    if early:
        found += getattr(lane, by)(known("axc"))
    for text in "abc":
        found += lane.emit(item(text))[1]
    if not early:
        found += getattr(lane, by)(known("axc"))
    assert fatal(lane, found, 3, What.BYTES)
    assert lane.release_from is None


def test_another_message_is_told_by_its_shape() -> None:
    lane = lane_with("ab")
    assert fatal(lane, lane.expect(known("ab", method=2)), 2, What.SHAPE)


def test_bytes_alone_are_counted_where_shapes_are_compared_and_counted_once() -> None:
    lane = lane_with("abcd", Compare.SHAPE)
    found = lane.confirm(known("ax"))
    assert found == [Difference(target="b", position=2, what=What.BYTES, fatal=False)]
    assert lane.expect(known("axc")) == [] and lane.expect(known("axcd")) == []
    assert lane.emit(item("e"))[1] == [] and lane.expect(known("axcde")) == []
    assert (lane.counted, lane.compared, lane.fatal) == (1, 4, False)


@pytest.mark.parametrize("shape", [True, False])
def test_where_shapes_are_compared_another_or_no_shape_is_fatal(shape: bool) -> None:
    lane = lane_with("ab", Compare.SHAPE)
    found = lane.expect(known("ax", method=2 if shape else 1, shape=shape))
    assert fatal(lane, found, 2, What.SHAPE if shape else What.BYTES)


def test_a_difference_at_the_floor_is_adopted_where_the_item_is_dropped() -> None:
    lane = Lane("b", Compare.SHAPE, BOUNDS)
    lane.confirm(known("xy"))
    assert lane.emit(item("a"))[1] == []
    assert [each.fatal for each in lane.emit(item("b"))[1]] == [False]
    assert lane.emit(item("c"))[1] == [] and lane.expect(known("xyc")) == []


def test_nothing_leaves_before_the_receiver_said_what_it_has() -> None:
    lane = lane_with("abc")
    released = [lane.release_from]
    assert lane.welcome(None) == []
    released.append(lane.release_from)
    lane.part()
    released.append(lane.release_from)
    assert lane.welcome(known("ab")) == []
    released.append(lane.release_from)
    assert released == [None, 1, None, 3]


def test_nothing_leaves_while_the_application_is_behind_its_receiver() -> None:
    lane = lane_with("a")
    assert lane.welcome(known("abc")) == []
    for text in "bc":
        assert lane.release_from is None
        lane.emit(item(text))
    assert lane.release_from == 4


def test_a_mark_of_our_own_opens_no_lane() -> None:
    alone, behind = lane_with("a"), lane_with("a")
    alone.expect(known("a"))
    behind.welcome(known("abc"))
    behind.expect(known("a"))
    assert (alone.compared, alone.release_from) == (1, None)
    assert (behind.compared, behind.release_from) == (1, None)


def test_a_difference_is_told_once() -> None:
    lane = lane_with("ab")
    assert len(lane.expect(known("ax"))) == 1
    assert lane.expect(known("ay")) == lane.confirm(known("az")) == []
    assert (lane.compared, lane.floor) == (1, 0)


def test_a_mark_of_our_own_opens_no_lane_to_a_receiver_that_has_something_else() -> None:
    lane = Lane("b", Compare.BYTES, BOUNDS)
    lane.expect(known("ab"))
    lane.welcome(known("xb"))
    lane.emit(item("a"))
    found = lane.emit(item("b"))[1]
    assert len(found) == 1 and lane.fatal and lane.release_from is None


def test_a_receiver_that_has_less_than_it_confirmed_gets_nothing() -> None:
    lane = lane_with("abc")
    lane.confirm(known("ab"))
    assert fatal(lane, lane.welcome(known("a")), 2, What.RECEIVER_BEHIND)
    again = lane_with("abc")
    again.confirm(known("ab"))
    assert fatal(again, again.welcome(None), 2, What.RECEIVER_BEHIND)


def test_what_is_known_of_before_the_floor_is_covered() -> None:
    lane = lane_with("abc")
    lane.confirm(known("abc"))
    assert lane.expect(known("x")) == []
    assert fatal(lane, lane.expect(known("abx")), 3, What.BYTES)


def test_a_barrier_before_what_is_known_is_fewer_outputs() -> None:
    lanes = Lanes(Compare.BYTES, BOUNDS)
    lanes.get("b").expect(known("ab")._replace(lsn=7))
    lanes.get("b").welcome(known("ab"))
    lanes.get("c").expect(known("a")._replace(lsn=7))
    lanes.get("c").emit(item("a"))
    lanes.get("b").emit(item("a"))
    assert lanes.judge_barrier(6) == []
    assert fatal(lanes.get("b"), lanes.judge_barrier(7), 2, What.FEWER)


def test_a_receiver_that_is_ahead_is_no_fewer_outputs_at_a_barrier() -> None:
    lane = lane_with("a")
    lane.welcome(known("abc"))
    assert lane.judge_barrier(10**9) == []


def test_what_waits_is_bounded_and_the_last_and_the_receivers_stay() -> None:
    lane = Lane("b", Compare.BYTES, BOUNDS)
    lane.welcome(known("a"))
    for end in range(2, 9):
        lane.expect(known("abcdefgh"[:end]))
        lane.expect(known("abcdefgh"[:end]))
    lane.check_invariants()
    for text in "abcdefgh":
        assert lane.emit(item(text))[1] == []
    assert lane.release_from == 2
    assert lane.compared == BOUNDS.expectations_max


def test_targets_are_counted_by_what_was_emitted_alone() -> None:
    lanes = Lanes(Compare.BYTES, BOUNDS)
    lanes.get("known of, never sent to")
    for target in ("", "b", "c", "d"):
        lanes.admit(target).emit(item("a"))
    assert lanes.admit("d") is lanes.admit("e") is lanes.get(OTHERS)
    assert lanes.admit("b") is lanes.get("b")
    again = Lanes(Compare.BYTES, BOUNDS)
    again.restore(lanes.snapshot())
    assert [state.target for state in again.snapshot()] == ["", OTHERS, "b", "c"]
    assert again.others == 2 and again.admit("d") is again.get(OTHERS)


def test_however_many_targets_there_are_as_many_lanes_are_kept() -> None:
    lanes = Lanes(Compare.BYTES, BOUNDS)
    for number in range(10_000):
        lanes.admit(f"t{number}").emit(item("a"))
    assert [state.target for state in lanes.snapshot()] == [OTHERS, "t0", "t1"]


def test_another_destination_is_another_item_where_targets_share_a_lane() -> None:
    one, other = (Lane(OTHERS, Compare.BYTES, BOUNDS) for _ in range(2))
    one.emit(make_call("d", 1, Kind.FORK, b"a"))
    other.emit(make_call("e", 1, Kind.FORK, b"a"))
    assert one.chain_at(1) != other.chain_at(1)


def run_of(emitted: Sequence[str], steps: Sequence[tuple[str, int]], lane: Lane) -> list[Difference]:
    """Emit and hear in the order of the steps, each of them something that is true of another run."""
    whole = "".join(emitted)
    found: list[Difference] = []
    for step, position in steps:
        if step == "emit" and lane.emitted < len(whole):
            found += lane.emit(item(whole[lane.emitted]))[1]
        elif step in {"expect", "confirm"}:
            found += getattr(lane, step)(known(whole[:position]))
        lane.check_invariants()
    return found


STEPS = st.lists(st.tuples(st.sampled_from(["emit", "emit", "expect", "confirm"]), st.integers(1, 6)), max_size=30)


@given(STEPS, st.integers(0, 30), st.sampled_from(Compare))
def test_the_same_outputs_never_differ_whatever_is_known_when(
    steps: list[tuple[str, int]], cut: int, policy: Compare
) -> None:
    bounds = Bounds()
    straight = Lane("b", policy, bounds)
    assert run_of("abcdef", steps, straight) == []
    first, second = Lane("b", policy, bounds), Lane("b", policy, bounds)
    assert run_of("abcdef", steps[:cut], first) == []
    second.restore(first.snapshot())
    assert run_of("abcdef", steps[cut:], second) == []
    assert second.snapshot() == straight.snapshot()


@given(STEPS, st.integers(0, 5))
def test_another_output_is_found_wherever_it_is_known_of(steps: list[tuple[str, int]], wrong: int) -> None:
    lane = Lane("b", Compare.BYTES, Bounds())
    ours = "abcdef"[:wrong] + "x" + "abcdef"[wrong + 1 :]
    found: list[Difference] = []
    known_through = 0
    for step, position in itertools.chain(steps, [("emit", 0)] * 6):
        if step == "emit" and lane.emitted < 6:
            found += lane.emit(item(ours[lane.emitted]))[1]
        elif step in {"expect", "confirm"}:
            known_through = max(known_through, position)
            found += getattr(lane, step)(known("abcdef"[:position]))
    assert bool(found) == (known_through > wrong)
