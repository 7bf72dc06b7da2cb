"""Who is an operator at the HTTP ingress, which pages there are, and what becomes of an order without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from bank_fake import bank
from http_wire import Wire, get, post

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidArgument, NotPrimary, OperatorsOnly, PeerUnreachable, UnknownHandler
from deathless.base.limits import Limits
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.operators import (
    ASKED_MAX,
    Operators,
    Page,
    find_page,
    primary_asker,
    refusal_to_callers,
)
from deathless.shell.net.admin_call import Access
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits

CALLERS, THEIRS = "callers-0123456789", "operators-0123456789"
CONFIG = ReplicaConfig(service="bank", module="m:a", directory="/nowhere", replica="r0")
MUTUAL = TlsConfig(ca="ca", certificate="c", key="k", require_client_certificate=True)


class Primary:
    """Takes what is asked down; answers, fails, or keeps everybody waiting."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, command: str, arguments: dict[str, str]) -> dict[str, object]:
        self.asked.append((command, arguments))
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return {"invocation": 90, "peers": [], "resumed": True}


class Site:
    """An ingress, what it asks, and a connection to it."""

    def __init__(self, primary: Primary, ingress: Ingress, address: str, wire: Wire) -> None:
        self.primary = primary
        self.ingress = ingress
        self.address = address
        self.ask = wire.ask


@asynccontextmanager
async def site(token: str = "", own: str = "", refusal: str = "", *, served: bool = True) -> AsyncIterator[Site]:
    async with Client("bank", ["127.0.0.1:1"]) as client:
        primary = Primary()
        operators = Operators(asked=[primary], token=own, refusal=refusal) if served else None
        ingress = Ingress(bank, client, token=token, limits=Limits(), labels={}, operators=operators)
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        address = await http.start("127.0.0.1:0")
        try:
            wire = await Wire.connect(address)
            while not http.connections:  # noqa: ASYNC110  a state: what is not accepted yet, nobody would close
                await asyncio.sleep(0)
            yield Site(primary, ingress, address, wire)
        finally:
            primary.open.set()
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"


