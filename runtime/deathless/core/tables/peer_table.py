"""Other services that send to this one: who they are and which session is theirs (I3); pure.

One table per shard, a function of the log's prefix. A peer is a shard of a service; its session's seqs are the
positions of its outbox to us. The first observation registers it. After that only the same service id and incarnation
is this peer: one that was created anew knows nothing of what it sent before, so its positions would be taken for
repetitions and lost. It is refused until an operator adopts it; then it has a new session, which begins at position 1.

    unknown --PEER--> known --PEER of the same--> known
                        |-----PEER of another--> known, unchanged (PeerReplaced)
                        '-----ADOPT------------> known as the other, with a new session; the same one if it says anew

Guarantees: equal calls give equal tables and snapshots; a session belongs to one peer, ever. Does not: hold the
sessions themselves (see `sessions`), epochs or connections (the primary does). Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deathless.base.errors import DeathlessError, InvalidArgument, Overloaded, PeerReplaced
from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.codec.peer_messages import SELF, Adopt, PeerHello, Target
from deathless.codec.snapshot import PeerRecord


class Peer(NamedTuple):
    """One peer as it stands."""

    target: Target
    service_id: bytes
    incarnation: int
    session: SessionId

    def is_same(self, hello: PeerHello | Adopt) -> bool:
        """Is this who `hello` says it is?"""
        return self.service_id == hello.service_id and self.incarnation == hello.incarnation


class PeerTable:
    """All peers of one shard.

    Args:
        limits: `peers_max` is used.
    """

    __slots__ = ("_by_session", "_peers", "_peers_max")

    def __init__(self, limits: Limits) -> None:
        self._peers: dict[Target, Peer] = {}
        self._by_session: dict[int, Target] = {}  # Invariant: one entry per peer
        self._peers_max = limits.peers_max

    def __len__(self) -> int:
        """Count of peers."""
        return len(self._peers)

    def get(self, target: Target) -> Peer | None:
        """Give the peer that is known as `target`."""
        return self._peers.get(target)

    def find(self, hello: PeerHello) -> Peer | None:
        """Give the peer that says this of itself; None: it is not known, or `refusal` says why."""
        peer = self._peers.get(Target(hello.service, hello.shard))
        return peer if peer is not None and peer.is_same(hello) else None

    def target_of(self, session: int) -> Target | None:
        """Give whose session this is; None: a client's, our own or nobody's."""
        return self._by_session.get(session)

    def peers(self) -> list[Peer]:
        """Give all, by target ascending."""
        return sorted(self._peers.values())

    def refusal(self, hello: PeerHello) -> DeathlessError | None:
        """Say why a peer is not taken in; None: it is known, or would be registered by its PEER record."""
        target = Target(hello.service, hello.shard)
        peer = self._peers.get(target)
        if peer is not None:
            if peer.is_same(hello):
                return None
            return PeerReplaced(
                f"{target.service}/{target.shard} of service id {hello.service_id.hex()}, incarnation"
                f" {hello.incarnation} is not the one that is known here,"
                f" of incarnation {peer.incarnation}"
            )
        if target.service == SELF.service:
            return InvalidArgument("a peer has a name")
        if len(self._peers) >= self._peers_max:
            return Overloaded(f"{len(self._peers)} peers are known, at most peers_max = {self._peers_max}")
        return None

    def room_for(self, count: int) -> bool:
        """Could so many more be registered?"""
        return len(self._peers) + count <= self._peers_max

    def introduce(self, hello: PeerHello, lsn: int) -> SessionId | None:
        """Take a logged PEER record in.

        Args:
            hello: its body.
            lsn: its own; the session's id when it is the first of this peer.

        Returns: the peer's session; None: the record changes nothing, `refusal` says why.
        """
        known = self.find(hello)
        if known is not None:
            return known.session
        if self.refusal(hello) is not None:
            return None
        return self._put(hello, lsn)

    def adopt(self, adopt: Adopt, lsn: int) -> Peer | None:
        """Take a logged ADOPT record in: this is the peer from now on, with a new session.

        Returns: the peer as it is now; our outbox to the one before it, and that one's session, are to be forgotten.
        None: nothing changes, because it is the same peer and not to begin anew, or an unknown one for which `refusal`
        has a reason.
        """
        target = Target(adopt.service, adopt.shard)
        peer = self._peers.get(target)
        if peer is None:
            hello = PeerHello(adopt.service, adopt.shard, adopt.service_id, adopt.incarnation)
            return None if self.introduce(hello, lsn) is None else self._peers[target]
        if peer.is_same(adopt) and not adopt.anew:
            return None
        del self._by_session[peer.session]
        self._put(adopt, lsn)
        return self._peers[target]

    def snapshot(self) -> list[PeerRecord]:
        """Copy everything, by target ascending."""
        return [PeerRecord(*p.target, p.service_id, p.incarnation, p.session) for p in self.peers()]

    def restore(self, records: Iterable[PeerRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._peers = {}
        for record in records:
            target = Target(record.service, record.shard)
            self._peers[target] = Peer(target, record.service_id, record.incarnation, SessionId(record.session))
        self._by_session = {peer.session: peer.target for peer in self._peers.values()}
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in peers."""
        assert self._by_session == {peer.session: target for target, peer in self._peers.items()}
        assert len(self._by_session) == len(self._peers), "a session belongs to one peer"
        for target, peer in self._peers.items():
            assert peer.target == target != SELF
            assert peer.session > 0

    def _put(self, who: PeerHello | Adopt, lsn: int) -> SessionId:
        target, session = Target(who.service, who.shard), SessionId(lsn)
        self._peers[target] = Peer(target, who.service_id, who.incarnation, session)
        self._by_session[session] = target
        return session
