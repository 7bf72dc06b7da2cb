"""The lock's contract on a real etcd, with contenders, and with members killed, frozen and wiped under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from etcd_server import EtcdCluster, EtcdMember

from deathless.base.errors import LockUnavailable
from deathless.engine.ports import Holder, ServiceRecord
from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.errors import EtcdUnavailable
from deathless.shell.lock_stores.etcd.lock import EtcdLock

pytestmark = [pytest.mark.asyncio, pytest.mark.etcd]

ANSWERED_WITHIN_S = 60.0  # nothing measures time here: a test that waits for longer hangs
RECORD = ServiceRecord("bank", b"i" * 16, 1, b"s" * 32, 7, "etcd", live=False)


@pytest.fixture(name="single")
def one_member(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdCluster(tmp_path) as cluster:
        yield cluster.members[0]


@pytest.fixture(name="three")
def three_members(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path, members=3) as cluster:
        yield cluster


@asynccontextmanager
async def locks(
    *urls: str, count: int = 1, renewed: bool = True, lease_ttl_s: int = 60
) -> AsyncIterator[list[EtcdLock]]:
    """Locks as each replica has one: a client of its own, the endpoints in an order of its own."""
    async with asyncio.timeout(ANSWERED_WITHIN_S), AsyncExitStack() as stack:
        opened = []
        for number in range(count):
            turned = urls[number % len(urls) :] + urls[: number % len(urls)]
            settings = EtcdSettings(endpoints=turned, attempt_timeout_s=0.5, call_timeout_s=2.0)
            client = await stack.enter_async_context(EtcdClient(settings))
            lock = EtcdLock(client, prefix="/deathless/default/bank/0/", lease_ttl_s=lease_ttl_s)
            opened.append(await stack.enter_async_context(lock) if renewed else lock)
        yield opened


async def taken(lock: EtcdLock, replica: str, nonce: bytes = b"n") -> Holder:
    """Take the lock whoever holds it, as often as somebody is faster or etcd is away."""
    attempt = 0
    while True:
        attempt += 1
        try:
            holder = await lock.take(replica, nonce + b"%d" % attempt, await lock.view())
        except LockUnavailable:
            continue
        if holder is not None:
            return holder


async def answered(lock: EtcdLock, holder: Holder) -> bool:
    """Ask for ownership until there is an answer."""
    while True:
        try:
            return await lock.owns(holder)
        except LockUnavailable:
            continue


# ---------------------------------------------------------------- the contract


async def test_first_reign_goes_through_every_step(single: EtcdMember) -> None:
    async with locks(single.url) as [lock]:
        assert (await lock.view())[:4] == (None, 0, 0, None)
        assert await lock.create_service(RECORD) == RECORD
        holder = await taken(lock, "r0")
        assert holder.epoch == 1
        assert await lock.owns(holder)
        revision = await lock.set_head(holder)
        assert await lock.go_live(holder)
        view = await lock.view()
        assert view[:4] == (msgspec.structs.replace(RECORD, live=True), 1, 1, holder)
        assert revision is not None
        assert revision <= view.revision
        await lock.release(holder)
        assert not await lock.owns(holder)
        assert (await lock.view())[1:4] == (1, 1, None)


async def test_start_finds_nothing_wrong_with_a_fresh_etcd(single: EtcdMember) -> None:
    async with locks(single.url) as [lock]:
        await lock.check()


async def test_service_is_created_once_whoever_tries(single: EtcdMember) -> None:
    async with locks(single.url, count=4, renewed=False) as contenders:
        records = [msgspec.structs.replace(RECORD, service_id=b"%d" % n * 16) for n in range(4)]
        standing = await asyncio.gather(
            *(lock.create_service(record) for lock, record in zip(contenders, records, strict=True))
        )
        assert standing[0] in records
        assert standing == [standing[0]] * 4


async def test_of_many_takers_exactly_one_wins_each_epoch(single: EtcdMember) -> None:
    async with locks(single.url, count=6) as contenders:
        for epoch in range(1, 6):
            seen = await asyncio.gather(*(lock.view() for lock in contenders))
            given = await asyncio.gather(
                *(
                    lock.take(f"r{n}", b"%d" % n, view)
                    for n, (lock, view) in enumerate(zip(contenders, seen, strict=True))
                )
            )
            winners = [holder for holder in given if holder is not None]
            assert [holder.epoch for holder in winners] == [epoch]
            owning = await asyncio.gather(*(lock.owns(winners[0]) for lock in contenders))
            assert owning == [True] * 6


async def test_stolen_lock_leaves_its_old_holder_nothing(single: EtcdMember) -> None:
    async with locks(single.url, count=2) as [first, second]:
        await first.create_service(RECORD)
        old = await taken(first, "r0")
        raw = first._client
        before = (await raw.range(first._lock)).kvs[0]
        new = await taken(second, "r1")
        after = (await raw.range(first._lock)).kvs[0]
        assert before.create_revision == after.create_revision  # why ownership is the value
        assert not await first.owns(old)
        assert await first.set_head(old) is None
        assert not await first.go_live(old)
        await first.release(old)
        await first.close()  # ends the old holder's lease
        assert await second.owns(new)
        assert await second.set_head(new) is not None


async def test_take_is_refused_after_any_change_even_one_that_was_undone(single: EtcdMember) -> None:
    async with locks(single.url, count=2) as [first, second]:
        await first.create_service(RECORD)
        seen = await second.view()
        holder = await taken(first, "r0")
        await first.release(holder)  # nobody holds it, as in `seen`
        assert await second.take("r1", b"m", seen) is None
        assert await second.take("r1", b"m", await second.view()) == Holder(2, "r1", b"m")


async def test_lock_of_a_replica_that_is_gone_for_good_comes_free(single: EtcdMember) -> None:
    async with locks(single.url, count=2, renewed=False, lease_ttl_s=2) as [first, second]:
        holder = await taken(first, "r0")  # and nobody renews
        view = await second.view()
        while view.holder is not None:
            view = await second.view()
        assert not await second.owns(holder)
        assert (view.epoch, view.holder) == (1, None)


async def test_holder_whose_lease_was_ended_holds_the_lock_again_unless_somebody_took_it(single: EtcdMember) -> None:
    async with locks(single.url, count=2) as [first, second]:
        holder = await taken(first, "r0")
        await end_lease(first)
        assert (await second.view()).holder is None
        assert await first.owns(holder)
        assert (await second.view()).holder == holder
        await end_lease(first)
        new = await taken(second, "r1")
        await end_lease(second)
        assert not await first.owns(holder), "its successor's lock is gone, not its successor"
        assert await second.owns(new)


async def lease_ttl(lock: EtcdLock, lease: int) -> int | None:
    """Ask etcd for the seconds that a lease has left; None: it has ended."""
    body = wire.encode_lease(lease_id=lease)
    answer = await lock._client._gateway.call("lease/timetolive", body, wire.LEASE, repeatable=True)
    return answer.ttl if answer.ttl >= 0 else None


async def end_lease(lock: EtcdLock) -> None:
    """End the lease that the lock hangs on, behind its holder's back."""
    assert lock._lease is not None
    assert await lock._client.lease_revoke(lock._lease)


