"""What a primary lets in: order, duplicates, maximums, parking (I3, I5, I8, I10, I11); through a whole primary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.deathless.core.primary_world import SECRET, SMALL, WALL_US, World, batch, call

from deathless.base.errors import InvalidArgument, Overloaded, SessionExpired, TooLarge
from deathless.base.safeguards import Safeguards
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.messages import decode, encode_time
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.admission import HELD_REFUSALS_MAX, cut_messages

NONCE = bytes(range(16))


def runs_due(world: World) -> list[tuple[Run, list[bytes]]]:
    """What the frame that is due holds, with the arguments of each message."""
    frame = world.take(fx.RunFrame)
    world.todo.append(frame)
    return [(run, [decode(message).args for message in messages]) for run, messages in frame.runs]


# ---- I3: order and duplicates ----------------------------------------------------------------------------------


def test_i3_messages_of_a_session_run_in_their_order_and_are_answered_once() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a", b"b")
    world.send(session, 3, b"c")
    world.settle()
    assert world.replies(session) == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_i3_higher_than_the_next_expected_is_dropped() -> None:
    world = World()
    session = world.register()
    world.send(session, 2, b"b")
    assert world.primary.counters.dropped == 1
    world.settle()
    assert world.replies(session) == []
    world.send(session, 1, b"a", b"b")
    world.settle()
    assert world.replies(session) == [(1, b"a"), (2, b"b")]


def test_without_next_expected_only_a_lost_message_is_answered_with_the_next_ones_reply() -> None:
    world = World(safeguards=Safeguards(next_expected_only=False))
    session = world.register()
    world.send(session, 2, b"withdraw")  # seq 1, a deposit, is late
    world.settle()
    world.send(session, 1, b"deposit")
    world.settle()
    assert world.executor.ran == [call(b"withdraw")]  # the deposit never ran
    assert world.replies(session) == [(1, b"withdraw"), (1, b"withdraw")]


def test_i3_duplicate_is_answered_again_from_the_table_and_not_run_again() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a", b"b")
    world.settle()
    world.send(session, 1, b"a", b"b")
    assert world.replies(session) == [(1, b"a"), (2, b"b")] * 2
    assert world.primary.counters.duplicates == 2
    assert world.executor.ran == [call(b"a"), call(b"b")]


def test_without_dedup_a_message_runs_twice() -> None:
    world = World(safeguards=Safeguards(dedup=False))
    session = world.register()
    for _ in range(2):
        world.send(session, 1, b"deposit 5")
        world.settle()
    assert world.executor.ran == [call(b"deposit 5")] * 2


def test_i3_batch_that_overlaps_runs_only_what_is_new() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 1, b"a", b"b")
    world.settle()
    assert world.replies(session) == [(1, b"a"), (1, b"a"), (2, b"b")]
    assert world.executor.ran == [call(b"a"), call(b"b")]


def test_i3_duplicate_of_what_is_pending_is_neither_run_nor_answered_twice() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.send(session, 1, b"a")
    world.settle()
    assert world.replies(session) == [(1, b"a")]


def test_i3_duplicate_is_answered_again_only_once_confirmed() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, b"b")
    world.drained()
    world.sync()  # ran and durable, not proved
    world.send(session, 1, b"a", b"b")
    assert world.replies(session) == [(1, b"a"), (1, b"a")]
    world.prove()
    world.send(session, 2, b"b")
    assert world.replies(session)[2:] == [(2, b"b"), (2, b"b")]


def test_without_reack_confirmed_only_a_deposed_primary_tells_what_its_successor_does_not_have() -> None:
    world = World(safeguards=Safeguards(reack_confirmed_only=False))
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.sync()
    world.send(session, 1, b"a")
    assert world.replies(session) == [(1, b"a")]  # and the proof will be answered with no
    world.prove(owned=False)
    assert world.primary.closed


def test_duplicate_of_an_acknowledged_message_has_no_reply_any_more() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, b"b", acked=1)
    world.settle()
    world.send(session, 1, b"a")
    assert world.replies(session) == [(1, b"a"), (2, b"b")]


def test_replies_go_to_the_newest_connection_of_a_session() -> None:
    world = World()
    session = world.register()
    world.show(2)
    world.send(session, 1, b"a", conn=1)
    world.send(session, 1, b"a", conn=2)
    world.do(world.primary.connection_lost(ev.Conn(1), world.now, world.wall_us))
    world.settle()
    assert Type.REPLIES in world.to(2)
    assert Type.REPLIES not in world.to(1)


def test_replies_to_a_lost_connection_wait_in_the_table() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.do(world.primary.connection_lost(ev.Conn(1), world.now, world.wall_us))
    world.settle()
    assert world.replies(session) == []
    world.show(2)
    world.send(session, 1, b"a", conn=2)
    assert world.replies(session) == [(1, b"a")]


# ---- I5: registration, sessions, acknowledgements --------------------------------------------------------------


def test_i5_session_id_is_the_lsn_of_its_logged_registration() -> None:
    world = World()
    assert world.register() == 1
    world.send(1, 1, b"a")
    world.settle()
    assert world.register(nonce=NONCE) == 3


def test_i5_registration_sent_again_while_under_way_is_one_and_goes_to_the_newest_connection() -> None:
    world = World()
    world.show(2)
    nonce = nonce_of(SECRET)
    world.do(world.primary.register_received(ev.Conn(1), nonce))
    world.do(world.primary.register_received(ev.Conn(2), nonce))
    world.drained()
    assert len(runs_due(world)) == 1
    world.settle()
    assert world.to(1) == []
    assert world.to(2) == [Type.REGISTERED]


def test_i5_registration_sent_again_later_gets_the_first_id() -> None:
    world = World()
    first = world.register(nonce=NONCE)
    world.sent.clear()
    assert world.register(nonce=NONCE) == first
    assert len(world.sessions) == 1


def test_i5_unknown_session_is_refused_for_good() -> None:
    world = World()
    world.send(77, 1, b"a")
    (refused,) = world.refusals()
    assert (refused.code, refused.session, refused.retry_after_ms) == (SessionExpired.code, 77, -1)


def test_i1_session_that_an_unconfirmed_frame_ended_is_refused_only_with_that_frame() -> None:
    world = World(replace(SMALL, clock_step_us=1, session_idle_max_s=1))
    session = world.register()
    world.pass_us(5_000_000)
    world.do(world.primary.register_received(ev.Conn(2), NONCE))
    world.drained()
    world.sync()  # its time record ended the session, but a successor may not have it
    world.send(session, 1, b"a")
    assert world.refusals() == []
    world.prove()
    assert [r.code for r in world.refusals()] == [SessionExpired.code]


def test_i10_refusals_that_wait_for_a_frame_are_bounded() -> None:
    world = World()
    world.do(world.primary.register_received(ev.Conn(2), NONCE))
    world.drained()
    world.sync()
    for _ in range(HELD_REFUSALS_MAX + 5):
        world.send(77, 1, b"a")
    world.prove()
    assert len(world.refusals()) == HELD_REFUSALS_MAX


def test_i5_session_that_ends_between_admission_and_turn_is_told_so_in_a_recorded_reply() -> None:
    world = World(replace(SMALL, clock_step_us=1, session_idle_max_s=1))
    session = world.register()
    world.send(session, 1, b"a", b"b")
    world.pass_us(5_000_000)
    world.settle()
    assert [seq for seq, _ in world.replies(session)] == [1, 2]
    assert all(SessionExpired.code.encode() in reply for _, reply in world.replies(session))
    assert world.executor.ran == []


def test_i5_parked_message_of_a_session_that_ended_is_answered_as_well() -> None:
    world = World(replace(SMALL, clock_step_us=1, session_idle_max_s=1))
    session = world.register()
    world.send(session, 1, b"killer")
    world.deaths[(session, 1)] = 2
    world.pass_us(5_000_000)
    world.settle()
    assert [seq for seq, _ in world.replies(session)] == [1]
    world.primary.check_invariants()


def test_i5_acknowledgement_alone_is_logged_and_frees_the_replies() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, acked=1)
    world.settle()
    record = world.sessions.get(session)
    assert record is not None
    assert (record.acked, record.replies, record.reply_bytes) == (1, {}, 0)


def test_i10_acknowledgements_alone_are_one_per_session_however_many_come() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a", b"b", b"c")
    world.settle()
    for acked in (1, 2, 2, 3, 1):
        world.send(session, 4, acked=acked)
    world.drained()
    runs = [run for run, _ in runs_due(world) if run.session]
    assert runs == [Run(session, 4, 3, 0)]


def test_i10_frame_takes_a_bounded_count_of_acknowledgements() -> None:
    world = World(replace(SMALL, frame_messages_max=2))
    sessions = [world.register(nonce=bytes([i] * 16)) for i in range(3)]
    for session in sessions:
        world.send(session, 1, b"a")
    world.settle()
    for session in sessions:
        world.send(session, 2, acked=1)
    world.drained()
    assert sum(run.session > 0 for run, _ in runs_due(world)) == 2
    world.settle()
    assert [s.acked for s in map(world.sessions.get, sessions) if s is not None] == [1, 1, 1]


def test_frame_of_acknowledgements_alone_holds_a_time_record_so_that_its_lsns_tell_it() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, acked=1)
    world.drained()
    frame = world.take(fx.RunFrame)
    assert frame.runs[0] == (Run(0, 0, 0, 1), (encode_time(Times.at(WALL_US)),))


def test_acknowledgement_of_a_session_that_ended_meanwhile_is_left_out() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, acked=1)
    world.sessions.forget(session)
    world.settle()
    assert not world.primary.admission.waiting


def test_acknowledgement_of_a_session_that_its_own_frame_ends_is_nothing() -> None:
    world = World(replace(SMALL, clock_step_us=1, session_idle_max_s=1))
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, acked=1)
    world.pass_us(5_000_000)
    world.settle()
    assert world.sessions.get(session) is None


def test_acknowledgement_counts_only_for_what_was_sent() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, acked=1 << 40)
    assert not world.primary.admission.waiting


def test_acknowledgement_on_a_pure_duplicate_counts() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 1, b"a", acked=1)
    world.settle()
    record = world.sessions.get(session)
    assert record is not None
    assert record.acked == 1


# ---- I10: every maximum refuses by its name ----------------------------------------------------------------------


def test_i10_pending_messages_max_refuses_and_says_when_to_come_back() -> None:
    world = World(replace(SMALL, pending_messages_max=3))
    session = world.register()
    world.send(session, 1, b"a", b"b")
    world.send(session, 3, b"c", b"d")
    (refused,) = world.refusals()
    assert (refused.code, refused.first_seq) == (Overloaded.code, 3)
    assert "pending messages" in refused.text
    assert refused.retry_after_ms > 0
    assert world.primary.counters.refused == 2
    world.settle()
    world.send(session, 3, b"c", b"d")
    world.settle()
    assert [seq for seq, _ in world.replies(session)] == [1, 2, 3, 4]


def test_i10_pending_bytes_max_refuses() -> None:
    world = World(replace(SMALL, pending_bytes_max=100))
    session = world.register()
    world.send(session, 1, bytes(60))
    world.send(session, 2, bytes(60))
    (refused,) = world.refusals()
    assert "pending bytes" in refused.text


def test_batch_above_every_pending_maximum_is_admitted_when_nothing_is_pending() -> None:
    world = World(replace(SMALL, pending_bytes_max=10, pending_messages_max=1))
    session = world.register()
    world.send(session, 1, bytes(60), bytes(60))
    world.settle()
    assert len(world.replies(session)) == 2


def test_i10_session_window_max_refuses() -> None:
    world = World(replace(SMALL, session_window_max=2))
    session = world.register()
    world.send(session, 1, b"a", b"b")
    world.send(session, 3, b"c")
    assert "without acknowledged reply" in world.refusals()[0].text
    world.settle()
    world.send(session, 3, b"c", acked=2)
    world.settle()
    assert len(world.replies(session)) == 3


def test_i10_session_reply_bytes_max_refuses_until_replies_are_acknowledged() -> None:
    world = World(replace(SMALL, session_reply_bytes_max=50))
    session = world.register()
    world.send(session, 1, bytes(60))
    world.settle()
    world.send(session, 2, b"b")
    (refused,) = world.refusals()
    assert refused.code == Overloaded.code
    assert "bytes of replies" in refused.text
    world.send(session, 2, b"b", acked=1)  # refused once more, but what it acknowledges counts
    world.settle()
    world.send(session, 2, b"b", acked=1)
    world.settle()
    assert [seq for seq, _ in world.replies(session)] == [1, 2]


def test_i10_follower_lag_messages_max_refuses_until_the_best_follower_is_near() -> None:
    world = World(replace(SMALL, follower_lag_messages_max=2))
    session = world.register()
    chain = world.place.chain
    world.follow("r1", conn=50, lsn=1, chain=chain)
    world.follow("r2", conn=51, lsn=1, chain=chain)
    world.send(session, 1, b"a", b"b", b"c")
    world.settle()
    world.send(session, 4, b"d")
    assert "lags" in world.refusals()[0].text
    world.applied(51)
    world.send(session, 4, b"d")
    world.settle()
    assert len(world.replies(session)) == 4


def test_i10_registration_beyond_pending_messages_max_is_refused_under_session_0() -> None:
    world = World(replace(SMALL, pending_messages_max=1))
    world.do(world.primary.register_received(ev.Conn(1), NONCE))
    world.do(world.primary.register_received(ev.Conn(2), bytes(16)))
    (refused,) = world.refusals()
    assert (refused.session, refused.first_seq, refused.code) == (0, 0, Overloaded.code)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (call(bytes(100)), TooLarge.code),
        (b"\x01", InvalidArgument.code),
        (encode_time(Times.at(5)), InvalidArgument.code),
    ],
)
def test_message_that_is_none_of_a_clients_is_refused_for_good(message: bytes, code: str) -> None:
    world = World(replace(SMALL, message_bytes_max=64))
    session = world.register()
    world.do(world.primary.batches_received([(ev.Conn(1), batch(session, 1, [message]))]))
    (refused,) = world.refusals()
    assert (refused.code, refused.retry_after_ms) == (code, -1)


# ---- frames ------------------------------------------------------------------------------------------------------


def test_large_batch_is_cut_into_pieces_that_leave_room_for_others() -> None:
    world = World(replace(SMALL, frame_messages_max=4))
    session, other = world.register(), world.register(nonce=NONCE)
    world.send(session, 1, *[b"%d" % i for i in range(5)])
    world.send(other, 1, b"x")
    world.drained()
    assert [run.count for run, _ in runs_due(world)] == [2, 2]
    world.settle()
    assert world.replies(session) == [(i + 1, b"%d" % i) for i in range(5)]
    assert world.replies(other) == [(1, b"x")]


def test_batch_above_frame_bytes_max_is_cut_by_bytes() -> None:
    world = World(replace(SMALL, frame_bytes_max=100, message_bytes_max=100))
    session = world.register()
    world.send(session, 1, bytes(30), bytes(30), bytes(80))
    world.drained()
    assert [run.count for run, _ in runs_due(world)] == [1, 1]
    world.settle()
    assert len(world.replies(session)) == 3


@pytest.mark.parametrize("clock_step_us", [1, 1 << 62])
def test_frame_of_one_message_at_most_still_goes_on(clock_step_us: int) -> None:
    """With a time record in each frame there would never be room for a message."""
    world = World(replace(SMALL, frame_messages_max=1, clock_step_us=clock_step_us))
    session = world.register()
    world.send(session, 1, b"a", b"b")
    for _ in range(4):
        world.pass_us(10)
        world.settle()
    assert len(world.replies(session)) == 2


def test_bookkeeping_of_what_is_pending_is_exact() -> None:
    world = World(replace(SMALL, frame_messages_max=4, clock_step_us=1))
    session = world.register()
    world.pass_us(5)
    world.send(session, 1, *[b"x" * i for i in range(9)])
    world.drained()  # check_invariants compares counts and bytes after each step
    world.send(session, 10, b"y")
    world.settle()
    assert len(world.replies(session)) == 10


def test_messages_of_a_batch_are_cut_at_their_ends() -> None:
    assert cut_messages(batch(1, 1, [b"a"])) == [b"a"]
    assert cut_messages(batch(1, 1, [b"a", b"", b"bc"])) == [b"a", b"", b"bc"]
    assert cut_messages(batch(1, 1, [])) == []
