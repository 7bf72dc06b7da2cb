"""Operators of a service with several shards: whom an id or `?shard=k` names is asked, and nobody where none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from bank_fake import bank
from http_wire import Wire, get, post

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, NotPrimary, PeerUnreachable, UnknownHandler
from deathless.base.limits import Limits
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.operators import ASKED_MAX, Operators, find_page, shard_askers
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits

SHARDS = 2
CONFIG = ReplicaConfig(service="bank", module="m:a", directory="/nowhere", replica="r0", shard=0, shards=SHARDS)
LISTED: dict[str, dict[str, Any]] = {
    "invocations": {"invocations": [{"invocation": 5}], "count": 7, "nowUs": 100},
    "parked": {"parked": [{"lsn": 5}], "count": 1},
    "peers": {"peers": [{"service": "stock", "shard": 3}]},
    "sinks": {"sinks": [{"sink": "facts"}]},
    "sources": {"sources": [{"source": "flights"}], "more": False},
    "undelivered": {"undelivered": [{"id": 5}], "count": 1},
    "unknown": {"unknown": [{"invocation": 5, "operation": 1}], "count": 1},
}

STREAMS: dict[str, Any] = {
    "streams": [{"stream": 0}], "refused": [{"lsn": 7}], "standing": [{"lsn": 9}], "count": 2, "more": True,
}  # fmt: skip


class Primary:
    """The primary of one shard: takes what is asked down, and answers or fails."""

    def __init__(self, shard: int) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.error: Exception | None = None
        self._shard = shard

    async def __call__(self, command: str, arguments: dict[str, str]) -> dict[str, object]:
        self.asked.append((command, arguments))
        if self.error is not None:
            raise self.error
        found = {**LISTED, "streams": STREAMS}.get(command, {"invocation": 90, "resumed": True})
        return found | ({"nowUs": found["nowUs"] - self._shard} if "nowUs" in found else {})


class Site:
    """An ingress before two shards, and a connection to it."""

    def __init__(self, primaries: list[Primary], wire: Wire) -> None:
        self.primaries = primaries
        self.ask = wire.ask

    def asked(self) -> list[list[tuple[str, dict[str, str]]]]:
        """What each shard was asked since it was looked at."""
        found = [primary.asked[:] for primary in self.primaries]
        for primary in self.primaries:
            primary.asked.clear()
        return found


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    async with Client("bank", ["127.0.0.1:1"], shards=SHARDS) as client:
        primaries = [Primary(shard) for shard in range(SHARDS)]
        ingress = Ingress(bank, client, limits=Limits(), labels={}, operators=Operators(asked=primaries))
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        address = await http.start("127.0.0.1:0")
        try:
            wire = await Wire.connect(address)
            while not http.connections:  # noqa: ASYNC110  a state: what is not accepted yet, nobody would close
                await asyncio.sleep(0)
            yield Site(primaries, wire)
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()


ADOPTED = b'{"serviceId": "%s", "incarnation": 2, "shard": 3}' % (32 * b"a")
ORDERS = [
    (
        post("/bank/-/invocations/1-5/kill"), ("order", {"command": "kill", "invocation": "5"}),
        {"invocation": 5, "done": "killed", "shard": 1},
    ),
    (
        post("/bank/-/invocations/1-5/resume"),
        ("order", {"command": "resume", "invocation": "5", "operation": "0", "value": "null"}),
        {"invocation": 5, "done": "resumed", "shard": 1},
    ),
    (
        post("/bank/-/parked/1-5/retry"), ("order", {"command": "retry", "invocation": "5"}),
        {"parked": 5, "invocation": 90, "done": "retried", "shard": 1},
    ),
    (
        post("/bank/-/unknown/1-5/2/settle"), ("order", {"command": "settle", "invocation": "5", "operation": "2"}),
        {"invocation": 5, "operation": 2, "done": "settled", "shard": 1},
    ),
    (
        post("/bank/-/peers/stock/adopt?shard=1", ADOPTED),
        ("adopt-peer", {"service": "stock", "service_id": 32 * "a", "incarnation": "2", "shard": "3"}),
        {"adopted": "stock", "serviceId": 32 * "a", "incarnation": 2, "shard": 3, "ownShard": 1},
    ),
    (
        post("/bank/-/undelivered/1-5/retry"), ("order", {"command": "redeliver", "invocation": "5"}),
        {"messages": [5], "done": "sent again", "shard": 1},
    ),
    (
        post("/bank/-/undelivered/1-5/discard"), ("order", {"command": "discard", "invocation": "5"}),
        {"messages": [5], "done": "discarded", "shard": 1},
    ),
    (
        get("/bank/-/undelivered?shard=1&from=5"), ("undelivered", {"from": "5"}),
        {"undelivered": [{"id": 5}], "count": 1, "shard": 1},
    ),
    (
        post("/bank/-/streams/1-5/retry"), ("order", {"command": "retry-input", "invocation": "5"}),
        {"session": 5, "done": "tried again", "shard": 1},
    ),
    (
        post("/bank/-/streams/1-5/6/skip"), ("order", {"command": "skip-input", "invocation": "5", "operation": "6"}),
        {"session": 5, "seq": 6, "done": "passed over", "shard": 1},
    ),
    (
        post("/bank/-/streams/1-5/forget"), ("order", {"command": "forget-stream", "invocation": "5"}),
        {"session": 5, "done": "forgotten", "shard": 1},
    ),
    (
        post("/bank/-/refused/1-5/replay"), ("order", {"command": "run-input", "invocation": "5"}),
        {"lsn": 5, "done": "taken in", "shard": 1},
    ),
    (
        post("/bank/-/refused/1-5/discard"), ("order", {"command": "drop-input", "invocation": "5"}),
        {"lsn": 5, "done": "discarded", "shard": 1},
    ),
    (
        get("/bank/-/sources/flights/refused?shard=1&from=5"), ("streams", {"source": "flights", "from": "5"}),
        {**STREAMS, "shard": 1},
    ),
    (get("/bank/-/sources?shard=1"), ("sources", {}), {**LISTED["sources"], "shard": 1}),
    (get("/bank/-/sinks?shard=1"), ("sinks", {}), {**LISTED["sinks"], "shard": 1}),
    (post("/bank/-/outside/resume?shard=1"), ("resume-outside", {}), {"held": True, "done": "let go", "shard": 1}),
    (
        get("/bank/-/invocations/1-5/history"), ("invocation", {"invocation": "5"}),
        {"invocation": 90, "resumed": True, "shard": 1},
    ),
    (
        get("/bank/-/invocations?shard=1&from=5"), ("invocations", {"from": "5"}),
        {"invocations": [{"invocation": 5}], "count": 7, "nowUs": 99, "shard": 1},
    ),
    (get("/bank/-/peers?shard=1"), ("peers", {}), {**LISTED["peers"], "ownShard": 1}),
]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize(("request_", "asked", "told"), ORDERS)
async def test_the_shard_that_is_named_is_asked_and_no_other(
    request_: bytes, asked: tuple[str, dict[str, str]], told: dict[str, object]
) -> None:
    async with site() as s:
        answer = await s.ask(request_)
        assert (answer.status, answer.json) == (200, told)
        assert s.asked() == [[], [asked]]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "says"),
    [
        *((post(f"/bank/-/invocations/5/{order}"), "like 1-512") for order in ("kill", "cancel", "resume")),
        (get("/bank/-/invocations/5/history"), "like 1-512"),
        (post("/bank/-/parked/5/retry"), "like 1-512"),
        (post("/bank/-/unknown/5/1/settle"), "like 1-512"),
        (post("/bank/-/invocations/2-5/kill"), "no shard 2"),
        (post("/bank/-/invocations/1-0/kill"), "like 1-512"),
        (post("/bank/-/invocations/5/kill?shard=1"), "like 1-512"),
        (post("/bank/-/invocations/1-5/kill?shard=0"), "no parameter `shard`"),
        (post("/bank/-/peers/stock/adopt", ADOPTED), "about one shard"),
        (get("/bank/-/invocations?from=5"), "about one shard"),
        (post("/bank/-/undelivered/5/retry"), "like 1-512"),
        (post("/bank/-/streams/5/retry"), "like 1-512"),
        (post("/bank/-/streams/5/6/skip"), "like 1-512"),
        (post("/bank/-/streams/1-5/6/skip?shard=0"), "no parameter `shard`"),
        (get("/bank/-/sources/flights/refused?from=5"), "about one shard"),
        (get("/bank/-/sources?from=5"), "about one shard"),
        (get("/bank/-/sinks?shard=2"), "no shard 2"),
        (post("/bank/-/outside/resume"), "about one shard"),
        (get("/bank/-/invocations?shard=2"), "no shard 2"),
        (get("/bank/-/invocations?shard=0&shard=1"), "shard must be one number"),
        (get("/bank/-/peers?shard=x"), "shard must be one number"),
        (get("/bank/-/peers?shard=1&from=5"), "no parameter `from`"),
    ],
)
async def test_what_may_be_about_any_shard_is_refused_and_nobody_is_asked(request_: bytes, says: str) -> None:
    async with site() as s:
        answer = await s.ask(request_)
        assert (answer.status, answer.json["code"]) == (400, InvalidArgument.code)
        assert says in answer.json["error"]
        assert s.asked() == [[], []]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", list(LISTED))
async def test_a_list_is_of_all_shards_each_entry_with_its_own(name: str) -> None:
    own = "ownShard" if name == "peers" else "shard"
    async with site() as s:
        answer = await s.ask(get(f"/bank/-/{name}"))
        assert answer.status == 200
        (entry,) = LISTED[name][name]
        assert answer.json[name] == [{**entry, own: shard} for shard in range(SHARDS)]
        assert answer.json.get("count", 0) == SHARDS * LISTED[name].get("count", 0)
        assert answer.json.get("nowUs") == LISTED[name].get("nowUs")
        assert s.asked() == [[(name, {})]] * SHARDS


@pytest.mark.asyncio
async def test_refused_rows_of_a_source_are_of_all_shards_in_each_list() -> None:
    async with site() as s:
        answer = await s.ask(get("/bank/-/sources/flights/refused"))
        assert answer.status == 200
        for name in ("streams", "refused", "standing"):
            (entry,) = STREAMS[name]
            assert answer.json[name] == [{**entry, "shard": shard} for shard in range(SHARDS)]
        assert (answer.json["count"], answer.json["more"]) == (2 * SHARDS, True)
        assert s.asked() == [[("streams", {"source": "flights"})]] * SHARDS


@pytest.mark.asyncio
async def test_a_shard_that_does_not_answer_is_named() -> None:
    async with site() as s:
        for error, ordered in ((NotPrimary("no primary is known now"), 503), (PeerUnreachable("r0 is silent"), 504)):
            s.primaries[1].error = error
            answer = await s.ask(get("/bank/-/invocations"))
            assert (answer.status, answer.json["error"]) == (503, f"shard 1: {error.message}")
            assert "?shard=K" in answer.json["remedy"]
            answer = await s.ask(post("/bank/-/invocations/1-5/kill"))
            assert (answer.status, "shard 1: " in answer.json["error"]) == (ordered, True)
            assert (await s.ask(post("/bank/-/invocations/0-5/kill"))).status == 200
            assert (await s.ask(get("/bank/-/invocations?shard=0"))).status == 200


@pytest.mark.asyncio
async def test_i10_a_list_of_all_shards_counts_once_and_is_let_go() -> None:
    async with site() as s:
        s.primaries[1].error = NotPrimary("not now")
        for _ in range(ASKED_MAX + 1):
            assert (await s.ask(get("/bank/-/peers"))).status == 503


@pytest.mark.asyncio
async def test_each_shard_is_asked_where_its_primary_is() -> None:
    looked: list[int] = []

    def primary(shard: int) -> str:
        looked.append(shard)
        return ""

    askers = shard_askers(primary, CONFIG)
    assert len(askers) == SHARDS
    with pytest.raises(NotPrimary):
        await askers[1]("peers", {})
    assert looked == [1]


@pytest.mark.asyncio
async def test_the_only_shard_is_named_or_not_and_its_answers_say_nothing_of_it() -> None:
    primary = Primary(0)
    operators = Operators(asked=[primary])
    page = find_page([b"invocations"], 1)
    assert page is not None
    for named in ({}, {"shard": ["0"]}):
        assert msgspec.json.decode(await operators.answer(page, named, b"")) == LISTED["invocations"]
    with pytest.raises(InvalidArgument, match="no shard 1"):
        await operators.answer(page, {"shard": ["1"]}, b"")
    assert primary.asked == [("invocations", {})] * 2
    with pytest.raises(UnknownHandler):
        find_page([b"invocations", b"0-5", b"kill"], 1)
