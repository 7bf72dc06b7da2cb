"""Inputs: what a function that takes rows must look like, and how strictly a row becomes its argument."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.errors import InputUnreadable, InvalidService
from deathless.codec.messages import decode
from deathless.codec.streams.rows import encode_row
from deathless.execution.author.inputs import row_decoder
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class Airport(msgspec.Struct):
    flights: int = 0


class Departed(msgspec.Struct):
    carrier: str
    minutes: int | None = None
    parts: list[object] = []


def made() -> Service:
    service = Service("airports", state=Airport)

    @service.input("flights")
    def record(airport: Airport, _ctx: Context, row: Departed) -> None:
        """Count."""
        airport.flights += row.minutes or 0

    return service


def arguments(row: bytes, why: str = "") -> msgspec.Struct:
    spec = made().inputs["flights"]
    return row_decoder(spec.args_type)(decode(encode_row("flights", b"k", row, why=why)).args)


def test_an_input_is_registered_apart_from_handlers() -> None:
    service = made()
    spec = service.inputs["flights"]
    assert (spec.name, spec.kind, spec.doc, spec.waits) == ("input:flights", "input", "Count.", False)
    assert not service.specs
    assert service.functions == [spec.function]
    with pytest.raises(InvalidService, match="has an input 'flights' already"):
        service.input("flights")(spec.function)


def test_a_row_is_the_argument() -> None:
    assert arguments(b'{"carrier": "AA", "minutes": 3}').row == Departed("AA", 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b"", r"the row does not fit: Input data was truncated"),
        (b"not json", r"the row does not fit: .*malformed"),
        (b"[]", r"Expected `object`, got `array`"),
        (b'{"carrier": "AA", "minutes": "3"}', r"Expected `int \| null`, got `str` - at `\$.minutes`"),
        (b'{"minutes": 3}', r"missing required field `carrier`"),
        (b'{"carrier": "\xff"}', r"the row does not fit"),
        (b'{"carrier": "AA", "minutes": NaN}', r"the row does not fit"),
        (b'{"carrier": "AA"} {}', r"trailing characters"),
        (b'{"carrier": "AA", "parts": ' + b"[" * 300 + b"]" * 300 + b"}", r"nested more than 200 levels"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_what_is_wrong_with_it(row: bytes, why: str) -> None:
    with pytest.raises(InputUnreadable, match=why):
        arguments(row)


def test_what_its_source_refuses_is_refused_with_its_reason() -> None:
    with pytest.raises(InputUnreadable, match="no key"):
        arguments(b'{"carrier": "AA"}', why="no key")
    with pytest.raises(InputUnreadable, match="this is no row"):
        row_decoder(made().inputs["flights"].args_type)(b"\x80")


def _two(airport: Airport, ctx: Context, row: Departed, more: Departed) -> None: ...
def _default(airport: Airport, ctx: Context, row: Departed = Departed("AA")) -> None: ...  # noqa: B008
def _plain(airport: Airport, ctx: Context, row: dict[str, int]) -> None: ...
def _gives(airport: Airport, ctx: Context, row: Departed) -> int: ...  # type: ignore[empty-body]
def _no_context(airport: Airport, row: Departed) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_two, "one row without a default"),
        (_default, "one row without a default"),
        (_plain, "`row` of an input must be a Struct"),
        (_gives, "would reach nobody"),
        (_no_context, "must be the context"),
    ],
)
def test_what_can_not_be_an_input_is_refused_when_it_is_imported(function: Any, why: str) -> None:
    with pytest.raises(InvalidService, match=f"test_inputs.py.*{why}"):
        Service("airports", state=Airport).input("flights")(function)


def test_an_input_has_a_name_as_services_have() -> None:
    with pytest.raises(InvalidService, match="input 'Flights' must be named"):
        Service("airports", state=Airport).input("Flights")(_plain)
