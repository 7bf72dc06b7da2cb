"""The gate as sockets: clients send over real connections, while others are hostile; it follows the replica's role."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from examples.readings.send import send
from tests.unit.deathless.shell.net.test_tls import write
from tests.unit.deathless.sources.gate.gate_world import Primary

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import DeathlessError, InvalidConfig, PeerUnreachable
from deathless.base.tls import TlsConfig
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import Error, Hello, MessageId, Notify, Ok, StreamId, encode
from deathless.shell.directory.members import Member
from deathless.shell.link.standing import Standing
from deathless.shell.net.tls import client_context
from deathless.sources import trouble
from deathless.sources.gate import machine, work
from deathless.sources.gate.work import GateWork, check_options
from deathless.sources.host import SourceProcess, make_reader
from deathless.sources.link import Packets

LEADS = Standing(service="taker", replica="r0", role="primary", epoch=1, service_id="ab")
PRIMARIES: dict[int, Primary] = {}
HELLO = encode(Hello("0.0.1", b"", "p", "i"))


class MemoryLink:
    """A connection to a primary that is played."""

    def __init__(
        self, _config: ReplicaConfig, shard: int, _name: str, *,
        up: Callable[[int], None], received: Callable[[int, Packets], None], down: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.problem = ""
        self._shard, self._received, self._down = shard, received, down
        asyncio.get_running_loop().call_soon(up, shard)

    def send(self, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._received, self._shard, PRIMARIES[self._shard].answer(data))

    def check(self) -> None:
        """It never ends by itself."""

    def close(self) -> None:
        self.problem = "closed"


def source(**options: object) -> SourceConfig:
    return SourceConfig(name="lines", kind="connector", input="rows", options={"listen": "127.0.0.1:0", **options})


def config_of(folder: Path, kind: SourceConfig, **settings: Any) -> ReplicaConfig:
    return ReplicaConfig(
        service="taker", module="m:m", directory=str(folder), replica="r0", sources=(kind,), **settings
    )


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    async def known(*_words: object) -> dict[str, object]:
        return {"streams": [{"stream": 3, "takenIn": 5, "note": (b"f" * 8 + b"old").hex()}]}

    PRIMARIES.clear()
    PRIMARIES[0] = Primary()
    monkeypatch.setattr(work, "ShardLink", MemoryLink)
    monkeypatch.setattr(work, "ask", known)
    monkeypatch.setattr(work, "read_members", lambda _directory: {"r0": Member("r0", "", client="h:1")})
    monkeypatch.setattr(trouble, "AGAIN_MIN_S", 0.0)
    monkeypatch.setattr(trouble, "AGAIN_MAX_S", 0.0)


@asynccontextmanager
async def serving(folder: Path, **options: object) -> AsyncIterator[GateWork]:
    kind = source(**options)
    made = GateWork(config_of(folder, kind), kind, asyncio.Event())
    await made.turn()
    assert made.address, made.trouble.error
    try:
        yield made
    finally:
        await made.close()


def address(made: GateWork) -> tuple[str, int]:
    host, _, port = made.address.rpartition(":")
    return host, int(port)


async def talk(made: GateWork, data: bytes) -> str:
    """Send bytes, and give what the ERROR says with which the connection ends; empty: it ended without one."""
    reader, writer = await asyncio.open_connection(*address(made))
    writer.write(data)
    frames = FrameReader(1 << 20)
    frames.feed(await reader.read())
    writer.close()
    text = ""
    while (frame := frames.next()) is not None:
        text = frame.text if isinstance(frame, Error) else text
    return text


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    while not condition():  # noqa: ASYNC110  what it waits for has no event
        await asyncio.sleep(0)


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


def test_the_client_of_the_example_sends_a_file_and_its_end(tmp_path: Path) -> None:
    rows = [b'{"sensor": "s%d", "value": %d}' % (n % 3, n) for n in range(300)]

    async def story() -> None:
        async with serving(tmp_path, credits=20) as made:
            await asyncio.to_thread(send, itertools.repeat(address(made)), 7, rows, "one")
            (old, new) = made.statuses()
            assert (old.stream, old.name, old.state, old.taken_in) == (3, "old", "closed", 5)
            assert (new.stream, new.name, new.state, new.taken_in) == (7, "readings", "closed", 299)
            assert (made.rows, made.errors) == (300, 0)
            await until(lambda: not made.connections)  # it hears of the client's end in a moment

    play(story)
    assert PRIMARIES[0].logs[7].taken == [*(row.decode() for row in rows), "end"]


def test_hostile_clients_cost_another_one_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FIRST_WORD_MAX_S", 600.0)  # those that are silent stay
    rows = [b'{"sensor": "s", "value": %d}' % n for n in range(200)]

    async def story() -> None:
        async with serving(tmp_path, credits=20, maxConnections=50) as made:
            silent = [await asyncio.open_connection(*address(made)) for _ in range(30)]
            for _, writer in silent[:10]:
                writer.write(HELLO + encode(Notify(StreamId(1), b"", MessageId(0)))[:-1])
            assert "DL3003" in await talk(made, HELLO + HELLO)
            assert "DL" in await talk(made, b"GET / HTTP/1.1\r\n\r\n")
            assert "DL" in await talk(made, b"\xff" * 100)
            await asyncio.to_thread(send, itertools.repeat(address(made)), 7, rows, "one")
            await until(lambda: made.connections == len(silent))
            more = [await asyncio.open_connection(*address(made)) for _ in range(30)]
            assert await _refused([each for each, _ in more], 10) == [True] * 10
            await until(lambda: made.connections == 50)
            for _, writer in (*silent, *more):
                writer.close()

    play(story)
    assert PRIMARIES[0].logs[7].taken[:-1] == [row.decode() for row in rows]


async def _refused(readers: Sequence[asyncio.StreamReader], count: int) -> list[bool]:
    """Wait until so many hear something: are they refused? Who was let in hears nothing before it speaks."""
    hearing = [asyncio.create_task(reader.read(1 << 16)) for reader in readers]
    while sum(each.done() for each in hearing) < count:
        await asyncio.wait([each for each in hearing if not each.done()], return_when=asyncio.FIRST_COMPLETED)
    for each in hearing:
        each.cancel()
    heard = await asyncio.gather(*hearing, return_exceptions=True)
    return [
        isinstance(said, bytes) and b"DL3091" in said for said in heard if not isinstance(said, asyncio.CancelledError)
    ]


def test_a_client_that_never_reads_is_not_read_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, credits=20) as made:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(address(made))
                client.setblocking(False)
                client.send(HELLO)
                notify = encode(Notify(StreamId(1), b"", MessageId(0))) * 3000  # each is answered
                while not made.connections or (made.gate is not None and made.gate.wants(1)):
                    with contextlib.suppress(BlockingIOError):
                        client.send(notify)  # what is cut is a frame behind which nothing is read
                    await asyncio.sleep(0)
                assert made._clients[1]._transport is not None
                assert made._clients[1]._transport.get_write_buffer_size() < 1 << 22

    play(story)


def test_a_cookie_is_read_from_its_file_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "cookie").write_text("Dragons\n")

    async def story() -> None:
        kind = source(cookieFile=str(tmp_path / "cookie"))
        made = GateWork(config_of(tmp_path, kind), kind, asyncio.Event())
        await made.turn()
        assert "DL" in await talk(made, HELLO)
        (tmp_path / "cookie").write_text("Tacos")
        await made.turn()
        hello = encode(Hello("0.0.1", b"Tacos", "p", "i"))
        assert "DL3003" in await talk(made, hello + hello), "it was let in, and said HELLO twice"
        (tmp_path / "cookie").write_text("")
        await made.turn()
        assert isinstance(made.trouble.error, InvalidConfig)
        await made.close()

    play(story)


def test_it_serves_while_its_replica_leads_and_ends_connections_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        process = SourceProcess(config_of(tmp_path, source()), source())
        process.told(LEADS)
        await process.turn()
        status = process.status()
        assert (status.state, status.connections) == ("reading", 0)
        host, _, port = status.listens.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        process.told(Standing(service="taker", replica="r0", role="standby", epoch=1, service_id="ab"))
        await process.turn()
        assert await reader.read() == b"", "it is closed"
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))
        assert process.status().listens == ""

    play(story)


def test_beside_other_shards_than_the_first_nobody_listens(tmp_path: Path) -> None:
    async def story() -> None:
        process = SourceProcess(config_of(tmp_path, source(), shard=1, shards=2), source())
        process.told(LEADS)
        await process.turn()
        assert process.status().listens == ""

    play(story)


def test_it_does_not_listen_before_the_primary_said_what_the_log_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_words: object) -> dict[str, object]:
        raise PeerUnreachable("gone")

    async def story() -> None:
        made = GateWork(config_of(tmp_path, source()), source(), asyncio.Event())
        monkeypatch.setattr(work, "ask", away)
        await made.turn()
        assert (made.address, made.trouble.error is not None) == ("", True)
        monkeypatch.setattr(work, "read_members", lambda _directory: {})
        await made.turn()
        assert made.address == ""

    play(story)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"listen": "here"}, "host:port"),
        ({"listen": "0.0.0.0:7405"}, "anybody who reaches it could send"),
        ({"tls": True}, "no spec.tls"),
        ({"credits": 1}, "credits"),
        ({"kite": 1}, "kite"),
    ],
)
def test_options_that_can_not_be_are_refused_at_once(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        SourceProcess(config_of(tmp_path, source(**options)), source(**options))


def test_certificates_stand_for_a_cookie(tmp_path: Path) -> None:
    kind = source(listen="0.0.0.0:7405", tls=True)
    tls = TlsConfig(ca="ca", certificate="c", key="k", require_client_certificate=True)
    assert check_options(config_of(tmp_path, kind, tls=tls), kind).tls
    with pytest.raises(InvalidConfig, match="anybody"):
        check_options(config_of(tmp_path, kind, tls=TlsConfig(ca="ca", certificate="c", key="k")), kind)


def test_it_has_no_place_that_an_operator_could_name() -> None:
    with pytest.raises(DeathlessError, match="no place to go on at"):
        make_reader(source())


def test_a_stream_that_two_of_one_name_take_from_each_other_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as made:
            assert made.gate is not None
            _, writer = await asyncio.open_connection(*address(made))
            writer.write(HELLO + encode(Notify(StreamId(3), b"old", MessageId(0))))
            await until(lambda: made.statuses()[0].state == "open")
            (view,) = made.gate.streams(0.0)
            assert made._status(view).code == ""
            assert made._status(view._replace(contended=True)).code == "DL3093"
            writer.close()

    play(story)


def strange(where: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """Say HELLO without a certificate; gives what is answered."""
    with socket.create_connection(where) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(HELLO)
                return connection.recv(1)
        except OSError:
            return b""


def test_clients_that_show_certificates_need_no_cookie(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = write(tmp_path / "tls", authority, "localhost")
    config = config_of(tmp_path, source(tls=True), tls=tls)

    async def story() -> None:
        made = GateWork(config, config.sources[0], asyncio.Event())
        await made.turn()
        reader, writer = await asyncio.open_connection(
            *address(made), ssl=client_context(tls), server_hostname="localhost"
        )
        writer.write(HELLO)
        frames = FrameReader(1 << 20)
        frames.feed(await reader.read(100))
        assert isinstance(frames.next(), Ok)
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(strange, address(made), ssl.create_default_context(cafile=tls.ca)) == b""
        await made.close()

    play(story)


def test_a_status_says_of_so_many_shards_alone_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "DETAILS_MAX", 2)

    async def story() -> None:
        async with serving(tmp_path) as made:
            _, writer = await asyncio.open_connection(*address(made))
            names = [encode(Notify(StreamId(number), b"n", MessageId(0))) for number in range(10, 14)]
            writer.write(HELLO + b"".join(names))
            await until(lambda: len(made.statuses()) == 5)
            assert [len(each.shards) for each in made.statuses()] == [0, 1, 1, 0, 0]
            writer.close()

    play(story)
