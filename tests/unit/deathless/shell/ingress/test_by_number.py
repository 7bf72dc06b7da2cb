"""Methods by their numbers over HTTP: bytes in and out, once per key, and what is refused before anything is logged."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
from http_wire import Wire, get, post
from hypothesis import given
from hypothesis import strategies as st
from replica_fake import FakeShard, ReplicaServer

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidArgument, UnknownMethod
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.core.tables.keys import KeyTable
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.foreign.service import application
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.by_number import NumberRoute, Numbers, check_bytes
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request

pytestmark = pytest.mark.asyncio
SERVICE_PATH = "/bank/alice/7"


class Account(Struct):
    """State of one key."""

    calls: int = 0


class Order(Struct):
    """What a method takes as JSON."""

    cents: int


bank = Service("bank", state=Account)


@bank.foreign(method=7)
def count(account: Account, ctx: Context, args: bytes) -> bytes | None:
    """Give what came, and how often anything did; nothing for nothing."""
    account.calls += 1
    return args + b"%d" % account.calls if args else None


@bank.foreign(method=-2, codec="json")
def price(account: Account, ctx: Context, args: Order) -> Order:
    """Give twice as much."""
    return Order(args.cents * 2)


@asynccontextmanager
async def wire(limits: Limits | None = None) -> AsyncIterator[Wire]:
    """A connection to an ingress, in front of a fake replica that runs the service for real."""
    limits = limits or Limits()
    keys = KeyTable(limits)
    executor = HandlerExecutor(bank, limits, bytes(32), keys, Cells(memoryview(bytearray(PAGE_BYTES))))
    shard = FakeShard(message_bytes_max=limits.message_bytes_max)

    def run(message: bytes) -> bytes:
        at = len(shard.applied)
        keys.moved(Times.at(time.time_ns() // 1000))
        return executor.execute(100, at, at, time.time_ns() // 1000, [message])[0][0]

    shard.run = run
    server = ReplicaServer(shard)
    await server.start()
    server.replica.become("primary", 1, server.address)
    async with Client("bank", [server.address]) as client:
        await client.ready(30)
        ingress = Ingress(bank, client, limits=limits, labels={"replica": "r0"})
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            yield await Wire.connect(await http.start("127.0.0.1:0"))
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            server.kill()


def raw(path: str, body: bytes, *headers: str, kind: str = "application/octet-stream") -> bytes:
    """A POST of bytes; of no content type where that is empty."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@pytest.mark.parametrize("kind", ["application/octet-stream", "text/plain", "image/png", ""])
async def test_bytes_of_any_content_type_come_back_as_bytes(kind: str) -> None:
    async with wire() as w:
        answer = await w.ask(raw(SERVICE_PATH, b"\x00\xff{", kind=kind))
        assert (answer.status, answer.body) == (200, b"\x00\xff{1")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["idempotency-key"]


async def test_a_method_that_returns_nothing_is_204_without_a_body() -> None:
    async with wire() as w:
        for _ in range(2):  # the connection is in step behind it
            answer = await w.ask(raw(SERVICE_PATH, b""))
            assert (answer.status, answer.body) == (204, b"")
            assert not {"content-length", "content-type"} & answer.headers.keys()


async def test_a_retry_gets_the_recorded_bytes_whichever_way_it_comes() -> None:
    async with wire() as w:
        first = await w.ask(raw(SERVICE_PATH, b"a", "Idempotency-Key: k"))
        again = await w.ask(raw(SERVICE_PATH, b"a", "Idempotency-Key: k", kind="text/plain"))
        assert [first.body, again.body] == [b"a1", b"a1"]
        as_json = await w.ask(post("/bank/alice/call", b'{"method":7,"args":"YQ=="}', "Idempotency-Key: k"))
        assert (as_json.status, as_json.json) == (200, "YTE=")
        other = await w.ask(raw(SERVICE_PATH, b"b", "Idempotency-Key: k"))
        assert (other.status, other.json["code"]) == (422, "DL3007")


async def test_a_fork_is_204_and_runs_once() -> None:
    async with wire() as w:
        for _ in range(2):
            told = await w.ask(raw(SERVICE_PATH, b"a", "Prefer: wait=5, return=minimal", "Idempotency-Key: f"))
            assert (told.status, told.body) == (204, b"")
        assert (await w.ask(raw(SERVICE_PATH, b"b"))).body == b"b2"


