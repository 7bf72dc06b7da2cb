"""A process that was dropped is waited for at the end of its test, and one that stays fails it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.started_processes import end_dropped_processes

PAUSES = [sys.executable, "-S", "-c", "import signal; signal.alarm(120); signal.pause()"]
LEAVES = """
import subprocess, sys

def test_that_leaves_a_process():
    subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.alarm(120); signal.pause()"])

def test_that_comes_next():
    pass
"""
CONFTEST = """
import tests.started_processes
from tests.conftest import pytest_runtest_teardown
tests.started_processes.end_dropped_processes.__defaults__ = (0.0,)
"""


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def test_killed_process_that_nobody_waited_for_is_waited_for() -> None:
    process = subprocess.Popen(PAUSES)
    pid = process.pid
    os.kill(pid, signal.SIGSTOP)  # so that the signal below is the first that it hears
    process.send_signal(signal.SIGKILL)
    del process  # which would warn, as its end was not seen
    gc.collect()
    assert _is_child(pid)
    assert end_dropped_processes() == []
    assert not _is_child(pid)


def test_process_that_goes_on_is_told_and_killed() -> None:
    pid = subprocess.Popen(PAUSES, stdout=subprocess.PIPE).pid
    assert end_dropped_processes(0.0) == [f"{PAUSES!r} (process {pid})"]
    assert not _is_child(pid)


def test_process_that_is_held_is_left_alone() -> None:
    with subprocess.Popen(PAUSES) as process:
        assert end_dropped_processes() == []
        assert process.poll() is None
        process.kill()


def test_test_that_leaves_a_process_fails_itself(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_environment())
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "test_that_leaves_a_process let a process go that has not ended" in done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
