"""Every type that may be declared works wherever its values go; every other one is refused at its declaration.

One table of types goes through: the declaration as a state's field, a map's items, an argument, a result and an
activity's; a call over the binary port; HTTP, both ways; a checkpoint of the state; a replay; the OpenAPI document;
what operators are shown.
"""

from __future__ import annotations

import json
import math
from collections import abc
from collections.abc import Callable
from decimal import Decimal
from typing import (
    Any,
    cast,
)

import msgspec
import pytest
from msgspec import field
from tests.unit.deathless.shell.declared_types_table import NOT_OVER_HTTP, REFUSED, WORKS, Cents, Fixed, Frozen, Plain

from deathless.base.errors import InvalidArgument, InvalidService, ResultUnreadable
from deathless.base.limits import Limits
from deathless.cli.output import json_of
from deathless.codec.messages import Kind, encode
from deathless.core.tables.keys import KeyTable
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.maps.map import Map
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.execution.values.function import Function
from deathless.execution.values.ordered import encode_any
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.openapi import encode_document
from deathless.shell.ingress.routes import Route


def ids(case: object) -> str:
    """Name a part of a case by its class alone: how a set is written differs between processes."""
    return case.__name__ if isinstance(case, type) else type(case).__name__


def state_of(stated: object) -> Service:
    made = msgspec.defstruct("State", [("seen", cast("type", stated) | None if stated is not None else None, None)])
    return service_of(made)


def service_of(state: type) -> Service:
    return Service("types", state=state)


def with_map(stated: object) -> type:
    """A state with a map of such items."""
    kind: type = cast("Any", Map)[str, stated]
    return msgspec.defstruct("State", [("items", kind, field(default_factory=Map))])


def declared(function: Callable[..., object], **stated: object) -> Function:
    function.__annotations__ = {"ctx": Context, **stated}
    return cast("Function", function)


def through(stated: object, got: list[object]) -> Service:
    """A service whose handler gives what it is given."""

    def echo(state: Plain, ctx: Context, x: object) -> object:
        got.append(x)
        return x

    service = service_of(Plain)
    service.handler(declared(echo, x=stated, **{"return": stated}))
    return service


class Keeper:
    """A service whose state keeps one value, and the messages that it took."""

    def __init__(self, stated: object, value: object) -> None:
        self.seen: object = None

        def keep(state: Any, ctx: Context) -> None:
            state.seen = value

        def look(state: Any, ctx: Context) -> None:
            self.seen = state.seen

        self.service = state_of(stated)
        self.service.handler(declared(keep, **{"return": None}))
        self.service.handler(declared(look, **{"return": None}))


def executor_of(service: Service) -> HandlerExecutor:
    return HandlerExecutor(service, Limits(), bytes(32), KeyTable(Limits()), Cells(bytearray(PAGE_BYTES)))


def run(executor: HandlerExecutor, method: str, number: int, arguments: bytes = b"\x80") -> tuple[bytes, int]:
    message = encode(Kind.CALL, method=method.encode(), key=b"k", args=arguments)
    ((reply,), (digest,)) = executor.execute(1, number, number, 1, [message])
    assert reply[0] == 0, reply
    return reply[1:], digest


def check_equal(one: object, other: object) -> None:
    assert one == other
    assert type(one) is type(other)
    assert repr(one) == repr(other) or not isinstance(one, float | Decimal)


@pytest.mark.parametrize(("stated", "value"), WORKS, ids=ids)
def test_arguments_and_results_come_back_equal_over_both_doors(stated: object, value: object) -> None:
    got: list[object] = []
    service = through(stated, got)
    result, digest = run(executor_of(service), "echo", 1, encode_any({"x": value}))
    check_equal(got.pop(), value)
    check_equal(msgspec.msgpack.decode(result, type=cast("type", stated)), value)
    assert run(executor_of(service), "echo", 1, encode_any({"x": value})) == (result, digest), "a replay"

    route = Route(service.specs["echo"])
    text = route.result_to_json(result)
    check_equal(msgspec.json.decode(text, type=cast("type", stated)), value)
    arguments = route.from_json(b'{"x":' + text + b"}", "k")
    check_equal(getattr(arguments, "x"), value)  # noqa: B009  the Struct is made from the signature
    assert run(executor_of(service), "echo", 1, encode_any(arguments)) == (result, digest)
    assert json.loads(encode_document(service))["paths"]["/types/{key}/echo"]