ASKED = [
    (get("/bank/-/invocations?from=7"), ("invocations", {"from": "7"})),
    (get("/bank/-/invocations"), ("invocations", {})),
    (get("/bank/-/invocations", method="HEAD"), ("invocations", {})),
    (get("/bank/-/invocations/5/history"), ("invocation", {"invocation": "5"})),
    (get("/bank/-/peers"), ("peers", {})),
    (get("/bank/-/parked"), ("parked", {})),
    (post("/bank/-/invocations/5/kill"), ("order", {"command": "kill", "invocation": "5"})),
    (post("/bank/-/invocations/5/cancel", b""), ("order", {"command": "cancel", "invocation": "5"})),
    (
        post("/bank/-/invocations/5/resume", b'{"value": {"a": 1}, "operation": 2}'),
        ("order", {"command": "resume", "invocation": "5", "operation": "2", "value": '{"a": 1}'}),
    ),
    (
        post("/bank/-/invocations/5/resume", b""),
        ("order", {"command": "resume", "invocation": "5", "operation": "0", "value": "null"}),
    ),
    (post("/bank/-/parked/5/retry"), ("order", {"command": "retry", "invocation": "5"})),
    (get("/bank/-/unknown"), ("unknown", {})),
    (
        post("/bank/-/unknown/5/2/settle", b""),
        ("order", {"command": "settle", "invocation": "5", "operation": "2"}),
    ),
    (get("/bank/-/undelivered?from=7"), ("undelivered", {"from": "7"})),
    (post("/bank/-/undelivered/5/retry"), ("order", {"command": "redeliver", "invocation": "5"})),
    (post("/bank/-/undelivered/5/discard", b""), ("order", {"command": "discard", "invocation": "5"})),
    (get("/bank/-/sources"), ("sources", {})),
    (get("/bank/-/sources?from=1000"), ("sources", {"from": "1000"})),
    (get("/bank/-/sinks"), ("sinks", {})),
    (get("/bank/-/sources/flights/refused"), ("streams", {"source": "flights"})),
    (get("/bank/-/sources/day%2F1/refused?from=7"), ("streams", {"source": "day/1", "from": "7"})),
    (get("/bank/-/sources/flights/refused?above=9"), ("streams", {"source": "flights", "above": "9"})),
    (get("/bank/-/sources/flights/refused?stream=0"), ("streams", {"source": "flights", "stream": "0"})),
    (post("/bank/-/refused/5/replay"), ("order", {"command": "run-input", "invocation": "5"})),
    (post("/bank/-/refused/5/discard"), ("order", {"command": "drop-input", "invocation": "5"})),
    (post("/bank/-/streams/5/retry"), ("order", {"command": "retry-input", "invocation": "5"})),
    (post("/bank/-/streams/5/0/skip", b""), ("order", {"command": "skip-input", "invocation": "5", "operation": "0"})),
    (post("/bank/-/outside/resume"), ("resume-outside", {})),
    (
        post("/bank/-/peers/stock/adopt", b'{"serviceId": "%s", "incarnation": 2, "shard": 1}' % (32 * b"a")),
        ("adopt-peer", {"service": "stock", "service_id": 32 * "a", "incarnation": "2", "shard": "1"}),
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("request_", "asked"), ASKED)
async def test_pages_ask_the_primary_as_the_command_line_does(
    request_: bytes, asked: tuple[str, dict[str, str]]
) -> None:
    async with site() as s:
        assert (await s.ask(request_)).status == 200
        assert s.primary.asked == [asked]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/bank/-/invocations?from=x"), 400),
        (get("/bank/-/invocations?from=1&from=2"), 400),
        (get("/bank/-/peers?from=1"), 400),
        (post("/bank/-/invocations/5/kill", b'{"value": 1}'), 400),
        (post("/bank/-/invocations/5/resume", b'{"values": 1}'), 400),
        (post("/bank/-/invocations/5/resume", b'{"value": '), 400),
        (post("/bank/-/invocations/0/kill"), 404),
        (post("/bank/-/invocations/x/kill"), 404),
        (post("/bank/-/invocations/5/explode"), 404),
        (post("/bank/-/unknown/5/0/settle"), 404),
        (post("/bank/-/unknown/5/1/settle", b'{"value": 1}'), 400),
        (get("/bank/-/unknown/5/1/settle"), 405),
        (post("/bank/-/unknown"), 405),
        (post("/bank/-/undelivered"), 405),
        (post("/bank/-/undelivered/0/retry"), 404),
        (get("/bank/-/undelivered/5/discard"), 405),
        (post("/bank/-/sources"), 405),
        (post("/bank/-/sinks"), 405),
        (get("/bank/-/sources?above=1"), 400),
        (get("/bank/-/sinks?from=1"), 400),
        (get("/bank/-/sources//refused"), 404),
        (get(f"/bank/-/sources/{41 * 'a'}/refused"), 404),
        (get("/bank/-/sources/%2/refused"), 400),
        (get("/bank/-/sources/flights/refused?from=x"), 400),
        (post("/bank/-/sources/flights/refused"), 405),
        (get("/bank/-/streams/5/retry"), 405),
        (get("/bank/-/streams/5/6/skip"), 405),
        (post("/bank/-/streams/0/retry"), 404),
        (post("/bank/-/streams/5/x/skip"), 404),
        (post("/bank/-/streams/5/skip"), 404),
        (post("/bank/-/streams/5/retry", b'{"value": 1}'), 400),
        (post("/bank/-/streams/5/6/skip").replace(b"application/json", b"text/plain"), 415),
        (get("/bank/-/outside/resume"), 405),
        (post("/bank/-/outside/resume", b'{"value": 1}'), 400),
        (post("/bank/-/outside/resume?from=1"), 400),
        (post("/bank/-/peers/stock/adopt"), 400),
        (post("/bank/-/peers/stock/adopt", b'{"serviceId": "aa", "incarnation": 2}'), 400),
        (post("/bank/-/peers/stock/adopt", b'{"serviceId": "%s", "incarnation": 0}' % (32 * b"a")), 400),
        (post("/bank/-/peers/Stock/adopt"), 404),
        (get("/bank/-/peers/stock/adopt"), 405),
        (get("/bank/-/invocations/5/kill"), 405),
        (post("/bank/-/invocations"), 405),
        (post("/bank/-/invocations/5/kill").replace(b"application/json", b"text/plain"), 415),
        (post("/bank/-/invocations/5/kill", b"").replace(b"Content-Type: application/json\r\n", b""), 415),
        (post("/other/-/invocations/5/kill"), 404),
    ],
)
async def test_what_is_no_page_or_no_order_is_not_asked(request_: bytes, status: int) -> None:
    async with site() as s:
        assert (await s.ask(request_)).status == status
        assert s.primary.asked == []


@pytest.mark.asyncio
@pytest.mark.parametrize("request_", [each for each, _ in ASKED])
async def test_a_caller_with_a_lesser_token_sees_and_orders_nothing(request_: bytes) -> None:
    async with site(CALLERS, THEIRS) as s:
        for shown, status in ((CALLERS, 403), ("", 401), (THEIRS + "x", 401)):
            head, line = request_.split(b"\r\n", 1)
            answer = await s.ask(b"\r\n".join([head, bearer(shown).encode(), line]))
            assert answer.status == status
        assert s.primary.asked == []
        head, line = request_.split(b"\r\n", 1)
        assert (await s.ask(b"\r\n".join([head, bearer(THEIRS).encode(), line]))).status == 200


@pytest.mark.asyncio
async def test_where_callers_show_nothing_operators_still_show_their_token() -> None:
    async with site("", THEIRS) as s:
        assert (await s.ask(get("/bank/-/peers"))).status == 403
        assert (await s.ask(get("/bank/-/peers", bearer(THEIRS)))).status == 200
        assert (await s.ask(get("/bank/-/openapi.json"))).status == 200


