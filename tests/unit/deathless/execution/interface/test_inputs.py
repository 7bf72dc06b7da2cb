"""Inputs in the record of an interface, what of them an upgrade compares, and what becomes of rows that wait."""

from __future__ import annotations

import msgspec
import pytest

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidConfig
from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.codec.streams.rows import encode_row
from deathless.execution.interface.comparison import Comparison, UnderWay, Use, compare
from deathless.execution.interface.interface import (
    FORMAT_WITH_INPUTS,
    Interface,
    decode_interface,
    encode_interface,
    interface_as_json,
    interface_from_json,
    interface_hash,
    interface_of,
)
from deathless.execution.interface.way_back import way_back
from deathless.execution.migration.lowering import Down
from deathless.execution.migration.messages import Fitting, Refused, Waiting


class Airport(Struct):
    flights: int = 0


def airports(version: int = 1, *columns: tuple[str, type], name: str = "flights", waits: bool = False) -> Service:
    made = Service("airports", state=Airport, version=version)
    row = msgspec.defstruct("Departed", list(columns or [("minutes", int)]))
    if waits:

        async def slow(airport: Airport, ctx: Context, row: row) -> None: ...  # type: ignore[valid-type]

        made.input(name)(slow)
    else:

        def record(airport: Airport, ctx: Context, row: row) -> None: ...  # type: ignore[valid-type]

        made.input(name)(record)
    return made


def of(service: Service) -> Interface:
    return interface_of(service, Limits())


def compared(old: Service, new: Service, waiting: int | None = 0) -> Comparison:
    handlers = {"input:flights": Use(waiting, "lsn 14")} if waiting else {}
    under_way = None if waiting is None else UnderWay(handlers=handlers)
    return compare(of(old), of(new), new.declared, under_way=under_way)


def words(found: Comparison) -> list[str]:
    return [each.word for each in found.misfits]


def test_inputs_stand_in_the_record_with_a_format_of_their_own() -> None:
    found = of(airports())
    assert [(each.name, each.kind) for each in found.rows] == [("input:flights", "input")]
    assert found.format == FORMAT_WITH_INPUTS
    assert decode_interface(encode_interface(found)) == found
    assert interface_from_json(interface_as_json(found)) == found
    assert interface_hash(found) != interface_hash(of(airports(1, ("minutes", str))))
    bare = of(Service("airports", state=Airport))
    assert (bare.format, bare.rows) == (1, ())
    assert b"inputs" not in encode_interface(bare)
    with pytest.raises(InvalidConfig, match="format 4, and 1 to 3 are known"):
        decode_interface(encode_interface(msgspec.structs.replace(found, format=4)))


def test_a_row_may_have_less_that_is_needed_and_not_more() -> None:
    assert compared(airports(), airports()).compatible
    wider = compared(airports(), airports(1, ("minutes", float)))
    assert words(wider) == []
    found = compared(airports(), airports(1, ("minutes", int), ("carrier", str)))
    assert words(found) == ["RowChanged"]
    assert "write version=2 in Service(...)" in found.misfits[0].text


def test_a_version_may_take_other_rows_or_none_unless_some_wait() -> None:
    other = airports(2, ("minutes", str))
    assert words(compared(airports(), other)) == []
    assert [each.word for each in compared(airports(), other).notes] == ["RowChanged"]
    assert words(compared(airports(), other, waiting=3)) == ["RowChanged"]
    assert words(compared(airports(), other, waiting=None)) == ["RowChanged"]
    gone = airports(2, name="trains")
    assert words(compared(airports(), gone)) == []
    assert words(compared(airports(), gone, waiting=3)) == ["InputGone"]
    assert words(compared(airports(), airports(name="trains"))) == ["InputGone"]


def test_an_input_that_waits_is_another_way_of_running() -> None:
    assert words(compared(airports(), airports(waits=True))) == ["KindChanged"]
    assert words(compared(airports(), airports(2, waits=True))) == []
    serves = airports(2, waits=True)
    back = way_back(of(serves), of(airports()), serves.declared, UnderWay(handlers={"input:flights": Use(1)}))
    assert "KindChanged" in [each.word for each in back.misfits]


def waiting_row(row: bytes = b'{"minutes": 3}', name: str = "flights") -> Waiting:
    return Waiting("lsn 14", f"input:{name}", b"JFK", decode(encode_row(name, b"JFK", row)).args)


def test_a_row_that_waits_goes_on_where_the_new_class_reads_it() -> None:
    fitted = Fitting(airports(1, ("minutes", float)), of(airports())).fit(waiting_row())
    assert (fitted.method, fitted.arguments) == (waiting_row().method, waiting_row().arguments)
    with pytest.raises(Refused, match="does not fit: the row does not fit: Expected"):
        Fitting(airports(1, ("minutes", str)), of(airports())).fit(waiting_row())
    with pytest.raises(Refused, match="is none of the new code"):
        Fitting(airports(name="trains"), of(airports())).fit(waiting_row())


def test_a_row_that_waits_goes_back_where_the_older_class_reads_it() -> None:
    row = waiting_row()
    down = Down(airports(2), of(airports()), None)
    assert (down.handler(row.method), down.arguments(row.method, row.arguments)) == (row.method, row.arguments)
    with pytest.raises(Refused, match="took another class"):
        Down(airports(2), of(airports(1, ("minutes", str))), None).arguments(row.method, row.arguments)
    with pytest.raises(Refused, match="was none of version 1"):
        Down(airports(2), of(airports(name="trains")), None).arguments(row.method, row.arguments)
