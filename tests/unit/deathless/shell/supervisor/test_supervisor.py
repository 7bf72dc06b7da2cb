"""A supervisor and the processes below it: their ends, their last words, their deaths in a message, their restarts.

The supervisor is the real one, in this process's loop; its worker and ingress are small scripts that say and do what a
test needs. What whole sets do is in tests/process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.supervisor_bench import (
    TICKING,
    ScriptedSupervisor,
    config_in,
    nothing,
    supervised,
    until,
)

from deathless.base.config import EtcdConfig
from deathless.base.errors import CorruptFrame, Internal, LogTruncated, OtherSupervisor
from deathless.core.supervisor import machine as module
from deathless.core.supervisor import missing
from deathless.core.supervisor import restarts as child
from deathless.core.supervisor.detection import LOCK_ANSWERS_S, UNPROVED_S, Report, WorkerState
from deathless.core.supervisor.events import HeartbeatDue, ReportsTaken
from deathless.core.supervisor.records import PrimaryIs, RoleIs, TakeOver, ToSupervisor
from deathless.shell.directory.members import read_members
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.status_page import (
    FULL,
    LOCK_ANSWERS,
    OUTBOX_FULL,
    PROVED,
    SLOWEST,
    STORAGE,
    UNPROVED,
    Page,
    page_path,
)
from deathless.shell.net.admin_call import Access, ask

# ---------------------------------------------------------------- last words


@pytest.mark.parametrize("attempt", range(5))
def test_last_words_of_a_worker_that_dies_at_once_are_heard(tmp_path: Path, attempt: int) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.condition)
        assert supervisor.report.condition == CorruptFrame.code
        assert supervisor.machine.worker.start_at is None

    supervised(tmp_path, f'stopping("{CorruptFrame.code}"); os._exit(65)', look)


@pytest.mark.parametrize("lost", [True, False])
def test_takeover_that_misses_the_same_each_time_is_final_though_each_worker_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr(missing, "MISSING_S", 0.0 if lost else 60.0)
    roles = 'role("recovering"); role("standby"); role("taking-over")'
    fails = f'{roles}; stopping("{LogTruncated.code}"); os._exit(65)'
    found = "if count < 2:\n    " + fails + "\n" + TICKING.format(told="os._exit(0)")

    async def look(supervisor: ScriptedSupervisor) -> None:
        supervisor.machine._log_lacks.local = True
        starts = supervisor.folder / "starts"
        await until(lambda: supervisor.report.condition if lost else starts.exists() and len(starts.read_text()) == 3)
        await until(lambda: lost or supervisor.report.role == "standby")
        assert supervisor.report.condition == (LogTruncated.code if lost else "")

    supervised(tmp_path, fails if lost else found, look)


def test_worker_that_ends_in_order_starts_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "AT_ONCE_S", 0.0)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: (supervisor.folder / "starts").exists() and supervisor.report.role == "standby")
        assert supervisor.machine.worker.delay_s == 0
        assert supervisor.report.problem == ""

    supervised(tmp_path, 'if count == 0: stopping("DL2001"); os._exit(76)\n' + TICKING.format(told="os._exit(0)"), look)


def test_worker_that_fails_starts_again_with_growing_pauses_and_its_problem_is_told(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.worker.delay_s >= 4 * child.RESTART_MIN_S)
        assert supervisor.report.problem == Internal.code
        assert supervisor.report.condition == ""

    supervised(tmp_path, f'stopping("{Internal.code}"); os._exit(70)', look)


def test_worker_that_ends_in_order_again_and_again_does_not_spin(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.worker.delay_s >= 4 * child.RESTART_MIN_S)

    supervised(tmp_path, 'stopping("DL2001"); os._exit(76)', look)


def test_what_a_former_worker_said_is_not_taken_for_the_present_ones(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        former = LineProtocol(ToSupervisor, lambda _: None, lambda: None)
        supervisor.worker.said(former, RoleIs("primary", 9, "", 0))
        assert supervisor.report.role == "standby"
        assert supervisor.report.epoch == 0

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_death_is_told_before_the_last_words_are_awaited(tmp_path: Path) -> None:
    """A helper of the worker may keep the line open for a while: the others must not wait for it."""

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.life.dead)
        assert supervisor.report.state == WorkerState.DEAD
        await until(lambda: not supervisor.machine.life.dead)
        assert supervisor.worker.line is not None or supervisor.worker.process is None

    supervised(tmp_path, "if os.fork() == 0: time.sleep(0.6)\nos._exit(1)", look)


# ---------------------------------------------------------------- deaths in a message


def test_i11_death_in_a_message_is_counted_once(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.report.deaths == [(5, 8, 1)]

    script = "if count == 0:\n    page[2] = 1; page[1] = 7; page[0] = 5\n    os._exit(66)\npage[0] = 2**64 - 1\n"
    supervised(tmp_path, script + TICKING.format(told="os._exit(0)"), look)


def test_i11_message_in_the_page_of_a_supervisor_that_died_too_is_counted_at_the_next_start(tmp_path: Path) -> None:
    page = Page(page_path(str(tmp_path), "r0"), fresh=True)
    assert page.running is not None
    page.running.enter(5, 8)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.deaths)
        assert supervisor.report.deaths == [(5, 8, 1)]

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_i11_death_that_we_ordered_is_no_messages_doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.2)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")

    stopped = supervised(tmp_path, "page[2] = 0; page[1] = 1; page[0] = 5\n" + TICKING.format(told="pass"), look)
    assert stopped.report.deaths == []


def test_told_deaths_are_forgotten_with_the_reports_that_told_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.2)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        for number in range(1000):
            supervisor.report.deaths = [(number, 1, 1)]
            supervisor._take(HeartbeatDue())
        assert len(supervisor.machine._news._deaths) == 1

    supervised(tmp_path, TICKING.format(told="pass"), look)


# ---------------------------------------------------------------- getting on


def test_worker_whose_loop_stands_still_is_ended_after_turn_max_s(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.worker.delay_s > 0)

    supervised(tmp_path, 'role("standby"); time.sleep(60)', look, limits={"turn_max_s": 0.2})


def test_worker_in_one_call_of_the_file_system_is_told_to_be_stuck_and_left_alone(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.state == WorkerState.STUCK)
        (supervisor.folder / "starts.seen").touch()
        await until(lambda: supervisor.report.state == WorkerState.RUNNING)

    seen = 'while not os.path.exists(starts + ".seen"): time.sleep(0.01)\n'
    script = f'role("primary", 1)\npage[4] += 1\n{seen}page[4] += 1\n'
    supervised(tmp_path, script + TICKING.format(told="os._exit(0)"), look, limits={"log_call_max_s": 0.1})


def test_stopped_worker_is_told_to_be_stopped_and_running_when_it_goes_on(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        os.kill(supervisor.worker.pid, signal.SIGSTOP)
        await until(lambda: supervisor.report.state == WorkerState.STOPPED)
        os.kill(supervisor.worker.pid, signal.SIGCONT)
        await until(lambda: supervisor.report.state == WorkerState.RUNNING)

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_primary_without_room_says_which_is_full_to_the_others_and_to_the_processes_beside_it(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.page is not None
        cells = supervisor.worker.page.cells
        for log, outbox in ((1, 0), (0, 1), (0, 0)):
            cells[FULL], cells[OUTBOX_FULL] = log, outbox
            supervisor._take(HeartbeatDue())
            for told in (supervisor.report, supervisor._standing()):
                assert (told.full, told.outbox_full) == (bool(log), bool(outbox))
        for us, clock in ((5_000_000, "ahead"), (-5_000_000, "behind"), (4_999_999, "")):
            supervisor.worker.page.stepped_us = us
            supervisor._take(HeartbeatDue())
            assert (supervisor.report.clock, supervisor._standing().clock) == (clock, clock)

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


@pytest.mark.parametrize(
    ("cell", "slowest_ms", "code"), [(1, 0, "DL1012"), (2, 0, "DL1015"), (0, 1500, "DL1014"), (0, 900, "")]
)
def test_storage_that_is_read_only_full_of_files_or_slow_is_a_problem_as_long_as_it_is(
    tmp_path: Path, cell: int, slowest_ms: int, code: str
) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.page is not None
        cells = supervisor.worker.page.cells
        cells[STORAGE], cells[SLOWEST] = cell, slowest_ms
        supervisor._take(HeartbeatDue())
        assert supervisor.report.problem == code
        assert supervisor._standing().text.startswith(code)
        cells[STORAGE], cells[SLOWEST] = 0, 0
        supervisor._take(HeartbeatDue())
        assert supervisor.report.problem == ""

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


# ---------------------------------------------------------------- proofs without an answer


def test_primary_without_an_answer_to_its_proof_says_so_and_only_while_it_is(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.page is not None
        cells = supervisor.worker.page.cells
        for ms, unproved in ((UNPROVED_S * 1000 - 1, False), (UNPROVED_S * 1000, True), (0, False)):
            cells[UNPROVED] = round(ms)
            supervisor._take(HeartbeatDue())
            assert supervisor.report.unproved == unproved
        cells[UNPROVED] = 9000
        supervisor.machine.worker.suspended = True  # what the page says is old then
        supervisor._take(HeartbeatDue())
        assert not supervisor.report.unproved
        supervisor.machine.worker.suspended = False

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_processes_beside_it_are_told_whom_a_primary_does_not_hear_once_it_is_proved(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.page is not None
        now = time.monotonic()
        silent = Report("r1", WorkerState.RUNNING, "standby", 3, 0, instance="uid-1")
        supervisor.detector.report_received(silent, now - 5)
        assert (supervisor._standing().led, supervisor._standing().silent) == (False, {})
        supervisor.report.role = "primary"
        supervisor.detector.report_received(msgspec.structs.replace(supervisor.report), now)
        assert (supervisor._standing().led, supervisor._standing().silent) == (True, {})
        supervisor.worker.page.cells[PROVED] = round(now * 1e9)
        assert supervisor._standing().silent == {"r1": "uid-1"}

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


def test_worker_is_told_that_the_primary_is_unproved_and_takes_over_once_the_lock_answers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        assert supervisor.worker.line is not None
        assert supervisor.worker.page is not None
        sent: list[object] = []
        monkeypatch.setattr(supervisor.worker.line, "send", sent.append)
        other = Report("r1", WorkerState.RUNNING, "primary", 3, 0, "c:1", "f:1")
        supervisor.detector._reign_since = 0.0
        for unproved in (False, True):
            other.unproved = unproved
            supervisor.detector.report_received(other, time.monotonic())
            supervisor.detector._reign_since = 0.0
            supervisor._take(ReportsTaken())
        assert sent == [PrimaryIs(3, "r1", "c:1", "f:1"), PrimaryIs(3, "r1", "c:1", "f:1", unproved=True)]
        supervisor.worker.page.cells[LOCK_ANSWERS] = round(LOCK_ANSWERS_S * 1000)
        supervisor._take(ReportsTaken())
        assert sent[2:] == [TakeOver(3, "unproved: r1 gets no answer from the lock store")]
        monkeypatch.undo()

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)


# ---------------------------------------------------------------- stopping


def test_worker_stops_only_after_the_ingress_has_answered(tmp_path: Path) -> None:
    ingress = """
    import os, signal, sys, time
    def end(*_):
        time.sleep(0.2)
        open(sys.argv[1] + "/answered", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    open(sys.argv[1] + "/ready", "w").close()
    while True: time.sleep(1)
    """
    worker = 'say(\'{"type":"addresses-are","client":"127.0.0.1:1","replication":"127.0.0.1:1"}\')\n'
    told = 'open(starts + ".told", "w").write(str(os.path.exists(os.path.dirname(starts) + "/answered"))); os._exit(0)'

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until((supervisor.folder / "ready").exists)

    supervised(tmp_path, worker + TICKING.format(told=told), look, ingress=ingress, ingress_listen="127.0.0.1:0")
    assert (tmp_path / "replicas" / "r0" / "starts.told").read_text() == "True"


def test_worker_that_does_not_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.2)
    stopped = supervised(tmp_path, TICKING.format(told="pass"), nothing)
    assert stopped.worker.process is None


def test_worker_that_says_it_ends_and_does_not_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.2)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.worker.delay_s > 0)

    supervised(tmp_path, f'role("standby"); stopping("{Internal.code}"); time.sleep(60)', look)


def test_ingress_that_dies_again_and_again_is_started_with_growing_pauses(tmp_path: Path) -> None:
    worker = 'say(\'{"type":"addresses-are","client":"127.0.0.1:1","replication":"127.0.0.1:1"}\')\n'

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.machine.ingress.delay_s >= 4 * child.RESTART_MIN_S)
        assert supervisor.report.state == WorkerState.RUNNING

    supervised(
        tmp_path,
        worker + TICKING.format(told="os._exit(0)"),
        look,
        ingress="raise SystemExit(1)",
        ingress_listen="127.0.0.1:0",
    )


def test_ordered_restart_of_a_worker_counts_no_failure(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        first = supervisor.worker.pid
        await ask(supervisor.report.control, "restart-worker", Access("bank", directory=supervisor.config.directory))
        await until(lambda: supervisor.report.role == "standby" and supervisor.worker.pid not in (0, first))
        assert supervisor.machine.worker.delay_s <= child.RESTART_MIN_S
        assert supervisor.report.problem == ""

    supervised(tmp_path, TICKING.format(told='[stopping(""), os._exit(0)]'), look)


def test_orderly_stop_takes_announcement_and_page_back(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: read_members(str(tmp_path)))

    page = Path(page_path(str(tmp_path), "r0"))
    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)
    assert read_members(str(tmp_path)) == {}
    assert not page.exists()


# ---------------------------------------------------------------- starting


def test_start_waits_for_a_lock_store_that_gives_no_answer_and_can_be_stopped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    pytest.importorskip("aiohttp")

    async def look(supervisor: ScriptedSupervisor) -> None:
        await asyncio.sleep(0)
        await until((supervisor.folder / "supervisor.lock").exists)
        assert supervisor.worker.process is None

    supervised(tmp_path, "", look, lock="etcd", fence="etcd", etcd=EtcdConfig(endpoints=(url,)))


def test_second_supervisor_names_the_first(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        with pytest.raises(OtherSupervisor, match=str(os.getpid())):
            await ScriptedSupervisor(config_in(tmp_path), "unused").run()

    supervised(tmp_path, TICKING.format(told="os._exit(0)"), look)
