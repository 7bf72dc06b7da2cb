"""What a test calls a service with."""

from __future__ import annotations

import pytest
from tests.unit.deathless.testing.services import count, put, rest, shelf

from deathless.base.errors import (
    HandlerFailed,
    InvalidArgument,
    InvalidUse,
    InvocationUnknown,
    OutcomeUnknown,
    UnknownHandler,
)
from deathless.testing import Environment


def test_calls_have_the_names_that_the_clients_have() -> None:
    with Environment(shelf) as env:
        client = env.service(shelf)
        assert client.call("put", "a", count=5) == 5
        assert client.request("put", "a", {"count": 1}, idempotency_key="x") == 6
        assert client.request("put", "a", {"count": 1}, idempotency_key="x") == 6, "the recorded reply"
        assert client.query("count", "a", result=int) == 6
        assert client.query("count", "a", stale=True) == 6
        assert client.submit("put", "a", {"count": 1}).result() == 7


def test_functions_of_the_module_are_typed_calls() -> None:
    with Environment(shelf) as env:
        a = env.service(shelf)["a"]
        number: int = a.call(put, 5)
        assert number == a.query(count) == 5
        pending = a.start(rest, hours=1)
        assert repr(pending) == "Pending(rest('a'), waiting)"
        text: str = pending.result()
        assert text.startswith("2030-01-01T01")


def test_a_key_is_recorded_through_a_kill() -> None:
    with Environment(shelf) as env:
        client = env.service(shelf)
        client.call("put", "a", count=5, idempotency_key="once")
        env.kill(shelf)
        assert client.call("put", "a", count=5, idempotency_key="once") == 5
        assert client.query("count", "a") == 5


def test_a_handler_that_waits_is_cancelled() -> None:
    with Environment(shelf) as env:
        pending = env.service(shelf)["a"].start(rest, 5)
        pending.cancel()
        assert pending.result() == "cancelled"
        with pytest.raises(InvalidUse, match="does not wait"):
            pending.cancel()


def test_a_result_is_waited_for_again() -> None:
    with Environment(shelf) as env:
        client = env.service(shelf)
        pending = client["a"].start(rest, 5)
        with pytest.raises(OutcomeUnknown, match=r"waits for .*timer"):
            pending.result(timeout=60.0)
        assert pending.invocation is not None
        assert client.result(pending.invocation, result=str) == "2030-01-01T05:00:00+00:00"
        with pytest.raises(InvocationUnknown):
            client.result(123456789)


def test_a_bug_of_a_handler_comes_with_the_exception_that_it_is() -> None:
    with Environment(shelf) as env, pytest.raises(HandlerFailed, match="by nothing") as caught:
        env.service(shelf)["a"].fail()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.kind == "ZeroDivisionError"


def test_what_is_not_there_is_named() -> None:
    with Environment(shelf) as env:
        client = env.service(shelf)
        with pytest.raises(UnknownHandler, match="nope"):
            client.call("nope", "a")
        with pytest.raises(AttributeError, match="nope"):
            client["a"].nope()
        with pytest.raises(InvalidUse, match="no handler or query"):
            client["a"].call(test_what_is_not_there_is_named)  # type: ignore[call-overload]
        with pytest.raises(InvalidUse, match="takes 1 arguments"):
            client["a"].put(1, 2)
        with pytest.raises(InvalidUse, match="Expected `int`"):
            client["a"].put("many")
        with pytest.raises(InvalidArgument, match="put"):
            client.call("put", "a", count=object())
