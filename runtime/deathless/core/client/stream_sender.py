"""One stream at its source's end: what was offered and is not confirmed, and when it is sent; pure.

    CLOSED --connected--> OPENING --STREAM_WELCOME--> OPEN --STREAM_REFUSED(from seq)--> OPEN, from there again, later
      ^                      |                          |
      |--lost, refused-------'------lost, refused-------'
      '--fenced--> FENCED: another owner has it. It never opens the stream again

Who reads the source offers ids in order, from behind the last id of the welcome on; what a connection lost is sent
again from here. The first hello takes the stream, every later one resumes it: so a process that stood still for a
while finds out that another one has taken over, and does not take it back.

Guarantees: what is offered is sent in order, each batch with what it follows; nothing is forgotten before it is
committed. Does not: dial, read the source, know clocks but for the `now` of its calls. Imports codec and base.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from deathless.base.errors import StreamFenced
from deathless.codec.streams.packets import (
    StreamCommit,
    StreamHello,
    StreamRefused,
    StreamWelcome,
    encode_stream_batch,
)
from deathless.codec.streams.records import END_SEQ, OnRefusal, StreamKey, seq_of
from deathless.codec.wire import Type, struct_packet

BATCH_MESSAGES_MAX: Final = 1024
BATCH_BYTES_MAX: Final = 256 << 10


class State(enum.Enum):
    """See the module."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    FENCED = "fenced"


class Offered(NamedTuple):
    """One message that is not committed."""

    seq: int  # END_SEQ and above: an end
    follows: int  # seq of what was offered before it, or of the last one that was committed then
    message: bytes

    @property
    def place(self) -> int:
        """Which next seq it needs."""
        return self.follows + 1 if self.seq >= END_SEQ else self.seq


class StreamSender:
    """One stream.

    Args:
        key: which.
        nonce: 16 bytes that name this life of this owner.
        on_refusal: what becomes of inputs that handlers refuse.
    """

    def __init__(self, key: StreamKey, nonce: bytes, on_refusal: OnRefusal = OnRefusal.STOP) -> None:
        self.key = key
        self.state = State.CLOSED
        self.why = ""  # it was refused last, code first; empty: it was not since it was welcomed, or took something in
        self.next_id = -1  # that is to be offered, or a higher one; -1: nobody has said yet
        self.ended = False  # whether the end of the stream stands behind all below that
        self.note = b""  # as the last welcome told it
        self._hello = StreamHello(*key, nonce, resume=False, on_refusal=on_refusal)
        self._offered: deque[Offered] = deque()
        self._sent = 0  # how many of these were sent in this term
        self._session = 0
        self._term = 0
        self._again_at = 0.0  # nothing is sent before, in seconds of the caller's clock

    def __len__(self) -> int:
        """Count of messages that are not committed."""
        return len(self._offered)

    @property
    def committed_id(self) -> int:
        """Up to here everything is known to be taken in; -1: nothing is, or nobody has said yet."""
        offered = self._offered
        return (offered[0].follows if offered else max(seq_of(self.next_id) - 1, 0)) - 1

    @property
    def waiting_id(self) -> int:
        """The id of the first message that is not committed, or of what an end stands behind; there is one."""
        return self._offered[0].place - 1

    # ---- connections -------------------------------------------------------------------------------------------

    def hello(self) -> bytes:
        """A connection to a primary stands: what is to be sent on it first."""
        assert self.state is State.CLOSED, self.state
        self.state = State.OPENING
        return struct_packet(Type.STREAM_HELLO, self._hello)

    def lost(self) -> None:
        """The connection ended."""
        if self.state is not State.FENCED:
            self.state = State.CLOSED

    def welcomed(self, welcome: StreamWelcome) -> None:
        """The stream is ours; what was committed meanwhile is forgotten, everything else is sent."""
        if self.state is not State.OPENING or welcome.nonce != self._hello.nonce:
            return
        self.state, self.why = State.OPEN, ""
        self._hello = StreamHello(*self.key, welcome.nonce, resume=True, on_refusal=self._hello.on_refusal)
        self._session, self._term = welcome.session, welcome.term
        self._sent, self._again_at = 0, 0.0
        self.note = welcome.note
        self._forget(welcome.next_seq, ended=welcome.ended)
        if not self._offered:
            self.next_id, self.ended = welcome.next_seq - 1, welcome.ended

    def committed(self, commit: StreamCommit) -> None:
        """Everything up to here is confirmed."""
        if self.state is State.OPEN and commit.session == self._session:
            self.why = ""
            self._forget(commit.next_seq, ended=commit.ended)

    def refused(self, refused: StreamRefused, now: float) -> float | None:
        """What was sent was not admitted, or the stream is not ours.

        Returns: when to open it again, in seconds from now; None: nothing is to be opened.
        """
        if refused.nonce != self._hello.nonce or self.state in (State.CLOSED, State.FENCED):
            return None
        self.why = f"{refused.code} {refused.text}"
        wait_s = max(0, refused.retry_after_ms) / 1000
        if refused.from_seq and self.state is State.OPEN:
            self._again_at = now + wait_s
            self._sent = sum(each.place < refused.from_seq for each in islice(self._offered, self._sent))
            return None
        if refused.code == StreamFenced.code:
            self.state = State.FENCED
            return None
        self.state = State.CLOSED
        return wait_s

    # ---- input -------------------------------------------------------------------------------------------------

    def offer(self, number: int, message: bytes) -> None:
        """Have an input or a mark sent; its id is at least `next_id`, which is above it then."""
        assert 0 <= self.next_id <= number, f"id {number} is offered behind {self.next_id - 1}"
        self._offered.append(Offered(seq_of(number), seq_of(self.next_id) - 1, message))
        self.next_id, self.ended = number + 1, False

    def offer_end(self, message: bytes) -> None:
        """Have the end of the stream sent."""
        assert self.next_id >= 0
        last = seq_of(self.next_id) - 1
        self._offered.append(Offered(END_SEQ + last + 1, last, message))
        self.ended = True

    def packets(self, now: float) -> list[bytes]:
        """Give what is to be sent now."""
        if self.state is not State.OPEN or now < self._again_at:
            return []
        packets: list[bytes] = []
        while batch := self._batch():
            first = batch[0]
            packets.append(
                encode_stream_batch(
                    self._session, first.seq, first.follows, self._term, [each.message for each in batch]
                )
            )
            self._sent += len(batch)
        return packets

    def deadline(self, now: float) -> float | None:
        """When `packets` may give more than now though nothing came, in seconds of the same clock; None: never."""
        waits = self.state is State.OPEN and now < self._again_at and self._sent < len(self._offered)
        return self._again_at if waits else None

    def _batch(self) -> Sequence[Offered]:
        """Give what is sent next in one batch: ids without a gap, or an end alone."""
        batch: list[Offered] = []
        size = 0
        for each in islice(self._offered, self._sent, self._sent + BATCH_MESSAGES_MAX):
            size += len(each.message)
            if batch and (each.seq != batch[-1].seq + 1 or size > BATCH_BYTES_MAX):
                break
            batch.append(each)
            if each.seq >= END_SEQ:
                break
        return batch

    def _forget(self, next_seq: int, *, ended: bool) -> None:
        offered = self._offered
        while offered:
            first = offered[0]
            if first.place > next_seq or (first.place == next_seq and not (first.seq >= END_SEQ and ended)):
                break
            offered.popleft()
            self._sent = max(0, self._sent - 1)
