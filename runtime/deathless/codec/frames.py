"""Frames: the unit of durability in a segment file (format version 2).

A frame starts on a 4 KiB boundary and is padded with zeros to the next one, so a confirmed block is never
written again. Header, 128 bytes, little-endian:

    offset size field
    0      4    magic b"DLF1"
    4      2    format version, u16: 1; 2 of DATA (whose time records have four values since); 3 of a CUT whose log has
                a format level above the first
    6      1    kind (see FrameKind)
    7      1    checksum algorithm: 1 = CRC-32 (zlib)
    8      8    epoch of the writer
    16     8    first lsn: that of the first message; of a frame without messages, the next lsn
    24     8    confirmed lsn the writer knew when it wrote
    32     4    count of messages
    36     4    payload length
    40     8    incarnation
    48     16   chain hash before this frame
    64     16   chain hash after it; equal to the one before unless kind is DATA
    80     8    index of the frame in its file
    88     8    reserved, 0
    96     4    CRC-32 of header (this field as 0) and payload, seeded with the low half of the epoch
    100    4    CRC-32 of the header alone, without bytes 96 to 103; 1 instead of 0. 0: written by an older version
    104    4    how many 512-byte sectors of header and payload are all zeros; the last sector is filled up with zeros
    108    20   reserved, 0
    128         payload

The fields at 100 and 104 say nothing about a whole frame. Where no whole frame stands, they tell a write that a crash
tore from bytes that changed later (`codec.frame_remains`).

chain = BLAKE2b-128(chain before, u64 first lsn, payload): neither epoch nor place is in it, so a copied frame
keeps its hash. Payload of DATA:

    u32 runs R, u32 reserved, 16 byte rolling digest after this frame,
    R x (u64 session, u64 first seq, u64 acked through, u32 count, u32 reserved),
    count x u32 end offset of each message in the blob, count x u32 digest of each message, blob

The runs are the frame's input watermarks (next expected = first seq + count) and its trim watermarks (replies
up to `acked through` may be forgotten); a run of count 0 only trims. Runs of session 0 are the shard's own records.
The messages of the runs stand in the blob one after the other. Payloads of the other kinds are msgpack arrays:
`Cut`, `Opening`, `RollTo`, `Confirm`.

Guarantees: what `decode_frame` gives was written as it is, by CRC; the chain is the caller's to compare.
Does not: read files. Imports base only.
"""

from __future__ import annotations

import enum
import hashlib
import struct
import zlib
from collections.abc import Sequence
from operator import le
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, NewerFormat
from deathless.base.ids import ChainHash, Digest, Epoch, Incarnation, Lsn, Roll
from deathless.codec.generations import FIRST, Generation, encode_of

MAGIC: Final = b"DLF1"
FORMAT_VERSION: Final = 2
CONTROL_VERSION: Final = 1  # of every kind but DATA: nothing of them has changed
LEVEL_VERSION: Final = 3  # of a CUT of a later level: a build that knows no levels says then that it is too old
READ_VERSIONS: Final = (1, 2, 3)
BLOCK: Final = 4096
HEADER: Final = struct.Struct("<4sHBBQQQIIQ16s16sQQIII20x")
HEADER_BYTES: Final = HEADER.size
CRC_AT: Final = 96
HEADER_CRC_AT: Final = 100
ZERO_SECTORS_AT: Final = 104
SECTOR: Final = 512
ZERO_SECTOR: Final = bytes(SECTOR)
CHECKSUM_CRC32: Final = 1
DATA_HEAD: Final = struct.Struct("<II16s")
RUN: Final = struct.Struct("<QQQII")
assert HEADER_BYTES == 128


class FrameKind(enum.IntEnum):
    """What a frame is; only DATA carries messages and moves the chain."""

    CUT = 1  # first of an epoch: the confirmed position it continues from
    OPENING = 2  # the epoch serves: head was set
    DATA = 3  # messages
    ROLL = 4  # last of a file: the next file exists
    CONFIRM = 5  # an idle primary's confirmed lsn and digest


class Frame(NamedTuple):
    """One decoded frame; `payload` is bytes without padding."""

    kind: int
    epoch: Epoch
    first_lsn: Lsn
    confirmed_lsn: Lsn
    count: int  # type: ignore[assignment]  # a field of the format; nobody counts in a frame with tuple.count
    incarnation: Incarnation
    prev_chain: ChainHash
    chain: ChainHash
    index: int  # type: ignore[assignment]  # as count
    payload: bytes

    @property
    def last_lsn(self) -> Lsn:
        """Lsn of the last message; of a frame without messages, the one before `first_lsn`."""
        return Lsn(self.first_lsn + self.count - 1)


class Run(NamedTuple):
    """Messages of one sender in a row."""

    session: int
    first_seq: int
    acked: int
    count: int  # type: ignore[assignment]  # a field of the format; nobody counts in a run with tuple.count


