"""Streams of one shard: how far each is, who owns it, and the inputs that handlers refused; pure.

One table per shard, a function of the log's prefix. A stream is numbered input from outside; its session is a kind of
its own beside those of clients and peers (core.tables.sessions), because its seqs are ids that its source gave: they
ascend, and may have gaps.

    unknown <------------------------ ORDER forget-stream, of a stream that nobody owns
    unknown --STREAM--> next 1 --run that follows--> next = its last seq + 1       the end of before is forgotten
                          |-----end that follows---> next as before, ended
                          |-----any other run------> as before: it is not taken
                          '-----refused, policy stop-> stopped: nothing is taken
                                   ^-----ORDER retry-input (at it), skip-input (behind it)----> as before

A run follows when it begins at the next expected seq, or when everything up to the seq that it names as its
predecessor was taken in, and nothing behind that. So a run that was logged behind one that was refused changes nothing,
whoever logged it: its source sends it again.

A refused input that is kept with its message can be run again (ORDER run-input), outside of the order of its stream:
it leaves the list in the frame of its effect, or stays with the reason of the last refusal.

Guarantees: equal calls give equal tables and snapshots; a next expected seq never goes back; a session belongs to one
stream, ever. Refused inputs that are kept are never dropped but by an order: where they have no room the stream stops
(I10). Does not: run handlers, know connections or terms (core.primary.inputs). Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError, Overloaded, StreamNotForgotten
from deathless.codec.frames import Run
from deathless.codec.peer_messages import Retried
from deathless.codec.snapshot import RefusedRecord, StreamRecord
from deathless.codec.streams.records import END_SEQ, OnRefusal, StreamKey, StreamOpened
from deathless.codec.wire import error_reply

STREAMS_MAX: Final = 10_000  # of a shard
REFUSED_MAX: Final = 10_000  # refused inputs that are listed, of all streams
REFUSED_BYTES_MAX: Final = 64 << 20  # of their messages and reasons
WHY_CHARS_MAX: Final = 1_000  # of a reason
FIRST_SEQ: Final = 1


class Stream:
    """One stream. Read its attributes freely; only StreamTable writes them."""

    __slots__ = ("ended", "key", "next_seq", "nonce", "note", "on_refusal", "refused", "session", "stopped")

    def __init__(self, key: StreamKey, session: int, nonce: bytes, on_refusal: OnRefusal) -> None:
        self.key = key
        self.session = session
        self.nonce = nonce  # of the life of its owner that took it last
        self.on_refusal = on_refusal
        self.next_seq = FIRST_SEQ  # seq that may come next, or a higher one. Invariant: never goes back
        self.ended = False  # an end has come, and no message since
        self.note = b""  # its source's
        self.refused = 0  # inputs that handlers refused, in all
        self.stopped: RefusedRecord | None = None  # the input at which it stands

    def follows(self, run: Run) -> bool:
        """Is this run what may be taken in now?"""
        if self.stopped is not None:
            return False
        if run.first_seq >= END_SEQ:
            return run.first_seq - END_SEQ == self.next_seq
        return run.first_seq == self.next_seq or run.acked + 1 == self.next_seq <= run.first_seq

    def passed(self, seq: int) -> bool:
        """Was this id, or this end, taken in?"""
        if seq >= END_SEQ:
            place = seq - END_SEQ
            return place < self.next_seq or (place == self.next_seq and self.ended)
        return seq < self.next_seq


class StreamTable:
    """All streams of one shard."""

    __slots__ = ("_by_key", "_by_session", "_bytes", "_refused")

    def __init__(self) -> None:
        self._by_session: dict[int, Stream] = {}
        self._by_key: dict[StreamKey, Stream] = {}  # Invariant: the same streams
        self._refused: list[RefusedRecord] = []  # the oldest first
        self._bytes = 0  # Invariant: what `_weight` gives for all of these

    def __len__(self) -> int:
        """Count of streams."""
        return len(self._by_session)

    def __contains__(self, session: int) -> bool:
        """Is this session a stream's?"""
        return session in self._by_session

    def get(self, session: int) -> Stream | None:
        """Give the stream of a session; None: it is none's."""
        return self._by_session.get(session)

    def find(self, key: StreamKey) -> Stream | None:
        """Give a stream by its name; None: nobody has opened it."""
        return self._by_key.get(key)

    def streams(self) -> list[Stream]:
        """Give all, by session ascending."""
        return [stream for _, stream in sorted(self._by_session.items())]

    def refused(self) -> list[RefusedRecord]:
        """Give the refused inputs that are listed, the oldest first; those at which streams stand come last."""
        stopped = [stream.stopped for stream in self.streams() if stream.stopped is not None]
        return [*self._refused, *stopped]

    def refusal(self, key: StreamKey, others: int = 0) -> DeathlessError | None:
        """Say why a stream can't be opened; None: it can. `others`: new ones that are on their way to the log."""
        if key in self._by_key or len(self._by_key) + others < STREAMS_MAX:
            return None
        return Overloaded(f"{len(self._by_key)} streams are known, at most {STREAMS_MAX}")

    # ---- records and runs --------------------------------------------------------------------------------------

    def open(self, record: StreamOpened, lsn: int) -> Stream | None:
        """Take a logged STREAM record in: its owner is the only one that may resume from now on.

        Returns: the stream; None: there is no room for one more, nothing changes.
        """
        stream = self._by_key.get(record.key)
        if stream is None:
            if self.refusal(record.key) is not None:
                return None
            stream = Stream(record.key, lsn, record.nonce, record.on_refusal)
            self._by_key[record.key] = self._by_session[lsn] = stream
        stream.nonce = record.nonce
        stream.on_refusal = record.on_refusal
        return stream

    def accept(self, stream: Stream, seq: int, note: bytes, *, mark: bool) -> None:
        """Take an id in, whose run follows: the next expected seq moves behind it."""
        assert stream.stopped is None
        assert stream.next_seq <= seq < END_SEQ, f"stream {stream.key}: seq {seq} is below {stream.next_seq}"
        stream.next_seq = seq + 1
        stream.ended = stream.ended and mark
        stream.note = note or stream.note

    def close_gap(self, stream: Stream, seq: int) -> None:
        """Nothing stands below this seq, of which a run of no message that follows says so."""
        assert stream.next_seq <= seq < END_SEQ
        stream.next_seq = seq

    def end(self, stream: Stream) -> None:
        """Take the end of a stream in, that follows; the next message begins it again."""
        assert stream.stopped is None
        stream.ended = True

    def refuse(self, stream: Stream, record: RefusedRecord, note: bytes = b"") -> bool:
        """Note that a handler refused an input; what that said of its source holds whatever becomes of it.

        Returns: whether the stream goes on behind it. False: it stands at it from now on.
        """
        why = record.why[:WHY_CHARS_MAX]
        keep = stream.on_refusal is not OnRefusal.SKIP
        record = msgspec.structs.replace(record, why=why, message=record.message if keep else b"")
        stream.refused += 1
        stream.note = note or stream.note
        if stream.stopped is not None:  # refused late, by a handler that waited
            self._list(record)
            return False
        if stream.on_refusal is not OnRefusal.STOP and self._list(record):
            return True
        stream.stopped = msgspec.structs.replace(record, message=b"")  # its source has it
        return False

    # ---- operators ---------------------------------------------------------------------------------------------

    def stands_at(self, session: int, seq: int | None) -> bool:
        """Does a stream stand at this input; None: at any?"""
        stream = self._by_session.get(session)
        stopped = stream.stopped if stream is not None else None
        return stopped is not None and seq in (None, stopped.seq)

    def go_on(self, session: int, skipped: int | None) -> None:
        """An operator lets a stream go on: with the input at which it stands, or behind it.

        Args:
            session: the stream's. One that does not stand is left as it is.
            skipped: seq of the input that is passed over; None: it is tried again.
        """
        if not self.stands_at(session, skipped):
            return
        stream = self._by_session[session]
        record, stream.stopped = stream.stopped, None
        assert record is not None
        if skipped is None:
            return
        if skipped >= END_SEQ:
            stream.ended = True
        elif skipped:
            stream.next_seq = skipped + 1
            stream.ended = False
        self._list(record)

    def listed(self, lsn: int) -> RefusedRecord | None:
        """Give the refused input that is listed with this lsn; None: there is none. Streams stand at others."""
        return next((each for each in self._refused if each.lsn == lsn), None)

    def take_off(self, record: RefusedRecord) -> None:
        """A refused input has had its effect, or an operator needs it no more: it is listed no longer."""
        self._refused.remove(record)
        self._bytes -= _weight(record)

    def refused_again(self, record: RefusedRecord, now: RefusedRecord) -> None:
        """A refused input was run again and refused again: it stays where it is listed, with the newer reason."""
        later = msgspec.structs.replace(record, at_us=now.at_us, code=now.code, why=now.why[:WHY_CHARS_MAX])
        self._refused[self._refused.index(record)] = later
        self._bytes += _weight(later) - _weight(record)

    def keeps(self, stream: Stream) -> bool:
        """Are inputs of this stream kept, that can be run again?"""
        return any(each.session == stream.session and each.message for each in self._refused)

    def forget(self, stream: Stream) -> None:
        """Nothing is known of a stream any more: opened again it begins anew, as another one."""
        assert not self.keeps(stream)
        del self._by_key[stream.key], self._by_session[stream.session]
        for record in [each for each in self._refused if each.session == stream.session]:
            self.take_off(record)

    def _list(self, record: RefusedRecord) -> bool:
        """List a refused input, the oldest of those of which nothing is kept making room. False: there is none."""
        size = _weight(record)
        while len(self._refused) >= REFUSED_MAX or self._bytes + size > REFUSED_BYTES_MAX:
            at = next((at for at, each in enumerate(self._refused) if not each.message), None)
            if at is None:
                return False
            self._bytes -= _weight(self._refused.pop(at))
        self._refused.append(record)
        self._bytes += size
        return True

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[list[StreamRecord], list[RefusedRecord]]:
        """Copy everything: streams by session, refused inputs the oldest first."""
        streams = [
            StreamRecord(
                *each.key,
                each.session,
                each.next_seq,
                each.ended,
                each.note,
                each.nonce,
                each.on_refusal.value,
                each.refused,
                each.stopped,
            )
            for each in self.streams()
        ]
        return streams, list(self._refused)

    def restore(self, streams: Iterable[StreamRecord], refused: Iterable[RefusedRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._by_key, self._by_session = {}, {}
        for record in streams:
            key = StreamKey(record.source, record.stream)
            stream = Stream(key, record.session, record.nonce, OnRefusal(record.on_refusal))
            stream.next_seq, stream.ended, stream.note = record.next_seq, record.ended, record.note
            stream.refused, stream.stopped = record.refused, record.stopped
            self._by_key[key] = self._by_session[record.session] = stream
        self._refused = list(refused)
        self._bytes = sum(map(_weight, self._refused))
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in streams and refused inputs."""
        assert sorted(self._by_key) == sorted(stream.key for stream in self._by_session.values())
        for session, stream in self._by_session.items():
            assert stream.session == session > 0
            assert FIRST_SEQ <= stream.next_seq < END_SEQ
        assert self._bytes == sum(map(_weight, self._refused))


def part_of(run: Run, at: int, count: int) -> Run:
    """Give a part of a run of a stream, from index `at` on: what it follows is the part before it."""
    first = run.first_seq + at
    return Run(run.session, first, first - 1 if at else run.acked, count)


def gap_before(run: Run) -> Run | None:
    """Give the run of no message that a PARKED record of a run's first input needs before it; None: it needs none.

    The record does not say what it follows, so it follows only what is next.
    """
    if run.acked + 1 < run.first_seq < END_SEQ:
        return Run(run.session, run.first_seq, run.acked, 0)
    return None


def not_forgotten(why: str) -> Retried:
    """Say why a stream is not forgotten."""
    return Retried(0, error_reply(StreamNotForgotten.code, StreamNotForgotten.__name__, why))


def _weight(record: RefusedRecord) -> int:
    return len(record.message) + len(record.why) + 64
