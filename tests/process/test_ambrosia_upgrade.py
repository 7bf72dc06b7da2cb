"""An instance goes over to its next version as AMBROSIA's do: stop, RegisterInstance -uv, start."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import Machine, read_until
from replica_set import DEADLINE_S

NAME = "PTIServer"
MISMATCH = "FATAL ERROR 1: Version mismatch on process start: Expected 0 was: 1"


@pytest.fixture(name="machine")
def machine_with_launchers(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.end()


def killed_at(machine: Machine, step: str) -> None:
    """Start the instance, whose coordinator is killed once its program is at a step."""
    coordinator, program = machine.coordinator(NAME, program=0, kill_at=step)
    assert coordinator.wait(DEADLINE_S) == -signal.SIGKILL
    program.kill()
    machine.gone(NAME)


def begun(machine: Machine, *words: str) -> None:
    """Register the instance, have it add five and stop."""
    machine.register("RegisterInstance", NAME, 0, *words)
    coordinator, program = machine.coordinator(NAME, program=0)
    read_until(coordinator, "NOW I'm Primary")
    assert machine.add(NAME, 5) == 5
    coordinator.terminate()
    assert (coordinator.wait(DEADLINE_S), program.wait(DEADLINE_S)) == (0, 0)


def test_instance_that_is_killed_before_the_cut_goes_on_as_the_former_version(machine: Machine) -> None:
    begun(machine, "--currentVersion=0", "--upgradeVersion=1")  # a first start goes over to nothing
    killed_at(machine, "upgrade")
    killed_at(machine, "save")
    coordinator, program = machine.coordinator(NAME, program=0)
    read_until(program, "goes over to 1")
    read_until(coordinator, "NOW I'm Primary")
    assert machine.add(NAME, 5) == 15
    program.kill()
    assert coordinator.wait(DEADLINE_S) == 1
    machine.gone(NAME)
    former = machine.alone(NAME)
    assert MISMATCH in read_until(former, "FATAL")
    assert former.wait(DEADLINE_S) == 1
    tool, _ = machine.debugging(NAME, 1, "-c=1", "-cv=0")
    assert "1 message got" in read_until(tool, "equal")


def test_instance_that_is_killed_behind_the_cut_goes_on_as_the_next_version(machine: Machine) -> None:
    begun(machine, "-cv=3")
    machine.register("RegisterInstance", NAME, 0, "-cv=3", "-uv=9")
    killed_at(machine, "again")
    machine.register("RegisterInstance", NAME, 0, "-cv=9")
    machine.coordinator(NAME, program=0, version=1)
    assert machine.add(NAME, 5) == 15
