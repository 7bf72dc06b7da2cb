"""A replica's life: who is in charge of which event, in every state; all states x all inputs by hypothesis."""

from __future__ import annotations

import typing

import pytest
from tests.unit.deathless.core.primary_world import batch, call
from tests.unit.deathless.core.replica_life import CLIENT, FOLLOWER, OTHER, Life, following, in_state

from deathless.base.errors import CorruptFrame, Deposed
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import Follow, Following, Handover, Hello, Role, Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.messaging import Tables
from deathless.core.replica.follower import FOLLOW_RETRY_S
from deathless.core.replica.replica import DEATHS_MAX, State
from deathless.core.replica.takeover import REFUSALS_MAX

# ---- the way up --------------------------------------------------------------------------------------------------


def test_life_from_start_to_primary_is_told_step_by_step() -> None:
    life = in_state(State.PRIMARY)
    assert life.told == [("recovering", 0), ("standby", 0), ("taking-over", 0), ("primary", 4)]
    assert (life.core.known_epoch, life.core.known_primary) == (4, "r1")
    assert life.core.confirmed_lsn == life.place.lsn == 2


def test_clients_that_wait_at_a_standby_hear_when_it_becomes_primary() -> None:
    life = in_state(State.FOLLOWING)
    life.post(ev.TakeoverOrdered(3, "test"))
    life.settle()
    assert life.roles(CLIENT)[-1].role == "primary"


def test_recovered_replica_follows_the_primary_it_has_heard_of() -> None:
    life = Life()
    life.post(ev.PrimarySeen(3, "r0", "h:1"))
    life.answer()
    assert life.todo == [fx.FollowPrimary("r0", 3)]


def test_recovery_ends_once() -> None:
    life = in_state(State.TAKING_OVER)
    with pytest.raises(AssertionError):
        life.core.handle(ev.Recovered(0), 0.0, 0)


# ---- following ---------------------------------------------------------------------------------------------------


def test_newer_primary_is_followed_and_clients_hear_of_it() -> None:
    life = following()
    effects = life.post(ev.PrimarySeen(4, "r2", "h:2"))
    assert fx.LeavePrimary() in effects
    assert life.todo == [fx.FollowPrimary("r2", 4)]
    assert life.roles(CLIENT)[-1] == Role("standby", 4, "h:2")


def test_changed_address_of_the_same_primary_is_told_and_the_stream_kept() -> None:
    life = following()
    assert fx.LeavePrimary() not in life.post(ev.PrimarySeen(3, "r0", "h:9"))
    assert life.roles(CLIENT)[-1].primary == "h:9"
    told = len(life.roles(CLIENT))
    life.post(ev.PrimarySeen(3, "r0", "h:9"))
    assert len(life.roles(CLIENT)) == told


def test_our_own_former_life_is_not_followed() -> None:
    life = following()
    assert life.post(ev.PrimarySeen(9, "r1", "h:1")) == []
    assert life.core.known_primary == "r0"


def test_a_primary_that_the_lock_knows_nothing_of_is_left_for_the_one_before() -> None:
    life = following()
    life.post(ev.PrimarySeen(1 << 62, "r2", "h:2"))
    assert (life.core.known_epoch, life.core.known_primary) == (1 << 62, "r2")
    life.post(ev.PrimarySeen(3, "r0", "h:0"))  # the supervisor has asked the lock
    assert (life.core.known_epoch, life.core.known_primary) == (3, "r0")


def test_without_the_safeguard_a_false_primary_is_followed_for_ever() -> None:
    life = following()
    life.core.safeguards = Safeguards(claims_bounded=False)
    life.post(ev.PrimarySeen(1 << 62, "r2", "h:2"))
    assert life.post(ev.PrimarySeen(3, "r0", "h:0")) == []
    assert life.core.known_primary == "r2"


def test_a_primary_whose_proof_holds_forgets_a_successor_that_it_heard_of() -> None:
    life = in_state(State.PRIMARY)
    epoch = life.core.known_epoch
    life.post(ev.PrimarySeen(1 << 62, "r2", "h:2"))
    assert life.core.role_for_clients == "standby"
    life.settle()  # the proof that the hearsay began is answered
    assert (life.core.role_for_clients, life.core.known_epoch) == ("primary", epoch)


def test_a_primary_forgets_a_successor_that_its_supervisor_takes_back() -> None:
    life = in_state(State.PRIMARY)
    epoch = life.core.known_epoch
    life.post(ev.PrimarySeen(1 << 62, "r2", "h:2"))
    life.post(ev.PrimarySeen(epoch, "r1", "h:1"))
    assert (life.core.role_for_clients, life.core.known_epoch) == ("primary", epoch)