async def test_lock_that_is_renewed_outlives_its_lease_time(single: EtcdMember) -> None:
    async with locks(single.url, lease_ttl_s=6) as [lock]:
        holder = await taken(lock, "r0")
        lease = lock._lease
        assert lease is not None
        left: list[int | None] = []
        # A lease nobody renews only sinks; this one is seen to rise again, so it lasts.
        while not (len(left) > 1 and left[-1] is not None and left[-2] is not None and left[-1] > left[-2]):
            left.append(await lease_ttl(lock, lease))
        assert await lock.owns(holder)


# ---------------------------------------------------------------- members that die, freeze, are wiped


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_holder_keeps_the_lock_when_the_leader_is_lost(three: EtcdCluster, how: str) -> None:
    async with locks(*three.urls, count=2) as [first, second]:
        holder = await taken(first, "r0")
        leader = three.leader()
        if how == "killed":
            leader.kill()
        else:
            leader.freeze()
        assert await answered(first, holder)
        assert await answered(second, holder)
        new = await taken(second, "r1")
        assert not await answered(first, holder)
        if how == "frozen":
            leader.thaw()
        assert not await answered(first, holder)
        assert await answered(second, new)


async def test_holder_keeps_the_lock_when_a_frozen_leader_wakes_and_ends_all_leases(three: EtcdCluster) -> None:
    # A leader that was frozen for longer than the leases last may revoke them all when it wakes, renewed or not.
    frozen = three.leader()
    urls = [url for url in three.urls if url != frozen.url]
    async with locks(*urls, lease_ttl_s=4) as [lock]:
        holder = await taken(lock, "r0")
        frozen.freeze()
        await wait_renewed(lock, 4)
        frozen.thaw()
        await wait_renewed(lock, 1)
        assert [await answered(lock, holder) for _ in range(20)] == [True] * 20
        assert (await lock.view()).holder == holder


