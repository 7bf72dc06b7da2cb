"""Payloads of a checkpoint's sections about messaging: INVOCATIONS to HISTORIES (format versions 1 and 2).

    INVOCATIONS  count x u32 length, suspended invocations (opaque: the executor's own)
    OUTBOX       u64 position of the first message, u32 shard, u32 bytes of the name, name of the service,
                 count x u32 length, messages; of one target each, a target's sections one behind the other
    PEERS        count x (u64 session, u64 incarnation, 16 byte service id, u32 shard, u32 bytes of the name), names
    RESULTS      count x (u64 invocation, u64 time, u32 length, u32 0), replies
    UNKNOWN      count x (u64 invocation, u64 operation, u64 lsn, u64 time, 4 x u32 length: handler, key, activity,
                 its key), handlers, keys, activities, their keys
    UNDELIVERED  count x (u64 id, u64 position, u64 time, u32 shard, 3 x u32 length: name, reason, message), names,
                 reasons, messages
    HISTORIES    count x (u64 session, 16 byte history, u32 shard, u32 bytes of the name), names

All integers are little-endian; targets and peers ascend by (service, shard). A target without messages has one section
of count 0: its next position is still needed. The sessions of PEERS, and session 2^63, which is our own, are sessions
of peers: SESSIONS says where they stand, and that nothing of them waits for an acknowledgement. HISTORIES has those of
sessions of peers (shard 0, no name) behind their last message, then those of targets of OUTBOX (session 0) before their
first message that is kept; unknown ones are left out. An older writer has none: then all are unknown.

Guarantees: what is read is what was written, or ValueError says what is wrong. Does not: write headers and checksums
(`checkpoint` does). Imports base and codec only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from deathless.codec.peer_messages import SELF_SESSION, Target
from deathless.codec.sections import GROUP_BYTES, Section, spans, split
from deathless.codec.snapshot import (
    Messages,
    OutboxRecord,
    PeerRecord,
    ResultRecord,
    SessionRecord,
    Snapshot,
    UndeliveredRecord,
    UnknownRecord,
)

OUTBOX_HEAD: Final = struct.Struct("<QII")
PEER: Final = struct.Struct("<QQ16sII")
RESULT: Final = struct.Struct("<QQII")
UNKNOWN: Final = struct.Struct("<QQQQIIII")
HISTORY: Final = struct.Struct("<Q16sII")

UNDELIVERED: Final = struct.Struct("<QQQIIII")


def payloads(snapshot: Snapshot) -> Iterator[tuple[Section, int, bytes]]:
    """Give (type, count, payload) of each section, in the order of the file; none for what is empty."""
    for start, stop in spans(list(map(len, snapshot.invocations)), GROUP_BYTES):
        yield Section.INVOCATIONS, stop - start, _blobs(snapshot.invocations[start:stop])
    for record in snapshot.outbox:
        for count, payload in _outbox(record):
            yield Section.OUTBOX, count, payload
    names = [record.service.encode() for record in snapshot.peers]
    for start, stop in spans([PEER.size + len(name) for name in names], GROUP_BYTES):
        some = zip(snapshot.peers[start:stop], names[start:stop], strict=True)
        rows = [PEER.pack(r.session, r.incarnation, r.service_id, r.shard, len(name)) for r, name in some]
        yield Section.PEERS, stop - start, b"".join((*rows, *names[start:stop]))
    for start, stop in spans([len(record.reply) for record in snapshot.results], GROUP_BYTES):
        results = snapshot.results[start:stop]
        rows = [RESULT.pack(r.invocation, r.at_us, len(r.reply), 0) for r in results]
        yield Section.RESULTS, stop - start, b"".join((*rows, *(r.reply for r in results)))
    texts = [_texts(record) for record in snapshot.unknown]
    for start, stop in spans([UNKNOWN.size + sum(map(len, each)) for each in texts], GROUP_BYTES):
        some_texts = texts[start:stop]
        rows = [
            UNKNOWN.pack(r.invocation, r.operation, r.lsn, r.at_us, *map(len, each))
            for r, each in zip(snapshot.unknown[start:stop], some_texts, strict=True)
        ]
        yield (
            Section.UNKNOWN,
            stop - start,
            b"".join((*rows, *(text for column in zip(*some_texts, strict=True) for text in column))),
        )
    yield from _undelivered(snapshot.undelivered)
    yield from _histories(snapshot)


def _undelivered(records: Sequence[UndeliveredRecord]) -> Iterator[tuple[Section, int, bytes]]:
    texts = [(record.service.encode(), record.why.encode(), record.message) for record in records]
    for start, stop in spans([UNDELIVERED.size + sum(map(len, each)) for each in texts], GROUP_BYTES):
        rows = [
            UNDELIVERED.pack(r.id, r.position, r.at_us, r.shard, *map(len, each))
            for r, each in zip(records[start:stop], texts[start:stop], strict=True)
        ]
        columns = (text for column in zip(*texts[start:stop], strict=True) for text in column)
        yield Section.UNDELIVERED, stop - start, b"".join((*rows, *columns))


def _histories(snapshot: Snapshot) -> Iterator[tuple[Section, int, bytes]]:
    histories = [(r.id, r.history, 0, b"") for r in snapshot.sessions if r.peer and r.history]
    histories += [(0, r.history, r.shard, r.service.encode()) for r in snapshot.outbox if r.history]
    for start, stop in spans([HISTORY.size + len(name) for *_, name in histories], GROUP_BYTES):
        some_histories = histories[start:stop]
        rows = [HISTORY.pack(*fixed, len(name)) for *fixed, name in some_histories]
        yield Section.HISTORIES, stop - start, b"".join((*rows, *(name for *_, name in some_histories)))


def _texts(record: UnknownRecord) -> tuple[bytes, bytes, bytes, bytes]:
    return record.handler.encode(), record.key, record.activity.encode(), record.activity_key.encode()


def _blobs(items: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(items)}I", *map(len, items)) + b"".join(items)


def _outbox(record: OutboxRecord) -> Iterator[tuple[int, bytes]]:
    """One group of messages is in memory at a time: an outbox may be larger than the memory of its replica."""
    name = record.service.encode()
    position = record.first_position
    for messages in _groups(record.messages):
        yield len(messages), OUTBOX_HEAD.pack(position, record.shard, len(name)) + name + _blobs(messages)
        position += len(messages)


def _groups(messages: Messages) -> Iterator[list[bytes]]:
    """Cut as `spans` does; one group that is empty where there are no messages."""
    group: list[bytes] = []
    size = 0
    for message in messages:
        size += len(message)
        if size > GROUP_BYTES and group:
            yield group
            group, size = [], len(message)
        group.append(message)
    yield group


class OutboxLoader(Protocol):
    """Who takes the outbox of a checkpoint in while it is read, so that it is never in memory as a whole."""

    def begin(self, target: Target, first_position: int) -> None:
        """A target follows, with messages or without."""
        ...

    def extend(self, target: Target, messages: Sequence[bytes]) -> None:
        """These are its next ones."""
        ...

    def snapshot(self) -> list[OutboxRecord]:
        """Give all that came, by target ascending."""
        ...


class _Lists:
    """Keeps all in memory."""

    def __init__(self) -> None:
        self._held: dict[Target, tuple[int, list[bytes]]] = {}

    def begin(self, target: Target, first_position: int) -> None:
        self._held[target] = first_position, []

    def extend(self, target: Target, messages: Sequence[bytes]) -> None:
        self._held[target][1].extend(messages)

    def snapshot(self) -> list[OutboxRecord]:
        return [OutboxRecord(*target, first, messages) for target, (first, messages) in self._held.items()]


class Reader:
    """Takes the payloads in, in the order of the file; afterwards its lists are those of the snapshot.

    Args:
        loader: takes the outbox; None: it is kept in memory.
    """

    def __init__(self, loader: OutboxLoader | None = None) -> None:
        self.invocations: list[bytes] = []
        self._loader = _Lists() if loader is None else loader
        self._last: tuple[Target, int] | None = None  # whose section was the last one, and position behind it
        self._open = False  # a further section of that target may follow: it held messages
        self.peers: list[PeerRecord] = []
        self.results: list[ResultRecord] = []
        self.unknown: list[UnknownRecord] = []
        self.undelivered: list[UndeliveredRecord] = []
        self._histories: dict[int | Target, bytes] = {}  # by session, or by target of the outbox

    @property
    def outbox(self) -> list[OutboxRecord]:
        """The snapshot's."""
        found = self._histories
        return [
            OutboxRecord(r.service, r.shard, r.first_position, r.messages, found.get(Target(r.service, r.shard), b""))
            for r in self._loader.snapshot()
        ]

    def read(self, kind: int, count: int, payload: bytes) -> None:
        """Take one section about messaging in.

        Raises: ValueError saying what is wrong with it.
        """
        if kind == Section.INVOCATIONS:
            self.invocations += _read_blobs(payload, 0, count)
        elif kind == Section.OUTBOX:
            self._read_outbox(count, payload)
        elif kind == Section.PEERS:
            self._read_peers(count, payload)
        elif kind == Section.RESULTS:
            self._read_results(count, payload)
        elif kind == Section.HISTORIES:
            self._read_histories(count, payload)
        elif kind == Section.UNKNOWN:
            self._read_unknown(count, payload)
        else:
            assert kind == Section.UNDELIVERED, f"section {kind} has no reader"
            self._read_undelivered(count, payload)

    def finish(self, sessions: Mapping[int, SessionRecord]) -> list[SessionRecord]:
        """Give the sessions, those of peers marked as such.

        Raises: ValueError when a peer has no session of its own, or one with replies that wait; when an invocation has
        two results.
        """
        if len({record.invocation for record in self.results}) != len(self.results):
            raise ValueError("an invocation has two results")
        missing = [peer.session for peer in self.peers if peer.session not in sessions]
        if missing:
            raise ValueError(f"session {missing[0]} of a peer is missing")
        ours = {SELF_SESSION, *(peer.session for peer in self.peers)}
        if len(ours) != len(self.peers) + 1:
            raise ValueError("a session belongs to two peers")
        strangers = [each for each in self._histories if isinstance(each, int) and each not in ours]
        if strangers:
            raise ValueError(f"session {strangers[0]} with a history is no peer's")
        found = []
        for record in sessions.values():
            if record.id not in ours:
                found.append(record)
                continue
            if record.acked != record.next_seq - 1:
                raise ValueError(f"session {record.id} of a peer waits for acknowledgements")
            history = self._histories.get(record.id, b"")
            marked = SessionRecord(
                record.id, record.next_seq, record.acked, record.last_us, record.nonce, {}, True, history
            )
            found.append(marked)
        return found

    def _read_outbox(self, count: int, payload: bytes) -> None:
        if len(payload) < OUTBOX_HEAD.size:
            raise ValueError("shorter than its head")
        position, shard, name_len = OUTBOX_HEAD.unpack_from(payload)
        at = OUTBOX_HEAD.size + name_len
        name = payload[OUTBOX_HEAD.size : at].decode()
        messages = _read_blobs(payload, at, count)
        target = Target(name, shard)
        if self._last is not None and target == self._last[0]:
            if not messages or not self._open or position != self._last[1]:
                raise ValueError(f"position {position} of {name}/{shard} does not continue the section before")
        elif position == 0 or (self._last is not None and target < self._last[0]):
            raise ValueError("targets do not ascend, or a position is 0")
        else:
            self._loader.begin(target, position)
        self._loader.extend(target, messages)
        self._last, self._open = (target, position + len(messages)), bool(messages)

    def _read_peers(self, count: int, payload: bytes) -> None:
        at = _column_end(payload, 0, count * PEER.size)
        rows = list(PEER.iter_unpack(payload[:at]))
        names = split(payload, at, [row[4] for row in rows])
        for (session, incarnation, service_id, shard, _), name in zip(rows, names, strict=True):
            record = PeerRecord(name.decode(), shard, service_id, incarnation, session)
            last = self.peers[-1] if self.peers else None
            if last is not None and (record.service, record.shard) <= (last.service, last.shard):
                raise ValueError("peers do not ascend")
            self.peers.append(record)

    def _read_results(self, count: int, payload: bytes) -> None:
        at = _column_end(payload, 0, count * RESULT.size)
        rows = list(RESULT.iter_unpack(payload[:at]))
        replies = split(payload, at, [row[2] for row in rows])
        for (invocation, at_us, _, _), reply in zip(rows, replies, strict=True):
            if self.results and at_us < self.results[-1].at_us:
                raise ValueError("times of results fall")
            self.results.append(ResultRecord(invocation, at_us, reply))

    def _read_unknown(self, count: int, payload: bytes) -> None:
        at = _column_end(payload, 0, count * UNKNOWN.size)
        rows = list(UNKNOWN.iter_unpack(payload[:at]))
        texts = split(payload, at, [row[column] for column in (4, 5, 6, 7) for row in rows])
        for number, (invocation, operation, lsn, at_us, *_) in enumerate(rows):
            handler, key, activity, activity_key = texts[number::count]
            record = UnknownRecord(
                invocation, operation, handler.decode(), key, activity.decode(), activity_key.decode(), lsn, at_us
            )
            if self.unknown and lsn <= self.unknown[-1].lsn:
                raise ValueError("lsns of unknown outcomes do not ascend")
            self.unknown.append(record)

    def _read_undelivered(self, count: int, payload: bytes) -> None:
        at = _column_end(payload, 0, count * UNDELIVERED.size)
        rows = list(UNDELIVERED.iter_unpack(payload[:at]))
        texts = split(payload, at, [row[column] for column in (4, 5, 6) for row in rows])
        for row, (number, position, at_us, shard, *_) in enumerate(rows):
            service, why, message = texts[row::count]
            record = UndeliveredRecord(number, service.decode(), shard, position, at_us, why.decode(), message)
            if number and self.undelivered and number <= self.undelivered[-1].id:
                raise ValueError("ids of messages that were given up do not ascend")
            self.undelivered.append(record)

    def _read_histories(self, count: int, payload: bytes) -> None:
        at = _column_end(payload, 0, count * HISTORY.size)
        rows = list(HISTORY.iter_unpack(payload[:at]))
        names = split(payload, at, [row[3] for row in rows])
        for (session, history, shard, _), name in zip(rows, names, strict=True):
            of: int | Target = session or Target(name.decode(), shard)
            if of in self._histories:
                raise ValueError("a history stands there twice")
            self._histories[of] = history


def _column_end(payload: bytes, at: int, width: int) -> int:
    """Give the end of fixed-width columns that begin at `at`."""
    end = at + width
    if end > len(payload):
        raise ValueError("columns pass the payload's end")
    return end


def _read_blobs(payload: bytes, at: int, count: int) -> list[bytes]:
    end = _column_end(payload, at, 4 * count)
    return split(payload, end, struct.unpack_from(f"<{count}I", payload, at))
