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

from deathless.base.config import DriverConfig, ReplicaConfig
from deathless.shell.link.standing import BEAT_S, Standing
from deathless.shell.process.reaping import end_all
from deathless.shell.supervisor.side_processes import Attendant, Attendants

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


def attended(
    folder: Path, script: str, look: Callable[[Attendants, list[bool]], Coroutine[object, object, None]]
) -> None:
    """Run one attendant that is a script while `look` looks."""

    async def main() -> None:
        config = ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")
        said: list[bool] = []
        attendants = Attendants(config, "unused", said.append)
        assert attendants.pids == set()

        def command(descriptor: int) -> list[str]:
            return [sys.executable, "-S", "-c", dedent(script), str(descriptor), str(folder / "heard")]

        attendants._all.append(Attendant("listener", command, said.append))
        try:
            attendants.start_due(time.monotonic(), dict(os.environ))
            await look(attendants, said)
        finally:
            end_all(attendants.let_go())
            await asyncio.sleep(0)
        assert attendants.pids == {0}

    asyncio.run(main())


def heard_in(folder: Path) -> list[Standing]:
    path = folder / "heard"
    text = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line, type=Standing) for line in text.split(b"\n")[:-1]]


def test_change_is_told_at_once_and_what_did_not_change_only_with_the_beat(tmp_path: Path) -> None:
    async def look(attendants: Attendants, said: list[bool]) -> None:
        now = 0.0

        async def tell(standing: Standing, now: float, count: int) -> None:
            await until(lambda: all(each._line is not None and each._line.open for each in attendants._all))
            attendants.tell(standing, now)
            await until(lambda: len(heard_in(tmp_path)) == count)

        await tell(STANDING, now, 1)
        await tell(msgspec.structs.replace(STANDING, lsn=7), now, 1)
        await tell(msgspec.structs.replace(STANDING, role="primary"), now, 2)
        await tell(msgspec.structs.replace(STANDING, role="primary"), now + BEAT_S, 3)
        assert [one.role for one in heard_in(tmp_path)] == ["standby", "primary", "primary"]
        await until(lambda: said)
        assert said == [True]

    attended(tmp_path, LISTENER, look)


def test_child_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    async def look(attendants: Attendants, said: list[bool]) -> None:
        [attendant] = attendants._all
        await until(lambda: attendant._line is not None and attendant._line.open)
        for epoch in range(5000):
            attendants.tell(msgspec.structs.replace(STANDING, epoch=epoch, text="x" * 500), 0.0)
        assert attendant._line is not None
        assert not attendant._line.flushed
        await asyncio.sleep(0)

    attended(tmp_path, DEAF, look)


def test_child_that_ends_is_started_again_and_told(tmp_path: Path) -> None:
    async def look(attendants: Attendants, said: list[bool]) -> None:
        [attendant] = attendants._all
        attendants.tell(STANDING, 0.0)
        first = attendant.child.pid
        os.kill(first, signal.SIGKILL)

        def again() -> bool:
            attendants.reap(time.monotonic())
            attendants.start_due(time.monotonic(), dict(os.environ))
            attendants.tell(STANDING, 0.0)
            return attendant.child.pid not in (0, first) and bool(heard_in(tmp_path))

        await until(again)

    attended(tmp_path, LISTENER, look)


def test_child_that_can_not_be_started_now_is_started_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen
    refused: list[object] = []

    def popen(command: list[str], **named: object) -> subprocess.Popen[bytes]:
        if not refused:
            refused.append(command)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return started(command, **named)  # type: ignore[call-overload,no-any-return]  # as it was called

    monkeypatch.setattr(subprocess, "Popen", popen)

    async def look(attendants: Attendants, said: list[bool]) -> None:
        assert attendants.pids == {0}
        attendants.start_due(time.monotonic() + 60, dict(os.environ))
        await until(lambda: said)

    attended(tmp_path, LISTENER, look)


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
    attendants = Attendants(msgspec.convert(fields, ReplicaConfig), "path", said.append)
    assert [each.child.name for each in attendants._all] == names
    for each in attendants._all:
        option, module, *arguments = each._command(7)[1:]
        assert (option, arguments) == ("-m", ["path", "7", str(os.getpid())])
        assert each.child.name in module and find_spec(module) is not None


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
        attendants = Attendants(config, "config.json", lambda _: None)
        book, mail = attendants._all
        assert book._command(-1)[1:] == ["-m", "deathless.drivers.host", "config.json", "book", str(os.getpid())]
        assert (book.child.name, mail.child.name) == ("driver book", "driver mail")
        attendants._all = [Attendant("driver book", lambda _: [sys.executable, "-S", "-c", DEAF])]
        try:
            attendants.start_due(0.0, dict(os.environ))
            attendants.tell(STANDING, 0.0)
            (pid,) = attendants.pids
            os.kill(pid, signal.SIGKILL)
            child = attendants._all[0].child
            await until(lambda: child.process is None or child.process.poll() is not None)
            attendants.reap(1.0)
            assert child.start_at is not None
            attendants.start_due(child.start_at, dict(os.environ))
            assert attendants.pids not in ({0}, {pid})
        finally:
            end_all(attendants.let_go())

    asyncio.run(main())
