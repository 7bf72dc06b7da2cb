"""The Python client against fake replicas on real sockets."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from replica_fake import FakeShard, addresses, lead, served

from deathless.base.errors import (
    Closed,
    HandlerFailed,
    InvalidArgument,
    InvalidConfig,
    NotPrimary,
    OutcomeUnknown,
    OutOfSpace,
    Overloaded,
    PeerUnreachable,
    SessionExpired,
    TooLarge,
    Unauthorized,
)
from deathless.base.limits import REFUSED_PAUSE_MAX_S
from deathless.codec.messages import decode
from deathless.codec.wire import Type, error_reply, ok_reply
from deathless.core.client.events import CompleteCalls
from deathless.core.client.link import State
from deathless.shell.client.shard_client import CALL_S, CHUNK, Client
from deathless.shell.client.sharded_client import ShardedClient
from deathless.shell.client.sync_client import SyncClient
from deathless.shell.client.waiters import Column, complete

pytestmark = pytest.mark.asyncio


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until something is so: a short limit is that of a call alone, however slow the machine is."""
    while not condition():  # noqa: ASYNC110  what it waits for has no event
        await asyncio.sleep(0)


class Answer(msgspec.Struct):
    amount: int


async def test_call_gives_the_handlers_result() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        assert await client.call("deposit", "alice", amount=5) == {"amount": 5}
        message = decode(shard.applied[0])
        assert (message.method, message.key, message.idempotency_key) == (b"deposit", b"alice", b"")
        assert client.state is State.READY
        assert client.session == 100
        assert client.primary == servers[0].address
        assert client.service == "bank"


async def test_result_has_the_type_asked_for() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers)) as client:
        assert await client.call("deposit", "alice", result=Answer, amount=5) == Answer(5)
        assert await client.query("balance", "alice", result=Answer, amount=5) == Answer(5)
        with pytest.raises(InvalidArgument, match="does not fit"):
            await client.call("deposit", "alice", result=int, amount=5)


async def test_idempotency_key_travels_in_the_message() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.call("deposit", "alice", idempotency_key="k1", amount=5)
        await client.submit("deposit", "alice", Answer(7), idempotency_key="k2")
        assert [decode(m).idempotency_key for m in shard.applied] == [b"k1", b"k2"]


async def test_calls_of_one_turn_of_the_loop_share_a_packet() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.ready()
        pending = [client.submit("deposit", "alice", {"amount": i}) for i in range(1000)]
        assert [r["amount"] for r in await asyncio.gather(*pending)] == list(range(1000))
        assert servers[0].replica.packets.count(Type.BATCH) == 1
        assert len(shard.applied) == 1000


async def test_a_call_beside_which_none_waits_leaves_at_once_and_those_behind_it_share_a_packet() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.ready()
        calls = [asyncio.ensure_future(client.call("deposit", "alice", amount=i)) for i in range(100)]
        await asyncio.sleep(0)  # each has begun
        assert client._machine.window.in_flight == 1
        assert [r["amount"] for r in await asyncio.gather(*calls)] == list(range(100))
        assert servers[0].replica.packets.count(Type.BATCH) == 2
        assert [decode(m).args for m in shard.applied] == [msgspec.msgpack.encode({"amount": i}) for i in range(100)]


async def test_columns_come_back_in_their_order() -> None:
    count = CHUNK + 10
    async with served() as (_, servers), Client("bank", addresses(servers)) as client:
        results = await client.call_many("deposit", ["k"] * count, [{"amount": i} for i in range(count)])
        assert [r["amount"] for r in results] == list(range(count))
        assert await client.call_many("deposit", [], []) == []
        with pytest.raises(InvalidArgument, match="1 keys but 2"):
            await client.call_many("deposit", ["k"], [{}, {}])


async def test_failed_handler_raises_its_recorded_type_and_text() -> None:
    shard = FakeShard(run=lambda m: error_reply("DL3014", "TooPoor", "no") if b"bad" in m else ok_reply(b"\x01"))
    async with served(shard=shard) as (_, servers), Client("bank", addresses(servers)) as client:
        with pytest.raises(HandlerFailed) as caught:
            await client.call("bad", "alice")
        assert (caught.value.kind, caught.value.message) == ("TooPoor", "no")
        with pytest.raises(HandlerFailed):
            await client.call("bad", "alice", result=int)
        with pytest.raises(HandlerFailed):
            await client.call_many("deposit", ["a", "bad"], [{}, {}])
        good, bad = await client.call_many("deposit", ["a", "bad"], [{}, {}], return_errors=True)
        assert good == 1
        assert isinstance(bad, HandlerFailed)
        shard.run = lambda _: b"\x01junk"
        with pytest.raises(Exception, match="can't be read"):
            await client.call("deposit", "alice")


