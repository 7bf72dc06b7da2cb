"""The table of types that services may and may not declare; see test_types_everywhere."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, abc, defaultdict, deque
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Never,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)

import msgspec
from msgspec import Meta, Struct, field

T = TypeVar("T")
UTC = dt.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


class Cents(int):
    """A class of its author's that is an int."""


class Name(str):
    __slots__ = ()


class Blob(bytes):
    """Likewise, bytes."""


class Rate(float):
    """Likewise, a float."""


class Words(list[str]):
    """Likewise, a list."""


class Table(dict[str, int]):
    """Likewise, a dict."""


class Color(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796  an alias is the point
    BLUE = "b"


class Size(enum.IntEnum):
    ONE = 1
    UNO = 1
    TWO = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Loose(enum.Flag):
    A = 1
    B = 2


class Unit(enum.StrEnum):
    GRAM = "g"


class Pairs(enum.Enum):
    A = (1, 2)


class Ratios(enum.Enum):
    HALF = 0.5


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Point(NamedTuple):
    x: int
    y: str = "y"


class Options(TypedDict):
    a: int
    b: NotRequired[str]


@dataclasses.dataclass
class Line:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Fixed:
    a: int


@dataclasses.dataclass
class Sum:
    a: int
    b: dataclasses.InitVar[int] = 3


class Plain(Struct):
    a: int = 0


class Frozen(Struct, frozen=True):
    a: int


class Row(Struct, frozen=True, array_like=True):
    a: int


class Cat(Struct, tag=True):
    n: int


class Dog(Struct, tag=True):
    n: int


class First(Struct, array_like=True, tag=True):
    n: int


class Second(Struct, array_like=True, tag=True):
    n: int


class Node(Struct):
    value: int = 0
    children: list[Node] = []


class Camel(Struct, rename="camel", omit_defaults=True):
    some_name: int = 1
    some_set: set[str] = field(default_factory=set)


class Maybe(Struct):
    a: int | msgspec.UnsetType = msgspec.UNSET


class Box(Struct, Generic[T]):
    inside: T


@dataclasses.dataclass
class Crate(Generic[T]):
    inside: T


class Other:
    """Nothing that anybody can encode."""


class Holder(Struct):
    """Holds one of what is refused, two levels down."""

    where: list[Deeper] = []


class Deeper(Struct):
    path: pathlib.Path | None = None


class TwoTexts(Struct):
    when: str | dt.datetime = ""


UserId = NewType("UserId", int)

WORKS: Final[list[tuple[object, object]]] = [
    (int, -5),
    (int, 2**64 - 1),
    (int, -(2**63)),
    (bool, True),
    (float, -0.0),
    (float, 1.5),
    (str, "héllo\u2028\0"),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"ab")),
    (None, None),
    (Color, Color.CRIMSON),
    (Size, Size.UNO),
    (Rights, Rights.READ | Rights.WRITE),
    (Loose, Loose.A | Loose.B),
    (Unit, Unit.GRAM),
    (dt.datetime, dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.timezone(dt.timedelta(hours=2)))),
    (dt.datetime, dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN).astimezone(UTC)),
    (dt.datetime, dt.datetime(2024, 1, 2, 3, 4, 5)),  # noqa: DTZ001  without a zone
    (dt.date, dt.date(2024, 1, 2)),
    (dt.time, dt.time(1, 2, 3, 4)),
    (dt.time, dt.time(1, 2, 3, tzinfo=UTC)),
    (dt.timedelta, dt.timedelta(days=-1, microseconds=3)),
    (dt.timedelta, dt.timedelta(days=100_000, microseconds=1)),
    (Decimal, Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=5)),
    (list[int], [1, 2]),
    (list, [1, "a"]),
    (set[int], {3, 1, 2}),
    (set[str], {"b", "a", "c"}),
    (set[tuple[int, str]], {(2, "b"), (1, "a")}),
    (set[Color], {Color.RED, Color.BLUE}),
    (set[Point], {Point(1), Point(2)}),
    (set[Fixed], {Fixed(1), Fixed(2)}),
    (set[Frozen], {Frozen(1), Frozen(2)}),
    (set[int | None], {1, None}),
    (set[int | str], {1, "1"}),
    (set[dt.datetime], {dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2025, 1, 1, tzinfo=UTC)}),
    (frozenset[frozenset[int]], frozenset([frozenset([1, 2]), frozenset([3])])),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (Point, Point(1, "z")),
    (Options, {"a": 1}),
    (Line, Line(1, [2])),
    (Fixed, Fixed(1)),
    (Plain, Plain(3)),
    (Cat | Dog, Dog(2)),
    (First | Second | None, Second(1)),
    (Cat | Dog | None, None),
    (Node, Node(1, [Node(2, [Node(3)])])),
    (Camel, Camel(2, {"b", "a"})),
    (Maybe, Maybe()),
    (Box[set[int]], Box({3, 1})),
    (Crate[tuple[int, ...]], Crate((1, 2))),
    (Optional[int], None),  # noqa: UP045  as authors write it
    (int | str, "a"),
    (list[dict[str, tuple[int, ...]] | None], [None, {"a": (1, 2)}]),
    (Literal["a", "b"] | None, "a"),
    (Literal[1, 2], 2),
    (dict[str, int], {"b": 1, "a": 2}),
    (dict, {"a": [1]}),
    (dict[int, int], {2: 2, 1: 1}),
    (dict[float, int], {1.5: 2}),
    (dict[bytes, int], {b"\xff": 1}),
    (dict[uuid.UUID, int], {uuid.UUID(int=1): 1}),
    (dict[dt.date, int], {dt.date(2024, 1, 1): 1}),
    (dict[dt.datetime, int], {dt.datetime(2024, 1, 1, tzinfo=UTC): 1}),
    (dict[dt.timedelta, int], {dt.timedelta(1): 1}),
    (dict[Decimal, int], {Decimal("1.5"): 3}),
    (dict[Color, int], {Color.RED: 1}),
    (dict[Size, set[str]], {Size.ONE: {"x", "y"}}),
    (dict[UserId, int], {1: 2}),
    (dict[Literal["a"], int], {"a": 1}),
    (abc.Mapping[str, int], {"a": 1}),
    (abc.MutableMapping[str, int], {"a": 1}),
    (abc.Set[int], {1, 2}),
    (abc.MutableSet[int], {1, 2}),
    (abc.MutableSequence[int], [1]),
    (Annotated[int, Meta(ge=0)], 1),
    (UserId, 3),
    (Any, {"a": [1, None, 1.5, "x", True]}),
    (object, [1]),
]

