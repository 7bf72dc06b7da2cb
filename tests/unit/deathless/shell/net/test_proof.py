"""Real sockets and files: who reports, orders or follows shows in each connection that it stands in this directory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import OtherDirectory, PeerUnreachable
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import Challenge, Hello, PacketReader, Refused, Type, decode_struct, packet, struct_packet
from deathless.core.access.directory_proof import asker_shows
from deathless.core.supervisor.detection import Report, WorkerState
from deathless.shell.directory.members import Member
from deathless.shell.net import proof
from deathless.shell.net.admin_call import Access, ask
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import listen, split_address
from deathless.shell.net.proof import Asker, Door, Secrets, read_secret
from deathless.shell.supervisor.control_port import ControlPort

OLD = Member("r1", "127.0.0.1:7", pid=7)
NEW = Member("r1", "127.0.0.1:7", pid=7, proves=True)
REPORT = Report("r1", WorkerState.RUNNING, "standby", 1, 1, control="127.0.0.1:7", pid=7)


class Served:
    """A control port in a directory, and what came through it."""

    def __init__(self, directory: Path, *, in_thread: bool, safeguards: Safeguards, member: Member | None) -> None:
        self.directory = str(directory)
        self.reports: list[Report] = []
        self.orders = 0
        self.secrets = Secrets(self.directory, in_thread=in_thread, safeguards=safeguards)
        self.secrets.sweep()
        self.address = ""
        config = ReplicaConfig(service="bank", module="m:a", directory=self.directory, replica="r0")
        self.port = ControlPort(
            config,
            reported=self.reports.append,
            done=lambda: None,
            commands={"stop": self._stop},
            door=Door(self.secrets, lambda name: member if member and member.replica == name else None),
            safeguards=safeguards,
        )

    def _stop(self) -> None:
        self.orders += 1

    async def report(self, directory: str, *reports: Report, name: str = "r1") -> list[str]:
        """Report from a directory; gives the codes of refusals once that ended or everything was taken in."""
        codes: list[str] = []
        ended = asyncio.Event()

        def received(packets: list[tuple[int, bytes]]) -> None:
            codes.extend(decode_struct(Refused, body).code for kind, body in packets if kind == Type.REFUSED)
            if any(kind == Type.PONG for kind, _ in packets):
                ended.set()

        asker = Asker(directory, in_thread=True) if directory else None
        connection = ClientConnection(Hello(1, "supervisor", "bank", name), received, ended.set, 1 << 20, asker)
        host, port = split_address(self.address)
        await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
        for report in reports:
            connection.send(struct_packet(Type.REPORT, report))
        connection.send(struct_packet(Type.PING, Hello(1, "supervisor", "bank", name)))
        await ended.wait()
        connection.close()
        return codes


@contextlib.asynccontextmanager
async def served(
    directory: Path, *, in_thread: bool = True, safeguards: Safeguards | None = None, member: Member | None = None
) -> AsyncIterator[Served]:
    found = Served(directory, in_thread=in_thread, safeguards=safeguards or Safeguards(), member=member)
    server, found.address = await listen(found.port.accept, "127.0.0.1:0")
    try:
        async with asyncio.timeout(30):
            yield found
    finally:
        server.close()
        found.port.close()
        found.secrets.close()


def copied(directory: Path) -> str:
    """Give a copy of it, as far as it has come."""
    shutil.copytree(directory, directory.with_name("copy"), symlinks=True)
    return str(directory.with_name("copy"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "members").mkdir(parents=True)
    return tmp_path / "home"


@pytest.mark.parametrize("in_thread", [False, True])
async def _both_sides(home: Path, in_thread: bool) -> None:
    async with served(home, in_thread=in_thread) as port:
        assert await port.report(str(home), REPORT, REPORT) == []
        await ask(port.address, "stop", Access("bank", directory=str(home)))
        assert (port.reports, port.orders) == ([REPORT, REPORT], 1)
    assert list((home / "members").glob(".*")) == []


@pytest.mark.parametrize("in_thread", [False, True])
def test_who_stands_in_the_directory_reports_and_orders_and_no_file_is_left(home: Path, in_thread: bool) -> None:
    asyncio.run(_both_sides(home, in_thread))


@pytest.mark.parametrize("safe", [True, False])
def test_from_a_copy_nobody_is_heard_or_obeyed(home: Path, safe: bool) -> None:
    """With everything that a copy carries along, the secrets that stood when it was made too."""

    async def work() -> None:
        async with served(home, safeguards=Safeguards(same_directory=safe)) as port:
            access = Access("bank", directory=copied(home))
            if safe:
                assert await port.report(access.directory, REPORT) == [OtherDirectory.code]
                with pytest.raises(OtherDirectory):
                    await ask(port.address, "stop", access)
            else:
                assert await port.report(access.directory, REPORT) == []
                await ask(port.address, "stop", access)
            assert (port.orders, len(port.reports)) == ((0, 0) if safe else (1, 1))
            # It costs nobody else anything.
            assert await port.report(str(home), REPORT) == []
            await ask(port.address, "stop", Access("bank", directory=str(home)))

    asyncio.run(work())


async def _raw(port: Served, hello: Hello, shown: Callable[[Challenge], bytes]) -> str:
    """Answer a challenge by hand; gives the code of the refusal, or what else came first."""
    reader, writer = await asyncio.open_connection(*split_address(port.address))
    packets = PacketReader(1 << 20)
    try:
        writer.write(struct_packet(Type.HELLO, hello) + struct_packet(Type.REPORT, REPORT))
        while data := await reader.read(1 << 16):
            for kind, body in packets.take(data):
                if kind == Type.CHALLENGE:
                    told = decode_struct(Challenge, body)
                    writer.write(packet(Type.PROOF, shown(told)))
                    writer.write(struct_packet(Type.PING, hello))
                else:
                    return decode_struct(Refused, body).code if kind == Type.REFUSED else Type(kind).name
        return "closed"
    finally:
        writer.transport.abort()


def test_wrong_proof_the_others_own_hash_and_another_connections_are_refused(home: Path) -> None:
    async def work() -> None:
        async with served(home) as port:
            word = "ab" * 16
            seen: list[bytes] = []

            def good(told: Challenge) -> bytes:
                secret = read_secret(str(home), told.file)
                assert secret is not None
                seen.append(asker_shows(secret, word, told.nonce))
                return seen[-1]

            hello = Hello(1, "supervisor", "bank", "r1", proof=word)
            for wrong in (lambda _: bytes(32), lambda told: told.shown, lambda _: b""):
                assert await _raw(port, hello, wrong) == OtherDirectory.code
            assert port.reports == []
            assert await _raw(port, hello, good) == "PONG"
            assert len(port.reports) == 1
            assert await _raw(port, hello, lambda _: seen[0]) == OtherDirectory.code

    asyncio.run(work())


@pytest.mark.parametrize("word", ["", "short", "../../../etc/passwd", "AB" * 16])
@pytest.mark.parametrize("kind", ["supervisor", "follower", "tool"])
def test_who_shows_nothing_is_refused(home: Path, kind: str, word: str) -> None:
    async def work() -> None:
        async with served(home, member=NEW) as port:
            hello = Hello(1, kind, "bank", "r1", proof=word)
            assert await _raw(port, hello, lambda _: b"") == OtherDirectory.code
            assert port.reports == []

    asyncio.run(work())


def test_who_connects_and_says_nothing_more_is_told_why_it_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deathless.shell.net.connections.FIRST_WORD_MAX_S", 0.2)

    async def work() -> None:
        async with served(home) as port:
            reader, writer = await asyncio.open_connection(*split_address(port.address))
            writer.write(struct_packet(Type.HELLO, Hello(1, "tool", "bank", "t", proof="ab" * 16)))
            kinds = [kind for kind, _ in PacketReader(1 << 20).take(await reader.read())]
            assert kinds == [Type.CHALLENGE, Type.REFUSED]
            writer.close()

    asyncio.run(work())


def test_replica_of_a_build_before_the_proof_is_heard_while_it_is_what_members_says(home: Path) -> None:
    async def work() -> None:
        async with served(home, member=OLD) as port:
            assert await port.report("", REPORT) == []
            elsewhere = Report("r1", WorkerState.RUNNING, "primary", 9, 9, control="127.0.0.1:8", pid=8)
            assert await port.report("", elsewhere) == [OtherDirectory.code]  # its copy's
            assert await port.report("", Report("r2", "running", "primary", 9, 9), name="r2") == [OtherDirectory.code]
            assert port.reports == [REPORT]

    asyncio.run(work())


@pytest.mark.parametrize("safe", [True, False])
def test_nobody_reports_of_another_replica(home: Path, safe: bool) -> None:
    async def work() -> None:
        async with served(home, safeguards=Safeguards(own_reports_only=safe)) as port:
            assert await port.report(str(home), REPORT, name="r2") == (["DL3035"] if safe else [])
            assert len(port.reports) == (0 if safe else 1)

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["client", "peer", "nonsense"])
def test_who_connects_as_something_else_gives_no_orders_and_reports_nothing(home: Path, kind: str) -> None:
    async def work() -> None:
        async with served(home) as port:
            assert await _raw(port, Hello(1, kind, "bank", "r1"), lambda _: b"") == "DL3035"
            assert port.reports == []

    asyncio.run(work())


def test_flood_of_strangers_costs_few_files_and_delays_nobody(home: Path) -> None:
    async def work() -> None:
        async with served(home, in_thread=False) as port:
            writers = []
            for _ in range(300):
                _, writer = await asyncio.open_connection(*split_address(port.address))
                writer.write(struct_packet(Type.HELLO, Hello(1, "tool", "bank", "t", proof="ab" * 16)))
                writers.append(writer)
            await ask(port.address, "stop", Access("bank", directory=str(home)))
            assert port.orders == 1
            assert len(list((home / "members").glob(".proof.*"))) < 150
            for writer in writers:
                writer.transport.abort()

    asyncio.run(work())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_storage_that_takes_no_file_keeps_nobody_out(home: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full one takes a link; a read-only one still holds the last secret that was written."""
    real = os.open

    def full(path: str, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(code, os.strerror(code))
        return real(path, flags, *more)

    async def work() -> None:
        async with served(home) as port:
            monkeypatch.setattr(os, "open", full)
            assert await port.report(str(home), REPORT) == []
            assert await port.report(copied(home) + "/..", REPORT) == [OtherDirectory.code]
            monkeypatch.undo()

    asyncio.run(work())


def test_without_any_secret_a_replica_is_heard_by_what_members_says_and_nobody_orders(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: bytes) -> None:
        raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(proof, "_put", full)

    async def work() -> None:
        async with served(home, member=NEW) as port:
            assert await port.report(str(home), REPORT) == []
            with pytest.raises(OtherDirectory):
                await ask(port.address, "stop", Access("bank", directory=str(home)))
            assert (port.reports, port.orders) == ([REPORT], 0)

    asyncio.run(work())


def test_files_of_killed_processes_are_swept_and_no_other_file_is_ever_read(home: Path) -> None:
    old, young = home / "members" / f".proof.{'1' * 32}", home / "members" / f".proof.{'2' * 32}"
    for path in (old, young):
        path.write_bytes(b"secret")
    os.utime(old, (1.0, 1.0))
    secrets = Secrets(str(home), in_thread=False)
    secrets.sweep()
    assert (old.exists(), young.exists()) == (False, True)
    assert read_secret(str(home), young.name) == b"secret"
    (home / "members" / "r1.json").write_text("{}")
    for name in ("r1.json", "../place", f".proof.{'2' * 32}/../r1.json", ""):
        assert read_secret(str(home), name) is None
    secrets.close()
    assert young.exists()


def test_tool_whose_storage_hangs_keeps_its_deadline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def hang(directory: str, file: str) -> None:
        goes_on.wait()

    async def work() -> None:
        async with served(home) as port:
            with pytest.raises(PeerUnreachable, match="did not answer"):
                await ask(port.address, "stop", Access("bank", directory=str(home)), answer_s=0.2)
            assert port.orders == 0

    monkeypatch.setattr("deathless.shell.net.proof.read_secret", hang)
    try:
        asyncio.run(work())
    finally:
        goes_on.set()


def putting_once(goes_on: threading.Event, hung: threading.Event) -> Callable[[Path, bytes], None]:
    """Give a storage that takes a file once it goes on, and says that it hangs."""
    put = proof._put

    def hang(path: Path, value: bytes) -> None:
        hung.set()
        goes_on.wait()
        put(path, value)

    return hang


def test_storage_that_gives_no_answer_keeps_no_operator_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, hung = threading.Event(), threading.Event()
    hang = putting_once(goes_on, hung)

    async def work() -> None:
        access = Access("bank", directory=str(home))
        async with served(home) as port:
            monkeypatch.setattr(proof, "_put", hang)
            for orders in (1, 2):  # the one that meets it, and one that comes while it is known
                await ask(port.address, "stop", access)
                assert (port.orders, hung.is_set()) == (orders, True)
            goes_on.set()
            await ask(port.address, "stop", access)
            assert port.orders == 3

    monkeypatch.setattr(proof, "HANGS_S", 0.05)
    try:
        asyncio.run(work())
    finally:
        goes_on.set()
    wait_for_writers()
    assert list((home / "members").glob(".*")) == []


def wait_for_writers() -> None:
    """Wait for threads that the storage kept."""
    for thread in threading.enumerate():
        if thread.name == "proof":
            thread.join()


def test_secret_that_the_storage_takes_behind_the_end_is_taken_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    hang = putting_once(goes_on, threading.Event())

    async def work() -> None:
        async with served(home) as port:
            monkeypatch.setattr(proof, "_put", hang)
            await ask(port.address, "stop", Access("bank", directory=str(home)))

    monkeypatch.setattr(proof, "HANGS_S", 0.05)
    try:
        asyncio.run(work())
    finally:
        goes_on.set()
    wait_for_writers()
    assert list((home / "members").glob(".*")) == []


def test_a_clock_that_stepped_ahead_sweeps_secrets_and_keeps_nobody_out(home: Path) -> None:
    """A process that begins after the step takes away what one that runs has written: that one writes another."""

    async def run() -> None:
        async with served(home) as found:
            standing = list((home / "members").glob(".proof.*"))
            assert standing
            for path in standing:  # by the new time they were written long ago
                then = path.stat().st_mtime - 2 * proof.SWEPT_S
                os.utime(path, (then, then))
            Secrets(str(home), in_thread=False).sweep()
            assert not any(path.exists() for path in standing)
            assert await found.report(str(home), REPORT) == []
            assert found.reports == [REPORT]

    asyncio.run(run())
