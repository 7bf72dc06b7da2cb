"""HTTP requests whose handler waits: a result in time, or 202 and where to ask again."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from bank_fake import bank
from http_wire import Answer, Wire, get, post
from replica_fake import FakeShard, ReplicaServer

from deathless.base.errors import InvocationUnknown, UnknownHandler
from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.codec.wire import accepted_reply, error_reply, ok_reply
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.results import WAIT_MAX_S, WAIT_S, Late, place_of, wait_of
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request

pytestmark = pytest.mark.asyncio
SEVEN = ok_reply(msgspec.msgpack.encode(7))
DEPOSIT = b'{"amount": 5}'


class Site:
    """An ingress in front of a replica all of whose handlers wait, as invocation 9."""

    def __init__(self, server: ReplicaServer, client: Client, ingress: Ingress, address: str) -> None:
        self.replica = server.replica
        self.client = client
        self.ingress = ingress
        self.address = address
        self.loop = asyncio.get_running_loop()

    async def ask(self, request: bytes) -> Answer:
        """Send a request over a connection of its own."""
        return await (await Wire.connect(self.address)).ask(request)

    async def attached(self, count: int = 1) -> None:
        """Wait until results were asked for so often."""
        while len(self.replica.attached) < count:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    shard = FakeShard(run=lambda _: accepted_reply(9))
    server = ReplicaServer(shard)
    await server.start()
    server.replica.become("primary", 1, server.address)
    async with Client("bank", [server.address]) as client:
        await client.ready(30)
        ingress = Ingress(bank, client, limits=Limits(), labels={"replica": "r0"})
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            yield Site(server, client, ingress, await http.start("127.0.0.1:0"))
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            server.kill()


async def test_a_result_in_time_is_answered_as_any_other() -> None:
    async with site() as s:
        asked = asyncio.ensure_future(s.ask(post("/bank/alice/deposit", DEPOSIT)))
        await s.attached()
        assert len(s.ingress.late) == 1
        s.replica.finish(9, SEVEN)
        answer = await asked
        assert (answer.status, answer.json) == (200, 7)
        assert answer.headers["idempotency-key"]
        assert len(s.ingress.late) == 0


async def test_who_repeats_a_request_whose_handler_waits_joins_it_and_both_get_its_result() -> None:
    """The replica names the same invocation for the same key; that it runs once tests/process/test_shop.py shows."""
    async with site() as s:
        request = post("/bank/alice/deposit", DEPOSIT, "Idempotency-Key: order-77")
        asked = [asyncio.ensure_future(s.ask(request)) for _ in range(2)]
        await s.attached(2)
        assert {wanted for _, _, wanted in s.replica.attached} == {9}
        assert {decode(message).idempotency_key for message in s.replica.shard.applied} == {b"order-77"}
        s.replica.finish(9, SEVEN)
        answers = await asyncio.gather(*asked)
        assert [(answer.status, answer.json) for answer in answers] == [(200, 7), (200, 7)]
        assert len(s.ingress.late) == 0


async def test_caller_who_can_not_be_told_that_its_time_is_over_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as s:
        asked = [asyncio.ensure_future(s.ask(post("/bank/alice/deposit", DEPOSIT, "Prefer: wait=3"))) for _ in range(2)]
        await s.attached(2)
        real, met = s.ingress.late._accepted, list[object]()

        def accepted(late: Late) -> None:
            met.append(late)
            if len(met) == 1:
                raise ZeroDivisionError
            real(late)

        monkeypatch.setattr(s.ingress.late, "_accepted", accepted)
        s.ingress.sweep(s.loop.time() + 3.0)
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert [(await each).status for each in done] == [202]
        assert len(s.ingress.late) == 0
        assert "ZeroDivisionError" in caplog.text
        for each in waiting:
            each.cancel()


@pytest.mark.parametrize(("code", "status"), [("DL3048", 409), ("DL3014", 500)])
async def test_a_handler_that_ends_with_an_error_is_answered_with_it(code: str, status: int) -> None:
    async with site() as s:
        s.replica.shard.results[9] = error_reply(code, "Poor", "no")
        answer = await s.ask(post("/bank/alice/deposit", DEPOSIT))
        assert (answer.status, answer.json["code"], answer.json["type"]) == (status, code, "Poor")


async def test_a_caller_whose_time_is_over_is_told_where_to_ask_again() -> None:
    async with site() as s:
        asked = asyncio.ensure_future(s.ask(post("/bank/alice/deposit", DEPOSIT, "Prefer: wait=3")))
        await s.attached()
        s.ingress.sweep(s.loop.time() + 2.0)
        assert not asked.done()
        s.ingress.sweep(s.loop.time() + 3.0)
        answer = await asked
        assert (answer.status, answer.headers["location"]) == (202, "/bank/-/invocations/9")
        assert answer.json == {"invocation": 9, "location": "/bank/-/invocations/9"}
        assert len(s.client._machine.results) == 0
        s.replica.finish(9, SEVEN)
        later = await s.ask(get(answer.headers["location"]))
        assert (later.status, later.json) == (200, 7)


@pytest.mark.parametrize("prefer", ["respond-async", "wait=0", "respond-async, wait=0"])
async def test_a_caller_who_does_not_want_to_wait_does_not(prefer: str) -> None:
    async with site() as s:
        answer = await s.ask(post("/bank/alice/deposit", DEPOSIT, f"Prefer: {prefer}"))
        assert answer.status == 202
        assert s.replica.attached == []


async def test_a_result_that_is_asked_for_is_waited_for_again_and_again() -> None:
    async with site() as s:
        for count in (1, 2):
            asked = asyncio.ensure_future(s.ask(get("/bank/-/invocations/9")))
            await s.attached(count)
            s.ingress.sweep(s.loop.time() + WAIT_S)
            assert (await asked).status == 202
        asked = asyncio.ensure_future(s.ask(get("/bank/-/invocations/9")))
        await s.attached(3)
        s.replica.finish(9, SEVEN)
        assert (await asked).json == 7


@pytest.mark.parametrize(
    ("value", "status", "body"), [(b"\x00\xff", 200, b"\x00\xff"), (None, 204, b""), (7, 200, b"7")]
)
async def test_bytes_are_given_as_they_are_to_who_accepts_them(value: object, status: int, body: bytes) -> None:
    async with site() as s:
        asked = asyncio.ensure_future(s.ask(get("/bank/-/invocations/9", "Accept: application/octet-stream")))
        await s.attached()
        s.replica.finish(9, ok_reply(msgspec.msgpack.encode(value)))
        assert ((await asked).status, (await asked).body) == (status, body)


async def test_a_result_that_nobody_knows_is_404() -> None:
    async with site() as s:
        s.replica.shard.results[9] = error_reply(InvocationUnknown.code, "InvocationUnknown", "9")
        answer = await s.ask(get("/bank/-/invocations/9"))
        assert (answer.status, answer.json["code"]) == (404, InvocationUnknown.code)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/bank/-/invocations/x", 404), ("/bank/-/invocations/0", 404), ("/other/-/invocations/9", 404)],
)
async def test_what_is_no_invocation_is_told_so(path: str, status: int) -> None:
    async with site() as s:
        assert (await s.ask(get(path))).status == status
        assert (await s.ask(post("/bank/-/invocations/9", b"{}"))).status == 405


async def test_an_ingress_that_ends_keeps_nobody() -> None:
    async with site() as s:
        asked = asyncio.ensure_future(s.ask(post("/bank/alice/deposit", DEPOSIT)))
        await s.attached()
        s.ingress.late.stop()
        assert (await asked).status == 202


@pytest.mark.parametrize(("reset", "after_s"), [(True, 0.0), (False, WAIT_S)])
async def test_a_caller_who_left_is_forgotten(reset: bool, after_s: float) -> None:
    """One who closes in order may be one who only has nothing more to send: its time goes on."""
    async with site() as s:
        asked = asyncio.ensure_future(s.ask(post("/bank/alice/deposit", DEPOSIT)))
        await s.attached()
        if reset:
            (wire,) = Wire.opened
            at_once = struct.pack("ii", 1, 0)
            wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        await Wire.close_all()
        asked.cancel()
        while s.ingress.late:
            s.ingress.sweep(s.loop.time() + after_s)
            await asyncio.sleep(0)
        assert len(s.client._machine.results) == 0


async def test_a_closed_client_is_told_to_who_would_wait() -> None:
    async with site() as s:
        await s.client.close()
        assert (await s.ask(get("/bank/-/invocations/9"))).status == 500


def preferring(text: bytes | None) -> Request:
    class Nobody:
        date_line = b""
        transport = None

        def answered(self) -> None:
            """Nothing."""

    request = Request(Nobody())
    if text is not None:
        request.headers[b"prefer"] = text
    return request


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, WAIT_S), (b"wait=5", 5.0), (b"WAIT = 5", 5.0), (b'wait="5"', 5.0), (b"return=minimal", WAIT_S),
        (b"respond-async", 0.0), (b"respond-async, wait=2", 2.0), (b"wait=2, respond-async", 2.0),
        (b"wait=99999", WAIT_MAX_S), (b"wait=soon", WAIT_S), (b"wait", WAIT_S), (b"wait=-1, wait=3, wait=4", 3.0),
        (b"waiter=5, handling=lenient", WAIT_S), (b"", WAIT_S),
    ],
)  # fmt: skip
async def test_how_long_a_caller_wants_to_wait(header: bytes | None, seconds: float) -> None:
    assert wait_of(preferring(header)) == seconds


@pytest.mark.parametrize("raw", [b"", b"0", b"-1", b"1x", b"9" * 20])
async def test_an_invocation_is_a_number_above_0(raw: bytes) -> None:
    assert place_of(b"12", 1) == (0, 12)
    with pytest.raises(UnknownHandler):
        place_of(raw, 1)
