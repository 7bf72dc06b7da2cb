"""Checkpoints: whole or not there, counted once read back, two kept, none that a crash could leave half."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from deathless.base.errors import CorruptCheckpoint, OutOfSpace
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec import checkpoint as codec
from deathless.codec.checkpoint_ahead import STATE_AT, changes_between
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.engine.log.checkpoint_store import CheckpointStore, checkpoint_name, parse_checkpoint_name
from deathless.engine.ports import Handle
from deathless.engine.safeguards import ALL_SAFEGUARDS
from deathless.simulation.world.disk import SimDisk


def snapshot(lsn: int, *, fill: bytes = b"v", size: int = 100) -> Snapshot:
    return Snapshot(
        service="bank",
        service_id=bytes(16),
        incarnation=Incarnation(7),
        epoch=Epoch(1),
        lsn=Lsn(lsn),
        chain=ChainHash(lsn.to_bytes(16, "big")),
        digest=Digest(bytes(16)),
        times=Times.at(0),
        fingerprint=Fingerprint(bytes(16)),
        state={b"key": fill * size},
    )


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def stores(disk: SimDisk) -> tuple[CheckpointStore, CheckpointStore]:
    return CheckpointStore(disk.view("r0"), "r0"), CheckpointStore(disk.view("r1"), "r1")


def counted(writer: CheckpointStore, reader: CheckpointStore, lsn: int) -> str:
    name = writer.write(snapshot(lsn))
    writer.announce(name)
    reader.verify(name)
    return name


def test_a_checkpoint_is_loaded_once_announced_and_counts_once_verified(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    assert reader.load_newest() is None
    name = writer.write(snapshot(5))
    assert reader.load_newest() is None, "its last frame may be unconfirmed"
    writer.announce(name)
    loaded = reader.load_newest()
    assert loaded is not None
    assert (loaded.lsn, loaded.state) == (5, {b"key": b"v" * 100})
    assert not reader.verified(name)
    assert reader.verify(name).lsn == 5
    assert writer.verified(name)


def test_the_log_is_needed_from_the_older_of_the_two_verified_ones(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    floors = []
    for lsn in (5, 9, 12):
        counted(writer, reader, lsn)
        floors.append(writer.floor())
    writer.announce(writer.write(snapshot(20)))
    floors.append(writer.floor())
    assert floors == [0, 5, 9, 9]


def test_an_unverified_checkpoint_would_let_the_log_go_that_it_can_not_replace(disk: SimDisk) -> None:
    careless = CheckpointStore(disk.view("r0"), "r0", safeguards=replace(ALL_SAFEGUARDS, verify_checkpoint=False))
    for lsn in (5, 9):
        name = careless.write(snapshot(lsn))
        careless.announce(name)
        disk.flip_bit(f"checkpoints/{name}", 60)
    assert careless.floor() == 5
    assert careless.load_newest() is None, "and none of them can be read"
    assert CheckpointStore(disk.view("r1"), "r1").floor() == 0


def test_pruning_keeps_two_verified_ones_and_everything_newer(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    names = [counted(writer, reader, lsn) for lsn in (1, 2, 3, 4)]
    newer = writer.write(snapshot(9))
    assert writer.prune() == [names[1], names[0]]
    assert [each.name for each in reader.names(announced_only=False)] == [newer, names[3], names[2]]
    assert len(disk.view("x").listing("checkpoints")) == 1 + 3 + 3
    assert writer.prune() == []


def test_a_crash_while_pruning_leaves_no_mark_without_its_file(disk: SimDisk) -> None:
    for seed in range(6):
        disk = SimDisk(random.Random(seed))
        writer, reader = stores(disk)
        old, *_ = [counted(writer, reader, lsn) for lsn in (1, 2, 3)]
        disk.fail("sync_folder", "checkpoints", count=1)
        with pytest.raises(OSError, match="Input/output"):
            writer.prune()
        disk.cut_power()
        fs = disk.view("x")
        marked = fs.exists(f"checkpoints/{old}.verified")
        assert fs.exists(f"checkpoints/{old}") or not marked


def test_one_flipped_bit_is_found_and_the_older_one_used(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    counted(writer, reader, 5)
    name = writer.write(snapshot(9))
    writer.announce(name)
    size = len(b"".join(codec.encode(snapshot(9))))
    for offset in range(0, size, 37):
        disk.flip_bit(f"checkpoints/{name}", offset, offset % 8)
        with pytest.raises(CorruptCheckpoint):
            reader.verify(name)
        loaded = reader.load_newest()
        assert loaded is not None
        assert loaded.lsn == 5
        disk.flip_bit(f"checkpoints/{name}", offset, offset % 8)
    assert reader.verify(name).lsn == 9


def test_a_file_under_another_ones_name_is_corrupt(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    name = writer.write(snapshot(5))
    other = checkpoint_name(6, bytes(16))
    disk.view("x").link(f"checkpoints/{name}", f"checkpoints/{other}")
    for use in (reader.verify, reader.load):
        with pytest.raises(CorruptCheckpoint, match="holds the checkpoint of lsn 5"):
            use(other)


def test_who_writes_a_place_second_uses_the_firsts_file(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    assert writer.write(snapshot(5)) == reader.write(snapshot(5))
    assert len(writer.names(announced_only=False)) == 1


def test_a_name_is_durable_only_with_all_its_bytes(disk: SimDisk) -> None:
    for synced in (True, False):
        broken = 0
        for seed in range(8):
            disk = SimDisk(random.Random(seed))
            guards = replace(ALL_SAFEGUARDS, sync_checkpoint=synced)
            writer = CheckpointStore(disk.view("r0"), "r0", safeguards=guards)
            name = writer.write(snapshot(5, size=50_000))
            disk.cut_power()
            try:
                CheckpointStore(disk.view("r1"), "r1").load(name)
            except CorruptCheckpoint:
                broken += 1
        assert (broken == 0) is synced


def test_a_full_disk_leaves_nothing_behind_and_is_told(disk: SimDisk) -> None:
    writer, _ = stores(disk)
    disk.capacity_bytes = 4096
    with pytest.raises(OutOfSpace, match="checkpoint at lsn 5"):
        writer.write(snapshot(5, size=50_000))
    assert disk.used_bytes() == 0
    disk.capacity_bytes = None
    writer.write(snapshot(5, size=50_000))


def test_a_full_disk_gets_room_from_the_spare_first(disk: SimDisk) -> None:
    fs = disk.view("r0")
    handle = fs.create("spare")
    fs.allocate(handle, 0, 65536)
    disk.capacity_bytes = 65536 + 4096
    writer = CheckpointStore(fs, "r0", make_room=lambda: fs.unlink("spare"))
    assert writer.write(snapshot(5, size=50_000))
    with pytest.raises(FileNotFoundError):
        writer.write(snapshot(6, size=50_000))


def test_other_errors_stop_the_writer(disk: SimDisk) -> None:
    writer, _ = stores(disk)
    disk.fail("sync", "checkpoints")
    with pytest.raises(OSError, match="Input/output"):
        writer.write(snapshot(5))
    disk.capacity_bytes = 0
    broken = CheckpointStore(disk.view("r2"), "r2", make_room=lambda: disk.fail("create", number=errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        broken.write(snapshot(5))


def test_newer_and_useless_ones_are_passed_over(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    for lsn in (5, 9):
        counted(writer, reader, lsn)
    newest, older = reader.load_newest(), reader.load_newest(lsn_max=8)
    assert newest is not None
    assert older is not None
    assert (newest.lsn, older.lsn) == (9, 5)
    assert reader.load_newest(lsn_above=9) is None


@pytest.mark.parametrize(
    "name",
    ["", "x", checkpoint_name(1, bytes(16)) + ".verified", "t.r0", checkpoint_name(1, bytes(16)).replace("00", "zz")],
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert parse_checkpoint_name(name) is None


def test_the_encoding_is_given_from_outside(disk: SimDisk) -> None:
    def encode(_: Snapshot) -> Iterator[bytes]:
        yield b"mine"

    store = CheckpointStore(disk.view("r0"), "r0", encode=encode, decode=lambda read: snapshot(len(read(0, 100))))
    name = store.write(snapshot(4))
    assert store.load(name).lsn == 4


# ---- a state that is written ahead ---------------------------------------------------------------------------------


def since(begun: Begun, before: dict[bytes, bytes], now: Snapshot) -> Snapshot:
    return replace(now, since=Since(begun, *changes_between(before, now.state)))


def many(lsn: int, keys: int = 50, **changed: bytes) -> Snapshot:
    state = {b"key%03d" % each: b"v" * 100 for each in range(keys)}
    return replace(snapshot(lsn), state=state | {key.encode(): value for key, value in changed.items()})


def test_state_written_ahead_is_finished_by_what_changed(disk: SimDisk) -> None:
    writer, reader = stores(disk)
    begun = writer.begin_first(many(1).state)
    assert reader.names(announced_only=False) == []
    now = since(begun, many(1).state, many(9, 49, key003=b"other", new=b"n"))
    writer.write_first(now)
    (name,) = reader.names(announced_only=False)
    assert reader.load(name.name).state == dict(sorted(now.state.items()))
    disk.cut_power()
    loaded = CheckpointStore(disk.view("r2"), "r2").load_at(9, now.chain)
    assert loaded is not None
    assert loaded.state == dict(sorted(now.state.items()))


@pytest.mark.parametrize("spoil", ["gone", "torn", "other"])
def test_whole_checkpoint_is_written_where_what_was_begun_is_not_there_any_more(disk: SimDisk, spoil: str) -> None:
    writer, reader = stores(disk)
    begun = writer.begin_first(many(1).state)
    path = "checkpoints/t.r0.begun"
    view = disk.view("r0")
    if spoil == "gone":
        writer.drop_begun()
    elif spoil == "other":
        writer.begin_first(many(1, 3).state)
    else:
        handle = view.open(path, write=True)
        view.truncate(handle, begun.end - 1)
        view.close(handle)
    now = since(begun, many(1).state, many(9, new=b"n"))
    writer.write_first(now)
    loaded = reader.load_at(9, now.chain)
    assert loaded is not None
    assert loaded.state == dict(sorted(now.state.items()))
    assert not view.exists(path)


def rots(disk: SimDisk, store: CheckpointStore, offset: int) -> None:
    """Have a bit of what is begun change once it is synced next."""
    sync = store._fs.sync

    def synced(handle: Handle) -> None:
        sync(handle)
        store._fs.sync = sync  # type: ignore[method-assign]
        disk.flip_bit("checkpoints/t.r0.begun", offset)

    store._fs.sync = synced  # type: ignore[method-assign]


def test_what_is_begun_is_read_back_and_nothing_is_left_of_it_where_it_is_not_good(disk: SimDisk) -> None:
    writer, _ = stores(disk)
    rots(disk, writer, STATE_AT + 40)
    with pytest.raises(CorruptCheckpoint, match="checksum is wrong"):
        writer.begin_first(many(1).state)
    assert disk.view("r1").listing("checkpoints") == []


@pytest.mark.parametrize("read_back", [True, False])
def test_what_is_added_is_read_back_before_it_counts(disk: SimDisk, *, read_back: bool) -> None:
    """Without that a generation would begin with a checkpoint that nobody can load."""
    safeguards = replace(ALL_SAFEGUARDS, verify_first_checkpoint=read_back)
    writer = CheckpointStore(disk.view("r0"), "r0", safeguards=safeguards)
    begun = writer.begin_first(many(1).state)
    rots(disk, writer, begun.end + 40)
    now = since(begun, many(1).state, many(9, new=b"n"))
    writer.write_first(now)
    loaded = CheckpointStore(disk.view("r1"), "r1").load_at(9, now.chain)
    assert (loaded is not None) is read_back


def test_replica_that_starts_again_takes_away_what_it_had_begun(disk: SimDisk) -> None:
    CheckpointStore(disk.view("r0"), "r0.1").begin_first(many(1).state)
    CheckpointStore(disk.view("r0"), "r0.2").clear("r0")
    assert disk.view("r1").listing("checkpoints") == []
