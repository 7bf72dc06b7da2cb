"""The blocking client: the same calls from threads without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from replica_in_thread import served

from deathless.base.errors import Closed, PeerUnreachable
from deathless.shell.client import sync_client as module
from deathless.shell.client.shard_client import Client
from deathless.shell.client.sync_client import SyncClient


@pytest.fixture
def address() -> Iterator[str]:
    """A primary in a thread of its own."""
    with served() as found:
        yield found


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


def test_close_ends_waits_without_a_limit_however_long_they_take_to_their_ends() -> None:
    client = SyncClient("bank", ["127.0.0.1:1"])

    async def slow() -> None:
        try:
            await client._client.ready()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)

    with ThreadPoolExecutor(2) as pool, client:
        waits = pool.submit(client.ready), pool.submit(client._wait, slow())
        while client.read(lambda c: len(c._ready)) < len(waits):
            pass
        client.close()
        for each in waits:
            with pytest.raises(Closed):
                each.result(30)
    assert not client._thread.is_alive()


def test_close_does_not_wait_for_ever_for_a_function_of_the_callers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    begun, goes_on = Event(), Event()

    def blocks(_: Client) -> bool:
        begun.set()
        return goes_on.wait(60)

    client = SyncClient("bank", ["127.0.0.1:1"])
    with ThreadPoolExecutor(1) as pool, client:
        reading = pool.submit(client.read, blocks)
        assert begun.wait(30)
        client.close()
        assert [record.__dict__["client"] for record in caplog.records] == ["deathless-bank"]
        with pytest.raises(Closed):
            client.call("deposit", "alice")
        goes_on.set()
        assert reading.result(30)
    client._thread.join(30)
    assert not client._thread.is_alive()
