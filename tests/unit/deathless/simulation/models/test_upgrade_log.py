"""The log of the upgrade model: what readers follow, and what of it they never meet again."""

import pytest

from deathless.simulation.models.takeover_log import ROOT, FrameId, MissingFileError, Position, Roll, SegmentOf
from deathless.simulation.models.upgrade_log import (
    Cut,
    File,
    Frame,
    Header,
    Record,
    Upgraded,
    first_record,
    opened_above,
    read_log,
    route,
    without_unread,
)
from deathless.simulation.models.upgrade_rules import FIRST, SECOND


def frame(epoch: int, number: int, confirmed: int = 0) -> Frame:
    return Frame(FrameId(epoch, number), confirmed, FIRST)


def file(epoch: int, roll: int, *records: Record) -> File:
    return SegmentOf(epoch, roll, records, len(records))


UPGRADED = Upgraded(2, SECOND)
OLD = file(1, 0, Cut(ROOT, FIRST), frame(1, 0), frame(1, 1, 1), Header("confirm", 2), frame(1, 2))
NEW = file(2, 0, Cut(Position(1, 0, 3), SECOND), Frame(UPGRADED, 2, SECOND), Header("opening", 3))


def test_reader_follows_the_cut_and_finds_the_record_behind_the_last_frame_of_the_former_generation() -> None:
    log = read_log((OLD, NEW), 2)
    assert log.place == (FrameId(1, 0), FrameId(1, 1), UPGRADED)
    assert log.confirmed == 3
    assert log.last == Header("opening", 3)
    assert first_record((OLD, NEW), 2).writer == SECOND
    assert route((OLD, NEW), 2) == (2, 1)


def test_confirmed_is_the_highest_number_in_any_header() -> None:
    log = read_log((OLD,), 1)
    assert (len(log.frames), log.confirmed) == (3, 2)
    assert log.frames[2].end == Position(1, 0, 5)


def test_reader_follows_rolls() -> None:
    first = file(1, 0, Cut(ROOT, FIRST), frame(1, 0), Roll(1))
    assert read_log((first, file(1, 1, frame(1, 1))), 1).place == (FrameId(1, 0), FrameId(1, 1))
    assert read_log((first, file(1, 1)), 1).place == (FrameId(1, 0),)
    with pytest.raises(MissingFileError):
        read_log((first,), 1)


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(file(2, 0), id="no cut"),
        pytest.param(file(2, 0, Cut(Position(1, 0, 9), SECOND)), id="cut beyond the end of its file"),
        pytest.param(file(2, 0, Cut(Position(1, 1, 1), SECOND)), id="cut into a file that no roll leads to"),
    ],
)
def test_log_with_a_part_missing_is_an_error(second: File) -> None:
    with pytest.raises(MissingFileError):
        read_log((OLD, second), 2)


def test_opening_frame_above_head_means_that_the_lock_store_is_older() -> None:
    assert opened_above((OLD, NEW), 1) == 2
    assert opened_above((OLD, NEW), 2) == 0


def test_what_no_reader_can_follow_is_left_out_and_the_log_stays_the_same() -> None:
    rolled = file(1, 1, frame(1, 3))
    attempt = file(3, 0, Cut(Position(1, 0, 2), SECOND))
    kept = without_unread((OLD, rolled, NEW, attempt), 2, 0)
    assert [(each.epoch, each.roll, len(each.records)) for each in kept] == [(1, 0, 3), (2, 0, 3)]
    assert read_log(kept, 2) == read_log((OLD, NEW), 2)
    assert attempt in without_unread((OLD, rolled, NEW, attempt), 2, 3)
