"""What an author is told of a suspended handler, and what a declaration must be like."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.author.carry import Continue, Result, Suspended
from deathless.execution.author.service import Service

pack = msgspec.msgpack.encode


class Account(msgspec.Struct):
    """State."""

    cents: int = 0


class Other(msgspec.Struct):
    """Another one."""


class Order(msgspec.Struct):
    """A result."""

    number: int


OLD = Suspended(
    "saga",
    "alice",
    pack({"item": "apple", "tags": ["a"]}),
    [
        Result(("reserve", "stock.reserve"), pack({"number": 4}), ""),
        Result(("reserve", "stock.reserve"), pack({"number": 5}), ""),
        Result(("charge",), b"", "DL3014 ValueError: no money"),
        Result(("promise",), pack("word"), ""),
    ],
    ["activity ship"],
)


def test_it_is_told_as_plain_values_that_are_the_askers_own() -> None:
    assert (OLD.handler, OLD.key, OLD.waits_for) == ("saga", "alice", ("activity ship",))
    tags = OLD.arguments["tags"]
    assert isinstance(tags, list)
    tags.append("b")
    assert OLD.arguments == {"item": "apple", "tags": ["a"]}
    assert repr(OLD) == "<suspended saga of key 'alice'>"


def test_results_are_found_by_name_the_last_one_and_in_a_type_that_is_asked_for() -> None:
    assert OLD.given("reserve") == {"number": 5}
    assert OLD.given("stock.reserve", Order) == Order(5)
    assert OLD.given("promise", str) == "word"
    with pytest.raises(msgspec.ValidationError):
        OLD.given("promise", int)


def test_what_failed_or_was_never_given_is_no_result() -> None:
    for name in ("charge", "ship"):
        assert not OLD.has(name)
        with pytest.raises(KeyError, match=name):
            OLD.given(name)
    assert OLD.has("reserve")
    assert (OLD.failure("charge"), OLD.failure("reserve"), OLD.failure("ship")) == (
        "DL3014 ValueError: no money",
        "",
        "",
    )


def test_continue_names_a_handler_and_takes_any_argument() -> None:
    found = Continue("ship", handler="x", number=5)
    assert (found.handler, found.arguments) == ("ship", {"handler": "x", "number": 5})
    assert repr(found) == "Continue('ship', handler='x', number=5)"


def good(old: Suspended, account: Account) -> Continue:
    return Continue("ship")


def wrong_old(old: str, account: Account) -> Continue:
    return Continue("ship")


def wrong_state(old: Suspended, account: Other) -> Continue:
    return Continue("ship")


def wrong_result(old: Suspended, account: Account) -> str:
    return "ship"


def unstated(old: Suspended, account: Account):  # type: ignore[no-untyped-def]
    return Continue("ship")


def one_argument(old: Suspended) -> Continue:
    return Continue("ship")


async def waits(old: Suspended, account: Account) -> Continue:
    return Continue("ship")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (wrong_old, "its first parameter must be `old: Suspended`"),
        (wrong_state, "its second parameter is the state, `account: Account`"),
        (wrong_result, "it gives `Continue`, and its annotation says so"),
        (unstated, "what it returns has no type"),
        (one_argument, "takes 2 arguments, by position"),
        (waits, "is a plain `def` that returns"),
    ],
)
def test_function_of_another_shape_is_refused_when_the_module_is_imported(
    function: Callable[[Suspended, Account], Continue], said: str
) -> None:
    service = Service("bank", state=Account, version=2)
    with pytest.raises(InvalidService, match=function.__name__) as caught:
        service.carry("saga", from_=1)(function)
    assert said in str(caught.value)
    assert service.declared.carried == {}


@pytest.mark.parametrize("from_", [0, 2, 3, True, "1"])
def test_it_is_for_handlers_of_an_older_version(from_: int) -> None:
    with pytest.raises(InvalidService, match="carry is for handlers of an older version, 1 to 1"):
        Service("bank", state=Account, version=2).carry("saga", from_=from_)(good)


def test_a_handler_of_a_version_is_carried_in_one_way() -> None:
    service = Service("bank", state=Account, version=3)
    assert service.carry("saga", from_=1)(good) is good
    service.carry("saga", from_=2)(good)
    with pytest.raises(InvalidService, match="'saga' of version 1 is carried already"):
        service.carry("saga", from_=1)(good)
    assert service.declared.carries(1) == service.declared.carries(2) == {"saga"}
