"""A worker's own part: what it tells its supervisor, whom it lets in, and what stops it. Whole sets: tests/process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import Internal, InvalidService, Overloaded, TopicNotKept
from deathless.codec.wire import Hello, Refused, Type, decode_struct, packet
from deathless.core import events as ev
from deathless.core.supervisor.records import (
    AddressesAre,
    AskLock,
    Deaths,
    LockIs,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
)
from deathless.engine.ports import AsyncLock
from deathless.shell.directory.identity import prepare
from deathless.shell.link.status_page import LOCK_ANSWERS, PROVED, TICKS, UNPROVED, Page, page_path
from deathless.shell.lock_stores import reachability as lock_answers
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker
from deathless.shell.process.garbage import Garbage
from deathless.shell.worker import worker
from deathless.shell.worker.worker import PING_MS, Worker, serve

SERVICE = '''
from deathless import Context, Service, Struct

class Nothing(Struct):
    """No state."""

empty = Service("bank", state=Nothing)

@empty.handler
def touch(state: Nothing, ctx: Context) -> int:
    return 1
'''


pytestmark = pytest.mark.usefixtures("collector")


class Told:
    """The supervisor's end of the pair."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.records: list[object] = []

    async def read(self) -> None:
        """Take in all that the worker says, to its end."""
        decoder = msgspec.json.Decoder(ToSupervisor)
        rest = b""
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(self.ours, 65536):
            *lines, rest = (rest + data).split(b"\n")
            self.records += map(decoder.decode, lines)

    def order(self, record: msgspec.Struct) -> None:
        """Send an order."""
        self.ours.send(msgspec.json.encode(record) + b"\n")

    async def wait(self, kind: type[object]) -> object:
        """Wait until the worker said something of a kind; gives it. One that ended says no more."""
        while not (found := [one for one in self.records if isinstance(one, kind)]):
            assert not any(isinstance(one, Stopping) for one in self.records), self.records
            await asyncio.sleep(0)
        return found[-1]


def config_in(folder: Path, **settings: object) -> ReplicaConfig:
    """A replica's config, with a service that does nothing."""
    module = folder / "nothing_to_do.py"
    module.write_text(SERVICE)
    fields = {"service": "bank", "module": f"{module}:empty", "directory": str(folder / "data"), "replica": "r0"}
    return msgspec.convert({**fields, **settings}, ReplicaConfig)


def served(
    config: ReplicaConfig, look: Callable[[Told], Awaitable[None]], *, prepared: bool = True
) -> tuple[int, Stopping]:
    """Run a worker in this process while `look` looks at it; gives its exit code and its last words."""

    async def main() -> tuple[int, Stopping]:
        if prepared:
            await prepare(config)
        told = Told()
        reading = asyncio.create_task(told.read())
        running = asyncio.create_task(serve(config, told.theirs))
        async with asyncio.timeout(20):
            await look(told)
            code = await running
            told.theirs.close()
            await reading
        told.ours.close()
        last = told.records[-1]
        assert isinstance(last, Stopping)
        return code, last

    found = asyncio.run(main())
    Path(page_path(config.directory, config.replica)).unlink(missing_ok=True)
    return found


async def nothing(told: Told) -> None:
    """Wait for nothing."""


async def to_standby(told: Told) -> AddressesAre:
    """Wait until the worker follows; gives where it listens."""
    addresses = await told.wait(AddressesAre)
    assert isinstance(addresses, AddressesAre)

    def follows() -> bool:
        return any(isinstance(one, RoleIs) and one.role == "standby" for one in told.records)

    while not follows():  # noqa: ASYNC110  nothing there can be waited on
        await asyncio.sleep(0)
    return addresses


def test_orderly_stop_is_said_and_ends_with_zero(tmp_path: Path) -> None:
    async def look(told: Told) -> None:
        await to_standby(told)
        told.order(Stop())

    assert served(config_in(tmp_path), look) == (0, Stopping("", "stopped in order"))


@contextlib.asynccontextmanager
async def far_lock(*arguments: Any) -> AsyncIterator[AsyncLock]:
    """A lock that takes its time to open, as one across a network does: whatever was sent is read meanwhile."""
    for _ in range(10):
        await asyncio.sleep(0)
    async with open_lock(*arguments) as lock:
        yield lock


