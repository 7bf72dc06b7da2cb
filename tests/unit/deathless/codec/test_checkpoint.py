"""Checkpoints: the bytes, both ways, rot of every bit, and sections that this version does not know."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encoded import chunk_reader

from deathless.base.errors import CorruptCheckpoint, NewerFormat, TooLarge
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec import checkpoint
from deathless.codec.checkpoint import (
    END,
    KEY,
    PARKED,
    SECTION_HEADER,
    SESSION,
    decode,
    encode,
    file_header,
    read_head,
    section_header,
    state_digest,
    verify,
)
from deathless.codec.generations import FIRST, Generation
from deathless.codec.sections import Section
from deathless.codec.snapshot import Head, KeyRecord, ParkedRecord, SessionRecord, Snapshot

Part = tuple[int, int, bytes, int]
"""(type, count, payload, flags) of one section."""

FOLDER = Path(__file__).parents[3] / "golden"


def sample() -> Snapshot:
    return Snapshot(
        service="bank",
        service_id=bytes(range(16)),
        incarnation=Incarnation(77),
        epoch=Epoch(2),
        lsn=Lsn(41),
        chain=ChainHash(bytes(range(16, 32))),
        digest=Digest(bytes(range(32, 48))),
        times=Times.at(1_700_000_000_000_000),
        fingerprint=Fingerprint(bytes(range(48, 64))),
        state={b"bob": b"\x07", b"alice": b"\x05", b"": b""},
        sessions=[
            SessionRecord(7, 3, 0, 1_600_000_000_000_000, bytes(16), {1: b"\x00\x05", 2: b"\x00\x06"}),
            SessionRecord(3, 1, 0, 1_700_000_000_000_000, bytes(range(16)), {}),
        ],
        keys=[KeyRecord(b"k1", bytes(range(16)), b"\x00\x05", 1_650_000_000_000_000)],
        keys_floor_us=12,
        parked=[ParkedRecord(40, 7, 2, b"killer")],
    )


def parts_of(data: bytes) -> list[Part]:
    """Take a good checkpoint apart, END left out."""
    at = 16
    parts: list[Part] = []
    while True:
        _, kind, flags, length, _, count, _, _ = SECTION_HEADER.unpack_from(data, at)
        if kind == Section.END:
            return parts
        parts.append((kind, count, data[at + 32 : at + 32 + length], flags))
        at += 32 + length


def built(parts: list[Part], *, end: bytes | None = None, tail: bytes = b"") -> checkpoint.Read:
    """Put a checkpoint together by the book: right checksums and digests around whatever sections are given."""
    data, states = file_header(), b""
    hashed = data
    for index, (kind, count, payload, flags) in enumerate(parts):
        header = section_header(kind, index, count, payload, flags)
        data += header + payload
        hashed += header + (b"" if kind == Section.STATE else payload)
        states += payload if kind == Section.STATE else b""
    if end is None:
        end = blake(states) + blake(hashed)
    return chunk_reader([data, section_header(Section.END, len(parts), 0, end), end, tail])


def blake(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def sample_parts() -> list[Part]:
    return parts_of(b"".join(encode(sample())))


def with_payload(kind: Section, count: int, payload: bytes) -> list[Part]:
    """The sample with the payload of one section changed."""
    return [(kind, count, payload, 1) if part[0] == kind else part for part in sample_parts()]


def test_the_bytes_of_a_checkpoint_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint", b"".join(encode(sample())))


def test_a_checkpoint_of_version_1_is_still_read_and_has_one_clock() -> None:
    old = (FOLDER / "checkpoint_version_1.bin").read_bytes()
    found = decode(chunk_reader([old]))
    assert found == replace(sample(), times=Times.of_version_1(sample().times.time_us), state_digest=found.state_digest)


def test_the_bytes_of_an_empty_checkpoint_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    empty = replace(sample(), state={}, sessions=[], keys=[], parked=[], keys_floor_us=-1)
    data = b"".join(encode(empty))
    golden("checkpoint_empty", data)
    assert decode(chunk_reader([data])) == empty
    assert parts_of(data) == [(Section.HEAD, 1, empty.head().encode(), 1)]


def test_a_checkpoint_of_a_later_generation_has_its_place(golden: Callable[[str, bytes], None]) -> None:
    later = replace(sample(), generation=Generation(3, 40, bytes(range(16))))
    data = b"".join(encode(later))
    golden("checkpoint_generation", data)
    read = chunk_reader([data])
    assert decode(read).generation == later.generation
    assert read_head(chunk_reader([data])).of_generation() == later.generation


def test_a_checkpoint_reads_back_as_it_was_written() -> None:
    written = sample()
    read = chunk_reader(list(encode(written)))
    found = decode(read)
    assert found == written
    assert list(found.state) == sorted(written.state)
    assert found.state_digest == written.state_digest == state_digest(written.state)
    assert verify(read) == (written.head(), written.state_digest)


def test_this_builder_of_checkpoints_agrees_with_the_encoder() -> None:
    assert decode(built(sample_parts())).head() == sample().head()


U64 = st.integers(0, 2**64 - 1)
HASH = st.binary(min_size=16, max_size=16)
BLOB = st.binary(max_size=24)


@st.composite
def sessions(draw: st.DrawFn) -> list[SessionRecord]:
    records = []
    for session_id in draw(st.lists(U64, max_size=4, unique=True)):
        acked = draw(st.integers(0, 2**63))
        waiting = draw(st.dictionaries(st.integers(acked + 1, acked + 9), BLOB, max_size=4))
        records.append(SessionRecord(session_id, acked + 10, acked, draw(U64), draw(HASH), waiting))
    return records


@given(
    state=st.dictionaries(BLOB, BLOB, max_size=12),
    sessions=sessions(),
    keys=st.lists(st.builds(KeyRecord, key=BLOB, request_hash=HASH, reply=BLOB, at_us=U64), max_size=4),
    parked=st.lists(st.builds(ParkedRecord, lsn=U64, session=U64, seq=U64, message=BLOB), max_size=3),
)
def test_whatever_a_shard_holds_reads_back(
    state: dict[bytes, bytes], sessions: list[SessionRecord], keys: list[KeyRecord], parked: list[ParkedRecord]
) -> None:
    written = replace(sample(), state=state, sessions=sessions, keys=keys, parked=parked)
    assert decode(chunk_reader(list(encode(written)))) == written


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group and chunk limits so small that a little state passes them."""
    monkeypatch.setattr(checkpoint, "GROUP_ITEMS", 3)
    monkeypatch.setattr(checkpoint, "GROUP_BYTES", 10)
    monkeypatch.setattr(checkpoint, "CHUNK_BYTES_MAX", 16)


