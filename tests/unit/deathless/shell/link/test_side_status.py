"""What a process beside a replica said last is read whole or not at all."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.shell.link.side_status import read_record, write_record


class Said(msgspec.Struct):
    """A status."""

    number: int


def test_what_was_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "sinks" / "facts.json"
    assert read_record(path, Said, 100) is None
    for number in (1, 2):
        write_record(path, Said(number))
    assert read_record(path, Said, 100) == Said(2)
    assert [each.name for each in path.parent.iterdir()] == ["facts.json"]


def test_what_is_no_status_is_none_and_what_is_too_long_an_error(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(b"{")
    assert read_record(path, Said, 100) is None
    path.write_bytes(b" " * 101)
    with pytest.raises(OSError, match="more than"):
        read_record(path, Said, 100)
