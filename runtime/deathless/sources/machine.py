"""One partition of a source on its way into the shards of a service; pure.

    OPENING --every shard has said how far it is--> READING --a shard has another owner--> FENCED
                                                      |  ^
                                       record --> offered to the shard of its key --> committed

The partition is read from where the shard that is least far is. What another shard has taken in already is dropped
there by its id, so nothing is sent twice. Shards without a record for a while get a mark, an id without a message: so
an idle shard does not hold back the place from which a successor reads.

**The same record goes to the same shard.** Where some shards are farther than others, a record between them was sent by
the settings of then. So each note in the log begins with a fingerprint of these settings, and others are refused while
a shard that is ahead has them (SourceKeyChanged): else a row would be taken in twice, or not at all. The shards that
are least far may have any: settings change only where all are equally far, so what is behind them is all of ours.

Guarantees: what is read is offered once and in order to one shard; all shards have everything up to `taken_in`. Does
not: read (a reader does), dial (`link` does), know clocks but for the `now` of its calls. Imports core, codec, base,
the port and keys.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from deathless.base.errors import SourceKeyChanged
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.streams.records import OnRefusal, StreamKey, encode_mark
from deathless.codec.wire import Type, decode_struct
from deathless.core.client.stream_connection import StreamConnection
from deathless.core.client.stream_sender import State as SenderState
from deathless.core.client.stream_sender import StreamSender
from deathless.sources.keys import FINGERPRINT_BYTES, Routing
from deathless.sources.port import Batch, Partition, Point

WINDOW_MESSAGES: Final = 4096  # of one shard that are not committed; with more nothing is read
WINDOW_BYTES: Final = 8 << 20  # likewise
READ_RECORDS_MAX: Final = 1024
MARK_S: Final = 1.0  # a shard that is behind for so long, with nothing under way, gets a mark
MARK_IDS: Final = 10_000  # or once it is behind by so many ids


class State(enum.Enum):
    """See the module."""

    OPENING = "opening"
    READING = "reading"
    FENCED = "fenced"


class ShardView(NamedTuple):
    """How one shard stands, for operators."""

    shard: int
    taken_in: int  # everything up to this id is confirmed; -1: nothing, or not known
    waiting: int  # rows that are sent, or about to be
    problem: str  # code first; empty: none


class _Shard:
    """One shard's part."""

    __slots__ = ("behind_since", "bytes", "connection", "note", "sender", "sizes", "welcomed")

    def __init__(self, sender: StreamSender) -> None:
        self.sender = sender
        self.connection = StreamConnection(sender)
        self.welcomed = False  # it has said how far it is, once
        self.note = b""  # that was offered last, or that the welcome told; with the fingerprint
        self.sizes: deque[int] = deque()  # of what is offered and not committed
        self.bytes = 0  # Invariant: their sum
        self.behind_since: float | None = None  # it lacks ids that were read, with no record of its own behind them

    def forget(self) -> None:
        """What was committed has no size any more."""
        while len(self.sizes) > len(self.sender):
            self.bytes -= self.sizes.popleft()


