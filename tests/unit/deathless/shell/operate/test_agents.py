"""Agents of drivers are known by their files: who runs, and what each tells."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deathless.base.errors import InvalidConfig
from deathless.base.pipelines.agents import AgentConfig, AgentStatus
from deathless.shell.link.config_file import write_private
from deathless.shell.operate import agents as module
from deathless.shell.operate.agents import (
    DriverAgent,
    DriverView,
    look_at_drivers,
    read_agent_config,
    running_agents,
    write_status,
)


def agent_in(directory: Path, name: str = "d0") -> DriverAgent:
    """One with its configuration, which was never started."""
    agent = DriverAgent(AgentConfig(pipeline="delays", name=name, module="m:build", directory=str(directory)))
    agent.folder.mkdir(parents=True)
    write_private(agent.folder / "config.json", module._text_of(agent.config))
    return agent


@contextmanager
def held(agent: DriverAgent) -> Iterator[None]:
    """Its lock, by this process."""
    descriptor = os.open(agent.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    try:
        yield
    finally:
        os.close(descriptor)


def told(pid: int) -> AgentStatus:
    return AgentStatus(pid=pid, agent="host.1.a", role="driver", number=4, driver_pid=9, ui="http://h:1")


def test_its_files_stand_in_a_folder_of_its_own(tmp_path: Path) -> None:
    agent = agent_in(tmp_path)
    assert (agent.name, agent.folder) == ("d0", tmp_path / "agents" / "d0")
    assert agent.stands()
    assert read_agent_config(agent.folder / "config.json") == agent.config
    (agent.folder / "config.json").unlink()
    assert not agent.stands()


def test_what_it_tells_counts_while_it_lives(tmp_path: Path) -> None:
    agent = agent_in(tmp_path)
    write_status(agent.folder, told(os.getpid()))
    assert look_at_drivers(tmp_path) == [DriverView("d0", "dead")]
    assert running_agents(tmp_path) == {}
    with held(agent):
        shown = DriverView("d0", "driver", 4, "host.1.a", os.getpid(), 9, "http://h:1")
        assert look_at_drivers(tmp_path) == [shown]
        assert running_agents(tmp_path) == {"d0": os.getpid()}


@pytest.mark.parametrize("damaged", [False, True])
def test_what_the_one_before_told_is_not_shown_of_its_successor(tmp_path: Path, *, damaged: bool) -> None:
    agent = agent_in(tmp_path)
    write_status(agent.folder, told(os.getpid() + 1))
    if damaged:
        (agent.folder / "status.json").write_text("{")
    with held(agent):
        assert look_at_drivers(tmp_path) == [DriverView("d0", "starting", agent_pid=os.getpid())]


def test_one_that_was_stopped_tells_nothing_more(tmp_path: Path) -> None:
    agent = agent_in(tmp_path)
    write_status(agent.folder, told(1))
    agent.left()
    agent.left()
    assert not (agent.folder / "status.json").exists()


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"name": 1}')
    for name in ("config.json", "missing.json"):
        with pytest.raises(InvalidConfig, match=name):
            read_agent_config(tmp_path / name)