def test_orders_that_come_before_the_engine_runs_are_carried_out_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor knows a primary already, and asks about its claim, while its worker still looks at the lock."""
    monkeypatch.setattr(worker, "open_lock", far_lock)

    async def look(told: Told) -> None:
        for early in (PrimaryIs(3, "r9", "127.0.0.1:1", "127.0.0.1:1"), AskLock(), Deaths(1, 1, 1)):
            told.order(early)
        await to_standby(told)
        assert isinstance(await told.wait(LockIs), LockIs)
        told.order(Stop())

    assert served(config_in(tmp_path), look) == (0, Stopping("", "stopped in order"))


def test_stop_that_comes_before_the_engine_runs_is_an_orderly_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "open_lock", far_lock)

    async def look(told: Told) -> None:
        told.order(Stop())

    assert served(config_in(tmp_path), look) == (0, Stopping("", "stopped in order"))


def test_sigterm_is_an_orderly_stop(tmp_path: Path) -> None:
    async def look(told: Told) -> None:
        await to_standby(told)
        signal.raise_signal(signal.SIGTERM)

    assert served(config_in(tmp_path), look)[0] == 0


def test_service_that_can_not_be_imported_is_told_before_anything_runs(tmp_path: Path) -> None:
    config = config_in(tmp_path, module=f"{tmp_path}/broken.py:empty")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    code, last = served(config, nothing)
    assert (code, last.code) == (InvalidService.exit_code, InvalidService.code)
    assert "nowhere_at_all" in last.text


def test_code_with_a_topic_that_nobody_keeps_is_told_before_anything_runs(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    module = Path(config.module.partition(":")[0])
    module.write_text(f"{SERVICE}\nclass Sold(Struct):\n    cents: int\n\nempty.topic('sales', Sold)\n")
    code, last = served(config, nothing)
    assert (code, last.code) == (TopicNotKept.exit_code, TopicNotKept.code)
    assert "the code declares topic sales" in last.text


def test_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    code, last = served(config_in(tmp_path), nothing, prepared=False)
    assert (code, last.code) == (Internal.exit_code, Internal.code)
    assert "data" in last.text


def test_i8_error_in_any_callback_stops_the_replica(tmp_path: Path) -> None:
    async def look(told: Told) -> None:
        await to_standby(told)
        asyncio.get_running_loop().call_soon(msgspec.json.decode, b"a bug")

    code, last = served(config_in(tmp_path), look)
    assert (code, last.code) == (Internal.exit_code, Internal.code)
    assert "malformed" in last.text


def test_broken_connection_of_a_peer_stops_nobody(tmp_path: Path) -> None:
    async def look(told: Told) -> None:
        await to_standby(told)
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "broken", "exception": ConnectionResetError(), "transport": None})
        loop.call_exception_handler({"message": "no descriptors", "exception": OSError(24, "many"), "socket": None})
        closed = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": closed, "protocol": None})
        told.order(Stop())

    assert served(config_in(tmp_path), look)[0] == 0


UNPROVED_PRIMARY = PrimaryIs(3, "r9", "127.0.0.1:1", "127.0.0.1:1", unproved=True)


async def cell(page: Page, number: int, wanted: Callable[[int], bool]) -> None:
    """Wait for a cell of the page."""
    while not wanted(page.cells[number]):  # noqa: ASYNC110  another process would poll it, too
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["told otherwise", "takes over", "stops"])
def test_follower_of_an_unproved_primary_asks_the_lock_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(lock_answers, "ASK_S", 0.005)
    config = config_in(tmp_path)

    async def look(told: Told) -> None:
        await to_standby(told)
        page = Page(page_path(config.directory, config.replica))
        told.order(UNPROVED_PRIMARY)
        await cell(page, LOCK_ANSWERS, lambda ms: ms > 20)
        if end == "told otherwise":
            told.order(msgspec.structs.replace(UNPROVED_PRIMARY, unproved=False))
        elif end == "takes over":
            told.order(TakeOver(3, "a test"))
        if end != "stops":
            await cell(page, LOCK_ANSWERS, lambda ms: ms == 0)
            ticks = page.cells[TICKS]
            await cell(page, TICKS, lambda count: count > ticks + 1)
            assert page.cells[LOCK_ANSWERS] == 0
        told.order(Stop())

    served(config, look)


def test_garbage_is_looked_at_at_each_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(Garbage, "tick", lambda _: looked.append(1))
    config = config_in(tmp_path)

    async def look(told: Told) -> None:
        await to_standby(told)
        while len(looked) < 3:  # noqa: ASYNC110  nothing there can be waited on
            await asyncio.sleep(0)
        assert not gc.isenabled()
        told.order(Stop())

    assert served(config, look)[0] == 0


def test_follower_of_a_primary_that_proves_does_not_ask(tmp_path: Path) -> None:
    config = config_in(tmp_path)

    async def look(told: Told) -> None:
        await to_standby(told)
        page = Page(page_path(config.directory, config.replica))
        told.order(msgspec.structs.replace(UNPROVED_PRIMARY, unproved=False))
        ticks = page.cells[TICKS]
        await cell(page, TICKS, lambda count: count > ticks + 6)
        assert page.cells[LOCK_ANSWERS] == page.cells[UNPROVED] == 0
        told.order(Stop())

    served(config, look)


def test_proof_without_an_answer_is_counted_by_rounds_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_in(tmp_path)
    workers: list[Worker] = []
    real = Worker._tick

    def tick(self: Worker) -> None:
        workers.append(self)
        real(self)

    monkeypatch.setattr(Worker, "_tick", tick)

    async def look(told: Told) -> None:
        await to_standby(told)
        page = workers[0].page
        workers[0].engine.unproved_since = 1.0  # long ago: a loop that stood still since must not count
        await cell(page, UNPROVED, lambda ms: ms > 0)
        assert page.cells[UNPROVED] == PING_MS
        await cell(page, UNPROVED, lambda ms: ms == 3 * PING_MS)
        workers[0].engine.unproved_since = 2.0  # another proof
        await cell(page, UNPROVED, lambda ms: ms == 0)
        await cell(page, UNPROVED, lambda ms: ms == PING_MS)
        workers[0].engine.unproved_since = None
        await cell(page, UNPROVED, lambda ms: ms == 0)
        assert page.cells[PROVED] == 0
        workers[0].engine.proved_at = 12.5
        await cell(page, PROVED, lambda ns: ns == 12_500_000_000)
        told.order(Stop())

    served(config, look)


def test_i10_connection_beyond_the_maximum_is_refused_with_a_word(tmp_path: Path) -> None:
    refused: list[Refused] = []

    async def look(told: Told) -> None:
        addresses = await to_standby(told)
        host, port = split_address(addresses.client)
        connections = []
        for number in range(2):
            got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

            def received(packets: list[tuple[int, bytes]], got: asyncio.Future[int] = got) -> None:
                for kind, body in packets:
                    if kind == Type.REFUSED:
                        refused.append(decode_struct(Refused, body))
                    if not got.done():
                        got.set_result(kind)

            hello = Hello(1, "client", "bank", f"c{number}")
            connections.append(ClientConnection(hello, received, lambda: None, 1 << 20))
            await asyncio.get_running_loop().create_connection(lambda: connections[-1], host, port)
            await got
        assert [each.code for each in refused] == [Overloaded.code]
        for connection in connections:
            connection.close()
            await connection.wait_closed()
        told.order(Stop())

    served(config_in(tmp_path, limits={"connections_max": 1}), look)


@pytest.mark.parametrize(("kind", "kept"), [("peer", True), ("follower", True), ("client", False)])
def test_what_nobody_waits_for_is_kept_for_what_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool
) -> None:
    """A peer that hears of each confirmation by itself would look at that first, and then at the reply."""
    workers: list[Worker] = []
    monkeypatch.setattr("deathless.shell.net.connections.SOON_S", 3600.0)  # only what is sent at once comes
    first_init = Worker.__init__

    def remember(worker: Worker, config: ReplicaConfig, pair: socket.socket, page: str = "") -> None:
        first_init(worker, config, pair, page)
        workers.append(worker)

    monkeypatch.setattr(Worker, "__init__", remember)

    async def look(told: Told) -> None:
        addresses = await to_standby(told)
        got: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

        def received(packets: list[tuple[int, bytes]]) -> None:
            for each in packets:
                got.put_nowait(each)

        hello = Hello(1, kind, "bank", "other", fingerprint=workers[0].engine.fingerprint)
        connection = ClientConnection(hello, received, lambda: None, 1 << 20, Asker(str(tmp_path / "data")))
        host, port = split_address(addresses.client)
        await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
        assert (await got.get())[0] == Type.WELCOME
        conn = ev.Conn(max(workers[0].connections._open))
        workers[0].connections.send(conn, packet(Type.PONG, b"may wait"))
        workers[0].connections._open[conn].send(packet(Type.PONG, b"asked for"))
        first = await got.get()
        assert first == (Type.PONG, b"may wait")
        assert await got.get() == (Type.PONG, b"asked for")
        workers[0].connections.send(conn, packet(Type.PONG, b"again"))
        assert bool(workers[0].connections._open[conn]._later) is kept
        connection.close()
        await connection.wait_closed()
        told.order(Stop())

    served(config_in(tmp_path), look)
