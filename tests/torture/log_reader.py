"""Reads a service's log by the pages of docs/formats alone: no line of the product's own codec takes part.

It follows the cuts backwards from the newest epoch that opened, checks each frame's checksum and chain, and gives
every message with its lsn. What the product's writer and reader might get wrong together shows here.

Guarantees: what is given stands in the log, in its order, without a gap. Raises LogBroken otherwise. Does not: import
anything of `deathless`; judge the end of a log that is being written.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

BLOCK = 4096
HEADER = struct.Struct("<4sHBBQQQIIQ16s16sQ8sI")  # up to and with the checksum, 100 bytes
CUT, OPENING, DATA, ROLL, CONFIRM = 1, 2, 3, 4, 5
VERSIONS, VERSIONS_OF_A_CUT = (1, 2), (1, 3)
RUN = struct.Struct("<QQQII")
CALL = 1


class LogBroken(Exception):
    """The log is not what docs/formats say."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame, its checksum checked."""

    kind: int
    epoch: int
    first_lsn: int
    confirmed_lsn: int
    count: int
    chain_before: bytes
    chain_behind: bytes
    index: int
    payload: bytes
    end: int  # offset of the next one


class Message(NamedTuple):
    """One message of a client, where it stands in the log."""

    lsn: int
    session: int
    seq: int
    method: str
    arguments: dict[str, object]


class Base(NamedTuple):
    """Where an epoch goes on from."""

    epoch: int
    roll: int
    length: int
    lsn: int
    chain: bytes


def frame_at(data: bytes, at: int, epoch: int) -> Frame | None:
    """The frame at an offset; None: there is no whole one."""
    head = data[at : at + 128]
    if len(head) < 128 or head[:4] != b"DLF1":
        return None
    (_, version, kind, algorithm, of_epoch, first, confirmed, count, length, _, before, behind, index, _, checksum) = (
        HEADER.unpack_from(head)
    )
    payload = data[at + 128 : at + 128 + length]
    start = zlib.crc32(head[:96] + bytes(4) + head[100:], of_epoch & 0xFFFFFFFF)
    if len(payload) != length or zlib.crc32(payload, start) != checksum:
        return None
    if algorithm != 1 or version not in (VERSIONS_OF_A_CUT if kind == CUT else VERSIONS):
        raise LogBroken(f"a frame of kind {kind} in version {version}, its checksum by algorithm {algorithm}")
    if of_epoch != epoch:
        raise LogBroken(f"a frame of epoch {of_epoch} in a file of epoch {epoch}")
    end = at + (128 + length + BLOCK - 1) // BLOCK * BLOCK
    return Frame(
        kind=kind,
        epoch=epoch,
        first_lsn=first,
        confirmed_lsn=confirmed,
        count=count,
        chain_before=before,
        chain_behind=behind,
        index=index,
        payload=payload,
        end=end,
    )


def frames_of(path: Path, epoch: int, until: int | None = None) -> Iterator[Frame]:
    """The frames of one file, up to an offset, or as far as there are any."""
    data = path.read_bytes()
    at, index = 0, 0
    while until is None or at < until:
        frame = frame_at(data, at, epoch)
        if frame is None:
            if until is not None:
                raise LogBroken(f"{path.name}: no frame at {at}, and the log goes on to {until}")
            return
        if frame.index != index:
            raise LogBroken(f"{path.name}: frame {frame.index} at the place of {index}")
        yield frame
        at, index = frame.end, index + 1


class LogFiles:
    """The segment files of a log, wherever they are kept."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[int, dict[int, Path]] = {}
        for path in sorted(folder.glob("e*.r*.seg")):
            epoch, roll = path.name.removesuffix(".seg").split(".")
            self._files.setdefault(int(epoch[1:]), {})[int(roll[1:])] = path

    def _path(self, epoch: int, roll: int) -> Path:
        found = self._files.get(epoch, {}).get(roll)
        if found is None:
            raise LogBroken(f"the file of epoch {epoch}, roll {roll} is missing")
        return found

    def _opened(self, epoch: int) -> bool:
        return any(frame.kind == OPENING for frame in frames_of(self._path(epoch, 0), epoch))

    def _cut(self, epoch: int) -> Base:
        first = next(frames_of(self._path(epoch, 0), epoch), None)
        if first is None or first.kind != CUT:
            raise LogBroken(f"epoch {epoch} does not begin with a cut")
        return Base(*msgspec.msgpack.decode(first.payload)[0])

    def messages(self) -> list[Message]:
        """Every message of clients in the log, by ascending lsn. Raises: LogBroken."""
        ends: dict[int, Base | None] = {}  # by epoch, ascending at the end: where the log leaves it; None: nowhere
        epoch = max((each for each in self._files if self._opened(each)), default=0)
        leaves: Base | None = None
        while epoch:
            ends[epoch] = leaves
            leaves = self._cut(epoch)
            epoch = leaves.epoch
        found: list[Message] = []
        lsn, chain = 0, bytes(16)
        for each in sorted(ends):
            for frame in self._frames(each, ends[each]):
                if frame.kind != DATA:
                    continue
                if frame.first_lsn <= lsn:
                    raise LogBroken(f"lsn {frame.first_lsn} of epoch {each} stands behind lsn {lsn}")
                if frame.first_lsn != lsn + 1 or frame.chain_before != chain:
                    raise LogBroken(f"lsn {frame.first_lsn} of epoch {each} does not continue lsn {lsn}")
                behind = hashlib.blake2b(
                    chain + struct.pack("<Q", frame.first_lsn) + frame.payload, digest_size=16
                ).digest()
                if behind != frame.chain_behind:
                    raise LogBroken(f"the chain behind lsn {frame.first_lsn} is not that of its payload")
                found += _calls(frame)
                lsn, chain = frame.first_lsn + frame.count - 1, behind
        return found

    def _frames(self, epoch: int, leaves: Base | None) -> Iterator[Frame]:
        """The frames of one epoch that belong to the log, along its rolls."""
        for roll in sorted(self._files[epoch]):
            last = leaves is not None and roll == leaves.roll
            yield from frames_of(self._path(epoch, roll), epoch, leaves.length if last and leaves else None)
            if last:
                return


def _calls(frame: Frame) -> Iterator[Message]:
    payload, count = frame.payload, frame.count
    (runs,) = struct.unpack_from("<I", payload)
    at = 24 + RUN.size * runs
    ends = (0, *struct.unpack_from(f"<{count}I", payload, at))
    blob = payload[at + 8 * count :]
    number = 0
    for row in range(runs):
        session, first, _, in_run, _ = RUN.unpack_from(payload, 24 + RUN.size * row)
        for seq in range(first, first + in_run):
            message = blob[ends[number] : ends[number + 1]]
            kind, _, m, k, i = struct.unpack_from("<BBHHH", message)
            if kind == CALL and session:
                arguments = msgspec.msgpack.decode(message[8 + m + k + i :])
                yield Message(frame.first_lsn + number, session, seq, message[8 : 8 + m].decode(), arguments)
            number += 1
    if number != count or ends[-1] != len(blob):
        raise LogBroken(f"the columns of the frame at lsn {frame.first_lsn} disagree")
