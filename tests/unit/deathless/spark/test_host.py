"""The process of an agent: its lock, its drivers' command, and what it tells people."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import OtherSupervisor
from deathless.base.pipelines.agents import AgentConfig, AgentStatus
from deathless.shell.disk.holders import holder_of
from deathless.spark.host import Publisher, command_of, hold


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    first = hold(tmp_path)
    assert holder_of(tmp_path / "agent.lock") == os.getpid()
    with pytest.raises(OtherSupervisor, match="another agent runs"):
        hold(tmp_path)
    os.close(first)
    os.close(hold(tmp_path))


def test_drivers_are_started_with_what_the_manifest_said() -> None:
    config = AgentConfig(pipeline="p", name="d0", module="d.py:build", directory="/d", conf={"a": "b=c"}, trigger="1 s")
    command = command_of(config)
    assert command[3:] == ["d.py:build", "--manifest", "", "--directory", "/d", "--trigger", "1 s", "--conf", "a=b=c"]


def test_a_status_is_written_when_it_changes_and_again_where_it_could_not_be(tmp_path: Path) -> None:
    now = AgentStatus(pid=1, agent="a", role="starting")
    folder = tmp_path / "d0"
    publisher = Publisher(folder, lambda: now)
    publisher.tell()  # the folder is not there: it is tried again
    folder.mkdir()
    publisher.tell()
    assert b"starting" in (folder / "status.json").read_bytes()
    (folder / "status.json").unlink()
    publisher.tell()
    assert not (folder / "status.json").exists(), "nothing has changed"
    now = AgentStatus(pid=1, agent="a", role="warm")
    publisher.tell()
    assert b"warm" in (folder / "status.json").read_bytes()
