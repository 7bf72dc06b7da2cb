"""Reading the log: followers get what is confirmed, successors all of it, and no one what a cut has left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from deathless.base.errors import CorruptFrame, DataCorrupt, LockUnavailable, LogTruncated
from deathless.codec.frames import BLOCK, ORIGIN, Frame, Position
from deathless.engine.log.reader import LogReader
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.ports import Tail
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.models.log_driver import LogDriver, messages_of
from deathless.simulation.world.disk import SimDisk

ALL = 1 << 30
START = bytes(16)


class Lab:
    """One disk and its drivers."""

    def __init__(self, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.disk = SimDisk(random.Random(1))
        self.released: list[bytes] = []
        self.safeguards = safeguards
        self.count = 0

    def driver(self) -> LogDriver:
        self.count += 1
        name = f"r{self.count}"
        driver = LogDriver(self.disk.view(name), name, self.released, safeguards=self.safeguards)
        driver.start()
        return driver

    def primary(self) -> LogDriver:
        driver = self.driver()
        driver.take_over()
        return driver

    def reader(self, safeguards: Safeguards = ALL_SAFEGUARDS) -> LogReader:
        return LogReader(self.disk.view("reader"), None, safeguards)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        fs = self.disk.view("rot")
        handle = fs.open(path, write=True)
        fs.write(handle, offset, data)
        fs.sync(handle)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def texts(frames: list[tuple[Frame, bytes]]) -> list[bytes]:
    return [message for frame, _ in frames for message in messages_of(frame)]


def test_a_follower_gets_only_what_a_header_calls_confirmed(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    reader = lab.reader()
    frames, end = reader.read(1, 0, START, bytes_max=ALL)
    assert (texts(frames), end) == ([b"one"], True)
    primary.idle()
    frames, end = reader.read(1, 1, frames[-1][0].chain, bytes_max=ALL)
    assert (texts(frames), end) == ([b"two"], True)


def test_without_the_safeguard_a_follower_would_get_unconfirmed_frames(lab: Lab) -> None:
    lab.primary().call(b"one")
    frames, _ = lab.reader(replace(ALL_SAFEGUARDS, confirmed_only=False)).read(1, 0, START, bytes_max=ALL)
    assert texts(frames) == [b"one"]


def test_copies_are_confirmed_by_the_opening_frame_alone(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call_unsynced(b"two")
    assert texts(lab.reader().read(1, 0, START, bytes_max=ALL)[0]) == [b"one"]
    lab.primary()
    assert texts(lab.reader().read(2, 0, START, bytes_max=ALL)[0]) == [b"one", b"two"]


def test_reading_goes_on_in_stretches_across_rolls_and_epochs(lab: Lab) -> None:
    wanted = []
    for number in range(3):
        primary = lab.primary()
        for call in range(10):
            message = b"%d.%d" % (number, call) * 900
            assert primary.call(message)
            wanted.append(message)
        primary.idle()
    reader = lab.reader()
    got: list[bytes] = []
    lsn, chain, end, stretches = 0, START, False, 0
    while not end:
        frames, end = reader.read(3, lsn, chain, bytes_max=5000)
        got += texts(frames)
        if frames:
            lsn, chain = frames[-1][0].last_lsn, frames[-1][0].chain
        stretches += 1
    assert got == wanted
    assert stretches > 10


def test_raw_bytes_are_those_of_the_frame(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.idle()
    [(frame, raw)] = lab.reader().read(1, 0, START, bytes_max=ALL)[0]
    assert raw.endswith(frame.payload)
    assert lab.disk.view("x").disk.inode(segment_path(1, 0)).read(2 * BLOCK, len(raw)) == raw


def test_a_reader_that_has_all_of_an_epoch_needs_no_file_of_it_that_is_collected_behind_it(lab: Lab) -> None:
    old = lab.primary()
    old.call(b"one")
    old.idle()
    new = lab.primary()
    reader = lab.reader()
    ((frame, _),), _ = reader.read(2, 0, START, bytes_max=ALL)
    lab.disk.view("collector").unlink(segment_path(1, 0))
    new.call(b"two")
    new.idle()
    assert texts(reader.read(2, frame.last_lsn, frame.chain, bytes_max=ALL)[0]) == [b"two"]


def test_what_the_old_writer_adds_behind_the_cut_is_ignored(lab: Lab) -> None:
    old = lab.primary()
    old.call(b"one")
    old.idle()
    new = lab.primary()
    new.call(b"two")
    old.call_unsynced(b"late, from a frozen primary")
    old.log.sync()
    new.idle()
    assert texts(lab.reader().read(2, 0, START, bytes_max=ALL)[0]) == [b"one", b"two"]
    careless = lab.reader(replace(ALL_SAFEGUARDS, follow_cuts=False))
    with pytest.raises(DataCorrupt):
        careless.read(2, 0, START, bytes_max=ALL)


def test_an_epoch_that_never_became_head_is_no_part_of_the_log(lab: Lab) -> None:
    lab.safeguards = replace(ALL_SAFEGUARDS, remove_unread=False)  # its file would be gone
    first = lab.primary()
    first.call(b"one")
    lab.disk.fail("link", "lock/head.2")
    with pytest.raises(LockUnavailable):
        lab.primary()
    third = lab.primary()
    third.call(b"three")
    third.idle()
    assert texts(lab.reader().read(3, 0, START, bytes_max=ALL)[0]) == [b"one", b"three"]
    assert lab.disk.view("x").exists(segment_path(2, 0))


def test_the_tail_parts_confirmed_from_unconfirmed_and_names_the_place_between(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    primary.call_unsynced(b"three")
    tail = lab.reader().read_tail(1, 0, START, 0)
    assert texts(tail.confirmed) == [b"one", b"two"]
    assert texts(tail.unconfirmed) == [b"three"]
    assert tail.position == Position(1, 0, 4 * BLOCK, 2, tail.confirmed[-1][0].chain)


def test_what_a_replica_knows_confirmed_moves_the_place(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two", b"three")
    tail = lab.reader().read_tail(1, 0, START, 2)
    assert texts(tail.confirmed) == [b"one", b"two", b"three"], "a frame is confirmed whole"
    assert tail.position.lsn == 3


def test_the_tail_of_a_log_without_an_epoch_is_empty(lab: Lab) -> None:
    reader = lab.reader()
    assert reader.read_tail(0, 0, START, 0) == Tail([], [], ORIGIN)
    assert reader.read(0, 0, START, bytes_max=ALL) == ([], True)
    with pytest.raises(LogTruncated, match="lsn 5 is confirmed"):
        reader.read_tail(0, 0, START, 5)


@pytest.mark.parametrize("calls", [0, 1, 12])
def test_the_place_is_found_for_a_reader_that_has_applied_everything(lab: Lab, calls: int) -> None:
    primary = lab.primary()
    for number in range(calls):
        primary.call(b"%d" % number * 3000)
    primary.idle()
    reader = lab.reader()
    frames, _ = reader.read(1, 0, START, bytes_max=ALL)
    chain = frames[-1][0].chain if frames else START
    for fresh in (reader, lab.reader()):
        tail = fresh.read_tail(1, calls, chain, calls)
        assert (tail.confirmed, tail.unconfirmed) == ([], [])
        assert (tail.position.lsn, tail.position.chain) == (calls, chain)
        again = lab.reader().read_tail(1, 0, START, 0).position
        assert tail.position == again or tail.position.length == 0, "one place, or the start of the next file"


def test_an_end_below_a_confirmed_lsn_is_truncation(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    lab.overwrite(segment_path(1, 0), 3 * BLOCK, bytes(BLOCK))
    with pytest.raises(LogTruncated, match=r"ends at lsn 1, but lsn 2 is confirmed"):
        lab.reader().read_tail(1, 0, START, 2)
    blind = replace(ALL_SAFEGUARDS, check_confirmed_end=False)
    assert texts(lab.reader(blind).read_tail(1, 0, START, 2).confirmed) == [b"one"]


def test_the_last_confirmed_frame_rotten_is_seen_by_the_idle_frame_behind_it(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.idle()
    lab.disk.flip_bit(segment_path(1, 0), 2 * BLOCK + 140, 3)
    with pytest.raises(CorruptFrame, match=rf"e000000000001.r000000.seg offset {2 * BLOCK}: the frame at lsn 1"):
        lab.reader().read_tail(1, 0, START, 0)


def test_the_last_frame_rotten_with_nothing_behind_it_is_told_from_a_torn_write(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    for at in (0, 20, 101, 140):
        lab.disk.flip_bit(segment_path(1, 0), 3 * BLOCK + at, 3)
        with pytest.raises(CorruptFrame, match=rf"offset {3 * BLOCK}: the frame at lsn 2 is not what was written"):
            lab.reader().read_tail(1, 0, START, 0)
        lab.disk.flip_bit(segment_path(1, 0), 3 * BLOCK + at, 3)
    assert texts(lab.reader().read_tail(1, 0, START, 0).unconfirmed) == [b"two"]


def test_without_judging_its_bytes_a_rotten_last_frame_passes_for_the_end(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.call(b"two")
    lab.disk.flip_bit(segment_path(1, 0), 3 * BLOCK + 140, 3)
    blind = lab.reader(replace(ALL_SAFEGUARDS, judge_tail_by_bytes=False))
    assert texts(blind.read_tail(1, 0, START, 0).unconfirmed) == [b"one"], "what was answered is gone without a word"


def test_a_rotten_frame_behind_all_that_is_confirmed_is_passed_over_and_told(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.idle()
    lab.disk.flip_bit(segment_path(1, 0), 3 * BLOCK + 140, 3)
    with pytest.raises(CorruptFrame):
        lab.reader().read_tail(1, 0, START, 0)
    tail = lab.reader().read_tail(1, 0, START, 1, ends_at=1)
    assert texts(tail.confirmed) == [b"one"]
    assert f"offset {3 * BLOCK}" in tail.passed_over
    with pytest.raises(CorruptFrame):
        lab.reader().read_tail(1, 0, START, 1, ends_at=2)


def test_a_half_written_frame_is_nothing_to_a_follower_and_the_end_to_a_successor(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    primary.idle()
    primary.call_unsynced(b"two" * 3000)
    lab.overwrite(segment_path(1, 0), 5 * BLOCK, bytes(BLOCK))
    reader = lab.reader()
    frames, end = reader.read(1, 0, START, bytes_max=ALL)
    for _ in range(3):
        assert reader.read(1, 1, frames[-1][0].chain, bytes_max=ALL) == ([], True)
    assert (texts(frames), end) == ([b"one"], True)
    assert lab.reader().read_tail(1, 0, START, 0).unconfirmed == []


def test_a_follower_judges_bytes_that_stayed_bad_between_two_reads(lab: Lab) -> None:
    primary = lab.primary()
    for _ in range(3):
        primary.call(b"x")
    lab.disk.flip_bit(segment_path(1, 0), 2 * BLOCK + 140)
    reader = lab.reader()
    assert reader.read(1, 0, START, bytes_max=ALL) == ([], True)
    with pytest.raises(CorruptFrame):
        reader.read(1, 0, START, bytes_max=ALL)


def rolled(lab: Lab) -> LogDriver:
    primary = lab.primary()
    for number in range(9):
        primary.call(b"%d" % number * 3000)
    primary.idle()
    return primary


@pytest.mark.parametrize("roll", [0, 1])
def test_a_missing_file_is_an_error_that_names_it_and_never_the_end(lab: Lab, roll: int) -> None:
    rolled(lab)
    lab.disk.view("rm").unlink(segment_path(1, roll))
    for read in (lambda: lab.reader().read(1, 0, START, bytes_max=ALL), lambda: lab.reader().read_tail(1, 0, START, 0)):
        with pytest.raises(LogTruncated, match=rf"e000000000001\.r00000{roll}\.seg is missing"):
            read()


def test_without_the_safeguard_a_missing_rolled_file_passes_for_the_end(lab: Lab) -> None:
    rolled(lab)
    lab.disk.view("rm").unlink(segment_path(1, 1))
    lenient = replace(ALL_SAFEGUARDS, missing_is_error=False)
    assert len(texts(lab.reader(lenient).read_tail(1, 0, START, 0).confirmed)) < 9


def test_a_rotten_roll_frame_does_not_end_the_log(lab: Lab) -> None:
    rolled(lab)
    path = segment_path(1, 0)
    place = 0
    while lab.disk.inode(path).read(place + 6, 1) != b"\x04":
        place += BLOCK
    lab.disk.flip_bit(path, place + 20)
    with pytest.raises(CorruptFrame, match=r"r000001\.seg goes on"):
        lab.reader().read_tail(1, 0, START, 0)


def test_a_next_file_without_a_roll_frame_is_ignored(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one")
    fs = lab.disk.view("x")
    fs.close(fs.create(segment_path(1, 1)))
    assert texts(lab.reader().read_tail(1, 0, START, 1).confirmed) == [b"one"]


@pytest.mark.parametrize("change", [lambda data: bytes(len(data)), lambda data: b"\xff" * len(data)])
def test_a_hole_before_a_cut_is_an_error_for_everyone(lab: Lab, change: Callable[[bytes], bytes]) -> None:
    first = lab.primary()
    first.call(b"one")
    first.idle()
    primary = lab.primary()
    primary.call(b"two")
    primary.idle()
    lab.overwrite(segment_path(1, 0), 2 * BLOCK, change(bytes(BLOCK)))
    with pytest.raises((CorruptFrame, LogTruncated), match="epoch 2 continues from lsn 1"):
        lab.reader().read(2, 0, START, bytes_max=ALL)


def test_a_reader_of_another_history_is_refused(lab: Lab) -> None:
    primary = lab.primary()
    primary.call(b"one", b"two")
    primary.idle()
    for lsn, chain in ((2, b"x" * 16), (1, START), (0, b"x" * 16)):
        with pytest.raises(LogTruncated, match="is not on this log"):
            lab.reader().read(1, lsn, chain, bytes_max=ALL)


def test_a_reader_ahead_of_what_the_storage_shows_waits_and_a_successor_refuses(lab: Lab) -> None:
    lab.primary().call(b"one")
    assert lab.reader().read(1, 9, b"x" * 16, bytes_max=ALL) == ([], True)
    with pytest.raises(LogTruncated, match="lsn 9 is confirmed"):
        lab.reader().read_tail(1, 9, b"x" * 16, 0)


def test_one_flipped_bit_anywhere_in_a_frame_is_found(lab: Lab) -> None:
    rolled(lab)
    chance = random.Random(5)
    whole = lab.reader().read_tail(1, 0, START, 0)
    for _ in range(60):
        place = 2 * BLOCK + chance.randrange(3000) + chance.choice([0, BLOCK, 3 * BLOCK])
        bit = chance.randrange(8)
        lab.disk.flip_bit(segment_path(1, 0), place, bit)
        with pytest.raises(CorruptFrame):
            lab.reader().read_tail(1, 0, START, 0)
        lab.disk.flip_bit(segment_path(1, 0), place, bit)
    assert lab.reader().read_tail(1, 0, START, 0) == whole


def test_a_stale_listing_and_stale_look_ups_hide_nothing_that_was_read_by_name(lab: Lab) -> None:
    primary = lab.primary()
    stale = lab.disk.view("stale")
    stale.stale = True
    reader = LogReader(stale)
    assert reader.read(1, 0, START, bytes_max=ALL) == ([], True)
    for number in range(9):
        primary.call(b"%d" % number * 3000)
    primary.idle()
    assert len(texts(reader.read(1, 0, START, bytes_max=ALL)[0])) == 9, "rolled files are opened by name, not as listed"


def test_the_chain_check_finds_what_a_checksum_can_not(lab: Lab) -> None:
    """A valid frame of the right epoch and index, but of another history."""
    primary = lab.primary()
    primary.call(b"one")
    other = Lab()
    foreign = other.primary()
    foreign.call(b"uno")
    foreign.call(b"due")
    lab.overwrite(segment_path(1, 0), 3 * BLOCK, other.disk.inode(segment_path(1, 0)).read(3 * BLOCK, BLOCK))
    with pytest.raises(CorruptFrame, match="does not continue"):
        lab.reader().read_tail(1, 0, START, 0)
    blind = replace(ALL_SAFEGUARDS, check_chain=False)
    assert texts(lab.reader(blind).read_tail(1, 0, START, 0).unconfirmed) == [b"due"]


def test_a_frame_said_to_stand_somewhere_is_looked_at_before_it_is_believed(lab: Lab) -> None:
    primary = lab.primary()
    for number in range(3):
        primary.call(b"%d" % number)
    primary.idle()
    frames, _ = lab.reader().read(1, 0, START, bytes_max=ALL)
    frame = frames[1][0]
    plain = lab.reader().read_tail(1, 2, frame.chain, 0)
    assert texts(plain.confirmed) == [b"2"]
    for roll, offset in ((0, 3 * BLOCK), (0, 2 * BLOCK), (0, 99 * BLOCK), (7, 0)):
        reader = lab.reader()
        reader.note_place(frame, roll, offset)
        assert reader.read_tail(1, 2, frame.chain, 0) == plain
    hinted = lab.reader()
    hinted.note_place(frame._replace(payload=b"another"), 0, 3 * BLOCK)
    assert hinted.read_tail(1, 2, frame.chain, 0) == plain
    hinted.note_place(frames[0][0], 0, 2 * BLOCK)
    assert hinted.read_tail(1, 2, frame.chain, 0) == plain, "it is for another place"