def test_replica_named_checkpointer_says_so() -> None:
    life = following()
    life.post(ev.UpstreamAnswered(Following(True, 3, 9, "r1")))
    assert life.told[-1] == ("checkpointer", 3)
    assert life.core.role == "checkpointer"
    assert life.core.confirmed_lsn == 9
    life.post(ev.UpstreamAnswered(Following(True, 3, 9, "r1")))
    assert life.told.count(("checkpointer", 3)) == 1


def test_standby_that_heard_of_its_primary_late_or_follows_the_next_one_tells_the_epoch_but_not_twice() -> None:
    life = Life()
    life.answer()
    assert life.told[-1] == ("standby", 0)
    for epoch, primary in ((3, "r0"), (4, "r2")):
        life.post(ev.PrimarySeen(epoch, primary, ""))
        before = len(life.told)
        life.post(ev.UpstreamAnswered(Following(True, epoch, 0, "r9")))
        life.post(ev.UpstreamAnswered(Following(True, epoch, 0, "r9")))
        assert life.told[before:] == [("standby", epoch)]


def test_late_answer_of_a_primary_that_was_left_tells_nothing() -> None:
    life = following()
    life.post(ev.PrimarySeen(4, "r2", ""))
    life.core.follower.leave()
    told = list(life.told)
    life.post(ev.UpstreamAnswered(Following(True, 4, 0, "r2")))
    assert life.told == told


def test_lost_stream_is_asked_for_again_and_a_lost_client_is_forgotten() -> None:
    life = following()
    life.post(ev.ConnectionLost(ev.UPSTREAM))
    due = life.core.deadline()
    assert due == life.now + FOLLOW_RETRY_S
    life.now = due
    life.post(ev.TimerFired())
    assert life.todo == [fx.FollowPrimary("r0", 3)]
    life.post(ev.ConnectionLost(CLIENT))
    life.post(ev.PrimarySeen(4, "r2", ""))
    assert life.roles(CLIENT) == [Role("standby", 3, "h:1")]


def test_frames_applied_are_confirmed() -> None:
    life = following()
    life.post(ev.FramesApplied(12, 1, 1, False))
    assert life.core.confirmed_lsn == 12


@pytest.mark.parametrize(
    "event",
    [
        ev.BatchesReceived([(CLIENT, batch(1, 1, [call()]))]),
        ev.RegisterReceived(CLIENT, bytes(16)),
        ev.FollowReceived(CLIENT, Follow("r2", 0, bytes(16), False)),
        ev.QueriesReceived(CLIENT, False, [1], [b"q"]),
    ],
)
def test_client_of_a_follower_hears_who_the_primary_is(event: ev.Event) -> None:
    life = following()
    life.post(event)
    assert life.roles(CLIENT)[-1] == Role("standby", 3, "h:1")


def test_stale_query_is_answered_by_a_follower_but_not_before_it_has_recovered() -> None:
    life = following()
    life.post(ev.QueriesReceived(CLIENT, True, [1], [b"q"]))
    life.settle()
    assert Type.ANSWERS in [kind for _, kind, _ in life.sent]
    life = Life()
    life.post(ev.QueriesReceived(CLIENT, True, [1], [b"q"]))
    assert life.roles(CLIENT) == [Role("recovering", 0, "")]


def test_connection_of_a_tool_is_told_no_roles() -> None:
    life = in_state(State.FOLLOWING)
    life.post(ev.ConnectionOpened(OTHER, Hello(1, "tool", "bank", "t")))
    life.post(ev.PrimarySeen(3, "r0", "h:1"))
    assert life.roles(OTHER) == []


def test_checkpoint_of_a_follower_is_told_upstream() -> None:
    life = following()
    (told,) = life.post(ev.CheckpointWritten(5, "c5"))
    assert isinstance(told, fx.SendUpstream)


# ---- taking over -------------------------------------------------------------------------------------------------


def test_takeover_is_tried_only_by_a_follower_and_not_from_an_older_epoch() -> None:
    life = following(epoch=5)
    assert life.post(ev.TakeoverOrdered(4, "late")) == []
    for state in (State.RECOVERING, State.TAKING_OVER, State.PRIMARY, State.STOPPED):
        assert in_state(state).post(ev.TakeoverOrdered(99, "again")) == []


def test_takeover_waits_for_the_stretch_of_the_log_that_is_being_read() -> None:
    life = following()
    life.post(ev.FramesApplied(0, 0, 0, True))
    assert life.post(ev.TakeoverOrdered(3, "dead")) == []
    life.answer(good=False)
    assert life.is_in(State.FOLLOWING)
    life.answer()
    assert life.is_in(State.TAKING_OVER)


