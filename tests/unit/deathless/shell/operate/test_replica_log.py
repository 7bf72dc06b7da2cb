"""Log files of replicas: lines, growth, last words."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import Internal, UpgradeRequired
from deathless.shell.operate import replica_log as module
from deathless.shell.operate.replica_log import LogLine, LogTail, cut_log, last_words, parse_log_line, told_error


def test_line_of_ours_is_taken_apart_and_any_other_is_text() -> None:
    line = msgspec.json.encode({"text": "worker ends", "level": "error", "code": "DL4009", "why": "other code", "x": 1})
    assert parse_log_line(line) == LogLine(text="worker ends", level="error", code="DL4009", why="other code")
    assert parse_log_line(b"Traceback \xff") == LogLine(text="Traceback \ufffd", level="warning")


def test_last_words_are_the_reason_and_not_what_came_after(tmp_path: Path) -> None:
    assert "replica.log" in last_words(tmp_path)
    lines = [{"text": "a"}, {"text": "worker ends", "code": "DL4009", "why": "DL4009 other code"}, {"text": "bye"}]
    (tmp_path / "replica.log").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    assert last_words(tmp_path) == "DL4009 other code"
    (tmp_path / "replica.log").write_text("DL3011 plain\n\n")
    assert last_words(tmp_path) == "DL3011 plain"


def test_tail_gives_whole_lines_that_are_new(tmp_path: Path) -> None:
    path = tmp_path / "replica.log"
    path.write_text("old\n")
    tail = LogTail(path)
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert [line.text for line in tail.read()] == ["one"]
        file.write("o\n\nthree\n")
        file.flush()
        assert [line.text for line in tail.read()] == ["two", "three"]
    assert tail.read() == []


def test_tail_goes_on_with_a_file_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "replica.log"
    path.write_text("a long old line\n")
    tail = LogTail(path)
    path.write_text("new\n")
    assert [line.text for line in tail.read()] == ["new"]


def test_log_that_grew_too_large_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES_MAX", 10)
    path = tmp_path / "replica.log"
    with path.open("ab") as writer:
        writer.write(b"x" * 11)
        writer.flush()
        cut_log(path)
        writer.write(b"after")
        writer.flush()
    assert path.read_bytes() == b"after"
    assert (tmp_path / "replica.log.1").read_bytes() == b"x" * 11
    cut_log(path)
    assert path.read_bytes() == b"after"


def test_error_that_was_told_is_one_of_its_class_without_its_advice_twice() -> None:
    error = told_error(str(UpgradeRequired("other code")))
    assert isinstance(error, UpgradeRequired)
    assert (error.message, error.advice) == ("other code", UpgradeRequired.remedy)
    assert isinstance(told_error("Segmentation fault"), Internal)
