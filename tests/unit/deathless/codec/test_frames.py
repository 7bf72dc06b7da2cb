"""Frames: the bytes, both ways, rot of every bit, and the chain that a copy keeps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptFrame, NewerFormat
from deathless.base.ids import ChainHash, Digest, Epoch, Incarnation, Lsn
from deathless.codec import frames
from deathless.codec.frames import BLOCK, CRC_AT, HEADER_BYTES, Frame, FrameKind, Run
from deathless.codec.generations import FIRST, Level

GOLDEN = Path(__file__).parents[3] / "golden"
DIGEST = Digest(bytes(range(16)))
CHAIN = ChainHash(bytes(range(16, 32)))
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)


def column(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def payload_of(parts: Sequence[tuple[Run, Sequence[bytes]]]) -> bytes:
    messages = [message for _, some in parts for message in some]
    ends = column(list(accumulate(map(len, messages))))
    digests = column([zlib.crc32(message) for message in messages])
    return frames.encode_data([run for run, _ in parts], ends, digests, DIGEST, b"".join(messages))


def data_frame(payload: bytes, *, first_lsn: int = 5, count: int = 3, epoch: int = 2) -> bytes:
    return frames.encode_frame(
        FrameKind.DATA,
        payload,
        epoch=epoch,
        first_lsn=first_lsn,
        confirmed_lsn=4,
        count=count,
        incarnation=77,
        prev_chain=CHAIN,
        chain=frames.chain_after(CHAIN, first_lsn, payload),
        index=6,
    )


def control_frame(kind: FrameKind, record: msgspec.Struct) -> bytes:
    return frames.encode_frame(
        kind,
        record.encode() if isinstance(record, frames.Cut) else msgspec.msgpack.encode(record),
        epoch=2,
        first_lsn=5,
        confirmed_lsn=4,
        count=0,
        incarnation=77,
        prev_chain=CHAIN,
        chain=CHAIN,
        index=0,
        level=getattr(record, "level", Level.FIRST),
    )


SMALL = payload_of([(Run(0, 0, 0, 1), [b"time"]), (Run(3, 8, 7, 2), [b"", b"two"]), (Run(4, 1, 9, 0), [])])
CONTROLS = {
    "cut": (
        FrameKind.CUT,
        frames.Cut(
            frames.Position(1, 0, 2 * BLOCK, 4, CHAIN),
            "bank",
            bytes(16),
            77,
            "seal",
            "directory:0123",
            bytes(range(16)),
            "r1",
            2,
        ),
    ),
    "opening": (FrameKind.OPENING, frames.Opening(6, 12, 1)),
    "roll": (FrameKind.ROLL, frames.RollTo(3)),
    "confirm": (FrameKind.CONFIRM, frames.Confirm(DIGEST)),
}


def reseal(data: bytearray) -> bytes:
    """Make the checksum of a changed frame right again."""
    data[CRC_AT : CRC_AT + 4] = bytes(4)
    epoch = int.from_bytes(data[8:12], "little")
    data[CRC_AT : CRC_AT + 4] = zlib.crc32(data[HEADER_BYTES:], zlib.crc32(data[:HEADER_BYTES], epoch)).to_bytes(
        4, "little"
    )
    return bytes(data)


def test_the_bytes_of_a_data_frame_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("frame_data", data_frame(SMALL))


def test_a_data_frame_of_version_1_is_still_read() -> None:
    old = (GOLDEN / "frame_data_without_marks.bin").read_bytes()
    assert frames.decode_frame(old) == frames.decode_frame(data_frame(SMALL))


def test_a_cut_of_a_later_generation_has_its_place(golden: Callable[[str, bytes], None]) -> None:
    kind, record = CONTROLS["cut"]
    later = msgspec.structs.replace(record, generation=2, upgraded_lsn=3, upgraded_chain=DIGEST)
    data = control_frame(kind, later)
    golden("frame_cut_generation", data)
    frame = frames.decode_frame(data)
    assert frame is not None
    found = msgspec.msgpack.decode(frame.payload, type=frames.Cut)
    assert found == later
    assert found.of_generation() == (2, 3, DIGEST, Level.FIRST)


def test_a_cut_of_a_later_level_is_a_newer_format_for_builds_that_know_no_levels(
    golden: Callable[[str, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, record = CONTROLS["cut"]
    data = control_frame(kind, msgspec.structs.replace(record, level=Level.RUNS))
    golden("frame_cut_level", data)
    frame = frames.decode_frame(data)
    assert frame is not None
    assert msgspec.msgpack.decode(frame.payload, type=frames.Cut).of_generation() == FIRST._replace(level=Level.RUNS)
    monkeypatch.setattr(frames, "READ_VERSIONS", (1, 2))
    with pytest.raises(NewerFormat, match="version 3"):
        frames.decode_frame(data)


@pytest.mark.parametrize("name", CONTROLS)
def test_the_bytes_of_the_other_frames_are_version_1(name: str, golden: Callable[[str, bytes], None]) -> None:
    kind, record = CONTROLS[name]
    data = control_frame(kind, record)
    golden(f"frame_{name}", data)
    frame = frames.decode_frame(data)
    assert frame is not None
    assert frame.kind == kind
    assert msgspec.msgpack.decode(frame.payload, type=type(record)) == record


@pytest.mark.parametrize("name", ["data", *CONTROLS])
def test_a_frame_that_was_written_before_the_header_had_marks_is_still_read(name: str) -> None:
    data = (GOLDEN / f"frame_{name}_without_marks.bin").read_bytes()
    assert data[frames.HEADER_CRC_AT : frames.ZERO_SECTORS_AT + 4] == bytes(8)
    frame = frames.decode_frame(data)
    assert frame == frames.decode_frame((GOLDEN / f"frame_{name}.bin").read_bytes())
    assert frame is not None


def test_a_frame_reads_back_as_it_was_written() -> None:
    frame = frames.decode_frame(b"before" + data_frame(SMALL) + b"after", 6)
    chain = frames.chain_after(CHAIN, 5, SMALL)
    assert frame == Frame(FrameKind.DATA, Epoch(2), Lsn(5), Lsn(4), 3, Incarnation(77), CHAIN, chain, 6, SMALL)
    data = frames.decode_data(frame)
    assert data.digest == DIGEST
    assert data.runs == (Run(0, 0, 0, 1), Run(3, 8, 7, 2), Run(4, 1, 9, 0))
    assert data.ends == (4, 4, 7)
    assert data.blob == b"timetwo"
    assert data.digests == tuple(map(zlib.crc32, (b"time", b"", b"two")))


def test_the_last_lsn_of_an_empty_frame_is_the_one_before_it() -> None:
    full, empty = frames.decode_frame(data_frame(SMALL)), frames.decode_frame(control_frame(*CONTROLS["roll"]))
    assert full is not None
    assert empty is not None
    assert (full.last_lsn, empty.last_lsn) == (7, 4)


PARTS = st.lists(
    st.tuples(U64, U64, U64, st.lists(st.binary(max_size=20), max_size=5)).map(
        lambda t: (Run(t[0], t[1], t[2], len(t[3])), t[3])
    ),
    max_size=4,
)


@given(parts=PARTS, epoch=U64, first_lsn=st.integers(1, 2**64 - 1), confirmed=U64, incarnation=U64, index=U64)
def test_what_is_encoded_is_decoded(
    parts: list[tuple[Run, list[bytes]]], epoch: int, first_lsn: int, confirmed: int, incarnation: int, index: int
) -> None:
    messages = [message for _, some in parts for message in some]
    payload = payload_of(parts)
    raw = frames.encode_frame(
        FrameKind.DATA,
        payload,
        epoch=epoch,
        first_lsn=first_lsn,
        confirmed_lsn=confirmed,
        count=len(messages),
        incarnation=incarnation,
        prev_chain=ChainHash(bytes(16)),
        chain=CHAIN,
        index=index,
    )
    frame = frames.decode_frame(raw)
    assert frame is not None
    assert frame[:9] == (3, epoch, first_lsn, confirmed, len(messages), incarnation, ChainHash(bytes(16)), CHAIN, index)
    data = frames.decode_data(frame)
    assert data.runs == tuple(run for run, _ in parts)
    assert [data.blob[a:b] for a, b in zip((0, *data.ends), data.ends, strict=False)] == messages
    assert frames.frame_length(raw) == len(raw)
    assert frames.data_bytes(len(parts), len(messages), len(data.blob)) == frames.padded(len(raw))


def test_every_flipped_bit_of_a_frame_is_found() -> None:
    whole = data_frame(SMALL)
    for at in range(len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[at] ^= 1 << bit
            assert frames.decode_frame(bytes(bad)) is None, f"bit {bit} of byte {at}"


def test_every_torn_frame_is_found() -> None:
    whole = data_frame(SMALL)
    for length in range(len(whole)):
        assert frames.decode_frame(whole[:length]) is None
        assert frames.decode_frame(whole[:length] + bytes(len(whole) - length + BLOCK)) is None


@given(st.binary(max_size=300))
def test_random_bytes_are_no_frame(data: bytes) -> None:
    assert frames.decode_frame(data) is None
    assert frames.decode_frame(b"DLF1\1\0\3\1" + data) is None


@given(payload=st.binary(max_size=120), count=st.one_of(st.integers(0, 5), U32))
def test_a_payload_of_random_bytes_is_data_or_a_typed_error(payload: bytes, count: int) -> None:
    frame = frames.decode_frame(data_frame(payload, count=count))
    assert frame is not None
    try:
        data = frames.decode_data(frame)
    except CorruptFrame:
        return
    assert len(data.ends) == len(data.digests) == count == sum(run.count for run in data.runs)


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [(0, b"DLF2", "b'DLF2'"), (4, b"\x03\x00", "version 3"), (4, b"\x00\x00", "version 0"), (7, b"\x02", "checksum 2")],
)
def test_a_newer_version_is_refused_by_name(at: int, value: bytes, what: str) -> None:
    data = bytearray(data_frame(SMALL))
    data[at : at + len(value)] = value
    with pytest.raises(NewerFormat, match=what):
        frames.decode_frame(reseal(data))


@pytest.mark.parametrize(
    ("payload", "count", "what"),
    [
        (b"", 0, "shorter than its head"),
        (SMALL[:23], 3, "shorter than its head"),
        (SMALL, 2**32 - 1, "pass the payload's end"),
        (SMALL, 2, "disagree"),
        (SMALL + b"x", 3, "disagree"),
        (frames.encode_data([Run(1, 1, 0, 2)], column([5, 3]), column([0, 0]), DIGEST, b"abc"), 2, "disagree"),
        (frames.encode_data([Run(1, 1, 0, 1)], b"", b"", DIGEST, b""), 0, "disagree"),
        (frames.encode_data([], b"", b"", DIGEST, b"x"), 0, "disagree"),
    ],
)
def test_columns_that_do_not_fit_are_refused(payload: bytes, count: int, what: str) -> None:
    frame = frames.decode_frame(data_frame(payload, count=count))
    assert frame is not None
    with pytest.raises(CorruptFrame, match=what):
        frames.decode_data(frame)


def test_the_length_of_a_frame_is_told_by_its_header_alone() -> None:
    whole = data_frame(SMALL)
    assert frames.frame_length(b"xx" + whole[:HEADER_BYTES], 2) == len(whole)
    assert frames.frame_length(whole[: HEADER_BYTES - 1]) is None
    assert frames.frame_length(bytes(HEADER_BYTES)) is None


def test_a_copied_frame_keeps_its_chain_hash() -> None:
    chain = frames.chain_after(CHAIN, 5, SMALL)
    assert chain == frames.chain_after(CHAIN, 5, SMALL)
    assert chain.hex() == "f144c9bb7a803f9437812b2f5549d4ce"
    others = {
        frames.chain_after(ChainHash(bytes(16)), 5, SMALL),
        frames.chain_after(CHAIN, 6, SMALL),
        frames.chain_after(CHAIN, 5, SMALL + b"x"),
    }
    assert len(others | {chain}) == 4


@pytest.mark.parametrize(("size", "blocks"), [(0, 0), (1, 1), (BLOCK, 1), (BLOCK + 1, 2)])
def test_sizes_are_rounded_up_to_blocks(size: int, blocks: int) -> None:
    assert frames.padded(size) == blocks * BLOCK


@given(epoch=st.integers(0, 10**12 - 1), roll=st.integers(0, 10**6 - 1))
def test_a_segments_name_reads_back(epoch: int, roll: int) -> None:
    assert frames.parse_segment_name(frames.segment_name(epoch, roll)) == (epoch, roll)


@given(st.lists(st.tuples(st.integers(0, 10**12 - 1), st.integers(0, 10**6 - 1)), max_size=8))
def test_names_sort_as_segments_follow_each_other(places: list[tuple[int, int]]) -> None:
    assert [frames.segment_name(*p) for p in sorted(places)] == sorted(frames.segment_name(*p) for p in places)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "e000000000001.r000000.se",
        "x000000000001.r000000.seg",
        "e000000000001-r000000.seg",
        "e000000000001.r000000.tmp",
        "e00000000000x.r000000.seg",
        "e000000000001.r00000x.seg",
        "e000000000001.r000000.segx",
        "e00000000000\u0661.r000000.seg",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert frames.parse_segment_name(name) is None
