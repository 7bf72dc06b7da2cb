"""An agent and its driver, which is a script here: what it is told, and what becomes of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from replica_set import wait_for

from deathless.base.errors import PeerUnreachable
from deathless.base.pipelines.agents import AgentStatus
from deathless.pipelines.assignment import Assignment, Drivers, report, resign
from deathless.spark.agent import Agent, agent_name, driver_command

DRIVER = """
import socket, sys
from deathless.spark.line import Ended, Fact, Line, Order
line = Line(socket.socket(fileno=int(sys.argv[sys.argv.index("--control") + 1])), Order)
line.send(Fact(ui="http://h:1"))
line.send(Fact(warm=True))
try:
    while True:
        for order in line.receive(60.0):
            line.send(Fact(decided=2))
except Ended:
    pass
"""


class Service:
    """Stands for the pipeline's service: it has its rules, and may be out of reach."""

    def __init__(self) -> None:
        self.drivers = Drivers()
        self.now_us = 1
        self.reachable = True
        self.other = ""  # an agent that reports whenever this one does
        self.resigned: list[tuple[int, bool, bool]] = []
        self.told: list[tuple[object, ...]] = []
        self.reports = 0
        self.unanswered: list[Future[Assignment]] = []

    def report(self, agent: str, *, warm: bool) -> Future[Assignment]:
        self.reports += 1
        given: Future[Assignment] = Future()
        if self.other:
            report(self.drivers, self.other, self.now_us, warm=True)
        if self.reachable:
            given.set_result(report(self.drivers, agent, self.now_us, warm=warm))
        else:
            self.unanswered.append(given)
        return given

    def resign(self, agent: str, number: int, *, progressed: bool, ordered: bool) -> None:
        if not self.reachable:
            raise PeerUnreachable("nobody answers")
        self.resigned.append((number, progressed, ordered))
        resign(self.drivers, agent, number, progressed=progressed, ordered=ordered)


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


def test_what_people_are_shown_is_how_its_driver_is(service: Service, agent: Agent) -> None:
    shown = [agent.status]

    def look() -> AgentStatus:
        if agent.status != shown[-1]:
            shown.append(agent.status)
        return shown[-1]

    step_until(agent, lambda: look().number and look().ui, "a driver")
    assert (shown[0].role, shown[0].driver_pid, shown[-1].role) == ("starting", 0, "driver")
    assert (shown[-1].number, shown[-1].driver_pid, shown[-1].ui) == (1, driver_of(agent).pid, "http://h:1")
    service.other = service.drivers.agent = "b"
    service.drivers.number = 2
    step_until(agent, lambda: look().role == "warm", "another one that waits")
    assert (shown[-1].number, shown[-1].pid) == (0, os.getpid())


def test_a_driver_that_was_replaced_is_killed(service: Service, agent: Agent) -> None:
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    pid = driver_of(agent).pid
    service.other = service.drivers.agent = "b"
    service.drivers.number = 2
    step_until(agent, lambda: not Path(f"/proc/{pid}").exists(), "its end")
    assert service.resigned == []
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).warm, "another one that waits")
    assert driver_of(agent).number == 0


def test_a_service_that_is_out_of_reach_costs_no_driver_its_life(service: Service, agent: Agent) -> None:
    """One report is under way meanwhile: many that come at once would count as so many, and another agent be silent."""
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    service.reachable = False
    pid, before = driver_of(agent).pid, service.reports
    for _ in range(20):
        agent.step(0.01)
    assert (len(service.unanswered), service.reports) == (1, before + 1)
    service.reachable = True
    service.unanswered[0].set_result(report(service.drivers, "a", 1, warm=True))
    agent.step(0.01)
    assert (driver_of(agent).pid, driver_of(agent).number) == (pid, 1)


def test_an_answer_that_is_slow_makes_no_report_later(
    service: Service, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence of who drives is counted in reports of those that wait."""
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    service.reachable = False
    agent.step(0.01)  # it waited for the answer until the next report was due
    waits: list[float] = []
    look = driver_of(agent).look

    def looked(wait_s: float) -> bool:
        waits.append(wait_s)
        return bool(look(wait_s))

    monkeypatch.setattr(driver_of(agent), "look", looked)
    agent.step(0.01)
    service.reachable = True
    service.unanswered[0].set_result(report(service.drivers, "a", 1, warm=True))
    agent.step(0.01)
    assert waits == [0.0, 0.0], "nothing is waited for before the next report"


def test_a_death_that_the_service_did_not_hear_of_costs_nobody_the_number(service: Service, agent: Agent) -> None:
    """The next driver of this agent goes on under it."""
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    service.reachable = False
    os.killpg(driver_of(agent).pid, signal.SIGKILL)
    step_until(agent, lambda: driver_of(agent) is None, "its end")
    service.reachable = True
    for given in service.unanswered:
        given.set_result(report(service.drivers, "a", 1, warm=False))
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch of the next one")
    assert (driver_of(agent).number, service.resigned) == (1, [])


def test_refused_reports_are_told_and_go_on(service: Service, agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """So is a pipeline that was given up."""
    step_until(agent, lambda: driver_of(agent) and driver_of(agent).decided, "a batch")
    service.reachable = False
    agent.step(0.01)
    service.unanswered[0].set_exception(PeerUnreachable("not here"))
    agent.step(0.01)
    assert "refuses reports" in caplog.text
    assert "not here" in caplog.text
    service.reachable, service.drivers.failed = True, "5 drivers ended"
    step_until(agent, lambda: "5 drivers ended" in caplog.text, "the reason")


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
    command = driver_command("d.py:build", "delays.yaml", "", ["x=y"], "1 second")
    options = ["--manifest", "delays.yaml", "--directory", "", "--trigger", "1 second", "--conf", "x=y"]
    assert command[1:] == ["-m", "deathless.spark.driver", "d.py:build", *options]
