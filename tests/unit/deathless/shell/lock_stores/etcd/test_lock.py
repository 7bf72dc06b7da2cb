"""The lock kept in etcd: each rule of its docstring, by faults that a real etcd can't be asked for.

The contract itself runs against a real etcd in tests/process/test_etcd_lock_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from etcd_fake import BAD_TOKEN, CLUSTER_ID, TIMED_OUT, FakeMember, FakeStore, Fault, Refusal

from deathless.base.errors import ForeignDirectory, InvalidConfig, LockUnavailable, LogTruncated
from deathless.codec.witness import Point, decode_point, encode_point
from deathless.engine.ports import AsyncLock, Holder, LockView, ServiceRecord
from deathless.shell.lock_stores.etcd.client import EtcdClient, EtcdSettings
from deathless.shell.lock_stores.etcd.errors import EtcdAuth, EtcdRefused, EtcdUnavailable
from deathless.shell.lock_stores.etcd.lock import EtcdLock, store_id
from deathless.shell.lock_stores.etcd.records import RangeResult

pytestmark = pytest.mark.asyncio

PREFIX = b"/deathless/default/bank/0/"
LOCK = PREFIX + b"lock"
RECORD = ServiceRecord("bank", b"i" * 16, 1, b"s" * 32, 7, "etcd", live=False)


@asynccontextmanager
async def locks(member: FakeMember, count: int = 1) -> AsyncIterator[list[EtcdLock]]:
    """Locks of as many replicas, without the task that renews (its requests would meet the planned faults)."""
    settings = EtcdSettings(endpoints=(member.url,), attempt_timeout_s=0.2, call_timeout_s=1)
    async with EtcdClient(settings) as client:
        yield [EtcdLock(client, prefix=PREFIX.decode()) for _ in range(count)]


async def taken(lock: EtcdLock, replica: str = "r0", nonce: bytes = b"n") -> Holder:
    holder = await lock.take(replica, nonce, await lock.view())
    assert holder is not None
    return holder


async def test_empty_store_shows_nothing() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        port: AsyncLock = lock
        expected = LockView(None, 0, 0, None, 1, store_id(CLUSTER_ID))
        assert await port.view() == expected
        assert expected.store_id == "etcd-00000000000000c1"


async def test_first_service_record_stands_whoever_comes_next() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        assert await first.create_service(RECORD) == RECORD
        assert await second.create_service(msgspec.structs.replace(RECORD, service_id=b"j" * 16)) == RECORD


async def test_values_can_be_read_by_people() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        await lock.create_service(RECORD)
        holder = await taken(lock)
        await lock.set_head(holder)
        values = {key.removeprefix(PREFIX): entry.value for key, entry in member.store.keys.items()}
        assert values[b"lock"] == b'[1,"r0","bg=="]'
        assert (values[b"epoch"], values[b"head"]) == (b"1", b"1")
        assert values[b"service"].startswith(b'["bank",')
        assert {key for key, entry in member.store.keys.items() if entry.lease} == {LOCK}


# ---------------------------------------------------------------- take


async def test_take_fails_when_anything_changed_since_it_was_seen() -> None:
    changes: list[Callable[[EtcdLock, Holder], Awaitable[object]]] = [
        lambda lock, holder: lock.set_head(holder),
        lambda lock, holder: lock.go_live(holder),
        lambda lock, holder: lock.release(holder),
        lambda lock, holder: taken(lock, "r2", b"x"),
    ]
    for change in changes:
        async with FakeMember() as member, locks(member, 2) as [first, second]:
            await first.create_service(RECORD)
            holder = await taken(first)
            seen = await second.view()
            await change(first, holder)
            epoch = (await second.view()).epoch
            assert await second.take("r1", b"m", seen) is None
            assert (await second.view()).epoch == epoch


async def test_take_fails_when_the_lock_was_put_again_with_the_same_value() -> None:
    # The create revision stays, the value too: only the last change tells.
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        await taken(first)
        seen = await second.view()
        member.store.put(LOCK, member.store.keys[LOCK].value, member.store.keys[LOCK].lease)
        assert await second.take("r1", b"m", seen) is None


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.SILENCE, Fault.DONE_THEN_SILENCE, TIMED_OUT])
async def test_take_whose_answer_was_lost_happens_once_and_is_recognised(fault: Fault | Refusal) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        seen = await lock.view()
        member.plan("kv/txn", fault, fault)
        holder = await lock.take("r0", b"n", seen)
        assert holder == Holder(1, "r0", b"n")
        assert (await lock.view()).epoch == 1
        assert await lock.owns(holder)


async def test_take_that_stays_without_an_answer_is_told_as_unknown() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        seen = await lock.view()
        member.plan("kv/txn", *[Fault.ANSWER_LOST] * 3)
        with pytest.raises(EtcdUnavailable) as caught:
            await lock.take("r0", b"n", seen)
        assert caught.value.outcome_unknown
        # As the docstring says, the next view shows it; from then on it is a reign as any other.
        assert (await lock.view()).holder == (holder := Holder(1, "r0", b"n"))
        backup = member.store.snapshot()
        assert await lock.set_head(holder) is not None
        assert await lock.owns(holder)
        member.store.restore(backup)
        assert not await lock.owns(holder)


async def test_take_of_another_whose_answer_was_lost_is_not_taken_for_ours() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        seen = await second.view()
        await taken(first)
        member.plan("kv/txn", Fault.ANSWER_LOST)
        assert await second.take("r1", b"m", seen) is None


async def test_take_with_a_lease_that_ended_gets_a_new_one() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        member.store.leases.clear()
        again = await taken(lock, nonce=b"o")
        assert (holder.epoch, again.epoch) == (1, 2)
        assert member.store.keys[LOCK].lease in member.store.leases


async def test_take_in_another_store_than_the_one_seen_does_not_count() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        seen = await lock.view()
        member.store.cluster_id += 1
        assert await lock.take("r0", b"n", seen) is None
        assert (await lock.view()).holder is None


# ---------------------------------------------------------------- owns


async def test_holder_owns_until_the_lock_is_stolen() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        holder = await taken(first)
        assert await first.owns(holder)
        assert await second.owns(holder)  # anybody may ask
        thief = await taken(second, "r1", b"m")
        assert not await first.owns(holder)
        assert await second.owns(thief)
        # What a check by create revision would have looked at did not change.
        assert member.store.keys[LOCK].create < member.store.keys[LOCK].mod


async def test_same_replica_and_epoch_with_another_nonce_is_another_holder() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        assert not await lock.owns(Holder(holder.epoch, holder.replica, b"other"))


async def test_store_with_another_cluster_id_owns_nothing() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        member.store.cluster_id += 1
        assert not await lock.owns(holder)
        assert await lock.set_head(holder) is None


async def test_store_restored_to_when_we_held_the_lock_owns_nothing() -> None:
    # Same cluster id, our own value in the lock: only the revision that went back tells.
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        backup = member.store.snapshot()
        assert await lock.set_head(holder) is not None
        member.store.restore(backup)
        assert not await lock.owns(holder)
        again = await taken(lock, nonce=b"o")
        assert await lock.owns(again)  # and a reign that begins in the restored store counts


async def test_reads_side_by_side_do_not_depose_each_other() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        assert await asyncio.gather(*(lock.owns(holder) for _ in range(20))) == [True] * 20


async def end_leases(member: FakeMember) -> None:
    """What an etcd does whose frozen leader wakes."""
    for lease in sorted(member.store.leases):
        member.store.execute("lease/revoke", {"ID": str(lease)})


@pytest.mark.parametrize("fault", [None, Fault.LOST, Fault.ANSWER_LOST])
async def test_lock_that_went_with_its_lease_is_put_back_by_its_holder(fault: Fault | None) -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        holder = await taken(first)
        await end_leases(member)
        assert not await second.owns(holder), "who asks about another's lock changes nothing"
        assert LOCK not in member.store.keys
        if fault is not None:
            member.plan("kv/txn", fault)
        assert await asyncio.gather(*(first.owns(holder) for _ in range(20))) == [True] * 20
        assert member.store.keys[LOCK].lease in member.store.leases
        assert (await second.view()).epoch == holder.epoch


async def test_lock_that_somebody_took_meanwhile_is_not_put_back() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        holder = await taken(first)
        thief = await taken(second, "r1", b"m")
        await end_leases(member)
        assert not await first.owns(holder)
        assert LOCK not in member.store.keys
        assert await second.owns(thief)


async def test_lock_that_was_given_up_is_not_put_back() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        await lock.release(holder)
        assert not await lock.owns(holder)
        assert LOCK not in member.store.keys


@pytest.mark.parametrize("other", ["cluster", "revision"])
async def test_lock_put_back_in_another_store_does_not_count(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        assert await lock.set_head(holder) is not None
        backup = member.store.snapshot()
        assert await lock.set_head(holder) is not None
        assert await lock.set_head(holder) is not None
        await end_leases(member)
        read = EtcdClient.range

        async def read_then_swap(client: EtcdClient, key: bytes) -> RangeResult:
            found = await read(client, key)
            if other == "cluster":
                member.store.cluster_id += 1
            else:  # to a state without the lock, before what was read
                member.store.restore(backup)
                del member.store.keys[LOCK]
            return found

        monkeypatch.setattr(EtcdClient, "range", read_then_swap)
        assert not await lock.owns(holder)


@pytest.mark.parametrize(
    "plan", [TIMED_OUT, Fault.SILENCE, Fault.LOST, Refusal(7, "etcdserver: permission denied", 403), BAD_TOKEN]
)
async def test_no_answer_is_neither_yes_nor_no(plan: Fault | Refusal) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        member.plan("kv/range", *[plan] * 60)
        with pytest.raises(LockUnavailable):
            await lock.owns(holder)


# ---------------------------------------------------------------- head, live, release


async def test_deposed_holder_changes_nothing() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        await first.create_service(RECORD)
        old = await taken(first)
        new = await taken(second, "r1", b"m")
        before = await second.view()
        assert await first.set_head(old) is None
        assert not await first.go_live(old)
        await first.release(old)
        assert await second.view() == before
        assert before.holder == new


async def test_holder_sets_head_goes_live_and_releases() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        await lock.create_service(RECORD)
        holder = await taken(lock)
        revision = await lock.set_head(holder)
        assert await lock.go_live(holder)
        view = await lock.view()
        assert view.head == holder.epoch
        assert view.service == msgspec.structs.replace(RECORD, live=True)
        assert revision is not None
        assert revision < view.revision
        await lock.release(holder)
        assert await lock.view() == view._replace(holder=None, revision=view.revision + 1)


async def test_service_that_nobody_created_does_not_go_live() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        assert not await lock.go_live(await taken(lock))


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST])
async def test_guarded_write_whose_answer_was_lost_is_sent_again(fault: Fault) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        member.plan("kv/txn", fault)
        assert await lock.create_service(RECORD) == RECORD
        holder = await taken(lock)
        member.plan("kv/txn", fault)
        assert await lock.set_head(holder) is not None
        member.plan("kv/txn", fault)
        assert await lock.go_live(holder)
        member.plan("kv/txn", fault)
        await lock.release(holder)
        assert (await lock.view()).holder is None


# ---------------------------------------------------------------- lease, waiting, start


async def test_open_lock_has_a_lease_before_it_is_needed_and_gives_it_back() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        async with lock:
            await member.wait_count("lease/keepalive", 1)
            await taken(lock)
            assert member.count("lease/grant") == 1
        assert member.store.leases == set()
        assert LOCK not in member.store.keys


async def test_end_of_the_old_holders_lease_leaves_the_thief_the_lock() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        await taken(first)
        thief = await taken(second, "r1", b"m")
        await first.close()
        assert await second.owns(thief)


async def test_renewing_goes_on_after_the_lease_ended_and_after_etcd_was_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deathless.shell.lock_stores.etcd.lock.RENEW_PAUSE_S", 0.0)
    async with FakeMember() as member, locks(member) as [lock]:
        member.plan("lease/keepalive", *[TIMED_OUT] * 12, Refusal(5, "etcdserver: requested lease not found", 404))
        async with lock:
            await member.wait_count("lease/grant", 2)
        assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("name", [b"service", b"epoch", b"head", b"lock"])
async def test_key_that_holds_something_else_is_named(name: bytes) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        member.store.put(PREFIX + name, b"{}")
        with pytest.raises(ForeignDirectory, match=name.decode()):
            await lock.view()


async def test_start_tells_wrong_credentials_from_a_store_that_is_away() -> None:
    async with FakeMember(password="pw") as member, locks(member) as [lock]:
        with pytest.raises(EtcdAuth):
            await lock.check()
        member.password = None
        await lock.check()
        member.plan("kv/range", *[TIMED_OUT] * 60)
        with pytest.raises(EtcdUnavailable):
            await lock.check()


@pytest.mark.parametrize("version", ["3.5.4", "3.4.23", "2.3.8", "", "new"])
async def test_etcd_that_may_answer_before_it_is_durable_is_refused(version: str) -> None:
    async with FakeMember(FakeStore(version=version)) as member, locks(member) as [lock]:
        with pytest.raises(EtcdRefused, match=r"3\.5\.5 or newer"):
            await lock.check()


@pytest.mark.parametrize("version", ["3.5.5", "3.5.30", "3.6.0-rc.1", "3.10.0", "4.0.0"])
async def test_newer_etcd_is_accepted(version: str) -> None:
    async with FakeMember(FakeStore(version=version)) as member, locks(member) as [lock]:
        await lock.check()


async def test_prefix_that_can_not_begin_keys_is_refused() -> None:
    async with EtcdClient(EtcdSettings(endpoints=("http://127.0.0.1:1",))) as client:
        for prefix in ("", "/", "/deathless", "deathless/", "/a//b/", "/../x/", "/a b/"):
            with pytest.raises(InvalidConfig, match="prefix"):
                EtcdLock(client, prefix=prefix)
        with pytest.raises(InvalidConfig, match="leaseTtlS"):
            EtcdLock(client, prefix="/deathless/bank/0/", lease_ttl_s=1)


# ---------------------------------------------------------------- the witness

CONFIRMED = PREFIX + b"confirmed"


def point(lsn: int, epoch: int = 1) -> Point:
    return Point(b"i" * 16, 1, epoch, lsn, bytes(16), 5, "r0")


def standing(member: FakeMember) -> Point | None:
    entry = member.store.keys.get(CONFIRMED)
    return None if entry is None else decode_point(entry.value)


async def test_head_and_witness_are_set_at_one_moment_and_a_take_reads_what_stands() -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        holder = await taken(first)
        assert await first.confirmed(holder) is None
        assert await first.set_head(holder, point(10)) is not None
        assert await first.witness(holder, point(20)) is False
        assert (await first.view()).confirmed == standing(member) == point(20)
        later = await taken(second, "r1", b"m")
        assert await second.confirmed(later) == point(20)
        assert await second.set_head(later, point(25, 2)) is not None
        assert await first.witness(holder, point(21)) is None, "a deposed primary lowers nothing"
        assert standing(member) == point(25, 2)


async def test_a_release_writes_the_last_witness_with_it() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        await lock.set_head(holder, point(10))
        await lock.release(holder, point(30))
        assert LOCK not in member.store.keys
        assert standing(member) == point(30)
        assert CONFIRMED in lock.keys, "it goes when the service is erased"


@pytest.mark.parametrize("way", ["release", "witness"])
async def test_a_lease_that_ended_unnoticed_takes_no_witness_along(way: str) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        await lock.set_head(holder, point(10))
        await end_leases(member)
        assert LOCK not in member.store.keys
        if way == "release":
            await lock.release(holder, point(30))
            assert LOCK not in member.store.keys
        else:
            assert await lock.witness(holder, point(30)) is False
        assert standing(member) == point(30)


@pytest.mark.parametrize("way", ["release", "witness"])
async def test_a_lock_that_somebody_took_since_its_lease_ended_is_not_put_back_for_a_witness(way: str) -> None:
    async with FakeMember() as member, locks(member, 2) as [first, second]:
        holder = await taken(first)
        await first.set_head(holder, point(10))
        await end_leases(member)
        later = await taken(second, "r1", b"m")
        if way == "release":
            await first.release(holder, point(30))
        else:
            assert await first.witness(holder, point(30)) is None
        assert standing(member) == point(10)
        assert await second.owns(later)


@pytest.mark.parametrize("way", ["set_head", "witness"])
async def test_a_witness_whose_answer_was_lost_is_not_written_twice_and_no_error(way: str) -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        member.plan("kv/txn", Fault.ANSWER_LOST)
        if way == "set_head":
            assert await lock.set_head(holder, point(10)) is not None
        else:
            assert await lock.witness(holder, point(10)) is False
        assert standing(member) == point(10)
        assert await lock.witness(holder, point(11)) is False
        assert standing(member) == point(11)


async def test_another_point_under_our_reign_means_that_we_were_put_back_while_we_ran() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        await lock.set_head(holder, point(500))
        member.store.put(CONFIRMED, encode_point(point(1000)))
        with pytest.raises(LogTruncated, match="lsn 1000"):
            await lock.witness(holder, point(501))
        with pytest.raises(LogTruncated):
            await lock.set_head(holder, point(501))
        assert standing(member) == point(1000)


async def test_a_witness_that_somebody_removed_is_put_back_and_told() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        holder = await taken(lock)
        await lock.set_head(holder, point(500))
        del member.store.keys[CONFIRMED]
        assert await lock.witness(holder, point(501)) is True
        assert await lock.witness(holder, point(502)) is False
        assert standing(member) == point(502)


async def test_a_witness_that_is_not_ours_is_told() -> None:
    async with FakeMember() as member, locks(member) as [lock]:
        member.store.put(CONFIRMED, b"nonsense")
        with pytest.raises(ForeignDirectory, match="confirmed has a value that Deathless did not write"):
            await lock.view()
