"""Checkpoints: all of a shard at one (lsn, chain hash), as a file of checked sections (format version 2).

    file     = file header, HEAD, STATE*, SESSIONS*, REPLIES*, KEYS*, PARKED*,
               INVOCATIONS*, OUTBOX*, PEERS*, RESULTS*, UNKNOWN*, UNDELIVERED*, HISTORIES*,
               STREAMS*, REFUSED*, END
               all integers little-endian

    file header, 16 bytes                        section header, 32 bytes
    0   4   magic b"DLC1"                        0   4   magic b"DLCS"
    4   2   format version, u16: 2               4   2   type, u16 (see Section)
    6   1   checksum algorithm: 1 = CRC-32       6   2   flags, u16: bit 0 = critical
    7   5   reserved, 0                          8   8   payload length, u64
    12  4   CRC-32 of bytes 0 to 11              16  4   index of the section in the file, u32
                                                 20  4   count of items, u32
                                                 24  4   reserved, 0
                                                 28  4   CRC-32 of header (this field as 0) and payload

    HEAD      msgpack array `Head`
    STATE     count x u32 key length, count x u32 value length, keys, values
    SESSIONS  count x (u64 id, u64 next seq, u64 acked, u64 last use, 16 byte nonce), longest idle first
    REPLIES   count x u64 session, count x u64 seq, count x u32 length, replies
    KEYS      count x (u64 age, 16 byte request hash, u32 key length, u32 reply length), keys, replies
    PARKED    count x (u64 lsn, u64 session, u64 seq, u32 length, u32 0), messages
    INVOCATIONS, OUTBOX, PEERS, RESULTS, UNKNOWN, UNDELIVERED, HISTORIES   see `messaging_sections`
    GONE, CHANGED   see `checkpoint_ahead`; in files whose state was written ahead
    STREAMS, REFUSED   see `streams.sections`; in files of services that have streams
    END       16 byte state digest, 16 byte file digest

Types never fall along the file and nothing follows END. An unknown section is skipped, or, when critical, refused.
Each STATE section is a *group*: keys ascending by bytes are cut into slices of 4096, and a slice into groups of as
many items as fit in 1 MiB of key and value bytes, at least one. So the groups depend on the state alone, and

    state digest = BLAKE2b-128(payloads of all STATE sections)
    file digest  = BLAKE2b-128(every byte before END's header but the payloads of STATE)

cover each byte once and cost no more than reading the disk does. Where GONE or CHANGED stand, the state digest is that
of these 16 bytes and of their payloads.

Guarantees: what `decode` gives was written as it is; one changed, missing or added byte is found and its section and
offset named; memory beyond the snapshot is a few groups. Does not: read files, say whether the checkpoint is on the
chain (the caller compares lsn and chain hash). Imports base and codec only.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import add, lt
from typing import Final

import msgspec

from deathless.base.errors import CorruptCheckpoint, NewerFormat, TooLarge
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.codec import messaging_sections
from deathless.codec.sections import GROUP_BYTES, Section, spans, split
from deathless.codec.snapshot import Head, KeyRecord, ParkedRecord, SessionRecord, Snapshot
from deathless.codec.streams import sections as stream_sections
from deathless.codec.untrusted import read_msgpack

MAGIC: Final = b"DLC1"
SECTION_MAGIC: Final = b"DLCS"
FORMAT_VERSION: Final = 2
READ_VERSIONS: Final = (1, 2)
"""Version 1 has one clock: HEAD ends with the count of keys, and a UUIDv7 counts as first seen at its own time."""
CHECKSUM_CRC32: Final = 1
FILE_HEADER: Final = struct.Struct("<4sHB5xI")
SECTION_HEADER: Final = struct.Struct("<4sHHQIIII")
CRC: Final = struct.Struct("<I")
SESSION: Final = struct.Struct("<QQQQ16s")
KEY: Final = struct.Struct("<Q16sII")
PARKED: Final = struct.Struct("<QQQII")
END: Final = struct.Struct("<16s16s")
CRITICAL: Final = 1
GROUP_ITEMS: Final = 4096  # part of the format: the state digest depends on it
CHUNK_BYTES_MAX: Final = 4 << 20  # `encode` gives nothing longer at a time
SECTION_BYTES_MAX: Final = 1 << 30  # a longer payload is neither written nor read

assert FILE_HEADER.size == 16
assert SECTION_HEADER.size == 32

Read = Callable[[int, int], bytes]
"""(offset, size) -> bytes of the file from `offset`; fewer than `size` only at its end."""


OVERLAY: Final = frozenset({Section.GONE, Section.CHANGED})
"""Sections that say what is other than in STATE."""

PASSED_OVER: Final = frozenset({Section.HISTORIES})
"""Sections that a reader who does not know them may leave out."""

KNOWN: Final = frozenset(Section)
"""Sections that are read here."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A section as read: checked by CRC."""

    kind: int
    count: int
    payload: bytes
    offset: int  # of its header in the file
    header: bytes

    def broken(self, what: str) -> CorruptCheckpoint:
        """Give the error that names this section."""
        return _corrupt(self.kind, self.offset, what)


