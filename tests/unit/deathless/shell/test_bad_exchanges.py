"""One bad exchange ends one exchange: every error, at every stage, at both doors, with others under way meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from http_wire import Wire, bench, get, post
from replica_fake import FakeShard, ReplicaServer

from deathless.base.errors import InvalidArgument, ResultUnreadable
from deathless.base.limits import NESTING_MAX, Limits
from deathless.codec.messages import decode
from deathless.codec.wire import ok_reply
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.shell.client.shard_client import Client
from deathless.shell.client.waiters import Receiver
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request, RequestTasks

pytestmark = pytest.mark.asyncio


class MuteError(Exception):
    """One whose text can't be given."""

    def __str__(self) -> str:
        raise KeyError("no text")


KINDS: dict[str, Exception] = {
    "value": ValueError("x"),
    "type": TypeError("x"),
    "key": KeyError("x"),
    "recursion": RecursionError("x"),
    "memory": MemoryError("x"),
    "overflow": OverflowError("x"),
    "unicode": UnicodeDecodeError("utf-8", b"x", 0, 1, "x"),
    "division": ZeroDivisionError("x"),
    "assertion": AssertionError("x"),
    "os": OSError("x"),
    "stop": StopIteration("x"),
    "group": ExceptionGroup("x", [KeyError("x")]),
    "mute": MuteError(),
}


READ_AS_PLAIN = {"value", "type", "unicode"}
"""What msgspec takes for a value that does not fit its type: it is told as plain values."""


class Odd(msgspec.Struct):
    """Raises what its field names while it is decoded."""

    kind: str = ""

    def __post_init__(self) -> None:
        if self.kind:
            raise KINDS[self.kind]


class State(msgspec.Struct):
    n: int = 0


odd = Service("odd", state=State)


@odd.handler
def add(state: State, ctx: Context, amount: int = 1) -> int:
    return amount


@odd.handler
def grüße(state: State, ctx: Context, amount: int = 1) -> int:  # noqa: PLC2401  as authors may call theirs
    return amount


@odd.handler
def take(state: State, ctx: Context, odd: Odd) -> str:
    return odd.kind


@odd.handler
def anything(state: State, ctx: Context, value: Any = None) -> Any:
    return value


@odd.handler
def give(state: State, ctx: Context, kind: str) -> Odd:
    return Odd(kind)


@odd.handler(keys=("a", "b"))
def two(states: dict[str, State], ctx: Context, a: str, b: str, odd: Odd) -> str:
    return odd.kind


@odd.query
def ask(state: State, odd: Odd) -> str:
    return odd.kind


def run(message: bytes) -> bytes:
    """What a replica would have recorded: plain values, whatever the types of the code that reads them do."""
    record = decode(message)
    named = msgspec.msgpack.decode(record.args)
    if record.method == b"give":
        return ok_reply(msgspec.msgpack.encode({"kind": named["kind"]}))
    if record.method == b"anything":
        deep = b"\x91" * (NESTING_MAX + 50) + b"\x01"  # as a version without the limit could record it
        return ok_reply(deep if named["value"] == "deep" else msgspec.msgpack.encode(named["value"]))
    return ok_reply(msgspec.msgpack.encode(named.get("amount")))


class Gate(Client):
    """A client that refuses to take some messages in, with any exception."""

    gate: Exception | None = None

    def submit_message(self, message: bytes, receiver: Receiver) -> None:
        if self.gate is not None and decode(message).method == b"anything":
            raise self.gate
        super().submit_message(message, receiver)


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Gate, str]]:
    """A replica, a client, and the address of an ingress."""
    server = ReplicaServer(FakeShard(service="odd", run=run))
    await server.start()
    server.replica.become("primary", 1, server.address)
    async with Gate("odd", [server.address]) as client:
        await client.ready(30)
        ingress = Ingress(odd, client, limits=Limits(), labels={})
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0)
        try:
            yield client, await http.start("127.0.0.1:0")
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            server.kill()


async def with_bystanders(address: str, request: bytes) -> tuple[int, dict[str, Any]]:
    """Send a request among others, behind one and before one on its own connection too; gives its answer."""
    others = [await Wire.connect(address) for _ in range(3)]
    same = await Wire.connect(address)
    for amount, wire in enumerate(others):
        wire.send(post("/odd/k/add", b'{"amount": %d}' % amount))
    same.send(post("/odd/k/add", b'{"amount": 70}') + request + post("/odd/k/add", b'{"amount": 71}'))
    answers = [await same.answer() for _ in range(3)]
    assert [answers[0].json, answers[2].json] == [70, 71]
    assert [(await wire.answer()).json for wire in others] == [0, 1, 2]
    return answers[1].status, answers[1].json


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", ["body", "body of several keys", "query string", "admission", "result"])
async def test_http_answers_the_one_and_everybody_else(kind: str, stage: str) -> None:
    named = b'{"kind": "%s"}' % kind.encode()
    async with site() as (client, address):
        if stage == "admission":
            client.gate = KINDS[kind]
        status, told = await with_bystanders(
            address,
            {
                "body": post("/odd/k/take", b'{"odd": %s}' % named),
                "body of several keys": post("/odd/k/two", b'{"b": "b", "odd": %s}' % named),
                "query string": get(f"/odd/k/ask?odd={kind}"),
                "admission": post("/odd/k/anything", b"{}"),
                "result": post("/odd/k/give", named),
            }[stage],
        )
        if stage == "result" and kind in READ_AS_PLAIN:
            assert (status, told) == (200, {"kind": kind})
            return
        mine = status in ((400, 429) if kind == "memory" else (400,))
        assert mine if stage in ("body", "body of several keys", "query string") else status == 500
        assert told["code"].startswith("DL")
        assert told["error"]


