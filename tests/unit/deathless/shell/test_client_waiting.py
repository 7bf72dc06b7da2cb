"""The Python client and handlers that wait: results that come later, room for calls, and who gives up meanwhile."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from replica_fake import FakeShard, addresses, lead, served

from deathless.base.errors import (
    HandlerFailed,
    InvocationUnknown,
    OutcomeUnknown,
    Overloaded,
    TooLarge,
)
from deathless.codec.messages import decode
from deathless.codec.wire import accepted_reply, error_reply, ok_reply
from deathless.shell.client.shard_client import Client
from deathless.shell.client.sync_client import SyncClient

pytestmark = pytest.mark.asyncio


def accept(message: bytes) -> bytes:
    """The handler `now` answers at once, every other waits; the argument names the invocation."""
    told = decode(message)
    args = msgspec.msgpack.decode(told.args)
    return ok_reply(told.args) if told.method == b"now" else accepted_reply(args["one"])


def waiting_shard(**results: bytes) -> FakeShard:
    shard = FakeShard(run=accept)
    shard.results = {int(name[1:]): reply for name, reply in results.items()}
    return shard


THREE = ok_reply(msgspec.msgpack.encode(3))


async def test_a_call_gives_the_result_when_its_handler_has_ended() -> None:
    async with served(shard=waiting_shard()) as (_, servers), Client("bank", addresses(servers)) as client:
        call = asyncio.ensure_future(client.call("wait", "k", one=7))
        replica = servers[0].replica
        while not replica.attached:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        assert not call.done()
        replica.finish(7, THREE)
        assert await call == 3
        assert await client.call("wait", "k", one=7, result=int) == 3
        assert await client.submit("wait", "k", {"one": 7}) == 3


async def test_a_result_is_asked_of_the_successor() -> None:
    async with served(2, shard=waiting_shard()) as (_, servers), Client("bank", addresses(servers)) as client:
        call = asyncio.ensure_future(client.call("wait", "k", one=7))
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        servers[0].kill()
        lead(servers, 1, 2)
        while not servers[1].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        servers[1].replica.finish(7, THREE)
        assert await call == 3


async def test_columns_mix_results_of_now_and_later_in_their_order() -> None:
    failed = error_reply("DL3014", "Poor", "no")
    shard = waiting_shard(i1=THREE, i2=failed)
    async with served(shard=shard) as (_, servers), Client("bank", addresses(servers)) as client:
        assert await client.call_many("now", ["a", "b"], [{"one": 1}, {"one": 2}]) == [{"one": 1}, {"one": 2}]
        first, second = await client.call_many("wait", ["a", "b"], [{"one": 1}, {"one": 2}], return_errors=True)
        assert first == 3
        assert isinstance(second, HandlerFailed)
        with pytest.raises(HandlerFailed):
            await client.call_many("wait", ["a", "b"], [{"one": 1}, {"one": 2}])


async def test_anybody_can_wait_for_a_result_by_its_id() -> None:
    shard = waiting_shard(i5=THREE, i6=error_reply(InvocationUnknown.code, "InvocationUnknown", "6"))
    async with served(shard=shard) as (_, servers), Client("bank", addresses(servers)) as client:
        assert await client.result(5) == 3
        assert await client.result(5, result=int) == 3
        with pytest.raises(InvocationUnknown):
            await client.result(6)


async def test_a_result_that_does_not_come_in_time_is_unknown() -> None:
    async with served(shard=waiting_shard()) as (_, servers), Client("bank", addresses(servers)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call("wait", "k", one=7, timeout=0.05)
        assert len(client._machine.results) == 0


async def test_the_error_for_a_handler_that_still_waits_names_its_invocation() -> None:
    async with served(shard=waiting_shard()) as (_, servers), Client("bank", addresses(servers)) as client:
        await client.ready(30)
        future = asyncio.get_running_loop().create_future()
        client.attach_to(7, future)
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        told = client.give_up(future, 60)
        assert isinstance(told, OutcomeUnknown)
        assert "invocation 7" in told.message
        assert "timeout=None" in told.advice
    assert Client("bank", [], shards=3, shard=2)._label == "2-"


async def test_calls_whose_handlers_wait_have_a_maximum_too() -> None:
    async with (
        served(shard=waiting_shard()) as (_, servers),
        Client("bank", addresses(servers), queue_max=1) as client,
    ):
        first = asyncio.ensure_future(client.call("wait", "k", one=7))
        replica = servers[0].replica
        while not replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            client.submit("wait", "k", {"one": 8})
        with pytest.raises(Overloaded):
            await client.result(8)
        second = asyncio.ensure_future(client.call("now", "k", one=1))
        replica.finish(7, THREE)
        assert await first == 3
        assert await second == {"one": 1}


@pytest.mark.parametrize("typed", [None, int], ids=["plain", "typed"])
async def test_who_is_cancelled_while_its_handler_waits_is_not_kept_until_it_ends(typed: type[int] | None) -> None:
    async with (
        served(shard=waiting_shard()) as (_, servers),
        Client("bank", addresses(servers), queue_max=1) as client,
    ):
        for number in range(3):
            call = asyncio.ensure_future(client.call("wait", "k", one=number, result=typed))
            while len(servers[0].replica.attached) <= number:  # noqa: ASYNC110  as above
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len(client._machine.results) == 0


async def test_a_pending_call_that_is_cancelled_while_its_handler_waits_is_not_kept_either() -> None:
    async with served(shard=waiting_shard()) as (_, servers), Client("bank", addresses(servers)) as client:
        call = client.submit("wait", "k", {"one": 7})
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        assert len(client._machine.results) == 1
        call.cancel()
        await asyncio.sleep(0)
        assert len(client._machine.results) == 0


async def test_a_client_that_ends_tells_who_waits_for_a_result() -> None:
    async with served(shard=waiting_shard()) as (_, servers):
        client = Client("bank", addresses(servers))
        client.start()
        await client.ready()
        first = asyncio.ensure_future(client.result(7))
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        second = asyncio.ensure_future(client.result(8))
        await asyncio.sleep(0)
        await client.close()
        for call in (first, second):
            with pytest.raises(OutcomeUnknown):
                await call


async def test_a_blocking_client_waits_for_a_result_by_its_id() -> None:
    async with served(shard=waiting_shard(i5=THREE)) as (_, servers):

        def work() -> object:
            with SyncClient("bank", addresses(servers)) as client:
                return client.result(5, timeout=30.0), client.call("wait", "k", one=5)

        assert await asyncio.to_thread(work) == (3, 3)


# ---- room ----------------------------------------------------------------------------------------------------


async def test_room_goes_to_as_many_as_it_has_place_for_in_their_order_and_past_who_was_cancelled() -> None:
    async with (
        served(shard=waiting_shard()) as (_, servers),
        Client("bank", addresses(servers), queue_max=1) as client,
    ):
        first = asyncio.ensure_future(client.call("wait", "k", one=7))
        while not servers[0].replica.attached:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        others = [asyncio.ensure_future(client.call("wait", "k", one=8 + n)) for n in range(3)]
        await asyncio.sleep(0)
        woken = list(client._room)
        assert len(woken) == 3
        driver = client._driver
        assert driver is not None
        asked_in: list[int] = []

        def changed() -> None:
            client._changed()
            client._changed()  # another event, before anybody could go on
            if woken[0].done():
                asked_in.append(sum(future.done() for future in woken))
                others[0].cancel()  # in the moment in which there is room for it
                driver._changed = lambda: None  # nothing else happens that would let anybody in

        driver._changed = changed
        servers[0].replica.finish(7, THREE)
        assert await first == 3
        with pytest.raises(asyncio.CancelledError):
            await others[0]
        await asyncio.sleep(0)
        assert asked_in == [1]
        assert [future.done() for future in woken] == [True, True, False]
        driver._changed = client._changed
        while len(servers[0].replica.attached) < 2:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        assert servers[0].replica.attached[1][2] == 9
        for each in others[1:]:
            each.cancel()
        await asyncio.wait(others)


async def test_room_that_is_not_needed_after_all_is_for_the_next() -> None:
    async with (
        served(shard=waiting_shard()) as (_, servers),
        Client("bank", addresses(servers), queue_max=1) as client,
    ):
        first = asyncio.ensure_future(client.call("wait", "k", one=7))
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        long = "k" * 100_000  # which is seen when there is room
        refused = asyncio.ensure_future(client.call_many("now", [long], [{"one": 1}]))
        await asyncio.sleep(0)
        last = asyncio.ensure_future(client.call("now", "k", one=1))
        await asyncio.sleep(0)
        _, woken = client._room
        driver = client._driver
        assert driver is not None

        def changed() -> None:
            client._changed()
            if refused_first.done():
                driver._changed = lambda: None  # nothing else happens that would let anybody in

        refused_first = client._room[0]
        driver._changed = changed
        servers[0].replica.finish(7, THREE)
        assert await first == 3
        with pytest.raises(TooLarge):
            await refused
        await asyncio.sleep(0)
        assert woken.done()
        driver._changed = client._changed
        assert await last == {"one": 1}


@pytest.mark.parametrize("timed_out", [True, False], ids=["timed out", "cancelled"])
async def test_room_that_comes_because_somebody_gave_up_is_used(timed_out: bool) -> None:
    async with (
        served(shard=waiting_shard()) as (_, servers),
        Client("bank", addresses(servers), queue_max=1) as client,
    ):
        first = client.submit("wait", "k", {"one": 7})
        while not servers[0].replica.attached:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)
        second = asyncio.ensure_future(client.call("now", "k", one=1))
        await asyncio.sleep(0)
        [woken] = client._room
        if timed_out:
            client.give_up(first, 1.0)
        else:
            first.cancel()
            await asyncio.sleep(0)
        assert woken.done()
        assert await second == {"one": 1}