async def test_query_is_answered_and_never_logged() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        assert await client.query("balance", "alice", day=1) == {"day": 1}
        assert await client.query("balance", "alice", stale=True) == {}
        assert shard.applied == []


async def test_client_follows_the_primary_through_a_takeover() -> None:
    async with served(3) as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.call("deposit", "alice", n=1)
        servers[0].replica.muted = True
        lost = client.submit("deposit", "alice", {"n": 2})
        await client.query("balance", "alice")  # the call before it has arrived
        servers[0].kill()
        lead(servers, 2, 2)
        assert await lost == {"n": 2}
        assert await client.call("deposit", "alice", n=3) == {"n": 3}
        assert len(shard.applied) == 3, "once each"
        assert client.primary == servers[2].address


async def test_frozen_primary_is_left_for_its_successor() -> None:
    async with served(2) as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.ready()
        servers[0].replica.freeze()
        pending = client.submit("deposit", "alice", {"n": 1})
        servers[1].opened.clear()
        await servers[1].opened.wait()
        lead(servers, 1, 2)
        assert await pending == {"n": 1}
        assert len(shard.applied) == 1


async def test_directory_of_the_shard_names_the_replicas(tmp_path: Path) -> None:
    folder = tmp_path / "members"
    async with served() as (_, servers), Client("bank", [f"dir:{tmp_path}"]) as client:
        first = asyncio.ensure_future(client.call("deposit", "alice", n=1))
        await asyncio.sleep(0)
        folder.mkdir()
        (folder / "junk.json").write_text("{")
        (folder / "r0.json").write_text(json.dumps({"replica": "r0", "control": "", "client": servers[0].address}))
        assert await first == {"n": 1}


async def test_address_must_be_host_and_port() -> None:
    with pytest.raises(InvalidConfig, match="nowhere"):
        Client("bank", ["nowhere"])


# ---- time limits -----------------------------------------------------------------------------------------------


async def test_time_limit_of_a_sent_call_leaves_its_outcome_unknown_and_the_call_in_the_session() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.ready()
        servers[0].replica.freeze()
        with pytest.raises(OutcomeUnknown, match="within 0"):
            await client.call("deposit", "alice", timeout=0.05, n=1)
        servers[0].replica.thaw()
        assert await client.call("deposit", "alice", timeout=30, n=2) == {"n": 2}
        assert len(shard.applied) == 2


async def test_time_limit_without_any_replica_says_so_and_nothing_was_done() -> None:
    async with served() as (shard, servers):
        servers[0].kill()
        async with Client("bank", addresses(servers)) as client:
            with pytest.raises(PeerUnreachable, match="no replica of bank"):
                await client.call("deposit", "alice", timeout=0.05)
            with pytest.raises(PeerUnreachable):
                await client.ready(0.05)
            with pytest.raises(PeerUnreachable):
                await client.query("balance", "alice", timeout=0.05)
        assert shard.applied == []


async def test_time_limit_without_a_primary_says_so() -> None:
    async with served() as (_, servers):
        servers[0].replica.become("standby", 1, "")
        async with Client("bank", addresses(servers)) as client:
            await until(lambda: client._machine.connected)
            with pytest.raises(NotPrimary, match="knew no primary"):
                await client.call("deposit", "alice", timeout=0.3)


@pytest.mark.parametrize("kind", [Client, ShardedClient, SyncClient])
@pytest.mark.parametrize("name", ["call", "request", "query", "call_many", "ask"])
async def test_whoever_names_no_limit_waits_a_minute(kind: type[Client | SyncClient], name: str) -> None:
    if not (kind is SyncClient and name == "ask"):
        assert inspect.signature(getattr(kind, name)).parameters["timeout"].default == CALL_S == 60.0


async def test_time_limit_counts_the_wait_for_room_too() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers), queue_max=1, window_max=1) as client:
        await client.ready(30)
        servers[0].replica.muted = True
        pending = [client.submit("deposit", "alice", {"n": 1})]
        await client.query("balance", "alice")
        pending.append(client.submit("deposit", "alice", {"n": 2}))
        with pytest.raises(Overloaded, match=r"no room within 0\.1 s"):
            await client.call("deposit", "alice", n=3, timeout=0.1)
        with pytest.raises(Overloaded):
            await client.call_many("deposit", ["alice"], [{"n": 4}], timeout=0.1)
        for each in pending:
            each.cancel()
    assert len(shard.applied) == 1