def _name(kind: int) -> str:
    return Section(kind).name if kind in Section.__members__.values() else f"type {kind}"


def _corrupt(kind: int, offset: int, what: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"section {_name(kind)} at offset {offset}: {what}")


# ---------------------------------------------------------------- writing


def groups(state: Mapping[bytes, bytes]) -> Iterator[tuple[int, bytes]]:
    """Give (count, payload) of each STATE section, or of each CHANGED one.

    No loop of ours is per item: a million items take a second.
    """
    ordered = sorted(state)
    for at in range(0, len(ordered), GROUP_ITEMS):
        keys = ordered[at : at + GROUP_ITEMS]
        values = [state[key] for key in keys]
        key_sizes = list(map(len, keys))
        value_sizes = list(map(len, values))
        for start, stop in spans(list(map(add, key_sizes, value_sizes)), GROUP_BYTES):
            count = stop - start
            lengths = struct.pack(f"<{2 * count}I", *key_sizes[start:stop], *value_sizes[start:stop])
            yield count, b"".join((lengths, *keys[start:stop], *values[start:stop]))


def _blobs(sizes: list[int], fixed: Callable[[int, int], list[bytes]]) -> Iterator[tuple[int, bytes]]:
    """Give (count, payload) of sections whose payload for items [start, stop) `fixed` gives as parts."""
    for at in range(0, len(sizes), GROUP_ITEMS):
        for start, stop in spans(sizes[at : at + GROUP_ITEMS], GROUP_BYTES):
            yield stop - start, b"".join(fixed(at + start, at + stop))


def _session_sections(records: Sequence[SessionRecord]) -> Iterator[tuple[int, bytes]]:
    def part(start: int, stop: int) -> list[bytes]:
        return [SESSION.pack(r.id, r.next_seq, r.acked, r.last_us, r.nonce) for r in records[start:stop]]

    return _blobs([SESSION.size] * len(records), part)


def _reply_sections(records: Sequence[SessionRecord]) -> Iterator[tuple[int, bytes]]:
    owners = [record.id for record in records for _ in record.replies]
    seqs = [seq for record in records for seq in record.replies]
    replies = [reply for record in records for reply in record.replies.values()]

    def part(start: int, stop: int) -> list[bytes]:
        n = stop - start
        sizes = map(len, replies[start:stop])
        columns = struct.pack(f"<{2 * n}Q{n}I", *owners[start:stop], *seqs[start:stop], *sizes)
        return [columns, *replies[start:stop]]

    return _blobs([len(reply) for reply in replies], part)


def _key_sections(records: Sequence[KeyRecord]) -> Iterator[tuple[int, bytes]]:
    def part(start: int, stop: int) -> list[bytes]:
        some = records[start:stop]
        fixed = [KEY.pack(r.at_us, r.request_hash, len(r.key), len(r.reply)) for r in some]
        return [*fixed, *(r.key for r in some), *(r.reply for r in some)]

    return _blobs([len(r.key) + len(r.reply) for r in records], part)


