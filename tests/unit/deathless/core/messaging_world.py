"""A primary whose turns, peers, activities and timers a test plays; see primary_world for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.deathless.core.peer_net import Relay
from tests.unit.deathless.core.primary_world import SMALL, World, batch

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Due, Times
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import (
    ActivityStart,
    Crowd,
    Outputs,
    PeerHello,
    Target,
)
from deathless.codec.wire import (
    AdminReply,
    PeerIntroduction,
    PeerWelcome,
    Type,
    decode_peer_commit,
    decode_struct,
)
from deathless.core import effects as fx
from deathless.core import events as ev

A = PeerHello("a", 0, b"a" * 16, 1)
B = Target("b", 0)
B_AS_PEER = PeerHello("b", 0, b"b" * 16, 1)
PEER = ev.Conn(31)
OTHER_PEER = ev.Conn(32)
TOOL = ev.Conn(41)


class Scripted(Relay):
    """Executor whose turns give what a test says, beside what messages say is to be sent on."""

    def __init__(self) -> None:
        super().__init__()
        self.give = Outputs([], [], [], [], [])
        self.pending: list[ActivityStart] = []
        self.held: set[int] = set()
        self.due_us = 0
        self.suspended_here = Crowd(0, 0, 0)
        self.advanced: list[int] = []

    def take_outputs(self) -> Outputs | None:
        found = super().take_outputs()
        give, self.give = self.give, Outputs([], [], [], [], [])
        if found is not None:
            return give._replace(messages=found.messages, turns=found.turns)
        return give if any(give) else None

    def activities(self) -> list[ActivityStart]:
        return self.pending

    def holds(self, invocation: int) -> bool:
        return invocation in self.held

    def crowd(self) -> Crowd:
        return self.suspended_here

    def due(self) -> Due:
        return Due(self.due_us)

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        super().advance(lsn, times, caught_up=caught_up)
        self.advanced.append(times.elapsed_us)
        self.due_us = 0


def start(operation: int, *, once: bool = False) -> ActivityStart:
    return ActivityStart(9, operation, 1, "mail", b"", "9", once, attempted=False)


class Place(World):
    """A world whose executor is scripted, with one client session."""

    def __init__(
        self,
        limits: Limits = SMALL,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        deaths: dict[tuple[int, int], int] | None = None,
        script: Scripted | None = None,
    ) -> None:
        self.script = script or Scripted()
        super().__init__(limits, safeguards, deaths, self.script)
        self.session = self.register()

    def tell(self, event: ev.OfMessaging) -> None:
        self.do(self.primary.message_received(event, self.now, self.wall_us))

    def introduce(self, hello: PeerHello = A, conn: ev.Conn = PEER) -> int:
        """A peer introduces itself, to the end; gives its session."""
        self.tell(ev.PeerHelloReceived(conn, PeerIntroduction(hello, 1)))
        self.settle()
        return self.welcomes(conn)[-1].session

    def welcomes(self, conn: ev.Conn = PEER) -> list[PeerWelcome]:
        return [decode_struct(PeerWelcome, b) for c, k, b in self.sent if (c, k) == (conn, Type.PEER_WELCOME)]

    def commits(self, conn: ev.Conn = PEER) -> list[int]:
        return [decode_peer_commit(b)[1] for c, k, b in self.sent if (c, k) == (conn, Type.PEER_COMMIT)]

    def peer_sends(self, session: int, first: int, *texts: bytes, conn: ev.Conn = PEER, kind: int = Kind.FORK) -> None:
        messages = [encode(kind, args=text) for text in texts]
        self.do(self.primary.batches_received([(conn, batch(session, first, messages))]))
        self.drained()

    def order_answers(self) -> list[str]:
        return [decode_struct(AdminReply, b).code for c, k, b in self.sent if (c, k) == (TOOL, Type.ADMIN_REPLY)]

    def records(self) -> list[int]:
        """Kinds of the messages in the frame that is due, by run."""
        run = next(effect for effect in self.todo if isinstance(effect, fx.RunFrame))
        return [message[0] for _, messages in run.runs for message in messages]

    def effects(self, kind: type[fx.Effect]) -> Sequence[fx.Effect]:
        found = [effect for effect in self.todo if isinstance(effect, kind)]
        self.todo = [effect for effect in self.todo if not isinstance(effect, kind)]
        return found
