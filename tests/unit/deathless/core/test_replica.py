"""A replica's life: who is in charge of which event, in every state; all states x all inputs by hypothesis."""

from __future__ import annotations

import copy
import typing
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.core.primary_world import WALL_US, Echo, batch, call

from deathless.base.errors import CorruptFrame, Deposed
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import ORIGIN, Frame, FrameKind, chain_after
from deathless.codec.wire import Follow, Following, Handover, Hello, PacketReader, Role, Type, decode_struct
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.follower import FOLLOW_RETRY_S, Link
from deathless.core.keys import KeyTable
from deathless.core.replica import DEATHS_MAX, Replica, ShardPlace, State
from deathless.core.sessions import SessionTable
from deathless.engine.shard import Shard

CLIENT, OTHER, FOLLOWER = ev.Conn(1), ev.Conn(2), ev.Conn(5)
HELLO = Hello(1, "client", "bank", "c1")
LIMITS = Limits(checkpoint_every_messages=5, pending_queries_max=4, frame_messages_max=4)


class Life:
    """A replica r1 with a shard and a log in memory, whose effects wait in `todo` for an answer."""

    def __init__(self, safeguards: Safeguards | None = None, limits: Limits = LIMITS) -> None:
        safeguards = safeguards or Safeguards()
        self.now = 10.0
        self.place = ShardPlace()
        self.sessions = SessionTable(limits)
        self.shard = Shard(Echo(), self.sessions, KeyTable(limits), self.place, limits, safeguards)
        self.core = Replica(
            replica="r1", sessions=self.sessions, place=self.place, limits=limits, safeguards=safeguards
        )
        self.epoch = 3  # last epoch that the lock store gave
        self.sent: list[tuple[int, int, bytes]] = []
        self.told: list[tuple[str, int]] = []
        self.todo: list[fx.Effect] = []
        self.do(self.core.begin())

    def post(self, event: ev.Event) -> Sequence[fx.Effect]:
        """Give the machine an event."""
        return self.do(self.core.handle(event, self.now, WALL_US))

    def do(self, effects: Sequence[fx.Effect]) -> Sequence[fx.Effect]:
        for effect in effects:
            if isinstance(effect, fx.Send):
                self.sent += [(effect.conn, kind, body) for kind, body in PacketReader(1 << 30).feed(effect.data)]
            elif isinstance(effect, fx.TellRole):
                self.told.append((effect.role, effect.epoch))
            elif not isinstance(effect, fx.SendUpstream | fx.Disconnect | fx.Collect | fx.LeavePrimary):
                self.todo.append(effect)
        self.core.check_invariants()
        self.sessions.check_invariants()
        return effects

    def answer(self, at: int = 0, *, good: bool = True) -> None:
        """Answer an effect that waits."""
        self.post(self.answer_of(self.todo.pop(at), good))

    def answer_of(self, effect: fx.Effect, good: bool) -> ev.Event:
        match effect:
            case fx.Recover():
                return ev.Recovered(self.place.lsn)
            case fx.ReadLog():
                return ev.LogRead(self.place.lsn, good)
            case fx.ReadLock():
                return ev.LockSeen(ev.LockState(self.epoch, 0, self.epoch if not good else 0, "r9", 4, True))
            case fx.TakeLock():
                self.epoch += 1
                return ev.LockTaken(self.epoch, 0) if good else ev.LockRefused()
            case fx.LinkSeals():
                return ev.SealsLinked()
            case fx.ReadTail():
                return ev.TailRead(ev.TailSummary(ORIGIN, self.place.lsn, self.place.lsn, 0))
            case fx.WriteCut():
                return ev.CutWritten()
            case fx.SetHead():
                return ev.HeadSet(8 if good else None)
            case fx.WriteControl(kind, _, confirmed):
                if not good and kind == FrameKind.CONFIRM:
                    return ev.ControlRefused()
                return ev.ControlSynced(kind, confirmed)
            case fx.Prove(number):
                return ev.ProofAnswered(number, good)
            case fx.ApplyCopies():
                return ev.CopiesApplied(self.place.lsn)
            case fx.RunFrame(runs, confirmed):
                return self.run(runs, confirmed) if good else ev.SpaceRefused(runs)
            case fx.RunQueries(conn, ids, messages, stale):
                return ev.QueriesAnswered(conn, ids, list(messages), self.place.lsn, stale)
            case fx.ProbeSpace():
                return ev.SpaceFound() if good else ev.SpaceRefused(())
            case fx.TakeCheckpoint():
                return ev.CheckpointWritten(self.place.lsn, "c" if good else "")
            case fx.VerifyCheckpoint(lsn, name):
                return ev.CheckpointVerified(lsn, name, good)
            case fx.FollowPrimary() | fx.AskUpstream():
                return ev.UpstreamAnswered(Following(good, self.core.known_epoch, self.place.lsn, "r2"))
            case _:
                return ev.BuffersDrained()

    def run(self, runs: Sequence[tuple[typing.Any, Sequence[bytes]]], confirmed: int) -> ev.FrameSynced:
        first, prev = self.place.lsn + 1, ChainHash(self.place.chain)
        done = self.shard.execute(runs)
        chain = chain_after(prev, first, done.payload)
        numbers = (FrameKind.DATA, Epoch(self.epoch), Lsn(first), Lsn(confirmed), done.count, Incarnation(1))
        self.place.chain = chain
        frame = Frame(*numbers, prev, chain, 0, done.payload)
        return ev.FrameSynced(frame, done.payload, 0, 0, done.results, done.registered, self.place.time_us)

    def is_in(self, state: State) -> bool:
        """Is the replica in this state?"""
        return self.core.state is state

    def settle(self) -> None:
        """Answer everything well until nothing waits."""
        while self.todo and not self.is_in(State.STOPPED):
            self.answer()

    def roles(self, conn: int) -> list[Role]:
        """ROLE packets on a connection."""
        return [decode_struct(Role, body) for at, kind, body in self.sent if (at, kind) == (conn, Type.ROLE)]


