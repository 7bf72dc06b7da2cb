"""What left the replicas, as seen on the wire: the evidence for "released is never lost".

Why on the wire: a tap sees a packet at the moment it leaves its process, whoever reads it, or nobody. Everything
that stands for a change in the log is noted with its place there: replies, registrations, frames of the stream,
positions called confirmed, what is told to peers. Guarantees: sees every piece, in order, per connection. Does not:
judge (the checkers do).
May import codec, network, checkers.
"""

from __future__ import annotations

from deathless.codec.frames import decode_frame
from deathless.codec.wire import (
    FRAME_HEAD,
    Following,
    Handover,
    PacketReader,
    PeerIntroduction,
    PeerWelcome,
    Registered,
    Type,
    decode_peer_commit,
    decode_replies,
    decode_struct,
)
from deathless.simulation.checkers.peers import Told
from deathless.simulation.checkers.released import Released
from deathless.simulation.world.network import Endpoint
from deathless.simulation.world.scheduler import Scheduler

PACKET_BYTES_MAX = 1 << 20


FIRST_PACKETS = 4
"""So many packets of whoever connects are looked at: a peer introduces itself with the first ones."""


class Tap:
    """Listens to all that replicas send on connections that they accepted, and to how peers introduce themselves."""

    def __init__(self, scheduler: Scheduler, replicas: tuple[str, ...]) -> None:
        self.released: list[Released] = []
        self.frames: list[tuple[int, int, int]] = []  # (epoch, roll, offset) of the frames of the stream
        self.replies: list[tuple[tuple[int, int], bytes]] = []  # ((session, seq), reply), each time it left
        self.told: list[Told] = []  # what peers were told, in order
        self._scheduler = scheduler
        self._replicas = replicas
        self._readers: dict[str, PacketReader] = {}  # by name of the endpoint
        self._seen: dict[str, int] = {}  # packets of whoever connected, by name of the end that accepted
        self._complaining: set[str] = set()  # ends whose peer only says that it found a difference

    def add(self, replica: str) -> None:
        """Listen to one more."""
        self._replicas = (*self._replicas, replica)

    def __call__(self, end: Endpoint, data: bytes) -> None:
        """A piece leaves."""
        owner = end.owner
        if "<" not in end.name:
            self._of_initiator(end, data)
            return
        if owner is None or owner.name not in self._replicas:
            return
        reader = self._readers.get(end.name)
        if reader is None:
            reader = self._readers[end.name] = PacketReader(PACKET_BYTES_MAX)
        for kind, body in reader.feed(data):
            if kind in (Type.PEER_WELCOME, Type.PEER_COMMIT):
                self._of_peer(end, kind, body)
            else:
                self._packet(owner.name, kind, body)

    def _packet(self, who: str, kind: int, body: bytes) -> None:
        if kind == Type.REPLIES:
            session, seqs, replies = decode_replies(body)
            for seq, reply in zip(seqs, replies, strict=True):
                self._note("reply", (session, seq), reply, who)
                self.replies.append(((session, seq), reply))
            self._scheduler.note(who, f"replies {session}/{seqs[0]}..{seqs[-1]}")
        elif kind == Type.REGISTERED:
            registered = decode_struct(Registered, body)
            self._note("session", (registered.session,), registered.nonce, who)
        elif kind == Type.FRAME:
            frame = decode_frame(body, FRAME_HEAD.size)
            assert frame is not None
            _, offset, roll, _ = FRAME_HEAD.unpack_from(body)
            place = (int(frame.epoch), int(roll), int(offset))
            if place not in self.frames:
                self.frames.append(place)
            self._note("frame", (frame.first_lsn, frame.last_lsn), frame.chain, who)
            self._note("confirmed", (int.from_bytes(body[:8], "little"),), b"", who)
        elif kind == Type.FOLLOWING:
            following = decode_struct(Following, body)
            self._note("confirmed", (following.lsn,), b"", who)
        elif kind == Type.HANDOVER:
            self._note("confirmed", (decode_struct(Handover, body).lsn,), b"", who)

    def _of_initiator(self, end: Endpoint, data: bytes) -> None:
        """Note who complains: it is told where we stand, and takes nobody's place by that (core.primary.receiving)."""
        acceptor = end.peer
        seen = self._seen.get(acceptor.name, 0)
        if seen >= FIRST_PACKETS or acceptor.owner is None or acceptor.owner.name not in self._replicas:
            return
        reader = self._readers.get(end.name)
        if reader is None:
            reader = self._readers[end.name] = PacketReader(PACKET_BYTES_MAX)
        for kind, body in reader.feed(data):
            seen += 1
            if kind == Type.PEER_HELLO and decode_struct(PeerIntroduction, body).complaint:
                self._complaining.add(acceptor.name)
        self._seen[acceptor.name] = seen

    def _of_peer(self, end: Endpoint, kind: int, body: bytes) -> None:
        if kind == Type.PEER_WELCOME:
            welcome = decode_struct(PeerWelcome, body)
            session, through = welcome.session, welcome.next_position - 1
        else:
            session, through = decode_peer_commit(body)
        owner = end.owner
        assert owner is not None
        self._note("taken", (session, through), b"", owner.name)
        if kind == Type.PEER_WELCOME and end.name in self._complaining:
            return
        reader = f"{owner.name} life {end.ends}"
        self.told.append(Told(reader, session, end.name, kind == Type.PEER_WELCOME, self._scheduler.now_us))

    def _note(self, kind: str, place: tuple[int, ...], data: bytes, who: str) -> None:
        self.released.append(Released(kind=kind, place=place, data=data, who=who, at_us=self._scheduler.now_us))