NOT_OVER_HTTP: Final[list[tuple[object, object, str]]] = [
    (dict[bool, int], {True: 1}, "bool"),
    (dict[tuple[int, int], int], {(1, 2): 3, (0, 1): 4}, "tuple"),
    (dict[Point, int], {Point(1): 3}, "Point"),
    (dict[int | None, int], {None: 3, 1: 2}, "none"),
    (dict[int | str, int], {1: 3, "1": 2}, "several kinds"),
    (dict[Literal["1", 1], int], {"1": 3}, "Literal of several types"),
    (dict[frozenset[int], int], {frozenset([1, 2]): 2}, "frozenset"),
    (dict[Row, set[str]], {Row(2): {"a", "b"}, Row(1): set()}, "Row"),
    (list[dict[tuple[int, ...], int]], [{(1,): 1}], "tuple"),
]
"""States may hold these, arguments and results may not; and the word that names what is wrong."""

REFUSED: Final[list[tuple[object, str]]] = [
    (Cents, "Cents can't be encoded; use int"),
    (Name, "Name can't be encoded; use str"),
    (Blob, "use bytes"),
    (Rate, "use float"),
    (Words, "use list"),
    (Table, "use dict"),
    (defaultdict[str, int], "defaultdict can't be encoded; use dict"),
    (OrderedDict[str, int], "OrderedDict can't be encoded; use dict"),
    (Counter[str], "Counter can't be encoded; use dict"),
    (deque[int], "use list"),
    (type, "type can't be encoded"),
    (pathlib.Path, "use str"),
    (complex, "use a tuple of two floats"),
    (fractions.Fraction, "use a tuple of two ints"),
    (ipaddress.IPv4Address, "use str"),
    (re.Pattern[str], "use str"),
    (zoneinfo.ZoneInfo, "use str"),
    (range, "use a tuple"),
    (Other, "Other can't be encoded; use a Struct"),
    (Exception, "Exception can't be encoded"),
    (abc.Iterable[int], "use list"),
    (abc.Callable[[], int], "can't be encoded"),
    (Never, "not supported"),
    (msgspec.Raw, "use bytes"),
    (msgspec.msgpack.Ext, "use bytes"),
    (Pairs, "all str or all int"),
    (Ratios, "all str or all int"),
    (Mixed, "all str or all int"),
    (Plain | Frozen, "must be tagged"),
    (str | bytes, "more than one str-like"),
    (list[int] | set[int], "more than one array-like"),
    (Literal[b"x"], "Literal"),
    (Sum, r"`Sum\.b`.*InitVar"),
    (Annotated[int, Meta(min_length=3)], "min_length"),
    (set[list[int]], "a set can't hold list"),
    (set[dict[str, int]], "a set can't hold dict"),
    (set[set[int]], "a set can't hold set"),
    (set[Plain], "a set can't hold Plain"),
    (set[Line], "a set can't hold Line"),
    (set[tuple[Plain, int]], "a set can't hold Plain"),
    (frozenset[bytearray], "a set can't hold bytearray"),
    (dict[Plain, int], "a dict can't have Plain as keys"),
    (dict[Frozen, int], "a dict can't have Frozen as keys.*use a tuple"),
    (dict[tuple[Fixed, int], int], "a dict can't have Fixed as keys.*use a tuple"),
    (dict[list[int], int], "a dict can't have list as keys"),
    (Holder, r"field `Deeper\.path`: (Path|PosixPath) can't be encoded; use str"),
    (list[TwoTexts], r"field `TwoTexts\.when`: Type unions may not contain more than one str-like"),
]
