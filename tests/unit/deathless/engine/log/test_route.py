"""The way back from the head: which files count, whose log it is, and what a missing file means."""

from __future__ import annotations

import random

import msgspec
import pytest

from deathless.base.errors import CorruptFrame, ForeignDirectory, LogTruncated
from deathless.base.ids import ChainHash
from deathless.codec.frames import BLOCK, ORIGIN, Cut, Frame, FrameKind, decode_frame, encode_frame
from deathless.engine.log.route import Identity, RouteFinder, decode_cut, listed_segments
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.safeguards import Safeguards
from deathless.simulation.models.log_driver import SERVICE_ID, STORE, LogDriver
from deathless.simulation.world.disk import SimDisk

OURS = Identity(SERVICE_ID, 7, "seal", STORE)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def epochs(disk: SimDisk, *calls: int) -> None:
    """One epoch for each number, with so many calls that roll every few."""
    for number, count in enumerate(calls):
        driver = LogDriver(disk.view(f"r{number}"), f"r{number}", [])
        driver.start()
        driver.follow()
        driver.released = list(driver.applied)
        driver.take_over()
        for _ in range(count):
            driver.call(b"x" * 3000)
        driver.idle()


def test_the_way_begins_at_the_file_that_holds_the_next_message(disk: SimDisk) -> None:
    epochs(disk, 10, 10)
    finder = RouteFinder(disk.view("x"))
    starts = [finder.find(2, lsn).start for lsn in range(21)]
    assert [(start.epoch, start.roll) for start in starts] == sorted((s.epoch, s.roll) for s in starts)
    assert starts[0].epoch == 1
    assert starts[0].roll == 0
    assert starts[20].epoch == 2
    assert starts[20].roll > 0
    for lsn, start in enumerate(starts):
        assert start.lsn <= lsn


def test_what_a_cut_names_as_confirmed_is_known_before_anything_is_read(disk: SimDisk) -> None:
    epochs(disk, 3, 3)
    assert RouteFinder(disk.view("x")).find(2, 0).confirmed == 3


def test_files_below_the_place_asked_for_are_not_missed(disk: SimDisk) -> None:
    epochs(disk, 10, 10)
    fs = disk.view("x")
    for epoch, roll in listed_segments(fs):
        if epoch == 1:
            fs.unlink(segment_path(epoch, roll))
    assert RouteFinder(fs).find(2, 10).start.lsn == 10
    with pytest.raises(LogTruncated, match=r"e000000000001.* is missing"):
        RouteFinder(fs).find(2, 9)
    assert RouteFinder(fs).find_oldest(2).start.lsn == 10


def test_the_oldest_place_is_the_first_message_where_nothing_was_collected(disk: SimDisk) -> None:
    epochs(disk, 10, 0, 10)
    start = RouteFinder(disk.view("x")).find_oldest(3).start
    assert (start.epoch, start.lsn, start.position) == (1, 0, ORIGIN)


def test_the_heads_first_file_must_be_there_whatever_is_asked_for(disk: SimDisk) -> None:
    epochs(disk, 10)
    fs = disk.view("x")
    fs.unlink(segment_path(1, 0))
    for ask in (RouteFinder(fs).find_oldest, lambda head: RouteFinder(fs).find(head, 10)):
        with pytest.raises(LogTruncated, match=r"e000000000001\.r000000\.seg is missing"):
            ask(1)


def test_a_head_without_a_cut_is_truncated(disk: SimDisk) -> None:
    fs = disk.view("x")
    fs.make_folder("log")
    fs.close(fs.create(segment_path(1, 0)))
    with pytest.raises(LogTruncated, match="has no cut"):
        RouteFinder(fs).find(1, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"service_id": b"x" * 16}, "service id"),
        ({"incarnation": 8}, "incarnation is 7, not 8"),
        ({"fence": "etcd"}, "fence is seal, not etcd"),
        ({"store_id": "other"}, "lock store is store, not other"),
    ],
)
def test_a_directory_of_another_is_refused_unless_adopted(disk: SimDisk, change: dict[str, object], text: str) -> None:
    epochs(disk, 1, 1)
    fs = disk.view("x")
    foreign = Identity(**{**OURS._asdict(), **change})
    with pytest.raises(ForeignDirectory, match=text):
        RouteFinder(fs, foreign).find(2, 0)
    RouteFinder(fs, foreign, Safeguards(check_identity=False)).find(2, 0)
    RouteFinder(fs, OURS).find(2, 0)
    adopted = foreign._replace(adopted_through=2)
    if "service_id" in change:
        with pytest.raises(ForeignDirectory):
            RouteFinder(fs, adopted).find(2, 0)
    else:
        RouteFinder(fs, adopted).find(2, 0)
        with pytest.raises(ForeignDirectory):
            RouteFinder(fs, foreign._replace(adopted_through=1)).find(2, 0)


@pytest.mark.parametrize("payload", [b"\xc1", msgspec.msgpack.encode("no cut")])
def test_a_cut_that_can_not_be_read_is_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptFrame, match="can't be read"):
        decode_cut(frame_of(payload, lsn=1), "path")


def test_a_cut_whose_header_disagrees_is_corrupt() -> None:
    cut = Cut(ORIGIN, "bank", SERVICE_ID, 7, "seal", STORE, bytes(16), "r0", 0)
    with pytest.raises(CorruptFrame, match="disagree"):
        decode_cut(frame_of(msgspec.msgpack.encode(cut), lsn=5), "path")


def frame_of(payload: bytes, *, lsn: int) -> Frame:
    raw = encode_frame(
        FrameKind.CUT,
        payload,
        epoch=3,
        first_lsn=lsn,
        confirmed_lsn=0,
        count=0,
        incarnation=7,
        prev_chain=ChainHash(bytes(16)),
        chain=ChainHash(bytes(16)),
        index=0,
    )
    frame = decode_frame(raw)
    assert frame is not None
    return frame


def test_a_listing_shows_segments_only(disk: SimDisk) -> None:
    fs = disk.view("x")
    assert listed_segments(fs) == []
    epochs(disk, 1)
    for name in ("notes.txt", "e1.r1.seg", "e00000000000x.r000000.seg"):
        fs.close(fs.create(f"log/{name}"))
    assert listed_segments(fs) == [(1, 0)]
    assert fs.size(fs.open(segment_path(1, 0))) % BLOCK == 0