def in_state(state: State, safeguards: Safeguards | None = None, limits: Limits = LIMITS) -> Life:
    """A replica in a state; the primary in epoch 4, with one client (session 2) and nothing under way."""
    life = Life(safeguards, limits)
    if state is State.RECOVERING:
        return life
    life.answer()
    if state in (State.FOLLOWING, State.STOPPED):
        life.post(ev.ConnectionOpened(CLIENT, HELLO))
    if state is State.STOPPED:
        life.post(ev.StopOrdered())
        life.todo.clear()
    if state in (State.TAKING_OVER, State.PRIMARY):
        life.post(ev.TakeoverOrdered(3, "test"))
    if state is State.PRIMARY:
        life.settle()
        life.post(ev.ConnectionOpened(CLIENT, HELLO))
        life.post(ev.RegisterReceived(CLIENT, bytes(16)))
        life.post(ev.BuffersDrained())
        life.settle()
    assert life.core.state is state
    return life


def following(*, epoch: int = 3) -> Life:
    """A follower of r0 that streams."""
    life = in_state(State.FOLLOWING)
    life.post(ev.PrimarySeen(epoch, "r0", "h:1"))
    life.settle()
    assert life.core.follower.link is Link.STREAMING
    return life


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


@pytest.mark.parametrize("seen", [ev.PrimarySeen(2, "r2", "h:2"), ev.PrimarySeen(9, "r1", "h:1")])
def test_older_primary_and_our_own_former_life_are_not_believed(seen: ev.PrimarySeen) -> None:
    life = following()
    assert life.post(seen) == []
    assert life.core.known_primary == "r0"


def test_replica_named_checkpointer_says_so() -> None:
    life = following()
    life.post(ev.UpstreamAnswered(Following(True, 3, 9, "r1")))
    assert life.told[-1] == ("checkpointer", 3)
    assert life.core.role == "checkpointer"
    assert life.core.confirmed_lsn == 9
    life.post(ev.UpstreamAnswered(Following(True, 3, 9, "r1")))
    assert life.told.count(("checkpointer", 3)) == 1


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
        ev.BatchReceived(CLIENT, batch(1, 1, [call()])),
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
    life.answer()
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
    assert life.core.deadline() is None, "a deadline in the past would keep the process busy for nothing"