def _parked_sections(records: Sequence[ParkedRecord]) -> Iterator[tuple[int, bytes]]:
    def part(start: int, stop: int) -> list[bytes]:
        some = records[start:stop]
        return [*(PARKED.pack(r.lsn, r.session, r.seq, len(r.message), 0) for r in some), *(r.message for r in some)]

    return _blobs([len(r.message) for r in records], part)


def section_header(kind: int, index: int, count: int, payload: bytes, flags: int = CRITICAL) -> bytes:
    """Give the 32 bytes before a payload.

    Raises: TooLarge when the payload is longer than SECTION_BYTES_MAX.
    """
    if len(payload) > SECTION_BYTES_MAX:
        raise TooLarge(f"section {_name(kind)} of {len(payload)} bytes, at most {SECTION_BYTES_MAX}")
    bare = SECTION_HEADER.pack(SECTION_MAGIC, kind, flags, len(payload), index, count, 0, 0)
    return bare[:28] + CRC.pack(zlib.crc32(payload, zlib.crc32(bare)))


def file_header(version: int = FORMAT_VERSION, algorithm: int = CHECKSUM_CRC32) -> bytes:
    """Give the first 16 bytes of a file."""
    bare = FILE_HEADER.pack(MAGIC, version, algorithm, 0)
    return bare[:12] + CRC.pack(zlib.crc32(bare[:12]))


def _payloads(snapshot: Snapshot) -> Iterator[tuple[Section, int, bytes]]:
    """Give (type, count, payload) of every section but END, in the order of the file."""
    yield Section.HEAD, 1, snapshot.head().encode()
    for count, payload in groups(snapshot.state):
        yield Section.STATE, count, payload
    yield from payloads_behind_state(snapshot)
    yield from stream_sections.payloads(snapshot)


def payloads_behind_state(snapshot: Snapshot) -> Iterator[tuple[Section, int, bytes]]:
    """Give (type, count, payload) of the sections from SESSIONS to HISTORIES, in the order of the file."""
    columns = (
        (Section.SESSIONS, _session_sections(snapshot.sessions)),
        (Section.REPLIES, _reply_sections(snapshot.sessions)),
        (Section.KEYS, _key_sections(snapshot.keys)),
        (Section.PARKED, _parked_sections(snapshot.parked)),
    )
    for kind, sections in columns:
        for count, payload in sections:
            yield kind, count, payload
    yield from messaging_sections.payloads(snapshot)


def encode(snapshot: Snapshot) -> Iterator[bytes]:
    """Give the bytes of a checkpoint, in chunks of [1, CHUNK_BYTES_MAX] bytes to be written one after the other.

    The snapshot must not change before the last chunk is taken; then its `state_digest` is set.

    Raises: TooLarge when one item alone passes SECTION_BYTES_MAX.
    """
    state_hash = hashlib.blake2b(digest_size=16)
    first = file_header()
    file_hash = hashlib.blake2b(first, digest_size=16)
    yield first
    index = 0
    for kind, count, payload in _payloads(snapshot):
        header = section_header(kind, index, count, payload, 0 if kind in PASSED_OVER else CRITICAL)
        index += 1
        file_hash.update(header)
        (state_hash if kind is Section.STATE else file_hash).update(payload)
        yield header
        for at in range(0, len(payload), CHUNK_BYTES_MAX):
            yield payload[at : at + CHUNK_BYTES_MAX]
    snapshot.state_digest = state_hash.digest()
    last = END.pack(snapshot.state_digest, file_hash.digest())
    yield section_header(Section.END, index, 0, last) + last


def state_digest(state: Mapping[bytes, bytes]) -> bytes:
    """Give the 16 byte digest of a state: what END carries, and what a Rebased record names (I6)."""
    digest = hashlib.blake2b(digest_size=16)
    for _, payload in groups(state):
        digest.update(payload)
    return digest.digest()


