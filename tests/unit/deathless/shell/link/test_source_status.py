"""A source's status is read whole or not at all."""

from __future__ import annotations

from pathlib import Path

from deathless.shell.link.source_status import (
    SourceStatus,
    StreamStatus,
    read_status,
    write_status,
)

STREAM = StreamStatus(stream=0, name="flights", state="reading", taken_in=4, end=9)
STATUS = SourceStatus(source="flights", kind="files", input="flights", state="reading", streams=(STREAM,))


def test_status_that_was_written_is_read(tmp_path: Path) -> None:
    assert read_status(str(tmp_path), "flights") is None
    write_status(str(tmp_path), STATUS)
    write_status(str(tmp_path), STATUS)
    assert read_status(str(tmp_path), "flights") == STATUS
    assert [each.name for each in (tmp_path / "sources").iterdir()] == ["flights.json"]


def test_a_stream_says_how_far_it_is_behind_where_its_kind_tells() -> None:
    assert (STREAM.behind, STATUS.standing) == (4, 0)
    assert StreamStatus(stream=0, name="flights", state="reading", taken_in=4).behind == 0
