"""Every turn has the same room on the stack, wherever the executor was called from."""

import sys

import pytest

from deathless.execution.turn import depth


def room() -> int:
    """Calls left until RecursionError."""
    try:
        return 1 + room()
    except RecursionError:
        return 0


def room_at(frames: int, through_c: bool = False) -> int:
    if frames:
        if through_c:
            return max(map(room_at, [frames - 1], [True]))
        return room_at(frames - 1)
    before = depth.enter()
    try:
        return room()
    finally:
        depth.leave(before)


def test_room_is_the_same_at_every_depth() -> None:
    assert len({room_at(0), room_at(50), room_at(200), room_at(60, through_c=True)}) == 1


def test_without_the_limit_set_anew_the_room_shrinks_with_the_depth() -> None:
    def bare(frames: int) -> int:
        return bare(frames - 1) if frames else room()

    assert bare(0) > bare(50)


def test_room_is_the_documented_one() -> None:
    assert abs(room_at(0) - depth.TURN_DEPTH) <= 3


def test_limit_stands_again_after_the_turn() -> None:
    before = sys.getrecursionlimit()
    depth.leave(depth.enter())
    assert sys.getrecursionlimit() == before


def test_depth_is_read_from_the_interpreters_words() -> None:
    with pytest.raises(RecursionError) as caught:
        sys.setrecursionlimit(1)
    assert depth.depth_in(str(caught.value)) >= depth.count_frames() - 1  # which counts itself


def test_frames_are_counted_where_the_interpreter_says_nothing() -> None:
    def one_deeper() -> int:
        return depth.depth_in("no")

    assert one_deeper() == depth.depth_in("no") + 1
