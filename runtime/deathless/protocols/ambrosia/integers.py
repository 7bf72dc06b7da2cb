"""Integers of variable length, as the AMBROSIA client protocol writes them: zig-zag, then groups of seven bits.

Why it exists: sizes, counts, lengths and method ids are ZigZagInt (32 bits), lengths of checkpoints and sequence
numbers ZigZagLong (64 bits). Zig-zag maps 0, -1, 1, -2 to 0, 1, 2, 3; the groups come lowest first, and the high bit of
a byte says that another follows, as in Protocol Buffers.

Guarantees: writes the shortest form. Reads any form of at most 5 or 10 bytes, as other readers of this format do, and
refuses bits beyond 32 or 64, so a number is never cut off. Does not: judge values. Imports base.
"""

from __future__ import annotations

from typing import Final

from deathless.protocols.ambrosia.errors import ProtocolViolated

INT_BITS: Final = 32
LONG_BITS: Final = 64
INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10


def encode_int(value: int) -> bytes:
    """Give a ZigZagInt, 1 to 5 bytes; the value is in [-2**31, 2**31)."""
    return _encode(value, INT_BITS)


def encode_long(value: int) -> bytes:
    """Give a ZigZagLong, 1 to 10 bytes; the value is in [-2**63, 2**63)."""
    return _encode(value, LONG_BITS)


def _encode(value: int, bits: int) -> bytes:
    assert -(1 << (bits - 1)) <= value < 1 << (bits - 1), value
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


def find_int(data: bytes | bytearray, at: int, field: str, bits: int = INT_BITS) -> tuple[int, int] | None:
    """Read an integer that may not be there as a whole yet.

    Args:
        data: bytes of a stream.
        at: where the integer begins.
        field: what it is, for the error.
        bits: 32 or 64.

    Returns:
        the value and the position behind it; None: more bytes are needed.

    Raises:
        ProtocolViolated: no integer of so many bits can begin like this.
    """
    if at < len(data) and data[at] < 0x80:
        return (data[at] >> 1) ^ -(data[at] & 1), at + 1
    most = INT_BYTES_MAX if bits == INT_BITS else LONG_BYTES_MAX
    found = 0
    for index, byte in enumerate(data[at : at + most]):
        found |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if found >> bits:
                raise ProtocolViolated(f"{field} has more than {bits} bits")
            return (found >> 1) ^ -(found & 1), at + index + 1
    if len(data) - at >= most:
        raise ProtocolViolated(f"{field} has more than {most} bytes")
    return None


def read_int(data: bytes | bytearray, at: int, field: str, bits: int = INT_BITS) -> tuple[int, int]:
    """Read an integer of a message that is there as a whole; as `find_int`.

    Raises:
        ProtocolViolated: also if the message ends within the integer.
    """
    found = find_int(data, at, field, bits)
    if found is None:
        raise ProtocolViolated(f"the message ends within its {field}")
    return found
