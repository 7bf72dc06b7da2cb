"""Finds out how many messages, one behind the other, begin as the first of them: a head that holds their size.

Why it exists: a program sends many messages of one size to one method, and to read a head takes longer than all else
that is done with a small message. Here heads are compared with slices that have the length of a message as their
stride, so the cost of a message is that of a few bytes in C.

Guarantees: what is counted has the head of the first, byte for byte, so it has its size, and the next one begins behind
it. More may be alike than are counted. Does not: read heads. Imports nothing.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 16  # messages that are compared at first
FACTOR: Final = 8  # so many times as many then: what is compared in vain costs no more than what was found


def alike(data: bytes | bytearray, at: int, length: int, head: int, most: int) -> int:
    """Give how many messages from here on are known to have the head of the first.

    Args:
        data: messages.
        at: where the first begins.
        length: of it, bytes, its head included.
        head: bytes of it that are compared, at most `length`; they hold its size.
        most: so many of this length are there, at least 1.
    """
    known, tried = 1, min(FIRST, most)
    while known < most:
        end = at + tried * length
        if any(data[at + i : end : length] != data[at + i : at + i + 1] * tried for i in range(head)):
            break
        known, tried = tried, min(tried * FACTOR, most)
    return known
