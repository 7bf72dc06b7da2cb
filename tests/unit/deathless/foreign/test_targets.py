"""A program that calls more services than its own may send to: what waits, what is told, and that nothing is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.deathless.foreign.test_service import bank, begin, feed, given, items, lane, run_of, sent_to, taker

from deathless.base.errors import TargetNotReached
from deathless.foreign.rows import Emitted, Given, What, encode_items
from deathless.foreign.service import application, look, relay, retake, retry
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.testing import Environment
from deathless.testing.environment import DISK

JUST_ENOUGH = dataclasses.replace(DISK, targets_max=3)  # its topic, and two services
ORDERS: dict[str, Callable[[Any, int], object]] = {
    "look": lambda caller, number: caller.start(look, [number], "taker", number),
    "retake": lambda caller, number: caller.start(retake, number, "taker", number),
    "retry": lambda caller, number: caller.start(retry, number),
    "relay": lambda caller, number: caller.start(relay, number),
}
ONE_MORE = dataclasses.replace(DISK, targets_max=4)


@pytest.fixture(name="env")
def service_that_sends_to_two_others_already() -> Iterator[Environment]:
    """The bank, and one that is no service of ours; the taker would be the third."""
    with Environment(application, bank, taker, limits=JUST_ENOUGH, check=False) as env:
        begin(env)
        env.peer("elsewhere")
        feed(env, lane("bank/a", 1, make_call("bank/a", 1, Kind.FORK, b"")))
        feed(env, lane("elsewhere", 1, make_call("elsewhere", 1, Kind.FORK, b"")))
        env.advance(seconds=1)
        yield env


def raise_limit(env: Environment) -> None:
    """Start the service's replicas again from a checkpoint, with one more service that they may send to."""
    env.checkpoint(application)
    env.stop(application)
    env._of(application).limits = ONE_MORE
    env.start(application)
    env.advance(seconds=11)


def told(env: Environment, what: What) -> list[str]:
    """Whom rows of a kind are about."""
    return [row.target for row in given(env) if row.what == what]


def test_awaited_call_to_one_service_too_many_is_an_error_to_the_program(env: Environment) -> None:
    """And what it calls otherwise goes on."""
    feed(env, lane("taker", 1, make_call("taker", 7, Kind.ASYNC, b"!", name="", sequence=70)))
    feed(env, lane("bank/a", 2, make_call("bank/a", 7, Kind.ASYNC, b"!", name="", sequence=71)))
    env.advance(seconds=1)
    back = {each.sequence: each for each in items(env)}
    assert back[70].kind is Kind.EXCEPTION
    assert back[70].arguments.startswith(TargetNotReached.code.encode())
    assert b"besides 3 other services (limits.targets_max)" in back[70].arguments
    assert back[71].arguments == b"a!"
    shown = env.service(application)[""].show()
    assert (shown.refused, shown.kept, env.service(application)[""].state.outgoing) == (1, 0, {})


def test_what_wants_no_answer_is_kept_in_order_and_leaves_once_the_limit_is_raised(env: Environment) -> None:
    """Single messages, runs, and calls between them, which are answered at once."""
    feed(env, lane("taker", 1, make_call("taker", 7, Kind.FORK, b"first")))
    feed(env, run_of("taker", 6, *sent_to("taker")))
    feed(env, lane("taker", 7, make_call("taker", 7, Kind.ASYNC, b"!", name="", sequence=70)))
    env.advance(seconds=30)
    feed(env, run_of("taker", 12, *sent_to("taker")), lane("taker", 13, make_call("taker", 7, Kind.FORK, b"last")))
    env.advance(seconds=30)
    shown = env.service(application)[""].show()
    assert (shown.refused, shown.kept, len(shown.kept_for)) == (1, 4, 1)
    assert shown.kept_for[0].startswith(f"taker: {TargetNotReached.code}")
    assert [each.kind for each in items(env)] == [Kind.EXCEPTION]
    assert set(told(env, What.HELD)) == {"taker"}
    raise_limit(env)
    each = [b"1", b"2", b"3", b"4", b"5"]
    assert env.service(taker)[""].state.got == [b"first", *each, *each, b"last"]
    assert told(env, What.ROOM) == ["taker"]
    state = env.service(application)[""].state
    assert (state.outgoing, state.unreached, env.service(application)[""].show().kept) == ({}, [], 0)


def test_lane_whose_service_keeps_too_much_is_told_to_wait_and_no_other_one(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until there is room again; a lane of several services waits as well if one of them is meant."""
    monkeypatch.setattr("deathless.foreign.service.KEPT_MAX", 4)
    one = make_call("taker", 7, Kind.FORK, b"x")
    for at in range(1, 4):
        feed(env, lane("taker", at, one))
        env.advance(seconds=1)
    assert told(env, What.FULL) == []
    feed(env, lane("taker", 4, one))
    env.advance(seconds=1)
    row = Emitted(What.ITEMS, encode_items([one], with_destination=True), OTHERS, 1, b"12345678", b"87654321")
    feed(env, run_of("taker", 9, *sent_to("taker")), row, lane("bank/a", 2, make_call("bank/a", 1, Kind.FORK, b"")))
    env.advance(seconds=1)
    assert told(env, What.FULL) == ["taker", "taker", OTHERS]
    assert env.service(bank)["a"].state.paid == 2
    raise_limit(env)
    assert sorted(told(env, What.ROOM)) == sorted(["taker", "taker", OTHERS])
    assert len(env.service(taker)[""].state.got) == 10


@pytest.mark.parametrize("method", ORDERS)
def test_whoever_orders_what_the_service_orders_itself_changes_nothing(env: Environment, method: str) -> None:
    """What is kept stays, in its order, however often it is tried."""
    feed(env, *(lane("taker", at, make_call("taker", 7, Kind.FORK, b"%d" % at)) for at in range(1, 4)))
    env.advance(seconds=1)
    caller = env.service(application)[""]
    for number in range(-1, 8):
        ORDERS[method](caller, number)
    env.advance(seconds=30)
    assert caller.show().kept == 3
    raise_limit(env)
    assert env.service(taker)[""].state.got == [b"1", b"2", b"3"]


def test_call_to_itself_and_to_callers_is_never_kept(env: Environment) -> None:
    feed(
        env, lane("taker", 1, make_call("taker", 7, Kind.FORK, b"")), lane(SELF, 1, make_call(SELF, 1, Kind.FORK, b""))
    )
    env.advance(seconds=1)
    assert [each.destination for each in items(env)] == [SELF]
    assert Given(What.HELD, encode_items([]), "taker") in given(env)
