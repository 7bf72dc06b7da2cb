"""The process of one out-driver beside one replica: a peer without a log.

    primary --HELLO, PEER_HELLO(epoch, first)--> here --open--> sink
            <--------PEER_WELCOME(from where)---      <---'
            --BATCH----------------------------> session --deliver--> sink --> the world outside
            <--PEER_COMMIT----------------------        '--RESPONSE--> the service, as from a peer named like the driver

It listens on a socket that has no place in the file system (an abstract one, named after the replica's folder), so that
the primary finds it without being told, whenever it started, and nothing of it is left when it is killed. The kernel
says who the other end is: another user's process is not served.

Guarantees: holds no truth and may be killed at any time; one sink is at work for one source, of the highest epoch
seen. A driver whose options are wrong says so to the primary, where operators see it (`deathless peers list`). Does
not: know what a sink does. Imports sinks when they are needed, shell, codec and base.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from importlib import import_module
from typing import Final, cast

import msgspec

from deathless.base.config import DriverConfig, PeerConfig, ReplicaConfig
from deathless.base.driver_kinds import DRIVER_KINDS
from deathless.base.errors import CorruptFrame, DeathlessError, Deposed, InvalidConfig, PortTaken, UnknownService
from deathless.codec.messages import HEADER_BYTES
from deathless.codec.peer_messages import Target
from deathless.codec.versions import agreed
from deathless.codec.wire import (
    Hello,
    PeerIntroduction,
    PeerWelcome,
    Refused,
    Type,
    Welcome,
    decode_batch,
    decode_struct,
    encode_peer_commit,
    packet,
    struct_packet,
)
from deathless.core.primary.admission import cut_messages
from deathless.core.primary.sending import FLIGHT_MESSAGES_MAX
from deathless.drivers.answers import Answers
from deathless.drivers.keyed_session import KeyedSession
from deathless.drivers.port import Factory, KeyedSink, Settings, Sink, Source
from deathless.drivers.session import Session
from deathless.drivers.source_link import Policy
from deathless.shell.link.config_file import read_config
from deathless.shell.net.abstract_socket import driver_socket, is_own, listen_local
from deathless.shell.net.connections import CLOSING_TURNS, ServerConnection
from deathless.shell.net.listening import stop_listening
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.service_code.loading import import_kept, load_attribute

_LOG: Final = logging.getLogger("deathless.drivers")
SESSION: Final = 1  # the number under which a primary knows its own session here
BUFFER_BYTES_MAX: Final = 4 << 20


def factory_of(driver: DriverConfig) -> Factory:
    """Find what makes sinks of this kind.

    Raises: InvalidConfig when there is none, or what it needs is not installed.
    """
    kind = DRIVER_KINDS.get(driver.kind)
    if kind is None:
        return cast("Factory", load_attribute(driver.kind, driver.folder))
    module, _, name = kind.factory.partition(":")
    try:
        made: Factory = getattr(import_module(module), name)
    except ImportError as error:
        raise InvalidConfig(
            f"driver {driver.name}: kind {kind.name}: {error}",
            remedy=f"pip install deathless[{kind.extra}]" if kind.extra else None,
        ) from None
    return made


def make_sink(driver: DriverConfig) -> Sink:
    """Make a sink that is not open. Raises: InvalidConfig naming driver and field."""
    return factory_of(driver)(Settings(driver.name, dict(driver.options), driver.folder))


class Connection:
    """A primary's connection, as its session sees it."""

    def __init__(self, connection: ServerConnection, session: Session | KeyedSession) -> None:
        self.session = session
        self._connection = connection

    def welcome(self, next_position: int) -> None:
        """See session.Listener."""
        self._connection.send(struct_packet(Type.PEER_WELCOME, PeerWelcome(SESSION, next_position)))

    def commit(self, through: int) -> None:
        """See session.Listener."""
        self._connection.send(encode_peer_commit(SESSION, through))

    def refuse(self, error: DeathlessError) -> None:
        """See session.Listener."""
        refuse(self._connection, error)


class _OwnConnection(ServerConnection):
    """One of a process that runs as our user; others are not listened to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        if not is_own(transport.get_extra_info("socket")):
            cast("asyncio.Transport", transport).abort()


def refuse(connection: ServerConnection, error: DeathlessError) -> None:
    """Say why nothing is taken, and close: whoever sends tries again."""
    connection.send(struct_packet(Type.PEER_REFUSED, Refused(error.code, error.message)))
    connection.close()


class Running:
    """A session at work."""

    def __init__(self, session: Session | KeyedSession, answers: Answers) -> None:
        self.session = session
        self.answers = answers
        self.task = asyncio.get_running_loop().create_task(session.run(), name="sink")

    async def end(self) -> None:
        """Let go of the sink; after this nothing of it is at work."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.answers.close()
        await self.session.close()


