"""The connections that a worker accepted: clients, tools, followers and peers, until each is gone.

    client port, replication port --accept--> ServerConnection --opened, packets, lost--> here --> intake, engine

What nobody waits for may leave a little later: on one machine a follower would compete for CPU with replies to callers,
and a peer that is told at once that each message is confirmed would read that first, and then the reply.

Guarantees: a connection that was closed is told to the engine once. Does not: decide who may come in (its port's guard
and the intake do).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import Overloaded
from deathless.base.limits import Limits
from deathless.codec.wire import Hello, Type, packet
from deathless.core import events as ev
from deathless.core.access.authorisation import Port
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.intake import PEER
from deathless.shell.directory.members import announced_in
from deathless.shell.net.callers import Callers
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import descriptors_for, listen
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.proof import Door, Secrets
from deathless.shell.net.silent_connections import SilentConnections
from deathless.shell.net.tls import server_context


class Connections:
    """Of one worker.

    Args:
        config: the replica's.
        limits: its limits.
        host: of its engine.
        primary_address: gives where clients find the primary; asked once the engine runs.
    """

    def __init__(
        self, config: ReplicaConfig, limits: Limits, host: EngineHost, primary_address: Callable[[], str]
    ) -> None:
        self.callers: Callers | None = None  # who prove who they are at the client port; None: nobody does
        self._config = config
        self._limits = limits
        self._host = host
        self._primary_address = primary_address
        self._open: dict[int, ServerConnection] = {}
        self._followers: set[int] = set()
        self._unhurried: set[int] = set()  # on which nobody waits for an answer: followers' and peers'
        self._number = 0
        self._door = Door(
            Secrets(config.directory, in_thread=False), lambda name: announced_in(config.directory).get(name)
        )
        self._most = descriptors_for(limits.connections_max)
        self._silent = SilentConnections(self._most)  # of all our ports

    # ---- ports -----------------------------------------------------------------------------------------------

    async def listen(self, port: Port, address: str, tls: TlsConfig | None) -> tuple[asyncio.Server, str]:
        """Open a port; gives the server, and the address that it has."""
        self._door.secrets.sweep()
        guard = PortGuard(self._config, port, tls)
        guard.callers = self.callers if port is Port.CLIENT else None
        return await listen(partial(self._accept, guard), address, server_context(tls))

    def _accept(self, guard: PortGuard) -> ServerConnection:
        self._number += 1
        return ServerConnection(
            self,
            self._number,
            service=self._config.shard_name,
            token=self._config.token,
            packet_bytes_max=4 * self._limits.frame_bytes_max,
            buffer_bytes_max=self._limits.stream_buffer_bytes_max,
            guard=guard,
            door=self._door,
            silent=self._silent,
        )

    def look_again(self) -> None:
        """End those whose callers may not come any more."""
        if self.callers is not None:
            for connection in list(self._open.values()):
                connection.look_again()

    def close_all(self) -> None:
        """Close every connection after what was written, and what shows in which directory others stand."""
        self._door.secrets.close()
        for connection in list(self._open.values()):
            connection.close()

    @property
    def flushed(self) -> bool:
        """Has everything left this process?"""
        return all(connection.flushed for connection in self._open.values())

    # ---- Clients, for the engine -----------------------------------------------------------------------------

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """See Clients."""
        connection = self._open.get(conn)
        if connection is None:
            return
        if conn in self._unhurried and not self._leaving:
            connection.send_soon(data)
        else:
            connection.send(data)

    def disconnect(self, conn: ev.Conn) -> None:
        """See Clients."""
        connection = self._open.get(conn)
        if connection is not None:
            connection.close()

    @property
    def _leaving(self) -> bool:
        """Does a switchover, or our own end, wait for what followers apply?"""
        primary = self._host.engine.core.primary
        return primary is not None and not primary.departure.serving

    def ping_followers(self) -> None:
        """Tell followers that their primary lives."""
        ping = packet(Type.PING)
        for number in self._followers:
            self._open[number].send(ping)

    def hurry_followers(self) -> None:
        """Have followers get at once what is kept for a moment."""
        for number in self._followers:
            self._open[number].send_kept()

    # ---- Owner, for each connection --------------------------------------------------------------------------

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        if len(self._open) >= self._most and hello.kind in ("client", "tool"):
            connection.refuse(Overloaded(f"{self._most} connections are already open"))
            return
        intake = self._host.intake
        refusal = intake.refusal(hello)
        if refusal is not None:
            connection.refuse(refusal)
            return
        number, conn, name = connection.number, ev.Conn(connection.number), connection.certified
        self._open[number] = connection
        if hello.kind == "follower":
            self._followers.add(number)
        if hello.kind in ("follower", PEER):
            self._unhurried.add(number)
        certified_as = connection.identity.service if connection.identity is not None else ""
        connection.send(intake.opened(conn, hello, self._primary_address(), certified_as, name))
        self._host.post(ev.ConnectionOpened(conn, hello, name))

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""
        number = connection.number
        if self._open.pop(number, None) is not None:
            self._followers.discard(number)
            self._unhurried.discard(number)
            self._host.intake.lost(ev.Conn(number))
            self._host.post(ev.ConnectionLost(ev.Conn(number)))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """See packets.Owner."""
        self._host.intake.packets(ev.Conn(connection.number), packets)
        self._host.schedule_flush()
