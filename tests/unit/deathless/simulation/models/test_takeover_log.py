"""Files of the takeover model: what a power cut leaves of them, and what readers follow."""

import pytest

from deathless.simulation.models.takeover_log import (
    ENTRY_NOT_SYNCED,
    ROOT,
    AbsentFile,
    Cut,
    Files,
    Frame,
    FrameId,
    MissingFileError,
    Position,
    Record,
    Roll,
    Segment,
    after_power_cut,
    find_file,
    get_file,
    put_file,
    read_log,
)


def frame(epoch: int, number: int) -> Frame:
    return Frame(FrameId(epoch, number), 0)


def names(files: Files, head: int) -> list[FrameId]:
    return [placed.frame.name for placed in read_log(files, head)]


FIRST: Segment = Segment(1, 0, (Cut(ROOT), frame(1, 0), frame(1, 1), Roll(1)), 4)
ROLLED: Segment = Segment(1, 1, (frame(1, 2),), 1)


def test_records_of_different_kinds_are_never_equal() -> None:
    records: list[Record] = [Cut(Position(1, 0, 1)), frame(1, 0), Roll(1)]
    assert len(set(records)) == 3


def test_power_cut_leaves_any_length_between_synced_and_written() -> None:
    segment = Segment(2, 0, (Cut(ROOT), frame(2, 0), frame(2, 1)), 1)
    images = after_power_cut((segment,))
    assert [len(files[0].records) for files in images] == [1, 2, 3]
    assert all(files[0].durable == len(files[0].records) for files in images)


def test_power_cut_may_remove_a_file_whose_entry_is_not_synced() -> None:
    unsynced: Segment = Segment(2, 0, (Cut(ROOT),), ENTRY_NOT_SYNCED)
    images = after_power_cut((unsynced,))
    assert () in images
    assert len(images) == 3


def test_power_cut_leaves_a_synced_directory_as_it_is() -> None:
    assert after_power_cut((FIRST, ROLLED)) == ((FIRST, ROLLED),)


def test_files_are_kept_in_order_and_replaced_by_name() -> None:
    empty: Files = ()
    files = put_file(put_file(empty, ROLLED), FIRST)
    assert files == (FIRST, ROLLED)
    grown = ROLLED.append(frame(1, 3)).synced()
    assert put_file(files, grown) == (FIRST, grown)
    assert grown.durable == 2
    assert find_file(files, 2, 0) is None
    with pytest.raises(MissingFileError):
        get_file(files, 2, 0)


def test_reader_follows_rolls() -> None:
    assert names((FIRST, ROLLED), 1) == [(1, 0), (1, 1), (1, 2)]


def test_reader_ignores_what_lies_beyond_a_cut_and_later_rolls() -> None:
    second: Segment = Segment(2, 0, (Cut(Position(1, 0, 2)), frame(2, 0)), 2)
    assert names((FIRST, ROLLED, second), 2) == [(1, 0), (2, 0)]


def test_reader_follows_a_cut_into_a_rolled_file() -> None:
    second: Segment = Segment(2, 0, (Cut(Position(1, 1, 1)), frame(2, 0)), 2)
    assert names((FIRST, ROLLED, second), 2) == [(1, 0), (1, 1), (1, 2), (2, 0)]


def test_missing_roll_is_an_error_unless_the_reader_takes_it_for_the_end() -> None:
    with pytest.raises(MissingFileError):
        read_log((FIRST,), 1)
    assert len(read_log((FIRST,), 1, AbsentFile.END_OF_LOG)) == 2


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Segment(2, 0, (), 0), id="no cut"),
        pytest.param(Segment(2, 0, (Cut(Position(1, 0, 5)),), 1), id="cut beyond the end of its file"),
        pytest.param(Segment(2, 0, (Cut(Position(1, 2, 1)),), 1), id="cut into a file that is not there"),
    ],
)
def test_log_with_a_part_missing_is_an_error(second: Segment) -> None:
    with pytest.raises(MissingFileError):
        read_log((FIRST, ROLLED, second), 2)