# ---------------------------------------------------------------- reading


def read_file_header(read: Read) -> bytes:
    """Read the first bytes of a file. Raises: CorruptCheckpoint, NewerFormat."""
    header = read(0, FILE_HEADER.size)
    if len(header) < FILE_HEADER.size or header[:3] != MAGIC[:3]:
        raise CorruptCheckpoint("file header at offset 0: this is no checkpoint")
    magic, version, algorithm, crc = FILE_HEADER.unpack(header)
    if zlib.crc32(header[:12]) != crc:
        raise CorruptCheckpoint("file header at offset 0: checksum is wrong")
    if magic != MAGIC or version not in READ_VERSIONS or algorithm != CHECKSUM_CRC32:
        raise NewerFormat(
            f"checkpoint of format {magic!r} version {version}, checksum {algorithm}; this is version {FORMAT_VERSION}"
        )
    if header != file_header(version):
        raise CorruptCheckpoint("file header at offset 0: reserved bytes are set")
    return header


def read_section(read: Read, offset: int, index: int) -> Cut:
    """Read the section at `offset` and check what its header alone can show.

    Raises: CorruptCheckpoint, NewerFormat.
    """
    header = read(offset, SECTION_HEADER.size)
    if len(header) < SECTION_HEADER.size:
        raise CorruptCheckpoint(f"section {index} at offset {offset}: the file ends here, without END")
    magic, kind, flags, length, found, count, reserved, crc = SECTION_HEADER.unpack(header)
    if magic != SECTION_MAGIC or length > SECTION_BYTES_MAX:
        raise CorruptCheckpoint(f"section {index} at offset {offset}: no section header")
    payload = read(offset + SECTION_HEADER.size, length)
    if len(payload) < length:
        raise _corrupt(kind, offset, f"the file ends {length - len(payload)} bytes before the section does")
    if zlib.crc32(payload, zlib.crc32(header[:28] + bytes(4))) != crc:
        raise _corrupt(kind, offset, "checksum is wrong")
    if found != index or reserved:
        raise _corrupt(kind, offset, f"section {index} expected, this is section {found}")
    if kind not in KNOWN and flags & CRITICAL:
        raise NewerFormat(f"section {_name(kind)} at offset {offset} is critical and this version does not know it")
    return Cut(kind, count, payload, offset, header)


def _read_head_section(read: Read) -> tuple[Head, Cut]:
    section = read_section(read, FILE_HEADER.size, 0)
    if section.kind != Section.HEAD:
        raise section.broken("HEAD expected")
    try:
        return read_msgpack(section.payload, Head), section
    except msgspec.MsgspecError as error:
        raise section.broken(str(error)) from None


def _sections(read: Read, first: Cut, digests: list[bytes]) -> Iterator[Cut]:
    """Give every section after HEAD that is known, then check END; `digests` gets the state digest."""
    state_hash = hashlib.blake2b(digest_size=16)
    file_hash = hashlib.blake2b(read_file_header(read), digest_size=16)
    overlaid: hashlib.blake2b | None = None
    section, index = first, 0
    while section.kind != Section.END:
        file_hash.update(section.header)
        if section.kind in OVERLAY:
            overlaid = overlaid or hashlib.blake2b(state_hash.digest(), digest_size=16)
            overlaid.update(section.payload)
        else:
            (state_hash if section.kind == Section.STATE else file_hash).update(section.payload)
        index += 1
        following = read_section(read, section.offset + SECTION_HEADER.size + len(section.payload), index)
        if following.kind < section.kind or following.kind == Section.HEAD:
            raise following.broken(f"stands behind section {_name(section.kind)}")
        section = following
        if section.kind in KNOWN and section.kind != Section.END:
            yield section
    if len(section.payload) != END.size:
        raise section.broken(f"{len(section.payload)} bytes, {END.size} expected")
    for name, mine, stored in zip(
        ("state", "file"),
        ((overlaid or state_hash).digest(), file_hash.digest()),
        END.unpack(section.payload),
        strict=True,
    ):
        if mine != stored:
            raise section.broken(f"{name} digest is wrong")
    end = section.offset + SECTION_HEADER.size + END.size
    if read(end, 1):
        raise section.broken(f"bytes follow at offset {end}")
    digests.append((overlaid or state_hash).digest())


