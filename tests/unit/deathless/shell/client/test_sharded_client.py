"""A client of two shards, each a fake replica that says whom it is: keys choose, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from replica_fake import FakeShard, ReplicaServer

from deathless.base.errors import Closed, HandlerFailed, InvalidArgument, PeerUnreachable, TooLarge, UnknownService
from deathless.base.shards import shard_of
from deathless.codec.messages import decode
from deathless.codec.wire import Type, accepted_reply, error_reply, ok_reply
from deathless.core.client.link import State
from deathless.shell.client.shard_client import Client
from deathless.shell.client.sharded_client import ShardedClient
from deathless.shell.client.sync_client import SyncClient
from deathless.shell.directory.members import Member, write_member

pytestmark = pytest.mark.asyncio
SHARDS = 2
HERE, THERE = "bob", "alice"  # shards 0 and 1
KEYS = [f"k{number}" for number in range(40)]


class Served:
    """Two shards and their addresses."""

    def __init__(self) -> None:
        self.shards = [FakeShard(service=f"bank/{shard}/{SHARDS}") for shard in range(SHARDS)]
        self.servers = [ReplicaServer(shard, "r0") for shard in self.shards]

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def keys(self, shard: int) -> list[str]:
        """Keys of the messages that a shard ran."""
        return [decode(message).key.decode() for message in self.shards[shard].applied]


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """Both, running; each refuses whoever asks for another service."""
    both = Served()
    for server in both.servers:
        await server.start()
        server.replica.become("primary", 1, server.address)
    try:
        yield both
    finally:
        for server in both.servers:
            server.kill()


def bank(both: Served, **settings: object) -> Client:
    """A client that was told how many shards there are."""
    return Client("bank", both.addresses, shards=SHARDS, **settings)  # type: ignore[arg-type]  # of tests below


def announce(folder: Path, both: Served) -> str:
    """Write the directory of a service down."""
    (folder / "service.json").write_text('{"name": "bank", "shards": 2}')
    for shard, address in enumerate(both.addresses):
        write_member(str(folder / "shards" / str(shard)), Member(replica="r0", control="", client=address))
    return f"dir:{folder}"


async def test_each_call_and_query_goes_to_the_shard_of_its_key() -> None:
    async with served() as both, bank(both) as client:
        assert isinstance(client, ShardedClient)
        assert (client.service, client.shards, client.session) == ("bank", 2, 0)
        for key in KEYS:
            assert await client.call("deposit", key, amount=len(key)) == {"amount": len(key)}
            assert await client.query("balance", key, a=1) == {"a": 1}
        await client.submit("deposit", "{alice}.x", {})
        for shard in range(SHARDS):
            expected = [key for key in [*KEYS, "{alice}.x"] if shard_of(key.encode(), SHARDS) == shard]
            assert both.keys(shard) == expected
            assert 5 < len(expected) < 35


async def test_columns_come_back_in_the_order_they_were_given() -> None:
    async with served() as both, bank(both) as client:
        both.shards[0].run = lambda m: error_reply("DL3014", "ValueError", "no") if decode(m).key == b"bob" else echo(m)
        keys = [*KEYS, HERE]
        found = await client.call_many("deposit", keys, [{"n": n} for n in range(41)], return_errors=True)
        assert [each["n"] for each in found[:-1]] == list(range(40))
        assert isinstance(found[-1], HandlerFailed)
        with pytest.raises(HandlerFailed):
            await client.call_many("deposit", [THERE, HERE], [{}, {}])
        assert await client.call_many("deposit", [THERE], [{"n": 1}]) == [{"n": 1}]
        with pytest.raises(InvalidArgument):
            await client.call_many("deposit", KEYS, [{}])


def echo(message: bytes) -> bytes:
    """Answer with the arguments."""
    return ok_reply(decode(message).args)


async def test_a_link_is_made_when_it_is_needed_and_ready_makes_all() -> None:
    async with served() as both, bank(both) as client:
        assert (client.state, client.primary, client.refusal()) == (State.SEEKING, "", None)
        await client.call("deposit", THERE)
        assert client.primary == both.addresses[1]
        assert set(both.servers[0].replica.packets) <= {Type.HELLO}, "asked who it is at most"
        await client.ready(60)
        assert client.state is State.READY
        assert client.primary == ", ".join(both.addresses)
        assert client.shard(1) is client.shard(1)
        assert client.shard(1).shard(0) is client.shard(1)
    with pytest.raises(Closed):
        await client.call("deposit", THERE)


async def test_a_closed_client_makes_no_link() -> None:
    client = Client("bank", ["127.0.0.1:1"], shards=SHARDS)
    await client.close()
    assert client.state is State.CLOSED
    with pytest.raises(Closed):
        client.shard(0)


async def test_what_has_no_key_names_its_shard() -> None:
    async with served() as both, bank(both) as client:
        for work in (client.call("deposit", ""), client.query("balance", "")):
            with pytest.raises(InvalidArgument, match=r"client\.shard\(k\)"):
                await work
        await client.shard(1).call("deposit", "")
        assert both.keys(1) == [""]
        with pytest.raises(InvalidArgument, match="0 to 1"):
            client.shard(2)
        with pytest.raises(InvalidArgument, match="any shard"):
            client.attach_to(512, asyncio.get_running_loop().create_future())
        with pytest.raises(InvalidArgument, match="one of the shards"):
            client.give_up(asyncio.get_running_loop().create_future(), 1.0)


async def test_results_of_handlers_that_wait_come_from_their_shard() -> None:
    async with served() as both, bank(both) as client:
        for shard in range(SHARDS):
            both.shards[shard].run = lambda _: accepted_reply(512)
            both.servers[shard].replica.finish(512, ok_reply(msgspec.msgpack.encode(shard)))
        assert [await client.call("slow", key) for key in (HERE, THERE)] == [0, 1]
        assert [await client.result(name) for name in ("0-512", "1-512")] == [0, 1]
        assert await client.shard(1).result(512, result=int) == 1
        with pytest.raises(InvalidArgument, match="SHARD-NUMBER"):
            await client.result(512)


class Told:
    """One who wants bytes."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answered(self, reply: bytes) -> None:
        self.reply.set_result(reply)

    def failed(self, error: Exception) -> None:
        self.reply.set_exception(error)

    def refused(self, error: Exception) -> None:
        """Go on waiting."""


