"""How replies reach those who wait."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from deathless.base.errors import (
    Closed,
    DeathlessError,
    HandlerFailed,
    Internal,
    Overloaded,
    ResultUnreadable,
)
from deathless.codec.wire import accepted_reply, error_reply, ok_reply
from deathless.core.client.events import CompleteCalls
from deathless.shell.client.waiters import (
    Accepted,
    Column,
    Typed,
    Waiter,
    complete,
    fail,
    refuse,
    reply_error,
    results_of,
)

pytestmark = pytest.mark.asyncio
ONE = ok_reply(b"\x01")


def nobody(invocation: int, waiter: Waiter) -> None:
    raise AssertionError(f"{waiter} is to wait for {invocation}")


class Ear:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def answered(self, reply: bytes) -> None:
        self.heard.append(reply)

    def failed(self, error: DeathlessError) -> None:
        self.heard.append(error)

    def refused(self, error: DeathlessError) -> None:
        self.heard.append(error)


async def test_each_kind_of_waiter_gets_its_reply() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    typed: asyncio.Future[object] = loop.create_future()
    column = Column(1, loop.create_future())
    ear = Ear()
    waiters: list[Waiter] = [future, Typed(typed, msgspec.msgpack.Decoder(int).decode, nobody), (column, 0), ear]
    complete(CompleteCalls(waiters=waiters, replies=[ONE] * 4), nobody)
    assert (future.result(), typed.result(), column.replies, ear.heard) == (1, 1, [ONE], [ONE])
    assert column.done.done()


async def test_waiter_that_left_is_passed_over() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    typed = Typed(loop.create_future(), msgspec.msgpack.Decoder(int).decode, nobody)
    column = Column(1, loop.create_future())
    future.cancel()
    typed.future.cancel()
    column.done.cancel()
    complete(CompleteCalls(waiters=[future, typed, (column, 0)], replies=[ONE] * 3), nobody)
    for waiter in (future, typed, (Column(1, column.done), 0)):
        fail(waiter, Closed())
    assert future.cancelled()


async def test_failure_reaches_each_kind_of_waiter() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    column = Column(2, loop.create_future())
    ear = Ear()
    fail(future, Closed("a"))
    fail((column, 1), Closed("b"))
    fail(ear, Closed("c"))
    assert isinstance(future.exception(), Closed)
    assert not column.done.done()
    fail((column, 0), Closed("d"))
    assert column.done.done()
    assert isinstance(results_of(column.replies, [])[0], Closed)
    assert [type(heard) for heard in ear.heard] == [Closed]


async def test_refusal_reaches_only_who_wants_to_know() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    ear = Ear()
    for waiter in (future, (Column(1, loop.create_future()), 0), Typed(future, bytes, nobody), ear):
        refuse(waiter, Overloaded("busy"))
    assert not future.done()
    assert len(ear.heard) == 1


async def test_error_replies_become_errors() -> None:
    reply = error_reply("DL3014", "Poor", "no")
    error = reply_error(reply)
    assert isinstance(error, HandlerFailed)
    assert error.kind == "Poor"
    assert isinstance(results_of([reply], [])[0], HandlerFailed)
    assert isinstance(reply_error(b"\x01\xc1"), Internal)
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    complete(CompleteCalls(waiters=[future], replies=[reply]), nobody)
    assert isinstance(future.exception(), HandlerFailed)


async def test_a_result_that_is_still_to_come_is_asked_for_by_whom_it_concerns() -> None:
    loop = asyncio.get_running_loop()
    asked: list[tuple[int, Waiter]] = []
    future: asyncio.Future[object] = loop.create_future()
    typed = Typed(loop.create_future(), msgspec.msgpack.Decoder(int).decode, lambda i, w: asked.append((i, w)))
    column = Column(2, loop.create_future())
    ear = Ear()
    waiters: list[Waiter] = [future, typed, (column, 0), (column, 1), ear]
    replies = [accepted_reply(n) for n in range(4)]
    complete(CompleteCalls(waiters=waiters, replies=[*replies[:3], ONE, replies[3]]), lambda i, w: asked.append((i, w)))
    assert asked == [(0, future), (1, typed)]
    assert not future.done()
    assert not typed.future.done()
    assert ear.heard == [replies[3]]
    late: list[Accepted] = []
    found = results_of(column.replies, late)
    assert found == [late[0], 1]
    assert late[0].invocation == 2


@pytest.mark.parametrize("kind", [ValueError, RecursionError, MemoryError, UnicodeError, KeyError])
async def test_a_reply_that_one_waiter_can_not_take_takes_no_other_s_answer(kind: type[Exception]) -> None:
    class Broken:
        def __init__(self) -> None:
            self.error: DeathlessError | None = None

        def answered(self, reply: bytes) -> None:
            raise kind("broken")

        def failed(self, error: DeathlessError) -> None:
            self.error = error

        def refused(self, error: DeathlessError) -> None:
            raise AssertionError(error)

    broken = Broken()
    deep: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    good: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    replies = [b"\0\x01", b"\0" + b"\x91" * 100_000 + b"\x01", b"\0\x05"]
    complete(CompleteCalls(waiters=[broken, deep, good], replies=replies), lambda _number, _waiter: None)
    assert await good == 5
    assert isinstance(broken.error, ResultUnreadable)
    assert isinstance(deep.exception(), ResultUnreadable)
