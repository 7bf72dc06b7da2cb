"""What has become of a child is told once, whoever else looked; and what a worker's page shows is read in its units."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.deathless.shell.supervisor_bench import config_in

from deathless.core.supervisor.events import Event
from deathless.shell.link.status_page import (
    CALLS,
    FULL,
    LOCK_ANSWERS,
    LSN,
    SLOWEST,
    STORAGE,
    TICKS,
    UNPROVED,
    page_path,
)
from deathless.shell.supervisor.worker_process import Change, WorkerProcess, changes_of


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])


def wait(child: subprocess.Popen[bytes]) -> Change:
    """Wait for what becomes of it next."""
    while not (changes := list(changes_of(child))):
        pass
    [change] = changes
    return change


def test_stop_and_end_by_signals_are_told(child: subprocess.Popen[bytes]) -> None:
    assert list(changes_of(child)) == []
    child.send_signal(signal.SIGSTOP)
    assert wait(child) == Change(None, suspended=True)
    child.send_signal(signal.SIGCONT)
    assert wait(child) == Change(None, suspended=False)
    child.kill()
    assert wait(child) == Change(-signal.SIGKILL, suspended=False)


@pytest.mark.parametrize("look", [lambda child: child.wait(), lambda child: (child.wait(), child.kill())])
def test_end_that_somebody_else_took_note_of_is_told(
    child: subprocess.Popen[bytes], look: Callable[[subprocess.Popen[bytes]], object]
) -> None:
    child.kill()
    look(child)
    assert list(changes_of(child)) == [Change(-signal.SIGKILL, suspended=False)]


def test_nobody_is_asked_about_where_there_is_no_child() -> None:
    assert list(changes_of(None)) == []


def test_page_is_read_in_seconds_and_its_message_is_taken_once(tmp_path: Path) -> None:
    told: list[Event] = []
    worker = WorkerProcess(config_in(tmp_path), told.append)
    assert (worker.read(), worker.take_running(), worker.pid) == (None, None, 0)
    page = worker.open_page()
    try:
        assert page.running is not None
        page.running.enter(5, 8)
        for cell, value in ((TICKS, 3), (CALLS, 4), (LSN, 9), (FULL, 1), (UNPROVED, 1500), (LOCK_ANSWERS, 2500)):
            page.cells[cell] = value
        page.cells[SLOWEST], page.cells[STORAGE] = 700, 1
        read = worker.read()
        assert read is not None
        assert (read.running, read.ticks, read.calls, read.lsn, read.full) == ((5, 8), 3, 4, 9, True)
        assert (read.unproved_s, read.lock_answers_s, read.slowest_ms, read.storage) == (1.5, 2.5, 700, 1)
        assert read.upstream_age_s == float("inf")
        assert (worker.take_running(), worker.take_running()) == ((5, 8), None)
        assert told == []
    finally:
        Path(page_path(str(tmp_path), "r0")).unlink()
