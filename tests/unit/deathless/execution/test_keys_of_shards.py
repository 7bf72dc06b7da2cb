"""Turns of one shard of several: whom they send to, what they refuse, and that one shard is as it ever was."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED, Keys
from tests.unit.deathless.execution.messaging_bench import SELF, Hub, Target, error, kinds

from deathless.base.errors import CallCycle, InvalidService, KeysOfSeveralShards, WrongShard
from deathless.base.limits import Limits
from deathless.base.shards import Sharding, shard_of
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Request, decode_body
from deathless.codec.wire import ReplyError
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

HERE, THERE = "bob", "alice"  # shards 0 and 1 of 2


class Purse(msgspec.Struct):
    """What a key holds."""

    coins: int = 0


purses = Service("purses", state=Purse)


@purses.handler
def put(purse: Purse, ctx: Context, coins: int) -> int:
    """Add coins."""
    purse.coins += coins
    return purse.coins


@purses.handler
def tell(purse: Purse, ctx: Context, service: str, key: str) -> None:
    """Send coins on."""
    ctx.fork(service, key, "put", {"coins": 1})


@purses.handler
async def ask(purse: Purse, ctx: Context, service: str, key: str) -> int:
    """Wait for another key."""
    return await ctx.call(service, key, "put", {"coins": 1}, result=int)


@purses.handler(keys=("source", "target"))
def move(found: dict[str, Purse], ctx: Context, source: str, target: str) -> int:
    """Move a coin."""
    found[source].coins -= 1
    found[target].coins += 1
    return found[target].coins


@purses.query
def coins(purse: Purse) -> int:
    """How many."""
    return purse.coins


@purses.query(keys=("one", "other"))
def both(found: dict[str, Purse], one: str, other: str) -> int:
    """How many in both."""
    return found[one].coins + found[other].coins


class Part(Hub):
    """One shard of the purses."""

    def __init__(self, shard: int, shards: int = 2, **peers: int) -> None:
        super().__init__(purses)
        cells, sharding = Cells(bytearray(PAGE_BYTES)), Sharding(shard=shard, shards=shards, peers=peers)
        self.executor = HandlerExecutor(purses, Limits(), SEED, Keys(), cells, sharding=sharding)

    @property
    def me(self) -> Target:
        """What others know it as."""
        return Target("purses", self.executor._settings.sharding.shard)


def refused(reply: bytes) -> ReplyError:
    """The error of a reply."""
    return error(reply)


def carry(*parts: Part) -> None:
    """Carry messages between shards until none is left."""
    by_target = {part.me: part for part in parts}
    while any(part.sent or part.own for part in parts):
        for part in parts:
            part.deliver()
            sent, part.sent = part.sent, []
            for target, message in sent:
                by_target[target].receive(message, peer=part.me)


def test_keys_of_the_own_service_are_sent_to_where_they_live() -> None:
    first = Part(0)
    first.call("tell", HERE, service="purses", key=HERE)
    first.call("tell", HERE, service="purses", key=THERE)
    assert kinds(first.own) == ["FORK"]
    assert [(target, decode(message).key) for target, message in first.sent] == [(Target("purses", 1), b"alice")]


def test_keys_of_another_service_are_sent_to_the_shard_that_its_number_says() -> None:
    first = Part(0, stock=3)
    for key in ("order-1", "bob", "{bob}/x"):
        first.call("tell", HERE, service="stock", key=key)
        first.call("tell", HERE, service="mail", key=key)
    assert [target for target, _ in first.sent if target.service == "stock"] == [
        Target("stock", shard_of(key.encode(), 3)) for key in ("order-1", "bob", "{bob}/x")
    ]
    assert {target.shard for target, _ in first.sent if target.service == "mail"} == {0}


def test_a_call_to_a_key_of_another_shard_comes_back_to_who_waits() -> None:
    first, second = Part(0), Part(1)
    invocation = first.begin("ask", HERE, service="purses", key=THERE)
    (waits_for,) = first.waiting()[invocation]
    assert waits_for.startswith("purses/1/alice put, since")
    asked = decode_body(Request, decode(first.sent[0][1]).idempotency_key)
    assert asked.chain == ("purses/0/bob",)
    carry(first, second)
    assert first.result(invocation) == 1
    assert second.ask("coins", THERE) == b"\x00\x01"


def test_a_ring_of_calls_through_two_shards_is_answered_at_once() -> None:
    first, second = Part(0), Part(1)
    invocation = first.begin("ask", HERE, service="purses", key=THERE)
    ((_, message),) = first.sent
    first.sent = []
    back = second.begin("ask", THERE, service="purses", key=HERE)
    ((_, ring),) = second.sent
    chain = ("purses/0/bob", "purses/1/alice")
    envelope = msgspec.msgpack.encode(Request(back, 1, 0, chain))
    taken = decode(ring)
    second.sent = [(Target("purses", 0), _request(taken.method, taken.key, envelope, taken.args))]
    carry(first, second)
    assert second.failure(back) == f"{CallCycle.code} CallCycle"
    second.receive(message, peer=first.me)
    carry(first, second)
    assert first.result(invocation) == 1


def test_keys_of_two_shards_in_one_turn_are_refused_before_it_runs() -> None:
    first = Part(0)
    told = first.fail("move", HERE, source=HERE, target=THERE)
    assert (told.code, told.type) == (KeysOfSeveralShards.code, "KeysOfSeveralShards")
    assert "'bob' of shard 0, 'alice' of shard 1" in told.text
    assert first.executor.state() == {}
    assert first.call("move", HERE, source="{bob}1", target="{bob}2") == 1
    assert first.fail("move", HERE, source="{alice}1", target="{alice}2").code == WrongShard.code
    assert refused(first.ask("both", HERE, one=HERE, other=THERE)).code == KeysOfSeveralShards.code
    assert first.ask("both", HERE, one="{bob}1", other="{bob}2") == b"\x00\x00"


def test_a_key_of_another_shard_never_begins_a_state() -> None:
    second = Part(1)
    assert second.fail("put", HERE, coins=1).code == WrongShard.code
    assert second.fail("put", HERE, coins=1).text == "key 'bob' lives on shard 0 of 2, this is shard 1"
    assert refused(second.ask("coins", HERE)).code == WrongShard.code
    invocation = second.send("ask", HERE, service="purses", key=THERE)
    assert refused(invocation).code == WrongShard.code
    assert second.executor.state() == {}
    assert second.call("put", THERE, coins=1) == 1


def test_a_restored_shard_asks_the_same_target_again() -> None:
    first, second = Part(0), Part(1)
    invocation = first.begin("ask", HERE, service="purses", key=THERE)
    sent, suspended = first.sent, first.executor.suspended()
    again = Part(0)
    again.executor.restore(dict(first.executor.state()), suspended)
    again.sent, again.lsn = sent, first.lsn
    carry(again, second)
    assert again.result(invocation) == 1


def test_a_service_of_one_object_has_one_shard() -> None:
    lone = Service("lone", state=Purse, single=True)
    cells = Cells(bytearray(PAGE_BYTES))
    with pytest.raises(InvalidService, match="one shard, not 2"):
        HandlerExecutor(lone, Limits(), SEED, Keys(), cells, sharding=Sharding(shards=2))
    HandlerExecutor(lone, Limits(), SEED, Keys(), cells, sharding=Sharding())


def test_with_one_shard_all_keys_are_here() -> None:
    alone = Part(0, shards=1)
    assert alone.call("move", HERE, source=HERE, target=THERE) == 1
    alone.call("tell", HERE, service="purses", key=THERE)
    assert (kinds(alone.own), alone.sent) == (["FORK"], [])
    assert Target("", 0) == SELF


def _request(method: bytes, key: bytes, envelope: bytes, args: bytes) -> bytes:
    return encode(Kind.REQUEST, method=method, key=key, idempotency_key=envelope, args=args)