class Host:
    """One driver beside one replica.

    Args:
        config: the replica's.
        driver: which of its drivers.
    """

    def __init__(self, config: ReplicaConfig, driver: DriverConfig) -> None:
        self.driver = driver
        self.config = config
        limits = config.make_limits()
        self._message_bytes_max = limits.message_bytes_max - HEADER_BYTES
        self._packet_bytes_max = 4 * limits.frame_bytes_max
        # As the driver sees it, the service is a peer, and its folder is known.
        service = PeerConfig(name=config.service, directory=config.directory)
        self._as_peer = msgspec.structs.replace(config, service=driver.name, peers=(service,), drivers=())
        self._running: dict[Target, Running] = {}
        self._connections: dict[ServerConnection, Connection | None] = {}
        self._count = 0
        self._introducing: asyncio.Queue[tuple[ServerConnection, PeerIntroduction]] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._introducer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises: PortTaken when another process is this driver."""
        name = driver_socket(self.config.directory, self.config.owner, self.driver.name)
        try:
            self._server = await listen_local(self._accept, name)
        except OSError as error:
            raise PortTaken(f"driver {self.driver.name}: {error.strerror or error}") from None
        self._introducer = asyncio.get_running_loop().create_task(self._introduce_all(), name="introductions")

    async def close(self) -> None:
        """Let go of all sinks and connections."""
        if self._server is not None:
            await stop_listening(self._server)
        if self._introducer is not None:
            self._introducer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._introducer
        for running in list(self._running.values()):
            await running.end()
        for connection in list(self._connections):
            connection.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    # ---- connections -----------------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        self._count += 1
        return _OwnConnection(
            self,
            self._count,
            service=self.driver.name,
            token=self.config.token,
            packet_bytes_max=self._packet_bytes_max,
            buffer_bytes_max=BUFFER_BYTES_MAX,
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        self._connections[connection] = None
        welcome = Welcome(
            version=agreed(hello),
            service=self.driver.name,
            replica=self.config.replica,
            role="primary",
            epoch=0,
            incarnation=0,
            primary="",
            next_seq=0,
            message_bytes_max=self._message_bytes_max,
            window_max=0,
        )
        connection.send(struct_packet(Type.WELCOME, welcome))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """See packets.Owner."""
        for kind, body in packets:
            match kind:
                case Type.BATCH:
                    known = self._connections.get(connection)
                    if known is not None:
                        batch = decode_batch(body)
                        known.session.taken(known, batch.run.first_seq, cut_messages(batch))
                case Type.PEER_HELLO:
                    self._introducing.put_nowait((connection, decode_struct(PeerIntroduction, body)))
                case Type.PING:
                    connection.send(packet(Type.PONG))
                case _:
                    raise CorruptFrame(f"a driver does not accept packets of type {kind}")

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""
        known = self._connections.pop(connection, None)
        if known is not None:
            known.session.detach(known)

    # ---- who sends -------------------------------------------------------------------------------------------

    async def _introduce_all(self) -> None:
        """One after the other: a sink is closed before its successor is opened."""
        while True:
            connection, said = await self._introducing.get()
            try:
                await self._introduced(connection, said)
            except DeathlessError as error:
                _LOG.error("driver can't serve a sender", extra={"driver": self.driver.name, "why": str(error)})
                refuse(connection, error)
            except Exception as error:  # noqa: BLE001  a factory of somebody else's
                _LOG.exception("driver can't serve a sender", extra={"driver": self.driver.name})
                refuse(connection, InvalidConfig(f"driver {self.driver.name}: {type(error).__name__}: {error}"))

    async def _introduced(self, connection: ServerConnection, said: PeerIntroduction) -> None:
        hello = said.hello
        if hello.service != self.config.service:
            raise UnknownService(f"driver {self.driver.name} belongs to {self.config.service}, not to {hello.service}")
        source = Source(hello.service, hello.shard, hello.service_id, hello.incarnation, said.epoch)
        target = Target(source.service, source.shard)
        running = self._running.get(target)
        if running is not None:
            seen = running.session.source
            same = (seen.service_id, seen.incarnation) == (source.service_id, source.incarnation)
            if same and source.epoch < seen.epoch:
                raise Deposed(f"epoch {source.epoch} of {source.service} ended, {seen.epoch} was seen")
            if seen != source:
                await running.end()
                running = None
        if running is None:
            running = self._running[target] = self._begin(target, source, said.first)
        if connection in self._connections:
            known = self._connections[connection] = Connection(connection, running.session)
            running.session.attach(known, said.first)

    def _begin(self, target: Target, source: Source, first: int) -> Running:
        driver = self.driver
        sink = make_sink(driver)
        answers = Answers(
            self._as_peer,
            driver.name,
            source,
            confirmed=lambda: self._running[target].session.confirmed(),  # noqa: PLW0108  it is there later
            message_bytes_max=self._message_bytes_max,
        )
        limits = self.config.make_limits()
        policy = Policy(
            driver=driver.name,
            skip_refused=driver.on_refusal == "skip",
            batch_messages=driver.batch_messages,
            attempts_max=driver.attempts_max,
            age_max_s=driver.age_max_s,
            room_bytes=limits.peer_window_bytes_max // 2,
            room_messages=FLIGHT_MESSAGES_MAX // 2,
        )
        session: Session | KeyedSession
        if isinstance(sink, KeyedSink):
            session = KeyedSession(source, first, sink, policy, answers)
        else:
            session = Session(source, first, sink, policy, answers)
        return Running(session, answers)


async def serve(config: ReplicaConfig, name: str) -> None:
    """Run one driver until SIGTERM. Raises: InvalidConfig when there is none of this name; PortTaken."""
    driver = next((each for each in config.drivers if each.name == name), None)
    if driver is None:
        known = ", ".join(each.name for each in config.drivers) or "none"
        raise InvalidConfig(f"service {config.service} has no driver {name!r}", remedy=f"its drivers: {known}")
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    host = Host(config, driver)
    await host.start()
    _LOG.info("driver starts", extra={"driver": name, "kind": driver.kind})
    await ended.wait()
    await host.close()


def main(arguments: list[str]) -> int:
    """`python -m deathless.drivers.host CONFIG.json NAME [PARENT]`; ends with its parent."""
    if len(arguments) > 2:
        die_with_parent(int(arguments[2]))
    config = read_config(arguments[0])
    configure(config.log_level, config.replica, f"driver {arguments[1]}")
    try:
        import_kept(config)
        asyncio.run(serve(config, arguments[1]))
    except DeathlessError as error:
        _LOG.error("driver stops", extra={"code": error.code, "why": str(error)})
        return error.exit_code
    return 0


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
