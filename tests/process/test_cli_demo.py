"""`deathless demo`: by its script and by keys; the verdict comes from the accounts, the exit code from the verdict."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_tool import PROGRAM
from replica_set import DEADLINE_S, send_signal

from deathless.shell.operate.runner import running_supervisor

SCRIPT_S = 3 * DEADLINE_S


def environment(folder: Path) -> dict[str, str]:
    """The demo's own folder is made below this one."""
    return {**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "140", "LINES": "50"}


def left_running(folder: Path) -> list[int]:
    """Supervisors that a demo left behind."""
    return [pid for path in folder.glob("deathless-demo-*/replicas/*") if (pid := running_supervisor(path))]


@pytest.mark.slow
def test_script_breaks_everything_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", "--script", "--json"],
        env=environment(tmp_path), capture_output=True, text=True, timeout=SCRIPT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["verdict"] == "lost 0, doubled 0, total conserved"
    assert [incident["role"] for incident in told["incidents"]] == [
        "primary", "checkpointer", "standby", "primary", "primary", "primary",
    ]  # fmt: skip
    assert not [incident["problem"] for incident in told["incidents"] if incident["problem"]]
    calls = told["calls"]
    assert calls["sent"] == calls["answered"] == calls["applied"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_upgrades_with_kills_before_and_behind_the_commit_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", "--upgrade", "--json"],
        env=environment(tmp_path), capture_output=True, text=True, timeout=SCRIPT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["verdict"] == "lost 0, doubled 0, total conserved"
    assert not [incident["problem"] for incident in told["incidents"] if incident["problem"]]
    calls = told["calls"]
    assert calls["sent"] == calls["answered"] == calls["applied"] > 0
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []


class Terminal:
    """A person before a terminal: sees text, presses keys."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self.seen = ""
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*PROGRAM, *arguments], environment(folder))

    def press(self, key: str) -> None:
        """Press one key."""
        os.write(self._descriptor, key.encode())

    def wait_for(self, pattern: str) -> None:
        """Look on until something is to be seen that was not seen before."""
        start, deadline = len(self.seen), time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.seen[start:]):
            readable, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            data = self._read() if readable else ""
            assert data, f"nothing like {pattern!r}:\n{self.seen[-3000:]}"
            self.seen += data

    def end(self) -> int:
        """Look on to the end; gives the exit code."""
        while data := self._read():
            self.seen += data
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> str:
        try:
            return os.read(self._descriptor, 65536).decode(errors="replace")
        except OSError:  # Linux says so when the other side has closed
            return ""


@pytest.mark.parametrize("last", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_keys_kill_and_quit_with_a_verdict(tmp_path: Path, last: str) -> None:
    terminal = Terminal("demo", "--keep", folder=tmp_path)
    try:
        terminal.wait_for("calls are answered")
        terminal.wait_for("standby")
        terminal.press("k")
        terminal.wait_for(r"kill -9 of the primary: r\d")
        terminal.wait_for(r"kill -9 of the primary \(r\d\): \d+\.\d+ s without service")
        terminal.wait_for("applied [1-9]")
        terminal.press(last)
        assert terminal.end() == 0, terminal.seen[-3000:]
    except BaseException:
        os.kill(terminal.pid, signal.SIGKILL)
        raise
    finally:
        left = left_running(tmp_path)
        for pid in left:
            send_signal(pid, signal.SIGKILL)
    assert left == []
    assert "verdict: lost 0, doubled 0, total conserved" in terminal.seen
    assert len(list(tmp_path.glob("deathless-demo-*/log/*.seg"))) >= 2


def test_demo_that_is_interrupted_leaves_nothing_running(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--script"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Tests that run in the background have it ignored, and children would inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs here
    )
    assert process.stdout is not None
    assert any("calls are answered" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert left_running(tmp_path) == []
