"""The deterministic part of a replica: state as a function of the log's prefix, and nothing else.

One place runs messages, for the primary before they are logged and for everybody else after they are confirmed; so the
two can't differ (I6). It composes the executor (keyed state, handlers) with the session table (I3, I5), the table of
idempotency keys, logical time and the list of parked messages.

Guarantees: `execute` gives the same replies, digests and state for the same runs in any process; `apply` raises
Diverged naming lsn and handler at the first difference to what the primary logged. Does not: files, sockets, clocks.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from deathless.base.errors import CorruptFrame, Diverged, Internal, NotParked, SessionExpired, UpgradeRequired
from deathless.base.ids import SYSTEM_SESSION, ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn, SessionId
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Times
from deathless.codec.frames import Data, Frame, Run, decode_data, encode_data
from deathless.codec.generations import Upgraded, decode_upgraded
from deathless.codec.messages import PARKED_HEADER, Kind, decode, decode_time
from deathless.codec.peer_messages import (
    DROP_INPUT,
    FORGET_STREAM,
    RETRY,
    RUN_INPUT,
    ActivityStart,
    Order,
    Reference,
    Retried,
    Target,
    decode_body,
)
from deathless.codec.snapshot import ParkedRecord, Snapshot, UnknownRecord
from deathless.codec.streams.records import InputResult
from deathless.codec.traces import Span
from deathless.codec.wire import error_reply
from deathless.core.events import RunResult
from deathless.core.replica.replica import ShardPlace
from deathless.core.tables.keys import KeyTable
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable
from deathless.core.tables.results import Results
from deathless.core.tables.sessions import Session, SessionTable
from deathless.core.tables.undelivered import Undelivered
from deathless.core.tables.unknown_outcomes import UnknownOutcomes
from deathless.engine.ports import Executor
from deathless.engine.shard.messaging import Asked, Messaging, describe, parked_reply
from deathless.execution.ready import Ready

PARKED_MAX = 10_000  # parked messages kept for operators; the oldest goes first
PARKED_BYTES_MAX = 256 << 20  # the same, bytes
NAMED_MAX = 8  # messages that a divergence names
RETRIED_MAX = 1024  # orders to run one again whose end is remembered, until it is told
_ANSWERED = (RETRY, RUN_INPUT, DROP_INPUT, FORGET_STREAM)  # orders that are answered with what became of them


@dataclass(slots=True)
class Executed:
    """What a frame's messages gave; `payload` is the frame's.

    `results` are replies by run, in the order of the log; a run of a peer has none. What follows them is for once the
    frame is confirmed (I1).
    """

    payload: bytes
    count: int
    results: list[RunResult]
    registered: list[tuple[bytes, int]]
    sent: list[tuple[Target, int]] = field(default_factory=list)  # next position of each outbox that became longer
    starts: list[ActivityStart] = field(default_factory=list)
    stops: list[Reference] = field(default_factory=list)
    finished: list[tuple[int, bytes]] = field(default_factory=list)  # (invocation, reply) that a caller was promised
    spans: list[Span] = field(default_factory=list)  # what is over, for traces
    unknown: list[UnknownRecord] = field(default_factory=list)  # activities that may have been done
    inputs: list[InputResult] = field(default_factory=list)  # what runs of streams came to

    @property
    def plain(self) -> bool:
        """Did its messages give replies, and nothing else that leaves this process or is waited for?"""
        return not (
            self.registered
            or self.sent
            or self.starts
            or self.stops
            or self.finished
            or self.spans
            or self.unknown
            or self.inputs
        )


class Shard:
    """State, sessions, keys and time of one shard.

    Args:
        executor: runs CALL messages.
        sessions, keys: the tables; shared with the core, which reads them.
        place: where the shard stands; this is its only writer.
        outbox, peers, results: further tables, made here when not given.
    """

    def __init__(
        self,
        executor: Executor,
        sessions: SessionTable,
        keys: KeyTable,
        place: ShardPlace,
        limits: Limits,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        *,
        outbox: Outbox | None = None,
        peers: PeerTable | None = None,
        results: Results | None = None,
    ) -> None:
        self.executor = executor
        self.sessions = sessions
        self.keys = keys
        self.place = place
        self.parked: list[ParkedRecord] = []
        self.first = False  # True: messages run that are in no log yet, so nobody has run them before
        self.retried: dict[int, Retried] = {}  # by lsn of what is parked or refused: what this process did; not kept
        self._limits = limits
        self._safeguards = safeguards
        self.outbox = Outbox() if outbox is None else outbox
        self.peers = PeerTable(limits) if peers is None else peers
        self.results = Results(limits) if results is None else results
        self.unknown = UnknownOutcomes(limits)
        self.undelivered = Undelivered()
        self._messaging = Messaging(
            executor, sessions, self.outbox, self.peers, self.results, self.unknown, self.undelivered
        )
        # A new schedule waits for a first time record, also where nothing else happens.
        place.due = executor.due()

    def execute(self, runs: Sequence[tuple[Run, Sequence[bytes]]]) -> Executed:
        """Run messages as the primary; gives the payload of their frame. Moves lsn and time, not the chain."""
        self.first = True
        try:
            results, digests, registered, digest = self._run(runs)
        finally:
            self.first = False
        messages = [message for _, part in runs for message in part]
        ends = struct.pack(f"<{len(messages)}I", *accumulate(map(len, messages)))
        columns = struct.pack(f"<{len(digests)}I", *digests)
        payload = encode_data([run for run, _ in runs], ends, columns, digest, b"".join(messages))
        messaging = self._messaging
        asked = messaging.asked
        return Executed(
            payload,
            len(messages),
            results,
            registered,
            messaging.sent(),
            asked.starts,
            asked.stops,
            asked.finished,
            asked.spans,
            asked.unknown,
            messaging.inputs.results,
        )

    def apply(self, frame: Frame) -> list[RunResult]:
        """Run a confirmed frame and compare.

        Raises: Diverged naming lsn and handler; CorruptFrame when it does not fit the chain. Both stop the replica.
        """
        place = self.place
        if frame.first_lsn != place.lsn + 1 or frame.prev_chain != place.chain:
            raise CorruptFrame(f"frame at lsn {frame.first_lsn} does not follow lsn {place.lsn} on the chain")
        data = decode_data(frame)
        runs = cut_runs(data)
        results, digests, _, digest = self._run(runs)
        if self._safeguards.compare_digests and (tuple(digests) != data.digests or digest != data.digest):
            raise self._difference(frame, data, digests)
        place.chain = frame.chain
        return results

    def _run(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]]
    ) -> tuple[list[RunResult], list[int], list[tuple[bytes, int]], Digest]:
        place = self.place
        results: list[RunResult] = []
        registered: list[tuple[bytes, int]] = []
        digests: list[int] = []
        rolling = hashlib.blake2b(place.digest, digest_size=16)
        lsn = place.lsn + 1
        sessions, executor, messaging = self.sessions, self.executor, self._messaging
        messaging.asked = Asked()
        messaging.inputs.results = []
        at, end = 0, len(runs)
        executor.open()
        try:
            while at < end:
                run, messages = runs[at]
                session, _, _, count = run
                known = sessions.get(session) if session else None
                if known is not None and not known.peer:
                    calls, senders, at = self._accept(runs, at)
                    # Right here, and not in a method: how deep the stack is counts (see depth).
                    done = executor.execute_runs(calls, lsn, place.time_us)
                    lsn = self._keep(calls, senders, done, lsn, results, digests, rolling)
                    continue
                at += 1
                if session == 0:
                    for message in messages:
                        wrote = self._run_system(message, lsn, results, registered)
                        digests.append(zlib.crc32(wrote, zlib.crc32(message)))
                        rolling.update(message)
                        rolling.update(wrote)
                        lsn += 1
                elif (stream := sessions.streams.get(session)) is not None:
                    digests += messaging.inputs.run(stream, run, lsn, place.time_us, messages)
                    results.append(RunResult(run, ()))
                    rolling.update(executor.rolling_update())
                    lsn += count
                elif known is None:
                    gone = session_gone(session)
                    results.append(RunResult(run, [gone] * count))
                    digests.extend([zlib.crc32(gone)] * count)
                    lsn += count
                else:
                    digests += messaging.run_peer(run, lsn, place.time_us, messages)
                    messaging.take_outputs()
                    results.append(RunResult(run, (), known.history))
                    rolling.update(executor.rolling_update())
                    lsn += count
        finally:
            executor.close()
        place.lsn = lsn - 1
        place.due = executor.due()
        place.digest = rolling.digest()
        return results, digests, registered, Digest(place.digest)

    def _accept(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], at: int
    ) -> tuple[list[tuple[Run, Sequence[bytes]]], list[Session], int]:
        """Take in clients' runs in a row, from index `at` on.

        Returns: those to be executed, the session of each, and the index behind the row.
        """
        client, accept, age_us = self.sessions.client, self.sessions.accept, self.place.times.age_us
        calls: list[tuple[Run, Sequence[bytes]]] = []
        senders: list[Session] = []
        for each in runs[at:] if at else runs:
            run = each[0]
            if client(run[0]) is None:  # the shard's own, a peer's, or gone
                break
            session = accept(run, age_us)
            at += 1
            if run[3]:
                calls.append(each)
                senders.append(session)
        return calls, senders, at

    def _keep(
        self,
        calls: Sequence[tuple[Run, Sequence[bytes]]],
        senders: Sequence[Session],
        done: Sequence[tuple[list[bytes], list[int], bytes]],
        lsn: int,
        results: list[RunResult],
        digests: list[int],
        rolling: hashlib.blake2b,
    ) -> int:
        """Keep what clients' runs gave; the lsn behind them."""
        keep = self.sessions.keep if self._safeguards.record_replies else None
        for (run, _), session, (replies, columns, update) in zip(calls, senders, done, strict=True):
            count = run[3]
            if len(replies) != count or len(columns) != count:
                raise Internal(f"executor gave {len(replies)} replies to {count} messages")
            if keep is not None:
                keep(session, run[1], replies)
            digests += columns
            results.append(RunResult(run, replies))
            rolling.update(update)
            lsn += count
        self._messaging.take_outputs()
        return lsn

    def _run_system(
        self, message: bytes, lsn: int, results: list[RunResult], registered: list[tuple[bytes, int]]
    ) -> bytes:
        """Take a record in; gives what its turns wrote in short, b"" when there were none or they wrote nothing."""
        kind, _, _, _, body = decode(message)
        place = self.place
        if kind == Kind.TIME:
            before_us, times = place.times.time_us, place.times.later(decode_time(body))
            jump_us = self._limits.time_jump_max_s * 1_000_000  # that a record of version 1 moved it by at most
            caught_up = times.time_us - before_us < jump_us or not before_us or not times.single
            self._move_to(times)
            self.sessions.expire(times.age_us)
            self.keys.expire()
            return self._messaging.advance(lsn, times, caught_up=caught_up)
        if kind == Kind.REGISTER:
            registered.append((body, self.sessions.register(SessionId(lsn), body, place.times.age_us)))
        elif kind == Kind.PARKED:
            session, seq = PARKED_HEADER.unpack_from(body)
            return self._park(ParkedRecord(lsn, session, seq, body[PARKED_HEADER.size :]), results)
        elif kind == Kind.ORDER and (order := decode_body(Order, body)).command in _ANSWERED:
            return self._retry(order.invocation, lsn) if order.command == RETRY else self._see_to(order, lsn)
        elif kind == Kind.UPGRADED:
            if not self.first:
                raise _across(decode_upgraded(body), lsn)
        elif kind == Kind.REBASED:
            pass  # for who reads the log from its beginning: the checkpoint it names is the newest already
        else:
            return self._messaging.run_record(kind, body, lsn, place.time_us)
        return b""

    def _move_to(self, times: Times) -> None:
        """The shard's times are these now, for all that measures by them."""
        self.place.times = times
        self.keys.moved(times)
        self.executor.moved(times)
        self._messaging.moved(times)

    def _park(self, record: ParkedRecord, results: list[RunResult]) -> bytes:
        """The message is not run; its caller gets a typed, recorded error (I11)."""
        run = Run(record.session, record.seq, 0, 1)
        stream = self.sessions.streams.get(record.session)
        if stream is not None:
            results.append(RunResult(run, ()))
            if not self._messaging.inputs.park(stream, record):
                return b""
        if record.session == SYSTEM_SESSION:
            # What has not begun can be run again as a whole. What has begun is kept without a message: it can't.
            record = msgspec.structs.replace(record, message=self.executor.not_begun(record.seq))
        self.parked.append(record)
        size = sum(len(each.message) for each in self.parked)
        while len(self.parked) > PARKED_MAX or size > PARKED_BYTES_MAX:
            size -= len(self.parked.pop(0).message)
        if record.session == SYSTEM_SESSION:
            return self._messaging.park_invocation(record, self.place.time_us)
        if stream is not None:
            return b""
        session = self.sessions.get(SessionId(record.session))
        if session is None:
            results.append(RunResult(run, [session_gone(record.session)]))
            return b""
        if session.peer:
            wrote = self._messaging.park(record, self.place.time_us)
            results.append(RunResult(run, (), session.history))
            return wrote
        self.sessions.accept(run, self.place.times.age_us)
        reply = parked_reply(record.lsn)
        self.sessions.record(record.session, record.seq, [reply])
        results.append(RunResult(run, [reply]))
        return b""

    def _retry(self, parked: int, lsn: int) -> bytes:
        """Run what the PARKED record at lsn `parked` set aside, once in all: what was run leaves the list."""
        record = next((each for each in self.parked if each.lsn == parked), None)
        if record is None:
            told, wrote = _nothing_parked(parked), b""
        else:
            refusal = self.executor.retry(lsn, self.place.time_us, parked, record.message)
            told = Retried(0, refusal) if refusal else Retried(lsn)
            if not refusal:
                self.parked.remove(record)
            wrote = self._messaging.settle()
        self._tell(parked, told)
        return wrote

    def _see_to(self, order: Order, lsn: int) -> bytes:
        """Run a refused input of a stream again, or take it off the list, once in all; or forget a stream."""
        once = self._safeguards.run_input_once
        told = self._messaging.inputs.see_to(order, lsn, self.place.time_us, once=once)
        self._tell(order.invocation, told)
        return self._messaging.settle() + told.reason

    def _tell(self, lsn: int, told: Retried) -> None:
        self.retried[lsn] = told
        while len(self.retried) > RETRIED_MAX:
            del self.retried[next(iter(self.retried))]

    def take_retried(self, lsn: int) -> Retried:
        """Give what became of the last order about what is parked or refused at this lsn, and forget it."""
        return self.retried.pop(lsn, _nothing_parked(lsn))

    def _difference(self, frame: Frame, data: Data, digests: list[int]) -> Diverged:
        """Name the first message whose digest differs, or all where what differs is in the frame's alone.

        A message's digest is one checksum of its new state and its reply: which of the two differs is not known.
        """
        differ = [at for at, (ours, theirs) in enumerate(zip(digests, data.digests, strict=True)) if ours != theirs]
        named = []
        for at in differ[:1] or range(len(digests)):
            lsn = frame.first_lsn + at
            turns = [turn for turn in self._messaging.asked.turns if turn.lsn == lsn]
            start = data.ends[at - 1] if at else 0
            named.append(f"lsn {lsn}: {describe(data.blob[start : data.ends[at]], turns)}")
        if differ:
            error = Diverged(f"{named[0]} gave another state or reply")
            error.lsn = frame.first_lsn + differ[0]
            return error
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        what = "their states and replies are the same, and what they sent or caused is not"
        return Diverged(f"{'; '.join(named[:NAMED_MAX])}{more}: {what}")

    def snapshot(
        self,
        *,
        service: str,
        service_id: bytes,
        incarnation: int,
        epoch: int,
        fingerprint: bytes,
        state: dict[bytes, bytes] | None = None,
        invocations: list[bytes] | None = None,
    ) -> Snapshot:
        """Copy everything at the current place; the state's bytes are shared, the containers are not.

        With `state` or `invocations` those are given as they are, in place of a copy of what the executor holds: that
        takes as long as there are some.
        """
        place = self.place
        streams, refused = self.sessions.streams.snapshot()
        return Snapshot(
            service=service,
            service_id=service_id,
            incarnation=Incarnation(incarnation),
            epoch=Epoch(epoch),
            lsn=Lsn(place.lsn),
            chain=ChainHash(place.chain),
            digest=Digest(place.digest),
            times=place.times,
            fingerprint=Fingerprint(fingerprint),
            state=dict(self.executor.state()) if state is None else state,
            sessions=self.sessions.snapshot(),
            keys=self.keys.snapshot(),
            keys_floor_us=self.keys.floor_us,
            parked=list(self.parked),
            invocations=self.executor.suspended() if invocations is None else invocations,
            outbox=self.outbox.snapshot(),
            peers=self.peers.snapshot(),
            results=self.results.snapshot(),
            unknown=self.unknown.snapshot(),
            undelivered=self.undelivered.snapshot(),
            streams=streams,
            refused=refused,
            generation=place.generation,
        )

    def make_ready(self, ready: Ready) -> Iterator[None]:
        """Make ready, in short steps, what a later `restore` is given; until then the shard holds nothing of it."""
        while ready.make_some(self.executor):
            yield

    def restore(self, snapshot: Snapshot, *, same_code: bool = True, ready: Ready | None = None) -> None:
        """Replace everything by a checkpoint's content.

        Args:
            snapshot: the checkpoint.
            same_code: its fingerprint is that of the code that runs here; else what does not fit the code is held.
            ready: made ready of the states that `snapshot.since` counts from, of other code; None: nothing was.

        Raises: as Executor.restore.
        """
        self._move_to(snapshot.times)
        if ready is None or snapshot.since is None:
            self.executor.restore(snapshot.state, snapshot.invocations, same_code=same_code)
        else:
            since = snapshot.since
            changed, gone = (since.changed, since.gone) if self._safeguards.changes_since_ready else ({}, ())
            ready.restore(self.executor, changed, gone, snapshot.invocations)
        self.sessions.restore(snapshot.sessions)
        self.keys.restore(snapshot.keys, snapshot.keys_floor_us)
        self.parked = list(snapshot.parked)
        self._messaging.restore(snapshot)
        place = self.place
        place.lsn, place.chain, place.digest = snapshot.lsn, snapshot.chain, snapshot.digest
        place.due = self.executor.due()
        place.generation = snapshot.generation


def _nothing_parked(parked: int) -> Retried:
    return Retried(0, error_reply(NotParked.code, NotParked.__name__, f"nothing is parked at lsn {parked}"))


def _across(upgraded: Upgraded, lsn: int) -> UpgradeRequired:
    return UpgradeRequired(
        f"generation {upgraded.generation} of the code begins at lsn {lsn}: what was run before can't be run on",
        remedy=f"begin at the checkpoint at lsn {lsn}, with the code of that generation",
    )


def session_gone(session: int) -> bytes:
    """Give the reply to a message whose session ended between its admission and its turn (I5)."""
    return error_reply(SessionExpired.code, "SessionExpired", f"session {session} is not known")


def cut_runs(data: Data) -> list[tuple[Run, list[bytes]]]:
    """Give each run of a frame with its messages."""
    blob = data.blob
    messages = [blob[a:b] for a, b in zip((0, *data.ends), data.ends, strict=False)]
    runs: list[tuple[Run, list[bytes]]] = []
    at = 0
    for run in data.runs:
        runs.append((run, messages[at : at + run.count]))
        at += run.count
    return runs
