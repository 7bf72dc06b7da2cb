"""Bytes of a topic's file: whole blocks are read, everything else is nothing."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import NewerFormat
from deathless.topics.blocks import (
    BLOCK_HEAD_BYTES,
    HEADER_BYTES_MAX,
    BlockHead,
    FileHeader,
    encode_block,
    encode_header,
    is_whole,
    read_block_head,
    read_header,
)

HEADER = FileHeader(b"0123456789abcdef", 3, 7, 41, 2, "airports", "flight:utf8,minutes:int64?")
PAYLOAD = b"an Arrow record batch"
BLOCK = encode_block(PAYLOAD, 41, 44, 3, 1_700_000_000_000_000, seed=5)


def test_a_header_is_what_was_written() -> None:
    data = encode_header(HEADER)
    found = read_header(data + b"blocks")
    assert found is not None
    assert (found.size, found.service, found.schema, found.first, found.epoch) == (
        len(data), "airports", HEADER.schema, 41, 7,
    )  # fmt: skip
    assert (found.service_id, found.incarnation, found.shard) == (HEADER.service_id, 3, 2)
    assert len(data) <= HEADER_BYTES_MAX


def test_a_block_is_what_was_written() -> None:
    head = read_block_head(BLOCK, seed=5)
    assert head == BlockHead(41, 44, 3, 1_700_000_000_000_000, len(PAYLOAD), zlib.crc32(PAYLOAD))
    assert is_whole(head, BLOCK[BLOCK_HEAD_BYTES:])


def test_bytes_are_those_of_the_format(golden: Callable[[str, bytes], None]) -> None:
    golden("topic_header", encode_header(HEADER))
    golden("topic_block", BLOCK)
    golden("topic_block_empty", encode_block(b"", 45, 45, 0, 0, seed=5))


def test_what_is_torn_at_any_byte_is_no_header_and_no_block() -> None:
    data = encode_header(HEADER)
    assert [at for at in range(len(data)) if read_header(data[:at]) is not None] == []
    assert [at for at in range(BLOCK_HEAD_BYTES) if read_block_head(BLOCK[:at], seed=5) is not None] == []
    head = read_block_head(BLOCK, seed=5)
    assert head is not None
    assert not any(is_whole(head, PAYLOAD[:at]) for at in range(len(PAYLOAD)))


def test_a_flipped_bit_makes_it_no_header_and_no_block() -> None:
    data = encode_header(HEADER)
    for bit in range(8 * len(data)):
        if bit // 8 not in {6, 7}:  # reserved; their checksum is wrong as well
            assert read_header(flipped(data, bit)) is None
    covered = BLOCK_HEAD_BYTES - 4  # reserved bytes stand behind the checksum
    assert [bit for bit in range(8 * covered) if read_block_head(flipped(BLOCK, bit), seed=5) is not None] == []
    head = read_block_head(BLOCK, seed=5)
    assert head is not None
    assert not any(is_whole(head, flipped(PAYLOAD, bit)) for bit in range(8 * len(PAYLOAD)))


def flipped(data: bytes, bit: int) -> bytes:
    found = bytearray(data)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_no_bytes_are_more_than_a_header_or_a_block_or_nothing(data: bytes, tail: bytes) -> None:
    assert read_header(data) is None
    assert read_block_head(data, seed=0) is None
    assert read_header(b"DLTP" + data) is None
    assert read_block_head(b"DLTB" + data, seed=0) is None
    assert read_block_head(BLOCK + tail, seed=5) == read_block_head(BLOCK, seed=5)


@given(st.binary(max_size=120))
def test_right_checksums_over_other_fields_are_no_header(body: bytes) -> None:
    head = struct.pack("<4sHHI", b"DLTP", 1, 0, 16 + len(body))
    data = head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body
    found = read_header(data)
    assert found is None or encode_header(found) == data


def test_a_block_of_another_file_is_none_of_this_one() -> None:
    assert read_block_head(BLOCK, seed=6) is None


@pytest.mark.parametrize(
    "fields",
    [
        (b"DLTB", 3, 9, 8, 0, 5, 0),
        (b"DLTB", 3, 1, 8, 0, (256 << 20) + 1, 0),
        (b"DLTB", 0, 1, 8, 0, 5, 0),
        (b"DLTB", 3, 1, 8, 0, 0, 0),
    ],
    ids=["first behind last", "too long", "bytes without rows", "rows without bytes"],
)
def test_fields_that_no_writer_writes_are_no_block_whatever_the_checksum(fields: tuple[object, ...]) -> None:
    head = struct.pack("<4sIQQQII", *fields)
    assert read_block_head(head + struct.pack("<II", zlib.crc32(head, 5), 0), seed=5) is None


def test_a_newer_version_is_told_from_damage() -> None:
    data = bytearray(encode_header(HEADER))
    data[4] = 2
    data[12:16] = struct.pack("<I", zlib.crc32(data[16:], zlib.crc32(data[:12])))
    with pytest.raises(NewerFormat, match="version 2"):
        read_header(bytes(data))
