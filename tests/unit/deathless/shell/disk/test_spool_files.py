"""The real spool: files without a name, whose space goes with their last piece, also while a child reads."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.limits import Limits
from deathless.codec.peer_messages import Target
from deathless.core.tables.outbox import Outbox
from deathless.shell.disk import spool_files as spool_module
from deathless.shell.disk.spool_files import FileSpool, scratch_folder
from deathless.shell.process.forked import Children

SHOP = Target("shop", 0)
ROOM = 1 << 20


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSpool:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(spool_module, "SEGMENTS", 1 << 20)
    return FileSpool(str(tmp_path / "scratch"), ROOM)


def fill(spool: FileSpool, count: int = 50, memory: int = 20) -> Outbox:
    outbox = Outbox(spool, memory)
    for number in range(count):
        outbox.append(SHOP, b"message %d" % number)
    return outbox


def test_nothing_is_left_in_the_folder(spool: FileSpool, tmp_path: Path) -> None:
    piece = spool.append(b"some bytes")
    assert piece is not None
    assert piece.read() == b"some bytes"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_no_file_is_made_before_there_is_something_to_write(spool: FileSpool, tmp_path: Path) -> None:
    assert spool.descriptors() == []
    assert not (tmp_path / "scratch").exists()


def test_a_file_is_closed_when_its_last_piece_is_gone(spool: FileSpool) -> None:
    outbox = fill(spool)
    descriptors = spool.descriptors()
    assert len(descriptors) > 4
    outbox.trim(SHOP, 25)
    half = spool.descriptors()
    assert set(half) < set(descriptors)
    outbox.trim(SHOP, 50)
    assert len(spool.descriptors()) == 1, "the one that is written next"
    for descriptor in set(descriptors) - set(spool.descriptors()):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.asyncio
async def test_a_child_reads_what_its_parent_forgets_meanwhile(spool: FileSpool, tmp_path: Path) -> None:
    outbox = fill(spool)
    expected = [b"message %d" % number for number in range(50)]
    ours, theirs = os.pipe()

    def work() -> bool:
        os.read(ours, 1)  # until the parent has forgotten them
        return list(outbox.snapshot()[0].messages) == expected

    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    keep = [*spool.descriptors(), ours]
    Children(asyncio.get_running_loop()).run(work, done.set_result, max_s=60, keep=keep)
    outbox.trim(SHOP, 50)
    os.write(theirs, b"x")
    assert await done
    os.close(ours)
    os.close(theirs)


def test_i10_beyond_its_room_it_takes_nothing_and_later_it_does_again(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), 50)
    first = spool.append(b"a" * 100)
    assert first is not None
    assert spool.append(b"b") is None
    assert first.read() == b"a" * 100


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_i8_a_write_that_fails_leaves_messages_in_memory_and_is_told_once(
    spool: FileSpool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    def half(descriptor: int, data: memoryview, offset: int) -> int:
        if len(data) > 8:
            return write(descriptor, data[:8], offset)
        raise OSError(error, os.strerror(error))

    write = os.pwrite
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", half)
        outbox = fill(spool)
        assert (outbox.refused, outbox.memory_bytes) == (True, outbox.bytes)
        fill(spool, 5)
    assert len(caplog.records) == 1
    for _ in range(300):
        outbox.append(SHOP, b"more")
    assert (outbox.refused, outbox.memory_bytes <= 20) == (False, True)
    assert outbox.messages_from(SHOP, 1, 1 << 20)[:50] == [b"message %d" % number for number in range(50)]


def test_a_folder_that_cannot_be_made_is_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FileSpool(str(tmp_path / "file" / "folder"), ROOM).append(b"x") is None


def test_i8_a_file_that_lost_its_end_is_an_error(spool: FileSpool) -> None:
    piece = spool.append(b"some bytes")
    assert piece is not None
    os.truncate(spool.descriptors()[0], 4)
    with pytest.raises(OSError, match="shorter"):
        piece.read()


def test_a_large_outbox_has_longer_files_not_more_of_them() -> None:
    assert FileSpool("", Limits().outbox_bytes_max)._segment_bytes == spool_module.SEGMENT_BYTES
    assert FileSpool("", 64 << 30)._segment_bytes == 1 << 30


def test_scratch_stands_beside_the_log_where_that_is_local_and_else_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")  # which is not there, and not looked at: nothing is to be kept yet
    config = ReplicaConfig(service="bank", module="bank:bank", directory=str(tmp_path), replica="r0")
    monkeypatch.setattr(spool_module, "filesystem_type", lambda _: "ext4")
    assert scratch_folder(config) == f"{tmp_path}/replicas/r0"
    pod = ReplicaConfig(service="bank", module="bank:bank", directory=str(tmp_path), replica="r0", instance="uid")
    assert scratch_folder(pod) == "/elsewhere"
    monkeypatch.setattr(spool_module, "filesystem_type", lambda _: "nfs4")
    assert scratch_folder(config) == "/elsewhere"
