"""Opening a replica's log on the real file system: it is that service's log or refused, and its spare stands."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForeignDirectory
from deathless.base.ids import Digest
from deathless.base.limits import Limits
from deathless.base.topics.settings import Topic, topic_configs
from deathless.base.volume import show_bytes
from deathless.codec.frames import HEADER_BYTES, ORIGIN, Cut, FrameKind, Run, encode_data
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import Handle, ServiceRecord, Tail
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.open_log import log_room_bytes, open_log, volume_bytes, volume_shortage

LIMITS = Limits(segment_bytes_max=1 << 20, frame_bytes_max=1 << 12, message_bytes_max=1 << 12, spare_bytes=1 << 16)
RECORD = ServiceRecord("bank", bytes(16), 7, bytes(32), 0, "seal", live=False)


def opened(directory: Path, replica: str = "r0", *, store_id: str = "store", adopted_through: int = 0) -> ShardLog:
    return open_log(RealFileSystem(directory), LIMITS, replica, RECORD, store_id, adopted_through)


def begin(log: ShardLog) -> Cut:
    """Begin epoch 1 of an empty log."""
    cut = Cut(ORIGIN, "bank", RECORD.service_id, RECORD.incarnation, RECORD.fence, "store", bytes(16), "r0", 0)
    log.write_cut(1, msgspec.msgpack.encode(cut), Tail([], [], ORIGIN), incarnation=RECORD.incarnation)
    log.sync()
    return cut


def test_another_replica_reads_what_the_first_has_begun(tmp_path: Path) -> None:
    cut = begin(opened(tmp_path))
    assert opened(tmp_path, "r1").check_head(1) == cut


def test_a_log_of_another_lock_store_is_refused_unless_it_was_adopted(tmp_path: Path) -> None:
    begin(opened(tmp_path))
    with pytest.raises(ForeignDirectory, match="lock store is store, not other"):
        opened(tmp_path, "r1", store_id="other").check_head(1)
    assert opened(tmp_path, "r1", store_id="other", adopted_through=1).check_head(1).store_id == "store"


def test_each_replica_has_a_spare_of_its_own(tmp_path: Path) -> None:
    assert all(opened(tmp_path, replica).spare.ready for replica in ("r0", "r1"))
    sizes = {path.parent.name: path.stat().st_size for path in tmp_path.glob("replicas/*/spare")}
    assert sizes == {"r0": LIMITS.spare_bytes, "r1": LIMITS.spare_bytes}


def test_a_storage_that_fails_is_told_and_a_full_one_is_opened_without_a_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = errno.EIO

    def broken(self: RealFileSystem, handle: Handle, offset: int, size: int) -> None:
        raise OSError(number, "broken")

    monkeypatch.setattr(RealFileSystem, "allocate", broken)
    with pytest.raises(OSError, match="broken"):
        opened(tmp_path)
    number = errno.ENOSPC
    assert not opened(tmp_path).spare.ready


@pytest.mark.parametrize(
    ("segment_bytes", "kind", "ordered"),
    [(256 << 20, "ext4", True), (256 << 20, "nfs4", False), (32 << 20, "ext4", False)],
    ids=["large and local", "of another machine", "small"],
)
def test_segments_are_made_ahead_on_large_volumes_of_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, kind: str, ordered: bool
) -> None:
    monkeypatch.setattr("deathless.shell.disk.open_log.filesystem_type", lambda _: kind)
    orders: list[str] = []

    class Maker:
        def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
            orders.append(path)

    limits = Limits(segment_bytes_max=segment_bytes, spare_bytes=8 << 20)
    filesystem = RealFileSystem(tmp_path)
    log = open_log(filesystem, limits, "r0", RECORD, "store", maker=Maker(), nonce="1")
    begin(log)
    blob = bytes(3 << 20)
    payload = encode_data([Run(0, 0, 0, 1)], struct.pack("<I", len(blob)), bytes(4), Digest(bytes(16)), blob)
    for at in range(8):
        assert log.reserve(len(payload) + HEADER_BYTES)
        log.append(FrameKind.DATA, payload, first_lsn=at + 1, count=1, confirmed_lsn=at)
        log.sync()
    assert bool(orders) == ordered
    log.close()


def test_rows_of_topics_need_room_beside_the_log(tmp_path: Path) -> None:
    fields = {"service": "bank", "module": "m:a", "directory": str(tmp_path), "replica": "r0", "shards": 2}
    config = msgspec.convert(fields, ReplicaConfig)
    assert volume_shortage(config, 1) is None
    large = topic_configs((Topic(name="sales", keep_bytes="100P"),), str(tmp_path))
    told = volume_shortage(msgspec.structs.replace(config, drivers=large), 1)
    assert told is not None
    assert f"and {show_bytes(2 * 100 * 10**15)} of topics" in told


def test_the_log_fits_itself_to_what_topics_leave_of_a_volume(tmp_path: Path) -> None:
    fields = {"service": "bank", "module": "m:a", "directory": str(tmp_path), "replica": "r0", "shards": 2}
    config = msgspec.convert(fields, ReplicaConfig)
    whole = log_room_bytes(config)
    assert whole == volume_bytes(str(tmp_path))
    for keep, left in (("1Mi", whole - (2 << 20)), ("0", whole), ("100P", 1)):
        kept = topic_configs((Topic(name="sales", keep_bytes=keep),), str(tmp_path))
        assert log_room_bytes(msgspec.structs.replace(config, drivers=kept)) == left