@pytest.mark.asyncio
async def test_where_callers_show_less_than_tools_nobody_is_let_in_without_a_token_of_operators() -> None:
    async with site(CALLERS, refusal="no client certificate is asked for") as s:
        answer = await s.ask(post("/bank/-/invocations/5/kill", b"{}", bearer(CALLERS)))
        assert (answer.status, answer.json["code"]) == (403, OperatorsOnly.code)
        assert answer.json["error"] == "no client certificate is asked for"
    async with site(served=False) as s:
        assert (await s.ask(get("/bank/-/peers"))).status == 403


@pytest.mark.asyncio
async def test_an_order_without_an_answer_may_have_been_carried_out() -> None:
    async with site() as s:
        s.primary.error = PeerUnreachable("r0 did not answer within 5 s")
        answer = await s.ask(post("/bank/-/invocations/5/kill"))
        assert (answer.status, answer.json["code"]) == (504, "DL1006")
        assert "look" in answer.json["remedy"]
        assert (await s.ask(get("/bank/-/peers"))).status == 503
        s.primary.error = NotPrimary("this replica is not the primary")
        assert (await s.ask(post("/bank/-/invocations/5/kill"))).status == 503


@pytest.mark.asyncio
async def test_i10_so_many_are_answered_at_a_time() -> None:
    async with site() as s:
        s.primary.open.clear()
        waiting = [
            asyncio.ensure_future((await Wire.connect(s.address)).ask(get("/bank/-/peers"))) for _ in range(ASKED_MAX)
        ]
        while len(s.primary.asked) < ASKED_MAX:  # noqa: ASYNC110  a state without an event
            await asyncio.sleep(0)
        answer = await s.ask(get("/bank/-/peers"))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        s.primary.open.set()
        assert [(await each).status for each in waiting] == [200] * ASKED_MAX
        assert (await s.ask(get("/bank/-/peers"))).status == 200


@pytest.mark.asyncio
async def test_without_a_primary_nothing_is_asked() -> None:
    with pytest.raises(NotPrimary):
        await primary_asker(lambda: "", Access("bank"))("peers", {})
    with pytest.raises(PeerUnreachable):
        await primary_asker(lambda: "127.0.0.1:1", Access("bank"))("peers", {})


@pytest.mark.parametrize(
    ("settings", "let_in"),
    [
        ({"ingress_listen": "127.0.0.1:8080"}, True),
        ({"ingress_listen": "[::1]:8080"}, True),
        ({"ingress_listen": "0.0.0.0:8080"}, False),
        ({"ingress_listen": "0.0.0.0:8080", "token": CALLERS}, True),
        ({"ingress_listen": "0.0.0.0:8080", "tls": MUTUAL}, True),
        ({"ingress_listen": "0.0.0.0:8080", "tls": TlsConfig(ca="ca", certificate="c", key="k")}, False),
        ({"ingress_listen": "0.0.0.0:8080", "tls": MUTUAL, "token": CALLERS, "ingress_tls": "Server"}, False),
        ({"ingress_listen": "127.0.0.1:8080", "tls": MUTUAL, "token": CALLERS, "ingress_tls": "Off"}, False),
    ],
)
def test_callers_are_operators_where_they_show_what_tools_show(settings: dict[str, object], *, let_in: bool) -> None:
    config = msgspec.structs.replace(CONFIG, **settings)
    assert (refusal_to_callers(config) == "") == let_in


def test_orders_are_posted_and_the_rest_is_read() -> None:
    assert find_page([b"invocations"], 1) == Page("invocations", {})
    killed = Page("order", {"command": "kill", "invocation": "5"}, "killed", shard=0)
    assert find_page([b"invocations", b"5", b"kill"], 1) == killed
    assert find_page([b"invocations", b"5", b"further", b"away"], 1) is find_page([b"deposit"], 1) is None
    with pytest.raises(UnknownHandler):
        find_page([b"parked", b"-1", b"retry"], 1)
    with pytest.raises(OperatorsOnly):
        Operators(refusal="nobody").admit(b"x")


@pytest.mark.asyncio
async def test_a_key_that_is_a_dash_is_called_as_any_other() -> None:
    operators = Operators(asked=[Primary()])
    with pytest.raises(InvalidArgument):
        await operators.answer(Page("peers", {}), {"stale": ["true"]}, b"")


def test_token_in_a_file_counts_while_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    operators = Operators(asked=[Primary()], token_file=str(path), refusal="nobody shows enough")

    def is_let_in(shown: str) -> bool:
        try:
            operators.admit(shown.encode())
        except OperatorsOnly:
            return False
        return True

    assert not is_let_in("") and not is_let_in(THEIRS)
    path.write_text(f"{THEIRS}\n")
    assert is_let_in(THEIRS) and not is_let_in("") and not is_let_in(CALLERS)
    for text, known in (("another-0123456789", True), ("short", False)):
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(path)
        assert is_let_in(text) is known
        assert not is_let_in(THEIRS)
    path.unlink()
    assert not is_let_in("short") and not is_let_in("")
