"""Requests to a real HTTP server: per key in order, again while it says so, refused when it says no."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from deathless.base.errors import DeliveryRefused, InvalidConfig, SinkUnavailable
from deathless.codec.wire import ok_reply
from deathless.drivers.conformance import World, check
from deathless.drivers.port import Delivery, Reference, Settings, Sink, Source
from deathless.drivers.webhook import sink

pytestmark = pytest.mark.asyncio
SOURCE = Source("shop", 0, b"i" * 16, 1, 1)


class Server:
    """What is asked of it, and what it says."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[tuple[str, str, dict[str, object]]] = []  # path, idempotency key, body
        self.headers: list[dict[str, str]] = []
        self.says: Callable[[str], web.Response] = lambda _: web.Response()
        self.hold: asyncio.Event | None = None
        self.came = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.Response:
        key = request.headers["Idempotency-Key"]
        self.got.append((request.raw_path, key, msgspec.json.decode(await request.read())))
        self.headers.append(dict(request.headers))
        self.came.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.says(key)

    async def asked(self) -> None:
        """Until it is asked once more."""
        self.came.clear()
        await self.came.wait()

    def of_key(self, key: str) -> list[str]:
        return [each for path, each, _ in self.got if path.endswith(f"/{key}")]

    async def numbers(self) -> list[int]:
        return [int(str(body["number"])) for path, _, body in self.got if "/write/" in path]


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server._answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def made(server: Server, folder: Path | str = ".", **options: object) -> Sink:
    return sink(Settings("mail", {"url": f"{server.url}/hook/{{method}}/{{key}}", **options}, str(folder)))


def delivery(position: int, key: str = "k", *, waits: bool = True) -> Delivery:
    reference = Reference(position, 1) if waits else None
    return Delivery(position, "write", key, {"number": position}, reference, 0, f"id-{position}")


async def opened(server: Server, folder: Path | str = ".", **options: object) -> Sink:
    made_one = made(server, folder, **options)
    assert (await made_one.open(SOURCE, 7)).next_position == 7, "it keeps nothing: it begins with what is kept"
    return made_one


async def test_a_message_is_a_request_and_its_response_the_answer(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with serving() as server:
        hook = await opened(server, tmp_path, tokenFile="token", headers={"X-Who": "shop"}, method="PUT")
        server.says = lambda _: web.json_response({"id": 5})
        (answer,) = await hook.deliver([delivery(7, "a/b ä")])
        assert answer.reply == ok_reply(msgspec.msgpack.encode({"id": 5}))
        assert server.got == [("/hook/write/a%2Fb%20%C3%A4", "id-7", {"number": 7})]
        (headers,) = server.headers
        assert (headers["Authorization"], headers["X-Who"]) == ("Bearer secret", "shop")
        assert headers["Content-Type"] == "application/json"
        server.says = lambda _: web.Response(text="plain")
        assert (await hook.deliver([delivery(8)]))[0].reply == ok_reply(msgspec.msgpack.encode("plain"))
        server.says = lambda _: web.Response(status=204)
        assert (await hook.deliver([delivery(9)]))[0].reply == ok_reply(msgspec.msgpack.encode(None))
        assert await hook.deliver([delivery(10, waits=False)]) == []
        await hook.close()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 599])
async def test_not_now_is_tried_again_not_before_the_time_it_names(status: int) -> None:
    async with serving() as server:
        hook = await opened(server)
        server.says = lambda _: web.Response(status=status, text="busy", headers={"Retry-After": "3"})
        with pytest.raises(SinkUnavailable, match=f"{status} busy") as told:
            await hook.deliver([delivery(7)])
        assert told.value.retry_after_s == 3
        server.says = lambda _: web.Response()
        assert len(await hook.deliver([delivery(7)])) == 1
        assert [key for _, key, _ in server.got] == ["id-7", "id-7"], "the same key for every attempt"
        await hook.close()


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 422])
async def test_no_is_a_refusal(status: int) -> None:
    async with serving() as server:
        hook = await opened(server)
        server.says = lambda _: web.Response(status=status, text="no", headers={"Location": "/elsewhere"})
        with pytest.raises(DeliveryRefused, match=f"message 7: .*{status} no"):
            await hook.deliver([delivery(7)])
        assert len(server.got) == 1
        await hook.close()


