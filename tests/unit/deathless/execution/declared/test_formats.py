"""Formats and bounds of what a service takes and gives, and that a validator of others agrees with what is taken."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from deathless.execution.declared.formats import INT_MAX, INT_MIN, add_formats

Meta = msgspec.Meta
PREFIX = "#/$defs/{name}"


class Leaf(msgspec.Struct, tag=True):
    at: datetime
    next: Leaf | None = None


class Other(msgspec.Struct, tag=True):
    count: int


class Row(msgspec.Struct, array_like=True, tag=True):
    at: datetime
    count: int


@dataclass
class Data:
    at: datetime


class Pair(NamedTuple):
    at: datetime
    number: int


class Typed(TypedDict):
    at: datetime


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type, whole."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template=PREFIX)
    add_formats([kind], [schema], components, PREFIX)
    return {**schema, "$defs": components}


def alone(kind: Any) -> dict[str, Any]:
    """The schema of a type without named parts."""
    found = schema_of(kind)
    assert found.pop("$defs") == {}
    found.pop("type", None)
    return found


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (int, {"minimum": INT_MIN, "maximum": INT_MAX}),
        (Annotated[int, Meta(ge=0)], {"minimum": 0, "maximum": INT_MAX, "format": "uint64"}),
        (Annotated[int, Meta(gt=-1, lt=2**31)], {"exclusiveMinimum": -1, "exclusiveMaximum": 2**31, "format": "int32"}),
        (Annotated[int, Meta(ge=0, le=2**31)], {"minimum": 0, "maximum": 2**31, "format": "int64"}),
        (Annotated[int, Meta(lt=2**40)], {"minimum": INT_MIN, "exclusiveMaximum": 2**40, "format": "int64"}),
        (datetime, {"format": "date-time"}),
        (Annotated[datetime, Meta(tz=True)], {"format": "date-time"}),
        (Annotated[datetime, Meta(tz=False)], {"format": "date-time-local"}),
        (time, {"format": "time-local"}),
        (Annotated[time, Meta(tz=True)], {"format": "time"}),
        (date, {"format": "date"}),
        (timedelta, {"format": "duration"}),
        (uuid.UUID, {"format": "uuid"}),
        (Decimal, {"format": "decimal"}),
        (bytes, {"contentEncoding": "base64"}),
        (Annotated[bytes, Meta(max_length=5)], {"contentEncoding": "base64", "maxLength": 8}),
        (Literal[1, 2], {"enum": [1, 2]}),
    ],
)
def test_each_type_has_its_format_and_bounds(kind: Any, told: dict[str, object]) -> None:
    assert alone(kind) == told


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (list[datetime], ("items",)),
        (set[datetime], ("items",)),
        (tuple[int, datetime], ("prefixItems", 1)),
        (dict[str, datetime], ("additionalProperties",)),
        (dict[datetime, str], ("propertyNames",)),
        (datetime | None, ("anyOf", 0)),
        (int | datetime | None, ("anyOf", 1)),
        (Annotated[datetime, Meta(title="t")], ()),
        (Leaf, ("$defs", "Leaf", "properties", "at")),
        (list[Leaf | None], ("$defs", "Leaf", "properties", "at")),
        (int | Other | Leaf, ("$defs", "Leaf", "properties", "at")),
        (Other | Leaf | None, ("$defs", "Leaf", "properties", "at")),
        (Row, ("$defs", "Row", "prefixItems", 1)),
        (int | Row | None, ("$defs", "Row", "prefixItems", 1)),
        (Data, ("$defs", "Data", "properties", "at")),
        (Pair, ("$defs", "Pair", "prefixItems", 0)),
        (Typed, ("$defs", "Typed", "properties", "at")),
    ],
)
def test_it_is_told_wherever_the_type_stands(kind: Any, path: tuple[str | int, ...]) -> None:
    found: Any = schema_of(kind)
    for name in path:
        found = found[name]
    assert found["format"] == "date-time"


@pytest.mark.parametrize(
    ("kind", "told"),
    [(int, {"pattern": "^-?[0-9]+$"}), (uuid.UUID, {"format": "uuid"}), (date, {"format": "date"}), (str, None)],
)
def test_keys_that_are_no_text_say_what_their_text_is(kind: Any, told: object) -> None:
    assert schema_of(dict[kind, bool]).get("propertyNames") == told


VALUES: list[tuple[Any, Any]] = [
    (int, INT_MIN),
    (int, INT_MAX),
    (datetime, datetime(2026, 1, 31, 12, 30, 1, 250, tzinfo=UTC)),
    (date, date(2026, 1, 31)),
    (uuid.UUID, uuid.UUID(int=7)),
    (bytes, b"\x00\xff"),
    (dict[int, str], {-5: "a"}),
    (dict[date, int], {date(2026, 1, 31): 1}),
    (Leaf, Leaf(datetime(2026, 1, 1, tzinfo=UTC), Leaf(datetime(2026, 1, 2, tzinfo=UTC)))),
    (Row, Row(datetime(2026, 1, 1, tzinfo=UTC), 3)),
    (int | Other | Leaf | None, Other(4)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_validator_of_others_finds_what_is_given_valid(kind: Any, value: object) -> None:
    given = msgspec.json.decode(msgspec.json.encode(value))
    Draft202012Validator(schema_of(kind), format_checker=FormatChecker()).validate(given)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (int, INT_MAX + 1),
        (int, INT_MIN - 1),
        (datetime, "yesterday"),
        (date, "31.1.2026"),
        (uuid.UUID, "7"),
        (dict[int, str], {"five": "a"}),
        (Leaf, {"type": "Leaf", "at": "soon"}),
        (Other, {"type": "Other", "count": 2**64}),
    ],
)
def test_and_what_is_not_taken_invalid(kind: Any, given: object) -> None:
    with pytest.raises(ValidationError):
        Draft202012Validator(schema_of(kind), format_checker=FormatChecker()).validate(given)
    with pytest.raises((msgspec.ValidationError, OverflowError)):
        msgspec.msgpack.encode(msgspec.json.decode(json.dumps(given), type=kind))
