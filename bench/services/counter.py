"""The service under load: a counter per key, with arguments of 64 bytes; values of 1 KiB; a handler that computes."""

from __future__ import annotations

import msgspec

from deathless import Context, Service


class Entry(msgspec.Struct):
    """State of one key."""

    count: int = 0
    value: bytes = b""


def spin(rounds: int) -> int:
    """Keep the interpreter busy."""
    number = 0
    for each in range(rounds):
        number = (number * 31 + each) & 0xFFFF
    return number


bench = Service("bench", state=Entry)


@bench.handler
def add(entry: Entry, ctx: Context, amount: int, note: str) -> int:
    """Count; the note only fills the arguments up."""
    entry.count += amount
    return entry.count


@bench.handler
def put(entry: Entry, ctx: Context, value: bytes) -> None:
    """Keep a value."""
    entry.value = value


@bench.handler
def work(entry: Entry, ctx: Context, rounds: int) -> int:
    """Compute for a while: about 60 ns for each round."""
    entry.count += 1
    return spin(rounds)


@bench.query
def read(entry: Entry) -> int:
    """Say how far the count is."""
    return entry.count
