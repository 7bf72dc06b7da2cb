"""Names of etcd's members are answered from memory while the name server says nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
from etcd_fake import FakeMember, Fault

from deathless.shell.lock_stores.etcd import name_cache as etcd_names
from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.gateway import Gateway
from deathless.shell.lock_stores.etcd.name_cache import Found, RememberingResolver
from deathless.shell.lock_stores.etcd.settings import EtcdSettings

pytestmark = pytest.mark.asyncio
FIRST, SECOND = "10.0.0.1", "10.0.0.2"


class NameServer:
    """Answers look-ups, fails them, or has them wait."""

    def __init__(self) -> None:
        self.address = FIRST
        self.fails = False
        self.hangs = False
        self.answers = threading.Event()  # set: those that hang go on
        self.asked: list[str] = []

    def __call__(self, host: str, family: socket.AddressFamily) -> Found:
        self.asked.append(host)
        if self.hangs:
            self.answers.wait()
        if self.fails:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, self.address)]


async def found(resolver: RememberingResolver, host: str = "etcd-0") -> str:
    (only,) = await resolver.resolve(host, 2379, socket.AF_UNSPEC)
    assert (only["hostname"], only["port"], only["family"]) == (host, 2379, socket.AF_INET)
    return only["host"]


async def closed(server: NameServer, look: Callable[[RememberingResolver], object]) -> None:
    """Run a test and let every look-up end."""
    resolver = RememberingResolver(server)
    try:
        await look(resolver)  # type: ignore[misc]
    finally:
        server.answers.set()
        await resolver.close()


async def test_name_is_looked_up_each_time_and_a_new_address_counts() -> None:
    server = NameServer()

    async def look(resolver: RememberingResolver) -> None:
        assert await found(resolver) == FIRST
        server.address = SECOND
        assert await found(resolver) == SECOND

    await closed(server, look)


async def test_name_server_that_hangs_or_fails_is_answered_for_from_memory() -> None:
    server = NameServer()

    async def look(resolver: RememberingResolver) -> None:
        await found(resolver)
        server.fails = True
        assert await found(resolver) == FIRST
        server.fails, server.hangs, server.address = False, True, SECOND
        assert await found(resolver) == FIRST
        assert await found(resolver) == FIRST
        assert len(server.asked) == 3, "one look-up at a time for a name"
        server.answers.set()
        while await found(resolver) != SECOND:
            pass

    await closed(server, look)


async def test_name_that_was_never_found_is_waited_for_and_its_failure_is_told() -> None:
    server = NameServer()
    server.fails = server.hangs = True

    async def look(resolver: RememberingResolver) -> None:
        asking = [asyncio.create_task(found(resolver)) for _ in range(2)]
        asking[0].cancel()  # whoever gives up takes nothing from the other
        server.answers.set()
        with pytest.raises(socket.gaierror):
            await asking[1]

    await closed(server, look)


async def test_all_names_are_learned_before_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_names, "REFRESH_S", 0.0)
    server = NameServer()

    async def look(resolver: RememberingResolver) -> None:
        learning = asyncio.create_task(resolver.learn(["etcd-0", "etcd-1", "etcd-0"]))
        while server.asked.count("etcd-1") < 3:  # noqa: ASYNC110  another thread counts
            await asyncio.sleep(0)
        learning.cancel()
        await asyncio.wait({learning})
        server.hangs = True
        assert [await found(resolver, name) for name in ("etcd-0", "etcd-1")] == [FIRST, FIRST]

    await closed(server, look)


async def test_member_is_reached_by_a_name_that_is_not_answered_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    server = NameServer()
    server.address = "127.0.0.1"
    monkeypatch.setattr(etcd_names, "look_up", server)
    monkeypatch.setattr(RememberingResolver.__init__, "__defaults__", (server,))
    async with FakeMember() as member:
        gateway = Gateway(EtcdSettings(endpoints=(member.url.replace("127.0.0.1", "etcd-0"),)))
        await gateway.open()
        try:
            while not server.asked:  # noqa: ASYNC110  another thread counts
                await asyncio.sleep(0)
            body = wire.encode_range(b"k", prefix=False, limit=0, serializable=False)
            await gateway.call("kv/range", body, wire.RANGE, repeatable=True)
            server.hangs = True
            member.plan("kv/range", Fault.LOST)  # so that it has to connect anew
            await gateway.call("kv/range", body, wire.RANGE, repeatable=True)
            assert member.count("kv/range") == 3
        finally:
            server.answers.set()
            await gateway.close()
