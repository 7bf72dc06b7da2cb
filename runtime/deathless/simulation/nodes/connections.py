"""The connections that a simulated worker accepted; twin of the shell's.

Guarantees: a connection that was closed is told to the engine once. Does not: decide who may come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.codec.wire import Hello, Type, packet
from deathless.core import events as ev
from deathless.simulation.world.network import Endpoint
from deathless.simulation.world.sockets import Accepted

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode


class SimConnections:
    """Of one worker."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self._open: dict[int, Accepted] = {}
        self._followers: dict[int, None] = {}
        self._number = 0
        self._door = worker.host.door("worker")

    def accept(self, end: Endpoint) -> None:
        """Take one more."""
        worker = self._worker
        self._number += 1
        Accepted(self, self._number, end, worker.limits.stream_buffer_bytes_max, worker.host.service_name, self._door)

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """See Clients."""
        connection = self._open.get(conn)
        if connection is not None:
            connection.send(data)

    def disconnect(self, conn: ev.Conn) -> None:
        """See Clients."""
        connection = self._open.get(conn)
        if connection is not None:
            connection.close()

    def ping_followers(self) -> None:
        """Tell followers that their primary lives."""
        ping = packet(Type.PING)
        for number in list(self._followers):
            self._open[number].send(ping)

    def opened(self, connection: Accepted, hello: Hello) -> None:
        """See sockets.Owner."""
        worker, intake, number = self._worker, self._worker.host_of_engine.intake, connection.number
        refusal = intake.refusal(hello)
        if refusal is not None:
            raise refusal
        self._open[number] = connection
        worker.host.let_in(connection.machine, hello.kind)
        if hello.kind == "follower":
            self._followers[number] = None
        connection.send(intake.opened(ev.Conn(number), hello, worker.primary_address()))
        worker.post(ev.ConnectionOpened(ev.Conn(number), hello))

    def lost(self, connection: Accepted) -> None:
        """See sockets.Owner."""
        worker = self._worker
        if self._open.pop(connection.number, None) is not None:
            self._followers.pop(connection.number, None)
            worker.host_of_engine.intake.lost(ev.Conn(connection.number))
            worker.post(ev.ConnectionLost(ev.Conn(connection.number)))

    def packets(self, connection: Accepted, packets: list[tuple[int, bytes]]) -> None:
        """See sockets.Owner."""
        self._worker.host_of_engine.intake.packets(ev.Conn(connection.number), packets)
        self._worker.host_of_engine.schedule_flush()
