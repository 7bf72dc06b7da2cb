"""A supervisor whose worker stays stopped: fenced, superseded or refused; and what it tells the processes beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.unit.deathless.shell.supervisor_bench import (
    TICKING,
    ScriptedSupervisor,
    supervised,
    until,
)

from deathless.base.errors import CorruptFrame, OtherSupervisor
from deathless.codec.wire import Hello, Refused, Type, decode_struct, struct_packet
from deathless.core.supervisor import machine as module
from deathless.core.supervisor.detection import Report, WorkerState
from deathless.core.supervisor.events import Fenced
from deathless.shell.directory.instance import take_generation
from deathless.shell.directory.members import Member, read_members, write_member
from deathless.shell.net.admin_call import Access, ask
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker

# ---------------------------------------------------------------- held: fenced, or superseded

LEAVING = TICKING.format(told='[stopping(""), os._exit(0)]')


def test_fenced_worker_stops_in_order_stays_stopped_and_starts_again_when_the_fence_is_gone(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        supervisor._take(Fenced(True))
        await until(lambda: supervisor.worker.process is None)
        await until(lambda: supervisor.report.role == "fenced")
        assert supervisor.machine.worker.start_at is None
        assert (supervisor.report.condition, supervisor.report.problem) == ("", "")
        await ask(supervisor.report.control, "restart-worker", Access("bank", directory=supervisor.config.directory))
        assert supervisor.machine.worker.start_at is None
        supervisor._take(Fenced(False))
        await until(lambda: supervisor.report.role == "standby")

    supervised(tmp_path, LEAVING, look)


def test_fence_that_comes_before_the_worker_stands_stops_it_too(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        supervisor._take(Fenced(True))
        await until(lambda: supervisor.report.role == "fenced")
        assert supervisor.worker.process is None

    supervised(tmp_path, LEAVING, look)


def test_fenced_worker_that_does_not_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_MAX_S", 0.2)

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        supervisor._take(Fenced(True))
        await until(lambda: supervisor.report.role == "fenced")

    assert supervised(tmp_path, TICKING.format(told="pass"), look).report.deaths == []


def test_worker_that_refused_for_good_does_not_start_for_want_of_a_fence(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.condition)
        supervisor._take(Fenced(True))
        supervisor._take(Fenced(False))
        assert supervisor.machine.worker.start_at is None

    supervised(tmp_path, f'stopping("{CorruptFrame.code}"); os._exit(65)', look)


@pytest.mark.parametrize("told_by", ["members", "peer"])
def test_former_instance_stops_its_worker_for_good_and_says_why(tmp_path: Path, told_by: str) -> None:
    word = tmp_path / "word"

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        later = Member("r0", "127.0.0.1:1", instance="b", generation=2)
        assert take_generation(tmp_path / "replicas" / "r0", "r0", "b") == 2
        if told_by == "members":
            write_member(str(tmp_path), later)
            supervisor._others.board.look()
        else:
            supervisor._others.board.ask_later()
        await until(lambda: supervisor.report.condition)
        assert (supervisor.report.condition, supervisor.report.role) == (OtherSupervisor.code, "dead")
        assert supervisor.machine.worker.start_at is None
        assert "instance b" in word.read_text()
        if told_by == "members":
            assert read_members(str(tmp_path)) == {"r0": later}

    supervised(tmp_path, LEAVING, look, instance="a", termination_file=str(word))


@pytest.mark.parametrize("instance", ["", "a"])
def test_members_or_a_peer_that_lies_of_a_later_instance_holds_nobody(tmp_path: Path, instance: str) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        before = read_members(str(tmp_path))["r0"]
        for lie in (
            structs.replace(before, generation=7),
            structs.replace(before, generation=1 << 62, instance="b"),
            structs.replace(before, control="x:1"),
        ):
            write_member(str(tmp_path), lie)
            supervisor._others.board.ask_later()
            await until(lambda: read_members(str(tmp_path)).get("r0") == before)
        assert (supervisor.report.condition, supervisor.report.role) == ("", "standby")

    supervised(tmp_path, LEAVING, look, instance=instance)


def test_report_of_a_former_instance_is_answered_with_a_refusal(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.control)
        refusals: list[Refused] = []

        def received(packets: list[tuple[int, bytes]]) -> None:
            refusals.extend(decode_struct(Refused, body) for kind, body in packets if kind == Type.REFUSED)

        ended = asyncio.Event()
        hello = Hello(1, "supervisor", "bank", "r1")
        asker = Asker(supervisor.config.directory)
        connection = ClientConnection(hello, received, ended.set, 1 << 20, asker)
        host, port = split_address(supervisor.report.control)
        await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
        for generation in (2, 1):
            report = Report(
                "r1", WorkerState.RUNNING, "standby", 0, 0, instance=f"i{generation}", generation=generation
            )
            connection.send(struct_packet(Type.REPORT, report))
        await ended.wait()
        assert [(one.code, "instance i2" in one.text) for one in refusals] == [(OtherSupervisor.code, True)]

    supervised(tmp_path, LEAVING, look)


# ---------------------------------------------------------------- last words


def test_reason_for_which_a_worker_stays_stopped_is_left_and_taken_back_when_it_runs(tmp_path: Path) -> None:
    word = tmp_path / "word"
    script = f'if count == 0: stopping("{CorruptFrame.code}"); os._exit(65)\n'

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.condition)
        assert word.read_text() == f"{CorruptFrame.code} so"
        standing = supervisor._standing()
        assert (standing.condition, standing.text) == (CorruptFrame.code, f"{CorruptFrame.code} so")
        await ask(supervisor.report.control, "restart-worker", Access("bank", directory=supervisor.config.directory))
        await until(lambda: supervisor.report.role == "standby")
        assert word.read_text() == ""
        assert supervisor._standing().text == ""

    supervised(tmp_path, script + LEAVING, look, termination_file=str(word))


def test_standing_tells_fingerprint_identity_and_takeovers(tmp_path: Path) -> None:
    say = """say('{"type":"addresses-are","client":"10.0.0.1:7","replication":"10.0.0.1:8","fingerprint":"ab"}')"""

    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        standing = supervisor._standing()
        assert (standing.fingerprint, standing.client, standing.takeovers) == ("ab", "10.0.0.1:7", 1)
        assert (len(standing.service_id), standing.instance, standing.generation) == (32, "a", 1)
        assert (standing.incarnation > 0, standing.others) == (True, ())

    supervised(tmp_path, say + '\nrole("primary", 4)\n' + LEAVING, look, instance="a")


def test_announced_addresses_are_the_pods(tmp_path: Path) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: read_members(str(tmp_path)))
        member = read_members(str(tmp_path))["r0"]
        assert member.control.startswith("10.1.2.3:")
        assert member.ingress == "10.1.2.3:8080"
        assert (member.instance, member.generation) == ("u", 1)

    settings: dict[str, Any] = {"advertise_host": "10.1.2.3", "instance": "u", "ingress_listen": "0.0.0.0:8080"}
    supervised(tmp_path, LEAVING, look, ingress="import time; time.sleep(60)", **settings)
