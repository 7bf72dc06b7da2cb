"""Which classes rows can be of, and which values pass: what passes can be written by whoever has the schema alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest
from msgspec import Meta

from deathless.base.errors import InvalidService
from deathless.base.topics.row_schema import parse_row_schema
from deathless.execution.declared.row_types import RowPlan, row_plan

Cents = NewType("Cents", int)
Price = Annotated[Decimal, Meta(extra={"scale": 2})]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    YES = "yes"


class Mixed(Enum):
    ONE = 1
    TWO = "two"


class Large(Enum):
    ONE = 2**63


class Bare(Enum):
    ONE = 1.5


class Leg(msgspec.Struct):
    start: str
    end: str = ""


class Flight(msgspec.Struct, rename="camel"):
    flight: str
    minutes: int
    delay_s: float
    late: bool
    raw: bytes
    at: datetime
    price: Price
    legs: list[Leg]
    seats: dict[str, tuple[int, ...]]
    colour: Colour
    size: Size
    word: Literal["a", "b"]
    number: Literal[1, 2]
    cents: Cents
    gate: str | None = None
    back: Leg | None = None
    maybe: Literal["x", None] = None  # noqa: PYI061  another shape than a union
    prices: list[Price | None] = []


TEXT = (
    "flight:utf8,minutes:int64,delayS:float64,late:bool,raw:binary,at:timestamp,price:decimal<2>,"
    "legs:list<struct<start:utf8,end:utf8>>,seats:map<list<int64>>,colour:utf8,size:int64,word:utf8,number:int64,"
    "cents:int64,gate:utf8?,back:struct<start:utf8,end:utf8>?,maybe:utf8?,prices:list<decimal<2>?>"
)


def flight(**other: object) -> Flight:
    values: dict[str, Any] = {
        "flight": "UA1", "minutes": -5, "delay_s": 1.5, "late": True, "raw": b"\0", "price": Decimal("12.5"),
        "at": datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "legs": [Leg("JFK", "SFO"), Leg("SFO")],
        "seats": {"b": (1, 2), "a": ()}, "colour": Colour.BLUE, "size": Size.SMALL, "word": "b", "number": 2,
        "cents": Cents(7),
    }  # fmt: skip
    return Flight(**{**values, **other})


def plan(cls: object) -> RowPlan:
    return row_plan(cls, "service airports: topic 'x'")


def one(stated: Any) -> RowPlan:
    return plan(msgspec.defstruct("One", [("value", stated)]))


def test_every_type_has_its_column_and_its_value() -> None:
    made = plan(Flight)
    assert made.schema.text == TEXT
    assert parse_row_schema(TEXT) == made.schema
    assert made.convert(flight()) == [
        "UA1", -5, 1.5, True, b"\0", 0, "12.50", [["JFK", "SFO"], ["SFO", ""]], {"b": [1, 2], "a": []}, "blue", 1, "b",
        2, 7, None, None, None, [],
    ]  # fmt: skip
    row = flight(gate="B3", back=Leg("SFO", "JFK"), maybe="x", prices=[Decimal(1), None])
    assert made.convert(row)[-4:] == ["B3", ["SFO", "JFK"], "x", ["1.00", None]]


def test_digits_of_a_decimal_may_stand_around_what_may_be_null() -> None:
    assert one(Annotated[Decimal | None, Meta(extra={"scale": 3})]).schema.text == "value:decimal<3>?"


def test_values_are_plain_whatever_class_they_are_of() -> None:
    made = plan(Flight)
    row = flight(flight=Word.YES, minutes=Size.SMALL, delay_s=3)
    values = made.convert(row)[:3]
    assert values == ["yes", 1, 3.0]
    assert [type(value) for value in values] == [str, int, float]


@pytest.mark.parametrize(
    ("given", "text"),
    [("0", "0.00"), ("-0.00", "0.00"), ("1E+3", "1000.00"), ("-0.05", "-0.05"), ("9" * 36 + ".99", "9" * 36 + ".99")],
)
def test_a_decimal_has_one_text(given: str, text: str) -> None:
    assert plan(Flight).convert(flight(price=Decimal(given)))[6] == text


def test_integers_of_64_bits_and_every_float_pass() -> None:
    made = plan(Flight)
    for number in (-(2**63), 2**63 - 1):
        assert made.convert(flight(minutes=number))[1] == number
    for endless in (math.inf, -math.inf):
        assert made.convert(flight(delay_s=endless))[2] == endless
    found = made.convert(flight(delay_s=math.nan))[2]
    assert isinstance(found, float)
    assert math.isnan(found)
    late = datetime.max.replace(tzinfo=UTC)
    assert made.convert(flight(at=late))[5] == 253402300799999999


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("minutes", 2**63, r"\.minutes: the integer has more than 64 bits"),
        ("minutes", True, r"\.minutes: True is not an int"),
        ("minutes", "5", r"\.minutes: '5' is not an int"),
        ("minutes", None, r"\.minutes: a NoneType is not an int"),
        ("delay_s", "x", r"\.delayS: 'x' is not a float"),
        ("delay_s", False, r"\.delayS: False is not a float"),
        ("delay_s", 10**400, r"\.delayS: the integer is too large for a float"),
        ("late", 1, r"\.late: 1 is not a bool"),
        ("flight", b"x", r"\.flight: b'x' is not a str"),
        ("raw", "x", r"\.raw: 'x' is not bytes"),
        ("at", datetime(2030, 1, 1), r"\.at: the datetime has no zone"),  # noqa: DTZ001  on purpose
        ("at", 5, r"\.at: 5 is not a datetime"),
        ("price", 1.5, r"\.price: 1.5 is not a Decimal"),
        ("price", Decimal("0.001"), r"\.price: the Decimal has more than 2 digits behind the point"),
        ("price", Decimal("1e37"), r"\.price: the Decimal has more than 38 digits"),
        ("price", Decimal("NaN"), r"\.price: the Decimal is no number"),
        ("price", Decimal("Infinity"), r"\.price: the Decimal"),
        ("legs", "x", r"\.legs: 'x' is not a list"),
        ("legs", [Leg("a"), 5], r"\.legs\[1\]: 5 is not a Leg"),
        ("legs", [Leg("a", end=5)], r"\.legs\[0\]\.end: 5 is not a str"),  # type: ignore[arg-type]  # pyrefly: ignore
        ("seats", [], r"\.seats: a list is not a dict"),
        ("seats", {5: ()}, r"\.seats: a key: 5 is not a str"),
        ("seats", {"a": (1, "x")}, r"\.seats\['a'\]\[1\]: 'x' is not an int"),
        ("colour", "red", r"\.colour: 'red' is not a member of Colour"),
        ("word", "c", r"\.word: 'c' is not one of \['a', 'b'\]"),
        ("number", True, r"\.number: True is not one of \[1, 2\]"),
        ("gate", 5, r"\.gate: 5 is not a str"),
        ("prices", [Decimal("0.1"), 5], r"\.prices\[1\]: 5 is not a Decimal"),
    ],
)
def test_what_does_not_fit_is_named(field: str, value: object, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        plan(Flight).convert(flight(**{field: value}))


def test_a_row_is_of_its_class_and_of_none_derived_from_it() -> None:
    class Long(Leg):
        stops: int = 0

    with pytest.raises(ValueError, match=": a Long is not a Leg"):
        plan(Leg).convert(Long("a"))


class Inner(msgspec.Struct):
    bad: set[int]


class Outer(msgspec.Struct):
    inner: list[Inner]


class Tree(msgspec.Struct):
    left: Tree | None


class Empty(msgspec.Struct):
    pass


class Hidden(msgspec.Struct):
    _key: str


class Renamed(msgspec.Struct, rename={"a": "a-b"}):
    a: int


@dataclass
class Data:
    a: int


def deep() -> type[msgspec.Struct]:
    stated: Any = int
    for _ in range(17):
        stated = list[stated]
    return msgspec.defstruct("Deep", [("value", stated)])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: one(set[int]), "field `One.value`: set can't stand in a row; what can: int, float"),
        (lambda: one(Any), "any can't stand in a row"),
        (lambda: one(int | str), r"int \| str can't stand in a row"),
        (lambda: one(tuple[int, str]), "tuple can't stand in a row"),
        (lambda: one(dict[int, str]), "dict can't stand in a row"),
        (lambda: one(Data), "Data can't stand in a row"),
        (lambda: one(Mixed), "One can't be read"),
        (lambda: one(Literal[1, "a"]), "literal can't stand in a row"),
        (lambda: one(Literal[2**63]), "One can't be read"),
        (lambda: one(Large), "One can't be read"),
        (lambda: one(Bare), "One can't be read"),
        (lambda: one(None), "none can't stand in a row"),
        (lambda: one(timedelta), "timedelta can't stand in a row"),
        (lambda: one(Annotated[datetime, Meta(tz=False)]), "a datetime without a zone can't stand in a row"),
        (lambda: one(Decimal), "a Decimal needs its digits behind the point, from 0 to 38"),
        (lambda: one(Annotated[Decimal, Meta(extra={"scale": 39})]), "a Decimal needs its digits"),
        (lambda: plan(Outer), "field `Inner.bad`: set can't stand in a row"),
        (lambda: plan(Tree), "Tree holds itself"),
        (lambda: plan(Empty), "Empty has no fields"),
        (lambda: one(Empty), "Empty has no fields"),
        (lambda: plan(Hidden), "field `Hidden._key` begins with an underscore"),
        (lambda: plan(Renamed), "'a-b' can't name a column"),
        (lambda: plan(Data), "its rows must be of a Struct"),
        (lambda: plan(Leg("a")), "its rows must be of a Struct"),
        (lambda: plan(deep()), "nested more than 16 deep"),
        (lambda: one(complex), "complex can't stand in a row"),
    ],
)
def test_types_that_no_row_can_hold_are_refused(make: Callable[[], object], error: str) -> None:
    with pytest.raises(InvalidService, match=f"service airports: topic 'x'.*{error}"):
        make()


def test_a_class_that_can_not_be_described_is_refused() -> None:
    broken = msgspec.defstruct("Broken", [("a", "NoSuchType")])
    with pytest.raises(InvalidService, match="Broken can't be read"):
        plan(broken)
