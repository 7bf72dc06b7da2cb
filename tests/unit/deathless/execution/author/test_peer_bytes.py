"""Calls by numbers: where they go, and what is refused where it is written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deathless import CallFailed, Context, MethodAddress, Service, Struct, field, peer_bytes
from deathless.base.errors import DeathlessError, ForeignMethodRefused
from deathless.execution.author.instance_names import service_of
from deathless.testing import Environment


class Held(Struct):
    """State of one key."""

    told: list[bytes] = field(default_factory=list)


callee = Service("callee", state=Held)
caller = Service("caller", state=Held)


@callee.foreign(method=7)
def take(held: Held, ctx: Context, args: bytes) -> bytes | None:
    """Keep it."""
    held.told.append(args)
    return b"took " + args if args else None


@caller.handler
async def run(held: Held, ctx: Context, number: int, args: bytes, key: str = "alice") -> bytes | None:
    """Call it, and send to it."""
    there = peer_bytes("callee").at(key)
    ctx.fork(there[7], b"sent")
    return await ctx.call(there[number], args, deadline=timedelta(days=1))


@caller.handler
def misuse(held: Held, ctx: Context, how: str) -> None:
    """Call it as types forbid."""
    method = peer_bytes("callee")[7]
    if how == "key":
        ctx.fork(method, "alice")  # type: ignore[call-overload]
    elif how == "arguments":
        ctx.fork(method, b"", "take", {})  # type: ignore[call-overload]
    else:
        ctx.fork("callee")  # type: ignore[call-overload]


def test_bytes_reach_a_method_of_a_key_and_its_bytes_come_back() -> None:
    with Environment(caller, callee) as env:
        one = env.service("caller")["one"]
        assert one.run(7, b"5") == b"took 5"
        assert one.run(7, b"") is None
        assert env.service("callee")["alice"].state.told == [b"sent", b"5", b"sent", b""]


def test_a_method_that_is_not_there_fails_the_call_by_name() -> None:
    why = "DL3120 UnknownMethod: service callee has no method 8; it has 7"
    with Environment(caller, callee) as env, pytest.raises(CallFailed, match=why):
        env.service("caller")["one"].run(8, b"5")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("key", "method 7 of callee takes bytes and nothing else"),
        ("arguments", "method 7 of callee takes bytes and nothing else"),
        ("handler", "of 'callee' a key and a handler are called"),
    ],
)
def test_what_types_forbid_is_refused_when_it_runs_as_well(how: str, why: str) -> None:
    with Environment(caller, callee) as env, pytest.raises(DeathlessError, match=why):
        env.service("caller")["one"].misuse(how)


def test_names_of_instances_stand_for_the_services_of_their_programs() -> None:
    assert peer_bytes("counter")[7] == MethodAddress("counter", "", 7)
    assert peer_bytes("PTIServer").at("k")[-1] == MethodAddress(service_of("PTIServer"), "k", -1)
    assert repr(peer_bytes("bank").at("alice")) == "peer_bytes('bank').at('alice')"


@pytest.mark.parametrize("name", ["bank/alice", "", "a b", "-bank", "x" * 80])
def test_what_names_no_service_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(ForeignMethodRefused, match="that is no name of a service"):
        peer_bytes(name)


def test_a_number_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(ForeignMethodRefused, match=r"peer_bytes\('counter'\): 2147483648 is no method number"):
        peer_bytes("counter")[1 << 31]
