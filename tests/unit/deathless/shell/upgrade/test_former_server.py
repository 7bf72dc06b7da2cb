"""The former code at a Unix socket: one process for each connection, and what a connection can't do to others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import Former, former_code, migrated, tried

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, UpgradeCalledOff
from deathless.codec.snapshot import Snapshot
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.operate.upgrading import rehearsal_child
from deathless.shell.upgrade import former_server
from deathless.shell.upgrade.former import FormerProcess
from deathless.shell.upgrade.former_link import PREAMBLE, ServedBeside, Use
from deathless.shell.upgrade.former_server import PROGRAMS, FormerServer, listen_at

__all__ = ["former_code"]
UNKNOWN_USE = max(Use) + 1

PROGRAM = """
import sys
from deathless.shell.upgrade.former_server import FormerServer
FormerServer(*sys.argv[1:]).run()
"""


class Served:
    """The server as a process of its own, with a config of its own."""

    def __init__(self, former: Former) -> None:
        self.former = former
        self.path = str(former.scratch.parent / "former.sock")
        self.config = former.scratch.parent / "own.json"
        self.config.write_bytes(msgspec.json.encode(former.former_config))
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, self.path, str(self.config)])

    def link(self) -> ServedBeside:
        return ServedBeside(self.path, 7)

    def connect(self) -> socket.socket:
        link = self.link()
        line = asyncio.run(link.open())
        assert link._line is not None
        link._line.close()
        line.setblocking(True)
        return line


@pytest.fixture
def served(former_code: Former) -> Iterator[Served]:
    made = Served(former_code)
    yield made
    made.process.kill()
    made.process.wait()


def files_in(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (each.st_mtime_ns, each.st_size) for path, each in found.items()}


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.name))
    return found


def wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        asyncio.run(ended(os.pidfd_open(pid)))


async def ended(descriptor: int) -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, done.set)
    try:
        await asyncio.wait_for(done.wait(), 30)
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def test_the_new_code_goes_on_with_what_the_served_code_holds(served: Served) -> None:
    former_code = served.former
    former_code.frame()
    former_code.frame(3)
    snapshot = former_code.checkpoint()
    before = files_in(former_code.directory)

    async def work(former: FormerProcess) -> None:
        former.restore(snapshot)
        former.apply(former_code.frame(4))
        given = await migrated(former)
        assert isinstance(given, Snapshot)
        assert given.state == {b"ann": b"\x81\xa5cents\xcd\x02\xbc"}

    former_code.run(former_code.process(link=served.link()), work)
    assert files_in(former_code.directory) == before, "a log that is mounted to be read is enough"


def test_several_are_served_at_once_each_by_its_own_process(served: Served) -> None:
    former_code = served.former
    frames = [former_code.frame(), former_code.frame(1)]

    async def work(first: FormerProcess) -> None:
        other = former_code.process(link=served.link())
        await other.start()
        for each in (first, other):
            for frame in frames:
                each.apply(frame)
        assert [isinstance(await tried(each), Migrated) for each in (first, other)] == [True, True]
        assert len(children_of(served.process.pid)) == 2
        other.close()
        assert isinstance(await tried(first), Migrated), "the end of one is nothing to the other"

    former_code.run(former_code.process(link=served.link()), work)


def test_the_servers_own_config_counts_whatever_a_later_release_says(served: Served) -> None:
    """The upgrader's config names another module, and has fields that no release before it knows."""
    former_code = served.former
    own = served.link()
    process = former_code.process(link=own)
    strange = msgspec.json.encode({**msgspec.to_builtins(former_code.config), "module": "nowhere:x", "later": 1})
    process._begin = msgspec.structs.replace(process._begin, config=strange)

    async def work(former: FormerProcess) -> None:
        former.apply(former_code.frame())
        assert isinstance(await tried(former), Migrated)

    former_code.run(process, work)


def test_code_that_is_not_what_wrote_the_log_is_told(served: Served) -> None:
    async def work(former: FormerProcess) -> None:
        said = await tried(former)
        assert "is not what wrote the log" in str(said)

    served.former.run(served.former.process(link=served.link(), fingerprint=b"x" * 16), work)


