"""A log is run again for a program that somebody else starts, as AMBROSIA's DebugInstance does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import Machine, read_until
from replica_set import DEADLINE_S

NAME = "PTIServer"
CALLS = 12  # the tenth makes the program tell itself how much it has


@pytest.fixture(name="machine")
def machine_with_a_log(tmp_path: Path) -> Iterator[Machine]:
    """An instance that got calls and still runs."""
    machine = Machine(tmp_path)
    machine.register("RegisterInstance", NAME, 0)
    coordinator, _ = machine.coordinator(NAME, program=0)
    read_until(coordinator, "NOW I'm Primary")
    for _ in range(CALLS):
        machine.add(NAME, 5)
    yield machine
    machine.end()


def files(machine: Machine) -> dict[str, int]:
    """The checkpoints of the program, and what was begun of one."""
    folder = machine.directory(NAME) / "application"
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix != ".json"}


def test_program_from_outside_gets_the_log_again_and_is_compared(machine: Machine) -> None:
    before = files(machine)
    tool, program = machine.debugging(NAME, 1, "--checkpoint=1", "--currentVersion=0", "--testingUpgrade=false")
    equal = read_until(tool, "equal")
    assert "behind the checkpoint at position 0; 13 messages got, 13 messages sent" in equal
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert tool.wait(DEADLINE_S) == 0
    assert files(machine) == before
    assert machine.add(NAME, 1) == 5 * CALLS + 1


def test_upgrade_that_sends_something_else_is_told_and_gets_all_rows(machine: Machine) -> None:
    tool, program = machine.debugging(NAME, 1, "-c", "1", "-tu")
    assert "in a test" in read_until(program, "goes over to 1")
    assert read_until(tool, "position 1: it sent something else")
    assert "13 messages got" in read_until(tool, "differs:")
    tool.terminate()
    assert tool.wait(DEADLINE_S) == 1
    assert program.wait(DEADLINE_S) == 0
