"""A follower: table of every link and event; heals by reading the log; takes checkpoints when named (I9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.codec.wire import U64, Following, PacketReader, Role, Type, decode_struct
from deathless.core.effects import (
    AskUpstream,
    Effect,
    FollowPrimary,
    LeavePrimary,
    ReadLog,
    SendUpstream,
    TakeCheckpoint,
)
from deathless.core.replica.follower import FOLLOW_RETRY_S, Follower, Link

LIMITS = Limits(checkpoint_every_messages=10, checkpoint_every_bytes=1000)
STREAMING = Following(True, 3, 7, "r9")
READ_FIRST = Following(False, 3, 7, "r9")


def in_link(link: Link, *, reading: bool = False) -> Follower:
    follower = Follower(replica="r1", limits=LIMITS, lsn=5)
    if link is not Link.APART:
        assert follower.follow("r0", 3) == [FollowPrimary("r0", 3)]
    if link is Link.STREAMING:
        follower.upstream_answered(STREAMING)
    elif link is Link.BEHIND:
        follower.upstream_answered(READ_FIRST)
    follower.reading = reading
    assert follower.link is link
    return follower


def packets(effects: list[Effect]) -> list[tuple[int, bytes]]:
    """What is sent to the primary."""
    return [p for e in effects if isinstance(e, SendUpstream) for p in PacketReader(1 << 20).feed(e.data)]


Step = Callable[[Follower], list[Effect]]


def lost(follower: Follower) -> list[Effect]:
    follower.retry(1.0)
    return []


STEPS: dict[str, Step] = {
    "follow": lambda f: f.follow("r0", 3),
    "follow nobody": lambda f: f.follow("", 0),
    "leave": lambda f: f.leave(),
    "lost": lost,
    "streaming": lambda f: f.upstream_answered(STREAMING),
    "read first": lambda f: f.upstream_answered(READ_FIRST),
    "frames": lambda f: f.frames_applied(6, 1, 10, False),
    "gap": lambda f: f.frames_applied(5, 0, 0, True),
    "stretch": lambda f: f.log_read(6, False, 1.0),
    "end": lambda f: f.log_read(6, True, 1.0),
    "timer": lambda f: f.timer_fired(99.0, "r0", 3),
}
A, K, B, S = Link.APART, Link.ASKING, Link.BEHIND, Link.STREAMING


@pytest.mark.parametrize(
    ("step", "then", "effects"),
    [
        # from                    A  K  B  S, while nothing is being read; the types of what each gives
        ("follow", (K, K, B, S), ([FollowPrimary], [], [], [])),
        ("follow nobody", (A, K, B, S), ([], [], [], [])),
        ("leave", (A, A, A, A), ([], [LeavePrimary], [LeavePrimary], [LeavePrimary])),
        ("lost", (A, A, A, A), ([], [], [], [])),
        ("streaming", (A, S, S, S), ([], [], [], [])),
        ("read first", (A, B, B, B), ([], [ReadLog], [ReadLog], [ReadLog])),
        ("frames", (A, K, B, S), ([], [SendUpstream], [SendUpstream], [SendUpstream])),
        ("gap", (A, B, B, B), ([], [SendUpstream, ReadLog], [SendUpstream, ReadLog], [SendUpstream, ReadLog])),
        ("stretch", (A, K, B, S), ([ReadLog], [ReadLog], [ReadLog], [ReadLog])),
        ("end", (A, K, K, S), ([], [], [AskUpstream], [])),
        ("timer", (A, K, B, S), ([], [], [], [])),
    ],
)
def test_table_of_links(step: str, then: tuple[Link, ...], effects: tuple[list[type], ...]) -> None:
    for link, after, kinds in zip(Link, then, effects, strict=True):
        follower = in_link(link)
        assert [type(effect) for effect in STEPS[step](follower)] == kinds, link
        follower.check_invariants()
        assert follower.link is after, link


def test_log_is_read_a_stretch_at_a_time_and_never_twice_at_once() -> None:
    follower = in_link(Link.STREAMING)
    assert STEPS["gap"](follower)[-1] == ReadLog()
    assert ReadLog() not in STEPS["gap"](follower)
    assert STEPS["stretch"](follower) == [ReadLog()]
    assert STEPS["end"](follower) == [AskUpstream()]
    assert not follower.reading


def test_log_that_brought_nothing_new_is_no_reason_to_hurry() -> None:
    """A primary whose ring does not reach back would be asked without end."""
    follower = in_link(Link.BEHIND)
    assert follower.log_read(5, True, 1.0) == []
    due = follower.deadline()
    assert due == 1.0 + FOLLOW_RETRY_S
    assert follower.timer_fired(1.0, "r0", 3) == []
    assert follower.timer_fired(due, "r0", 3) == [ReadLog()]
    assert follower.deadline() is None
    assert follower.log_read(5, True, 2.0) == [AskUpstream()]
    follower.check_invariants()


def test_lost_connection_is_made_again_after_a_while() -> None:
    follower = in_link(Link.STREAMING)
    follower.retry(1.0)
    assert follower.timer_fired(1.0, "r0", 3) == []
    assert follower.timer_fired(1.0 + FOLLOW_RETRY_S, "r0", 3) == [FollowPrimary("r0", 3)]


def test_applied_lsn_is_told_to_the_primary() -> None:
    follower = in_link(Link.STREAMING)
    assert packets(follower.frames_applied(9, 1, 10, False)) == [(Type.APPLIED, U64.pack(9))]


@pytest.mark.parametrize(("messages", "size", "due"), [(9, 999, False), (10, 0, True), (0, 1000, True)])
def test_i9_checkpointer_takes_one_when_due_and_one_at_a_time(messages: int, size: int, due: bool) -> None:
    follower = in_link(Link.STREAMING)
    follower.upstream_answered(Following(True, 3, 7, "r1"))
    assert (TakeCheckpoint() in follower.frames_applied(9, messages, size, False)) is due
    assert TakeCheckpoint() not in follower.frames_applied(9, 0, 0, False)
    if due:
        assert TakeCheckpoint() not in follower.frames_applied(19, 10, 0, False)
        follower.checkpoint_written(9, "")
        assert TakeCheckpoint() in follower.frames_applied(20, 0, 0, False)


def test_i9_standby_takes_none_but_takes_one_soon_once_it_is_named() -> None:
    follower = in_link(Link.STREAMING)
    assert TakeCheckpoint() not in follower.frames_applied(15, 10, 0, False)
    follower.upstream_answered(Following(True, 3, 7, "r1"))
    assert TakeCheckpoint() in follower.frames_applied(16, 1, 0, False)


def test_checkpoint_is_told_to_the_primary_once() -> None:
    follower = in_link(Link.STREAMING)
    ((kind, body),) = packets(follower.checkpoint_written(9, "c9"))
    assert kind == Type.CHECKPOINT
    told = decode_struct(Role, body)
    assert (told.role, told.epoch, told.primary) == ("c9", 9, "r1")
    assert follower.upstream_answered(STREAMING) == []


@pytest.mark.parametrize("link", [Link.APART, Link.ASKING, Link.BEHIND])
def test_checkpoint_that_ends_without_a_stream_is_told_when_there_is_one(link: Link) -> None:
    follower = in_link(link)
    assert follower.checkpoint_written(9, "c9") == []
    follower.follow("r0", 3)
    assert [kind for kind, _ in packets(follower.upstream_answered(STREAMING))] == [Type.CHECKPOINT]


def test_new_primary_is_told_of_the_newest_checkpoint_since_none_counts_for_it_yet() -> None:
    follower = in_link(Link.STREAMING)
    follower.checkpoint_written(9, "c9")
    follower.retry(1.0)
    follower.follow("r2", 4)
    assert len(packets(follower.upstream_answered(STREAMING))) == 1


def test_after_recovery_the_first_question_is_asked_from_there() -> None:
    follower = Follower(replica="r1", limits=LIMITS, lsn=0)
    follower.recovered(50)
    follower.follow("r0", 3)
    follower.upstream_answered(READ_FIRST)
    assert follower.log_read(50, True, 1.0) == []


@given(st.lists(st.sampled_from([*sorted(STEPS), "written", "failed"]), max_size=40))
@example(["frames", "follow", "gap", "end", "gap", "end"])  # a gap before the next question was due
def test_no_order_of_events_breaks_an_invariant(steps: list[str]) -> None:
    follower = Follower(replica="r9", limits=Limits(checkpoint_every_messages=2), lsn=0)
    reads = 0
    for step in steps:
        if step in ("stretch", "end") and reads == 0:
            continue  # nothing is being read
        if step == "written":
            follower.checkpoint_written(6, "c6")
        elif step == "failed":
            follower.checkpoint_written(6, "")
        else:
            reads -= step in ("stretch", "end")
            reads += STEPS[step](follower).count(ReadLog())
        follower.check_invariants()
        assert reads == int(follower.reading)
