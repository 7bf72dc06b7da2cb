"""The service under load: a counter per key, with arguments of 64 bytes; another with values of 1 KiB."""

from __future__ import annotations

import msgspec

from deathless import Context, Service


class Entry(msgspec.Struct):
    """State of one key."""

    count: int = 0
    value: bytes = b""


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


@bench.query
def read(entry: Entry) -> int:
    """Say how far the count is."""
    return entry.count
