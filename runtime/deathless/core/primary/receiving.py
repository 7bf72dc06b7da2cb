"""Who sends to a primary: peers introduce themselves, and are told from which position to send.

    PEER_HELLO -> same as known? (I3) ---> older connections of this peer end ---> PEER_WELCOME(session, position)
                    |        '--not known yet: PEER is logged; the answer waits until that is confirmed (I1)
                    |--another incarnation, or a lower epoch than was seen: PEER_REFUSED
                    |--another history than ours at our position: PEER_REFUSED
                    '--a name that no service may have: PEER_REFUSED

A peer's session is found by who it says it is; its messages are admitted on the connection that was welcomed last, and
no other. An older one is fenced **before** the newer is told from where to send: a sender that was deposed and does not
know it must neither be taken for its successor nor be told what that one shall hear.

With the position goes the history before it (codec.peer_history), so that the sender finds out whether it and we have
the same past. A sender that found a difference says so when it comes back, and is only told where we stand: it takes no
other sender's place, neither connection nor epoch, since a copy of the true one may be who complains.

The position told is the first that is not confirmed. What an older connection brought and no proof covers yet may come
once more; it is then a repetition, which admission answers (I3).

Guarantees: at most one connection per peer counts. Does not: admit messages (core.primary.admission does, and asks
here), bound peers (the table does, by `peers_max`). Imports core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deathless.base.errors import DeathlessError, Deposed, HistoryDiffers, InvalidArgument, NotPrimary, Overloaded
from deathless.base.safeguards import Safeguards
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_history import differ
from deathless.codec.peer_messages import PeerHello, Target, encode_body, is_service_name
from deathless.codec.wire import PeerIntroduction, PeerWelcome, Refused, Type, struct_packet
from deathless.core.effects import Disconnect, Effect, Send
from deathless.core.events import Conn
from deathless.core.primary.own_records import OwnRecords
from deathless.core.tables.peer_table import PeerTable

COMPLAINT_CHARS_MAX = 500  # of what a sender says of us, for our operators
REFUSALS_MAX = 64  # peers whose last refusal is kept for operators; the oldest goes first


class Peering:
    """The peers that are connected to a primary.

    Args:
        peers: the shard's table; read here, changed only where frames run.
        records: takes what is to be logged.
        stands: gives the next position to tell the peer of a session, and the history before it.
        welcome: gives the same, and moves its answers to a connection.
    """

    def __init__(
        self,
        *,
        peers: PeerTable,
        records: OwnRecords,
        safeguards: Safeguards,
        stands: Callable[[int], tuple[int, bytes]],
        welcome: Callable[[int, Conn], tuple[int, bytes]],
    ) -> None:
        self._refused: dict[Target, str] = {}  # why a peer was refused last, until it is welcomed
        self._peers = peers
        self._records = records
        self._fence = safeguards.fence_peer_connections
        self._compare = safeguards.peer_history
        self._stands = stands
        self._accept = welcome
        # Of those refused: with whom we have not one history, and the position at which it was welcomed all the same,
        # to find that out; 0: it was not. Such a refusal stands until the peer gets beyond it.
        self._differing: dict[Target, int] = {}
        self._newest: dict[Target, tuple[Conn, PeerHello]] = {}
        self._logging: dict[Target, PeerHello] = {}  # whose PEER record is not confirmed
        self._epochs: dict[PeerHello, int] = {}  # highest epoch seen of each. Invariant: at most one per target

    def hello_received(self, conn: Conn, said: PeerIntroduction, confirmed_lsn: int) -> list[Effect]:
        """A peer says who it is; what stands behind `confirmed_lsn` may not be told yet (I1)."""
        hello, epoch = said.hello, said.epoch
        target = Target(hello.service, hello.shard)
        seen = self._epochs.get(hello, 0)
        refusal = self._peers.refusal(hello)
        if refusal is None and not is_service_name(hello.service):  # its answers are sent to where this name leads
            refusal = InvalidArgument(f"{hello.service!r} can't be the name of a service")
        if refusal is None and epoch < seen:
            refusal = Deposed(f"epoch {epoch} of {target.service}/{target.shard} ended, {seen} was seen")
        logging = self._logging.get(target)
        if refusal is None and logging is not None and logging != hello:
            refusal = Overloaded(f"another {target.service}/{target.shard} is being introduced")
        known = self._peers.find(hello)
        if refusal is None and logging is None and known is not None and known.session > confirmed_lsn:
            refusal = Overloaded("it is being adopted")
        if refusal is None and logging is None and known is None and not self._peers.room_for(len(self._logging) + 1):
            refusal = Overloaded("as many peers are known or being introduced as there may be")
        if refusal is None and logging is None and known is not None:
            refusal = self._other_history(target, known.session, said)
        if refusal is not None:
            return [self._refuse(conn, target, refusal)]
        if said.complaint and known is not None:
            return self._complained(conn, target, known.session, said)
        for other in [h for h in self._epochs if (h.service, h.shard) == target]:
            del self._epochs[other]
        self._epochs[hello] = epoch
        effects: list[Effect] = []
        older = self._newest.get(target)
        if older is not None and older[0] != conn and self._fence:
            effects.append(Disconnect(older[0]))
        self._newest[target] = conn, hello
        if logging is not None:
            return effects  # answered with the record
        if known is not None:
            return [*effects, self._welcome(target, known.session)]
        self._logging[target] = hello
        self._records.add(encode(Kind.PEER, args=encode_body(hello)), lambda: self._introduced(target))
        return effects

    def _other_history(self, target: Target, session: int, said: PeerIntroduction) -> HistoryDiffers | None:
        """Compare where that can be done here; everywhere else the sender does, when it is welcomed."""
        position, history = self._stands(session)
        if not self._compare or said.first != position or not differ(history, said.history):
            return None
        name = f"{target.service}/{target.shard}"
        return HistoryDiffers(f"the messages of {name} up to {position - 1} are not those that were taken in here")

    def _complained(self, conn: Conn, target: Target, session: int, said: PeerIntroduction) -> list[Effect]:
        """The sender sends nothing: our operators hear why, and it hears where we stand now."""
        if self._epochs.get(said.hello) == said.epoch:
            del self._epochs[said.hello]
        self._note(target, said.complaint[:COMPLAINT_CHARS_MAX], differs=True)
        return [Send(conn, struct_packet(Type.PEER_WELCOME, PeerWelcome(session, *self._stands(session))))]

    def _introduced(self, target: Target) -> Sequence[Effect]:
        """The PEER record is confirmed."""
        hello = self._logging.pop(target)
        newest = self._newest.get(target)
        if newest is None:
            return []
        known = self._peers.find(hello)
        if known is not None:
            return [self._welcome(target, known.session)]
        return [self._refuse(newest[0], target, self._peers.refusal(hello) or Overloaded("it is not known"))]

    def leaving(self, conn: Conn) -> list[Effect]:
        """We let go: a peer looks for whoever comes."""
        refused = Refused(NotPrimary.code, "this primary lets go")
        return [Send(conn, struct_packet(Type.PEER_REFUSED, refused))]

    def adopted(self, target: Target, *, anew: bool) -> list[Effect]:
        """An ADOPT record is confirmed: who is connected as the one before is not told anything more.

        `anew`: also the same one has another session now.
        """
        self._forget_refusal(target)
        newest = self._newest.get(target)
        if newest is None or (self._peers.find(newest[1]) is not None and not anew):
            return []
        del self._newest[target]
        return [Disconnect(newest[0])]

    def connection_lost(self, conn: Conn) -> None:
        """Forget a connection."""
        for target in [target for target, newest in self._newest.items() if newest[0] == conn]:
            del self._newest[target]

    def connected(self) -> list[Target]:
        """Give the peers that are connected."""
        return sorted(self._newest)

    def _welcome(self, target: Target, session: int) -> Send:
        conn, _ = self._newest[target]
        position, history = self._accept(session, conn)
        if target in self._differing:
            self._differing[target] = position
        else:
            self._refused.pop(target, None)
        return Send(conn, struct_packet(Type.PEER_WELCOME, PeerWelcome(session, position, history)))

    def _refuse(self, conn: Conn, target: Target, error: DeathlessError) -> Send:
        self._note(target, str(error), differs=isinstance(error, HistoryDiffers))
        return Send(conn, struct_packet(Type.PEER_REFUSED, Refused(error.code, error.message)))

    def _note(self, target: Target, why: str, *, differs: bool) -> None:
        self._forget_refusal(target)
        self._refused[target] = why
        if differs:
            self._differing[target] = 0
        while len(self._refused) > REFUSALS_MAX:
            self._forget_refusal(next(iter(self._refused)))

    def _forget_refusal(self, target: Target) -> None:
        self._refused.pop(target, None)
        self._differing.pop(target, None)

    def refused(self) -> dict[Target, str]:
        """Say why peers were refused, or sent nothing, last."""
        for target, welcomed in list(self._differing.items()):
            known = self._peers.get(target)
            if welcomed and known is not None and self._stands(known.session)[0] > welcomed:
                self._forget_refusal(target)
        return dict(self._refused)

    def differing(self) -> set[Target]:
        """Give the peers among these with which we have not one history."""
        return self.refused().keys() & self._differing.keys()

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        assert all(target == (hello.service, hello.shard) for target, (_, hello) in self._newest.items())
        assert len({(hello.service, hello.shard) for hello in self._epochs}) == len(self._epochs)
        assert len(self._refused) <= REFUSALS_MAX
        assert self._differing.keys() <= self._refused.keys()