def _split(section: Cut, at: int, sizes: Sequence[int]) -> list[bytes]:
    """Cut the blobs that begin at `at` of the payload and end with it."""
    try:
        return split(section.payload, at, sizes)
    except ValueError as error:
        raise section.broken(str(error)) from None


def _column_end(section: Cut, width: int) -> int:
    """Give the end of the fixed-width columns, of `width` bytes per item."""
    end = section.count * width
    if end > len(section.payload):
        raise section.broken("columns pass the payload's end")
    return end


def _read_state(section: Cut, state: dict[bytes, bytes], last: bytes | None) -> bytes | None:
    """Add a STATE section's items; `last` is the highest key before it. Gives the highest key behind it."""
    n = section.count
    at = _column_end(section, 8)
    items = _split(section, at, struct.unpack_from(f"<{2 * n}I", section.payload))
    keys = items[:n]
    if not all(map(lt, keys, islice(keys, 1, None))) or (last is not None and keys and keys[0] <= last):
        raise section.broken("keys do not ascend")
    state.update(zip(keys, items[n:], strict=True))
    return keys[-1] if keys else last


def _read_gone(section: Cut, state: dict[bytes, bytes]) -> None:
    """Take the keys of a GONE section out of what STATE gave."""
    at = _column_end(section, 4)
    for key in _split(section, at, struct.unpack_from(f"<{section.count}I", section.payload)):
        if state.pop(key, None) is None:
            raise section.broken(f"key {key[:100]!r} is not in STATE, or gone twice")


def _read_sessions(section: Cut, sessions: dict[int, SessionRecord]) -> None:
    if len(section.payload) != section.count * SESSION.size:
        raise section.broken("count and payload disagree")
    for session_id, next_seq, acked, last_us, nonce in SESSION.iter_unpack(section.payload):
        if session_id in sessions or acked >= next_seq:
            raise section.broken(f"session {session_id} twice, or acknowledged beyond its end")
        sessions[session_id] = SessionRecord(session_id, next_seq, acked, last_us, nonce, {})


def _read_replies(section: Cut, sessions: dict[int, SessionRecord]) -> None:
    n = section.count
    at = _column_end(section, 20)
    columns = struct.unpack_from(f"<{2 * n}Q{n}I", section.payload)
    replies = _split(section, at, columns[2 * n :])
    for owner, seq, reply in zip(columns[:n], columns[n : 2 * n], replies, strict=True):
        session = sessions.get(owner)
        if session is None or not session.acked < seq < session.next_seq:
            raise section.broken(f"reply to seq {seq} of session {owner}, which does not wait for it")
        session.replies[seq] = reply


def _read_keys(section: Cut, keys: list[KeyRecord]) -> None:
    n = section.count
    at = _column_end(section, KEY.size)
    rows = list(KEY.iter_unpack(section.payload[:at]))
    items = _split(section, at, [row[2] for row in rows] + [row[3] for row in rows])
    keys.extend(
        KeyRecord(key, request_hash, reply, at_us)
        for (at_us, request_hash, _, _), key, reply in zip(rows, items[:n], items[n:], strict=True)
    )


def _read_parked(section: Cut, parked: list[ParkedRecord]) -> None:
    at = _column_end(section, PARKED.size)
    rows = list(PARKED.iter_unpack(section.payload[:at]))
    items = _split(section, at, [row[3] for row in rows])
    parked.extend(
        ParkedRecord(lsn, session, seq, message) for (lsn, session, seq, _, _), message in zip(rows, items, strict=True)
    )


