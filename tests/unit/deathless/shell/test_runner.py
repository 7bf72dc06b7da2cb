"""The runner's parts that need no replica; tests/process/test_cli_up.py runs it over real ones."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, OtherSupervisor, UpgradeRequired
from deathless.shell import runner as module
from deathless.shell.runner import (
    LogLine,
    LogTail,
    Runner,
    RunnerEvent,
    cut_log,
    holder_of,
    last_words,
    parse_log_line,
    running_runner,
    running_supervisor,
    write_private,
)
from deathless.shell.status import ReplicaView, ServiceView


def make_runner(folder: Path, events: list[RunnerEvent] | None = None) -> Runner:
    """A runner of one replica, not started."""
    config = ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")
    return Runner([config], tell=(events if events is not None else []).append)


def test_second_runner_of_a_folder_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async def work() -> None:
        first, second = make_runner(tmp_path / "d"), make_runner(tmp_path / "d")
        first.open()
        assert running_runner(tmp_path / "d") == os.getpid()
        with pytest.raises(OtherSupervisor, match=str(os.getpid())):
            second.open()
        second.close()
        first.close()
        assert running_runner(tmp_path / "d") == 0
        third = make_runner(tmp_path / "d")
        third.open()
        third.close()

    asyncio.run(work())


def test_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    with pytest.raises(InvalidConfig, match=r"spec\.logStorage\.path"):
        make_runner(tmp_path / "d" / "x").open()


def test_holder_of_a_lock_is_named_while_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    assert running_supervisor(tmp_path) == 0
    path.write_text("4242\n")
    assert running_supervisor(tmp_path) == 0
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert holder_of(path) == 4242
    os.close(descriptor)
    assert holder_of(path) == 0


def test_file_with_a_token_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


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


def test_refusal_of_all_replicas_is_the_error_that_they_logged(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    folder = tmp_path / "replicas" / "r0"
    folder.mkdir(parents=True)
    why = f"DL4009 other code ({UpgradeRequired.remedy})"
    (folder / "replica.log").write_bytes(msgspec.json.encode({"text": "ends", "code": "DL4009", "why": why}))
    dead = ReplicaView(replica="r0", state="dead", role="dead", condition="DL4009")
    error = runner.refusal(ServiceView("bank", str(tmp_path), "", 0, [dead]))
    assert isinstance(error, UpgradeRequired)
    assert error.message == "other code"
    assert runner.refusal(ServiceView("bank", str(tmp_path), "", 0, [])) is None
