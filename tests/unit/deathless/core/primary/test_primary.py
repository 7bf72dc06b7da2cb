"""A primary in the order of I1: form, run and write, sync, prove, release; and what else it does beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from tests.unit.deathless.core.primary_world import SMALL, WALL_US, World, call, serving, stop_of

from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.base.times import Times
from deathless.codec.frames import BLOCK, Confirm, FrameKind
from deathless.codec.messages import Kind, decode, decode_time
from deathless.codec.wire import Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.admission import SPACE_RETRY_S
from deathless.core.primary.primary import ASK_AGAIN_S

OPERATOR = ev.Conn(90)


# ---- I1: the release rule ----------------------------------------------------------------------------------------


def test_i1_reply_leaves_only_after_sync_and_a_proof_begun_after_it() -> None:
    world, session = serving()
    world.follow("r1", 51, 1, world.place.chain)
    world.sent.clear()
    world.send(session, 1, b"a")
    world.drained()
    assert [type(effect) for effect in world.todo] == [fx.RunFrame]
    assert world.sent == []
    world.sync()
    assert [type(effect) for effect in world.todo] == [fx.Prove]
    assert world.sent == []
    world.prove()
    assert world.replies(session) == [(1, b"a")]
    assert world.to(51) == [Type.FRAME]


def test_i1_proof_covers_what_was_synced_when_it_began() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.sync()  # a is synced, its proof begins, the frame with b is due
    world.sync()  # b is synced
    world.prove()
    assert world.replies(session) == [(1, b"a")]
    world.prove()
    assert world.replies(session) == [(1, b"a"), (2, b"b")]


def test_without_proof_after_sync_a_frame_leaves_with_a_proof_begun_before_it_was_written() -> None:
    world, session = serving(safeguards=Safeguards(proof_after_sync=False))
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.sync()
    world.sync()
    world.prove()
    assert world.replies(session) == [(1, b"a"), (2, b"b")]  # a successor may have taken over before b was written


def test_i1_next_frame_is_written_only_after_the_sync_before_returned_and_gathers_what_came_meanwhile() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.send(session, 3, b"c")
    world.drained()
    assert world.owes(fx.RunFrame) == 1
    world.sync()
    frame = world.take(fx.RunFrame)
    assert [run.count for run, _ in frame.runs] == [1, 1]


def test_i1_proof_without_an_answer_holds_release_for_as_long_as_it_takes() -> None:
    world, session = serving()
    for seq in (1, 2, 3):
        world.send(session, seq, b"%d" % seq)
        world.drained()
        world.sync()
    assert world.owes(fx.Prove) == 1
    assert world.replies(session) == []
    world.prove()
    world.prove()
    assert len(world.replies(session)) == 3


def test_i10_frames_that_wait_for_a_proof_are_bounded_by_unconfirmed_bytes_max() -> None:
    world, session = serving(replace(SMALL, unconfirmed_bytes_max=100))
    for seq in (1, 2, 3):
        world.send(session, seq, bytes(80))
        world.drained()
        if world.owes(fx.RunFrame):
            world.sync()
    assert world.place.lsn == 2  # the registration and the first: no further frame without a proof
    world.settle()
    assert len(world.replies(session)) == 3


def test_i8_frames_that_wait_for_a_proof_are_no_more_than_a_successors_spare_has_room_for() -> None:
    limits = replace(SMALL, frame_bytes_max=2 * BLOCK, message_bytes_max=BLOCK, spare_bytes=8 * BLOCK)
    world, session = serving(limits)
    for seq in range(1, 10):
        world.send(session, seq, bytes(80))
        world.drained()
        if world.owes(fx.RunFrame):
            world.sync()
    assert world.place.lsn == 6  # the registration and five calls, each in a block: one more than two frames are left
    world.settle()
    assert len(world.replies(session)) == 9


def test_i2_definite_no_deposes_and_nothing_leaves_any_more() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.sync()
    world.prove(owned=False)
    assert stop_of(world).code == "DL2001"
    world.send(session, 2, b"b")
    world.drained()
    world.fire(10.0)
    assert world.replies(session) == []
    assert world.todo == []
    assert world.primary.deadline() is None


def test_without_prove_before_release_a_deposed_primary_goes_on_releasing() -> None:
    world, session = serving(safeguards=Safeguards(prove_before_release=False))
    world.send(session, 1, b"a")
    world.drained()
    world.sync()
    world.prove(owned=False)
    assert world.replies(session) == [(1, b"a")]


def test_answer_to_a_proof_that_comes_twice_releases_nothing_more() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.sync()
    number = world.take(fx.Prove).number
    for _ in range(2):
        world.do(world.primary.proof_answered(number, True, world.now, world.wall_us))
    assert world.replies(session) == [(1, b"a")]


def test_definite_no_deposes_whichever_proof_it_answers() -> None:
    world, _ = serving()
    world.do(world.primary.proof_answered(999, False, world.now, world.wall_us))
    assert world.primary.closed


def test_doubt_makes_an_idle_primary_prove_and_one_with_a_proof_under_way_prove_again() -> None:
    world, session = serving()
    world.do(world.primary.doubt())
    world.do(world.primary.doubt())
    assert world.owes(fx.Prove) == 1
    world.prove()
    assert world.owes(fx.Prove) == 1
    world.prove()
    assert world.owes(fx.Prove) == 0
    assert world.replies(session) == []


@pytest.mark.parametrize("completion", ["frame", "closing", "refused", "closing refused"])
def test_completion_of_what_was_never_begun_is_our_bug(completion: str) -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    event = world.sync()
    primary = world.primary
    complete: dict[str, Callable[[], object]] = {
        "frame": lambda: primary.frame_synced(event, world.now, world.wall_us),
        "closing": lambda: primary.control_synced(1, world.now, world.wall_us),
        "refused": lambda: primary.space_refused((), world.now),
        "closing refused": lambda: primary.control_refused(world.now),
    }
    with pytest.raises(AssertionError):
        complete[completion]()


# ---- logical time ------------------------------------------------------------------------------------------------


def times_logged(world: World) -> list[int]:
    """Logical times in the frame that is due."""
    frame = world.take(fx.RunFrame)
    world.todo.append(frame)
    found = [decode(message) for _, messages in frame.runs for message in messages]
    return [decode_time(message.args).time_us for message in found if message.kind == Kind.TIME]


@pytest.mark.parametrize(
    ("moved_us", "logged"),
    [
        (0, []),
        (999, []),
        (1000, [WALL_US + 1000]),
    ],
)
def test_time_is_logged_before_what_it_governs_once_it_has_moved(moved_us: int, logged: list[int]) -> None:
    world, session = serving(Limits())
    world.pass_us(moved_us)
    world.send(session, 1, b"a")
    world.drained()
    assert times_logged(world) == logged


@pytest.mark.parametrize("by_age", [True, False])
def test_session_lives_through_a_wrong_clock_that_was_believed_unless_age_goes_by_it(by_age: bool) -> None:
    world, session = serving(Limits(), Safeguards(age_without_clock=by_age))
    world.wall_us += 30 * 86400 * 10**6  # a month
    for seq in (1, 2):
        world.send(session, seq, b"a")
        world.settle()
        world.pass_us(400 * 10**6)
    assert (world.sessions.get(session) is not None) == by_age


def test_first_time_of_a_service_is_the_wall_clocks() -> None:
    world = World(Limits())
    world.primary._time.times = world.place.times = Times()
    world.do(world.primary.register_received(ev.Conn(1), bytes(16)))
    world.drained()
    assert times_logged(world) == [WALL_US]


# ---- idle --------------------------------------------------------------------------------------------------------


def test_idle_primary_writes_one_frame_with_its_confirmed_lsn_and_digest() -> None:
    world, _ = serving()
    due = world.primary.deadline()
    assert due == world.now + SMALL.idle_confirm_s
    world.fire(SMALL.idle_confirm_s / 2)
    assert world.todo == []
    world.fire(SMALL.idle_confirm_s)
    control = world.take(fx.WriteControl)
    assert (control.kind, control.confirmed_lsn) == (FrameKind.CONFIRM, 1)
    assert msgspec.msgpack.decode(control.payload, type=Confirm).digest == world.place.digest
    world.todo.append(control)
    assert world.primary.deadline() is None
    world.close_frame()
    asks_at = world.primary.deadline()
    world.fire(ASK_AGAIN_S / 2)
    assert world.todo == []
    assert world.primary.deadline() == asks_at
    assert world.primary.drained


def test_fresh_primary_has_nothing_to_say() -> None:
    world = World()
    world.fire(ASK_AGAIN_S / 2)
    assert world.todo == []


def test_i2_idle_primary_asks_its_fence_now_and_then_or_it_never_learns_that_it_was_deposed() -> None:
    world = World()
    assert world.primary.deadline() == world.now + ASK_AGAIN_S
    world.fire(ASK_AGAIN_S)
    asked = world.take(fx.Prove)
    assert world.todo == []
    assert world.primary.deadline() == world.now + ASK_AGAIN_S, "a question without an answer keeps nobody busy"
    (stop,) = world.primary.proof_answered(asked.number, False, world.now, world.wall_us)
    assert isinstance(stop, fx.StopReplica)


def test_frame_due_during_a_closing_frame_waits_for_it() -> None:
    world, session = serving()
    world.fire(1.0)
    world.send(session, 1, b"a")
    world.drained()
    assert world.owes(fx.RunFrame) == 0
    world.close_frame()
    world.settle()
    assert world.replies(session) == [(1, b"a")]


# ---- I8: space ---------------------------------------------------------------------------------------------------


def test_i8_full_disk_goes_on_confirming_and_answering_and_probes_until_there_is_room() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.sync()
    world.refuse()
    assert world.primary.full
    world.prove()
    assert world.replies(session) == [(1, b"a")]
    world.query(7)
    world.drained()
    world.prove()
    assert world.answers() == [7]
    for _ in range(2):
        world.fire(SPACE_RETRY_S)
        world.take(fx.ProbeSpace)
        if world.owes(fx.WriteControl):
            world.close_frame()
    world.do(world.primary.space_found(world.now, world.wall_us))
    world.fire(SPACE_RETRY_S)
    assert world.owes(fx.ProbeSpace) == 0


def test_i8_full_disk_tries_a_closing_frame_and_without_room_for_that_goes_on_too() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.refuse()
    world.fire(SMALL.idle_confirm_s)
    world.take(fx.WriteControl)
    world.do(world.primary.control_refused(world.now))
    assert world.primary.drained
    due = world.primary.deadline()
    assert due is not None
    assert due > world.now, "a deadline in the past would keep the process busy for nothing"
    world.fire(SPACE_RETRY_S)
    assert world.owes(fx.WriteControl) == 0
    world.take(fx.ProbeSpace)
    world.do(world.primary.space_found(world.now, world.wall_us))
    world.fire(SMALL.idle_confirm_s)
    world.close_frame()
    assert world.primary.header_confirmed_lsn == 1


def test_query_that_waited_when_the_disk_was_full_gets_its_proof_at_once() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.query(7)
    world.refuse()
    world.prove()
    assert world.answers() == [7]


def test_probe_waits_for_a_write_on_its_way() -> None:
    world, session = serving()
    world.send(session, 1, b"a")
    world.drained()
    world.refuse()
    world.fire(SMALL.idle_confirm_s)
    world.fire(SPACE_RETRY_S)
    assert world.owes(fx.ProbeSpace) == 0
    world.close_frame()
    world.fire()
    assert world.owes(fx.ProbeSpace) == 1


def test_counters_count_calls_frames_and_proofs() -> None:
    world, session = serving()
    world.send(session, 1, b"a", b"b")
    world.settle()
    counters = world.primary.counters
    assert (counters.calls, counters.frames, counters.proofs) == (2, 2, 2)
    assert counters.bytes > len(call(b"a"))
