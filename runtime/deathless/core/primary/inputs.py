"""Streams at a primary: who owns each, and what of its numbered input is admitted, by id, exactly once.

    STREAM_HELLO take   -> the owner of before is fenced at once; STREAM is logged with the new owner's nonce
                 resume -> the nonce is the one that was logged last? no: STREAM_REFUSED(StreamFenced)
        then wait until the record, and all that was admitted of the stream, is confirmed (I1)
                        -> STREAM_WELCOME(session, term, next seq): all below it is confirmed
    STREAM_BATCH of the owner's term -> (follows what was admitted?) -> (id below the next: dropped) -> (I10) -> pending
                        no: dropped, or STREAM_REFUSED(from seq): it is sent again

Why ids and not positions: a position names one message for ever only if an outbox gave it. Whoever relays a stream has
none: after its own death, or beside another one, it would give one position to two messages, and the second would be
lost as a repetition of the first. An id was given by the source, to one message, for ever.

Why a batch names what it follows: ids may have gaps, so an id alone does not show that something before it is
missing, because it was refused or because a connection ended. What follows nothing that was admitted is dropped,
whoever sent it; and each logged run says the same, so that it holds for what is admitted and not yet run as well (see
core.tables.stream_table).

Why the welcome waits: the newcomer's source forgets what it is told was taken in. Until a proof covers that, a
successor of ours may not have it.

A stream's input counts as a client's where something is full: what it waits for is empty again without it.

Guarantees: at most one term per stream counts; nothing is committed before its frame is confirmed; a fenced owner
learns that it is fenced, and one that is not does not. Does not: read input (sources do), run it
(engine.shard.inputs). Imports core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.base.errors import (
    CorruptFrame,
    DeathlessError,
    InputRefused,
    InvalidArgument,
    NotPrimary,
    OutOfSpace,
    Overloaded,
    StreamFenced,
    TooLarge,
)
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Run
from deathless.codec.generations import NEWEST
from deathless.codec.messages import HEADER_BYTES, Kind, encode
from deathless.codec.peer_messages import encode_body
from deathless.codec.streams.packets import StreamBatch, StreamCommit, StreamHello, StreamRefused, StreamWelcome
from deathless.codec.streams.records import END_SEQ, InputResult, StreamKey, note_of
from deathless.codec.wire import Type, struct_packet
from deathless.core.effects import Effect, Send
from deathless.core.events import Conn
from deathless.core.primary.admission import SPACE_RETRY_S, Admission, cut_messages
from deathless.core.primary.own_records import OwnRecords
from deathless.core.tables.stream_table import Stream

AGAIN_MS: Final = 50  # told to whom the next hello may be answered otherwise
STOPPED_RETRY_MS: Final = 1000  # told to the source of a stream that stands
_OF_STREAMS: Final = frozenset({int(Kind.FORK), int(Kind.MARK)})


class Newcomer(NamedTuple):
    """Who waits to be welcomed."""

    conn: Conn
    nonce: bytes


class Owner(NamedTuple):
    """Who was welcomed last."""

    conn: Conn
    nonce: bytes
    term: int


@dataclass(slots=True)
class Admitted:
    """How far a stream is admitted, while anything of it is unconfirmed."""

    next_seq: int
    ended: bool
    waiting: int = 0  # messages that wait for a frame, or are in the one that runs
    ran: int = 0  # messages of frames that ran and are not confirmed


class Inputs:
    """The streams that sources have opened at one primary.

    Args:
        admission: holds what is pending, and says what is full.
        records: takes what is to be logged.
        level: format level of the log, which sources are told.
    """

    def __init__(
        self,
        *,
        admission: Admission,
        records: OwnRecords,
        limits: Limits,
        safeguards: Safeguards,
        level: Callable[[], int] = lambda: NEWEST,
    ) -> None:
        self.dropped = 0  # messages that came too early, or of a term that was over; for metrics
        self.repeated = 0  # messages whose id was admitted before; likewise
        self._streams = admission.streams
        self._admission = admission
        self._records = records
        self._limits = limits
        self._safeguards = safeguards
        self._level = level
        self._owners: dict[StreamKey, Owner] = {}
        self._newcomers: dict[StreamKey, Newcomer] = {}  # the newest of each; not the owner
        self._logging: dict[StreamKey, int] = {}  # how many STREAM records of each are not confirmed
        self._admitted: dict[int, Admitted] = {}  # by session
        self._forgetting: dict[int, StreamKey] = {}  # by session: an order to forget them is on its way to the log
        self._term = 0  # that was given last

    # ---- owners ------------------------------------------------------------------------------------------------

    def hello_received(self, conn: Conn, hello: StreamHello) -> list[Effect]:
        """Somebody wants to own a stream."""
        key, stream = hello.key, self._streams.find(hello.key)
        refusal = self._streams.refusal(key, len(self._logging))
        if key in self._forgetting.values():
            refusal = Overloaded(f"stream {key} is being forgotten")
        if refusal is None and hello.resume and self._is_fenced(key, stream, hello.nonce):
            refusal = StreamFenced(f"stream {key} was taken by another owner")
        if refusal is not None:
            wait_ms = -1 if isinstance(refusal, StreamFenced) else AGAIN_MS
            return [_refused(conn, key, hello.nonce, refusal, wait_ms)]
        effects = self._displace(key, hello.nonce)
        self._newcomers[key] = Newcomer(conn, hello.nonce)
        if self._owned_by(stream, hello) and key not in self._logging:
            return [*effects, *self._maybe_welcome(key)]
        self._logging[key] = self._logging.get(key, 0) + 1
        self._records.add(encode(Kind.STREAM, args=encode_body(hello.record())), lambda: self._opened(key))
        return effects

    def _is_fenced(self, key: StreamKey, stream: Stream | None, nonce: bytes) -> bool:
        """Has another owner than this one taken the stream since?"""
        here = self._newcomers.get(key) or self._owners.get(key)
        if here is not None:
            return here.nonce != nonce
        return stream is not None and stream.nonce != nonce

    @staticmethod
    def _owned_by(stream: Stream | None, hello: StreamHello) -> bool:
        """Does the log say already what a STREAM record of this hello would?"""
        return stream is not None and (stream.nonce, stream.on_refusal) == (hello.nonce, hello.on_refusal)

    def _displace(self, key: StreamKey, nonce: bytes) -> list[Effect]:
        """End the term of the owner, and who waited; they are told, unless they are the one that comes."""
        before = [each for each in (self._owners.pop(key, None), self._newcomers.pop(key, None)) if each is not None]
        error = StreamFenced(f"stream {key} is taken by another owner")
        return [_refused(each.conn, key, each.nonce, error, -1) for each in before if each.nonce != nonce]

    def _opened(self, key: StreamKey) -> Sequence[Effect]:
        """A STREAM record is confirmed."""
        self._logging[key] -= 1
        if not self._logging[key]:
            del self._logging[key]
        return self._maybe_welcome(key)

    def _maybe_welcome(self, key: StreamKey) -> list[Effect]:
        """Welcome who waits, once nothing of the stream is unconfirmed."""
        newcomer, stream = self._newcomers.get(key), self._streams.find(key)
        if newcomer is None or key in self._logging:
            return []
        conn, nonce = newcomer
        if stream is None:  # there was no room for one more
            del self._newcomers[key]
            refusal = self._streams.refusal(key) or InvalidArgument("it was not opened")
            return [_refused(conn, key, nonce, refusal, AGAIN_MS)]
        admitted = self._admitted.get(stream.session)
        if admitted is not None and self._safeguards.welcome_confirmed:
            return []
        del self._newcomers[key]
        if stream.stopped is not None:
            return [_refused(conn, key, nonce, _stands(stream), STOPPED_RETRY_MS)]
        self._term += 1
        self._owners[key] = Owner(conn, nonce, self._term)
        next_seq = admitted.next_seq if admitted is not None else stream.next_seq
        ended = admitted.ended if admitted is not None else stream.ended
        level = self._level() if self._safeguards.write_by_level else NEWEST
        welcome = StreamWelcome(*key, nonce, stream.session, self._term, next_seq, ended, stream.note, level)
        return [Send(conn, struct_packet(Type.STREAM_WELCOME, welcome))]

    def forget(self, session: int) -> str:
        """Let nobody open a stream until an order to forget it is confirmed (`forgotten`).

        Returns: why it can't be forgotten; empty: it can be, as far as we know.
        """
        stream = self._streams.get(session)
        key = stream.key if stream is not None else None
        if key is None or not self._safeguards.forget_unused:
            return ""  # the shard says so
        if key in self._owners or key in self._newcomers or key in self._logging or session in self._admitted:
            return f"somebody owns stream {key}"
        self._forgetting[session] = key
        return ""

    def forgotten(self, session: int) -> None:
        """An order to forget a stream is confirmed, whatever came of it: the stream may be opened."""
        self._forgetting.pop(session, None)

    def leaving(self, conn: Conn, hello: StreamHello) -> list[Effect]:
        """We let go: a source looks for whoever comes."""
        return [_refused(conn, hello.key, hello.nonce, NotPrimary("this primary lets go"), AGAIN_MS)]

    def connection_lost(self, conn: Conn) -> None:
        """Forget a connection, and the terms of its streams."""
        for key in [key for key, each in self._owners.items() if each.conn == conn]:
            del self._owners[key]
        for key in [key for key, each in self._newcomers.items() if each.conn == conn]:
            del self._newcomers[key]

    def owned(self) -> dict[StreamKey, Owner]:
        """Give the owners, for operators."""
        return dict(self._owners)

    # ---- input -------------------------------------------------------------------------------------------------

    def batch_received(self, conn: Conn, received: StreamBatch) -> list[Effect]:
        """Admit what an owner sends: what follows, and of that what was not admitted before."""
        run = received.batch.run
        stream = self._streams.get(run.session)
        owner = self._owners.get(stream.key) if stream is not None else None
        if stream is None or owner is None or (owner.conn, owner.term) != (conn, received.term):
            self.dropped += run.count
            return []
        if not run.count or stream.stopped is not None:
            return []
        messages = cut_messages(received.batch)
        malformed = self._misformed(run, messages)
        if malformed is not None:
            del self._owners[stream.key]
            return [_refused(conn, stream.key, owner.nonce, malformed, -1)]
        admitted = self._admitted.get(run.session)
        next_seq = admitted.next_seq if admitted is not None else stream.next_seq
        ended = admitted.ended if admitted is not None else stream.ended
        if not self._safeguards.admit_by_id and run.first_seq < END_SEQ:
            # Whatever comes on the newest connection is the next.
            run = Run(run.session, next_seq, next_seq - 1, run.count)
        if run.acked >= next_seq:
            self.dropped += run.count
            return []
        if run.first_seq >= END_SEQ:
            if run.acked + 1 < next_seq or (ended and self._safeguards.remember_end):
                return self._repeated(stream, owner, run.count)
            admit = Run(run.session, END_SEQ + next_seq, next_seq - 1, 1)
        else:
            skip = max(0, min(next_seq - run.first_seq, run.count))
            if skip == run.count:
                return self._repeated(stream, owner, run.count)
            self.repeated += skip
            messages = messages[skip:]
            admit = Run(run.session, run.first_seq + skip, next_seq - 1, run.count - skip)
        refusal = self._admission.why_refused(admit.count, sum(map(len, messages)))
        if refusal is not None:
            return [_refused(conn, stream.key, owner.nonce, *refusal, from_seq=next_seq)]
        self._admit(stream, admit, messages, admitted)
        return []

    def _admit(self, stream: Stream, run: Run, messages: Sequence[bytes], admitted: Admitted | None) -> None:
        if admitted is None:
            admitted = self._admitted[stream.session] = Admitted(stream.next_seq, stream.ended)
        if run.first_seq >= END_SEQ:
            admitted.ended = True
        else:
            admitted.next_seq = run.first_seq + run.count
            admitted.ended = admitted.ended and all(message[0] == Kind.MARK for message in messages)
        admitted.waiting += run.count
        self._admission.admit_input(run, messages)

    def _repeated(self, stream: Stream, owner: Owner, count: int) -> list[Effect]:
        """All of it was admitted before: it is committed again once it is confirmed."""
        self.repeated += count
        return [] if stream.session in self._admitted else [_committed(owner.conn, stream)]

    def _misformed(self, run: Run, messages: Sequence[bytes]) -> DeathlessError | None:
        size_max = self._limits.message_bytes_max
        longest = max(map(len, messages))
        if longest > size_max:
            return TooLarge(f"input of {longest} bytes, at most {size_max}")
        if run.first_seq >= END_SEQ:
            if run.count != 1:
                return InvalidArgument("the end of a stream comes alone")
        elif not run.acked < run.first_seq <= END_SEQ - 1 - run.count:
            return InvalidArgument("ids ascend, and end below 2^63 - 1")
        if min(map(len, messages)) < HEADER_BYTES or not {message[0] for message in messages} <= _OF_STREAMS:
            return InvalidArgument("sources send FORK and MARK messages only")
        try:
            for message in messages:
                note_of(message)
        except CorruptFrame as error:
            return InvalidArgument(error.message)
        return None

    # ---- frames ------------------------------------------------------------------------------------------------

    def frame_synced(self, results: Sequence[InputResult]) -> None:
        """A frame ran and is durable."""
        for result in results:
            admitted = self._admitted.get(result.session)
            if admitted is not None:
                admitted.waiting -= result.count
                admitted.ran += result.count

    def frame_refused(self) -> list[Effect]:
        """There was no room for a frame: nothing of it ran, and what waited is forgotten. The owners send it again."""
        effects: list[Effect] = []
        for session, admitted in list(self._admitted.items()):
            stream = self._streams.get(session)
            assert stream is not None, "streams are not forgotten"
            if not admitted.waiting:
                continue
            admitted.waiting, admitted.next_seq, admitted.ended = 0, stream.next_seq, stream.ended
            owner = self._owners.get(stream.key)
            if owner is not None:
                wait_ms = int(SPACE_RETRY_S * 1000)
                error = OutOfSpace("no room in the log")
                effects.append(_refused(owner.conn, stream.key, owner.nonce, error, wait_ms, from_seq=stream.next_seq))
            effects += self._maybe_settled(session, admitted)
        return effects

    def frame_confirmed(self, results: Sequence[InputResult], out: dict[Conn, list[bytes]]) -> None:
        """A proof covers a frame: its owners are told, and who waits may be welcome."""
        for result in {each.session: each for each in results}.values():
            stream = self._streams.get(result.session)
            assert stream is not None, "streams are not forgotten"
            owner = self._owners.get(stream.key)
            if owner is None:
                continue
            if result.stopped or not result.taken:
                del self._owners[stream.key]
                error, wait_ms = (_stands(stream), STOPPED_RETRY_MS) if stream.stopped else (_lagging(stream), AGAIN_MS)
                send = _refused(owner.conn, stream.key, owner.nonce, error, wait_ms)
            else:
                send = _committed(owner.conn, result)
            out.setdefault(send.conn, []).append(send.data)
        for result in results:
            admitted = self._admitted.get(result.session)
            if admitted is None:
                continue
            admitted.ran -= result.count
            for effect in self._maybe_settled(result.session, admitted):
                assert isinstance(effect, Send)
                out.setdefault(effect.conn, []).append(effect.data)

    def _maybe_settled(self, session: int, admitted: Admitted) -> list[Effect]:
        """Nothing of a stream is unconfirmed any more: the table says how far it is."""
        if admitted.waiting or admitted.ran or session not in self._admitted:
            return []
        del self._admitted[session]
        stream = self._streams.get(session)
        assert stream is not None, "streams are not forgotten"
        return self._maybe_welcome(stream.key)

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        assert not self._owners.keys() & self._newcomers.keys()
        assert all(count > 0 for count in self._logging.values())
        for session, admitted in self._admitted.items():
            assert session in self._streams
            assert admitted.waiting >= 0
            assert admitted.ran >= 0
            assert admitted.waiting + admitted.ran > 0


def _stands(stream: Stream) -> InputRefused:
    stopped = stream.stopped
    assert stopped is not None
    return InputRefused(f"stream {stream.key} stands at seq {stopped.seq}: {stopped.code} {stopped.why}")


def _lagging(stream: Stream) -> NotPrimary:
    return NotPrimary(f"stream {stream.key} stood meanwhile: open it again")


def _committed(conn: Conn, stands: Stream | InputResult) -> Send:
    commit = StreamCommit(stands.session, stands.next_seq, stands.ended)
    return Send(conn, struct_packet(Type.STREAM_COMMIT, commit))


def _refused(conn: Conn, key: StreamKey, nonce: bytes, error: DeathlessError, wait_ms: int, from_seq: int = 0) -> Send:
    body = StreamRefused(*key, nonce, error.code, error.message, wait_ms, from_seq)
    return Send(conn, struct_packet(Type.STREAM_REFUSED, body))
