"""Bytes of a topic's file: one header, then blocks, each whole or not there.

    file   magic, version, length, CRC | service id, incarnation, epoch, first, shard | name of the service | schema
    block  magic, rows, positions covered, newest time, length, CRC of the payload, CRC of this head | payload

A payload is one Arrow record batch in the file's schema; a block without rows has none. The CRC of a head continues
from the CRC of its file's header, so that a block counts in its own file alone. docs/formats/topic.md has the offsets.

Guarantees: what is torn or damaged reads as None, whatever the bytes are; no length that bytes state is believed before
its CRC was right, and none is above its maximum. Does not: know Arrow (`arrow`), open files (`index`). Imports base.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.base.errors import NewerFormat
from deathless.base.topics.row_schema import TEXT_MAX

FORMAT_VERSION: Final = 1
HEAD_BYTES: Final = 16  # of a file, before what its version says
BLOCK_HEAD_BYTES: Final = 48
SERVICE_BYTES_MAX: Final = 256
PAYLOAD_BYTES_MAX: Final = 256 << 20
"""Of one block: a batch of messages is far below it."""

_MAGIC: Final = b"DLTP"
_BLOCK_MAGIC: Final = b"DLTB"
_HEAD: Final = struct.Struct("<4sHHII")  # magic, version, reserved, length of the header, CRC
_BODY: Final = struct.Struct("<16sQQQIHH")  # service id, incarnation, epoch, first, shard, bytes of name and of schema
_BLOCK: Final = struct.Struct("<4sIQQQII")  # magic, rows, first, last, time, length and CRC of the payload
_CRC: Final = struct.Struct("<I")
HEADER_BYTES_MAX: Final = HEAD_BYTES + _BODY.size + SERVICE_BYTES_MAX + TEXT_MAX


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What stands at the beginning of a file."""

    service_id: bytes  # 16 bytes
    incarnation: int
    epoch: int  # of its writer
    first: int  # position that its first block begins with
    shard: int
    service: str
    schema: str  # text of a row schema; empty: blocks without rows alone
    size: int = 0  # bytes of the header, once it was written
    crc: int = 0


class BlockHead(NamedTuple):
    """What stands before a block's rows."""

    first: int  # positions that the block covers, with and without a row
    last: int
    rows: int
    time_us: int  # newest logical time of its rows; 0: it has none
    length: int  # of the payload
    crc: int  # of the payload


def encode_header(header: FileHeader) -> bytes:
    """Give the bytes of a file's header."""
    service, schema = header.service.encode(), header.schema.encode()
    assert len(service) <= SERVICE_BYTES_MAX and len(schema) <= TEXT_MAX
    fixed = _BODY.pack(
        header.service_id, header.incarnation, header.epoch, header.first, header.shard, len(service), len(schema)
    )
    body = fixed + service + schema
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, 0, HEAD_BYTES + len(body), 0)[:-4]
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def read_header(data: bytes) -> FileHeader | None:
    """Read the header that a file begins with; None: there is no whole one.

    Args:
        data: the beginning of the file, HEADER_BYTES_MAX of it or all.

    Raises: NewerFormat.
    """
    if len(data) < HEAD_BYTES:
        return None
    magic, version, _, size, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or not HEAD_BYTES <= size <= min(HEADER_BYTES_MAX, len(data)):
        return None
    if zlib.crc32(data[HEAD_BYTES:size], zlib.crc32(data[: HEAD_BYTES - 4])) != crc:
        return None
    if version != FORMAT_VERSION:
        raise NewerFormat(f"a topic's file has version {version}; this build reads {FORMAT_VERSION}")
    body = data[HEAD_BYTES:size]
    if len(body) < _BODY.size:
        return None
    service_id, incarnation, epoch, first, shard, name_bytes, schema_bytes = _BODY.unpack_from(body)
    texts = body[_BODY.size :]
    if len(texts) != name_bytes + schema_bytes:
        return None
    try:
        service, schema = texts[:name_bytes].decode(), texts[name_bytes:].decode()
    except UnicodeDecodeError:
        return None
    return FileHeader(service_id, incarnation, epoch, first, shard, service, schema, size, crc)


def encode_block(payload: bytes, first: int, last: int, rows: int, time_us: int, *, seed: int) -> bytes:
    """Give the bytes of one block.

    Args:
        payload: its rows; empty when there are none.
        first: position from which it covers.
        last: position up to which it covers.
        rows: how many it holds.
        time_us: the newest of their logical times.
        seed: CRC of the file's header.
    """
    assert first <= last and bool(rows) == bool(payload) and len(payload) <= PAYLOAD_BYTES_MAX
    head = _BLOCK.pack(_BLOCK_MAGIC, rows, first, last, time_us, len(payload), zlib.crc32(payload))
    return head + _CRC.pack(zlib.crc32(head, seed)) + bytes(BLOCK_HEAD_BYTES - _BLOCK.size - _CRC.size) + payload


def read_block_head(data: bytes, *, seed: int) -> BlockHead | None:
    """Read the head of a block; None: there is no whole one of this file."""
    if len(data) < BLOCK_HEAD_BYTES:
        return None
    magic, rows, first, last, time_us, length, crc = _BLOCK.unpack_from(data)
    (head_crc,) = _CRC.unpack_from(data, _BLOCK.size)
    if magic != _BLOCK_MAGIC or zlib.crc32(data[: _BLOCK.size], seed) != head_crc:
        return None
    if first > last or length > PAYLOAD_BYTES_MAX or bool(rows) != bool(length):
        return None
    return BlockHead(first, last, rows, time_us, length, crc)


def is_whole(head: BlockHead, payload: bytes) -> bool:
    """Is this all of the block's payload, undamaged?"""
    return len(payload) == head.length and zlib.crc32(payload) == head.crc
