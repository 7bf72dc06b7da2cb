"""The ingress in front of two shards: the key of the address says which one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from bank_fake import bank, bank_shard
from http_wire import Wire, get, post
from replica_fake import ReplicaServer

from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.codec.wire import accepted_reply, ok_reply
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits

pytestmark = pytest.mark.asyncio
SHARDS = 2
HERE, THERE = "bob", "alice"  # shards 0 and 1
NOW = "Prefer: wait=0"


class Site:
    """Two shards, one client, one ingress, one connection to it."""

    def __init__(self, servers: list[ReplicaServer], client: Client, ingress: Ingress, wire: Wire) -> None:
        self.servers = servers
        self.client = client
        self.ingress = ingress
        self.ask = wire.ask

    def keys(self, shard: int) -> list[str]:
        """Keys of what a shard ran."""
        return [decode(message).key.decode() for message in self.servers[shard].replica.shard.applied]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """All of it, ready."""
    limits = Limits()
    servers = []
    for number in range(SHARDS):
        shard = bank_shard(limits)
        shard.service = f"bank/{number}/{SHARDS}"
        servers.append(ReplicaServer(shard))
        await servers[-1].start()
        servers[-1].replica.become("primary", 1, servers[-1].address)
    async with Client("bank", [server.address for server in servers], shards=SHARDS) as client:
        await client.ready(60)
        ingress = Ingress(bank, client, limits=limits, labels={"replica": "r0"})
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            yield Site(servers, client, ingress, await Wire.connect(await http.start("127.0.0.1:0")))
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            for server in servers:
                server.kill()


async def test_calls_and_queries_go_to_the_shard_of_their_key() -> None:
    async with site() as s:
        for key, amount in ((HERE, 3), (THERE, 4), ("%7Balice%7D.x", 5)):
            answer = await s.ask(post(f"/bank/{key}/deposit", b'{"amount": %d}' % amount))
            assert (answer.status, answer.json) == (200, amount)
            answer = await s.ask(get(f"/bank/{key}/balance"))
            assert (answer.status, answer.json) == (200, amount)
        assert (s.keys(0), s.keys(1)) == ([HERE], [THERE, "{alice}.x"])
        assert (await s.ask(get("/readyz"))).status == 200


async def test_a_late_result_is_asked_for_by_an_id_that_names_its_shard() -> None:
    async with site() as s:
        second = s.servers[1].replica
        second.shard.run = lambda _: accepted_reply(9)
        answer = await s.ask(post(f"/bank/{THERE}/deposit", b'{"amount": 1}', NOW))
        assert (answer.status, answer.headers["location"]) == (202, "/bank/-/invocations/1-9")
        assert answer.json == {"invocation": "1-9", "location": "/bank/-/invocations/1-9"}
        second.finish(9, ok_reply(msgspec.msgpack.encode(7)))
        assert (await s.ask(get("/bank/-/invocations/1-9"))).json == 7
        for wrong in ("9", "2-9", "1-0"):
            assert (await s.ask(get(f"/bank/-/invocations/{wrong}"))).status == 404


async def test_a_caller_who_waits_too_long_is_let_go_by_the_right_shard() -> None:
    async with site() as s:
        second = s.servers[1].replica
        second.muted = True
        asked = asyncio.ensure_future(s.ask(post(f"/bank/{THERE}/deposit", b'{"amount": 1}')))
        while not s.keys(1):  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        s.ingress.sweep(asyncio.get_running_loop().time() + 1000.0)
        assert (await asked).status == 504
        second.muted = False
        assert (await s.ask(post(f"/bank/{HERE}/deposit", b'{"amount": 1}'))).status == 200


async def test_a_shard_that_is_down_holds_up_its_own_keys_alone() -> None:
    async with site() as s:
        s.servers[1].kill()
        while s.ingress.ready:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        for amount in (1, 2):
            answer = await s.ask(post(f"/bank/{HERE}/deposit", b'{"amount": 1}'))
            assert (answer.status, answer.json) == (200, amount)
        asked = asyncio.ensure_future(s.ask(post(f"/bank/{THERE}/deposit", b'{"amount": 1}')))
        while not s.ingress._pending:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        s.ingress.sweep(asyncio.get_running_loop().time() + 1000.0)
        assert (await asked).status in (503, 504)
        assert (await s.ask(get("/readyz"))).status == 503
