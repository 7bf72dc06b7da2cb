"""A reader gets each position once, or an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, SCHEMA, SERVICE_ID, file_bytes, positions, put, reader_in

from deathless.base.errors import InvalidArgument, TopicGap, TopicRowsDropped
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics import Bounds, TopicReader, TopicSource
from deathless.topics.keeping import publish_floor
from deathless.topics.reader import LOOKS
from deathless.topics.source import FileName


@pytest.fixture(name="three")
def three_files(tmp_path: Path) -> Path:
    """Positions 1 to 9, of two epochs that overlap."""
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1, 2], [3, 4, 5]]))
    put(tmp_path, FileName(4, 2, 1), file_bytes(4, [[4], [5, 6, 7]], epoch=2))
    put(tmp_path, FileName(8, 2, 2), file_bytes(8, [[8, 9]], epoch=2))
    return tmp_path


def test_rows_of_overlapping_files_are_given_once_and_in_order(three: Path) -> None:
    reader = reader_in(three)
    assert reader.bounds() == Bounds(1, 1, 10)
    assert positions(list(reader.read(1, 10))) == [*range(1, 10)]
    for start in range(1, 10):
        for end in range(start, 11):
            assert positions(list(reader.read(start, end))) == [*range(start, end)]
    rows = [row for batch in reader.read(5, 7) for row in batch.to_pylist()]
    assert [(row["_key"], row["flight"], row["minutes"]) for row in rows] == [
        ("key-2", "LH 5", None),
        ("key-0", "LH 6", 42),
    ]


def test_columns_are_those_that_were_asked_for(three: Path) -> None:
    (first, *_) = reader_in(three).read(1, 10, ["minutes", "_position"])
    assert first.schema.names == ["minutes", "_position"]
    with pytest.raises(InvalidArgument, match="no column 'hours'"):
        next(reader_in(three).read(1, 10, ["hours"]))


def test_positions_without_a_row_are_no_gap(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1, 3], [4, 9]]))
    reader = reader_in(tmp_path)
    assert positions(list(reader.read(1, 10))) == [1, 3, 4, 9]
    assert positions(list(reader.read(5, 9))) == []


def test_rows_of_a_former_schema_get_the_columns_that_came(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1]]))
    newer = f"{SCHEMA},gate:utf8?"
    put(tmp_path, FileName(2, 2, 1), file_bytes(2, [], epoch=2, schema=newer))
    (batch,) = reader_in(tmp_path).read(1, 2)
    assert batch.to_pylist()[0]["gate"] is None


def test_a_gap_is_looked_for_again_and_then_an_error_that_names_it(tmp_path: Path) -> None:
    data = bytearray(file_bytes(1, [[1, 2], [3], [4]]))
    data[len(file_bytes(1, [[1, 2]])) + 100] ^= 1
    put(tmp_path, FileName(1, 1, 1), bytes(data))
    pauses: list[float] = []
    reader = TopicReader("t", files=RealFileSystem(tmp_path), sleep=pauses.append)
    batches = reader.read(1, 5)
    assert positions([next(batches)]) == [1, 2]
    with pytest.raises(TopicGap, match=r"position 3 of 3 to 4 .*00001-1-1\.rows: the block at byte .* is damaged"):
        next(batches)
    assert len(pauses) == LOOKS


def test_a_row_that_another_file_gets_meanwhile_closes_the_gap(three: Path) -> None:
    (three / FOLDER / FileName(4, 2, 1).text).rename(three / "late")

    def sleep(_: float) -> None:
        if (three / "late").exists():
            (three / "late").rename(three / FOLDER / FileName(4, 2, 1).text)

    reader = TopicReader("t", files=RealFileSystem(three), sleep=sleep)
    assert positions(list(reader.read(1, 10))) == [*range(1, 10)]


def test_bytes_whose_checksum_is_wrong_are_never_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_bytes(1, [[1, 2], [3, 4]])
    at = data.index(b"LH 1LH 2")
    put(tmp_path, FileName(1, 1, 1), data[:at] + b"XX" + data[at + 2 :])
    with pytest.raises(TopicGap):
        list(reader_in(tmp_path).read(1, 3))
    monkeypatch.setattr("deathless.topics.index.is_whole", lambda *_: True)
    (wrong,) = reader_in(tmp_path).read(1, 3)
    assert wrong.column("flight").to_pylist()[0] == "XX 1"


def test_rows_below_the_floor_are_told_with_the_reason(three: Path) -> None:
    files = RealFileSystem(three)
    publish_floor(files, FOLDER, 5, "retention")
    assert positions(list(reader_in(three).read(3, 6))) == [3, 4, 5], "they are still there"
    (three / FOLDER / FileName(1, 1, 1).text).unlink()
    with pytest.raises(TopicRowsDropped, match="position 3 is below the floor of topic, 5: keepBytes or keepDays"):
        list(reader_in(three).read(3, 6))
    assert reader_in(three).bounds() == Bounds(5, 4, 10)


def test_following_gives_rows_as_they_come(three: Path) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            put(three, FileName(10, 3, 1), file_bytes(10, [[10, 11]], epoch=3))

    reader = TopicReader("t", files=RealFileSystem(three), sleep=sleep)
    batches = reader.follow(8, pause_s=0.5)
    assert positions([next(batches), next(batches)]) == [8, 9, 10, 11]
    assert pauses == [0.5] * 3, "nobody looks without a pause"
    assert reader.wait(50, pauses=2) == 12


def test_following_does_not_wait_for_ever_before_a_gap(three: Path) -> None:
    put(three, FileName(12, 3, 1), file_bytes(12, [[12]], epoch=3))
    reader = reader_in(three)
    with pytest.raises(TopicGap, match="position 10"):
        next(reader.follow(10))


def test_without_a_source_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    assert TopicReader(tmp_path / "none").sources() == []
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidArgument, match="holds no rows"):
            TopicReader(directory).bounds()


def test_of_several_sources_the_one_that_published_last_is_read_and_services_are_named(tmp_path: Path) -> None:
    put(tmp_path, FileName(1, 3, 1), file_bytes(1, [[1]], epoch=3))
    for incarnation, epoch in ((2, 0), (9, 1)):
        folder = tmp_path / TopicSource(SERVICE_ID.hex(), incarnation).folder
        folder.mkdir()
        if epoch:
            (folder / FileName(1, epoch, 1).text).touch()
    reader = TopicReader(tmp_path)
    assert [source.incarnation for source in reader.sources()] == [2, 9, 1], "numbers drawn by chance say nothing"
    assert reader.bounds() == Bounds(1, 1, 2)
    assert TopicReader(tmp_path, TopicSource(SERVICE_ID.hex(), 2)).bounds() == Bounds(1, 1, 1)
    (tmp_path / TopicSource("0" * 32, 1).folder).mkdir()
    with pytest.raises(InvalidArgument, match="several services"):
        TopicReader(tmp_path).bounds()


@pytest.mark.parametrize("start", [0, -1])
def test_positions_begin_with_one(
    start: int,
    three: Path,
) -> None:
    with pytest.raises(InvalidArgument, match="begin with 1"):
        next(reader_in(three).read(start, 3))


def test_holds_and_floors_are_the_reader_s_as_well(three: Path) -> None:
    reader: TopicReader = reader_in(three)
    reader.hold("report", 4, owner="nightly", since="2026-01-01")
    ((name, hold),) = [(each.name, each.hold) for each in reader.holds()]
    assert hold is not None
    assert (name, hold.position, hold.owner) == ("report", 4, "nightly")
    assert reader.drop_hold("report")
    assert reader.skip(6).position == reader.floor().position == 6
    found: Callable[[], None] = lambda: reader.hold("report", 5)  # noqa: E731
    with pytest.raises(TopicRowsDropped, match="an operator gave them up"):
        found()


def test_bytes_from_a_position_are_those_of_its_block_and_all_behind_it(three: Path) -> None:
    reader = reader_in(three)
    sizes = {path.name: path.stat().st_size for path in (three / FOLDER).iterdir()}
    last, middle = sizes[FileName(8, 2, 2).text], sizes[FileName(4, 2, 1).text]
    assert 0 < reader.bytes_from(9) == reader.bytes_from(8) < last
    assert last < reader.bytes_from(5) < reader.bytes_from(4) < last + middle
    assert reader.bytes_from(4) < reader.bytes_from(1) < sum(sizes.values())
    assert reader.bytes_from(10) == 0
