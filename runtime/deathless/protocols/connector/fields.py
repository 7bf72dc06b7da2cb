"""Fields of the connector protocol's frames: numbers in big-endian order, and bytes behind a length of 16 bits.

Why: each frame is read from bytes that a stranger sent, and each field of it can lie beyond the frame's end, state a
length that is not there, or hold text that is none. One cursor that names the field in its error spares every frame
type the same checks.

Guarantees: nothing is allocated by a length or count before the bytes are known to be there; an error names frame,
field, what was found and what to do; what is written can be read. Does not: know frame types. Imports base only.
"""

from __future__ import annotations

import struct
from typing import Final

from deathless.base.errors import CorruptFrame, InvalidArgument, TooLarge

U8_MAX: Final = 2**8 - 1
U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
SHORT_BYTES_MAX: Final = U16_MAX
"""Longest name, key or text: its length has 16 bits."""

REMEDY: Final = "send frames as docs/formats/connector.md describes them"

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")


def malformed(frame: str, field: str, found: str) -> CorruptFrame:
    """Give the error for a field that can't be read."""
    return CorruptFrame(f"{frame}: {field}: {found}", remedy=REMEDY)


class Fields:
    """Reads the fields of one frame in their order.

    Args:
        frame: what errors call it.
        data: its bytes.
        at: offset of the first field.
    """

    __slots__ = ("_at", "_data", "_frame")

    def __init__(self, frame: str, data: bytes, at: int = 0) -> None:
        self._frame = frame
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        """Bytes that no field has taken."""
        return len(self._data) - self._at

    def _number(self, field: str, form: struct.Struct) -> int:
        if self.left < form.size:
            raise malformed(self._frame, field, f"needs {form.size} bytes, {self.left} are left")
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(value)

    def u8(self, field: str) -> int:
        """Give the next byte. Raises: CorruptFrame."""
        return self._number(field, _U8)

    def u32(self, field: str) -> int:
        """Give the next 4 bytes as an unsigned number. Raises: CorruptFrame."""
        return self._number(field, _U32)

    def u64(self, field: str) -> int:
        """Give the next 8 bytes as an unsigned number. Raises: CorruptFrame."""
        return self._number(field, _U64)

    def i64(self, field: str) -> int:
        """Give the next 8 bytes as a signed number. Raises: CorruptFrame."""
        return self._number(field, _I64)

    def flag(self, field: str) -> bool:
        """Give the next byte as a truth value.

        Raises: CorruptFrame when it is neither 0 nor 1, which existing readers take for different things.
        """
        value = self.u8(field)
        if value > 1:
            raise malformed(self._frame, field, f"{value}, where 0 or 1 is meant")
        return value == 1

    def count(self, field: str, *, item_bytes: int) -> int:
        """Give the next u32 as a count of items that have at least `item_bytes` each.

        Raises: CorruptFrame when the frame has no room for so many.
        """
        value = self.u32(field)
        if value * item_bytes > self.left:
            raise malformed(self._frame, field, f"{value} items need {value * item_bytes} bytes, {self.left} are left")
        return value

    def take(self, field: str, size: int) -> bytes:
        """Give so many bytes. Raises: CorruptFrame when the frame has fewer."""
        if size > self.left:
            raise malformed(self._frame, field, f"needs {size} bytes, {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def short(self, field: str) -> bytes:
        """Give bytes behind their u16 length. Raises: CorruptFrame."""
        return self.take(field, self._number(field, _U16))

    def text(self, field: str) -> str:
        """Give text behind its u16 length. Raises: CorruptFrame when it is no UTF-8."""
        return self.as_text(field, self.short(field))

    def as_text(self, field: str, data: bytes) -> str:
        """Give bytes of this frame as text. Raises: CorruptFrame when they are no UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise malformed(self._frame, field, f"no UTF-8 at byte {error.start}") from None

    def end(self) -> None:
        """Say that nothing follows. Raises: CorruptFrame when something does."""
        if self.left:
            raise malformed(self._frame, "end", f"{self.left} more bytes than the frame has fields for")


def _packed(frame: str, field: str, form: struct.Struct, value: int) -> bytes:
    try:
        return form.pack(value)
    except struct.error:
        raise InvalidArgument(f"{frame}: {field}: {value} does not fit {8 * form.size} bits", remedy=REMEDY) from None


def put_u8(frame: str, field: str, value: int) -> bytes:
    """Give one byte. Raises: InvalidArgument when the value does not fit."""
    return _packed(frame, field, _U8, value)


def put_u32(frame: str, field: str, value: int) -> bytes:
    """Give 4 bytes. Raises: InvalidArgument when the value does not fit."""
    return _packed(frame, field, _U32, value)


def put_u64(frame: str, field: str, value: int) -> bytes:
    """Give 8 bytes. Raises: InvalidArgument when the value does not fit."""
    return _packed(frame, field, _U64, value)


def put_i64(frame: str, field: str, value: int) -> bytes:
    """Give 8 bytes of a signed value. Raises: InvalidArgument when it does not fit."""
    return _packed(frame, field, _I64, value)


def put_short(frame: str, field: str, value: bytes) -> bytes:
    """Give bytes behind their u16 length. Raises: TooLarge when they are more than SHORT_BYTES_MAX."""
    if len(value) > SHORT_BYTES_MAX:
        raise TooLarge(f"{frame}: {field}: {len(value)} bytes, at most {SHORT_BYTES_MAX}", remedy="send a shorter one")
    return _U16.pack(len(value)) + value


def to_utf8(frame: str, field: str, value: str) -> bytes:
    """Give text as bytes. Raises: InvalidArgument when it holds half a surrogate pair."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{frame}: {field}: no text at character {error.start}", remedy=REMEDY) from None


def put_text(frame: str, field: str, value: str) -> bytes:
    """Give text behind its u16 length. Raises: TooLarge, InvalidArgument."""
    return put_short(frame, field, to_utf8(frame, field, value))
