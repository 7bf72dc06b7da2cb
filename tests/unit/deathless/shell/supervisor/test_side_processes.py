"""The processes beside a supervisor: told at once, never waited for, started again; and orphans are taken note of."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from deathless.base.config import BindingConfig, DriverConfig, ReplicaConfig
from deathless.core.supervisor.restarts import RESTART_MIN_S
from deathless.core.supervisor.side_watch import STILL_S
from deathless.shell.link.standing import BEAT_S, Program, Standing
from deathless.shell.process.reaping import end_all
from deathless.shell.supervisor.side_processes import SideProcess, SideProcesses

STANDING = Standing(service="bank", replica="r0", role="standby")

LISTENER = """
import socket, sys, time
line = socket.socket(fileno=int(sys.argv[1]))
heard = open(sys.argv[2], "ab", buffering=0)
line.sendall(b'{"type":"fenced","fenced":true}\\n')
while data := line.recv(65536):
    heard.write(data)
"""
DEAF = "import time; time.sleep(60)"


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  nothing there can be waited on
            await asyncio.sleep(0)


def beside(
    folder: Path, script: str, look: Callable[[SideProcesses, list[bool]], Coroutine[object, object, None]]
) -> None:
    """Run one process that is a script while `look` looks."""

    async def main() -> None:
        config = ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")
        said: list[bool] = []
        processes = SideProcesses(config, "unused", said.append)
        assert processes.pids == set()

        def command(descriptor: int) -> list[str]:
            return [sys.executable, "-S", "-c", dedent(script), str(descriptor), str(folder / "heard")]

        processes._all.append(SideProcess("listener", command, processes._take_fence))
        try:
            processes.start_due(time.monotonic(), dict(os.environ))
            await look(processes, said)
        finally:
            end_all(processes.let_go())
            await asyncio.sleep(0)
        assert processes.pids == set()

    asyncio.run(main())


def heard_in(folder: Path) -> list[Standing]:
    path = folder / "heard"
    text = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line, type=Standing) for line in text.split(b"\n")[:-1]]


def test_change_is_told_at_once_and_what_did_not_change_only_with_the_beat(tmp_path: Path) -> None:
    async def look(processes: SideProcesses, said: list[bool]) -> None:
        now = 0.0

        async def tell(standing: Standing, now: float, count: int) -> None:
            await until(lambda: all(each._line is not None and each._line.open for each in processes._all))
            processes.tell(standing, now)
            await until(lambda: len(heard_in(tmp_path)) == count)

        await tell(STANDING, now, 1)
        await tell(msgspec.structs.replace(STANDING, lsn=7), now, 1)
        await tell(msgspec.structs.replace(STANDING, role="primary"), now, 2)
        await tell(msgspec.structs.replace(STANDING, role="primary"), now + BEAT_S, 3)
        assert [one.role for one in heard_in(tmp_path)] == ["standby", "primary", "primary"]
        await until(lambda: said)
        assert said == [True]

    beside(tmp_path, LISTENER, look)


def test_child_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    async def look(processes: SideProcesses, said: list[bool]) -> None:
        [process] = processes._all
        await until(lambda: process._line is not None and process._line.open)
        for epoch in range(5000):
            processes.tell(msgspec.structs.replace(STANDING, epoch=epoch, text="x" * 500), 0.0)
        assert process._line is not None
        assert not process._line.flushed
        await asyncio.sleep(0)

    beside(tmp_path, DEAF, look)


def test_child_that_stands_still_is_killed_and_one_that_reads_is_not(tmp_path: Path) -> None:
    async def look(processes: SideProcesses, said: list[bool]) -> None:
        [process] = processes._all
        await until(lambda: process._line is not None and process._line.open)
        assert process.process is not None
        line, child = process._line, process.process
        assert line is not None
        processes.tell(STANDING, 0.0)
        await until(lambda: heard_in(tmp_path) != [] and not line.unread)
        for second in range(2 * int(STILL_S)):
            processes.tell(STANDING, float(second))
            await until(lambda: not line.unread)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGSTOP)
        for second in range(3 * int(STILL_S)):
            processes.tell(STANDING, 100.0 + second)
        assert await asyncio.to_thread(child.wait) == -signal.SIGKILL

    beside(tmp_path, LISTENER, look)


def test_child_that_ends_is_started_again_and_told(tmp_path: Path) -> None:
    async def look(processes: SideProcesses, said: list[bool]) -> None:
        [process] = processes._all
        processes.tell(STANDING, 0.0)
        assert process.process is not None
        first = process.process.pid
        os.kill(first, signal.SIGKILL)

        def again() -> bool:
            processes.reap(time.monotonic())
            processes.start_due(time.monotonic(), dict(os.environ))
            processes.tell(STANDING, 0.0)
            return process.process is not None and process.process.pid != first and bool(heard_in(tmp_path))

        await until(again)

    beside(tmp_path, LISTENER, look)


def test_child_that_ends_again_and_again_is_started_with_growing_pauses(tmp_path: Path) -> None:
    async def look(processes: SideProcesses, said: list[bool]) -> None:
        [process] = processes._all
        now, waited = time.monotonic(), []
        for _ in range(4):
            assert process.process is not None
            process.process.kill()
            process.process.wait()
            processes.reap(now)
            assert process.restarts.start_at is not None
            waited.append(process.restarts.delay_s)
            now = process.restarts.start_at
            processes.start_due(now, dict(os.environ))
        assert waited == [RESTART_MIN_S * 2**n for n in range(4)]

    beside(tmp_path, DEAF, look)


def test_child_that_can_not_be_started_now_is_started_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen
    refused: list[object] = []

    def popen(command: list[str], **named: object) -> subprocess.Popen[bytes]:
        if not refused:
            refused.append(command)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return started(command, **named)  # type: ignore[call-overload,no-any-return]  # as it was called

    monkeypatch.setattr(subprocess, "Popen", popen)

    async def look(processes: SideProcesses, said: list[bool]) -> None:
        assert processes.pids == set()
        processes.start_due(time.monotonic() + 60, dict(os.environ))
        await until(lambda: said)

    beside(tmp_path, LISTENER, look)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"announce_kubernetes": True}, ["announcer"]),
        ({"health_listen": "127.0.0.1:0", "announce_kubernetes": True}, ["announcer", "health"]),
    ],
)
def test_config_says_which_there_are(settings: dict[str, object], names: list[str]) -> None:
    said: list[bool] = []
    fields = {"service": "bank", "module": "m:a", "directory": "d", "replica": "r0", **settings}
    processes = SideProcesses(msgspec.convert(fields, ReplicaConfig), "path", said.append)
    assert [each.name for each in processes._all] == names
    for each in processes._all:
        option, module, *arguments = each._command(7)[1:]
        assert (option, arguments) == ("-m", ["path", "7", str(os.getpid())])
        assert each.name in module and find_spec(module) is not None


SAYS_PROGRAM = """
import os, signal, sys
os.write(int(sys.argv[1]), b'{"type": "fenced", "fenced": true}\\n{"type": "program", "state": "serving"}\\n')
signal.pause()
"""


def test_program_is_told_as_it_was_said_and_as_gone_with_the_process_that_keeps_it(tmp_path: Path) -> None:
    """What it says of a fence is nobody's order."""

    async def main() -> None:
        config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
        fenced: list[bool] = []
        processes = SideProcesses(config, "unused", fenced.append)

        def command(descriptor: int) -> list[str]:
            return [sys.executable, "-S", "-c", SAYS_PROGRAM, str(descriptor)]

        child = SideProcess("application", command, processes._take_program, processes._program_gone)
        processes._all.append(child)
        try:
            processes.start_due(0.0, dict(os.environ))
            await until(lambda: processes.program)
            assert (processes.program, fenced) == (Program(state="serving"), [])
            (pid,) = processes.pids
            os.kill(pid, signal.SIGKILL)
            await until(lambda: child.process is None or child.process.poll() is not None)
            processes.reap(1.0)
            assert processes.program is not None and processes.program.state == "ended"
        finally:
            end_all(processes.let_go())

    asyncio.run(main())


