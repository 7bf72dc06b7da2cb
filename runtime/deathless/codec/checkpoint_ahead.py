"""A checkpoint whose state is written ahead, while nobody waits: most of it before its place on the chain is known.

    begun      file header, room for HEAD, STATE*                     written, synced, read back
    finished   HEAD in its room; SESSIONS* ... HISTORIES*, GONE*, CHANGED*, END behind STATE

    GONE       count x u32 key length, keys: of STATE, and no more
    CHANGED    as STATE: entries that are new, or have another value than in STATE; where each is cut as well

So what is written at the end takes as long as what has changed since, and not as long as the state. HEAD has a fixed
length here: behind its fields stands one more, zeros, which a reader of HEAD passes over.

Guarantees: what is finished reads as any checkpoint does (`checkpoint.decode`); what is only begun reads as none. Does
not: write or read files. Imports base and codec.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.checkpoint import (
    CHUNK_BYTES_MAX,
    CRITICAL,
    END,
    FILE_HEADER,
    GROUP_ITEMS,
    OVERLAY,
    PASSED_OVER,
    SECTION_HEADER,
    Read,
    file_header,
    groups,
    payloads_behind_state,
    read_file_header,
    read_section,
    section_header,
)
from deathless.codec.generations import FIRST
from deathless.codec.sections import Section
from deathless.codec.snapshot import Begun, Head, Since, Snapshot
from deathless.codec.streams.sections import payloads as stream_payloads
from deathless.codec.untrusted import read_msgpack

HEAD_BYTES: Final = 2048
"""Payload of HEAD: its fields take less than half of that (a service's name has at most a few hundred bytes)."""
HEAD_AT: Final = FILE_HEADER.size
STATE_AT: Final = HEAD_AT + SECTION_HEADER.size + HEAD_BYTES


def changes_between(
    before: Mapping[bytes, bytes], now: Mapping[bytes, bytes]
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Give the entries of `now` that are new or other ones, and the keys that are no more, ascending."""
    find = before.get
    changed = {key: value for key, value in now.items() if find(key) != value}
    new = sum(key not in before for key in changed)
    gone = sorted(before.keys() - now.keys()) if len(before) + new != len(now) else []
    return changed, gone


def begin(state: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Give the bytes of a file that is begun, in chunks.

    Raises: TooLarge when one item alone is too long for a section.
    """
    yield file_header()
    yield section_header(Section.HEAD, 0, 1, bytes(HEAD_BYTES)) + bytes(HEAD_BYTES)
    for index, (count, payload) in enumerate(groups(state), 1):
        yield section_header(Section.STATE, index, count, payload)
        yield from _chunks(payload)


def read_begun(read: Read, end: int) -> Begun:
    """Read back a file that is begun, up to its end.

    Raises: CorruptCheckpoint, NewerFormat.
    """
    read_file_header(read)
    digest = hashlib.blake2b(digest_size=16)
    offset, sections, keys = HEAD_AT, 0, 0
    while offset < end:
        section = read_section(read, offset, sections)
        if section.kind != (Section.STATE if sections else Section.HEAD):
            raise section.broken("STATE expected")
        if sections:
            digest.update(section.payload)
            keys += section.count
        sections += 1
        offset += SECTION_HEADER.size + len(section.payload)
    if offset != end or not sections:
        raise CorruptCheckpoint(f"the file that was begun ends at {offset}, {end} expected")
    return Begun(end, sections, keys, digest.digest())


def finish(read: Read, snapshot: Snapshot, since: Since) -> tuple[bytes, Iterator[bytes]]:
    """Give what makes a file that is begun a checkpoint: what stands at HEAD_AT, and what is appended, in chunks.

    Args:
        read: of the file.
        snapshot: all of it; its state is what was begun, and since that.
        since: the difference; it may be empty.

    Raises: CorruptCheckpoint where the file is not what was begun.
    """
    head = _padded(snapshot.head())
    first = section_header(Section.HEAD, 0, 1, head) + head
    return first, _behind(snapshot, since, _file_hash(read, since.begun, first))


def verify_finished(read: Read, begun: Begun) -> Head:
    """Read back all of a finished file but the payloads of STATE, which were read back when it was begun.

    Raises: CorruptCheckpoint, NewerFormat.
    """
    read_file_header(read)
    section = read_section(read, HEAD_AT, 0)
    try:
        head = read_msgpack(section.payload, Head)
    except msgspec.MsgspecError as error:
        raise section.broken(str(error)) from None
    file_hash = _file_hash(read, begun, section.header + section.payload)
    state_hash = hashlib.blake2b(begun.digest, digest_size=16)
    overlaid, offset, index = False, begun.end, begun.sections
    while True:
        section = read_section(read, offset, index)
        offset += SECTION_HEADER.size + len(section.payload)
        index += 1
        if section.kind == Section.END:
            break
        file_hash.update(section.header)
        overlaid = overlaid or section.kind in OVERLAY
        (state_hash if section.kind in OVERLAY else file_hash).update(section.payload)
    state_digest = state_hash.digest() if overlaid else begun.digest
    if section.payload != END.pack(state_digest, file_hash.digest()) or read(offset, 1):
        raise section.broken("a digest is wrong, or bytes follow")
    return head


def _padded(head: Head) -> bytes:
    """Give the payload of HEAD in its fixed length; level 1 has no place in it, so its bytes are those of before."""
    fields = msgspec.structs.astuple(head)
    if head.level == FIRST.level:
        fields = fields[:-1]
    room = HEAD_BYTES - len(msgspec.msgpack.encode((*fields, bytes(256)))) + 256
    return msgspec.msgpack.encode((*fields, bytes(room)))


def _file_hash(read: Read, begun: Begun, head: bytes) -> hashlib.blake2b:
    """Give the hash over what stands before begun.end, with this HEAD: its bytes but the payloads of STATE.

    Raises: CorruptCheckpoint.
    """
    found = hashlib.blake2b(file_header() + head, digest_size=16)
    offset = STATE_AT
    for index in range(1, begun.sections):
        header = read(offset, SECTION_HEADER.size)
        if len(header) < SECTION_HEADER.size:
            raise CorruptCheckpoint(f"section {index} at offset {offset}: the file that was begun ends here")
        found.update(header)
        offset += SECTION_HEADER.size + SECTION_HEADER.unpack(header)[3]
    if offset != begun.end:
        raise CorruptCheckpoint(f"the sections of the file that was begun end at {offset}, {begun.end} expected")
    return found


def _behind(snapshot: Snapshot, since: Since, file_hash: hashlib.blake2b) -> Iterator[bytes]:
    state_hash = hashlib.blake2b(since.begun.digest, digest_size=16)
    overlaid, index = False, since.begun.sections
    for kind, count, payload in chain(payloads_behind_state(snapshot), _overlay(since), stream_payloads(snapshot)):
        header = section_header(kind, index, count, payload, 0 if kind in PASSED_OVER else CRITICAL)
        index += 1
        file_hash.update(header)
        overlaid = overlaid or kind in OVERLAY
        (state_hash if kind in OVERLAY else file_hash).update(payload)
        yield header
        yield from _chunks(payload)
    snapshot.state_digest = state_hash.digest() if overlaid else since.begun.digest
    last = END.pack(snapshot.state_digest, file_hash.digest())
    yield section_header(Section.END, index, 0, last) + last


def _overlay(since: Since) -> Iterator[tuple[Section, int, bytes]]:
    yield from ((Section.GONE, count, payload) for count, payload in _gone(since.gone))
    yield from ((Section.CHANGED, count, payload) for count, payload in groups(since.changed))


def _gone(keys: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    ordered = sorted(keys)
    for at in range(0, len(ordered), GROUP_ITEMS):
        some = ordered[at : at + GROUP_ITEMS]
        yield len(some), b"".join((struct.pack(f"<{len(some)}I", *map(len, some)), *some))


def _chunks(payload: bytes) -> Iterator[bytes]:
    for at in range(0, len(payload), CHUNK_BYTES_MAX):
        yield payload[at : at + CHUNK_BYTES_MAX]
