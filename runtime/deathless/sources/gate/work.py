"""The gate of one source as sockets: it listens while its replica leads, and carries out what `machine` decides.

    clients --TCP, TLS--> ClientProtocol --bytes--> Gate --packets--> ShardLink --> primaries of all shards

It begins when the primary has said which streams the log knows. When its replica leads no more, it listens no more and
ends all connections in order, so that clients go on to the next address.

Guarantees: holds no truth; what comes of a connection is bounded in memory and time (see the machine). Does not:
decide. Imports the machine, links and the shell.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import ConnectorBusy, ConnectorContended, DeathlessError, InvalidConfig, PeerUnreachable
from deathless.base.source_kinds.connector import ConnectorOptions, connector_options, open_to_strangers
from deathless.codec.streams.records import NONCE_BYTES, OnRefusal
from deathless.protocols.connector.fields import SHORT_BYTES_MAX
from deathless.protocols.connector.handshake import error_frame
from deathless.shell.directory.members import read_members
from deathless.shell.disk.small_files import read_small
from deathless.shell.link.source_status import PROBLEM_MAX, ShardStatus, StreamStatus
from deathless.shell.net.admin_call import access_of, ask, fitted
from deathless.shell.net.listening import descriptors_for, listen, stop_listening
from deathless.shell.net.tls import server_context
from deathless.sources.gate.machine import Effect, Gate, GateLimits, HangUp, Known, SendShard, StreamView, Write
from deathless.sources.keys import FINGERPRINT_BYTES, Routing
from deathless.sources.link import Packets, ShardLink
from deathless.sources.machine import PartitionMachine
from deathless.sources.port import Partition
from deathless.sources.trouble import Trouble, code_of

_LOG: Final = logging.getLogger("deathless.sources")
TURN_S: Final = 1.0  # between two looks at what can't be begun, and at the file with the cookie
LINGER_S: Final = 5.0  # a connection that was ended takes the rest of what it is sent, or loses it
DETAILS_MAX: Final = 1000  # of a status: how far single shards are; a reason of a thousand characters fits each
KEEP_ALIVE_S: Final = 5  # TCP asks whether the other machine is still there after so much silence, and as often again
KEEP_ALIVE_COUNT: Final = 3


class _Stream(msgspec.Struct, rename="camel"):
    """A stream as the log has it; fields as `shell.worker.streams` gives them."""

    stream: int
    taken_in: int
    note: str


class _Told(msgspec.Struct):
    streams: list[_Stream]


def check_options(config: ReplicaConfig, source: SourceConfig) -> ConnectorOptions:
    """Give the options of a source, if it can be begun with them. Raises: InvalidConfig."""
    options = connector_options(source.name, source.options)
    if options.tls and config.tls is None:
        raise InvalidConfig(f"source {source.name}: options: tls: the service has no spec.tls")
    certificates = config.tls is not None and config.tls.require_client_certificate
    where = msgspec.structs.replace(options, listen=source.listen or options.listen)
    if why := open_to_strangers(where, certificates=certificates):
        raise InvalidConfig(f"source {source.name}: options: listen: {why}", remedy="name a cookieFile")
    return options


def ways_into(config: ReplicaConfig, source: SourceConfig) -> Callable[[Partition], PartitionMachine]:
    """Give what makes the way of a stream into the shards of a service."""
    routing = Routing.of(config, source)
    on_refusal = OnRefusal(source.on_refusal)

    def make(partition: Partition) -> PartitionMachine:
        nonces = [os.urandom(NONCE_BYTES) for _ in range(routing.shards)]
        return PartitionMachine(source.name, partition, routing, nonces, on_refusal)

    return make


class ClientProtocol(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, work: GateWork) -> None:
        self.reads = True
        self.number = 0  # 0: it was not let in, or has ended
        self._work = work
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        found: socket.socket | None = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_COUNT)
        self.number = self._work.came(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self.number:
            self._work.received(self.number, data)

    def pause_writing(self) -> None:
        """See asyncio."""
        self._work.unread(self.number, full=True)

    def resume_writing(self) -> None:
        """See asyncio."""
        self._work.unread(self.number, full=False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a connection is lost, whatever ended it
        """See asyncio."""
        number, self.number = self.number, 0
        if number:
            self._work.lost(number)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def read(self, *, go_on: bool) -> None:
        """Read on, or read nothing for now."""
        if self._transport is None or self._transport.is_closing() or go_on is self.reads:
            return
        self.reads = go_on
        if go_on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def end(self) -> None:
        """Close it once what was sent is taken, or after a while."""
        self.number = 0
        if self._transport is not None:
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)


class GateWork:
    """One life of a gate beside the primary of shard 0.

    Args:
        config: of the replica.
        source: of the source.
        changed: set when there is something to say.
    """

    def __init__(self, config: ReplicaConfig, source: SourceConfig, changed: asyncio.Event) -> None:
        self.trouble = Trouble()
        self.address = ""  # that is listened on; empty: not yet
        self.gate: Gate | None = None  # Invariant: there is one while `address` is set
        self._config = config
        self._source = source
        self._options = check_options(config, source)
        self._changed = changed
        self._cookie = b""
        self._server: asyncio.Server | None = None
        self._clients: dict[int, ClientProtocol] = {}
        self._paused: set[int] = set()  # connections that are not read
        self._last = 0  # number of a connection that was given last
        self._most = self._options.max_connections
        self._links: list[ShardLink] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rows(self) -> int:
        """Messages that went to shards."""
        return self.gate.rows if self.gate is not None else 0

    @property
    def errors(self) -> int:
        """Connections that ended with an error of ours."""
        return self.gate.errors if self.gate is not None else 0

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._clients)

    async def turn(self) -> float:
        """Begin, if that is still to be done; gives for how long there is nothing to do, seconds."""
        for link in self._links:
            link.check()
        now = _now()
        if self.trouble.error is not None and now < self.trouble.again_at:
            return self.trouble.again_at - now
        try:
            self._cookie = self._read_cookie()
            if not self.address:
                await self._begin()
        except DeathlessError as error:
            if self.trouble.met(error, _now()):
                told = {"source": self._source.name, "code": error.code, "why": str(error)}
                _LOG.error("gate can't listen", extra=told)
            return 0.1
        self.trouble.over(_now())
        return TURN_S

    async def close(self) -> None:
        """Let go of everything."""
        if self._server is not None:
            await stop_listening(self._server)
        if self._timer is not None:
            self._timer.cancel()
        if self.gate is not None:
            self._carry_out(self.gate.drain(_now()))
        for link in self._links:
            link.close()
        self.address = ""
        if self._timer is not None:
            self._timer.cancel()

    # ---- beginning ---------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Raises: PeerUnreachable, PortTaken, InvalidConfig."""
        config = self._config
        if self.gate is None:
            self._most = descriptors_for(self._options.max_connections)
            bounds = GateLimits(
                credits=self._options.credits, streams_max=self._options.max_streams, connections_max=self._most
            )
            known = await self._ask_known()
            self.gate = Gate(self._source.name, ways_into(config, self._source), bounds, known)
            name = f"{config.replica}/{self._source.name}"
            self._links = [
                ShardLink(config, shard, name, up=self._up, received=self._shard_received, down=self._down)
                for shard in range(config.shards)
            ]
        where = self._source.listen or self._options.listen
        tls = server_context(config.tls) if self._options.tls else None
        self._server, self.address = await listen(lambda: ClientProtocol(self), where, tls)
        _LOG.info("gate listens", extra={"source": self._source.name, "address": self.address})
        self._changed.set()

    async def _ask_known(self) -> list[tuple[int, Known]]:
        """Ask the primary beside us for the streams that its log has.

        Raises: PeerUnreachable, and what it refuses with.
        """
        config = self._config
        member = read_members(config.directory).get(config.replica)
        if member is None or not member.client:
            raise PeerUnreachable(f"replica {config.replica} does not say where it is")
        told = fitted(await ask(member.client, "streams", access_of(config), {"source": self._source.name}), _Told)
        alone = config.shards == 1
        return [(each.stream, Known(_name_of(each.note), each.taken_in if alone else -1)) for each in told.streams]

    def _read_cookie(self) -> bytes:
        """Raises: InvalidConfig."""
        if not self._options.cookie_file:
            return b""
        path = os.path.join(self._source.folder, self._options.cookie_file)
        try:
            cookie = read_small(path).strip()
        except OSError as error:
            raise InvalidConfig(f"source {self._source.name}: cookieFile: {error}") from None
        if not 0 < len(cookie) <= SHORT_BYTES_MAX:
            raise InvalidConfig(
                f"source {self._source.name}: cookieFile: {path} has {len(cookie)} bytes, 1 to {SHORT_BYTES_MAX} are "
                "possible"
            )
        return cookie

    # ---- clients -----------------------------------------------------------------------------------------------

    def came(self, client: ClientProtocol) -> int:
        """A client has connected; gives its number, 0: it was not let in."""
        assert self.gate is not None
        if len(self._clients) >= self._most:
            client.write(error_frame(ConnectorBusy(f"there are {self._most} connections")))
            client.end()
            return 0
        self._last += 1
        self._clients[self._last] = client
        self.gate.connected(self._last, self._cookie, _now())
        self._arm()
        return self._last

    def received(self, number: int, data: bytes) -> None:
        """A client sent bytes."""
        assert self.gate is not None
        self._carry_out(self.gate.received(number, data, _now()))
        self._pause(number)

    def unread(self, number: int, *, full: bool) -> None:
        """A client takes nothing of what is sent to it, or does so again."""
        if self.gate is not None and number:
            self.gate.unread(number, _now(), full=full)
            self._pause(number)

    def lost(self, number: int) -> None:
        """A connection ended."""
        self._clients.pop(number, None)
        self._paused.discard(number)
        assert self.gate is not None
        self._carry_out(self.gate.lost(number, _now()))

    def _pause(self, number: int) -> None:
        """Read a connection if it is to be read."""
        client = self._clients.get(number)
        if client is None or self.gate is None:
            self._paused.discard(number)
        elif self.gate.wants(number):
            self._paused.discard(number)
            client.read(go_on=True)
        else:
            self._paused.add(number)
            client.read(go_on=False)

    # ---- shards ------------------------------------------------------------------------------------------------

    def _up(self, shard: int) -> None:
        assert self.gate is not None
        self._carry_out(self.gate.shard_up(shard, _now()))

    def _down(self, shard: int) -> None:
        assert self.gate is not None
        self.gate.shard_down(shard)

    def _shard_received(self, shard: int, packets: Packets) -> None:
        assert self.gate is not None
        self._carry_out(self.gate.shard_received(shard, packets, _now()))

    # ---- effects -----------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(conn=number, data=data):
                    if (client := self._clients.get(number)) is not None:
                        client.write(data)
                case SendShard(shard=shard, packets=packets):
                    self._links[shard].send(b"".join(packets))
                case HangUp(conn=number, code=code, text=text):
                    self._paused.discard(number)
                    if code:
                        told = {"source": self._source.name, "code": code, "why": text}
                        _LOG.warning("a client's connection was ended", extra=told)
                    if (client := self._clients.pop(number, None)) is not None:
                        client.end()
        for number in list(self._paused):
            self._pause(number)
        self._arm()

    def _arm(self) -> None:
        """Have the gate's next turn come when it is due."""
        at = self.gate.deadline() if self.gate is not None else None
        if self._timer is not None:
            if at is not None and self._timer.when() <= at and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_at(at, self._turn)

    def _turn(self) -> None:
        self._timer = None
        assert self.gate is not None
        self._carry_out(self.gate.turn(_now()))

    # ---- what it says ------------------------------------------------------------------------------------------

    def statuses(self) -> tuple[StreamStatus, ...]:
        """Give how its streams are."""
        if self.gate is None:
            return ()
        found = []
        shown = 0
        for view in self.gate.streams(_now()):
            found.append(self._status(view, detailed=shown < DETAILS_MAX))
            shown += len(found[-1].shards)
        return tuple(found)

    def _status(self, view: StreamView, *, detailed: bool = True) -> StreamStatus:
        held = view.held
        if held is None:
            return StreamStatus(stream=view.stream, name=view.known.name, state="closed", taken_in=view.known.taken_in)
        shards = tuple(
            ShardStatus(
                shard=each.shard,
                taken_in=each.taken_in,
                waiting=each.waiting,
                problem=(each.problem or self._links[each.shard].problem)[:PROBLEM_MAX],
            )
            for each in held.machine.views()
        )
        problem = next((each.problem for each in shards if each.problem), "")
        code = code_of(problem)
        if view.contended and not code:
            error = ConnectorContended("connections of the same instance take it from each other")
            code, problem = error.code, str(error)
        return StreamStatus(
            stream=view.stream,
            name=view.known.name,
            state=held.state,
            taken_in=held.machine.taken_in,
            shards=shards if detailed else (),
            code=code,
            problem=problem,
        )


def _now() -> float:
    """Give the time of the loop, which is that of its timers."""
    return asyncio.get_running_loop().time()


def _name_of(note: str) -> str:
    """Give a stream's name as the log has it; empty for what is none."""
    try:
        return bytes.fromhex(note)[FINGERPRINT_BYTES:].decode(errors="replace")
    except ValueError:
        return ""