@pytest.mark.usefixtures("small_groups")
def test_groups_are_slices_of_the_sorted_keys_cut_by_size() -> None:
    sizes = [1, 1, 1, 4, 4, 4, 30, 9, 0, 2]
    state = {b"%d" % at: bytes(size - 1) for at, size in enumerate(sizes) if size}
    groups = [payload for _, _, payload, _ in parts_of(b"".join(encode(replace(sample(), state=state))))[1:]]
    counts = [count for kind, count, *_ in parts_of(b"".join(encode(replace(sample(), state=state)))) if kind == 2]
    # Slices of three: 0 1 2 fit in one group; of 3 4 5 two fit in 10 bytes; 6 alone is longer; 7 and 9 are 11 together.
    assert counts == [3, 2, 1, 1, 1, 1]
    assert groups[0] == b"".join(n.to_bytes(4, "little") for n in (1, 1, 1, 0, 0, 0)) + b"012"


@pytest.mark.usefixtures("small_groups")
@settings(max_examples=50)
@given(state=st.dictionaries(st.binary(max_size=4), st.binary(max_size=14), max_size=20), data=st.data())
def test_the_state_digest_does_not_depend_on_the_order_of_keys(state: dict[bytes, bytes], data: st.DataObject) -> None:
    shuffled = dict(data.draw(st.permutations(list(state.items()))))
    assert state_digest(shuffled) == state_digest(state)
    written = replace(sample(), state=shuffled)
    assert decode(chunk_reader(list(encode(written)))) == written


