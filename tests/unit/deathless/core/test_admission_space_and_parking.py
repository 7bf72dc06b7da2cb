"""Admission on a full disk (I8) and of messages that kill (I11); through a whole primary."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.deathless.core.primary_world import World, call

from deathless.base.errors import OutOfSpace
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import PARKED_HEADER, Kind, decode
from deathless.codec.refusals import RegistrationRefused
from deathless.codec.wire import Type, decode_struct
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.checkpoint_plan import SHORT_RETRY_S

NONCE = bytes(range(16))


# ---- I8: no space ------------------------------------------------------------------------------------------------


def test_i8_full_disk_refuses_each_sender_once_and_takes_them_again_with_room() -> None:
    world = World()
    session, other = world.register(), world.register(conn=2, nonce=NONCE)
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.send(other, 1, b"x", conn=2)
    world.refuse()
    assert [(r.session, r.first_seq, r.code) for r in world.refusals()] == [
        (session, 1, OutOfSpace.code),
        (other, 1, OutOfSpace.code),
    ]
    assert world.primary.full
    world.send(session, 1, b"a")
    assert world.refusals()[-1].code == OutOfSpace.code
    world.do(world.primary.space_found(world.now, world.wall_us))
    world.send(session, 1, b"a", b"b")
    world.settle()
    assert world.replies(session) == [(1, b"a"), (2, b"b")]


def full(standing: list[int], safeguards: Safeguards = ALL_SAFEGUARDS) -> World:
    """A primary that has confirmed five messages, with these checkpoints in the directory, and has no room."""
    world = World(safeguards=safeguards)
    session = world.register()
    for seq in range(1, 5):
        world.send(session, seq, b"a")
        world.settle()
    world.standing = standing
    world.send(session, 5, b"a")
    world.drained()
    world.refuse()
    return world


def test_full_log_is_collected_by_the_newest_checkpoint_that_stands_whoever_took_it() -> None:
    world = full([2, 4])
    world.take(fx.TakeCheckpoint)  # above it there is more to gain
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(4, 4)


def test_full_log_without_a_checkpoint_takes_one_and_one_is_enough() -> None:
    world = full([])
    world.take(fx.TakeCheckpoint)
    world.do(world.primary.checkpoint_written(5, "c5", world.now))
    world.take(fx.VerifyCheckpoint)
    world.do(world.primary.checkpoint_verified(5, True, world.now, world.wall_us))
    world.prove()
    assert world.take(fx.Collect) == fx.Collect(4, 5), "what a synced header calls confirmed"
    world.fire(1)
    assert world.owes(fx.TakeCheckpoint) == 0, "nothing more is to be gained"
    world.take(fx.ProbeSpace)


def test_checkpoint_for_want_of_room_that_failed_is_tried_again_after_a_while() -> None:
    world = full([])
    world.take(fx.TakeCheckpoint)
    world.do(world.primary.checkpoint_written(5, "", world.now))
    world.fire(1)
    assert world.owes(fx.TakeCheckpoint) == 0
    world.fire(SHORT_RETRY_S)
    assert world.owes(fx.TakeCheckpoint) == 1


def test_without_the_safeguard_a_full_log_is_stuck_with_one_checkpoint() -> None:
    world = full([4], replace(ALL_SAFEGUARDS, collect_when_full=False))
    world.fire(60)
    assert (world.owes(fx.TakeCheckpoint), world.owes(fx.Collect)) == (0, 0)


def test_i8_full_disk_answers_duplicates_still() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, b"b")
    world.drained()
    world.refuse()
    world.send(session, 1, b"a")
    assert world.replies(session) == [(1, b"a"), (1, b"a")]


def test_i8_what_ran_before_the_disk_was_full_is_not_taken_again() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.send(session, 2, b"b")
    world.sync()  # 1 is in flight, 2 is due
    world.refuse()
    world.send(session, 1, b"a", b"b")  # 1 is not confirmed: no answer yet; 2 is refused
    assert world.replies(session) == []
    world.prove()
    world.do(world.primary.space_found(world.now, world.wall_us))
    world.send(session, 1, b"a", b"b")
    world.settle()
    assert world.replies(session) == [(1, b"a"), (1, b"a"), (2, b"b")]
    assert world.executor.ran == [call(b"a"), call(b"b")]


def test_i8_session_that_ended_before_the_disk_was_full_leaves_nothing_behind() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.sessions.forget(session)
    world.refuse()
    assert world.refusals()[0].session == session


def test_i8_frame_in_flight_of_a_session_that_ended_since_is_released_behind_a_refusal() -> None:
    world = World()
    session, other = world.register(), world.register(conn=2, nonce=NONCE)
    world.send(session, 1, b"a")
    world.drained()
    world.send(other, 1, b"x", conn=2)
    world.sync()
    world.sessions.forget(session)
    world.refuse()
    world.prove()
    assert world.replies(session) == [(1, b"a")]


def registrations_refused(world: World) -> list[bytes]:
    """Nonces of the refusals that are about a registration."""
    told = [decode_struct(RegistrationRefused, body) for _, kind, body in world.sent if kind == Type.BATCH_REFUSED]
    return [each.nonce for each in told if each.nonce]


def test_i8_refused_registration_is_told_and_one_in_flight_is_answered() -> None:
    world = World()
    world.do(world.primary.register_received(ev.Conn(1), bytes(16)))
    world.drained()
    world.do(world.primary.register_received(ev.Conn(2), NONCE))
    world.sync()
    world.refuse()
    assert [(r.session, r.code) for r in world.refusals()] == [(0, OutOfSpace.code)]
    assert world.refusals()[0].text == "no session was registered: no room in the log"
    assert registrations_refused(world) == [NONCE]
    world.prove()
    assert world.to(1) == [Type.REGISTERED]
    assert world.to(2) == [Type.BATCH_REFUSED]
    world.do(world.primary.register_received(ev.Conn(2), NONCE))
    assert world.to(2) == [Type.BATCH_REFUSED] * 2


def test_i8_full_disk_keeps_acknowledgements_and_our_own_records() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, acked=1)
    world.primary.admission.record(b"\x13" + bytes(7) + bytes(8))  # REBASED
    world.drained()
    world.refuse()
    world.do(world.primary.space_found(world.now, world.wall_us))
    world.settle()
    record = world.sessions.get(session)
    assert record is not None
    assert record.acked == 1
    assert world.place.lsn == 3


def test_i8_refused_message_of_a_lost_connection_is_told_to_nobody() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.do(world.primary.connection_lost(ev.Conn(1), world.now, world.wall_us))
    world.refuse()
    assert world.refusals() == []


# ---- I11: parking ------------------------------------------------------------------------------------------------


def test_i11_message_that_killed_its_process_twice_is_logged_unrun_and_answered_with_an_error() -> None:
    world = World(deaths={(1, 2): 2})
    session = world.register()
    assert session == 1
    world.send(session, 1, b"a", b"killer", b"c")
    world.drained()
    runs = world.take(fx.RunFrame).runs
    world.todo.append(fx.RunFrame(runs, 0))
    assert [(run.session, run.count) for run, _ in runs] == [(1, 1), (0, 1), (1, 1)]
    parked = decode(runs[1][1][0])
    assert parked.kind == Kind.PARKED
    assert PARKED_HEADER.unpack_from(parked.args) == (session, 2)
    world.settle()
    assert world.executor.ran == [call(b"a"), call(b"c")]
    assert [seq for seq, _ in world.replies(session)] == [1, 2, 3]
    assert b"DL3012" in world.replies(session)[1][1] or b"parked" in world.replies(session)[1][1]
    assert world.deaths == {}


def test_i11_one_death_does_not_park_and_a_turn_that_ends_clears_it() -> None:
    world = World(deaths={(1, 1): 1})
    session = world.register()
    world.send(session, 1, b"a")
    world.settle()
    assert world.executor.ran == [call(b"a")]
    assert world.deaths == {}


def test_i11_death_reported_after_admission_still_parks() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"killer", b"b")
    world.deaths[(session, 1)] = 2
    world.settle()
    assert world.executor.ran == [call(b"b")]
    assert [seq for seq, _ in world.replies(session)] == [1, 2]


def test_i11_killers_next_to_each_other_and_at_both_ends_are_all_parked() -> None:
    world = World(deaths={(1, 1): 2, (1, 2): 3, (1, 4): 2})
    session = world.register()
    world.send(session, 1, b"k", b"k", b"c", b"k")
    world.settle()
    assert world.executor.ran == [call(b"c")]
    assert [seq for seq, _ in world.replies(session)] == [1, 2, 3, 4]


def test_i11_parked_message_that_found_no_room_is_told_to_its_session() -> None:
    world = World(deaths={(1, 1): 2})
    session = world.register()
    world.send(session, 1, b"killer")
    world.drained()
    world.refuse()
    assert [(r.session, r.first_seq) for r in world.refusals()] == [(session, 1)]


def test_i11_duplicate_of_a_parked_message_is_not_answered_before_it_is_confirmed() -> None:
    world = World(deaths={(1, 1): 2})
    session = world.register()
    world.send(session, 1, b"killer")
    world.drained()
    world.sync()
    world.send(session, 1, b"killer")
    assert world.replies(session) == []
    world.prove()
    assert len(world.replies(session)) == 1
