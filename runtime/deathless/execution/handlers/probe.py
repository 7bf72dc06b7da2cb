"""The built-in handler `deathless.probe`: counts calls, so that a drill can tell exactly what was lost or doubled.

    deathless.probe        (series, number) -> count of numbers held; a turn like any other, logged and confirmed
    deathless.probe.read   (series) -> what is held; a query

A caller numbers its calls from 0 on, in a series of its own. A number that it was told of and that lies in no range is
lost; one that was applied twice stands in `doubled`. (A call that is repeated under its session or idempotency key is
answered with the recorded reply and never comes here again.) Every service has it: a handler of a user has no dot in
its name. What it holds lies beside the state of users, under keys that begin with a zero byte, which no key of a user
may.

Guarantees: a function of the log, as all handlers; at most SERIES_MAX series, of which the one that was longest
untouched goes first, of RANGES_MAX ranges and DOUBLED_MAX named numbers each. Does not: see or touch a user's state.
Imports base only.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument, TooLarge
from deathless.execution.author.service import HandlerSpec
from deathless.execution.handlers.unknown_methods import (
    NOTE,
    READ,
    NoteArguments,
    ReadUnknownArguments,
    Unknown,
    note,
    read_unknown,
)
from deathless.execution.turn.context import QueryContext

SERIES_MAX: Final = 64
RANGES_MAX: Final = 1024  # of numbers in a row: a caller that leaves more gaps is refused
DOUBLED_MAX: Final = 1024  # numbers applied again that are named, the last ones; all are counted
NUMBER_MAX: Final = 2**53 - 1  # exact in every JSON reader
RESERVED: Final = b"\0"
"""What keys begin with that no user may name."""

KEY: Final = RESERVED + b"deathless.probe" + RESERVED
"""A series' key is this and its name."""


class Series(msgspec.Struct, array_like=True):
    """What is held of one series."""

    touched: int = 0  # lsn of its last call
    ranges: list[tuple[int, int]] = []  # (first, last), ascending. Invariant: a gap between any two
    doubled_count: int = 0
    doubled: list[int] = []  # the last ones


class Held(msgspec.Struct, frozen=True):
    """Answer of `deathless.probe.read`."""

    count: int  # different numbers that were applied
    ranges: list[tuple[int, int]]  # (first, last), both applied with all between them
    doubled_count: int  # calls whose number had been applied before
    doubled: list[int]  # their numbers, the last DOUBLED_MAX


class ProbeArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Arguments of `deathless.probe`."""

    series: str
    number: int


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Arguments of `deathless.probe.read`."""

    series: str


def probe(state: Series, context: QueryContext, series: str, number: int) -> int:  # noqa: ARG001  as every handler
    """Note that a number was applied; gives how many are held.

    Raises: InvalidArgument, TooLarge: nothing was noted.
    """
    if not 0 <= number <= NUMBER_MAX:
        raise InvalidArgument(f"number must be in 0 to {NUMBER_MAX} - at `$.number`")
    ranges = state.ranges
    at = bisect_right(ranges, (number, NUMBER_MAX)) - 1  # of the range that begins at or before it
    if at >= 0 and number <= ranges[at][1]:
        state.doubled_count += 1
        state.doubled = [*state.doubled, number][-DOUBLED_MAX:]
        return count_of(ranges)
    first = last = number
    if at + 1 < len(ranges) and ranges[at + 1][0] == number + 1:
        last = ranges.pop(at + 1)[1]
    if at >= 0 and ranges[at][1] == number - 1:
        first = ranges.pop(at)[0]
        at -= 1
    ranges.insert(at + 1, (first, last))
    if len(ranges) > RANGES_MAX:
        raise TooLarge(f"the series would have {len(ranges)} ranges, at most {RANGES_MAX}: count up from 0")
    return count_of(ranges)


def read(state: Series, context: QueryContext, series: str) -> Held:  # noqa: ARG001  as every query
    """Give what is held of a series; nothing of one that was never used, or forgotten."""
    return Held(count_of(state.ranges), state.ranges, state.doubled_count, state.doubled)


def count_of(ranges: list[tuple[int, int]]) -> int:
    """How many numbers the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)


def _spec(name: str, kind: str, arguments: type[msgspec.Struct], result: object, function: object) -> HandlerSpec:
    return HandlerSpec(
        name=name,
        kind="query" if kind == "query" else "handler",
        args_type=arguments,
        result_type=result,
        keys=("series",),
        function=function,  # type: ignore[arg-type]  # as an author's: its own signature says what it takes
        takes_context=True,
        keywords=(),
        doc=(getattr(function, "__doc__", "") or "").strip(),
    )


SPECS: Final = {
    "deathless.probe": _spec("deathless.probe", "handler", ProbeArguments, int, probe),
    "deathless.probe.read": _spec("deathless.probe.read", "query", ReadArguments, Held, read),
    NOTE: _spec(NOTE, "handler", NoteArguments, None, note),
    READ: _spec(READ, "query", ReadUnknownArguments, Unknown, read_unknown),
}
"""Handlers and queries that every service has beside its own."""

_decode: Final = msgspec.msgpack.Decoder(Series).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class ProbeTable:
    """All series of a shard, encoded, by key."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    def open(self, series: bytes) -> Series:
        """Give a series to work on; what is done to it is kept by `keep` alone."""
        held = self.held.get(KEY + series)
        return _decode(held) if held is not None else Series()

    def keep(self, series: bytes, state: Series, lsn: int) -> bytes:
        """Keep a series as it is now; gives its bytes. The one longest untouched goes where there are too many."""
        state.touched = lsn
        encoded = self.held[KEY + series] = _encode(state)
        if len(self.held) > SERIES_MAX:
            del self.held[min(self.held, key=lambda key: (_decode(self.held[key]).touched, key))]
        return encoded

    def restore(self, state: dict[bytes, bytes]) -> None:
        """Take what is ours out of a checkpoint's state, in place of what was held."""
        self.held = {key: state.pop(key) for key in [key for key in state if key.startswith(KEY)]}
