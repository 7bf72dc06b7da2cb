"""Letting go in order: a table of every stage and event."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.codec.wire import Follow
from deathless.core.effects import Send, StopReplica, StoreConfirmed
from deathless.core.events import Conn, SwitchoverOrdered
from deathless.core.primary.handover import HANDOVER_MAX_S, Departure, Stage
from deathless.core.primary.stream import Stream

ASKER = Conn(9)
WAIT_S = 8.0


def stream_of(*replicas: str) -> Stream:
    """A stream with followers in step; the first one is the checkpointer."""
    stream = Stream(epoch=1, limits=Limits(), lsn=0, chain=bytes(16))
    for conn, replica in enumerate(replicas, 1):
        stream.follow_received(Conn(conn), Follow(replica, 0, bytes(16), False))
    return stream


def with_upgrader(*replicas: str) -> Stream:
    """The same, and an upgrader `u0` beside them."""
    stream = stream_of(*replicas)
    stream.follow_received(Conn(20), Follow("u0", 0, bytes(16), False, True))
    return stream


def switched(*replicas: str, target: str = "", wait_s: float = WAIT_S) -> Departure:
    """A switchover is ordered at 0 s, and nothing is under way."""
    departure = Departure(wait_s)
    stream = stream_of(*replicas)
    departure.switchover_ordered(SwitchoverOrdered(ASKER, 4, target), stream, 0.0)
    departure.look(stream, 0, 0.0)
    return departure


def in_stage(stage: Stage, *, stopping: bool = False) -> Departure:
    departure = Departure(WAIT_S)
    under_way = int(stage is Stage.WAITING)
    if stage in (Stage.WAITING, Stage.HANDING_OVER):
        if stopping:
            departure.stop_ordered(0.0, at_once=False)
        else:
            departure.switchover_ordered(SwitchoverOrdered(ASKER, 4, ""), stream_of("r1", "r2"), 0.0)
        departure.look(stream_of("r1", "r2"), under_way, 0.0)
    elif stage is Stage.ALONE:
        departure.stop_ordered(0.0, at_once=False)
        departure.look(stream_of(), 0, 0.0)
    elif stage is Stage.GONE:
        departure.gone()
    assert departure.stage is stage
    return departure


Step = Callable[[Departure], None]
STEPS: dict[str, Step] = {
    "switchover": lambda d: d.switchover_ordered(SwitchoverOrdered(ASKER, 5, ""), stream_of("r1", "r2"), 1.0),
    "switchover, nobody there": lambda d: d.switchover_ordered(SwitchoverOrdered(ASKER, 5, ""), stream_of(), 1.0),
    "stop": lambda d: d.stop_ordered(1.0, at_once=False),
    "target lost": lambda d: d.follower_lost("r2"),
    "another lost": lambda d: d.follower_lost("r1"),
    "early": lambda d: d.timer_fired(HANDOVER_MAX_S - 0.1),
    "late": lambda d: d.timer_fired(HANDOVER_MAX_S),
    "one under way": lambda d: d.look(stream_of("r1", "r2"), 1, 1.0),
    "none under way": lambda d: d.look(stream_of("r1", "r2"), 0, 1.0),
    "none under way, nobody there": lambda d: d.look(stream_of(), 0, 1.0),
    "one under way at the end of the wait": lambda d: d.look(stream_of("r1", "r2"), 1, 1.0 + WAIT_S),
    "the same, nobody there": lambda d: d.look(stream_of(), 1, 1.0 + WAIT_S),
    "gone": lambda d: d.gone(),
    "upgrade": lambda d: d.switchover_ordered(SwitchoverOrdered(ASKER, 5, "u0", b"x" * 16), with_upgrader("r1"), 1.0),
    "upgrade, none under way": lambda d: d.look(with_upgrader("r1", "r2"), 0, 1.0),
}
S, W, H, A, G = Stage.STAYING, Stage.WAITING, Stage.HANDING_OVER, Stage.ALONE, Stage.GONE


@pytest.mark.parametrize(
    ("step", "then"),
    [
        # from S, W, W while stopping, H, H while stopping, A, G
        ("switchover", (W, W, W, H, H, A, G)),
        ("switchover, nobody there", (S, W, W, H, H, A, G)),
        ("stop", (W, W, W, H, H, A, G)),
        ("target lost", (S, W, W, S, A, A, G)),
        ("another lost", (S, W, W, H, H, A, G)),
        ("early", (S, W, W, H, H, A, G)),
        ("late", (S, W, W, S, A, A, G)),
        ("one under way", (S, W, W, H, H, A, G)),
        ("none under way", (S, H, H, H, H, A, G)),
        ("none under way, nobody there", (S, S, A, H, H, A, G)),
        ("one under way at the end of the wait", (S, H, H, H, H, A, G)),
        ("the same, nobody there", (S, S, A, H, H, A, G)),
        ("gone", (G, G, G, G, G, G, G)),
        ("upgrade", (W, W, W, H, H, A, G)),
    ],
)
def test_table_of_stages(step: str, then: tuple[Stage, ...]) -> None:
    begun = [in_stage(S), in_stage(W), in_stage(W, stopping=True), in_stage(H), in_stage(H, stopping=True)]
    begun += [in_stage(A), in_stage(G)]
    for departure, stage in zip(begun, then, strict=True):
        STEPS[step](departure)
        departure.check_invariants()
        assert departure.stage is stage
        assert departure.serving == (stage in (S, W))


def test_the_wait_is_bounded_from_the_first_order_on_and_the_hand_over_has_its_own_time_behind_it() -> None:
    departure = in_stage(Stage.WAITING)
    assert departure.deadline() == WAIT_S
    departure.stop_ordered(5.0, at_once=False)
    assert departure.deadline() == WAIT_S
    departure.look(stream_of("r1", "r2"), 1, WAIT_S - 0.1)
    assert departure.stage.name == "WAITING"
    departure.look(stream_of("r1", "r2"), 1, WAIT_S)
    assert departure.stage.name == "HANDING_OVER"
    assert departure.deadline() == WAIT_S + HANDOVER_MAX_S


def test_what_is_waited_for_is_told_with_since_when_and_until_when() -> None:
    departure, stream = Departure(WAIT_S), stream_of("r1", "r2")
    told = [departure.waiting]
    departure.switchover_ordered(SwitchoverOrdered(ASKER, 4, ""), stream, 3.0)
    told.append(departure.waiting)
    for under_way, now in ((2, 3.0), (1, 4.0), (0, 5.0)):
        departure.look(stream, under_way, now)
        told.append(departure.waiting)
    until = 3.0 + WAIT_S
    assert told == [None, None, (2, 3.0, until), (1, 3.0, until), None]


@pytest.mark.parametrize("under_way", [0, 1])
def test_without_a_wait_it_is_handed_over_at_once(under_way: int) -> None:
    departure = Departure(0.0)
    departure.switchover_ordered(SwitchoverOrdered(ASKER, 4, ""), stream_of("r1"), 3.0)
    departure.look(stream_of("r1"), under_way, 3.0)
    assert (departure.stage, departure.target) == (Stage.HANDING_OVER, "r1")


@pytest.mark.parametrize("order", ["the first", "another"])
def test_a_stop_at_once_does_not_wait_and_ends_a_wait(order: str) -> None:
    departure = Departure(WAIT_S) if order == "the first" else in_stage(Stage.WAITING)
    departure.stop_ordered(1.0, at_once=True)
    departure.look(stream_of("r1"), 1, 1.0)
    assert departure.stage is Stage.HANDING_OVER


def test_who_takes_over_is_chosen_after_the_wait() -> None:
    departure = in_stage(Stage.WAITING)
    assert departure.target == ""
    departure.look(stream_of("r1", "r3"), 0, 1.0)
    assert departure.target == "r3"
    named = Departure(WAIT_S)
    named.switchover_ordered(SwitchoverOrdered(ASKER, 4, "r2"), stream_of("r1", "r2"), 0.0)
    named.look(stream_of("r1", "r2"), 1, 0.0)
    named.look(stream_of("r1"), 0, 1.0)
    assert named.failed == (ASKER, 4, "r2 is not a follower that is up to date (r1)")
    assert named.stage is Stage.STAYING


def test_best_standby_is_chosen_and_the_checkpointer_only_when_alone() -> None:
    assert switched("r1", "r2", "r3").target == "r3"
    assert switched("r1").target == "r1"


def test_named_target_is_taken_even_if_it_is_the_checkpointer() -> None:
    departure = switched("r1", "r2", target="r1")
    assert departure.target == "r1"
    assert departure.deadline() == HANDOVER_MAX_S


@pytest.mark.parametrize(
    ("replicas", "target", "why"),
    [((), "", "no follower is up to date"), (("r1",), "r9", "r9 is not a follower that is up to date (r1)")],
)
def test_switchover_that_can_not_be_is_told_to_who_asked(replicas: tuple[str, ...], target: str, why: str) -> None:
    departure = switched(*replicas, target=target)
    assert departure.failed == (ASKER, 4, why)
    assert departure.deadline() is None


def test_second_switchover_is_refused_and_the_first_goes_on() -> None:
    departure = in_stage(Stage.HANDING_OVER)
    STEPS["switchover"](departure)
    assert departure.failed == (ASKER, 5, "a switchover is under way")
    assert departure.target == "r2"


@pytest.mark.parametrize(("step", "why"), [("target lost", "went away"), ("late", "did not catch up")])
def test_switchover_called_off_is_told_once_to_who_asked(step: str, why: str) -> None:
    departure = in_stage(Stage.HANDING_OVER)
    STEPS[step](departure)
    assert departure.failed is not None
    assert departure.failed[:2] == (ASKER, 4)
    assert why in departure.failed[2]


def test_stop_during_a_switchover_goes_on_with_it_and_when_that_fails_alone() -> None:
    departure = in_stage(Stage.HANDING_OVER)
    STEPS["stop"](departure)
    assert departure.stage.name == "HANDING_OVER"
    STEPS["target lost"](departure)
    assert departure.stage.name == "ALONE"
    assert departure.failed is not None  # the operator hears that the switchover came to nothing


def test_second_stop_changes_nothing() -> None:
    departure = in_stage(Stage.HANDING_OVER, stopping=True)
    STEPS["stop"](departure)
    assert (departure.stage, departure.target) == (Stage.HANDING_OVER, "r2")
    assert departure.failed is None


# ---- upgrades ------------------------------------------------------------------------------------------------------

UPGRADE = b"of an upgrade..."
TO_U0 = SwitchoverOrdered(ASKER, 4, "u0", UPGRADE)


def upgrading(under_way: int = 0) -> tuple[Departure, Stream]:
    """An upgrade by `u0` is ordered at 0 s, while activities are under way."""
    departure, stream = Departure(WAIT_S), with_upgrader("r1", "r2")
    departure.switchover_ordered(TO_U0, stream, 0.0)
    departure.look(stream, under_way, 0.0)
    return departure, stream


def test_an_upgrade_is_handed_over_to_the_upgrader_that_asked_for_it() -> None:
    departure, _ = upgrading()
    assert (departure.stage, departure.target, departure.upgrade) == (Stage.HANDING_OVER, "u0", UPGRADE)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (SwitchoverOrdered(ASKER, 4, "r1", UPGRADE), "r1 is no upgrader that is up to date"),
        (SwitchoverOrdered(ASKER, 4, "u1", UPGRADE), "u1 is no upgrader that is up to date"),
        (SwitchoverOrdered(ASKER, 4, "u0"), "u0 is not a follower that is up to date (r1, r2)"),
    ],
)
def test_an_upgrade_goes_to_an_upgrader_alone_and_nothing_else_does(order: SwitchoverOrdered, why: str) -> None:
    departure = Departure(WAIT_S)
    departure.switchover_ordered(order, with_upgrader("r1", "r2"), 0.0)
    assert departure.failed == (ASKER, 4, why)
    assert departure.stage is Stage.STAYING


@pytest.mark.parametrize("stopping", [False, True])
def test_an_upgrader_is_nobody_to_hand_over_to_otherwise(stopping: bool) -> None:
    departure, stream = Departure(WAIT_S), with_upgrader()
    if stopping:
        departure.stop_ordered(0.0, at_once=False)
    else:
        departure.switchover_ordered(SwitchoverOrdered(ASKER, 4, ""), stream, 0.0)
    departure.look(stream, 0, 0.0)
    assert departure.stage is (Stage.ALONE if stopping else Stage.STAYING)


def test_an_upgrade_waits_for_activities_and_is_called_off_where_a_switchover_would_give_them_up() -> None:
    departure, stream = upgrading(under_way=2)
    departure.look(stream, 2, WAIT_S - 0.1)
    assert departure.stage.name == "WAITING"
    departure.look(stream, 2, WAIT_S)
    assert departure.stage.name == "STAYING"
    assert departure.failed == (ASKER, 4, "2 activities that must run at most once still run")
    assert departure.upgrade == b""


def test_an_upgrader_that_goes_while_activities_are_waited_for_is_told_at_the_end_of_the_wait() -> None:
    departure, _ = upgrading(under_way=1)
    departure.look(stream_of("r1", "r2"), 0, 1.0)
    assert departure.failed == (ASKER, 4, "u0 is no upgrader that is up to date")
    assert departure.stage is Stage.STAYING


def test_a_stop_while_an_upgrade_waits_goes_before_it_and_to_a_standby() -> None:
    departure, stream = upgrading(under_way=1)
    departure.stop_ordered(1.0, at_once=False)
    assert departure.failed == (ASKER, 4, "the primary stops")
    departure.look(stream, 0, 1.5)
    assert (departure.stage, departure.target, departure.upgrade) == (Stage.HANDING_OVER, "r2", b"")


def test_a_stop_while_an_upgrade_is_handed_over_goes_on_with_it() -> None:
    departure, _ = upgrading()
    departure.stop_ordered(1.0, at_once=False)
    assert (departure.stage, departure.target, departure.upgrade) == (Stage.HANDING_OVER, "u0", UPGRADE)
    departure.follower_lost("u0")
    assert departure.stage.name == "ALONE"
    assert departure.upgrade == b""


def test_the_target_hears_that_it_leads_once_the_lock_store_has_heard_of_the_last_place() -> None:
    departure = in_stage(Stage.HANDING_OVER)
    assert departure.hand_over(Conn(2), 1, 7) == [StoreConfirmed(7)]
    assert departure.hand_over(Conn(2), 1, 7) == [], "it is asked once"
    departure.confirmed_stored(6)  # an earlier switchover's, late
    assert departure.hand_over(Conn(2), 1, 7) == []
    departure.confirmed_stored(7)
    send, stop = departure.hand_over(Conn(2), 1, 7)
    assert isinstance(send, Send)
    assert isinstance(stop, StopReplica)
    assert stop.successor == departure.target
    assert departure.stage is Stage.GONE


def test_a_lock_store_that_does_not_answer_calls_it_off_and_is_asked_anew_by_the_next() -> None:
    departure = in_stage(Stage.HANDING_OVER)
    departure.hand_over(Conn(2), 1, 7)
    departure.timer_fired(HANDOVER_MAX_S)
    assert departure.failed == (ASKER, 4, "the lock store did not answer in time")
    departure.switchover_ordered(SwitchoverOrdered(ASKER, 5, ""), stream_of("r1", "r2"), 10.0)
    departure.look(stream_of("r1", "r2"), 0, 10.0)
    assert departure.hand_over(Conn(2), 1, 7) == [StoreConfirmed(7)]


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12))
def test_no_order_of_events_breaks_an_invariant_and_nothing_comes_back_from_gone(steps: list[str]) -> None:
    departure = Departure(WAIT_S)
    for step in steps:
        was = departure.stage
        STEPS[step](departure)
        departure.check_invariants()
        assert was is not Stage.GONE or departure.stage is Stage.GONE
        assert was is not Stage.ALONE or departure.stage in (Stage.ALONE, Stage.GONE)