async def test_columns_without_a_reply_end_as_errors_and_what_was_never_sent_is_not_sent() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers), window_max=2) as client:
        await client.ready(30)
        servers[0].replica.muted = True
        args = [{"n": n} for n in range(4)]
        found = await client.call_many("deposit", ["k"] * 4, args, return_errors=True, timeout=0.2)
        assert [type(each) for each in found[:2]] == [OutcomeUnknown] * 2
        assert [type(each) for each in found[2:]] == [PeerUnreachable] * 2
        assert client._machine.window.queued == 0
        with pytest.raises(PeerUnreachable, match="leads, but did not answer"):
            await client.call_many("deposit", ["k"], [{"n": 5}], timeout=0.1)
    assert len(shard.applied) == 2


async def test_columns_that_go_on_have_all_the_time_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (_, servers), Client("bank", addresses(servers)) as client:
        column = Column(3, asyncio.get_running_loop().create_future())
        places = [(column, place) for place in range(3)]
        late = [ok_reply(b"\x01"), ok_reply(b"\x02")]

        async def a_limit_passes(_of: object, **limit: float) -> None:
            assert limit == {"timeout": 7.0}
            if late:  # one reply comes in this time
                complete(CompleteCalls(waiters=[places[len(late)]], replies=[late.pop()]), client.attach_to)

        monkeypatch.setattr(asyncio, "wait", a_limit_passes)
        await client._wait_column(column, places, 7.0)
        assert [type(reply) for reply in column.replies] == [OutcomeUnknown, bytes, bytes]


async def test_columns_whose_caller_is_cancelled_are_not_sent_any_more() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers), window_max=1) as client:
        await client.ready(30)
        servers[0].replica.muted = True
        column = asyncio.ensure_future(client.call_many("deposit", ["k"] * 3, [{}] * 3))
        await client.query("balance", "k")
        assert client._machine.window.queued == 2
        column.cancel()
        with pytest.raises(asyncio.CancelledError):
            await column
        assert client._machine.window.queued == 0


async def test_time_limit_without_a_session_says_why_the_primary_gave_none() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        servers[0].replica.registration_refusal = ("DL1003", 1)
        await until(lambda: client._machine.unregistered)
        with pytest.raises(OutOfSpace, match="no session: DL1003"):
            await client.call("deposit", "alice", timeout=0.3)
        servers[0].replica.registration_refusal = None
        await client.call("deposit", "alice", timeout=30)
        assert len(shard.applied) == 1


async def test_time_limit_while_the_primary_is_silent_does_not_say_that_there_is_none() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers)) as client:
        servers[0].replica.dropping = True
        await until(lambda: client.state is State.REGISTERING)
        with pytest.raises(PeerUnreachable, match="leads, and registered no session"):
            await client.call("deposit", "alice", timeout=0.3)


async def test_time_limit_while_the_service_is_full_gives_its_refusal() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers), window_max=1) as client:
        assert client.refusal() is None
        await client.ready(30)
        servers[0].replica.refusals = [("DL1003", 60_000)]
        first = client.submit("deposit", "alice", {})
        await until(client.refusal)
        with pytest.raises(OutOfSpace) as caught:
            await client.call("deposit", "alice", timeout=0.2)
        # A minute was asked for: nobody is made to wait longer than the limit, and its chance part.
        assert 0 < caught.value.retry_after_s <= 1.5 * REFUSED_PAUSE_MAX_S
        assert isinstance(client.refusal(), OutOfSpace)
        assert not first.done()
        first.cancel()


async def test_cancelled_call_stays_in_the_session_and_disturbs_nobody() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.ready()
        first = client.submit("deposit", "alice", {"n": 1})
        first.cancel()
        typed = asyncio.ensure_future(client.call("deposit", "alice", result=Answer, amount=1))
        await asyncio.sleep(0)
        typed.cancel()
        assert await client.call("deposit", "alice", n=3) == {"n": 3}
        assert len(shard.applied) == 3


async def test_cancelled_call_and_query_that_were_never_sent_are_not_sent_later() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers), window_max=1) as client:
        servers[0].replica.become("standby", 1)
        asked = [
            asyncio.ensure_future(client.call("deposit", "alice", n=1)),
            asyncio.ensure_future(client.query("balance", "alice")),
        ]
        while not (client._machine.window.queued and len(client._machine.queries)):  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        assert (client._machine.window.queued, len(client._machine.queries)) == (0, 0)
        lead(servers, 0, 2)
        assert await client.call("deposit", "alice", n=3) == {"n": 3}
        assert len(shard.applied) == 1