def test_takeover_that_waited_is_dropped_when_a_newer_primary_was_seen_meanwhile() -> None:
    life = following()
    life.post(ev.FramesApplied(0, 0, 0, True))
    life.post(ev.TakeoverOrdered(3, "dead"))
    life.post(ev.PrimarySeen(4, "r2", "h:2"))
    life.settle()
    assert life.is_in(State.FOLLOWING)


def test_faster_replica_is_followed() -> None:
    life = in_state(State.TAKING_OVER)
    life.epoch = 7
    life.answer(good=False)
    assert life.is_in(State.FOLLOWING)
    assert life.core.known_epoch == 7
    assert life.core.deadline() is not None


def test_successor_that_died_before_it_served_is_taken_over_from_at_the_next_order() -> None:
    """Nobody has seen it as primary, so the order still names the epoch before; it must not be refused for ever."""
    life = following()
    life.epoch = 4  # r2 took the lock in epoch 4, and died
    life.post(ev.TakeoverOrdered(3, "r0 is dead"))
    life.answer(good=False)
    assert life.is_in(State.FOLLOWING)
    life.todo.clear()
    life.post(ev.TakeoverOrdered(3, "r0 is dead"))
    life.answer(good=False)
    assert life.is_in(State.TAKING_OVER)
    life.settle()
    assert life.is_in(State.PRIMARY)


def test_lock_refused_is_no_failure_but_a_head_refused_ends_the_process() -> None:
    life = in_state(State.TAKING_OVER)
    for _ in range(REFUSALS_MAX + 1):
        life.answer()
        assert life.is_in(State.TAKING_OVER)
        life.answer(good=False)
    assert life.is_in(State.FOLLOWING)
    life = in_state(State.TAKING_OVER)
    while not isinstance(life.todo[0], fx.SetHead):
        life.answer()
    life.answer(good=False)
    assert life.is_in(State.STOPPED)


def test_handover_makes_its_target_take_over_from_the_old_primary() -> None:
    life = following()
    life.post(ev.HandoverReceived(Handover(3, 9)))
    assert life.is_in(State.TAKING_OVER)
    assert life.core.confirmed_lsn == 9


def tail_read(life: Life) -> fx.ReadTail:
    """How far a takeover must find the predecessor's log."""
    while not isinstance(life.todo[0], fx.ReadTail):
        life.answer()
    return life.todo[0]


def test_successor_reads_at_least_what_any_replica_has_applied() -> None:
    life = in_state(State.FOLLOWING)
    life.post(ev.TakeoverOrdered(3, "dead", 50))
    assert tail_read(life).confirmed_lsn == 50
    life = following()
    life.post(ev.FramesApplied(60, 1, 1, False))
    life.post(ev.TakeoverOrdered(3, "dead", 50))
    assert tail_read(life).confirmed_lsn == 60


def test_without_ask_confirmed_a_log_that_lost_its_end_is_taken_for_whole() -> None:
    life = in_state(State.FOLLOWING, Safeguards(ask_confirmed=False))
    life.post(ev.TakeoverOrdered(3, "dead", 50))
    assert tail_read(life).confirmed_lsn == 0


def test_stop_during_a_takeover_ends_the_process() -> None:
    life = in_state(State.TAKING_OVER)
    life.answer()
    assert life.post(ev.StopOrdered()) == [fx.StopReplica(None)]
    assert life.is_in(State.STOPPED)


def test_stream_that_ends_and_a_timer_that_fires_during_a_takeover_change_nothing_and_leave_no_deadline() -> None:
    life = following()
    life.post(ev.ConnectionLost(ev.UPSTREAM))
    life.post(ev.TakeoverOrdered(3, "dead"))
    life.post(ev.ConnectionLost(ev.UPSTREAM))
    assert life.core.deadline() is None
    life.now += 1.0
    assert life.post(ev.TimerFired()) == []
    life.settle()
    assert life.is_in(State.PRIMARY)
    due = life.core.deadline()
    assert due is not None
    assert due > life.now, "a deadline in the past would keep the process busy for nothing"


# ---- primary -----------------------------------------------------------------------------------------------------


def test_primary_that_hears_of_a_successor_asks_the_fence_which_alone_deposes() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.PrimarySeen(5, "r2", "h:2"))
    assert life.is_in(State.PRIMARY)
    life.answer(good=False)
    assert life.is_in(State.STOPPED)
    assert life.roles(CLIENT)[-1] == Role("standby", 5, "")


def test_primary_that_hears_of_a_successor_sends_its_clients_there_though_its_fence_says_nothing() -> None:
    life = in_state(State.PRIMARY)
    assert life.core.role_for_clients == "primary"
    life.post(ev.PrimarySeen(5, "r2", "h:2"))
    life.post(ev.PrimarySeen(5, "r2", "h:2"))
    assert life.roles(CLIENT)[-1:] == [Role("standby", 5, "h:2")]
    assert len([role for role in life.roles(CLIENT) if role.epoch == 5]) == 1
    assert (life.core.role, life.core.role_for_clients) == ("primary", "standby")