async def test_encoded_messages_go_to_the_shard_of_the_key_in_them() -> None:
    async with served() as both, bank(both) as client:
        told, asked = Told(), Told()
        client.submit_message(client.encode("deposit", THERE, {"amount": 1}, "k1"), told)
        client.ask_message(client.encode("balance", HERE, {}), asked, stale=True)
        assert (await told.reply)[0] == (await asked.reply)[0] == 0
        assert (both.keys(0), both.keys(1)) == ([], [THERE])
        with pytest.raises(TooLarge):
            client.encode("deposit", "k" * 600, {})


async def test_the_directory_says_how_many_shards_there_are(tmp_path: Path) -> None:
    async with served() as both:
        where = announce(tmp_path, both)
        async with Client("bank", [where]) as client:
            assert client.shards == 2
            assert await client.call("deposit", THERE, amount=1) == {"amount": 1}
        assert both.keys(1) == [THERE]
        with SyncClient("bank", ["127.0.0.1:1"], shards=2) as sync:
            assert sync.read(lambda client: client.shards) == 2
    assert Client("bank", [f"dir:{tmp_path / 'nowhere'}"]).shards == 1


async def test_a_client_that_reckons_with_another_number_is_refused() -> None:
    async with served() as both:
        for server in both.servers:
            server.replica.hello_refusal = (UnknownService.code, "this is service 'bank/0/2', not 'bank/0/3'")
        async with Client("bank", both.addresses, shards=3) as client:
            with pytest.raises((UnknownService, PeerUnreachable), match="bank/0/2"):
                await client.call("deposit", KEYS[0], timeout=60)
