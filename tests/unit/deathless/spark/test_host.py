"""The process of an agent: its lock, its drivers' command, and what it tells people."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import InvalidConfig, OtherSupervisor
from deathless.base.pipelines.agents import CONFIG_VARIABLE, READY_FILE, AgentConfig, AgentStatus
from deathless.shell.disk.holders import holder_of
from deathless.spark.host import Publisher, announcer, command_of, hold, pod_folder


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    first = hold(tmp_path)
    assert holder_of(tmp_path / "agent.lock") == os.getpid()
    with pytest.raises(OtherSupervisor, match="another agent runs"):
        hold(tmp_path)
    os.close(first)
    os.close(hold(tmp_path))


def test_drivers_are_started_with_what_the_manifest_said() -> None:
    config = AgentConfig(pipeline="p", name="d0", module="d.py:build", directory="/d", conf={"a": "b=c"}, trigger="1 s")
    command = command_of(config, Path("/d/agents/d0/config.json"))
    assert command[3:6] == [f"{Path.cwd()}/d.py:build", "--manifest", ""]
    assert command[-6:] == ["--trigger", "1 s", "--conf", "a=b=c", "--config", "/d/agents/d0/config.json"]


def test_a_status_is_written_when_it_changes_and_again_where_it_could_not_be(tmp_path: Path) -> None:
    now = AgentStatus(pid=1, agent="a", role="starting")
    folder = tmp_path / "d0"
    also: list[AgentStatus] = []
    publisher = Publisher(folder, lambda: now, also.append)
    publisher.tell()  # the folder is not there: it is tried again
    folder.mkdir()
    publisher.tell()
    assert b"starting" in (folder / "status.json").read_bytes()
    (folder / "status.json").unlink()
    publisher.tell()
    assert not (folder / "status.json").exists(), "nothing has changed"
    assert not (folder / READY_FILE).exists()
    now = AgentStatus(pid=1, agent="a", role="warm")
    publisher.tell()
    assert b"warm" in (folder / "status.json").read_bytes()
    assert (folder / READY_FILE).exists()
    assert [each.role for each in also] == ["starting", "warm"]


def test_in_a_pod_the_config_is_a_variable_and_what_a_container_left_is_used_again(tmp_path: Path) -> None:
    for given in ("{}", '{"name":"d"}'):
        path = pod_folder({CONFIG_VARIABLE: given}, tmp_path)
        assert path.read_text() == given
        assert not (path.parent / READY_FILE).exists(), "the driver of before is gone"
        (path.parent / READY_FILE).touch()
    with pytest.raises(InvalidConfig, match=CONFIG_VARIABLE):
        pod_folder({}, tmp_path)


def test_without_a_pod_there_is_nobody_to_tell() -> None:
    with pytest.raises(InvalidConfig, match="KUBERNETES_SERVICE_HOST"):
        announcer({"POD_NAME": "delays-drivers-0"})