@pytest.mark.parametrize("kind", KINDS)
async def test_client_answers_the_one_and_everybody_else(kind: str) -> None:
    async with site() as (client, _):
        before = [client.submit("add", "k", {"amount": number}) for number in range(5)]
        bad = asyncio.ensure_future(client.call("give", "k", kind=kind, result=Odd))
        after = [client.submit("add", "k", {"amount": number}) for number in range(5)]
        assert await asyncio.gather(*before, *after) == [*range(5), *range(5)]
        with pytest.raises((ResultUnreadable, InvalidArgument)):
            await bad
        assert await client.call("add", "k", amount=9) == 9
        assert client._machine.window.queued == 0


async def test_handler_whose_name_is_not_ascii_is_called_by_its_percent_encoded_name() -> None:
    async with site() as (_, address):
        wire = await Wire.connect(address)
        assert (await wire.ask(post("/odd/k/gr%C3%BC%C3%9Fe", b'{"amount": 4}'))).json == 4
        assert (await wire.ask(post("/odd/k/%61dd", b'{"amount": 5}'))).json == 5
        assert (await wire.ask(post("/odd/k/gr%FC", b"{}"))).status == 400
        assert (await wire.ask(post("/odd/k/gr%C3%BC", b"{}"))).status == 404


class Unknown:
    """No value of msgpack."""


def holds_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [2**70, Unknown(), "\ud800", holds_itself(), nested(NESTING_MAX + 1), nested(900), {"a": Unknown()}],
    ids=["huge", "unknown", "surrogate", "cycle", "deep", "very deep", "inner"],
)
async def test_arguments_that_can_not_be_sent_are_refused_before_anything_is(value: object) -> None:
    async with site() as (client, _):
        other = client.submit("add", "k", {"amount": 1})
        with pytest.raises(InvalidArgument):
            await client.call("anything", "k", value=value)
        with pytest.raises(InvalidArgument):
            client.submit("anything", "k", {"value": value}, idempotency_key="x")
        assert await other == 1


@pytest.mark.parametrize("key", [None, 5, b"k", ["k"], object()])
async def test_key_that_is_no_text_is_refused_before_anything_is_sent(key: Any) -> None:
    async with site() as (client, _):
        for work in (client.call("add", key), client.call("add", key, idempotency_key="x"), client.query("ask", key)):
            with pytest.raises(InvalidArgument, match="key must be text"):
                await work
        with pytest.raises(InvalidArgument, match="handler must be text"):
            await client.call(key, "k")
        with pytest.raises(InvalidArgument, match="idempotency_key must be text"):
            await client.call("add", "k", idempotency_key=5)  # type: ignore[arg-type]


async def test_one_result_of_many_that_can_not_be_read_costs_no_other() -> None:
    async with site() as (client, _):
        named = [{"value": value} for value in (1, "deep", 3)]
        results = await client.call_many("anything", ["k"] * 3, named, return_errors=True)
        assert [results[0], results[2]] == [1, 3]
        assert isinstance(results[1], ResultUnreadable)
        with pytest.raises(ResultUnreadable):
            await client.call("anything", "k", value="deep")
        with pytest.raises(ResultUnreadable):
            await client.call("anything", "k", value="deep", result=list)


class Raising:
    """An application that does what it is told to."""

    def __init__(self, handle: Callable[[Request], None]) -> None:
        self.handle = handle


@pytest.mark.parametrize("kind", KINDS)
async def test_application_that_raises_answers_500_and_the_connection_goes_on(kind: str) -> None:
    async with bench() as b:
        handle = b.app.handle

        def raises(request: Request) -> None:
            if request.target == b"/bad":
                raise KINDS[kind]
            handle(request)

        b.server.application = Raising(raises)
        wire = await b.connect()
        wire.send(get("/a") + get("/bad") + get("/c"))
        assert [(await wire.answer()).status for _ in range(3)] == [200, 500, 200]


@pytest.mark.parametrize("kind", KINDS)
async def test_task_that_raises_answers_its_request(kind: str) -> None:
    async with bench() as b:
        tasks = RequestTasks()

        async def work() -> None:
            await asyncio.sleep(0)
            raise KINDS[kind]

        b.server.application = Raising(lambda request: tasks.spawn(request, work()))
        wire = await b.connect()
        assert (await wire.ask(get("/a"))).status == 500
        await tasks.close()


class DeadTransport(asyncio.Transport):
    """Raises when it is written to, as uvloop's does once its TLS has ended."""

    aborted = False

    def write(self, data: Any) -> None:
        raise RuntimeError("the handler is closed")

    def abort(self) -> None:
        self.aborted = True


async def test_answer_that_can_not_be_written_ends_its_connection() -> None:
    async with bench() as b:
        connection, transport = b.server.make(), DeadTransport()
        connection.connection_made(transport)
        connection.data_received(get("/a"))
        assert transport.aborted
        connection.connection_lost(None)
