"""The installed program as a user runs it, for tests: commands as processes, a bank to run them on.

    with Bank(tmp_path, replicas=1) as bank:
        bank.up()
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=5")

Guarantees: whatever a test leaves running is ended, by its id alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from replica_set import DEADLINE_S, send_signal

from deathless.shell.operate.runner import running_runner, running_supervisor

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "deathless.cli.main"]
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: bank}}
spec:
  module: service.py:bank
  replicas: {replicas}
{more}"""

PATIENT_LINE = "  limits: {suspectAfterS: 2.0, logCallMaxS: 30.0}\n"
"""`replica_set.PATIENT` as a line of the manifest's spec."""
Done = subprocess.CompletedProcess[str]


class Bank:
    """The example's bank in a folder of its own.

    Args:
        more: further lines of the manifest's spec, indented by two spaces.
    """

    def __init__(self, folder: Path, *, replicas: int = 3, more: str = "") -> None:
        self.folder = folder
        self.manifest = folder / "service.yaml"
        self.directory = folder / ".deathless" / "bank"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "examples" / "bank" / "service.py", folder / "service.py")
        self.write_manifest(replicas, more)
        self._started: list[subprocess.Popen[str]] = []

    def write_manifest(self, replicas: int, more: str = "") -> None:
        """Write the manifest anew."""
        self.manifest.write_text(MANIFEST.format(replicas=replicas, more=more))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pids = [running_runner(self.directory)]
        pids += [running_supervisor(path) for path in (self.directory / "replicas").glob("*")]
        for pid in filter(None, pids):
            send_signal(pid, signal.SIGKILL)
        for process in self._started:
            process.kill()
            process.communicate()

    def run(self, *arguments: str, code: int | None = 0, cwd: Path | None = None) -> Done:
        """Run a command in the bank's folder; fails when it ends with another code, unless that is None."""
        done = run(*arguments, cwd=cwd or self.folder)
        assert code in (None, done.returncode), f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        """Run a command with --json and give what it told."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def up(self) -> None:
        """Start it in the background."""
        self.run("up", "--detach", str(self.manifest))

    def down(self) -> None:
        """Stop it in order."""
        self.run("down")

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command and leave it running, with more in its environment; its output comes on a pipe."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has them ignore Ctrl-C, and all that they start.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs here
        )
        self._started.append(process)
        return process

    def supervisors(self) -> dict[str, int]:
        """Pids of the supervisors that run."""
        found = {path.name: running_supervisor(path) for path in (self.directory / "replicas").glob("*")}
        return {name: pid for name, pid in sorted(found.items()) if pid}


def run(*arguments: str, cwd: Path) -> Done:
    """Run a command to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """Read a process's lines up to the first that holds a word; fails when it ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if word in line:
            return lines
    raise AssertionError(f"ended before {word!r}:\n" + "\n".join(lines))