async def test_messages_of_a_key_follow_each_other_and_those_of_others_do_not_wait() -> None:
    async with serving() as server:
        hook = await opened(server)
        server.hold = asyncio.Event()
        work = asyncio.ensure_future(hook.deliver([delivery(7, "a"), delivery(8, "a"), delivery(9, "b")]))
        while len(server.got) < 2:
            await server.asked()
        assert sorted(key for _, key, _ in server.got) == ["id-7", "id-9"]
        server.hold.set()
        assert [answer.position for answer in await work] == [7, 8, 9]
        assert server.of_key("a") == ["id-7", "id-8"]
        await hook.close()


async def test_what_was_done_by_a_call_that_failed_is_not_done_again() -> None:
    async with serving() as server:
        hook = await opened(server)
        batch = [delivery(7, "a"), delivery(8, "b"), delivery(9, "a")]
        server.says = lambda key: web.Response(status=503 if key == "id-7" else 200)
        with pytest.raises(SinkUnavailable):
            await hook.deliver(batch)
        assert server.of_key("a") == ["id-7"], "nothing of its key overtakes it"
        server.says = lambda _: web.Response()
        assert (await hook.open(SOURCE, 7)).next_position == 7
        assert len(await hook.deliver(batch)) == 3
        assert server.of_key("b") == ["id-8"]
        assert server.of_key("a") == ["id-7", "id-7", "id-9"]
        assert (await hook.open(SOURCE, 7)).next_position == 10
        await hook.close()


async def test_the_first_problem_of_a_batch_is_the_one_that_counts() -> None:
    async with serving() as server:
        hook = await opened(server)
        server.says = lambda key: web.Response(status={"id-7": 503, "id-8": 400}.get(key, 200))
        with pytest.raises(SinkUnavailable):
            await hook.deliver([delivery(7, "a"), delivery(8, "b")])
        server.says = lambda key: web.Response(status={"id-7": 400, "id-8": 503}.get(key, 200))
        with pytest.raises(DeliveryRefused) as refused:
            await hook.deliver([delivery(7, "a"), delivery(8, "b")])
        assert refused.value.position == 7
        await hook.pass_over(7, None)
        assert (await hook.open(SOURCE, 1)).next_position == 8
        await hook.close()


async def test_no_answer_in_time_and_no_connection_are_tried_again() -> None:
    async with serving() as server:
        hook = await opened(server, timeoutSeconds=0.05)
        server.hold = asyncio.Event()
        with pytest.raises(SinkUnavailable, match=r"no answer within 0\.05 s"):
            await hook.deliver([delivery(7)])
        server.hold.set()
        await hook.close()
    hook = made(server)
    await hook.open(SOURCE, 1)
    with pytest.raises(SinkUnavailable):
        await hook.deliver([delivery(1)])
    await hook.close()


@pytest.mark.parametrize("seed", range(3))
async def test_the_kit_finds_nothing_lost(seed: int) -> None:
    async with serving() as server:
        chance = random.Random(seed)
        server.says = lambda _: web.json_response(chance.random())
        await check(World(sink=lambda: made(server), arrived=server.numbers, exact=False), seed=seed)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"url": "ftp://x"}, {"url": "http:///path"}, {"url": "http://x", "method": "GET /"},
        {"url": "http://x", "timeoutSeconds": 0}, {"url": "http://x", "tokenFile": "missing"},
        {"url": "http://x", "caFile": "missing"}, {"url": "http://x", "headers": {"A": "b\r\nC: d"}},
        {"url": "http://x", "unknown": 1},
    ],
)  # fmt: skip
async def test_options_that_are_wrong_are_named(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="driver mail"):
        sink(Settings("mail", options, str(tmp_path)))
