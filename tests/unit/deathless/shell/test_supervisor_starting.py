"""What a supervisor starts may not start just now: it says why, tries again, and ends for none of it.

Its worker and ingress are scripts, as in test_supervisor.py.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.unit.deathless.shell.supervisor_bench import TICKING, ScriptedSupervisor, supervised, until

from deathless.base.errors import PermissionRefused
from deathless.core.supervisor import restarts as child
from deathless.core.supervisor.effects import Effect, TellPeers
from deathless.engine.replica.failures import as_ours
from deathless.shell.link.status_page import Page, open_page
from deathless.shell.supervisor import worker_process as module
from deathless.shell.supervisor.supervisor import Supervisor


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC, errno.EMFILE])
def test_worker_that_can_not_be_started_now_is_started_later_and_its_problem_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    opened = open_page
    away: list[str] = []

    def failing(directory: str, *others: object, **named: object) -> Page:
        if away:
            raise OSError(number, os.strerror(number), f"{directory}/page")
        return opened(directory, *others, **named)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(module, "open_page", failing)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        away.append("the storage")
        os.kill(supervisor.worker.pid, signal.SIGKILL)
        await until(lambda: supervisor.machine.worker.delay_s >= 4 * child.RESTART_MIN_S)
        assert supervisor.report.problem == as_ours(OSError(number, "", "page"), "").code
        assert str(tmp_path) in supervisor.machine.last_error
        away.clear()
        await until(lambda: supervisor.report.role == "standby" and supervisor.report.problem == "")

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_page_that_this_user_may_not_open_any_more_needs_an_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_page

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")

        def refused(directory: str, *_: object, **__: object) -> Page:
            raise OSError(errno.EACCES, "Permission denied", f"{directory}/page")

        monkeypatch.setattr(module, "open_page", refused)
        os.kill(supervisor.worker.pid, signal.SIGKILL)
        await until(lambda: supervisor.report.condition == PermissionRefused.code)
        assert supervisor.machine.worker.start_at is None
        monkeypatch.setattr(module, "open_page", opened)

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


@pytest.mark.parametrize("what", ["worker", "ingress"])
def test_child_for_which_there_is_no_process_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    started = subprocess.Popen
    refused: list[object] = []

    def popen(command: list[str], **named: object) -> subprocess.Popen[bytes]:
        if len(refused) < 2 and (len(command) == 5) == (what == "ingress"):
            refused.append(command)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return started(command, **named)  # type: ignore[call-overload,no-any-return]  # as it was called

    monkeypatch.setattr(subprocess, "Popen", popen)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby" and len(refused) == (2 if what == "worker" else 0))
        supervisor.report.client = "127.0.0.1:1"
        await until(lambda: supervisor.ingress is not None and len(refused) == 2)

    supervised(
        tmp_path, TICKING.format(told="os._exit(0)"), look, ingress="time.sleep(60)", ingress_listen="127.0.0.1:0"
    )


def test_message_for_which_a_worker_is_ended_is_told_with_the_word_that_it_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes over for that word would run the message unawares, and be ended for it in turn (I11)."""
    told: list[tuple[str, list[tuple[int, int, int]]]] = []
    do = Supervisor._do

    def note(supervisor: Supervisor, effect: Effect) -> None:
        if isinstance(effect, TellPeers):
            told.append((str(effect.report.state), list(effect.report.deaths)))
        do(supervisor, effect)

    monkeypatch.setattr(Supervisor, "_do", note)
    loops = 'role("primary", 1); page[2] = 0; page[1] = 3; page[0] = 9; time.sleep(60)'

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")

    supervised(
        tmp_path,
        f"if count == 0:\n    {loops}\n" + TICKING.format(told="os._exit(0)"),
        look,
        limits={"turn_max_s": 0.2},
    )
    assert next(deaths for state, deaths in told if state == "stuck") == [(9, 3, 1)]
    assert told[-1][1] == [(9, 3, 1)], "counted once"


def test_worker_is_told_which_page_its_supervisor_reads(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.page is not None
        assert Supervisor.worker_command(supervisor, 7)[-2:] == ["7", supervisor.worker.page.path]

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)
