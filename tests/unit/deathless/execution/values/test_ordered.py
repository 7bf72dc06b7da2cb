"""Sets and maps give the same bytes in every order, whatever is in them, and read back as what they were."""

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from deathless.execution.values.ordered import encode_any, ordered_encoder


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True):
    x: int


class Held(msgspec.Struct, tag=True, omit_defaults=True):
    names: set[str] = set()
    scores: dict[int, int] = {}
    last: int = 0


@dataclass
class Record:
    names: set[Any] = field(default_factory=set)
    scores: dict[int, set[int]] = field(default_factory=dict)


CASES = [
    [1, "a", None, 2.5],
    [Colour.RED, Colour.BLUE],
    [Point(1), Point(2), Point(3)],
    [frozenset({1}), frozenset({2}), frozenset({3, 4}), frozenset({None, "a"})],
    [(1, "a"), (None, "b"), ("c", 1)],
    [Decimal(1), "1", Decimal("1.5")],
    [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), date(2026, 1, 1)],  # noqa: DTZ001  a naive one is meant
    [uuid.UUID(int=1), uuid.UUID(int=2)],
]


@pytest.mark.parametrize("items", CASES)
def test_sets_are_encoded_in_one_order(items: list[object]) -> None:
    class Backwards(set[object]):
        def __iter__(self) -> Any:
            return reversed(list(super().__iter__()))

    assert encode_any([set(items), {1: 2}]) == encode_any([Backwards(items), {1: 2}])
    back = items[::-1]
    assert encode_any(set(items)) == encode_any(set(back))


@pytest.mark.parametrize("keys", [*CASES[:3], *CASES[4:], [b"a", b"b"], [True, 2]])
def test_maps_are_encoded_in_one_order(keys: list[object]) -> None:
    there, back = dict.fromkeys(keys, 1), dict.fromkeys(reversed(keys), 1)
    assert encode_any({"a": there}) == encode_any({"a": back})


def test_state_of_sets_and_maps_reads_back_as_it_was() -> None:
    encode, decode = ordered_encoder(), msgspec.msgpack.Decoder(Held).decode
    held = Held(names={"b", "a"}, scores={2: 1, 1: 2})
    assert decode(encode(held)) == held
    assert held.names == {"a", "b"}
    assert type(held.names) is set
    assert encode(Held()) == msgspec.msgpack.encode(Held())
    record = Record({None, "x", 3}, {2: {1, 2}, 1: set()})
    assert msgspec.msgpack.decode(encode(record), type=Record) == record


def test_author_code_is_not_called_to_encode() -> None:
    class Watched(msgspec.Struct):
        scores: dict[int, int]
        names: set[str]

        def __post_init__(self) -> None:
            made.append(1)

    made: list[int] = []
    value = Watched({1: 2}, {"a", "b"})
    encode_any(value)
    assert made == [1]


def test_sets_of_sets_have_no_order_of_their_own() -> None:
    encode = ordered_encoder(sorts_itself=False)
    sets = [frozenset({1}), frozenset({2}), frozenset({3})]
    back = sets[::-1]
    assert encode(set(sets)) == encode(set(back))


def test_what_can_not_be_encoded_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_any({"a": object()})
