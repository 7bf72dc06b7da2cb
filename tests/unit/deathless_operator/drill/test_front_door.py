"""Tries against a real server: what answers, what is refused for good, what is worth another try."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from deathless_operator.drill.front_door import HttpFrontDoor, Try
from deathless_operator.drill.judge import Held

PATIENCE_S = 60.0  # of a try that is to be answered: a machine may be busy

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are given the time that a busy machine takes."""
    monkeypatch.setattr("deathless_operator.drill.front_door.CONNECT_TIMEOUT_S", PATIENCE_S)


@asynccontextmanager
async def serve(handler: Handler, ssl_context: object = None) -> AsyncIterator[int]:
    """Run a server that gives every request to `handler`; yields its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)  # type: ignore[arg-type]
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def answer_once(status: int, body: str = "{}") -> Try:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with serve(handler) as port, HttpFrontDoor(f"http://127.0.0.1:{port}", "bank", "s", clients=1) as door:
        return await door.call(0, 1, PATIENCE_S)


@pytest.mark.asyncio
async def test_answers_are_asked_for_as_they_are_and_not_compressed() -> None:
    """They are read byte by byte, and a long one would come compressed to whoever takes that."""
    asked: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Accept-Encoding"))
        return web.Response(text="{}")

    async with serve(handler) as port, HttpFrontDoor(f"http://127.0.0.1:{port}", "bank", "s", clients=1) as door:
        await door.call(0, 1, PATIENCE_S)
        await door.read()
    assert set(asked) == {"identity"}


@pytest.mark.asyncio
async def test_witness_calls_the_primary_itself_and_waits_longer_than_others() -> None:
    seen: list[tuple[str, str]] = []
    woken = asyncio.Event()

    def named(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(request: web.Request) -> web.Response:
            seen.append((name, request.path))
            await woken.wait()
            return web.json_response(1)

        return handler

    async with serve(named("any")) as any_port, serve(named("primary")) as port:
        urls = [f"http://127.0.0.1:{each}" for each in (any_port, port)]
        async with HttpFrontDoor(urls[0], "bank", "s", clients=1, witnesses=1, primary_url=urls[1]) as door:
            waiting = asyncio.create_task(door.call(1, 8, PATIENCE_S))
            assert "TimeoutError" in (await door.call(0, 7)).problem
            woken.set()
            assert await waiting == Try(answered=True)
    assert sorted(seen) == [("any", "/bank/s/deathless.probe"), ("primary", "/bank/s/deathless.probe")]


@pytest.mark.asyncio
async def test_call_names_series_number_and_idempotency_key() -> None:
    seen: list[tuple[str, object, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        headers = request.headers
        seen.append((request.path, await request.json(), headers["Idempotency-Key"], headers["Authorization"]))
        return web.json_response(1)

    async with serve(handler) as port:
        door = HttpFrontDoor(f"http://127.0.0.1:{port}/", "bank", "abc", clients=2, token="t")
        async with door:
            assert await door.call(1, 7, PATIENCE_S) == Try(answered=True)
    assert seen == [("/bank/abc/deathless.probe", {"number": 7}, "abc-7", "Bearer t")]


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 507])
async def test_answer_that_may_change_is_worth_another_try(status: int) -> None:
    outcome = await answer_once(status)
    assert not outcome.answered
    assert not outcome.refused
    assert str(status) in outcome.problem


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [400, 401, 404, 409, 422])
async def test_answer_that_no_retry_changes_is_final(status: int) -> None:
    outcome = await answer_once(status, '{"code": "DL3010"}')
    assert "DL3010" in outcome.refused


@pytest.mark.asyncio
async def test_nobody_there_is_a_problem_and_no_error() -> None:
    async with HttpFrontDoor("http://127.0.0.1:1", "bank", "s", clients=1) as door:
        assert (await door.call(0, 1)).problem
        assert isinstance(await door.read(), str)


@pytest.mark.asyncio
async def test_server_that_says_nothing_is_given_up_soon() -> None:
    go_on = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        await go_on.wait()
        return web.Response()

    async with serve(handler) as port, HttpFrontDoor(f"http://127.0.0.1:{port}", "bank", "s", clients=1) as door:
        assert (await door.call(0, 1)).problem
        go_on.set()


@pytest.mark.asyncio
async def test_next_try_after_a_bad_answer_takes_a_new_connection() -> None:
    peers: list[object] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(status=503)

    async with serve(handler) as port, HttpFrontDoor(f"http://127.0.0.1:{port}", "bank", "s", clients=1) as door:
        await door.call(0, 1, PATIENCE_S)
        await door.call(0, 1, PATIENCE_S)
    assert len(set(peers)) == 2


@pytest.mark.asyncio
async def test_what_is_held_is_read() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/bank/s/deathless.probe.read"
        return web.Response(text=json.dumps({"count": 2, "ranges": [[0, 1]], "doubled_count": 1, "doubled": [1]}))

    async with serve(handler) as port, HttpFrontDoor(f"http://127.0.0.1:{port}", "bank", "s", clients=1) as door:
        assert await door.read() == Held([(0, 1)], 1)


@pytest.mark.asyncio
async def test_certificates_of_both_sides_are_shown_and_checked(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server)
    for name, ca in (("ours", authority), ("other", other)):
        (tmp_path / name).mkdir()
        ca.cert_pem.write_to_path(tmp_path / name / "ca.crt")
        client = authority.issue_cert("client")
        client.private_key_pem.write_to_path(tmp_path / name / "tls.key")
        client.cert_chain_pems[0].write_to_path(tmp_path / name / "tls.crt")

    async def handler(_: web.Request) -> web.Response:
        return web.json_response(1)

    async with serve(handler, server) as port:
        for name, answered in (("ours", True), ("other", False)):
            url = f"https://localhost:{port}"
            async with HttpFrontDoor(url, "bank", "s", clients=1, tls=tmp_path / name) as door:
                assert (await door.call(0, 1)).answered is answered
