"""A replica r1 with a shard and a log in memory, to be put into any state and given any event."""

from __future__ import annotations

import typing
from collections.abc import Sequence

from tests.unit.deathless.core.primary_world import WALL_US, Echo

from deathless.base.errors import UpgradeCalledOff
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import ORIGIN, Frame, FrameKind, chain_after
from deathless.codec.wire import Following, Hello, PacketReader, Role, Type, decode_struct
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.follower import Link
from deathless.core.replica.replica import Replica, State
from deathless.engine.shard.assembly import shard_around

CLIENT, OTHER, FOLLOWER = ev.Conn(1), ev.Conn(2), ev.Conn(5)
HELLO = Hello(1, "client", "bank", "c1")
LIMITS = Limits(checkpoint_every_messages=5, pending_queries_max=4, frame_messages_max=4)


class Life:
    """A replica r1 with a shard and a log in memory, whose effects wait in `todo` for an answer."""

    def __init__(self, safeguards: Safeguards | None = None, limits: Limits = LIMITS, *, upgrade: bytes = b"") -> None:
        safeguards = safeguards or Safeguards()
        self.now = 10.0
        self.shard = shard_around(Echo(), limits, safeguards)
        self.place, self.sessions = self.shard.place, self.shard.sessions
        self.core = Replica(
            replica="r1",
            sessions=self.sessions,
            place=self.place,
            limits=limits,
            safeguards=safeguards,
            upgrade=upgrade,
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
            case fx.Migrate():
                return ev.Migrated(self.place.lsn) if good else ev.UpgradeFailed(UpgradeCalledOff("it can't be made"))
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
            case fx.StoreConfirmed(lsn):
                return ev.ConfirmedStored(lsn)
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
        return ev.FrameSynced(frame, done.payload, 0, 0, done.results, done.registered, self.place.times)

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


def following(*, epoch: int = 3, upgrade: bytes = b"") -> Life:
    """A follower of r0 that streams, to make an upgrade where one is named."""
    life = Life(upgrade=upgrade)
    life.answer()
    life.post(ev.ConnectionOpened(CLIENT, HELLO))
    life.post(ev.PrimarySeen(epoch, "r0", "h:1"))
    life.settle()
    assert life.core.follower.link is Link.STREAMING
    return life
