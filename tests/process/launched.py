"""Launchers with the names of AMBROSIA's tools in a folder, and programs that are started beside them, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.ports import free_ports
from replica_set import wait_for

from deathless.cli.ambrosia.launchers import install
from deathless.execution.author.instance_names import service_of
from deathless.sdk.client import SyncClient
from deathless.shell.operate.runner import running_supervisor

PROGRAM = Path(__file__).with_name("original_program.py")
ADD, ASK = 1, 2


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

    def alone(self, name: str, *more: str) -> subprocess.Popen[str]:
        """Start a coordinator."""
        return self._start(str(self.folder / "ImmortalCoordinator"), f"-i={name}", "-p=0", *more)

    def coordinator(
        self, name: str, *more: str, program: int, version: int = 0, kill_at: str = ""
    ) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        """Start a coordinator, and the program once it is ready; gives both."""
        coordinator = self.alone(name, *more)
        read_until(coordinator, "Ready")
        return coordinator, self.program(name, program, version, kill_at=kill_at, kill=coordinator)

    def program(
        self, name: str, number: int, version: int = 0, *, kill_at: str = "", kill: subprocess.Popen[str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the program; at a step it kills somebody."""
        more = {"KILL_AT": kill_at, "KILL_PID": str(kill.pid)} if kill is not None else {}
        return self._start(sys.executable, str(PROGRAM), name, *self.ports(number), str(version), **more)

    def debugging(
        self, name: str, number: int, *more: str, version: int = 0
    ) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        """Run an instance's log again at the ports of a replica; gives the tool and the program."""
        receive, send = self.ports(number)
        words = ("DebugInstance", "-i", name, "-rp", receive, "-sp", send, "-l", str(self.folder), *more)
        tool = self._start(str(self.folder / "Ambrosia"), *words)
        read_until(tool, "Ready")
        return tool, self.program(name, number, version)

    def gone(self, name: str) -> None:
        """Wait until nothing of an instance's first replica is left."""
        replica = self.directory(name) / "replicas" / "r0"
        wait_for(lambda: not running_supervisor(replica), "nothing of the coordinator to be left")

    def directory(self, name: str) -> Path:
        """Of an instance's data."""
        return self.folder / ".deathless" / service_of(name)

    def _start(self, *command: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **more}
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End everything."""
        for process in self.started:
            process.kill()
            process.communicate()

    def add(self, name: str, count: int, method: int = ADD, args: bytes = b"") -> int:
        """Have an instance add so many bytes; gives its total."""
        with SyncClient(service_of(name), [f"dir:{self.directory(name)}"]) as client:
            return int(client.call("call", "", result=bytes, method=method, args=args or bytes(count)))


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """Read a process's lines up to one that holds a word, and give that; fails when it ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return line
    raise AssertionError(f"no {word!r} in {lines}")