@pytest.mark.parametrize("said", [b"", b"1234567", PREAMBLE.pack(7, UNKNOWN_USE)])
def test_a_connection_that_begins_badly_costs_itself_alone(served: Served, said: bytes) -> None:
    served.connect().close()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(served.path)
        line.sendall(said)
        line.shutdown(socket.SHUT_WR)
        assert line.recv(1) == b""
    test_the_new_code_goes_on_with_what_the_served_code_holds(served)


def test_with_the_connection_its_process_ends_also_one_that_is_busy(served: Served) -> None:
    line = served.connect()
    [child] = wait_for_children(served)
    os.kill(child, signal.SIGSTOP)
    line.close()
    wait_for_end(child)
    assert served.process.poll() is None


def wait_for_children(served: Served) -> list[int]:
    with socket.socket(socket.AF_UNIX) as other:  # connections are seen to in their order
        other.connect(served.path)
        other.sendall(PREAMBLE.pack(7, UNKNOWN_USE))
        assert other.recv(1) == b""
    return children_of(served.process.pid)


def test_sigterm_ends_the_server_and_its_children(served: Served) -> None:
    lines = [served.connect(), served.connect()]
    children = wait_for_children(served)
    assert len(children) == 2
    served.process.terminate()
    assert served.process.wait(30) == 0
    for line in lines:
        with line:
            assert line.recv(1) == b""
    for child in children:
        wait_for_end(child)


def test_a_socket_that_was_left_behind_is_replaced_and_a_file_is_not(served: Served) -> None:
    served.connect().close()
    served.process.kill()
    served.process.wait()
    served.process = served.start()
    test_the_new_code_goes_on_with_what_the_served_code_holds(served)
    Path(f"{served.path}.text").write_text("somebody's")
    for path in (f"{served.path}.text", "/nowhere/former.sock", "x" * 200):
        with pytest.raises(InvalidConfig, match="can't listen at"):
            listen_at(path)


def test_an_upgrader_learns_that_its_server_was_killed(served: Served) -> None:
    async def work(former: FormerProcess) -> None:
        served.process.kill()
        served.process.wait(30)  # who serves us is killed by its death, and might answer before it
        said = await tried(former)
        assert isinstance(said, UpgradeCalledOff)
        assert "in the log of the container `former`" in said.message

    served.former.run(served.former.process(link=served.link()), work)


class InThread:
    """The server within this process, where what it waits for can be made short."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.server = FormerServer(self.path, "/nowhere.json")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.server._stopped:
            self.server.step()
        self.server.close()

    def end(self) -> None:
        self.server._stopped = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.connect(self.path)  # wakes it
        self.thread.join(30)


def test_too_many_and_those_that_say_nothing_are_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_server, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(former_server, "PREAMBLE_S", 0.05)
    server = InThread(tmp_path / "former.sock")
    try:
        lines = []
        for _ in range(2):
            line = socket.socket(socket.AF_UNIX)
            line.connect(server.path)
            lines.append(line)
        assert [line.recv(1) for line in reversed(lines)] == [b"", b""]
        for line in lines:
            line.close()
    finally:
        server.end()
    assert not server.thread.is_alive()


def test_config_of_the_server_is_read_by_its_processes(former_code: Former) -> None:
    """One that can't be read ends each process with its error."""
    server = Served(former_code)
    try:
        server.config.write_text("{}")

        async def work(former: FormerProcess) -> None:
            assert "own.json" in str(await tried(former))

        former_code.run(former_code.process(link=server.link()), work)
    finally:
        server.process.kill()
        server.process.wait()
    assert isinstance(former_code.config, ReplicaConfig)


def test_what_is_asked_for_has_a_program_of_its_own() -> None:
    assert set(PROGRAMS) == set(Use)
    assert PROGRAMS[Use.REHEARSAL] == (rehearsal_child.MODULE, rehearsal_child.SERVED)
