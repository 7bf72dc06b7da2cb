"""What operators are shown of a pipeline: who drives, where queries stand, rows that were refused.

Fields are those of the views of `deathless.pipelines.service`, as far as they are shown; both what a client gets and
the JSON of the HTTP port convert to them.

Guarantees: the same columns and words for `deathless` and `kubectl deathless`. Does not: print, or ask anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_bytes, show_time

DRIVERS: Final = "."  # the key of who drives; no query has that name
PAGE: Final = 250  # refused rows asked for, or sent, at once
CELL_MAX: Final = 60  # characters
COLUMNS: Final = ("query", "batch", "decided", "rows applied", "waiting", "refused", "state")
REFUSED_COLUMNS: Final = ("id", "key", "handler", "error", "row")
NONE_REFUSED: Final = "no row is listed"
SUSPENDED: Final = "nobody drives"


class Agent(msgspec.Struct, frozen=True):
    """One agent of a driver."""

    warm: bool  # its driver could go on at once


class Drivers(msgspec.Struct, frozen=True, kw_only=True):
    """Who drives, and who could."""

    number: int
    agent: str  # who drives; empty: nobody
    agents: dict[str, Agent]
    failed: str
    suspended: bool
    queries: list[str]


class Tip(msgspec.Struct, frozen=True, kw_only=True):
    """The last batch of a query that was decided."""

    position: str
    batch: int
    time_us: int


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Where a query stands."""

    number: int  # of the newest driver that opened it; 0: none ever did
    tip: Tip | None
    waiting_rows: int
    held_bytes: int
    batches: int
    applied: int
    refused: int
    refusals: int
    stopped: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row that its handler refused."""

    key: str
    arguments: dict[str, object]
    service: str
    method: str
    code: str
    text: str


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The same with the id under which it is listed."""

    id: int
    row: Row


def unknown(pipeline: str, query: str, queries: Iterable[str]) -> InvalidArgument:
    """Give the error of a query that no driver ever had; `queries`: those of the newest driver."""
    known = ", ".join(queries) or "it has none yet"
    return InvalidArgument(f"pipeline {pipeline}: there is no query {query!r}", remedy=f"its queries: {known}")


def driver_lines(drivers: Drivers) -> list[str]:
    """Say who drives and who could."""
    state = drivers.failed or ("suspended" if drivers.suspended else "")
    standbys = [
        f"{name} ({'warm' if agent.warm else 'starting'})"
        for name, agent in drivers.agents.items()
        if name != drivers.agent
    ]
    return [
        f"driver   {drivers.agent or 'none'}, number {drivers.number}" + (f"; {state}" if state else ""),
        f"standby  {', '.join(standbys) or 'none'}",
    ]


def query_rows(views: Mapping[str, Query]) -> list[Sequence[object]]:
    """Give the rows of a table of queries, by name."""
    return [
        (name, view.tip.batch if view.tip else "", show_time(view.tip.time_us) if view.tip else "", view.applied,
         view.waiting_rows, view.refused, view.stopped[:CELL_MAX] or "runs")
        for name, view in views.items()
    ]  # fmt: skip


def query_lines(view: Query) -> list[str]:
    """Say where one query stands."""
    told = {
        "state": view.stopped or "runs",
        "driver": view.number,
        "batch": view.tip.batch if view.tip else "none",
        "batches": f"{view.batches} decided",
        "decided": show_time(view.tip.time_us) if view.tip else "",
        "position": view.tip.position if view.tip else "",
        "rows applied": view.applied,
        "rows waiting": view.waiting_rows,
        "bytes kept": show_bytes(view.held_bytes),
        "refused": f"{view.refusals}, of which {view.refused} are listed",
    }
    return [f"{label:<13} {value}" for label, value in told.items()]


def refused_rows(rows: Iterable[RefusedRow]) -> list[Sequence[object]]:
    """Give the rows of a table of refused rows."""
    return [
        (
            each.id, each.row.key, f"{each.row.service}.{each.row.method}",
            f"{each.row.code} {each.row.text}"[:CELL_MAX],
            msgspec.json.encode(each.row.arguments).decode()[:CELL_MAX],
        )
        for each in rows
    ]  # fmt: skip


def parts_of(ids: Sequence[int]) -> list[list[int]]:
    """Give the ids of refused rows in parts of at most PAGE, each for one request."""
    return [list(ids[at : at + PAGE]) for at in range(0, len(ids), PAGE)]


def retried(sent: int, again: int) -> str:
    """Say what came of refused rows that were sent once more."""
    return f"{sent} sent, {again} refused again"


def dropped(count: int) -> str:
    """Say how many rows were let go."""
    return f"{count} dropped"


def resumed(query: str) -> str:
    """Say that a query goes on; empty: that somebody drives again."""
    return f"{query or 'the pipeline'} goes on"


def adopted(query: str) -> str:
    """Say that a query whose rows go to a table goes on from where it stands."""
    return f"{query} goes on from here as soon as its driver opens the table"


def handed_over(drives: str) -> str:
    """Say who hands over; empty: nobody drives."""
    return f"{drives} hands over" if drives else SUSPENDED