class PartitionMachine:
    """One partition.

    Args:
        source: name of the source.
        partition: which.
        routing: where records go.
        nonces: 16 bytes for each shard, that name this life of this process.
        on_refusal: what becomes of inputs that are refused.
    """

    def __init__(
        self, source: str, partition: Partition, routing: Routing, nonces: Sequence[bytes], on_refusal: OnRefusal
    ) -> None:
        assert len(nonces) == routing.shards
        key = StreamKey(source, partition.number)
        self.partition = partition
        self.rows = 0  # that were offered
        self.end = 0  # the id behind the last one that stands there, as it was read last; 0: not known
        self._routing = routing
        self._shards = [_Shard(StreamSender(key, nonce, on_refusal)) for nonce in nonces]
        self._read_id = -1  # everything up to here was read
        self._note = b""  # of the reader, behind that

    @property
    def state(self) -> State:
        """See the module."""
        if any(each.sender.state is SenderState.FENCED for each in self._shards):
            return State.FENCED
        return State.READING if all(each.welcomed for each in self._shards) else State.OPENING

    @property
    def taken_in(self) -> int:
        """Everything up to this id is confirmed by all shards; -1: nothing is, or not all have said."""
        return min(each.sender.committed_id for each in self._shards)

    @property
    def settled(self) -> int:
        """Each record up to this id is confirmed by the shard that it went to; -1: none is known to be."""
        return min((each.sender.waiting_id - 1 for each in self._shards if len(each.sender)), default=self._read_id)

    @property
    def read_id(self) -> int:
        """Everything up to this id was offered, or is known to be taken in; -1: nothing."""
        return self._read_id

    @property
    def ended(self) -> bool:
        """Have all shards confirmed the end of the stream, with nothing behind it?"""
        return all(each.welcomed and each.sender.ended and not len(each.sender) for each in self._shards)

    @property
    def room(self) -> int:
        """How many records may be read now."""
        if self.state is not State.READING or any(each.bytes >= WINDOW_BYTES for each in self._shards):
            return 0
        waiting = max(len(each.sender) for each in self._shards)
        return min(READ_RECORDS_MAX, WINDOW_MESSAGES - waiting)

    def views(self) -> list[ShardView]:
        """Give how the shards stand."""
        return [
            ShardView(at, each.sender.committed_id, len(each.sender), each.sender.why)
            for at, each in enumerate(self._shards)
        ]

    # ---- connections -------------------------------------------------------------------------------------------

    def connected(self, shard: int) -> list[bytes]:
        """A connection to a shard's primary stands: what is to be sent on it."""
        return self._shards[shard].connection.connected()

    def lost(self, shard: int) -> None:
        """A connection ended."""
        self._shards[shard].connection.lost()

    def received(self, shard: int, kind: int, body: bytes, now: float) -> list[bytes]:
        """A packet about streams came: what is to be sent. Those of other streams change nothing.

        Raises: CorruptFrame.
        """
        each = self._shards[shard]
        match kind:
            case Type.STREAM_WELCOME:
                welcome = decode_struct(StreamWelcome, body)
                if each.connection.is_about(welcome):
                    each.sender.welcomed(welcome)
                    if not each.welcomed and each.sender.state is SenderState.OPEN:
                        each.welcomed, each.note = True, welcome.note
            case Type.STREAM_COMMIT:
                each.sender.committed(decode_struct(StreamCommit, body))
            case Type.STREAM_REFUSED:
                each.connection.refused(decode_struct(StreamRefused, body), now)
            case _:
                pass
        each.forget()
        return each.sender.packets(now)

    def due(self, now: float) -> Iterator[tuple[int, list[bytes]]]:
        """Give what is to be sent now, by shard."""
        for at, each in enumerate(self._shards):
            packets = each.connection.reopened(now)
            self._maybe_mark(each, now)
            packets += each.sender.packets(now)
            if packets:
                yield at, packets

    def deadline(self, now: float) -> float | None:
        """When `due` may give more than now though nothing comes; None: never."""
        found: list[float] = []
        for each in self._shards:
            if (at := each.connection.deadline(now)) is not None:
                found.append(at)
            if each.behind_since is not None and self._may_mark(each):
                found.append(each.behind_since + MARK_S)
        return min(found, default=None)

    # ---- reading -----------------------------------------------------------------------------------------------

    def points(self) -> list[Point]:
        """Give from where to read: how far each shard is, with what is on its way to it, the lowest first.

        Raises: SourceKeyChanged.
        """
        assert self.state is State.READING
        far = [each.sender.next_id - 1 for each in self._shards]
        notes = [each.note for each in self._shards]
        ahead = [note for last, note in zip(far, notes, strict=True) if last > min(far)]
        if any(note[:FINGERPRINT_BYTES] != self._routing.fingerprint for note in ahead):
            raise SourceKeyChanged(
                f"stream {self._shards[0].sender.key}: key, or limits, were changed while its shards have taken in ids "
                f"up to {', '.join(map(str, far))}"
            )
        self._read_id = min(far)
        return sorted(Point(last, note[FINGERPRINT_BYTES:]) for last, note in zip(far, notes, strict=True))

    def take(self, batch: Batch, now: float) -> None:
        """Offer what was read: it follows what was read last, or the lowest of `points`."""
        self.end = batch.end
        for record in batch.records:
            assert record.id > self._read_id, f"id {record.id} was read behind {self._read_id}"
            self._read_id = record.id
            routed = self._routing.route(record)
            each = self._shards[routed.shard]
            if record.id < each.sender.next_id:
                continue  # it was taken in before
            message = self._routing.message(routed, self._noted(each, record.note))
            self._offer(each, record.id, message)
            self.rows += 1
        self._read_id = max(self._read_id, batch.last_id)
        for each in self._shards:
            behind = self._read_id - each.sender.next_id + 1
            if behind <= 0:
                each.behind_since = None
            elif behind >= MARK_IDS and len(each.sender) < WINDOW_MESSAGES:
                self._mark(each, batch.note)
            elif each.behind_since is None:
                each.behind_since = now
        self._note = batch.note

    def finish(self) -> None:
        """The stream has ended behind what was read: every shard is to know of all ids, and of the end."""
        for each in self._shards:
            if self._read_id >= each.sender.next_id:
                self._mark(each, self._note)
            message = encode_mark()
            each.sender.offer_end(message)
            self._weigh(each, message)

    def _offer(self, each: _Shard, number: int, message: bytes) -> None:
        each.sender.offer(number, message)
        self._weigh(each, message)

    @staticmethod
    def _weigh(each: _Shard, message: bytes) -> None:
        each.sizes.append(len(message))
        each.bytes += len(message)
        each.behind_since = None

    def _mark(self, each: _Shard, note: bytes) -> None:
        self._offer(each, self._read_id, encode_mark(self._noted(each, note)))

    def _maybe_mark(self, each: _Shard, now: float) -> None:
        since = each.behind_since
        if since is not None and now >= since + MARK_S and self._may_mark(each):
            self._mark(each, self._note)

    def _may_mark(self, each: _Shard) -> bool:
        """Is it behind with nothing under way? What is under way moves it by itself."""
        sender = each.sender
        return not len(sender) and sender.state is SenderState.OPEN and self._read_id >= sender.next_id

    def _noted(self, each: _Shard, note: bytes) -> bytes:
        """Give the note that is to be logged; empty: it is the one that stands."""
        whole = self._routing.fingerprint + note
        if whole == each.note:
            return b""
        each.note = whole
        return whole

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        for each in self._shards:
            assert len(each.sizes) == len(each.sender)
            assert each.bytes == sum(each.sizes)