@given(state=st.dictionaries(BLOB, BLOB, min_size=1, max_size=6), key=BLOB, value=BLOB)
def test_the_state_digest_tells_states_apart(state: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    assert (state_digest({**state, key: value}) == state_digest(state)) == (state.get(key) == value)


@pytest.mark.usefixtures("small_groups")
def test_no_chunk_is_longer_than_promised_and_none_is_empty() -> None:
    chunks = list(encode(replace(sample(), state={b"k": bytes(100)})))
    assert all(1 <= len(chunk) <= 64 for chunk in chunks)  # a header and END come whole, payloads in 16
    assert decode(chunk_reader(chunks)).state == {b"k": bytes(100)}


def test_an_item_too_long_for_a_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECTION_BYTES_MAX", 400)
    with pytest.raises(TooLarge, match="section STATE of 409 bytes, at most 400"):
        list(encode(replace(sample(), state={b"k": bytes(400)})))


# ---------------------------------------------------------------- rot


def readers() -> dict[str, Callable[[checkpoint.Read], object]]:
    return {"decode": decode, "verify": verify}


@pytest.mark.parametrize("name", readers())
def test_every_flipped_bit_of_a_checkpoint_is_found(name: str) -> None:
    whole = b"".join(encode(sample()))
    for at in range(len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptCheckpoint, match="at offset"):
                readers()[name](chunk_reader([bytes(bad)]))


@pytest.mark.parametrize("name", readers())
def test_every_torn_checkpoint_is_found(name: str) -> None:
    whole = b"".join(encode(sample()))
    for length in range(len(whole)):
        with pytest.raises(CorruptCheckpoint, match="at offset"):
            readers()[name](chunk_reader([whole[:length]]))
        with pytest.raises(CorruptCheckpoint, match="at offset"):
            readers()[name](chunk_reader([whole[:length], bytes(len(whole) - length + 1)]))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_checkpoint(data: bytes) -> None:
    for prefix in (b"", file_header()):
        with pytest.raises(CorruptCheckpoint):
            decode(chunk_reader([prefix, data]))


@given(payload=st.binary(max_size=80), count=st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1)), data=st.data())
def test_a_section_of_random_bytes_is_read_or_refused_cleanly(payload: bytes, count: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*Section]))
    parts = sample_parts()
    at = data.draw(st.integers(0, len(parts) - 1))
    try:
        decode(built([*parts[:at], (kind, count, payload, 1), *parts[at + 1 :]]))
    except (CorruptCheckpoint, NewerFormat):
        return


# ---------------------------------------------------------------- newer versions


@pytest.mark.parametrize(("version", "algorithm"), [(3, 1), (0, 1), (2, 2)])
def test_a_newer_version_is_refused_by_name(version: int, algorithm: int) -> None:
    with pytest.raises(NewerFormat, match=f"version {version}, checksum {algorithm}; this is version 2"):
        verify(chunk_reader([file_header(version, algorithm), b"".join(encode(sample()))[16:]]))


@pytest.mark.parametrize("kind", [18, 99])
def test_an_unknown_section_is_refused_when_critical_and_skipped_when_not(kind: int) -> None:
    with pytest.raises(NewerFormat, match=r"section \S+( \d+)? at offset \d+ is critical"):
        decode(built([*sample_parts(), (kind, 1, b"new", 1)]))
    read = built([*sample_parts(), (kind, 1, b"new", 0)])
    assert decode(read).head() == verify(read)[0] == sample().head()


# ---------------------------------------------------------------- right checksums, wrong content


def head_part(**changes: object) -> Part:
    return Section.HEAD, 1, msgspec.msgpack.encode(msgspec.structs.replace(sample().head(), **changes)), 1


def state_payload(*items: tuple[bytes, bytes]) -> bytes:
    lengths = [len(key) for key, _ in items] + [len(value) for _, value in items]
    columns = b"".join(n.to_bytes(4, "little") for n in lengths)
    return columns + b"".join(key for key, _ in items) + b"".join(value for _, value in items)


