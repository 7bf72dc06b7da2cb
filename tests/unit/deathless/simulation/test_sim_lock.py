"""The simulated lock store: what its silence, lost answers and restored backups look like to a caller."""

import pytest

from deathless.base.errors import LockUnavailable
from deathless.engine.ports import Holder, ServiceRecord
from deathless.simulation.world.lock import LockProfile, SimLock, SimLockStore
from deathless.simulation.world.scheduler import Scheduler

SERVICE = ServiceRecord("bank", bytes(16), 1, bytes(32), 0, "etcd", live=False)


def take(lock: SimLock, replica: str) -> Holder:
    holder = lock.take(replica, replica.encode(), lock.view())
    assert holder is not None
    return holder


def test_a_steal_deposes_by_value_and_raises_the_epoch() -> None:
    store = SimLockStore()
    first, second = SimLock(store), SimLock(store)
    first.create_service(SERVICE)
    one = take(first, "r0")
    assert first.set_head(one) is not None
    two = take(second, "r1")
    assert (one.epoch, two.epoch) == (1, 2)
    assert not first.owns(one)
    assert second.owns(two)
    assert first.set_head(one) is None
    assert not first.go_live(one)
    first.release(one)
    assert store.read().holder == two
    assert store.read().head == 1


def test_a_take_on_an_old_view_is_refused() -> None:
    store = SimLockStore()
    lock = SimLock(store)
    old = lock.view()
    take(lock, "r0")
    assert lock.take("r1", b"n", old) is None


def test_the_first_service_record_stands() -> None:
    lock = SimLock(SimLockStore())
    assert lock.create_service(SERVICE) == SERVICE
    assert lock.create_service(ServiceRecord("bank", bytes(16), 2, bytes(32), 0, "etcd", live=False)) == SERVICE
    assert lock.go_live(take(lock, "r0"))
    service = lock.view().service
    assert service is not None
    assert service.live


def test_a_released_lock_has_no_holder_and_keeps_its_epoch() -> None:
    lock = SimLock(SimLockStore())
    lock.release(take(lock, "r0"))
    assert lock.view().holder is None
    assert take(lock, "r1").epoch == 2


def test_a_store_without_answer_raises_and_does_nothing() -> None:
    store = SimLockStore()
    lock = SimLock(store)
    view = lock.view()
    store.available = False
    with pytest.raises(LockUnavailable):
        lock.take("r0", b"n", view)
    store.available = True
    assert lock.view() == view


def test_a_lost_answer_raises_although_it_happened() -> None:
    store = SimLockStore()
    lock = SimLock(store, profile=LockProfile(lost_answers_share=1.0))
    with pytest.raises(LockUnavailable):
        lock.take("r0", b"n", store.read())
    assert store.read().holder == Holder(1, "r0", b"n")


def test_a_replica_cut_from_the_store_gets_no_answer_while_others_do() -> None:
    store = SimLockStore()
    cut, other = SimLock(store), SimLock(store)
    cut.reachable = False
    with pytest.raises(LockUnavailable):
        cut.view()
    assert take(other, "r1").epoch == 1


def test_a_restored_store_is_as_old_as_its_backup() -> None:
    store = SimLockStore()
    lock = SimLock(store)
    take(lock, "r0")
    store.backup()
    take(lock, "r1")
    store.restore()
    view = lock.view()
    assert view.epoch == 1
    assert view.holder == Holder(1, "r0", b"r0")


def test_a_call_takes_time_and_another_may_come_between() -> None:
    scheduler = Scheduler(1)
    store = SimLockStore()
    seen: list[tuple[str, Holder | None]] = []
    for name in ("r0", "r1"):
        process = scheduler.process(name, name, lambda *_: None)
        lock = SimLock(store, process, scheduler.fork(name))

        def main(lock: SimLock = lock, name: str = name) -> None:
            seen.append((name, lock.take(name, name.encode(), lock.view())))

        process.start(main)
    scheduler.run_until(1_000_000)
    assert scheduler.now_us > 0
    assert sorted(holder is None for _, holder in seen) == [False, True]