def test_service_with_a_binding_has_a_process_that_keeps_its_program() -> None:
    config = ReplicaConfig(
        service="bank", module="m:a", directory="d", replica="r0", binding=BindingConfig(command=("x",), instance="b")
    )
    (only,) = SideProcesses(config, "path", lambda _: None)._all
    assert (only.name, only._command(7)[2:5]) == ("application", ["deathless.foreign.host", "path", "application"])


ORPHANS = """
import ctypes, json, os, signal, subprocess, sys, time
from deathless.shell.supervisor.side_processes import reap_orphans
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
own = subprocess.Popen(["sleep", "60"])
parent = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; exec sleep 60"], stdout=subprocess.PIPE)
orphan = int(parent.stdout.readline())
ended = []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
def end(pid):
    ended.clear()
    os.kill(pid, signal.SIGKILL)
    while not ended: time.sleep(0.01)
    reap_orphans({own.pid})
end(parent.pid)
gone = [not os.path.exists(f"/proc/{parent.pid}")]
end(orphan)
gone.append(not os.path.exists(f"/proc/{orphan}"))
end(own.pid)
gone.append(own.wait())
reap_orphans({own.pid})
print(json.dumps(gone))
"""


def test_orphans_are_taken_note_of_and_own_children_are_left_to_their_owners() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHANS], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [True, True, -signal.SIGKILL]


def test_each_driver_is_a_child_that_is_told_nothing_and_started_again(tmp_path: Path) -> None:
    async def main() -> None:
        config = ReplicaConfig(
            service="bank",
            module="m:a",
            directory=str(tmp_path),
            replica="r0",
            drivers=(DriverConfig(name="book", kind="files"), DriverConfig(name="mail", kind="webhook")),
        )
        processes = SideProcesses(config, "config.json", lambda _: None)
        book, mail = processes._all
        assert book._command(-1)[1:] == ["-m", "deathless.drivers.host", "config.json", "book", str(os.getpid())]
        assert (book.name, mail.name) == ("driver book", "driver mail")
        processes._all = [SideProcess("driver book", lambda _: [sys.executable, "-S", "-c", DEAF])]
        try:
            processes.start_due(0.0, dict(os.environ))
            processes.tell(STANDING, 0.0)
            (pid,) = processes.pids
            os.kill(pid, signal.SIGKILL)
            child = processes._all[0]
            await until(lambda: child.process is None or child.process.poll() is not None)
            processes.reap(1.0)
            assert child.restarts.start_at is not None
            processes.start_due(child.restarts.start_at, dict(os.environ))
            assert processes.pids not in (set(), {pid})
        finally:
            end_all(processes.let_go())

    asyncio.run(main())
