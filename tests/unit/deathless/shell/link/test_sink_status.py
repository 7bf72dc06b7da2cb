"""A sink's status is read whole or not at all."""

from __future__ import annotations

from pathlib import Path

from deathless.shell.link.sink_status import SinkStatus, read_status, write_status

STATUS = SinkStatus(
    sink="facts", topic="departures", state="ready", position=5, next=9, oldest_us=2_000_000, at_us=5_500_000
)


def test_status_that_was_written_is_read(tmp_path: Path) -> None:
    assert read_status(str(tmp_path), "facts") is None
    write_status(str(tmp_path), STATUS)
    write_status(str(tmp_path), STATUS)
    assert read_status(str(tmp_path), "facts") == STATUS
    assert [each.name for each in (tmp_path / "sinks").iterdir()] == ["facts.json"]


def test_lag_is_of_positions_and_of_the_oldest_rows_age() -> None:
    assert (STATUS.lag, STATUS.lag_s) == (4, 3.5)
    nothing = SinkStatus(sink="facts", topic="departures", state="waiting", next=9, at_us=5)
    assert (nothing.lag, nothing.lag_s) == (0, 0.0)
    held = SinkStatus(sink="facts", topic="departures", state="waiting", hold=2, next=9)
    assert held.lag == 7, "at the most: the store was not reached"
