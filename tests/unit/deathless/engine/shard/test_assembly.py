"""A shard that is put together in one place: its parts fit, and no two shards share one."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.core.primary_world import Echo

from deathless.base.errors import InvalidService
from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.base.shards import Sharding
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.core.replica.replica import ShardPlace
from deathless.core.tables.outbox import Outbox
from deathless.engine.shard.assembly import open_shard, shard_around
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

SEED = bytes(32)


class Purse(msgspec.Struct):
    coins: int = 0


purses = Service("purses", state=Purse)


@purses.handler
def put(purse: Purse, ctx: Context, n: int) -> int:
    purse.coins += n
    return purse.coins


def said(shard: Shard, session: int = 1) -> list[bytes]:
    """Replies to one call of a new session."""
    shard.sessions.register(SessionId(session), bytes(8) + session.to_bytes(8, "big"), 0)
    message = encode(Kind.CALL, method=b"put", key=b"alice", args=msgspec.msgpack.encode({"n": 2}))
    return [reply for result in shard.execute([(Run(session, 1, 0, 1), [message])]).results for reply in result.replies]


def test_shard_runs_handlers_and_keeps_what_they_did_in_its_own_tables() -> None:
    shard, other = open_shard(purses, Limits(), SEED), open_shard(purses, Limits(), SEED)
    assert said(shard) != []
    assert (shard.place.lsn, shard.executor.count()) == (1, 1)
    assert (other.place.lsn, other.executor.count(), other.sessions.get(SessionId(1))) == (0, 0, None)
    assert said(shard, 2) != said(other)


def test_executor_of_another_class_runs_in_its_place() -> None:
    class Counting(HandlerExecutor):
        pass

    page, outbox = Cells(bytearray(PAGE_BYTES)), Outbox()
    shard = open_shard(purses, Limits(), SEED, page, outbox=outbox, make=Counting)
    assert type(shard.executor) is Counting
    assert shard.outbox is outbox


def test_service_of_one_object_has_one_shard() -> None:
    lone = Service("lone", state=Purse, single=True)
    with pytest.raises(InvalidService, match="one object"):
        open_shard(lone, Limits(), SEED, sharding=Sharding(shards=2))


def test_shard_stands_where_it_is_told_to() -> None:
    executor, place = Echo(), ShardPlace(times=Times.at(7))
    shard = shard_around(executor, Limits(), ALL_SAFEGUARDS, place=place)
    assert shard.executor is executor
    assert shard.place is place
    assert shard_around(executor, Limits()).place.lsn == 0
