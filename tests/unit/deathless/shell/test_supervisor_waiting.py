"""What a stop may take where a primary lets activities end first: all that ends it leaves that much time on top."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest
from tests.unit.deathless.shell.supervisor_bench import TICKING, ScriptedSupervisor, supervised, until
from tests.unit.deathless.shell.unkillable import end_truly

from deathless.base.limits import END_S, STOP_MAX_S
from deathless.cli.change.switchover import SWITCH_S
from deathless.core.primary.handover import HANDOVER_MAX_S
from deathless.core.supervisor import machine as module
from deathless.core.supervisor.events import Fenced, HeartbeatDue, Superseded
from deathless.core.supervisor.machine import INGRESS_STOP_MAX_S
from deathless.shell.directory import members
from deathless.shell.link.status_page import OUTSIDE_HELD
from deathless.shell.operate.runner import FOLLOWERS_STOP_S, STOP_S
from deathless.shell.process import reaping

SLOW = TICKING.format(told='[time.sleep(pause_s), open(starts + ".ended", "w").close(), os._exit(0)]')
"""A worker that takes `pause_s` to stop."""
TOLD = TICKING.format(told='[open(starts + ".told", "wb").write(order), stopping(""), os._exit(0)]')
"""A worker that shows with which order it was stopped."""
HANGING = """
role("standby")
while True:
    page[3] += 1
    time.sleep(0.01)
"""
"""A worker that heeds no order."""


def led_by(script: str, role: str) -> str:
    return script.replace('role("standby")', f'role("{role}", 1)')


@pytest.mark.parametrize("role", ["primary", "standby"])
@pytest.mark.parametrize("how", ["stop", "fence", "restart", "fence, then stop"])
def test_a_primary_alone_has_time_to_wait_for_activities_before_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, role: str
) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.0)

    async def look(supervisor: ScriptedSupervisor) -> None:
        starts = supervisor.folder / "starts"
        await until(lambda: supervisor.report.role == role)
        if how.startswith("fence"):
            supervisor._take(Fenced(True))
            supervisor._take(HeartbeatDue())
        elif how == "restart":
            supervisor._restart_worker()
        if how == "fence":
            await until(lambda: supervisor.report.role == "fenced")
        elif how == "restart":
            await until(lambda: len(starts.read_text()) == 2 and supervisor.worker.process)
            assert starts.with_suffix(".ended").exists() is (role == "primary")

    script = f"pause_s = {0.3 if role == 'primary' else 60}\n{led_by(SLOW, role)}"  # who may not is ended before
    supervisor = supervised(tmp_path, script, look, limits={"handover_wait_s": 60.0})
    assert (supervisor.folder / "starts.ended").exists() is (role == "primary")


def test_what_a_primary_waits_for_is_told_by_its_own_supervisor(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "primary")
        assert supervisor.worker.page is not None
        supervisor.worker.page.note_waiting((2, 0.0, 60.0), 0.0, 5000.0)
        assert not supervisor._standing().outside_held
        supervisor.worker.page.cells[OUTSIDE_HELD] = 1
        assert supervisor._standing().outside_held
        [told] = cast("list[dict[str, object]]", supervisor.status()["replicas"])
        assert (told["waits_for"], told["waits_since"], told["waits_until"]) == (2, 5000, 5060)
        supervisor.report.role = "stopping"
        assert supervisor._standing().waits_for == 0
        assert not supervisor._standing().outside_held

    supervised(tmp_path, led_by(TOLD, "primary"), look)


@pytest.mark.parametrize("superseded", [True, False])
def test_an_instance_that_nobody_listens_to_any_more_is_stopped_at_once(tmp_path: Path, superseded: bool) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "primary")
        if superseded:
            supervisor._take(Superseded("b"))
            await until(lambda: supervisor.worker.process is None)

    supervisor = supervised(tmp_path, led_by(TOLD, "primary"), look)
    word = b'"at_once":true' if superseded else b'"at_once":false'
    assert word in (supervisor.folder / "starts.told").read_bytes()


def test_a_worker_that_even_a_kill_does_not_end_keeps_no_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for where, name, value in ((module, "STOP_MAX_S", 0.0), (module, "END_S", 0.1), (reaping, "END_S", 0.1)):
        monkeypatch.setattr(where, name, value)
    left: list[subprocess.Popen[bytes]] = []

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.process is not None
        left.append(supervisor.worker.process)
        monkeypatch.setattr(supervisor.worker.process, "kill", lambda: None)

    try:
        supervised(tmp_path, HANGING, look)
        assert left[0].poll() is None
        named = [record.__dict__["pid"] for record in caplog.records if record.name == "deathless.reaping"]
        assert named == [left[0].pid]
    finally:
        end_truly(*left)


def test_every_deadline_around_a_hand_over_leaves_room_for_those_within_it() -> None:
    assert INGRESS_STOP_MAX_S + HANDOVER_MAX_S < STOP_MAX_S
    stop_s = STOP_MAX_S + END_S + END_S + members.END_S  # the worker does not end, nor anybody else, nor the storage
    assert FOLLOWERS_STOP_S + stop_s < STOP_S, "`deathless down` of a primary; its wait comes on top of both"
    assert HANDOVER_MAX_S < SWITCH_S, "`deathless switchover`; likewise"
