"""How many messages a frame holds, from what frames took."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deathless.core.primary.frame_size import FRAME_S, PEERS_COUNT_MIN, PEERS_S, RUN_S, Pace, PeersPace


def test_before_anything_is_known_a_frame_holds_what_it_may() -> None:
    assert Pace(8192).count == PeersPace(8192).count == 8192


@pytest.mark.parametrize(
    ("message_s", "count"),
    [
        (RUN_S / 1000, 1000),
        (RUN_S / 2, 2),
        (RUN_S * 3, 1),  # one always goes
        (RUN_S / 1e6, 8192),  # quick ones: not more than a frame may hold
        (0.0, 8192),  # no time went by, as in a simulation
    ],
)
def test_a_frame_holds_what_runs_in_about_run_s(message_s: float, count: int) -> None:
    pace = Pace(8192)
    pace.frame_ran(512, FRAME_S + 512 * message_s)
    assert pace.count == pytest.approx(count, abs=1)


def test_what_a_frame_costs_besides_says_nothing_about_its_messages() -> None:
    pace = Pace(8192)
    pace.frame_ran(1, FRAME_S)
    assert pace.count == 8192


def test_a_frame_without_messages_of_others_teaches_nothing() -> None:
    pace = Pace(8192)
    pace.frame_ran(0, 1.0)
    assert pace.count == 8192


def test_other_turns_of_a_frame_never_shrink_the_next_one_but_may_show_that_messages_are_quick() -> None:
    pace = Pace(8192)
    pace.frame_ran(10, 10 * RUN_S, alone=False)
    assert pace.count == 8192
    pace.frame_ran(10, 10 * RUN_S / 4)
    slow = pace.count
    pace.frame_ran(10, 10 * RUN_S, alone=False)
    assert pace.count == slow
    pace.frame_ran(10, 10 * RUN_S / 40, alone=False)
    assert pace.count > slow


def test_one_stall_does_not_shrink_frames_for_long() -> None:
    pace = Pace(8192)
    pace.frame_ran(1, 1.0)
    assert pace.count == 1
    for _ in range(60):
        pace.frame_ran(pace.count, pace.count * RUN_S / 400)
    assert pace.count == pytest.approx(400, rel=0.05)


@pytest.mark.parametrize(
    ("message_s", "count"),
    [
        (PEERS_S / 1000, 1000),
        (PEERS_S / 200, 200),
        (PEERS_S, PEERS_COUNT_MIN),  # slow ones: a frame costs more than that of its own
        (PEERS_S / 1e6, 8192),
        (0.0, 8192),
    ],
)
def test_a_frame_holds_of_peers_what_takes_about_peers_s(message_s: float, count: int) -> None:
    pace = PeersPace(8192)
    pace.frame_took(512, 512 * message_s)
    assert pace.count == pytest.approx(count, abs=1)


def test_small_frames_of_peers_tell_of_their_sync_and_teach_nothing() -> None:
    pace = PeersPace(8192)
    pace.frame_took(PEERS_COUNT_MIN - 1, 1.0)
    assert pace.count == 8192


def test_one_slow_sync_does_not_shrink_frames_of_peers_for_long() -> None:
    pace = PeersPace(8192)
    pace.frame_took(200, 200 * PEERS_S / 400)
    pace.frame_took(400, 10 * PEERS_S)
    assert pace.count < 200
    for _ in range(20):
        pace.frame_took(200, 200 * PEERS_S / 400)
    assert pace.count == pytest.approx(400, rel=0.05)


@pytest.mark.parametrize("frames", [100, 10_000])
def test_turns_that_take_no_time_however_many_in_a_row_leave_frames_at_what_they_may_hold(frames: int) -> None:
    pace, peers = Pace(8192), PeersPace(8192)
    pace.frame_ran(1, 1.0)
    peers.frame_took(PEERS_COUNT_MIN, 1.0)
    for _ in range(frames):  # what is expected sinks below all that can be divided by
        pace.frame_ran(1, 0.0)
        peers.frame_took(PEERS_COUNT_MIN, 0.0)
    assert pace.count == peers.count == 8192


@given(
    st.integers(1, 8192),
    st.lists(st.tuples(st.integers(0, 8192), st.floats(0.0, 1e9), st.booleans()), max_size=20),
)
@example(64, [(1, 5e-324 + FRAME_S, True)])
@example(64, [(512, 5e-324, True)])
def test_whatever_frames_took_the_next_one_holds_at_least_one_message_and_at_most_what_it_may(
    count_max: int, frames: list[tuple[int, float, bool]]
) -> None:
    pace, peers = Pace(count_max), PeersPace(count_max)
    for count, seconds, alone in frames:
        pace.frame_ran(count, seconds, alone=alone)
        peers.frame_took(count, seconds)
        assert 1 <= pace.count <= count_max
        assert 1 <= peers.count <= count_max