# ---- maxima ----------------------------------------------------------------------------------------------------


async def test_full_queue_refuses_submit_and_lets_others_wait() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers), queue_max=3, window_max=2) as client:
        pending = [client.submit("deposit", "alice", {"n": i}) for i in range(3)]
        with pytest.raises(Overloaded, match="3 calls are already waiting"):
            client.submit("deposit", "alice", {})
        waited = asyncio.ensure_future(client.call("deposit", "alice", n=9))
        many = asyncio.ensure_future(client.call_many("deposit", ["k"] * 5, [{}] * 5))
        assert [r["n"] for r in await asyncio.gather(*pending)] == [0, 1, 2]
        assert await waited == {"n": 9}
        assert len(await many) == 5


async def test_too_many_queries_are_refused() -> None:
    async with served() as (_, servers), Client("bank", addresses(servers), queue_max=1) as client:
        first = asyncio.ensure_future(client.query("balance", "alice"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await client.query("balance", "alice")
        assert await first == {}


@pytest.mark.parametrize("key", ["", "k"])
async def test_long_keys_and_messages_are_refused_before_they_are_sent(key: str) -> None:
    idempotency_key = key or None
    async with served(shard=FakeShard(message_bytes_max=100)) as (shard, servers):
        async with Client("bank", addresses(servers)) as client:
            with pytest.raises(TooLarge):
                await client.call("deposit", "x" * 513, idempotency_key=idempotency_key)
            with pytest.raises(TooLarge):
                await client.call("x" * 70_000, "alice", idempotency_key=idempotency_key)
            with pytest.raises(TooLarge):
                await client.call("deposit", "alice", idempotency_key=idempotency_key, text="x" * 100)
            with pytest.raises(InvalidArgument):
                await client.call("deposit", "alice", idempotency_key=idempotency_key, what=object())
            with pytest.raises(InvalidArgument, match="zero byte"):
                await client.call("deposit", "\0alice", idempotency_key=idempotency_key)
        assert shard.applied == []


async def test_kept_prefixes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.shell.client.shard_client.PREFIXES_MAX", 2)
    client = Client("bank", ["127.0.0.1:1"])
    for name in ("a", "b", "c", "a"):
        for key in ("x", "y", "z", "x"):
            message = decode(client.encode(name, key, {}))
            assert (message.method, message.key) == (name.encode(), key.encode())
    assert max(len(client._prefixes), *(len(keys) for keys in client._prefixes.values())) <= 2


# ---- end and refusals ------------------------------------------------------------------------------------------


async def test_client_must_be_open() -> None:
    client = Client("bank", ["127.0.0.1:1"])
    with pytest.raises(Closed, match="not started"):
        client.submit("deposit", "alice", {})
    assert client.refusal() is None
    await client.close()
    await client.close()
    client.start()
    with pytest.raises(Closed, match="is closed"):
        await client.call("deposit", "alice")


async def test_close_tells_every_caller_what_is_known() -> None:
    async with served() as (_, servers):
        client = Client("bank", addresses(servers), queue_max=2, window_max=1)
        client.start()
        await client.ready()
        servers[0].replica.freeze()
        sent = client.submit("deposit", "alice", {})
        column = asyncio.ensure_future(client.call_many("deposit", ["k"], [{}]))
        waiting = asyncio.ensure_future(client.call("deposit", "alice"))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await sent
        with pytest.raises(Closed):
            await column
        with pytest.raises(Closed):
            await waiting


async def test_close_while_waiting_for_a_primary_ends_the_waiting() -> None:
    async with served() as (_, servers):
        servers[0].kill()
        client = Client("bank", addresses(servers))
        client.start()
        ready = asyncio.ensure_future(client.ready())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(Closed):
            await ready


async def test_expired_session_is_told_and_the_next_call_goes_on() -> None:
    async with served() as (shard, servers), Client("bank", addresses(servers)) as client:
        await client.call("deposit", "alice")
        shard.sessions.clear()
        with pytest.raises(SessionExpired):
            await client.call("deposit", "alice")
        await client.ready()
        shard.sessions.clear()
        with pytest.raises(SessionExpired):
            await client.call("deposit", "alice", result=Answer)
        assert await client.call("deposit", "alice", n=1) == {"n": 1}


async def test_wrong_token_is_told() -> None:
    async with served() as (_, servers):
        servers[0].replica.hello_refusal = ("DL3010", "token is missing or wrong")
        async with Client("bank", addresses(servers), token="no") as client:
            with pytest.raises(Unauthorized):
                await client.call("deposit", "alice")
