"""What operators are shown of a pipeline: the same from the views of its service and from their JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.listings import pipelines as listing
from deathless.pipelines.assignment import Agent
from deathless.pipelines.ledger import Refused, Tip
from deathless.pipelines.service import DRIVERS, DriversView, QueryView, RefusedView

TIP = Tip(position="7", batch=3, query_id="q", offsets="", number=2, rows=5, time_us=1_000_000)
VIEWS: list[tuple[object, type[Any]]] = [
    (QueryView(2, TIP, 0, 1, 1536, 4, 9, 2, 3, "s" * 500), listing.Query),
    (QueryView(0, None, 0, 0, 0, 0, 0, 0, 0, ""), listing.Query),
    (DriversView(2, "a0", 5, {"a1": Agent(warm=True)}, "", suspended=False, queries=["alarms"]), listing.Drivers),
    (RefusedView(5, Refused("JFK", {"n": 1}, "airports", "alarm", "DL3001", "t" * 500)), listing.RefusedRow),
]


def query(index: int) -> listing.Query:
    return msgspec.convert(VIEWS[index][0], listing.Query, from_attributes=True)


@pytest.mark.parametrize(("view", "kind"), VIEWS)
def test_a_view_and_its_json_are_shown_alike(view: object, kind: type[Any]) -> None:
    shown = msgspec.convert(view, kind, from_attributes=True)
    assert msgspec.json.decode(msgspec.json.encode(view), type=kind) == shown


def test_queries_are_a_table_in_which_reasons_are_cut_to_fit() -> None:
    assert listing.DRIVERS == DRIVERS
    stopped, fresh = listing.query_rows({"a": query(0), "b": query(1)})
    assert len(stopped) == len(listing.COLUMNS)
    assert stopped == ("a", 3, "1970-01-01 00:00:01.000", 9, 1, 2, "s" * listing.CELL_MAX)
    assert fresh == ("b", "", "", 0, 0, 0, "runs")


def test_one_query_is_told_line_by_line() -> None:
    lines = listing.query_lines(query(0))
    assert "bytes kept    1.5 KiB" in lines and "refused       3, of which 2 are listed" in lines
    assert "batch         none" in listing.query_lines(query(1))


def test_who_drives_and_who_waits_is_told() -> None:
    drivers = msgspec.convert(VIEWS[2][0], listing.Drivers, from_attributes=True)
    assert listing.driver_lines(drivers) == ["driver   a0, number 2", "standby  a1 (warm)"]
    nobody = msgspec.structs.replace(drivers, agent="", agents={}, suspended=True)
    assert listing.driver_lines(nobody) == ["driver   none, number 2; suspended", "standby  none"]


def test_refused_rows_are_a_table_cut_to_fit() -> None:
    (row,) = listing.refused_rows([msgspec.convert(VIEWS[3][0], listing.RefusedRow, from_attributes=True)])
    assert len(row) == len(listing.REFUSED_COLUMNS)
    assert row[:3] == (5, "JFK", "airports.alarm")
    assert (len(str(row[3])), row[4]) == (listing.CELL_MAX, '{"n":1}')


def test_ids_go_out_in_parts() -> None:
    ids = list(range(1, 2 * listing.PAGE + 2))
    parts = listing.parts_of(ids)
    assert [len(each) for each in parts] == [listing.PAGE, listing.PAGE, 1]
    assert [each for part in parts for each in part] == ids


def test_what_was_done_is_said() -> None:
    said = [listing.retried(2, 1), listing.dropped(3), listing.resumed("q"), listing.resumed(""), listing.adopted("q")]
    assert [each.split()[0] for each in said] == ["2", "3", "q", "the", "q"]
    assert (listing.handed_over("a0"), listing.handed_over("")) == ("a0 hands over", "nobody drives")


def test_a_query_that_is_not_there_is_told_with_those_that_are() -> None:
    assert "its queries: alarms, counts" in str(listing.unknown("delays", "alarm", ["alarms", "counts"]))
    assert "its queries: it has none yet" in str(listing.unknown("delays", "alarm", []))
