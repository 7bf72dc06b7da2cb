"""An agent and its driver, which is a script here: what it is told, and what becomes of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from replica_set import wait_for

from deathless.base.errors import PeerUnreachable
from deathless.pipelines.assignment import Assignment, Drivers, report, resign
from deathless.spark.agent import Agent, agent_name, driver_command

DRIVER = """
import json, socket, sys
line = socket.socket(fileno=int(sys.argv[sys.argv.index("--control") + 1]))
line.sendall(b'{"warm": true}\\n')
for order in line.makefile():
    if json.loads(order)["drive"]:
        line.sendall(b'{"decided": 2}\\n')
"""


class Service:
    """Stands for the pipeline's service: it has its rules, and may be out of reach."""

    def __init__(self) -> None:
        self.drivers = Drivers()
        self.now_us = 1
        self.reachable = True
        self.resigned: list[tuple[int, bool, bool]] = []
        self.told: list[tuple[object, ...]] = []

    def report(self, agent: str, *, warm: bool) -> Assignment:
        self._reach()
        return report(self.drivers, agent, self.now_us, warm=warm)

    def resign(self, agent: str, number: int, *, progressed: bool, ordered: bool) -> None:
        self._reach()
        self.resigned.append((number, progressed, ordered))
        resign(self.drivers, agent, number, progressed=progressed, ordered=ordered)

    def _reach(self) -> None:
        if not self.reachable:
            raise PeerUnreachable("nobody answers")


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def agent(service: Service, tmp_path: Path) -> Iterator[Agent]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER, encoding="utf-8")
    with Agent(
        cast("Any", service), "a", [sys.executable, str(script)], lambda *told: service.told.append(told)
    ) as made:
        yield made


def step_until(agent: Agent, done: Any, what: str) -> None:
    """Have it work until something has happened."""

    def look() -> bool:
        agent.step(0.02)
        return bool(done())

    wait_for(look, what)


def driver_of(agent: Agent) -> Any:
    return cast("Any", agent)._driver


def test_a_driver_is_started_and_told_to_drive(service: Service, agent: Agent) -> None:
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    assert (driver_of(agent).number, service.drivers.agent) == (1, "a")
    agent.close()
    assert service.resigned == [(1, True, True)], "one that ended on purpose is no death"


def test_a_driver_that_dies_is_told_at_once_and_another_one_started(service: Service, agent: Agent) -> None:
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    os.killpg(driver_of(agent).pid, signal.SIGKILL)
    step_until(agent, lambda: service.resigned, "its death")
    assert service.resigned == [(1, True, False)]
    assert service.told[0] == ("starting", 0)
    assert {("ready", 0), ("drives", 1)} & set(service.told)
    assert service.told[-1] == ("ended", 1)
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).number == 2, "another driver")


def test_a_driver_that_was_replaced_is_killed(service: Service, agent: Agent) -> None:
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    pid = driver_of(agent).pid
    service.drivers.agent, service.drivers.number = "b", 2
    step_until(agent, lambda: not Path(f"/proc/{pid}").exists(), "its end")
    assert service.resigned == []
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).warm, "another one that waits")
    assert driver_of(agent).number == 0


def test_a_service_that_is_out_of_reach_costs_no_driver_its_life(service: Service, agent: Agent) -> None:
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    service.reachable = False
    pid = driver_of(agent).pid
    for _ in range(5):
        agent.step(0.01)
    service.reachable = True
    agent.step(0.01)
    assert (driver_of(agent).pid, driver_of(agent).number) == (pid, 1)


def test_a_driver_ends_with_its_agent(service: Service, agent: Agent) -> None:
    """Its line is closed then; Java ends with the driver."""
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).warm, "a driver")
    driver = driver_of(agent)
    driver._line.close()
    wait_for(lambda: driver._process.poll() is not None, "its end")
    assert Path(driver._folder).is_dir()
    agent.close()
    assert not Path(driver._folder).exists()


def test_agents_have_names_of_their_own_and_commands_hold_what_they_are_given() -> None:
    assert agent_name() != agent_name()
    assert f".{os.getpid()}." in agent_name()
    command = driver_command("d.py:build", "delays", ["dir:a", "b:1"], ["x=y"], "1 second")
    options = [
        "--pipeline",
        "delays",
        "--trigger",
        "1 second",
        "--address",
        "dir:a",
        "--address",
        "b:1",
        "--conf",
        "x=y",
    ]
    assert command[1:] == ["-m", "deathless.spark.driver", "d.py:build", *options]
