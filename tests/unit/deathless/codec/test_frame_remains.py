"""What stands where no frame does: a torn write is never called changed, and what changed is never called torn."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.ids import ChainHash
from deathless.codec.frame_remains import Remains, judge_remains
from deathless.codec.frames import (
    BLOCK,
    CRC_AT,
    HEADER_BYTES,
    HEADER_CRC_AT,
    SECTOR,
    ZERO_SECTORS_AT,
    FrameKind,
    decode_frame,
    encode_frame,
    padded,
    zero_sector_count,
)

ZEROS = bytes(SECTOR)


def stored(payload: bytes) -> bytes:
    """A frame as it stands in its file, padding included."""
    data = encode_frame(
        FrameKind.DATA,
        payload,
        epoch=3,
        first_lsn=1000,
        confirmed_lsn=999,
        count=1,
        incarnation=7,
        prev_chain=ChainHash(bytes(16)),
        chain=ChainHash(bytes(16)),
        index=4,
    )
    return data + bytes(padded(len(data)) - len(data))


def older(payload: bytes) -> bytes:
    """The same frame of the version that wrote neither checksum nor count."""
    data = bytearray(stored(payload)[: HEADER_BYTES + len(payload)])
    data[CRC_AT : HEADER_CRC_AT + 8] = bytes(12)
    crc = zlib.crc32(data[HEADER_BYTES:], zlib.crc32(data[:HEADER_BYTES], 3))
    data[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "little")
    return bytes(data) + bytes(padded(len(data)) - len(data))


def payload_with_zeros(rng: random.Random) -> bytes:
    size = rng.choice([1, 300, 384, 700, 3000, 3968, 4000, 9000, 20_000, 70_000])
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return bytes(size)
    data = bytearray(rng.randbytes(size))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(size)
        length = min(rng.choice([100, 600, 5000]), size - at)
        data[at : at + length] = bytes(length)
    return bytes(data)


def sectors(data: bytes) -> list[bytes]:
    return [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]


def torn_by_kill(rng: random.Random, whole: bytes) -> bytes:
    """Whole pages from the beginning: what a killed process leaves in the page cache."""
    kept = rng.randrange(len(whole) // BLOCK + 1) * BLOCK
    return whole[:kept] + bytes(len(whole) - kept)


def torn_by_power(rng: random.Random, whole: bytes) -> bytes:
    """Any sectors."""
    return b"".join(each if rng.randrange(2) else ZEROS for each in sectors(whole))


def torn_by_size(rng: random.Random, whole: bytes) -> bytes:
    """The file ends anywhere."""
    return whole[: rng.randrange(len(whole))]


def flip(rng: random.Random, data: bytearray, used: int) -> None:
    data[rng.randrange(used)] ^= 1 << rng.randrange(8)


def scribble(rng: random.Random, data: bytearray, used: int) -> None:
    at = rng.randrange(used)
    data[at : at + 8] = rng.randbytes(min(8, len(data) - at))


def foreign_sector(rng: random.Random, data: bytearray, used: int) -> None:
    at = rng.randrange(used) // SECTOR * SECTOR
    data[at : at + SECTOR] = rng.randbytes(SECTOR)


def lost_sector(rng: random.Random, data: bytearray, used: int) -> None:
    at = rng.randrange(used) // SECTOR * SECTOR
    data[at : at + SECTOR] = ZEROS


@pytest.mark.parametrize("tear", [torn_by_kill, torn_by_power, torn_by_size])
def test_no_torn_write_is_called_changed(tear: Callable[[random.Random, bytes], bytes]) -> None:
    rng = random.Random(7)
    judged = 0
    for _ in range(1500):
        found = tear(rng, stored(payload_with_zeros(rng)))
        if decode_frame(found) is None:
            judged += 1
            assert judge_remains(found) is Remains.TORN
    assert judged > 400


@pytest.mark.parametrize("change", [flip, scribble, foreign_sector])
def test_nothing_that_changed_is_called_torn(change: Callable[[random.Random, bytearray, int], None]) -> None:
    rng = random.Random(8)
    judged = 0
    for _ in range(1500):
        payload = payload_with_zeros(rng)
        data = bytearray(stored(payload))
        change(rng, data, HEADER_BYTES + len(payload))
        if decode_frame(bytes(data)) is None:
            judged += 1
            assert judge_remains(bytes(data)) is Remains.CHANGED
    assert judged > 1000


def test_a_sector_that_was_lost_looks_like_one_that_never_arrived() -> None:
    """The limit of what bytes can tell: only a witness of what is confirmed sees it."""
    rng = random.Random(9)
    data = bytearray(stored(rng.randbytes(4000)))
    lost_sector(rng, data, 4000)
    assert judge_remains(bytes(data)) is Remains.TORN


def test_counting_any_zero_sector_as_torn_would_miss_what_changed() -> None:
    """A payload may hold sectors of zeros itself: it is their count that tells."""
    data = bytearray(stored(b"\1" * 400 + bytes(2 * SECTOR) + b"\1" * 400))
    data[200] ^= 1
    assert zero_sector_count(bytes(data[: HEADER_BYTES + 400])) == 0
    assert judge_remains(bytes(data)) is Remains.CHANGED


@pytest.mark.parametrize(
    ("data", "remains"),
    [
        (b"", Remains.TORN),
        (bytes(BLOCK), Remains.TORN),
        (b"x" * (SECTOR - 1), Remains.TORN),
        (ZEROS + b"x" * SECTOR, Remains.TORN),
        (b"\xff" * BLOCK, Remains.CHANGED),
        (b"DLF1" + b"\xff" * (BLOCK - 4), Remains.CHANGED),
    ],
    ids=["nothing", "zeros", "less than a sector", "no header", "garbage", "magic and garbage"],
)
def test_each_line_of_the_table_holds(data: bytes, remains: Remains) -> None:
    assert judge_remains(b"before" + data, 6) is remains


def test_a_frame_of_the_older_version_is_judged_by_magic_and_zero_sectors() -> None:
    rng = random.Random(4)
    whole = older(rng.randbytes(9000))
    assert decode_frame(whole) is not None
    assert judge_remains(b"\xff" + whole[1:]) is Remains.CHANGED
    flipped = bytearray(whole)
    flipped[5000] ^= 4
    assert judge_remains(bytes(flipped)) is Remains.CHANGED
    assert judge_remains(whole[:BLOCK] + bytes(len(whole) - BLOCK)) is Remains.TORN
    assert judge_remains(whole[:BLOCK]) is Remains.TORN


@given(
    data=st.lists(st.sampled_from([b"\0", b"\0" * 511, b"\0" * 512, b"\0" * 700, b"x"]), max_size=12),
    first=st.integers(0, 600),
)
def test_zero_sectors_are_counted_as_by_cutting_the_bytes_up(data: list[bytes], first: int) -> None:
    whole = b"".join(data)
    parts = sectors(whole[first:])
    assert zero_sector_count(whole, first) == sum(not part.strip(b"\0") for part in parts)


def test_every_bit_of_the_marks_belongs_to_the_frame() -> None:
    """The marks lie below the frame's checksum too: a reader that knows nothing of them still sees them change."""
    whole = stored(b"payload")
    for at in range(HEADER_CRC_AT, HEADER_CRC_AT + 8):
        bad = bytearray(whole)
        bad[at] ^= 1
        assert decode_frame(bytes(bad)) is None
    assert struct.unpack_from("<I", whole, ZERO_SECTORS_AT) == (0,)