# ---- primary -----------------------------------------------------------------------------------------------------


def test_primary_that_hears_of_a_successor_asks_the_fence_which_alone_deposes() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.PrimarySeen(5, "r2", "h:2"))
    assert life.is_in(State.PRIMARY)
    life.answer(good=False)
    assert life.is_in(State.STOPPED)
    assert life.roles(CLIENT)[-1] == Role("standby", 5, "")


def test_primary_that_hears_of_itself_or_of_the_past_goes_on() -> None:
    life = in_state(State.PRIMARY)
    assert life.post(ev.PrimarySeen(4, "r1", "h:1")) == []
    assert life.core.known_address == "h:1"
    assert life.post(ev.PrimarySeen(3, "r0", "h:0")) == []


def test_orderly_stop_alone_confirms_takes_a_last_checkpoint_and_gives_the_lock_up() -> None:
    life = in_state(State.PRIMARY)
    life.post(ev.BatchReceived(CLIENT, batch(2, 1, [call(b"a")])))
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
    assert len(life.core.deaths) == DEATHS_MAX
    assert life.core.deaths[(1, 5)] == 2
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


def ev_session(number: int) -> typing.Any:
    """A session id, as a plain number."""
    return number


def test_without_park_killers_a_bad_message_ends_every_primary_in_turn() -> None:
    life = in_state(State.FOLLOWING, Safeguards(park_killers=False))
    life.post(ev.DeathsReported(1, 1, 9))
    assert life.core.deaths == {}


# ---- all states x all inputs -------------------------------------------------------------------------------------

FRAME = Frame(3, Epoch(4), Lsn(3), Lsn(2), 1, Incarnation(1), ChainHash(bytes(16)), ChainHash(bytes(16)), 0, b"")
SAMPLES: list[ev.Event] = [
    ev.ConnectionOpened(OTHER, HELLO),
    ev.ConnectionLost(CLIENT),
    ev.ConnectionLost(ev.UPSTREAM),
    ev.ConnectionLost(FOLLOWER),
    ev.BatchReceived(CLIENT, batch(2, 1, [call(b"a"), call(b"b")])),
    ev.BatchReceived(OTHER, batch(2, 2, [call(b"b"), call(b"c")], acked=1)),
    ev.BatchReceived(OTHER, batch(2, 3, [], acked=2)),
    ev.BatchReceived(CLIENT, batch(99, 1, [call(b"a")])),
    ev.RegisterReceived(CLIENT, b"n" * 16),
    ev.QueriesReceived(CLIENT, False, [1, 2], [b"q", b"r"]),
    ev.QueriesReceived(CLIENT, True, [3], [b"q"]),
    ev.FollowReceived(FOLLOWER, Follow("r2", 0, bytes(16), False)),
    ev.FollowReceived(ev.Conn(6), Follow("r2", 2, bytes(16), True)),
    ev.AppliedReceived(FOLLOWER, 2),
    ev.AppliedReceived(FOLLOWER, 99),
    ev.BuffersDrained(),
    ev.TimerFired(),
    ev.PrimarySeen(3, "r0", "h:0"),
    ev.PrimarySeen(9, "r2", "h:2"),
    ev.TakeoverOrdered(3, "dead"),
    ev.TakeoverOrdered(0, "vacant"),
    ev.HandoverReceived(Handover(3, 0)),
    ev.SwitchoverOrdered(OTHER, 1, ""),
    ev.SwitchoverOrdered(OTHER, 2, "r2"),
    ev.StopOrdered(),
    ev.DeathsReported(2, 1, 2),
    ev.DivergenceReported("r2", "differs"),
    ev.CheckpointAnnounced(FOLLOWER, 2, "c2"),
    ev.CheckpointWritten(2, "c2"),
    ev.CheckpointVerified(2, "c2", True),
    ev.CheckpointVerified(1, "c1", True),
    ev.FramesApplied(0, 1, 10, True),
    ev.UpstreamAnswered(Following(True, 3, 0, "r1")),
    ev.UpstreamAnswered(Following(False, 3, 0, "")),
]
COMPLETIONS: list[ev.Event] = [
    ev.Recovered(0),
    ev.LogRead(0, True),
    ev.LockSeen(ev.LockState(4, 1, 4, "r9", 3, True)),
    ev.LockTaken(9, 4),
    ev.LockRefused(),
    ev.SealsLinked(),
    ev.TailRead(ev.TailSummary(ORIGIN, 0, 0, 0)),
    ev.CutWritten(),
    ev.HeadSet(3),
    ev.CopiesApplied(0),
    ev.ControlSynced(2, 0),
    ev.ControlRefused(),
    ev.ProofAnswered(0, True),
    ev.ProofAnswered(7, False),
    ev.QueriesAnswered(CLIENT, [1], [b"a"], 0, True),
    ev.SpaceRefused(()),
    ev.SpaceRefused([(batch(2, 1, [call()]).run, [call()])]),
    ev.SpaceFound(),
    ev.FrameSynced(FRAME, b"", 0, 0, (), (), 0),
    ev.Failed(CorruptFrame("x")),
]


