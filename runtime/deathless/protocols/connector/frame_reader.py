"""Cuts the bytes of a connection into frames of the connector protocol, however they were cut on their way.

Why: TCP gives any piece of the stream, and a length that a stranger states may be 4 GiB.

Guarantees: a frame longer than the limit is refused once its length is seen, before any of it is kept; frames before a
bad one are given first; at most one unfinished frame is kept, in about as many bytes as came of it however small the
pieces were, and a byte of it is copied a bounded number of times.
Does not: close anything: after an error the connection has to be ended. Imports base only.
"""

from __future__ import annotations

import struct
from typing import Final

from deathless.base.errors import TooLarge
from deathless.protocols.connector.fields import REMEDY
from deathless.protocols.connector.frames import PREFIX_BYTES, AnyFrame, decode

_LENGTH: Final = struct.Struct(">I")


class FrameReader:
    """One connection's.

    Args:
        frame_bytes_max: of a frame without its length; a longer one raises TooLarge.
    """

    __slots__ = ("_at", "_data", "_max", "_missing", "_parts", "frames")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frames = 0  # that `next` has given
        self._data = b""  # whole frames, and the beginning of one
        self._at = 0  # of the next frame in `_data`
        self._parts = bytearray()  # what came behind `_data`, joined with it once it completes a frame
        self._missing = 0  # bytes without which `_data` and `_parts` hold no whole frame
        self._max = frame_bytes_max

    @property
    def unfinished_bytes(self) -> int:
        """Count of bytes that came and were not given in a frame."""
        return len(self._data) - self._at + len(self._parts)

    def feed(self, data: bytes) -> None:
        """Take bytes in; `next` gives the frames that they complete."""
        self._parts += data
        self._missing -= len(data)

    def next(self) -> AnyFrame | None:
        """Give the next frame; None: more bytes are needed.

        Raises: TooLarge, CorruptFrame; the connection is to be ended.
        """
        if self._missing > 0:
            return None
        if self._parts:
            self._data = self._data[self._at :] + self._parts
            self._at = 0
            self._parts = bytearray()
        start = self._at + PREFIX_BYTES
        if start > len(self._data):
            self._missing = start - len(self._data)
            return None
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        if length > self._max:
            raise TooLarge(f"frame: length: {length} bytes, at most {self._max}", remedy=REMEDY)
        end = start + length
        if end > len(self._data):
            self._missing = end - len(self._data)
            return None
        self._at = end
        self._missing = 0
        self.frames += 1
        return decode(self._data[start:end])
