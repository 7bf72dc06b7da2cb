"""What can befall the erasing of a service's keys that a real etcd can't be asked for; the rest is tests/process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from etcd_fake import FakeMember, Fault, Refusal

from deathless.base.config import EtcdConfig
from deathless.base.errors import (
    ForeignDirectory,
    InvalidArgument,
    InvalidConfig,
    LockUnavailable,
    StillServing,
    Unauthorized,
)
from deathless.engine.ports import Holder, LockView, ServiceRecord
from deathless.shell.lock_stores import erasing as module
from deathless.shell.lock_stores.erasing import EraseOrder, erase, found_in, look, read_order
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.lock import EtcdLock

pytestmark = pytest.mark.asyncio

PREFIX = "/deathless/default/"
RECORD = ServiceRecord("bank", b"i" * 16, 1, b"s" * 32, 7, "etcd", live=False)
REFUSED = Refusal(7, "etcdserver: permission denied", 403)


@asynccontextmanager
async def store(*, record: ServiceRecord = RECORD) -> AsyncIterator[tuple[FakeMember, EraseOrder]]:
    """A store that knows a service, whose lock is free."""
    async with FakeMember() as member:
        settings = EtcdSettings(endpoints=(member.url,))
        async with EtcdClient(settings) as client:
            lock = EtcdLock(client, prefix=f"{PREFIX}bank/0/")
            await lock.create_service(record)
            holder = await lock.take("r0", b"n", await lock.view())
            assert holder is not None
            await lock.set_head(holder)
            await lock.release(holder)
        yield member, EraseOrder(service="bank", etcd=EtcdConfig(endpoints=(member.url,), prefix=PREFIX))


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST])
async def test_answer_that_is_lost_is_found_out_by_a_look(fault: Fault) -> None:
    async with store() as (member, order):
        # Three sendings without an answer end the try; whether the first one was done, the next look tells.
        member.plan("kv/txn", fault, fault, fault)
        found = await erase(order, wait_s=60.0, quiet_s=0.0)
        assert len(found.keys) == 3 and found.service_id == RECORD.service_id.hex()
        assert not member.store.keys


async def test_store_that_gives_no_answer_is_told_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    async with store() as (member, order):
        member.plan("kv/range", *[Refusal(14, "etcdserver: request timed out", 503)] * 1000)
        with pytest.raises(LockUnavailable):
            await erase(order, wait_s=0.0, quiet_s=0.0)
        assert len(member.store.keys) == 3


async def test_store_that_refuses_the_user_is_told_at_once() -> None:
    async with store() as (member, order):
        member.plan("kv/range", REFUSED)
        with pytest.raises(Unauthorized, match="permission denied"):
            await erase(order, wait_s=60.0, quiet_s=0.0)
        assert len(member.store.keys) == 3


async def test_keys_of_a_service_of_another_name_are_not_erased() -> None:
    async with store(record=msgspec.structs.replace(RECORD, name="shop")) as (member, order):
        with pytest.raises(ForeignDirectory, match="'shop'"):
            await erase(order, wait_s=0.0, quiet_s=0.0)
        assert len(member.store.keys) == 3


async def test_service_that_is_seen_first_is_the_only_one_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    async with store() as (member, order):
        erases = EtcdLock.erase

        async def late(lock: EtcdLock, seen: LockView) -> bool:
            """Another erases it and a service begins anew, before ours does anything."""
            monkeypatch.setattr(EtcdLock, "erase", erases)
            assert await lock.erase(seen)
            await lock.create_service(msgspec.structs.replace(RECORD, service_id=b"j" * 16))
            return await erases(lock, seen)

        monkeypatch.setattr(EtcdLock, "erase", late)
        with pytest.raises(ForeignDirectory, match="was created anew"):
            await erase(order, wait_s=60.0, quiet_s=0.0)
        assert len(member.store.keys) == 1


async def test_nothing_is_erased_where_a_replica_takes_the_lock_while_all_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with store() as (member, order), EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
        lock = EtcdLock(client, prefix=f"{PREFIX}bank/0/")
        views = module._Eraser.views

        async def taken_behind_the_first_look(eraser: module._Eraser) -> list[LockView]:
            monkeypatch.setattr(module._Eraser, "views", views)
            seen = await views(eraser)
            assert await lock.take("r1", b"m", await lock.view()) is not None
            return seen

        monkeypatch.setattr(module._Eraser, "views", taken_behind_the_first_look)
        with pytest.raises(StillServing, match="changes again and again"):
            await erase(order, wait_s=0.0, quiet_s=0.0)
        with pytest.raises(StillServing, match="replica r1 holds"):
            await erase(order, wait_s=0.0, quiet_s=0.0)
        assert len(member.store.keys) == 4


async def test_writes_of_other_services_do_not_end_the_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    async with store() as (member, order), EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
        views = module._Eraser.views

        async def with_another_write(eraser: module._Eraser) -> list[LockView]:
            await client.put(b"/deathless/default/shop/0/epoch", b"7")
            return await views(eraser)

        monkeypatch.setattr(module._Eraser, "views", with_another_write)
        assert len((await erase(order, wait_s=60.0, quiet_s=0.0)).keys) == 3
        assert [*member.store.keys] == [b"/deathless/default/shop/0/epoch"]


async def test_holder_that_lets_go_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    async with store() as (member, order), EtcdClient(EtcdSettings(endpoints=(member.url,))) as client:
        lock = EtcdLock(client, prefix=f"{PREFIX}bank/0/")
        holder = await lock.take("r1", b"m", await lock.view())
        assert holder is not None
        erasing = asyncio.create_task(erase(order, wait_s=60.0, quiet_s=0.0))
        await member.wait_count("kv/range", member.count("kv/range") + 6)  # it looked more than once
        assert len(member.store.keys) == 4
        await lock.release(holder)
        await erasing
        assert not member.store.keys


async def test_look_tells_who_holds_the_lock() -> None:
    async with store() as (_, order):
        found = await look(order)
        assert (found.epoch, found.head, found.holder) == (1, 1, "")
    view = LockView(None, 2, 1, Holder(2, "r1", b"n"), 5, "etcd-c1")
    assert (found_in([view], ("k",)).holder, found_in([view], ("k",)).service_id) == ("r1", "")


async def test_order_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidArgument, match="--order"):
        read_order("{}")
    with pytest.raises(InvalidConfig, match="slash"):
        await look(EraseOrder(service="bank", etcd=EtcdConfig(prefix="/deathless")))
    with pytest.raises(InvalidConfig, match="slash"):
        await look(EraseOrder(service="ba/nk", etcd=EtcdConfig()))


async def test_keys_of_all_shards_go_once_none_is_held() -> None:
    async with FakeMember() as member:
        settings = EtcdSettings(endpoints=(member.url,))
        etcd = EtcdConfig(endpoints=(member.url,), prefix=PREFIX)
        ids = (b"i" * 16, b"j" * 16)
        order = EraseOrder(service="bank", etcd=etcd, shards=2, shard_ids=tuple(each.hex() for each in ids))
        async with EtcdClient(settings) as client:
            locks = [EtcdLock(client, prefix=f"{PREFIX}bank/{shard}/") for shard in (0, 1)]
            for shard, lock in enumerate(locks):
                name = f"bank/{shard}/2"
                await lock.create_service(msgspec.structs.replace(RECORD, name=name, service_id=ids[shard]))
            holder = await locks[1].take("r0", b"n", await locks[1].view())
            assert holder is not None
            with pytest.raises(StillServing, match="replica r0 holds"):
                await erase(order, wait_s=0.0, quiet_s=0.0)
            assert (await locks[0].view()).service is not None, "nothing goes while one shard is held"
            await locks[1].release(holder)
            with pytest.raises(ForeignDirectory, match="was created anew"):
                await erase(msgspec.structs.replace(order, shard_ids=order.shard_ids[::-1]), wait_s=0.0, quiet_s=0.0)
            with pytest.raises(ForeignDirectory, match="is not this service's"):
                await erase(EraseOrder(service="bank", etcd=etcd), wait_s=0.0, quiet_s=0.0)
            assert (await erase(order, wait_s=0.0, quiet_s=0.0)).service_id == ids[0].hex()
        assert not member.store.keys
