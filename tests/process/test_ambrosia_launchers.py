"""Programs written for AMBROSIA, started as they would be there, by launchers with the names of its tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import ASK, Machine, read_until
from replica_set import DEADLINE_S, wait_for

FATAL = "FATAL ERROR 0: "


@pytest.fixture(name="machine")
def machine_with_launchers(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.end()


def test_program_starts_unchanged_and_goes_on_after_either_is_killed(machine: Machine) -> None:
    machine.register("RegisterInstance", "PTIServer", 0)
    coordinator, program = machine.coordinator("PTIServer", program=0)
    read_until(coordinator, "NOW I'm Primary")
    assert machine.add("PTIServer", 1000) == 1000
    program.kill()
    assert coordinator.stdout is not None
    assert [line for line in coordinator.stdout if line.startswith(FATAL)]
    assert coordinator.wait(DEADLINE_S) == 1
    coordinator, program = machine.coordinator("PTIServer", program=0)
    assert machine.add("PTIServer", 1) == 1001
    coordinator.kill()
    assert program.wait(DEADLINE_S) == 0
    machine.gone("PTIServer")
    coordinator, program = machine.coordinator("PTIServer", program=0)
    assert machine.add("PTIServer", 1) == 1002
    coordinator.terminate()
    assert coordinator.wait(DEADLINE_S) == 0
    assert program.wait(DEADLINE_S) == 0


def test_second_replica_takes_over_and_instances_call_each_other_by_their_names(machine: Machine) -> None:
    machine.register("RegisterInstance", "Server", 0, "-aa")
    machine.register("AddReplica", "Server", 1, "-r=1")
    machine.register("RegisterInstance", "JobClient", 2)
    first, _ = machine.coordinator("Server", program=0)
    read_until(first, "NOW I'm Primary")
    second, _ = machine.coordinator("Server", "-r=1", program=1)
    read_until(second, "I'm a secondary")
    client, _ = machine.coordinator("JobClient", program=2)
    read_until(client, "NOW I'm Primary")
    machine.add("JobClient", 0, ASK, b"Server")
    wait_for(lambda: machine.add("Server", 0) == 1, "the call of the one to be at the other")
    first.kill()
    read_until(second, "NOW I'm Primary")
    machine.add("JobClient", 0, ASK, b"Server")
    wait_for(lambda: machine.add("Server", 0) == 2, "the call of the one to be at the one that took over")
