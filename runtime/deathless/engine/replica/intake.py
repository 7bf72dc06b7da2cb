"""Packets to events: what a replica understands of clients, followers and its primary. Shared by shell and simulation.

Batches, of which there may be one from each of many clients in a turn of the event loop, reach the core together; each
before whatever else comes behind it.

Guarantees: HELLO is authorised before anything else is believed. Does not: sockets. Imports core, codec, base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deathless.base.errors import (
    CorruptFrame,
    DeathlessError,
    Forbidden,
    Unauthorized,
    UpgradeRequired,
)
from deathless.codec.session_proof import NONCE_BYTES
from deathless.codec.streams.packets import StreamHello, decode_stream_batch
from deathless.codec.versions import agreed
from deathless.codec.wire import (
    U64,
    Admin,
    Batch,
    CheckpointMade,
    Follow,
    Following,
    Handover,
    Hello,
    PeerIntroduction,
    Refused,
    Type,
    Welcome,
    decode_attach,
    decode_batch,
    decode_queries,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.core import events as ev
from deathless.core.primary.session_owners import proves
from deathless.engine.replica.replica_engine import ReplicaEngine

KEPT_BYTES_MAX = 1 << 20  # of batches that wait for the end of the turn; beyond, the core has them at once
UNDECIDED = (1 << 63) - 1  # next_seq that tells nothing: the answer to the session's first batch will
PEER = "peer"  # kind in HELLO of another service's primary; no other kind may introduce itself as one
Packets = Sequence[tuple[int, bytes]]


class Intake:
    """Feeds one engine.

    Args:
        admin: called for a tool's command; it answers by itself.
    """

    def __init__(self, engine: ReplicaEngine, admin: Callable[[ev.Conn, Admin], None]) -> None:
        self._engine = engine
        self._admin = admin
        self._owner_only = engine.core.safeguards.session_owner
        self._batches: list[tuple[ev.Conn, Batch]] = []  # of this turn of the event loop
        self._bytes = 0  # of their packets
        self._peers: set[ev.Conn] = set()  # connections of other services; removed by `lost`
        self._certified: dict[ev.Conn, str] = {}  # which service each of them has shown to be; likewise

    def opened(
        self, conn: ev.Conn, hello: Hello, primary_address: str, certified_as: str = "", name: str = ""
    ) -> bytes:
        """A connection was authorised; gives the WELCOME to send first.

        Args:
            conn: the connection.
            hello: how it introduced itself.
            primary_address: where clients find the primary.
            certified_as: the service that its certificate names; empty: certificates name nobody here.
            name: in its certificate, for who owns a session; empty: it showed none.
        """
        engine = self._engine
        if hello.kind == PEER:
            self._peers.add(conn)
            self._certified[conn] = certified_as
        core = engine.core
        session = engine.shard.sessions.get(hello.session) if hello.session else None
        next_seq = 0
        if session is not None and (not self._owner_only or proves(hello.secret, name, session.nonce)):
            next_seq = session.next_seq  # whose it is alone hears how far it has come
        primary = core.primary
        if session is None and primary is not None and primary.synced_lsn > primary.confirmed_lsn:
            next_seq = UNDECIDED  # an unconfirmed frame may be what ended the session (I1)
        welcome = Welcome(
            agreed(hello),
            engine.service.name,
            core.replica,
            core.role_for_clients,
            core.known_epoch,
            engine.service.incarnation,
            primary_address,
            next_seq,
            core.limits.message_bytes_max,
            core.limits.session_window_max,
            time_us=core.time_for_keys_us(engine.outside.clock.now(), engine.outside.clock.wall_us()),
        )
        return struct_packet(Type.WELCOME, welcome)

    def refusal(self, hello: Hello) -> DeathlessError | None:
        """Why this connection is refused: a follower with another fingerprint would not compute what we do (I6)."""
        return self._engine.applying.follower_refusal(hello.fingerprint) if hello.kind == "follower" else None

    def packets(self, conn: ev.Conn, packets: Packets) -> None:
        """All packets of one buffer of an accepted connection; call `drained` once every readable socket was read.

        Raises: Unauthorized for what only another service may send; CorruptFrame. The connection ends.
        """
        post = self._engine.post
        for kind, body in packets:
            if kind == Type.BATCH:
                batch = decode_batch(body)
                self._check_sender(conn, batch)
                self._batches.append((conn, batch))
                self._bytes += len(body)
                if self._bytes > KEPT_BYTES_MAX:
                    self.deliver()
                continue
            self.deliver()
            if kind == Type.QUERIES:
                stale, ids, messages = decode_queries(body)
                post(ev.QueriesReceived(conn, stale, ids, messages))
            elif kind == Type.APPLIED:
                if len(body) != U64.size:
                    raise CorruptFrame(f"APPLIED of {len(body)} bytes")
                post(ev.AppliedReceived(conn, U64.unpack(body)[0]))
            else:
                self._rare(conn, kind, body)

    def deliver(self) -> None:
        """Tell the core of the batches so far: before whatever comes behind them, the end of a connection too."""
        if self._batches:
            batches, self._batches, self._bytes = self._batches, [], 0
            self._engine.post(ev.BatchesReceived(batches))

    def lost(self, conn: ev.Conn) -> None:
        """A connection ended; what it sent before is delivered."""
        self._peers.discard(conn)
        self._certified.pop(conn, None)
        self.deliver()

    def _check_sender(self, conn: ev.Conn, batch: Batch) -> None:
        if conn not in self._peers and self._engine.shard.sessions.of_peer(batch.run.session):
            raise Unauthorized(f"session {batch.run.session} is another service's; say HELLO as kind {PEER!r}")

    def drained(self) -> None:
        """Every socket that was readable has been read: form a frame."""
        batches, self._batches, self._bytes = self._batches, [], 0
        self._engine.batches_received(batches)

    def upstream(self, packets: Packets) -> None:
        """All packets of one buffer from the primary; frames in a row are applied together."""
        engine = self._engine
        frames: list[bytes] = []
        for kind, body in packets:
            if kind == Type.FRAME:
                frames.append(body)
                continue
            if frames:
                engine.frames_received(frames)
                frames = []
            if kind == Type.FOLLOWING:
                engine.post(ev.UpstreamAnswered(decode_struct(Following, body)))
            elif kind == Type.REFUSED:
                refused = decode_struct(Refused, body)
                if refused.code == UpgradeRequired.code:  # everything else may pass: it is asked again
                    engine.post(ev.Failed(engine.applying.refused(refused.text)))
            elif kind == Type.HANDOVER:
                engine.post(ev.HandoverReceived(decode_struct(Handover, body)))
        if frames:
            engine.frames_received(frames)

    def _rare(self, conn: ev.Conn, kind: int, body: bytes) -> None:
        post = self._engine.post
        if kind == Type.PING:
            self._engine.outside.clients.send(conn, packet(Type.PONG, body))
        elif kind == Type.REGISTER:
            if len(body) != NONCE_BYTES:
                raise CorruptFrame(f"REGISTER of {len(body)} bytes, {NONCE_BYTES} expected")
            post(ev.RegisterReceived(conn, body))
        elif kind == Type.FOLLOW:
            post(ev.FollowReceived(conn, decode_struct(Follow, body)))
        elif kind == Type.ATTACH:
            post(ev.AttachReceived(conn, *decode_attach(body)))
        elif kind == Type.PEER_HELLO:
            if conn not in self._peers:
                raise Unauthorized(f"only another service says PEER_HELLO, behind a HELLO of kind {PEER!r}")
            introduced = decode_struct(PeerIntroduction, body)
            shown = self._certified.get(conn, "")
            if shown and introduced.hello.service != shown:
                raise Forbidden(
                    f"service {introduced.hello.service!r} introduced itself with a certificate of {shown!r}",
                    remedy="each service sends with its own certificate",
                )
            post(ev.PeerHelloReceived(conn, introduced))
        elif kind == Type.STREAM_BATCH:
            post(ev.StreamBatchReceived(conn, decode_stream_batch(body)))
        elif kind == Type.STREAM_HELLO:
            post(ev.StreamHelloReceived(conn, decode_struct(StreamHello, body)))
        elif kind == Type.CHECKPOINT:
            made = decode_struct(CheckpointMade, body)
            post(ev.CheckpointAnnounced(conn, made.lsn, made.name))
        elif kind == Type.ADMIN:
            self._admin(conn, decode_struct(Admin, body))
