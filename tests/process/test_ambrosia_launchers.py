"""Programs written for AMBROSIA, started as they would be there, by launchers with the names of its tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_server import free_ports
from replica_set import DEADLINE_S, wait_for

from deathless.cli.ambrosia.launchers import install
from deathless.execution.author.instance_names import service_of
from deathless.sdk.client import SyncClient
from deathless.shell.operate.runner import running_supervisor

PROGRAM = Path(__file__).with_name("original_program.py")
ADD, ASK = 1, 2
FATAL = "FATAL ERROR 0: "


class Machine:
    """Launchers in a folder, and what was started by them.

    Args:
        folder: for launchers and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self._ports = free_ports(6)
        install(folder)

    def ambrosia(self, *words: str) -> None:
        """Run `Ambrosia`."""
        done = subprocess.run([self.folder / "Ambrosia", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("\n") == 1

    def ports(self, number: int) -> list[str]:
        """Receive port and send port of a replica."""
        return [str(port) for port in self._ports[2 * number : 2 * number + 2]]

    def register(self, verb: str, name: str, number: int, *more: str) -> None:
        """Register an instance, or a replica of it."""
        receive, send = self.ports(number)
        self.ambrosia(verb, f"--instanceName={name}", "-rp", receive, f"/sp:{send}", "-l", str(self.folder), *more)

    def coordinator(self, name: str, *more: str, program: int) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        """Start a coordinator, and the program once it is ready; gives both."""
        coordinator = self._start(str(self.folder / "ImmortalCoordinator"), f"-i={name}", "-p=0", *more)
        read_until(coordinator, "Ready")
        return coordinator, self._start(sys.executable, str(PROGRAM), name, *self.ports(program))

    def _start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def add(self, name: str, count: int, method: int = ADD, args: bytes = b"") -> int:
        """Have an instance add so many bytes; gives its total."""
        service = service_of(name)
        with SyncClient(service, [f"dir:{self.folder / '.deathless' / service}"]) as client:
            return int(client.call("call", "", result=bytes, method=method, args=args or bytes(count)))


@pytest.fixture(name="machine")
def machine_with_launchers(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for process in machine.started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Read a process's lines up to one that holds a word; fails when it ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return
    raise AssertionError(f"no {word!r} in {lines}")


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
    replicas = machine.folder / ".deathless" / service_of("PTIServer") / "replicas"
    wait_for(lambda: not running_supervisor(replicas / "r0"), "nothing of the coordinator to be left")
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
