"""Payloads of a checkpoint's sections about streams: STREAMS and REFUSED.

    STREAMS  count x u32 length, then items, by session ascending: msgpack array of source, stream, session, next
             expected seq, whether it has ended, note, nonce of its owner, what becomes of refused inputs, how many
             were refused, the input at which it stands (nil, or an item of REFUSED)
    REFUSED  count x u32 length, then items, the oldest first: msgpack array of lsn, session, seq, logical time, code,
             reason, message

Fields are added at the end of an item. The sections stand only in files of services that have streams.

Guarantees: what is read is what was written, or ValueError says what is wrong. Does not: write headers and checksums
(codec.checkpoint does). Imports codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from deathless.codec.sections import GROUP_BYTES, Section, spans, split
from deathless.codec.snapshot import RefusedRecord, Snapshot, StreamRecord
from deathless.codec.untrusted import read_msgpack

R = TypeVar("R", StreamRecord, RefusedRecord)
_encode: Final = msgspec.msgpack.Encoder().encode


def payloads(snapshot: Snapshot) -> Iterator[tuple[Section, int, bytes]]:
    """Give (type, count, payload) of each section, in the order of the file; none for what is empty."""
    yield from _cut(Section.STREAMS, [_encode(record) for record in snapshot.streams])
    yield from _cut(Section.REFUSED, [_encode(record) for record in snapshot.refused])


def _cut(kind: Section, items: Sequence[bytes]) -> Iterator[tuple[Section, int, bytes]]:
    for start, stop in spans(list(map(len, items)), GROUP_BYTES):
        some = items[start:stop]
        yield kind, len(some), struct.pack(f"<{len(some)}I", *map(len, some)) + b"".join(some)


class Reader:
    """Takes the payloads in, in the order of the file; afterwards its lists are those of the snapshot."""

    def __init__(self) -> None:
        self.streams: list[StreamRecord] = []
        self.refused: list[RefusedRecord] = []

    def read(self, kind: int, count: int, payload: bytes) -> None:
        """Take one section in.

        Raises: ValueError saying what is wrong with it.
        """
        if kind == Section.REFUSED:
            self.refused += _read(RefusedRecord, count, payload)
            return
        for record in _read(StreamRecord, count, payload):
            if self.streams and record.session <= self.streams[-1].session:
                raise ValueError("sessions of streams do not ascend")
            self.streams.append(record)


def _read(kind: type[R], count: int, payload: bytes) -> list[R]:
    at = 4 * count
    if at > len(payload):
        raise ValueError("columns pass the payload's end")
    items = split(payload, at, struct.unpack_from(f"<{count}I", payload))
    try:
        return [read_msgpack(item, kind) for item in items]
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