def test_primary_that_hears_of_itself_or_of_the_past_goes_on() -> None:
    life = in_state(State.PRIMARY)
    assert life.post(ev.PrimarySeen(4, "r1", "h:1")) == []
    assert life.core.known_address == "h:1"
    assert life.post(ev.PrimarySeen(3, "r0", "h:0")) == []


def test_orderly_stop_alone_confirms_takes_a_last_checkpoint_and_gives_the_lock_up() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.BatchesReceived([(CLIENT, batch(2, 1, [call(b"a")]))]))
    life.post(ev.StopOrdered())
    while not isinstance(life.todo[0], fx.TakeCheckpoint):
        life.answer()
    assert life.core.primary is not None
    assert life.core.primary.closed
    life.answer()
    assert life.todo == [fx.ReleaseLock(), fx.StopReplica(None)]
    assert Type.REPLIES in [kind for _, kind, _ in life.sent]


def test_orderly_stop_without_room_for_its_checkpoint_ends_too() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.StopOrdered())
    life.answer()
    assert life.todo == [fx.TakeCheckpoint()]
    life.answer(good=False)
    assert life.is_in(State.STOPPED)


def test_switchover_tells_the_clients_and_ends_the_process() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.FollowReceived(FOLLOWER, Follow("r2", 2, life.place.chain, False)))
    life.post(ev.AppliedReceived(FOLLOWER, 2))
    life.post(ev.SwitchoverOrdered(OTHER, 4, ""))
    life.answer()
    assert life.todo == [fx.StoreConfirmed(2)]
    life.answer()
    stop = life.todo[-1]
    assert isinstance(stop, fx.StopReplica)
    assert isinstance(stop.error, Deposed)
    assert life.is_in(State.STOPPED)
    kinds = [kind for _, kind, _ in life.sent]
    assert kinds.index(Type.HANDOVER) < len(kinds) - 1 - kinds[::-1].index(Type.ROLE)


def test_probe_that_finds_no_room_changes_nothing() -> None:
    life = in_state(State.PRIMARY)
    assert life.post(ev.SpaceRefused(())) == []


# ---- I8, I11, terminal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [s for s in State if s is not State.STOPPED], ids=lambda s: s.name)
def test_i8_failure_in_any_state_stops_the_replica_and_says_why(state: State) -> None:
    life = in_state(state)
    error = CorruptFrame("rotten")
    assert life.post(ev.Failed(error)) == [fx.StopReplica(error)]
    assert life.core.error is error
    assert life.is_in(State.STOPPED)
    assert life.core.role == "stopped"
    assert life.core.deadline() is None


def test_i11_deaths_are_remembered_bounded_and_forgotten_when_the_message_is_in_the_log() -> None:
    life = in_state(State.FOLLOWING)
    for seq in range(DEATHS_MAX + 3):
        life.post(ev.DeathsReported(1, seq, 2))
    life.post(ev.DeathsReported(1, 5, 1))
    assert len(life.core.deaths) == DEATHS_MAX, "the oldest went"
    assert life.core.deaths[(1, 5)] == 1, "who counted more has taken it back"
    life.post(ev.DeathsReported(1, 5, 0))
    assert (1, 5) not in life.core.deaths
    life.core.deaths.clear()
    life.sessions.register(ev_session(7), bytes(16), 0)
    life.sessions._sessions[7].next_seq = 4
    for session, seq in ((7, 3), (7, 4), (8, 1)):
        life.post(ev.DeathsReported(session, seq, 2))
    life.post(ev.TakeoverOrdered(3, "test"))
    life.settle()
    assert life.core.deaths == {(7, 4): 2}
    life.post(ev.DeathsReported(7, 5, 2))
    assert (7, 5) in life.core.deaths


def test_i11_deaths_of_an_invocation_are_remembered_while_it_runs() -> None:
    life = in_state(State.FOLLOWING)
    life.core.tables = Tables(holds=lambda invocation: invocation == 9)
    for invocation in (8, 9):
        life.post(ev.DeathsReported(0, invocation, 1))
    life.post(ev.TakeoverOrdered(3, "test"))
    life.settle()
    assert life.core.deaths == {(0, 9): 1}


def ev_session(number: int) -> typing.Any:
    """A session id, as a plain number."""
    return number


def test_without_park_killers_a_bad_message_ends_every_primary_in_turn() -> None:
    life = in_state(State.FOLLOWING, Safeguards(park_killers=False))
    life.post(ev.DeathsReported(1, 1, 9))
    assert life.core.deaths == {}
