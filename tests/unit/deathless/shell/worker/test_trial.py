"""A copy of the process may die of a message; the process itself learns of which, and stays as it was."""

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from replica_set import wait_for
from tests.unit.deathless.shell.unkillable import kills_in_vain

from deathless.execution.turn.running import Running
from deathless.shell.link.status_page import Page
from deathless.shell.process.reaping import reap
from deathless.shell.worker import trial
from deathless.shell.worker.trial import try_out


def raises() -> None:
    raise MemoryError


def hangs() -> None:
    signal.pause()


def exits() -> None:
    os._exit(3)


def crashes() -> None:
    ctypes.string_at(0)


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(str(tmp_path / "page"), fresh=True)


@pytest.mark.parametrize("ends", [raises, exits, crashes, hangs])
def test_copy_that_dies_names_the_message_in_which_it_did(
    page: Page, ends: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def reap_within_message(pid: int, max_s: float) -> int | None:
        """Let the time be over once it runs its message, however late a busy machine lets it."""
        wait_for(lambda: page.read_running() == Running(7, 42), "message that is run")
        return reap(pid, 0.0 if ends is hangs else max_s)

    def work() -> None:
        assert page.running is not None
        page.running.enter(7, 40)
        page.running.cells[2] = 2
        seen.append(1)
        ends()

    monkeypatch.setattr(trial, "reap", reap_within_message)
    assert try_out(work, page, 60.0) == Running(7, 42)
    assert page.read_running() is None
    assert seen == []


def test_copy_that_survives_names_nobody_and_changes_nothing_here(page: Page) -> None:
    seen: list[int] = []
    assert try_out(lambda: seen.append(1), page, 60.0) is None
    assert seen == []


def test_copy_that_dies_in_no_message_is_held_against_none(page: Page) -> None:
    assert try_out(raises, page, 60.0) is None


def test_copy_that_even_a_kill_does_not_end_is_left_and_names_no_message(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        assert page.running is not None
        page.running.enter(7, 40)
        hangs()

    with kills_in_vain(monkeypatch) as killed:
        assert try_out(work, page, 0.5) is None
        assert len(killed) == 1
    assert page.read_running() is None


def test_without_a_copy_nobody_is_named(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no process")

    monkeypatch.setattr(os, "fork", refused)
    assert try_out(raises, page, 60.0) is None
