"""A browser's question before a call, and whom a page of another origin is told about, over a real port."""

from __future__ import annotations

import gzip
import json

import pytest
from http_wire import get, post
from tests.unit.deathless.shell.ingress.test_ingress import site

from deathless.shell.ingress.browsers import Browsers

pytestmark = pytest.mark.asyncio
APP, OTHER = "https://app.example", "https://other.example"


def asks(origin: str, path: str = "/bank/alice/deposit") -> bytes:
    """A preflight."""
    lines = (f"OPTIONS {path} HTTP/1.1", "Host: x", f"Origin: {origin}", "Access-Control-Request-Method: POST", "", "")
    return "\r\n".join(lines).encode()


async def test_page_of_a_named_origin_may_call_and_read_the_answer() -> None:
    async with site(token="secret") as s:
        s.ingress.browsers = Browsers("bank", [APP])
        allowed = await s.ask(asks(APP))
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, APP), (
            "nobody shows a token yet"
        )
        answer = await s.ask(
            post("/bank/alice/deposit", b'{"amount": 5}', f"Origin: {APP}", "Authorization: Bearer secret")
        )
        assert (answer.json, answer.headers["access-control-allow-origin"]) == (5, APP)
        assert "idempotency-key" in answer.headers["access-control-expose-headers"]


async def test_refusals_can_be_read_by_the_page_as_well() -> None:
    async with site(token="secret") as s:
        s.ingress.browsers = Browsers("bank", [APP])
        answer = await s.ask(post("/bank/alice/deposit", b"{}", f"Origin: {APP}"))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, APP)


@pytest.mark.parametrize("origins", [[], [APP]])
async def test_page_of_another_origin_is_told_nothing(origins: list[str]) -> None:
    async with site() as s:
        s.ingress.browsers = Browsers("bank", origins)
        refused = await s.ask(asks(OTHER))
        assert (refused.status, "access-control-allow-origin" in refused.headers) == (405, False)
        answer = await s.ask(get("/bank/alice/balance", f"Origin: {OTHER}"))
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_need_no_token_and_the_description_does() -> None:
    async with site(token="secret") as s:
        for path in ("/", "/docs", "/docs/docs.js", "/docs/swagger-ui.css"):
            answer = await s.ask(get(path))
            assert answer.status == 200
        assert (await s.ask(get("/bank/-/openapi.json"))).status == 401
        assert (await s.ask(post("/docs", b"{}"))).status == 405
        assert (await s.ask(get("/docs/nothing"))).status in (401, 404)


async def test_long_answer_is_compressed_for_who_accepts_it() -> None:
    async with site() as s:
        plain = await s.ask(get("/bank/-/openapi.json"))
        packed = await s.ask(get("/bank/-/openapi.json", "Accept-Encoding: gzip"))
        assert "content-encoding" not in plain.headers
        assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
        assert json.loads(gzip.decompress(packed.body)) == plain.json
        short = await s.ask(get("/bank/alice/balance", "Accept-Encoding: gzip"))
        assert (short.json, "content-encoding" in short.headers) == (0, False)


async def test_answer_that_depends_on_both_says_so_in_one_line() -> None:
    async with site() as s:
        s.ingress.browsers = Browsers("bank", [APP])
        answer = await s.ask(get("/bank/-/openapi.json", "Accept-Encoding: gzip", f"Origin: {APP}"))
        assert answer.headers["vary"] == "accept-encoding, origin"
