"""Built-in handlers that note which methods a program named that its service does not have.

    deathless.unknown         (series, method) -> None: once more; sent by a service to itself (author.foreign_methods)
    deathless.unknown.read    (series) -> how often each number was named; a query

A fork of a program that names no method has nobody to tell. It changes nothing, stops nothing, and is counted here: in
the log's order, on all replicas, in the checkpoint. What is held lies in a series of the probe (see probe), in whose
ranges each number stands with its count; those of all shards are in the shard of the series' name.

Guarantees: a function of the log; at most NUMBERS_MAX numbers are told apart, those beyond are counted in all. Does
not: keep arguments. Imports the names alone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec

from deathless.execution.author.foreign_methods import NOTE, SERIES

if TYPE_CHECKING:
    from deathless.execution.handlers.probe import Series
    from deathless.execution.turn.context import QueryContext

__all__ = ["NOTE", "READ"]  # names of both

READ: Final = "deathless.unknown.read"
NUMBERS_MAX: Final = 256


class NoteArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Arguments of `deathless.unknown`."""

    series: str
    method: int


class ReadUnknownArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Arguments of `deathless.unknown.read`."""

    series: str = SERIES


class Unknown(msgspec.Struct, frozen=True):
    """Answer of `deathless.unknown.read`."""

    count: int  # messages that named a method which the service did not have
    methods: list[tuple[int, int]]  # (number, how many of them), ascending; at most NUMBERS_MAX


def note(state: Series, context: QueryContext, series: str, method: int) -> None:  # noqa: ARG001  as every handler
    """Note that a method was named that is not there."""
    state.doubled_count += 1
    ranges = state.ranges
    at = bisect_left(ranges, (method, 0))
    if at < len(ranges) and ranges[at][0] == method:
        ranges[at] = (method, ranges[at][1] + 1)
    elif len(ranges) < NUMBERS_MAX:
        ranges.insert(at, (method, 1))


def read_unknown(state: Series, context: QueryContext, series: str) -> Unknown:  # noqa: ARG001  as every query
    """Give which methods were named that are not there, and how often."""
    return Unknown(state.doubled_count, list(state.ranges))