def wrong() -> Iterator[tuple[str, list[Part], str]]:
    head, state, sess, replies, keys, parked = sample_parts()
    reply_columns = (7).to_bytes(8, "little") + (1).to_bytes(8, "little") + (2).to_bytes(4, "little")
    row = SESSION.pack(7, 3, 0, 0, bytes(16))
    yield "no head", [state], "HEAD expected"
    yield "head twice", [head, head], "stands behind section HEAD"
    yield "state behind keys", [head, keys, state], "section STATE at offset .* stands behind section KEYS"
    yield "head of another shape", [(1, 1, b"\x01", 1)], "section HEAD"
    yield "head that is no text", [(1, 1, b"\x9b\xa1\xff", 1)], "section HEAD"
    yield "keys missing", [head_part(state_keys=4), state], "4 keys promised, 3 found"
    yield "keys twice", [head, (2, 2, state_payload((b"a", b""), (b"a", b"")), 1)], "do not ascend"
    yield (
        "keys fall",
        [head, (2, 1, state_payload((b"b", b"")), 1), (2, 1, state_payload((b"a", b"")), 1)],
        "do not asc",
    )
    yield "state columns too long", with_payload(Section.STATE, 2**32 - 1, state[2]), "columns pass"
    yield "state blob too long", with_payload(Section.STATE, 3, state[2] + b"x"), "lengths and payload disagree"
    yield "sessions too long", with_payload(Section.SESSIONS, 2, sess[2] + b"x"), "count and payload disagree"
    yield "session twice", with_payload(Section.SESSIONS, 2, row + row), "session 7 twice"
    yield "acked too far", with_payload(Section.SESSIONS, 1, SESSION.pack(7, 3, 3, 0, bytes(16))), "beyond its end"
    yield "reply without session", [head, state, replies], "reply to seq 1 of session 7"
    yield "reply not owed", with_payload(Section.SESSIONS, 1, SESSION.pack(7, 3, 1, 0, bytes(16))), "reply to seq 1"
    yield "reply columns too long", with_payload(Section.REPLIES, 9, reply_columns), "columns pass"
    yield "reply blob too long", with_payload(Section.REPLIES, 1, reply_columns + b"abc"), "lengths and payload"
    yield "key columns too long", with_payload(Section.KEYS, 9, keys[2]), "columns pass"
    yield "key blob too short", with_payload(Section.KEYS, 1, keys[2][:-1]), "lengths and payload"
    yield "parked columns too long", with_payload(Section.PARKED, 9, parked[2]), "columns pass"
    yield "parked blob too long", with_payload(Section.PARKED, 1, parked[2] + b"x"), "lengths and payload"


@pytest.mark.parametrize(("parts", "what"), [pytest.param(p, w, id=name) for name, p, w in wrong()])
def test_wrong_content_is_refused_even_under_right_checksums(parts: list[Part], what: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=what):
        decode(built(parts))


def test_verify_counts_the_keys_too() -> None:
    with pytest.raises(CorruptCheckpoint, match="4 keys promised, 3 found"):
        verify(built([head_part(state_keys=4), *sample_parts()[1:]]))


def test_an_empty_state_section_is_read() -> None:
    parts = sample_parts()
    assert decode(built([parts[0], (2, 0, b"", 1), *parts[1:]])).head() == sample().head()


@pytest.mark.parametrize(
    ("end", "what"),
    [(bytes(31), "31 bytes, 32 expected"), (bytes(32), "state digest is wrong"), (None, "file digest is wrong")],
)
def test_the_end_must_hold_both_digests(end: bytes | None, what: str) -> None:
    if end is None:
        end = END.pack(sample().state_digest or state_digest(sample().state), bytes(16))
    with pytest.raises(CorruptCheckpoint, match=f"section END at offset .*{what}"):
        decode(built(sample_parts(), end=end))


def test_nothing_may_follow_the_end() -> None:
    with pytest.raises(CorruptCheckpoint, match="bytes follow at offset"):
        decode(built(sample_parts(), tail=b"\0"))


def test_reserved_bytes_must_be_zero() -> None:
    bare = file_header()[:7] + b"\1" + file_header()[8:12]
    header = bare + checkpoint.CRC.pack(zlib.crc32(bare))
    with pytest.raises(CorruptCheckpoint, match="reserved bytes are set"):
        verify(chunk_reader([header]))


def test_a_section_of_another_place_is_found() -> None:
    head = sample_parts()[0]
    moved = section_header(Section.HEAD, 1, 1, head[2]) + head[2]
    with pytest.raises(CorruptCheckpoint, match="section 0 expected, this is section 1"):
        verify(chunk_reader([file_header(), moved]))


def test_the_widths_of_rows_are_version_1() -> None:
    assert (SECTION_HEADER.size, SESSION.size, KEY.size, PARKED.size, END.size) == (32, 48, 32, 32, 32)


def test_a_head_reads_back_by_place_not_by_name() -> None:
    assert msgspec.msgpack.decode(sample_parts()[0][2])[:2] == ["bank", bytes(range(16))]
    assert len(msgspec.msgpack.decode(sample_parts()[0][2])) == len(Head.__struct_fields__) - len(FIRST)
