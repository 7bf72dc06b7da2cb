"""The primary's stream to its followers: confirmed frames, a ring of the last ones, and who takes the checkpoints.

    FOLLOW (lsn, chain) -> in the ring, same chain: FOLLOWING(streaming), the frames behind it, then each new one
                           else: FOLLOWING(read the log first); the follower asks again when it has

The shared log stays the truth; this is a hint for speed, so anything that does not fit is healed by reading the log.
A replica has one stream: a second FOLLOW of the same name ends the connection of the first, whose process is gone.

Who sees what: no follower ever sees a frame that is not confirmed (I1). The checkpointer is the first by name of those
that stream, for as long as it streams; the role then moves by itself (I9).

Does not: know the log. Imports core, codec and base.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from deathless.base.limits import Limits
from deathless.codec.wire import FRAME_HEAD, Follow, Following, Type, packet, struct_packet
from deathless.core.effects import Disconnect, Effect, Send
from deathless.core.events import Conn


@dataclass(slots=True)
class Follower:
    """A connected follower."""

    replica: str
    applied_lsn: int  # as it said. Invariant: <= the lsn confirmed when it said so
    streaming: bool
    upgrader: bool = False  # it leads only by an upgrade


@dataclass(slots=True)
class StreamFrame:
    """A confirmed frame kept for followers."""

    first_lsn: int
    last_lsn: int
    prev_chain: bytes
    packet: bytes


class Stream:
    """Followers of a primary.

    Args:
        epoch: the primary's.
        lsn, chain: the last confirmed place.
    """

    def __init__(self, *, epoch: int, limits: Limits, lsn: int, chain: bytes) -> None:
        self.checkpointer = ""  # replica that takes the checkpoints; empty: the primary itself
        self._epoch = epoch
        self._limits = limits
        self._lsn = lsn
        self._chain = chain
        self._followers: dict[Conn, Follower] = {}  # Invariant: one per replica
        self._best: int | None = None  # highest applied lsn of those that stream; None: nobody does
        self._ring: deque[StreamFrame] = deque()  # Invariant: frames in a row, the last one ends at `_lsn`
        self._ring_bytes = 0  # Invariant: at most `stream_buffer_bytes_max`

    # ---- followers -------------------------------------------------------------------------------------------

    def follow_received(self, conn: Conn, follow: Follow) -> list[Effect]:
        """Stream from where the follower stands, or tell it to read the log first."""
        effects: list[Effect] = []
        for other in [c for c, f in self._followers.items() if f.replica == follow.replica and c != conn]:
            del self._followers[other]
            effects.append(Disconnect(other))
        backlog = self._backlog(follow)
        self._followers[conn] = Follower(
            follow.replica, min(follow.lsn, self._lsn), backlog is not None, follow.upgrader
        )
        self._find_best()
        effects.append(self._following(conn, backlog is not None))
        if backlog:
            effects.append(Send(conn, b"".join(backlog)))
        return [*effects, *self._choose_checkpointer()]

    def applied_received(self, conn: Conn, lsn: int) -> None:
        """A follower's progress; what it can't have is not believed."""
        follower = self._followers.get(conn)
        if follower is not None and follower.applied_lsn <= lsn <= self._lsn:
            follower.applied_lsn = lsn
            self._find_best()

    def connection_lost(self, conn: Conn) -> tuple[str, list[Effect]]:
        """Forget a connection. Gives the follower that is gone with it, or an empty name."""
        lost = self._followers.pop(conn, None)
        self._find_best()
        return (lost.replica, self._choose_checkpointer()) if lost is not None else ("", [])

    def follows(self, conn: Conn) -> bool:
        """Is there a follower at the other end?"""
        return conn in self._followers

    def find(self, replica: str) -> tuple[Conn, Follower] | None:
        """Give a follower by its name."""
        return next(((conn, f) for conn, f in self._followers.items() if f.replica == replica), None)

    @property
    def streaming(self) -> dict[str, int]:
        """Replica -> applied lsn of those that stream, and could lead."""
        return {f.replica: f.applied_lsn for f in self._followers.values() if f.streaming and not f.upgrader}

    @property
    def upgraders(self) -> frozenset[str]:
        """Those that stream, and lead only by an upgrade."""
        return frozenset(f.replica for f in self._followers.values() if f.streaming and f.upgrader)

    def lag(self) -> int:
        """Messages by which the best follower that streams is behind; 0 without one."""
        return self._lsn - self._best if self._best is not None else 0

    def _find_best(self) -> None:
        self._best = None
        for follower in self._followers.values():
            if not follower.streaming or follower.upgrader:
                continue
            if self._best is None or follower.applied_lsn > self._best:
                self._best = follower.applied_lsn

    def floor(self, lsn: int) -> int:
        """`lsn`, or the lowest that a follower has applied: it may have to read the log from there."""
        return min([lsn, *(f.applied_lsn for f in self._followers.values())])

    # ---- frames ----------------------------------------------------------------------------------------------

    @property
    def chain(self) -> bytes:
        """Chain hash behind the last confirmed frame."""
        return self._chain

    def publish(self, frame: StreamFrame, chain: bytes, out: dict[Conn, list[bytes]]) -> None:
        """Stream a frame that has just been confirmed; `chain` is the hash behind it."""
        assert frame.first_lsn == self._lsn + 1
        assert frame.prev_chain == self._chain
        self._lsn = frame.last_lsn
        self._chain = chain
        self._ring.append(frame)
        self._ring_bytes += len(frame.packet)
        while self._ring_bytes > self._limits.stream_buffer_bytes_max:
            self._ring_bytes -= len(self._ring.popleft().packet)
        for conn, follower in self._followers.items():
            if follower.streaming:
                out.setdefault(conn, []).append(frame.packet)

    def _backlog(self, follow: Follow) -> list[bytes] | None:
        """Packets behind (lsn, chain); None where the ring does not reach back so far, or the chain differs."""
        if follow.lsn == self._lsn:
            return [] if follow.chain == self._chain else None
        frames = [f for f in self._ring if f.first_lsn > follow.lsn]
        if not frames or frames[0].first_lsn != follow.lsn + 1 or frames[0].prev_chain != follow.chain:
            return None
        return [f.packet for f in frames]

    def _following(self, conn: Conn, streaming: bool) -> Send:
        body = Following(streaming, self._epoch, self._lsn, self.checkpointer)
        return Send(conn, struct_packet(Type.FOLLOWING, body))

    def _choose_checkpointer(self) -> list[Effect]:
        """Keep the checkpointer while it streams; else name another, so the role moves by itself."""
        names = sorted(self.streaming)
        chosen = self.checkpointer if self.checkpointer in names else (names[0] if names else "")
        if chosen == self.checkpointer:
            return []
        self.checkpointer = chosen
        return [self._following(conn, True) for conn, f in self._followers.items() if f.streaming]

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        replicas = [f.replica for f in self._followers.values()]
        assert len(set(replicas)) == len(replicas)
        assert all(f.applied_lsn <= self._lsn for f in self._followers.values())
        assert self._best == max(self.streaming.values(), default=None)
        assert self._ring_bytes == sum(len(f.packet) for f in self._ring) <= self._limits.stream_buffer_bytes_max
        assert not self._ring or self._ring[-1].last_lsn == self._lsn
        assert not self.checkpointer or self.checkpointer in self.streaming


def frame_packet(last_lsn: int, roll: int, offset: int, raw: bytes) -> bytes:
    """Give the FRAME packet of a confirmed frame."""
    return packet(Type.FRAME, FRAME_HEAD.pack(last_lsn, offset, roll, 0), raw)