async def wait_renewed(lock: EtcdLock, times: int) -> None:
    """Wait until etcd has lengthened this lock's lease so often, or granted it one more."""
    lease, left = lock._lease, 0
    while times:
        try:
            ttl = await lease_ttl(lock, lease) if lease is not None else None
        except EtcdUnavailable:
            continue
        times -= lock._lease != lease or (ttl is not None and ttl > left)
        lease, left = lock._lease, ttl or 0


async def test_member_that_was_frozen_over_a_steal_never_says_mine(three: EtcdCluster) -> None:
    frozen = three.follower()
    urls = (frozen.url, *(url for url in three.urls if url != frozen.url))
    async with locks(*urls, count=2) as [first, second]:
        holder = await taken(first, "r0")
        assert first._client.endpoint == frozen.url
        frozen.freeze()
        asking = asyncio.create_task(answered(first, holder))
        new = await taken(second, "r1")
        frozen.thaw()  # the question that waited in its socket is answered now, after the steal
        await asking  # whatever it said: it began before the steal ended
        assert [await answered(first, holder) for _ in range(20)] == [False] * 20
        assert await answered(first, new)


async def test_takers_through_a_dying_leader_never_share_an_epoch(three: EtcdCluster) -> None:
    async with locks(*three.urls, count=3) as contenders:
        epochs: list[int] = []

        async def take_often(number: int, lock: EtcdLock) -> None:
            for turn in range(8):
                holder = await taken(lock, f"r{number}", b"%d." % turn)
                epochs.append(holder.epoch)

        takers = asyncio.gather(*(take_often(number, lock) for number, lock in enumerate(contenders)))
        three.leader().kill()
        await takers
        assert len(set(epochs)) == len(epochs) == 24
        view = await contenders[0].view()
        assert view.epoch >= max(epochs)  # a take whose answer never came may have had one more


async def test_store_away_is_no_answer_and_store_back_is_the_same_lock(single: EtcdMember) -> None:
    async with locks(single.url) as [lock]:
        holder = await taken(lock, "r0")
        single.kill()
        with pytest.raises(LockUnavailable):
            await lock.owns(holder)
        with pytest.raises(LockUnavailable):
            await lock.view()
        await asyncio.to_thread(single.restart)
        assert await answered(lock, holder)


async def test_wiped_store_is_a_definite_no(single: EtcdMember) -> None:
    async with locks(single.url) as [lock]:
        holder = await taken(lock, "r0")
        single.kill()
        single.wipe()
        await asyncio.to_thread(single.restart)
        assert not await answered(lock, holder)
        assert (await lock.view())[:4] == (None, 0, 0, None)


async def test_data_brought_back_from_a_backup_is_a_definite_no(single: EtcdMember, tmp_path: Path) -> None:
    async with locks(single.url) as [lock]:
        holder = await taken(lock, "r0")
        single.kill()
        single.back_up(tmp_path / "backup")
        await asyncio.to_thread(single.restart)
        assert await lock.set_head(holder) is not None
        single.kill()
        single.wipe()
        single.bring_back(tmp_path / "backup")
        await asyncio.to_thread(single.restart)
        # The lock's value is ours again, in a store of the same id; only its revision tells.
        assert (await lock.view()).holder == holder
        assert not await answered(lock, holder)