@pytest.mark.parametrize(
    ("stated", "value"), [*WORKS, *((stated, value) for stated, value, _ in NOT_OVER_HTTP)], ids=ids
)
def test_states_come_back_equal_from_turns_checkpoints_and_replays(stated: object, value: object) -> None:
    keeper = Keeper(stated, value)
    executor, again = executor_of(keeper.service), executor_of(keeper.service)
    assert run(executor, "keep", 1) == run(again, "keep", 1)
    assert executor.state() == again.state()
    run(executor, "look", 2)
    check_equal(keeper.seen, value)
    again.restore(dict(executor.state()))
    run(again, "look", 2)
    check_equal(keeper.seen, value)
    assert executor.state() == again.state()
    json.loads(json_of(msgspec.msgpack.decode(executor.state()[b"k"])))


@pytest.mark.parametrize(("stated", "value"), WORKS, ids=ids)
def test_what_works_may_be_an_items_and_an_activitys_type(stated: object, value: object) -> None:
    def act(x: object) -> object:
        return x

    act.__annotations__ = {"x": stated, "return": stated}
    made = with_map(stated)
    service_of(made).activity(act)


def test_nothing_of_the_table_depends_on_the_order_of_sets() -> None:
    one, other = {"b", "a"}, {"a", "b"}
    values = [({Fixed(1): one, Fixed(2): set[str]()}, one), ({Fixed(2): set[str](), Fixed(1): other}, other)]
    assert len({encode_any({"x": value}) for value in values}) == 1
    keyed = [{Frozen(1): one, (1, 2): 1}, {(1, 2): 1, Frozen(1): other}]
    assert len({encode_any({"x": value}) for value in keyed}) == 1


@pytest.mark.parametrize(("stated", "value", "word"), NOT_OVER_HTTP, ids=ids)
def test_keys_that_json_can_not_carry_are_refused_where_they_would_cross_http(
    stated: object, value: object, word: str
) -> None:
    def give(state: Plain, ctx: Context) -> None: ...

    def take(state: Plain, ctx: Context, x: object) -> None: ...

    service = service_of(Plain)
    for function, kinds, where in (
        (give, {"return": stated}, "result"),
        (take, {"x": stated, "return": None}, "parameter `x`"),
    ):
        with pytest.raises(InvalidService, match=rf"{function.__name__} .*{where}: .*keys of type {word}.*use str"):
            service.handler(declared(function, **kinds))


@pytest.mark.parametrize(("stated", "words"), REFUSED, ids=ids)
def test_what_does_not_come_back_is_refused_everywhere_with_its_place(stated: object, words: str) -> None:
    def act(x: object) -> None: ...

    act.__annotations__ = {"x": stated, "return": None}
    with pytest.raises(InvalidService, match=words) as refusal:
        state_of(stated)
    assert "service types: state State: field `" in refusal.value.message
    with pytest.raises(InvalidService, match=words):
        service_of(with_map(stated))
    with pytest.raises(InvalidService, match=words):
        through(stated, [])
    with pytest.raises(InvalidService, match=words):
        service_of(Plain).activity(act)


@pytest.mark.parametrize(("stated", "instead"), [(abc.Sequence[int], "tuple"), (abc.Collection[int], "set")], ids=ids)
def test_a_state_says_which_sequence_it_holds(stated: object, instead: str) -> None:
    with pytest.raises(InvalidService, match=rf"field `State\.seen`: .* comes back as a list.*{instead}"):
        state_of(stated)
    through(stated, [])  # an argument is what came, and that is a list


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**40, {2**64: 1}, "\ud800", Cents(3)], ids=ids)
def test_values_that_no_type_rules_out_are_refused_by_the_call_that_has_them(value: object) -> None:
    client = Client("types", ["127.0.0.1:1"])
    with pytest.raises(InvalidArgument, match="echo"):
        client.encode("echo", "k", {"x": value})
    keeper = Keeper(Any, value)
    message = encode(Kind.CALL, method=b"keep", key=b"k", args=b"\x80")
    ((reply,), _) = executor_of(keeper.service).execute(1, 1, 1, 1, [message])
    assert reply[0] == 1, "the turn fails, and the state is what it was"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_are_kept_and_refused_over_http(value: float) -> None:
    keeper = Keeper(float, value)
    executor = executor_of(keeper.service)
    run(executor, "keep", 1)
    run(executor, "look", 2)
    assert repr(keeper.seen) == repr(value)
    assert json.loads(json_of(msgspec.msgpack.decode(executor.state()[b"k"]))) == {"seen": str(value)}
    with pytest.raises(ResultUnreadable):
        Route(through(float, []).specs["echo"]).result_to_json(msgspec.msgpack.encode(value))