def _read_messaging(section: Cut, reader: messaging_sections.Reader | stream_sections.Reader) -> None:
    try:
        reader.read(section.kind, section.count, section.payload)
    except ValueError as error:  # also a name that is no UTF-8
        raise section.broken(str(error)) from None


def read_head(read: Read) -> Head:
    """Read what a checkpoint says of itself, and nothing behind it. Raises: CorruptCheckpoint, NewerFormat."""
    read_file_header(read)
    return _read_head_section(read)[0]


def verify(read: Read) -> tuple[Head, bytes]:
    """Read a whole checkpoint back and check it, one section in memory at a time.

    Returns: (head, state digest). Raises: CorruptCheckpoint, NewerFormat, as `decode`; but columns inside sections
    are not taken apart (they have a checksum and two digests).
    """
    read_file_header(read)
    head, first = _read_head_section(read)
    digests: list[bytes] = []
    counted: dict[int, int] = {}
    for section in _sections(read, first, digests):
        counted[section.kind] = counted.get(section.kind, 0) + section.count
    items = counted.get(Section.STATE, 0)
    # Which of those that changed are new only the keys themselves say.
    if items != head.state_keys and not counted.keys() & OVERLAY:
        raise first.broken(f"{head.state_keys} keys promised, {items} found")
    return head, digests[0]


def decode(read: Read, loader: messaging_sections.OutboxLoader | None = None) -> Snapshot:
    """Read a whole checkpoint.

    Args:
        read: see `Read`; called in ascending order of offset but for the start, once per section and header.
        loader: takes the outbox, section by section; None: it is read into memory.

    Raises: CorruptCheckpoint naming section and offset: an older one is used. NewerFormat: stop.
    """
    read_file_header(read)
    head, first = _read_head_section(read)
    state: dict[bytes, bytes] = {}
    sessions: dict[int, SessionRecord] = {}
    keys: list[KeyRecord] = []
    parked: list[ParkedRecord] = []
    digests: list[bytes] = []
    messaging = messaging_sections.Reader(loader)
    streams = stream_sections.Reader()
    last: bytes | None = None
    changed: dict[bytes, bytes] = {}
    last_changed: bytes | None = None
    for section in _sections(read, first, digests):
        match section.kind:
            case Section.STATE:
                last = _read_state(section, state, last)
            case Section.GONE:
                _read_gone(section, state)
            case Section.CHANGED:
                last_changed = _read_state(section, changed, last_changed)
            case Section.SESSIONS:
                _read_sessions(section, sessions)
            case Section.REPLIES:
                _read_replies(section, sessions)
            case Section.KEYS:
                _read_keys(section, keys)
            case Section.PARKED:
                _read_parked(section, parked)
            case Section.STREAMS | Section.REFUSED:
                _read_messaging(section, streams)
            case _:
                _read_messaging(section, messaging)
    if changed:
        state = dict(sorted({**state, **changed}.items()))
    if len(state) != head.state_keys:
        raise first.broken(f"{head.state_keys} keys promised, {len(state)} found")
    try:
        known = messaging.finish(sessions)
    except ValueError as error:
        raise first.broken(str(error)) from None
    return Snapshot(
        service=head.service,
        service_id=head.service_id,
        incarnation=Incarnation(head.incarnation),
        epoch=Epoch(head.epoch),
        lsn=Lsn(head.lsn),
        chain=ChainHash(head.chain),
        digest=Digest(head.digest),
        times=head.times,
        fingerprint=Fingerprint(head.fingerprint),
        state=state,
        sessions=known,
        keys=keys,
        keys_floor_us=head.keys_floor_us,
        parked=parked,
        invocations=messaging.invocations,
        outbox=messaging.outbox,
        peers=messaging.peers,
        results=messaging.results,
        unknown=messaging.unknown,
        undelivered=messaging.undelivered,
        streams=streams.streams,
        refused=streams.refused,
        generation=head.of_generation(),
        state_digest=digests[0],
    )
