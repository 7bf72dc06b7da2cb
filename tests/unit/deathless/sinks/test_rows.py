"""What a sink sees of a topic: its rows, its hold, and how much that keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="rows are read with pyarrow: pip install deathless[topics]")

from tests.unit.deathless.topics.topic_lab import (
    FOLDER,
    SCHEMA,
    SERVICE_ID,
    file_bytes,
    positions,
    put,
    written,
)

from deathless.base.errors import SinkRowsDropped, SinkUnavailable, TopicGap
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.sinks import rows
from deathless.sinks.machine import HoldSeen, Look
from deathless.sinks.rows import TopicRows, source_of
from deathless.topics import TopicReader, TopicSource
from deathless.topics.keeping import publish_floor
from deathless.topics.source import FileName

SOURCE = TopicSource(SERVICE_ID.hex(), 1)


def of(folder: Path) -> TopicRows:
    return TopicRows(str(folder), SOURCE, "facts")


@pytest.fixture(name="three")
def three_files(tmp_path: Path) -> Path:
    """Positions 1 to 9, three in each file."""
    for first in (1, 4, 7):
        put(tmp_path, FileName(first, 1, 1 + first // 3), file_bytes(first, [[first, first + 1], [first + 2]]))
    return tmp_path


def test_look_tells_bounds_columns_hold_and_bytes(three: Path) -> None:
    one = of(three)
    reader = TopicReader(three, SOURCE)
    assert one.look(0) == Look(1, 1, 10, SCHEMA, None, reader.bytes_from(1))
    assert one.look(5).held_bytes == reader.bytes_from(5), "without a hold: from the tip on"
    assert one.hold(HoldSeen(8, 2, 1))
    assert one.look(5) == Look(1, 1, 10, SCHEMA, HoldSeen(8, 2, 1), reader.bytes_from(8))
    one.drop_hold()
    assert one.look(0).hold is None


def test_hold_of_the_same_name_that_is_none_of_ours_is_written_anew(three: Path) -> None:
    TopicReader(three, SOURCE).hold("sink.facts", 3, since="yesterday")
    assert of(three).look(0).hold is None
    (three / FOLDER / "holds" / "sink.facts.json").write_text("{")
    assert of(three).look(0).hold is None


def test_hold_below_the_floor_is_not_registered(three: Path) -> None:
    publish_floor(RealFileSystem(three), FOLDER, 5, "retention")
    assert not of(three).hold(HoldSeen(3, 3, 0))
    assert of(three).look(0).hold is None


def test_block_has_just_its_rows_and_ends_earlier_where_they_are_many(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = of(three).block(2, 9, SCHEMA)
    assert (block.start, block.end, positions(block.batches)) == (2, 9, [2, 3, 4, 5, 6, 7, 8])
    monkeypatch.setattr(rows, "BLOCK_BYTES_MAX", 1)
    block = of(three).block(2, 9, SCHEMA)
    assert (block.start, block.end, positions(block.batches)) == (2, 3, [2])


def test_rows_that_are_gone_or_missing_are_told(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicReader, "__init__", _impatient(TopicReader.__init__))
    with pytest.raises(TopicGap):
        of(three).block(9, 11, SCHEMA)
    publish_floor(RealFileSystem(three), FOLDER, 7, "retention")
    for path in (three / FOLDER).glob("*1-1-1.rows"):
        path.unlink()
    with pytest.raises(SinkRowsDropped, match="sink facts"):
        of(three).block(2, 9, SCHEMA)


def _impatient(init: object) -> object:
    def changed(self: TopicReader, *given: object, **named: object) -> None:
        init(self, *given, **{**named, "sleep": lambda _: None})  # type: ignore[operator]

    return changed


def test_files_that_cannot_be_read_are_no_end_of_the_sink(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("stale handle")

    for name in ("bounds", "read", "hold", "drop_hold"):
        monkeypatch.setattr(TopicReader, name, broken)
    one = of(three)
    for call in (
        lambda: one.look(0),
        lambda: one.block(1, 2, SCHEMA),
        lambda: one.hold(HoldSeen(1, 1, 0)),
        one.drop_hold,
    ):
        with pytest.raises(SinkUnavailable, match="stale handle"):
            call()
    assert one.oldest_us(1, 3) == 0


def test_oldest_row_is_the_first_that_is_not_stored(three: Path) -> None:
    one = of(three)
    assert one.oldest_us(4, 10) == 4_000_000
    assert one.oldest_us(4, 12) == 4_000_000
    assert one.oldest_us(10, 10) == 0


def test_source_is_the_one_of_the_service_that_published_last(tmp_path: Path) -> None:
    assert source_of(str(tmp_path / "nowhere"), SERVICE_ID.hex()) is None

    async def publish() -> None:
        await (await written(tmp_path, 1, 3)).close()

    asyncio.run(publish())
    folder = str(tmp_path)
    assert source_of(folder, SERVICE_ID.hex()) == SOURCE
    assert source_of(folder, "f" * 32) is None
