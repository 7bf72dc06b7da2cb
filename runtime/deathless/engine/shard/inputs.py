"""Runs of streams: numbered input from outside, each id once and in order; the part of `shard` that streams add.

    run that follows  -> message by message: MARK counts, FORK runs --> refused? --no--> counts
                                                                          '--yes--> as its stream says: stop, or go on
    any other run     -> changes nothing: its source sends it again

A handler refuses an input when its first turn ends in an error: the error is what a caller would have been answered. A
handler that waits has taken the input; when it fails later, that is listed too.

An operator's order runs a refused input again, at the place of the order: what is not refused leaves the list.

Guarantees: id, effect and what becomes of a refusal are of one frame; equal runs give equal tables. Does not: decide
what to log (core.primary.inputs). Imports core, codec, base and the port of the executor.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from deathless.base.errors import CorruptFrame, InputNotKept, Internal, InvalidArgument
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import FORGET_STREAM, RETRY_INPUT, RUN_INPUT, Order, Retried, Target
from deathless.codec.snapshot import ParkedRecord, RefusedRecord
from deathless.codec.streams.records import END_SEQ, InputResult, StreamKey, StreamOpened, note_of
from deathless.codec.wire import ReplyError, decode_struct, error_reply
from deathless.core.tables.stream_table import Stream, StreamTable, not_forgotten
from deathless.engine.ports import Executor

NOT_TAKEN: Final = zlib.crc32(b"not taken")
"""Digest of a message of a run that does not follow."""
MALFORMED: Final = error_reply(InvalidArgument.code, InvalidArgument.__name__, "the message is malformed")
_MARK: Final = bytes([Kind.MARK])


class Inputs:
    """The streams of one shard, where runs of them are executed.

    Args:
        executor: runs what they carry.
        streams: the shard's table.
        take_outputs: takes what turns gave; what they refused comes back by `refused`.
    """

    def __init__(self, executor: Executor, streams: StreamTable, take_outputs: Callable[[], None]) -> None:
        self.results: list[InputResult] = []  # of the frame that is executed; whoever executes it empties this
        self._executor = executor
        self._streams = streams
        self._take_outputs = take_outputs
        self._lsn = 0  # of the input that runs; 0: none does
        self._reply: bytes | None = None  # with which it was refused; None: it was not
        self._now_us = 0  # logical time

    def moved(self, times: Times) -> None:
        """The shard's times are these now."""
        self._now_us = times.time_us

    def open(self, record: StreamOpened, lsn: int) -> None:
        """Take a STREAM record in."""
        self._streams.open(record, lsn)

    def run(self, stream: Stream, run: Run, lsn: int, now_us: int, messages: Sequence[bytes]) -> list[int]:
        """Run what a stream brought; gives a u32 digest per message."""
        taken = stream.follows(run)
        digests: list[int] = []
        if taken and not messages:
            self._streams.close_gap(stream, run.first_seq)
        for at, message in enumerate(messages):
            if taken and stream.stopped is None:
                digests.append(self._run_one(stream, run.first_seq + at, lsn + at, now_us, message))
            else:
                digests.append(NOT_TAKEN)
        self._note(stream, len(messages), taken=taken)
        return digests

    def park(self, stream: Stream, record: ParkedRecord) -> bool:
        """Take an input in unrun, because it ended its process (I11); it is to be kept among the parked messages.

        Returns: False: it does not follow, so nothing of it counts.
        """
        taken = stream.follows(Run(record.session, record.seq, record.seq - 1, 1))
        if taken:
            self._count(stream, record.seq, record.message, _maybe_note(record.message) or b"")
        self._note(stream, 1, taken=taken)
        return taken

    def order(self, order: Order) -> None:
        """An operator lets a stream go on."""
        self._streams.go_on(order.invocation, None if order.command == RETRY_INPUT else order.operation)

    def see_to(self, order: Order, lsn: int, now_us: int, *, once: bool) -> Retried:
        """Run a refused input again, or take it off the list; once in all: what had its effect is not listed.

        Args:
            order: RUN_INPUT or DROP_INPUT; or FORGET_STREAM, which is about a stream.
            lsn: of the order, and so of what it runs.
            now_us: logical time, microseconds.
            once: False, for tests alone: it stays listed.

        Returns: the lsn of what was run, or was taken off; or why nothing was.
        """
        if order.command == FORGET_STREAM:
            return self._forget(order.invocation)
        record = self._streams.listed(order.invocation)
        stream = self._streams.get(record.session) if record is not None else None
        if record is None or stream is None:
            return _not_kept(f"no refused input is listed at lsn {order.invocation}")
        if order.command != RUN_INPUT:
            self._streams.take_off(record)
            return Retried(record.lsn)
        if not record.message:
            return _not_kept(f"of the input at lsn {record.lsn} the reason alone is kept")
        # The running page names the input, in session 0, as it does where a parked message is run again: a death here,
        # before the order is in the log, is held against no message (I11).
        note = _maybe_note(record.message)
        _, reply = self._execute(stream, SYSTEM_SESSION, record.lsn, lsn, now_us, record.message, note)
        if reply is not None:
            self._streams.refused_again(record, _record(lsn, stream, record.seq, now_us, reply, b""))
            return Retried(0, reply)
        if once:
            self._streams.take_off(record)
        return Retried(lsn)

    def _forget(self, session: int) -> Retried:
        """Forget a stream, unless what it brought is under way or kept: of that, nobody could be told any more."""
        stream = self._streams.get(session)
        if stream is None:
            return not_forgotten(f"session {session} is no stream's")
        if self._streams.keeps(stream):
            return not_forgotten(f"of stream {stream.key} refused inputs are kept")
        origin = f"{stream.key.target.service}/{stream.key.target.shard}"
        if any(each.origin == origin for each in self._executor.invocations()):
            return not_forgotten(f"inputs of stream {stream.key} were taken in and are under way")
        self._streams.forget(stream)
        return Retried(session)

    def refused(self, lsn: int, target: Target, reply: bytes) -> None:
        """A handler refused the input at `lsn`; if it is not the one that runs, it had waited."""
        if lsn == self._lsn:
            self._reply = reply
            return
        stream = self._streams.find(StreamKey.of(target))
        if stream is not None:
            self._streams.refuse(stream, _record(lsn, stream, 0, self._now_us, reply, b""))

    def _run_one(self, stream: Stream, seq: int, lsn: int, now_us: int, message: bytes) -> int:
        note = _maybe_note(message)
        if note is not None and message[0] == Kind.MARK:
            self._count(stream, seq, message, note)
            return zlib.crc32(message)
        digest, reply = self._execute(stream, stream.session, seq, lsn, now_us, message, note)
        if reply is None:
            self._count(stream, seq, message, note or b"")
            return digest
        if self._streams.refuse(stream, _record(lsn, stream, seq, now_us, reply, message), note or b""):
            self._count(stream, seq, message, note or b"")
        return zlib.crc32(reply, digest)

    def _execute(
        self, stream: Stream, session: int, seq: int, lsn: int, now_us: int, message: bytes, note: bytes | None
    ) -> tuple[int, bytes | None]:
        """Run one input, which the running page names by session and seq; gives its digest, and why it was refused.

        `note` is what `_maybe_note` gives for it: it is looked at once.
        """
        self._lsn, self._reply = lsn, None
        digests = self._executor.execute_peer(stream.key.target, seq, lsn, now_us, [message], session)
        self._take_outputs()
        self._lsn = 0
        if len(digests) != 1:
            raise Internal(f"executor gave {len(digests)} digests for a message")
        return digests[0], MALFORMED if note is None else self._reply

    def _count(self, stream: Stream, seq: int, message: bytes, note: bytes) -> None:
        if seq >= END_SEQ:
            self._streams.end(stream)
        else:
            self._streams.accept(stream, seq, note, mark=message[:1] == _MARK)

    def _note(self, stream: Stream, count: int, *, taken: bool) -> None:
        stopped = stream.stopped is not None
        self.results.append(InputResult(stream.session, count, stream.next_seq, stream.ended, taken, stopped))


def _maybe_note(message: bytes) -> bytes | None:
    """Give the note that a message carries, empty for none; None: the message can't be read."""
    try:
        return note_of(message)
    except CorruptFrame:
        return None


def _not_kept(why: str) -> Retried:
    return Retried(0, error_reply(InputNotKept.code, InputNotKept.__name__, why))


def _record(lsn: int, stream: Stream, seq: int, now_us: int, reply: bytes, message: bytes) -> RefusedRecord:
    try:
        told = decode_struct(ReplyError, reply[1:])
        code, why = told.code, f"{told.type}: {told.text}"
    except CorruptFrame:
        code, why = "", "its handler gave no reason"
    return RefusedRecord(lsn, stream.session, seq, now_us, code, why, message)
