"""What a shard asks of its lock store, asked of every one (design 0003, "The lock and the fence").

A store is added to `STORES`: a function that opens one and gives `Connect`, which gives one more connection to it, as
another replica's process would have it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from etcd_server import EtcdCluster

from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock, FileSystem, Holder, ServiceRecord
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.lock import EtcdLock
from deathless.simulation.world.disk import SimDisk

pytestmark = pytest.mark.asyncio

Connect = Callable[[str], Awaitable[AsyncLock]]
Store = Callable[[Path], contextlib.AbstractAsyncContextManager[Connect]]

RECORD = ServiceRecord("bank", b"0123456789abcdef", 7, bytes(32), 1, "seal", live=False)


def _directory(view: Callable[[str], FileSystem]) -> Connect:
    async def connect(name: str) -> AsyncLock:
        lock = DirectoryLock(view(name), process=f"{name}.drawn", fresh_store_id=f"drawn by {name}")
        lock.prepare()
        return SyncToAsync(lock)

    return connect


@contextlib.asynccontextmanager
async def real_directory(folder: Path) -> AsyncIterator[Connect]:
    """The directory lock on the real file system."""
    yield _directory(lambda _: RealFileSystem(folder))


@contextlib.asynccontextmanager
async def simulated_directory(_: Path) -> AsyncIterator[Connect]:
    """The directory lock on the simulated disk."""
    disk = SimDisk(random.Random(1))
    yield _directory(disk.view)


@contextlib.asynccontextmanager
async def real_etcd(folder: Path) -> AsyncIterator[Connect]:
    """The lock in a real etcd."""
    with EtcdCluster(folder) as cluster:
        async with contextlib.AsyncExitStack() as stack:

            async def connect(_: str) -> AsyncLock:
                client = await stack.enter_async_context(EtcdClient(EtcdSettings(endpoints=cluster.urls)))
                return await stack.enter_async_context(EtcdLock(client, prefix="/deathless/default/bank/0/"))

            yield connect


STORES: dict[str, Store] = {
    "directory": real_directory,
    "simulated directory": simulated_directory,
    "etcd": real_etcd,
}


@pytest_asyncio.fixture(
    params=[pytest.param(name, marks=[pytest.mark.etcd] if name == "etcd" else []) for name in STORES]
)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    async with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture
async def lock(connect: Connect) -> AsyncLock:
    """A connection to a store that holds the service."""
    lock = await connect("r0")
    await lock.create_service(RECORD)
    return lock


async def taken(lock: AsyncLock, name: str) -> Holder:
    holder = await lock.take(name, f"nonce of {name}".encode(), await lock.view())
    assert holder is not None
    return holder


async def test_an_empty_store_knows_nothing(connect: Connect) -> None:
    view = await (await connect("r0")).view()
    assert (view.service, view.epoch, view.head, view.holder) == (None, 0, 0, None)


async def test_a_service_is_created_once_and_everyone_gets_the_first_record(connect: Connect) -> None:
    first, second = await connect("r0"), await connect("r1")
    assert await first.create_service(RECORD) == RECORD
    other = msgspec.structs.replace(RECORD, service_id=b"another one, 16!", incarnation=9)
    assert await second.create_service(other) == RECORD
    for each in (first, second):
        view = await each.view()
        assert view.service == RECORD
        assert view.store_id == (await first.view()).store_id != ""


async def test_a_record_is_created_as_not_live_whatever_it_says(lock: AsyncLock) -> None:
    service = (await lock.view()).service
    assert service is not None
    assert not service.live


async def test_taking_raises_the_epoch_and_sets_the_holder(lock: AsyncLock) -> None:
    holder = await taken(lock, "r0")
    view = await lock.view()
    assert (holder.epoch, holder.replica, holder.nonce) == (1, "r0", b"nonce of r0")
    assert (view.epoch, view.holder, view.head) == (1, holder, 0)
    assert await lock.owns(holder)


async def test_of_two_takes_with_one_look_one_succeeds(lock: AsyncLock, connect: Connect) -> None:
    other = await connect("r1")
    seen = await lock.view()
    first = await other.take("r1", b"1", seen)
    assert first is not None
    assert await lock.take("r0", b"0", seen) is None
    assert (await lock.view()).holder == first


async def test_a_living_holder_can_be_robbed_and_is_told_so(lock: AsyncLock, connect: Connect) -> None:
    old = await taken(lock, "r0")
    thief = await connect("r1")
    new = await taken(thief, "r1")
    assert new.epoch == old.epoch + 1
    assert not await lock.owns(old)
    assert await thief.owns(new)
    assert await lock.owns(new), "ownership is a fact of the store, whoever asks"


async def test_ownership_is_the_value_not_the_epoch_alone(lock: AsyncLock) -> None:
    holder = await taken(lock, "r0")
    for change in ({"nonce": b"other"}, {"replica": "r9"}, {"epoch": holder.epoch + 1}):
        assert not await lock.owns(msgspec.structs.replace(holder, **change))


async def test_head_is_set_by_the_holder_alone(lock: AsyncLock, connect: Connect) -> None:
    old = await taken(lock, "r0")
    assert await lock.set_head(old) is not None
    assert (await lock.view()).head == 1
    new = await taken(await connect("r1"), "r1")
    assert (await lock.view()).head == 1, "taking the lock does not move the head"
    assert await lock.set_head(old) is None
    assert await lock.set_head(new) is not None
    assert (await lock.view()).head == 2
    assert await lock.set_head(old) is None


async def test_a_deposed_holder_can_not_set_a_head_above_what_its_successor_read(
    lock: AsyncLock, connect: Connect
) -> None:
    old = await taken(lock, "r0")
    other = await connect("r1")
    await taken(other, "r1")
    assert (await other.view()).head == 0
    assert await lock.set_head(old) is None


async def test_a_head_set_after_the_look_makes_the_take_fail(lock: AsyncLock, connect: Connect) -> None:
    holder = await taken(lock, "r0")
    other = await connect("r1")
    seen = await other.view()
    await lock.set_head(holder)
    assert await other.take("r1", b"n", seen) is None
    assert (await taken(other, "r1")).epoch > holder.epoch


async def test_the_service_goes_live_by_the_holder_alone_and_stays_so(lock: AsyncLock, connect: Connect) -> None:
    old = await taken(lock, "r0")
    other = await connect("r1")
    new = await taken(other, "r1")
    assert not await lock.go_live(old)
    assert await other.go_live(new)
    assert await other.go_live(new)
    service = (await lock.view()).service
    assert service == msgspec.structs.replace(RECORD, live=True)
    assert await lock.create_service(RECORD) == service


async def test_a_released_lock_has_no_holder_and_its_epoch_is_never_given_again(lock: AsyncLock) -> None:
    holder = await taken(lock, "r0")
    await lock.release(holder)
    assert (await lock.view()).holder is None
    assert not await lock.owns(holder)
    assert await lock.set_head(holder) is None
    assert (await taken(lock, "r1")).epoch == 2


async def test_releasing_what_one_does_not_own_changes_nothing(lock: AsyncLock, connect: Connect) -> None:
    old = await taken(lock, "r0")
    other = await connect("r1")
    new = await taken(other, "r1")
    before = await lock.view()
    await lock.release(old)
    assert await lock.view() == before
    assert await other.owns(new)


async def test_the_revision_grows_with_every_change_and_with_nothing_else(lock: AsyncLock) -> None:
    revisions = [(await lock.view()).revision]

    async def changed() -> None:
        revisions.append((await lock.view()).revision)

    for number in range(4):
        holder = await taken(lock, "r0")
        await changed()
        if number % 2 == 0:
            assert await lock.set_head(holder) is not None
            await changed()
        if number == 1:
            await lock.go_live(holder)
            await changed()
        await lock.release(holder)
        await changed()
    assert revisions == sorted(set(revisions))
    assert (await lock.view()).revision == revisions[-1]


async def test_the_revision_of_set_head_is_not_above_a_later_view(lock: AsyncLock) -> None:
    revision = await lock.set_head(await taken(lock, "r0"))
    assert revision is not None
    assert revision <= (await lock.view()).revision


async def test_a_new_connection_sees_everything(lock: AsyncLock, connect: Connect) -> None:
    holder = await taken(lock, "r0")
    await lock.set_head(holder)
    fresh = await connect("r5")
    assert await fresh.view() == await lock.view()
    assert await fresh.owns(holder)
