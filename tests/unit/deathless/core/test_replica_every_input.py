"""All states x all inputs: a replica takes every event in every state, in any order, and breaks nothing."""

from __future__ import annotations

import copy
import typing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.deathless.core.primary_world import WALL_US, batch, call
from tests.unit.deathless.core.replica_life import CLIENT, FOLLOWER, HELLO, OTHER, in_state

from deathless.base.errors import CorruptFrame
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec.frames import ORIGIN, Frame
from deathless.codec.peer_messages import Adopt, Order, PeerHello, Target
from deathless.codec.streams.packets import StreamBatch, StreamHello
from deathless.codec.wire import Follow, Following, Handover, PeerIntroduction
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.replica import State

# ---- all states x all inputs -------------------------------------------------------------------------------------

FRAME = Frame(3, Epoch(4), Lsn(3), Lsn(2), 1, Incarnation(1), ChainHash(bytes(16)), ChainHash(bytes(16)), 0, b"")
PEER = PeerHello("b", 0, bytes(16), 1)
B = Target("b", 0)
SAMPLES: list[ev.Event] = [
    ev.ConnectionOpened(OTHER, HELLO),
    ev.ConnectionLost(CLIENT),
    ev.ConnectionLost(ev.UPSTREAM),
    ev.ConnectionLost(FOLLOWER),
    ev.BatchesReceived([(CLIENT, batch(2, 1, [call(b"a"), call(b"b")]))]),
    ev.BatchesReceived([(OTHER, batch(2, 2, [call(b"b"), call(b"c")], acked=1))]),
    ev.BatchesReceived([(OTHER, batch(2, 3, [], acked=2))]),
    ev.BatchesReceived([(CLIENT, batch(99, 1, [call(b"a")]))]),
    ev.RegisterReceived(CLIENT, b"n" * 16),
    ev.QueriesReceived(CLIENT, False, [1, 2], [b"q", b"r"]),
    ev.QueriesReceived(CLIENT, True, [3], [b"q"]),
    ev.FollowReceived(FOLLOWER, Follow("r2", 0, bytes(16), False)),
    ev.FollowReceived(ev.Conn(6), Follow("r2", 2, bytes(16), True)),
    ev.FollowReceived(ev.Conn(6), Follow("r2", 0, bytes(16), False, True)),
    ev.AppliedReceived(FOLLOWER, 2),
    ev.AppliedReceived(FOLLOWER, 99),
    ev.BuffersDrained(),
    ev.TimerFired(),
    ev.PrimarySeen(3, "r0", "h:0"),
    ev.PrimarySeen(9, "r2", "h:2"),
    ev.TakeoverOrdered(3, "dead"),
    ev.TakeoverOrdered(0, "vacant"),
    ev.HandoverReceived(Handover(3, 0)),
    ev.HandoverReceived(Handover(3, 0, bytes(16))),
    ev.SwitchoverOrdered(OTHER, 1, ""),
    ev.SwitchoverOrdered(OTHER, 2, "r2"),
    ev.SwitchoverOrdered(OTHER, 2, "r2", bytes(16)),
    ev.StopOrdered(),
    ev.ConfirmedStored(0),
    ev.ConfirmedStored(2),
    ev.DeathsReported(2, 1, 2),
    ev.DivergenceReported("r2", "differs"),
    ev.CheckpointAnnounced(FOLLOWER, 2, "c2"),
    ev.CheckpointWritten(2, "c2"),
    ev.CheckpointVerified(2, "c2", True),
    ev.CheckpointVerified(1, "c1", True),
    ev.CheckpointsFound([1, 2]),
    ev.FramesApplied(0, 1, 10, True),
    ev.UpstreamAnswered(Following(True, 3, 0, "r1")),
    ev.UpstreamAnswered(Following(False, 3, 0, "")),
    ev.PeerHelloReceived(OTHER, PeerIntroduction(PEER, 1)),
    ev.PeerHelloReceived(ev.Conn(6), PeerIntroduction(PEER, 2)),
    ev.PeerReady(B, 3, 1),
    ev.PeerReady(B, 3, 9),
    ev.PeerCommitted(B, 1),
    ev.PeerLost(B),
    ev.AttachReceived(CLIENT, [1, 2], [2, 99]),
    ev.ActivityEnded(2, 1, 1, b"\x00"),
    ev.OrderReceived(OTHER, 3, Order("kill", 2)),
    ev.OrderReceived(OTHER, 5, Order("skip-input", 2, 7)),
    ev.StreamHelloReceived(OTHER, StreamHello("flights", 1, bytes(16), resume=False)),
    ev.StreamBatchReceived(OTHER, StreamBatch(batch(2, 1, [call()]), 1)),
    ev.OrderReceived(OTHER, 4, Adopt("b", 0, bytes(16), 2)),
]
COMPLETIONS: list[ev.Event] = [
    ev.Recovered(0),
    ev.LogRead(0, True),
    ev.LockSeen(ev.LockState(4, 1, 4, "r9", 3, True)),
    ev.LockTaken(9, 4),
    ev.LockRefused(),
    ev.SealsLinked(),
    ev.TailRead(ev.TailSummary(ORIGIN, 0, 0, 0)),
    ev.Migrated(1),
    ev.UpgradeFailed(CorruptFrame("x")),
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
    ev.MachineSlept(5),
    ev.ClockTold(),
    ev.FrameSynced(FRAME, b"", 0, 0, (), (), Times()),
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


# A primary of a later epoch is seen in the middle of a takeover that ends well all the same.
@example(State.TAKING_OVER, [ev.PrimarySeen(9, "r2", "h:2"), *[(0, True)] * 9])
# A proof is answered while the next frame is written, and that frame's own proof takes long.
@example(
    State.PRIMARY,
    [
        ev.QueriesReceived(CLIENT, True, [3], [b"q"]),
        ev.OrderReceived(OTHER, 3, Order("kill", 2)),
        ev.OrderReceived(OTHER, 3, Order("kill", 2)),
        (0, False),
        *[(0, True)] * 3,
        1.0,
    ],
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
