"""The blocking client: the same calls from threads without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from replica_fake import FakeShard, ReplicaServer

from deathless.base.errors import Closed, PeerUnreachable
from deathless.shell.sync_client import SyncClient


@pytest.fixture
def address() -> Iterator[str]:
    """A primary in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> ReplicaServer:
        server = ReplicaServer(FakeShard())
        await server.start()
        server.replica.become("primary", 1, server.address)
        return server

    async def stop(server: ReplicaServer) -> None:
        server.kill()

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield server.address
    asyncio.run_coroutine_threadsafe(stop(server), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_calls_and_queries_give_their_results(address: str) -> None:
    with SyncClient("bank", [address]) as client:
        client.ready(30)
        assert client.call("deposit", "alice", amount=5) == {"amount": 5}
        assert client.request("deposit", "alice", {"timeout": 1}) == {"timeout": 1}
        assert client.submit("deposit", "alice", {"n": 1}).result(30) == {"n": 1}
        assert client.call_many("deposit", ["a", "b"], [{"n": 1}, {"n": 2}]) == [{"n": 1}, {"n": 2}]
        assert client.query("balance", "alice", day=3) == {"day": 3}
        assert client.read(lambda c: c.session) == 100


def test_many_threads_share_one_client(address: str) -> None:
    with SyncClient("bank", [address]) as client, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: client.call("deposit", "alice", n=n)["n"], range(200)))
    assert results == list(range(200))


def test_time_limit_raises_the_same_error() -> None:
    with SyncClient("bank", ["127.0.0.1:1"]) as client, pytest.raises(PeerUnreachable):
        client.call("deposit", "alice", timeout=0.05)


def test_client_must_be_open() -> None:
    client = SyncClient("bank", ["127.0.0.1:1"])
    with pytest.raises(Closed, match="not started"):
        client.call("deposit", "alice")
    with pytest.raises(Closed, match="not started"):
        client.submit("deposit", "alice", {})
    with client:
        pass
    client.close()
    for use in (lambda: client.call("deposit", "alice"), lambda: client.submit("deposit", "alice", {})):
        with pytest.raises(Closed, match="is closed"):
            use()
    with client, pytest.raises(Closed):
        client.ready()


def test_client_that_was_never_opened_can_be_closed() -> None:
    SyncClient("bank", ["127.0.0.1:1"]).close()
