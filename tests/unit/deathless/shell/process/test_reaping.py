"""Killed children are waited for, but never for ever: what the kernel keeps is named and left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.deathless.shell.unkillable import Unkillable, end_truly, kills_in_vain

from deathless.shell.process import reaping
from deathless.shell.process.reaping import end_all, end_child, reap
from deathless.shell.service_code.check.compare import Watch


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.alarm(120); signal.pause()"])


def fork_sleeper() -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        signal.pause()
        os._exit(0)
    return pid


def named_in(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The processes that a warning names."""
    return [record.__dict__["pid"] for record in caplog.records if record.name == "deathless.reaping"]


def test_processes_are_killed_and_their_codes_taken(caplog: pytest.LogCaptureFixture) -> None:
    processes = [sleeper(), sleeper()]
    end_all(processes)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
    assert named_in(caplog) == []


def test_processes_that_the_kernel_keeps_are_left_after_one_time_for_all(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "END_S", 0.1)
    kept, other = Unkillable(), sleeper()
    last = Unkillable()
    try:
        end_all([kept, other, last])
        assert (kept.returncode, other.poll(), last.returncode) == (None, -signal.SIGKILL, None)
        assert named_in(caplog) == [kept.pid, last.pid]
        assert kept.waits[0] is not None and last.waits == [0.0]
    finally:
        end_truly(kept, last)


def test_forked_child_is_killed_and_gives_its_status() -> None:
    status = end_child(fork_sleeper())
    assert status is not None and os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_forked_child_that_the_kernel_keeps_is_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = fork_sleeper()
    with kills_in_vain(monkeypatch) as killed:
        assert end_child(pid, 0.05) is None
    assert named_in(caplog) == killed == [pid]


def test_child_that_ends_by_itself_gives_its_status_and_needs_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    monkeypatch.delattr(os, "pidfd_open")
    status = reap(pid, 60.0)
    assert status is not None and os.waitstatus_to_exitcode(status) == 3


def test_check_leaves_a_process_that_the_kernel_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "END_S", 0.05)
    process = Unkillable()
    try:
        assert Watch(60.0, time.monotonic()).run(process, "/nowhere") is False
        assert process.returncode is None
    finally:
        end_truly(process)
