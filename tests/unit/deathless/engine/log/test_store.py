"""The log as a replica holds it: seals, collection, takeovers one after the other, a stranger's directory."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import msgspec
import pytest

from deathless.base.errors import Closed, Deposed, ForeignDirectory, Internal, LogTruncated, StoreOlderThanLog
from deathless.codec.frames import ORIGIN, Cut, Position
from deathless.engine.log.route import Identity, listed_segments
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.log.store import ShardLog, seal_path
from deathless.engine.ports import LogStore, Tail
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.models.log_driver import LIMITS, SERVICE_ID, STORE, LogDriver
from deathless.simulation.world.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def driver(disk: SimDisk, name: str, released: list[bytes], safeguards: Safeguards = ALL_SAFEGUARDS) -> LogDriver:
    made = LogDriver(disk.view(name), name, released, safeguards=safeguards)
    made.start()
    return made


def primary(disk: SimDisk, name: str = "r0", safeguards: Safeguards = ALL_SAFEGUARDS) -> LogDriver:
    made = driver(disk, name, [], safeguards)
    made.take_over()
    return made


def test_it_is_the_port(disk: SimDisk) -> None:
    store: LogStore = ShardLog(disk.view("r0"), LIMITS, "r0")
    assert not store.sealed(1)


def test_seals_stand_durably_and_existing_ones_count(disk: SimDisk) -> None:
    log = ShardLog(disk.view("r0"), LIMITS, "r0")
    log.prepare()
    log.link_seals(2, 3)
    other = ShardLog(disk.view("r1"), LIMITS, "r1")
    other.link_seals(0, 4)
    disk.cut_power()
    fresh = ShardLog(disk.view("r2"), LIMITS, "r2")
    assert [fresh.sealed(epoch) for epoch in range(6)] == [False, True, True, True, True, False]


def test_seals_need_no_space(disk: SimDisk) -> None:
    log = ShardLog(disk.view("r0"), LIMITS, "r0")
    log.prepare()
    disk.capacity_bytes = disk.used_bytes()
    log.link_seals(1, 100)
    assert log.sealed(100)


def test_a_seal_file_with_as_many_names_as_it_can_have_is_replaced(disk: SimDisk) -> None:
    log = ShardLog(disk.view("r0"), LIMITS, "r0")
    log.link_seals(1, 1)
    disk.fail("link", seal_path(2), number=errno.EMLINK)
    log.link_seals(2, 3)
    assert log.sealed(2)
    assert disk.inode(seal_path(2)) is not disk.inode(seal_path(1))


def test_a_seal_that_can_not_be_linked_is_an_error(disk: SimDisk) -> None:
    log = ShardLog(disk.view("r0"), LIMITS, "r0")
    disk.fail("link", seal_path(1))
    with pytest.raises(OSError, match="Input/output"):
        log.link_seals(1, 1)


def test_a_sealed_primary_releases_nothing_more(disk: SimDisk) -> None:
    old = primary(disk)
    old.call(b"one")
    primary(disk, "r1")
    with pytest.raises(Deposed):
        old.call(b"two")
    assert old.released == [b"one"]


def test_without_the_proof_a_frozen_primary_releases_what_its_successor_lacks(disk: SimDisk) -> None:
    released: list[bytes] = []
    old = driver(disk, "r0", released, replace(ALL_SAFEGUARDS, prove_before_release=False))
    old.take_over()
    new = driver(disk, "r1", released)
    new.take_over()
    old.call(b"late")
    with pytest.raises(AssertionError):
        new.check()


def test_read_before_seal_loses_what_was_released_in_between(disk: SimDisk) -> None:
    """Every other order than seal, then read is broken: the old primary still finds no seal when it proves."""
    for ordered in (True, False):
        released: list[bytes] = []
        disk = SimDisk(random.Random(1))
        old = driver(disk, "r0", released)
        old.take_over()
        safeguards = replace(ALL_SAFEGUARDS, seal_before_read=ordered)
        late = [False]

        def between(operation: str, path: str, moment: str, late: list[bool] = late, old: LogDriver = old) -> None:
            if operation == "link" and path == seal_path(1) and moment == "before" and not late[0]:
                late[0] = True
                old.call(b"released before the seal")

        new = LogDriver(disk.view("r1", between), "r1", released, safeguards=safeguards)
        new.start()
        new.take_over()
        if ordered:
            new.check()
        else:
            with pytest.raises(AssertionError):
                new.check()


def test_every_epoch_from_head_must_be_sealed(disk: SimDisk) -> None:
    """Epoch 2 dies before head is set; epoch 3 must close epoch 1 as well, or epoch 1 goes on releasing."""
    for every in (True, False):
        released: list[bytes] = []
        disk = SimDisk(random.Random(1))
        old = driver(disk, "r0", released)
        old.take_over()
        lock = driver(disk, "r1", released).lock
        assert lock.take("r1", b"n", lock.view()) is not None
        new = driver(disk, "r2", released, replace(ALL_SAFEGUARDS, seal_every_epoch=every))
        new.take_over()
        if every:
            with pytest.raises(Deposed):
                old.call(b"late")
            new.check()
        else:
            old.call(b"late")
            with pytest.raises(AssertionError):
                new.check()


def test_a_tail_kept_only_in_the_page_cache_is_copied_and_synced_before_it_counts(disk: SimDisk) -> None:
    old = primary(disk)
    old.call(b"one")
    old.call_unsynced(b"seen by the successor, not durable")
    new = primary(disk, "r1")
    assert len(new.released) == 2
    disk.cut_power()
    last = driver(disk, "r2", new.released)
    last.take_over()
    last.check()


def test_collection_takes_whole_files_below_the_lsn_and_never_the_heads_first(disk: SimDisk) -> None:
    first = primary(disk)
    for number in range(10):
        first.call(b"%d" % number * 3000)
    second = primary(disk, "r1")
    for number in range(20):
        second.call(b"%d" % number * 3000)
    before = listed_segments(disk.view("x"))
    gone = second.log.collect(22)
    assert gone
    left = listed_segments(disk.view("x"))
    assert left == [place for place in before if place == (2, 0) or place >= left[1]]
    lsn, chain = second.log.oldest(2)
    assert lsn <= 22
    reader = driver(disk, "r2", [])
    assert reader.log.read(2, lsn, chain, bytes_max=1 << 30)[0][0][0].first_lsn == lsn + 1
    with pytest.raises(LogTruncated):
        reader.log.read(2, 0, bytes(16), bytes_max=1 << 30)
    assert second.log.collect(22) == []


def test_collection_below_what_is_gone_already_is_nothing_to_do(disk: SimDisk) -> None:
    """The floor can fall: a follower may come back from far below."""
    first = primary(disk)
    for number in range(20):
        first.call(b"%d" % number * 3000)
    assert first.log.collect(15)
    assert first.log.collect(2) == []


def test_collection_without_the_heads_own_first_file_tells(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"a")
    first.idle()
    disk.view("x").unlink(segment_path(1, 0))
    with pytest.raises(LogTruncated):
        first.log.collect(1)


def test_collection_behind_a_successor_that_collected_more_is_nothing_to_do(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"a")
    first.idle()
    driver(disk, "r1", []).log.link_seals(1, 1)
    disk.view("x").unlink(segment_path(1, 0))
    assert first.log.collect(1) == []


def test_collection_goes_oldest_first_so_that_a_crash_leaves_no_hole(disk: SimDisk) -> None:
    for ordered in (True, False):
        disk = SimDisk(random.Random(1))
        first = primary(disk, "r0", replace(ALL_SAFEGUARDS, collect_oldest_first=ordered))
        for number in range(30):
            first.call(b"%d" % number * 3000)
        before = listed_segments(disk.view("x"))
        disk.fail("unlink", "log/e000000000001.r000003")
        with pytest.raises(OSError, match="Input/output"):
            first.log.collect(29)
        disk.cut_power()
        left = [place for place in listed_segments(disk.view("x")) if place != (1, 0)]
        whole = left == before[-len(left) :]
        assert whole is ordered


def collected_above_a_header(disk: SimDisk, safeguards: Safeguards) -> LogDriver:
    """The frame whose header confirms lsn 12 begins a file and is not synced; 12 is collected; the power is cut."""
    first = primary(disk, "r0", safeguards)
    for _ in range(11):
        first.call(b"x" * 3000)
    assert first.log.reserve(4096)
    first.call_unsynced(b"x" * 3000)
    first.log.sync()
    first.prove()
    first.checkpoint()
    assert first.log.reserve(4096), "the file is full: this rolls"
    first.call_unsynced(b"not synced")
    first.log.collect(12)
    disk.cut_power()
    last = driver(disk, "r1", first.released)
    assert len(last.applied) == 12
    last.take_over()
    last.check()
    return last


def test_nothing_above_a_synced_confirmed_header_is_collected() -> None:
    for seed in range(6):
        collected_above_a_header(SimDisk(random.Random(seed)), ALL_SAFEGUARDS)
    with pytest.raises(LogTruncated, match="is missing"):  # noqa: PT012 one of the seeds loses the frame
        for seed in range(6):
            unbounded = replace(ALL_SAFEGUARDS, collect_below_confirmed=False)
            collected_above_a_header(SimDisk(random.Random(seed)), unbounded)


def test_only_a_primary_collects(disk: SimDisk) -> None:
    with pytest.raises(Closed):
        driver(disk, "r0", []).log.collect(1)


def test_a_chain_of_takeovers_without_messages_stays_readable(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    for number in range(5):
        primary(disk, f"s{number}")
    last = driver(disk, "r9", first.released)
    last.take_over()
    last.check()


def test_files_of_epochs_that_confirmed_nothing_go_with_the_next_takeover(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.idle()
    for number in range(5):
        successor = primary(disk, f"s{number}")
        assert listed_segments(disk.view("x")) == [(1, 0), (successor.epoch, 0)]
    last = driver(disk, "r9", first.released)
    last.take_over()
    last.call(b"two")
    last.check()
    assert last.applied == [b"one", b"two"]


def test_files_that_were_left_before_head_was_set_go_too(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.idle()
    names = disk.view("x")
    for place in ((1, 1), (2, 0), (2, 1)):
        names.close(names.create(segment_path(*place)))
    gone = driver(disk, "r3", [])
    assert gone.lock.take("r3", b"n" * 16, gone.lock.view()) is not None
    successor = primary(disk, "r1")
    assert listed_segments(names) == [(1, 0), (successor.epoch, 0)]
    assert successor.applied == [b"one"]


def test_copies_stay_and_so_does_what_they_were_made_of(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.idle()
    primary(disk, "r1")
    second = primary(disk, "r2")
    second.call_unsynced(b"two")
    second.log.sync()
    third = primary(disk, "r1")
    assert listed_segments(disk.view("x")) == [(1, 0), (second.epoch, 0), (third.epoch, 0)]
    fourth = primary(disk, "r2")
    assert third.applied == fourth.applied == [b"one", b"two"]
    assert listed_segments(disk.view("x")) == [(1, 0), (second.epoch, 0), (third.epoch, 0), (fourth.epoch, 0)]


def test_what_stood_when_the_log_was_adopted_is_left_for_the_collection(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.idle()
    second = primary(disk, "r1")
    third = LogDriver(disk.view("r2"), "r2", first.released, adopted_through=second.epoch)
    third.start()
    third.take_over()
    assert (second.epoch, 0) in listed_segments(disk.view("x"))


def test_only_a_primary_removes_files(disk: SimDisk) -> None:
    with pytest.raises(Closed):
        driver(disk, "r0", []).log.remove_unread()


def test_the_identity_is_known_only_after_the_service_was_created(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    log = ShardLog(disk.view("x"), LIMITS, "x")
    assert log.check_head(1).service == "bank"
    with pytest.raises(ForeignDirectory):
        ShardLog(disk.view("x"), LIMITS, "x", Identity(SERVICE_ID, 8, "seal", STORE)).check_head(1)


def test_a_cut_that_does_not_fit_its_tail_is_our_bug(disk: SimDisk) -> None:
    log = ShardLog(disk.view("r0"), LIMITS, "r0")
    log.prepare()
    cut = Cut(Position(1, 0, 4096, 0, bytes(16)), "bank", SERVICE_ID, 7, "seal", STORE, bytes(16), "r0", 0)
    with pytest.raises(Internal):
        log.write_cut(2, msgspec.msgpack.encode(cut), Tail([], [], ORIGIN), incarnation=7)


def test_a_process_killed_between_any_two_steps_of_an_orderly_stop_starts_again(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.idle()
    first.log.close()
    first.follow()
    again = primary(disk, "r0")
    assert again.applied == [b"one"]


def test_a_lock_store_behind_the_log_is_refused_by_head_and_by_revision(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    primary(disk, "r1")
    view = first.lock.view()
    log = driver(disk, "r2", []).log
    cut = log.check_store(view.head, view.epoch, view.revision)
    assert cut is not None
    assert cut.replica == "r1"
    with pytest.raises(StoreOlderThanLog, match="opened epoch 2, the lock store's head is 1"):
        log.check_store(1, 1, view.revision)
    with pytest.raises(StoreOlderThanLog, match="names revision"):
        log.check_store(2, 2, 1)
    with pytest.raises(StoreOlderThanLog, match="head is 0"):
        log.check_store(0, 0, 0)
    adopted = ShardLog(disk.view("r2"), LIMITS, "r2", Identity(SERVICE_ID, 7, "seal", STORE, adopted_through=2))
    assert adopted.check_store(2, 2, 1) is not None
    careless = driver(disk, "r3", [], replace(ALL_SAFEGUARDS, refuse_older_store=False)).log
    assert careless.check_store(1, 1, 0) is not None
    assert ShardLog(SimDisk(random.Random(1)).view("x"), LIMITS, "x").check_store(0, 0, 0) is None