class Data(NamedTuple):
    """Payload of a DATA frame."""

    digest: Digest
    runs: tuple[Run, ...]
    ends: tuple[int, ...]
    digests: tuple[int, ...]
    blob: bytes


class Position(msgspec.Struct, array_like=True, frozen=True):
    """A place in the chain, right behind a frame.

    Invariant: `length` is a multiple of BLOCK; epoch 0 is the place before the first frame.
    """

    epoch: int
    roll: int
    length: int
    lsn: int
    chain: bytes


ORIGIN: Final = Position(0, 0, 0, 0, bytes(16))


class Cut(msgspec.Struct, array_like=True, frozen=True):
    """Payload of CUT: where the epoch continues, and who may read it.

    The last four are of the generation that the epoch's turns are of (`codec.generations`); cuts of older versions do
    not have them, and are of the first.
    """

    base: Position
    service: str
    service_id: bytes
    incarnation: int
    fence: str
    store_id: str
    fingerprint: bytes
    replica: str
    copies: int
    generation: int = FIRST.number
    upgraded_lsn: int = FIRST.lsn
    upgraded_chain: bytes = FIRST.chain
    level: int = FIRST.level

    def of_generation(self) -> Generation:
        """Give the generation that the epoch's turns are of."""
        return Generation(self.generation, self.upgraded_lsn, self.upgraded_chain, self.level)

    def encode(self) -> bytes:
        """Give the payload."""
        return encode_of(self, self.of_generation())


class Opening(msgspec.Struct, array_like=True, frozen=True):
    """Payload of OPENING: confirmed lsn is the end of the copies; revision is the store's after head was set."""

    confirmed_lsn: int
    store_revision: int
    previous_head: int


class RollTo(msgspec.Struct, array_like=True, frozen=True):
    """Payload of ROLL: the file that goes on."""

    roll: int


class Confirm(msgspec.Struct, array_like=True, frozen=True):
    """Payload of CONFIRM: the rolling digest at the confirmed lsn."""

    digest: bytes


