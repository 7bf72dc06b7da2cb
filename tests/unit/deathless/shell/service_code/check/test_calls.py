"""Drawn calls fit their handlers and are the same for the same seed."""

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from deathless.codec.messages import decode
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.shell.service_code.check.calls import draw_calls


class State(msgspec.Struct):
    n: int = 0


class Colour(enum.Enum):
    RED = "red"


class Tree(msgspec.Struct):
    kids: "list[Tree]" = []
    left: "Tree | None" = None


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


class Cat(msgspec.Struct, tag="cat", rename="camel"):
    nick_name: str


class Dog(msgspec.Struct, tag="dog"):
    age: int


@dataclass
class Data:
    x: float


class Typed(TypedDict):
    y: bool


class Pair(NamedTuple):
    a: int
    b: str


class Endless(msgspec.Struct):
    inner: "Endless"


def service_of(stated: object) -> Service:
    service = Service("draw", state=State)

    def handle(state: State, ctx: Context, argument: object) -> None: ...

    handle.__annotations__["argument"] = stated
    service.handler(handle)
    return service


@pytest.mark.parametrize(
    "stated",
    [
        int, float, str, bytes, bool, None, Any, object, dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID,
        decimal.Decimal, Colour, Literal["a", 3], list[int], set[str], frozenset[int], tuple[int, str],
        tuple[int, ...], dict[str, list[int]], Tree, Row, Cat | Dog, Data, Typed, Pair, int | str | None,
        Annotated[int, msgspec.Meta(gt=5, lt=9)], Annotated[int, msgspec.Meta(multiple_of=5)],
        Annotated[int, msgspec.Meta(le=-7)], Annotated[float, msgspec.Meta(ge=0.5, le=0.6)],
        Annotated[str, msgspec.Meta(min_length=50, max_length=60)], Annotated[list[int], msgspec.Meta(min_length=2)],
        Annotated[dt.datetime, msgspec.Meta(tz=True)], Annotated[dt.datetime, msgspec.Meta(tz=False)],
        Annotated[str, msgspec.Meta(title="x", extra={"a": 1})], bytearray,
    ],
)  # fmt: skip
def test_values_of_every_type_fit_it(stated: object) -> None:
    service = service_of(stated)
    calls, left_out = draw_calls(service, 40, seed=3)
    assert left_out == []
    for call in calls:
        msgspec.msgpack.decode(decode(call.message).args, type=service.specs["handle"].args_type)


@pytest.mark.parametrize("stated", [Endless, Annotated[str, msgspec.Meta(pattern="^q{9}$")]])
def test_handler_whose_values_cannot_be_drawn_is_left_out(stated: object) -> None:
    assert draw_calls(service_of(stated), 10, seed=3) == ([], ["handle"])


def test_same_seed_draws_the_same() -> None:
    service = service_of(Tree)
    assert draw_calls(service, 30, seed=1) == draw_calls(service, 30, seed=1)
    assert draw_calls(service, 30, seed=1) != draw_calls(service, 30, seed=2)


def test_all_handlers_and_no_queries_are_called_and_time_goes_on() -> None:
    service = Service("bank", state=State)

    @service.handler(keys=("source", "target"))
    def transfer(states: dict[str, State], ctx: Context, source: str, target: str) -> None: ...

    @service.handler
    def add(state: State, ctx: Context) -> None: ...

    @service.query
    def look(state: State) -> None: ...

    calls, _ = draw_calls(service, 64, seed=1)
    assert {decode(call.message).method for call in calls} == {b"transfer", b"add"}
    assert [call.lsn for call in calls] == list(range(1, 65))
    assert all(one.now_us < other.now_us for one, other in pairwise(calls))


def test_service_without_handlers_has_no_calls() -> None:
    assert draw_calls(Service("empty", state=State), 10, seed=1) == ([], [])