async def test_a_method_with_json_takes_and_gives_json() -> None:
    async with wire() as w:
        answer = await w.ask(raw("/bank/alice/-2", b'{"cents": 4}', kind="application/json"))
        assert (answer.status, answer.headers["content-type"], answer.json) == (200, "application/json", {"cents": 8})
        answer = await w.ask(raw("/bank/alice/-2", b'{"cents": "4"}'))
        assert (answer.status, answer.json["code"]) == (400, "DL3003")
        assert "method -2" in answer.json["error"]
        assert answer.json["field"] == "$.cents"


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (raw("/bank/alice/9", b""), 404, "DL3120"),
        (raw("/bank/alice/99999999999", b""), 400, "DL3003"),
        (raw("/bank/alice/07", b""), 404, "DL3004"),
        (raw("/bank/alice/7?a=1", b""), 400, "DL3003"),
        (get(SERVICE_PATH), 405, "DL3003"),
        (raw(SERVICE_PATH, b"", "Content-Encoding: gzip"), 415, "DL3003"),
        (raw(SERVICE_PATH, b"", "Origin: https://evil.example", kind="text/plain; charset=utf-8"), 415, "DL3003"),
        (raw(SERVICE_PATH, b"", "Origin: null", kind=""), 415, "DL3003"),
        (raw("/other/alice/7", b""), 404, "DL3005"),
    ],
)
async def test_what_names_no_method_or_may_not_come_is_refused(data: bytes, status: int, code: str) -> None:
    async with wire() as w:
        answer = await w.ask(data)
        assert (answer.status, answer.json["code"]) == (status, code)
        assert (await w.ask(raw(SERVICE_PATH, b"x", "Origin: https://app.example"))).body == b"x1"


async def test_bytes_beyond_the_maximum_of_a_message_are_413() -> None:
    async with wire(Limits(message_bytes_max=1000)) as w:
        answer = await w.ask(raw(SERVICE_PATH, bytes(1000)))
        assert (answer.status, answer.json["code"]) == (413, "DL3006")


class Asked:
    """Headers of a request."""

    def __init__(self, **headers: bytes) -> None:
        self.headers = {name.encode(): value for name, value in headers.items()}


def found(service: Service, name: bytes, **headers: bytes) -> NumberRoute | None:
    """Give what a number names."""
    return Numbers(service).find(name, cast("Request", Asked(**headers)))


async def test_services_of_programs_and_handwritten_handlers_take_any_number() -> None:
    by_hand = Service("bank", state=Account)

    @by_hand.handler(name="call")
    def called(account: Account, ctx: Context, method: int, args: bytes) -> bytes:
        return args

    for service in (application, by_hand):
        route = found(service, b"-2147483648")
        assert route is not None
        assert msgspec.to_builtins(route.from_bytes(b"x"), builtin_types=(bytes,)) == {
            "method": -(1 << 31), "args": b"x",
        }  # fmt: skip


async def test_fork_is_a_call_where_another_handler_has_that_name() -> None:
    """Whoever prefers no result gets one then."""
    mailer = Service("mailer", state=Account)

    @mailer.handler(name="call")
    def called(account: Account, ctx: Context, method: int, args: bytes) -> bytes:
        return args

    @mailer.handler
    def send(account: Account, ctx: Context, to: str) -> None: ...

    route = found(mailer, b"7", prefer=b"return=minimal")
    assert route is not None
    assert (route.name, msgspec.to_builtins(route.from_bytes(b"x"))) == ("call", {"method": 7, "args": "eA=="})


async def test_other_handlers_of_that_name_take_no_numbers() -> None:
    phone = Service("phone", state=Account)

    @phone.handler
    def call(account: Account, ctx: Context, number: str) -> bytes:
        return b""

    assert found(phone, b"7") is None


@given(st.binary(max_size=14) | st.from_regex(rb"-?[0-9]{1,12}", fullmatch=True))
async def test_no_end_of_a_path_raises_anything_but_a_refusal(name: bytes) -> None:
    try:
        route = found(bank, name)
    except (InvalidArgument, UnknownMethod):
        return
    assert route is None or name in (b"7", b"-2")


@given(st.dictionaries(st.sampled_from(["origin", "content_type"]), st.binary(max_size=20)))
async def test_no_headers_raise_anything_but_a_refusal(headers: dict[str, bytes]) -> None:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    asked = Asked()
    asked.headers = named
    try:
        check_bytes(cast("Request", asked))
    except InvalidArgument:
        assert b"origin" in named


async def test_a_result_that_another_version_wrote_is_given_as_json() -> None:
    route = found(bank, b"7")
    assert route is not None
    assert route.answer(msgspec.msgpack.encode({"old": 1})).body == b'{"old":1}'