def padded(size: int) -> int:
    """Round a size in bytes up to the next multiple of BLOCK."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


def chain_after(prev: ChainHash, first_lsn: int, payload: bytes) -> ChainHash:
    """Give the chain hash behind a DATA frame."""
    h = hashlib.blake2b(prev, digest_size=16)
    h.update(first_lsn.to_bytes(8, "little"))
    h.update(payload)
    return ChainHash(h.digest())


def encode_data(runs: Sequence[Run], ends: bytes, digests: bytes, digest: Digest, blob: bytes) -> bytes:
    """Give the payload of a DATA frame; `ends` and `digests` are packed u32 columns, little-endian."""
    head = DATA_HEAD.pack(len(runs), 0, digest)
    return b"".join((head, *[RUN.pack(r[0], r[1], r[2], r[3], 0) for r in runs], ends, digests, blob))


def data_bytes(runs: int, messages: int, blob: int) -> int:
    """Bytes of a DATA frame as it stands in the file, padding and header included; known before it runs."""
    return padded(HEADER_BYTES + DATA_HEAD.size + runs * RUN.size + 8 * messages + blob)


def decode_data(frame: Frame) -> Data:
    """Take the payload of a DATA frame apart.

    Raises: CorruptFrame when its columns don't fit each other.
    """
    payload = frame.payload
    count = frame.count
    if len(payload) < DATA_HEAD.size:
        raise CorruptFrame(f"frame at lsn {frame.first_lsn}: payload shorter than its head")
    n_runs, _, digest = DATA_HEAD.unpack_from(payload)
    ends_at = DATA_HEAD.size + n_runs * RUN.size
    blob_at = ends_at + 8 * count
    if blob_at > len(payload):
        raise CorruptFrame(f"frame at lsn {frame.first_lsn}: columns pass the payload's end")
    runs = tuple(Run(r[0], r[1], r[2], r[3]) for r in RUN.iter_unpack(payload[DATA_HEAD.size : ends_at]))
    columns = struct.unpack_from(f"<{2 * count}I", payload, ends_at)
    ends = columns[:count]
    blob = payload[blob_at:]
    ascending = all(map(le, ends, ends[1:]))
    if sum(run.count for run in runs) != count or (ends[-1] if ends else 0) != len(blob) or not ascending:
        raise CorruptFrame(f"frame at lsn {frame.first_lsn}: runs, offsets and blob disagree")
    return Data(Digest(digest), runs, ends, columns[count:], blob)


def encode_frame(  # noqa: PLR0913 - one argument per field of the header
    kind: int,
    payload: bytes,
    *,
    epoch: int,
    first_lsn: int,
    confirmed_lsn: int,
    count: int,
    incarnation: int,
    prev_chain: ChainHash,
    chain: ChainHash,
    index: int,
    level: int = FIRST.level,
) -> bytes:
    """Give the bytes of a frame without padding: header, then payload; `level` is that of a CUT."""
    version = FORMAT_VERSION if kind == FrameKind.DATA else CONTROL_VERSION
    if level != FIRST.level:
        version = LEVEL_VERSION
    fields = (
        MAGIC,
        version,
        kind,
        CHECKSUM_CRC32,
        epoch,
        first_lsn,
        confirmed_lsn,
        count,
        len(payload),
        incarnation,
        prev_chain,
        chain,
        index,
        0,
    )
    # The header's own sector is never all zeros: it begins with the magic.
    zero_sectors = zero_sector_count(payload, first=SECTOR - HEADER_BYTES)
    bare = HEADER.pack(*fields, 0, 0, zero_sectors)
    bare = HEADER.pack(*fields, 0, header_crc(bare), zero_sectors)
    crc = zlib.crc32(payload, zlib.crc32(bare, epoch & 0xFFFFFFFF))
    return bare[:CRC_AT] + crc.to_bytes(4, "little") + bare[CRC_AT + 4 :] + payload


def header_crc(header: bytes) -> int:
    """CRC-32 of the header alone, never 0; the two checksums in it do not count."""
    return zlib.crc32(header[ZERO_SECTORS_AT:HEADER_BYTES], zlib.crc32(header[:CRC_AT])) or 1


def zero_sector_count(data: bytes, first: int = 0) -> int:
    """Count the sectors of `data` that are all zeros, from offset `first` on; a last one that is shorter counts too."""
    count = 0
    at = data.find(ZERO_SECTOR, first)
    while at >= 0:
        # Zeros begin at `at`; the first sector that may lie in them whole begins at the next boundary.
        place = first + -(-(at - first) // SECTOR) * SECTOR
        while data.startswith(ZERO_SECTOR, place):
            count += 1
            place += SECTOR
        at = data.find(ZERO_SECTOR, max(place, at + 1))
    rest = (len(data) - first) % SECTOR
    if len(data) > first and rest and not data[len(data) - rest :].strip(b"\0"):
        count += 1
    return count


def decode_frame(data: bytes, offset: int = 0) -> Frame | None:
    """Read the frame at `offset`.

    Returns: None where no whole valid frame stands (end of log, torn tail, rot): the caller judges which.
    Raises: NewerFormat when magic and checksum are right and the version is above ours.
    """
    if len(data) - offset < HEADER_BYTES or data[offset : offset + 3] != MAGIC[:3]:
        return None
    fields = HEADER.unpack_from(data, offset)
    magic, version, kind, algorithm, epoch, first_lsn, confirmed, count, length = fields[:9]
    incarnation, prev, chain, index, _, crc = fields[9:15]
    end = offset + HEADER_BYTES + length
    if end > len(data):
        return None
    payload = data[offset + HEADER_BYTES : end]
    bare = data[offset : offset + CRC_AT] + bytes(4) + data[offset + CRC_AT + 4 : offset + HEADER_BYTES]
    if zlib.crc32(payload, zlib.crc32(bare, epoch & 0xFFFFFFFF)) != crc:
        return None
    known = version in READ_VERSIONS and (version != LEVEL_VERSION or kind == FrameKind.CUT)
    if magic != MAGIC or not known or algorithm != CHECKSUM_CRC32:
        raise NewerFormat(
            f"frame of format {magic!r} version {version}, checksum {algorithm}; this is version {FORMAT_VERSION}"
        )
    return Frame(
        kind,
        Epoch(epoch),
        Lsn(first_lsn),
        Lsn(confirmed),
        count,
        Incarnation(incarnation),
        ChainHash(prev),
        ChainHash(chain),
        index,
        payload,
    )


def frame_length(data: bytes, offset: int = 0) -> int | None:
    """Bytes from `offset` to the end of the payload by the header alone, unchecked; None without a header."""
    if len(data) - offset < HEADER_BYTES or data[offset : offset + 3] != MAGIC[:3]:
        return None
    length: int = struct.unpack_from("<I", data, offset + 36)[0]
    return HEADER_BYTES + length


def segment_name(epoch: int, roll: int) -> str:
    """File name of a segment, sortable: `e000000000001.r000000.seg`."""
    return f"e{epoch:012d}.r{roll:06d}.seg"


def parse_segment_name(name: str) -> tuple[Epoch, Roll] | None:
    """Take a segment's file name apart; None when it is none."""
    if len(name) != 25 or name[0] != "e" or name[13:15] != ".r" or not name.endswith(".seg"):
        return None
    if not (name.isascii() and name[1:13].isdecimal() and name[15:21].isdecimal()):
        return None
    return Epoch(int(name[1:13])), Roll(int(name[15:21]))
