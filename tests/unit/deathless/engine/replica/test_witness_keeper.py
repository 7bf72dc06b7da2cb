"""What a replica writes down of what it confirmed, when, and what it costs; and what it compares before it leads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.deathless.engine.replica_world import Node, World

from deathless.base.errors import LogTruncated
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.witness import Point
from deathless.core.replica.replica import State
from deathless.engine.ports import Holder, ServiceRecord
from deathless.simulation.world.lock import SimLock, SimLockStore

RECORD = ServiceRecord("bank", bytes(16), 7, bytes(32), 1, "etcd", live=True)


def served(world: World, calls: int = 3, **settings: Any) -> Node:
    node = world.primary(**settings)
    session = node.register()
    for seq in range(1, calls + 1):
        node.call(session, seq, b"%d" % seq)
    return node


def replies_before(node: Node, lsn: int) -> int:
    """How many packets had left when a place was written down first."""
    return next(sent for sent, point, _ in node.noted if point.lsn >= lsn)


def test_each_confirmed_place_is_in_the_page_before_its_replies_leave() -> None:
    world = World()
    node = served(world, 0)
    session = node.register()
    sent = len(node.sent)
    node.call(session, 1, b"1")
    assert replies_before(node, node.engine.place.lsn) == sent
    assert node.noted[-1][1].chain == node.engine.place.chain
    assert [first for _, _, first in node.noted] == [True] + [False] * (len(node.noted) - 1)


def test_without_page_before_release_a_reply_leaves_that_no_witness_knows() -> None:
    world = World()
    node = served(world, 0, safeguards=Safeguards(page_before_release=False))
    session = node.register()
    sent = len(node.sent)
    node.call(session, 1, b"1")
    assert replies_before(node, node.engine.place.lsn) > sent


def test_what_is_synced_and_not_proved_is_in_no_witness() -> None:
    for safeguards, wrong in ((ALL_SAFEGUARDS, False), (Safeguards(witness_of_confirmed=False), True)):
        node = served(World(fence="etcd"), 0, fence="etcd", safeguards=safeguards)
        session = node.register()
        confirmed = node.engine.core.confirmed_lsn
        node.held = []  # no answer to the proof
        node.call(session, 1, b"x")
        assert (node.noted[-1][1].lsn > confirmed) is wrong


@pytest.mark.parametrize("fence", ["seal", "etcd"])
def test_a_frame_gains_no_sync_and_no_question_to_the_lock(fence: str) -> None:
    """Counted, not timed: with and without the witness checked, as many calls of disk and lock as before."""
    world = World(fence=fence)
    node = served(world, 1, fence=fence)
    session = node.register()
    calls: Counter[str] = Counter()
    sync, lock = node.log.sync, node.ask

    def count_sync() -> None:
        calls["sync"] += 1
        sync()

    def count_lock(*args: Any) -> None:
        calls["lock"] += 1
        lock(*args)

    node.log.sync = count_sync
    node.ask = count_lock  # type: ignore[method-assign, assignment]
    for seq in range(2, 52):
        node.call(session, seq, b"x")
    assert calls["sync"] == 50
    assert calls["lock"] == (50 if fence == "etcd" else 0), "the proof alone"


def test_a_directory_that_was_put_back_is_refused_by_the_page_of_its_machine() -> None:
    world = World()
    first = served(world)
    world.pages["r0"] = msgspec.structs.replace(world.pages["r0"], lsn=world.pages["r0"].lsn + 50)
    late = world.node("r1").begin().take_over(1)
    error = late.error()
    assert isinstance(error, LogTruncated)
    assert f"ends at lsn {first.engine.place.lsn}" in error.message
    assert "page of r0" in error.message


def test_a_point_below_what_a_checkpoint_gave_is_compared_with_the_log() -> None:
    world = World()
    node = served(world)
    world.pages["r9"] = Point(world.record.service_id, world.record.incarnation, 1, 2, b"another history!", by="r9")
    late = world.node("r1").begin()
    assert isinstance(late.error(), LogTruncated)
    assert "lsn 2 has another history" in str(late.error())
    assert node.engine.core.state is State.PRIMARY


def test_a_page_of_another_service_at_the_same_path_refuses_nothing() -> None:
    world = World()
    served(world)
    world.pages["r7"] = Point(b"another service!", 1, 9, 10_000, bytes(16))
    assert world.primary("r1").state is State.PRIMARY


def test_a_damaged_frame_behind_an_orderly_stop_is_passed_over_and_told() -> None:
    world = World()
    node = served(world)
    lsn = node.engine.place.lsn
    path = "log/e000000000001.r000000.seg"
    garbage = world.disk.view("rot")
    handle = garbage.open(path, write=True)
    end = node.log.last_place()[1] + 4096
    garbage.write(handle, end, b"\xff" * 4096)
    late = world.primary("r1")
    assert late.engine.place.lsn == lsn
    assert f"offset {end}" in str(late.engine.witness.status()["passedOver"])


# ---- in the lock store -------------------------------------------------------------------------------------------


def point(lsn: int, epoch: int = 1) -> Point:
    return Point(RECORD.service_id, 7, epoch, lsn, bytes(16), 1, "r0")


class Store:
    """A lock store, and clients of it."""

    def __init__(self, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.store = SimLockStore()
        self.safeguards = safeguards
        self.store.create_service(RECORD)

    def taken(self) -> tuple[SimLock, Holder]:
        lock = SimLock(self.store, safeguards=self.safeguards)
        holder = lock.take("r0", bytes([self.store.read().epoch]) * 16, lock.view())
        assert holder is not None
        return lock, holder


def test_a_deposed_primary_writes_no_point_any_more() -> None:
    store = Store()
    old, holder = store.taken()
    new, later = store.taken()
    assert new.set_head(later, point(20, 2)) is not None
    assert old.witness(holder, point(15)) is None
    assert store.store.confirmed == point(20, 2)
    careless = Store(replace(ALL_SAFEGUARDS, witness_guarded=False, witness_own_revision=False))
    old, holder = careless.taken()
    new, later = careless.taken()
    new.set_head(later, point(20, 2))
    old.witness(holder, point(15))
    assert careless.store.confirmed == point(15), "lowered by a dead primary"


def test_a_primary_that_was_put_back_while_it_ran_does_not_lower_the_point() -> None:
    """Its memory, its log and its page went back together; the lock's value is still its own."""
    for safeguards, lowered in ((ALL_SAFEGUARDS, False), (Safeguards(witness_own_revision=False), True)):
        store = Store(safeguards)
        lock, holder = store.taken()
        assert lock.witness(holder, point(500)) is False
        known = lock._known
        assert lock.witness(holder, point(1000)) is False
        lock._known = known  # the snapshot of the machine
        if lowered:
            lock.witness(holder, point(501))
        else:
            with pytest.raises(LogTruncated, match="put back to an older moment while it ran"):
                lock.witness(holder, point(501))
        assert store.store.confirmed == point(501 if lowered else 1000)


def test_a_point_that_somebody_removed_is_put_back_and_told() -> None:
    store = Store()
    lock, holder = store.taken()
    lock.witness(holder, point(5))
    store.store._keys = replace(store.store._keys, confirmed=None)
    assert lock.witness(holder, point(6)) is True
    assert store.store.confirmed == point(6)