def test_samples_are_of_every_event() -> None:
    assert {type(event) for event in (*SAMPLES, *COMPLETIONS)} == set(typing.get_args(ev.Event))


@pytest.mark.parametrize("state", list(State), ids=lambda s: s.name)
@pytest.mark.parametrize("event", [*SAMPLES, *COMPLETIONS], ids=lambda e: str(e)[:60])
def test_every_event_in_every_state_is_taken_or_refused_as_our_bug_and_breaks_nothing(
    state: State, event: ev.Event
) -> None:
    life = in_state(state)
    try:
        effects = life.core.handle(event, life.now, WALL_US)
    except AssertionError:
        assert event in COMPLETIONS, "what comes from outside must never look like our bug"
        return
    if isinstance(event, ev.QueriesAnswered) and state is State.PRIMARY:
        return  # an answer without its question: only the count of those under way can tell
    life.core.check_invariants()
    if state is State.STOPPED:
        assert effects == []
    stops = [effect for effect in effects if isinstance(effect, fx.StopReplica)]
    assert len(stops) <= 1
    assert not stops or (effects[-1] is stops[0] and life.is_in(State.STOPPED))


Steps = st.lists(
    st.one_of(
        st.sampled_from([copy.copy(event) for event in SAMPLES]),
        st.tuples(st.integers(0, 3), st.booleans()),  # answer one of the effects that wait, well or badly
        st.tuples(st.integers(0, 3), st.just(True)),
        st.floats(0.0, 2.0),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(st.sampled_from([State.RECOVERING, State.FOLLOWING, State.TAKING_OVER, State.PRIMARY]), Steps)
def test_no_order_of_events_and_answers_breaks_an_invariant(state: State, steps: list[typing.Any]) -> None:
    life = in_state(state)
    released: dict[int, bytes] = {}
    for step in steps:
        if isinstance(step, float):
            life.now += step
        elif isinstance(step, tuple):
            if life.todo:
                life.answer(min(step[0], len(life.todo) - 1), good=step[1])
        else:
            life.post(step)
        deadline = life.core.deadline()
        if deadline is not None and deadline <= life.now:
            life.post(ev.TimerFired())
            again = life.core.deadline()
            assert again is None or again > life.now, "the timer would fire without end"
    assert not life.is_in(State.STOPPED) or life.post(ev.BuffersDrained()) == []
    del released


@settings(max_examples=150)
@given(Steps)
def test_whatever_happened_a_primary_that_is_left_alone_with_room_and_proofs_answers_everything(
    steps: list[typing.Any],
) -> None:
    life = in_state(State.PRIMARY)
    for step in steps:
        if isinstance(step, tuple) and life.todo:
            refuse = not step[1] and not isinstance(life.todo[0], fx.Prove)
            life.answer(0, good=not refuse)
        elif not isinstance(step, float | tuple | ev.StopOrdered | ev.SwitchoverOrdered):
            life.post(step)
    if life.is_in(State.STOPPED):
        return
    primary = life.core.primary
    assert primary is not None
    for _ in range(6):
        life.now += 1.0
        life.post(ev.TimerFired())
        life.post(ev.BuffersDrained())
        life.settle()
    assert primary.drained
    assert not primary.full
    assert not primary._queries._under_way
