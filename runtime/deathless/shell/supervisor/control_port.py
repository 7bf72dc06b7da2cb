"""The control port of a replica: other supervisors tell how they are, tools ask and order.

Guarantees: a command's error is the answer to that command. Does not: know what an order does, or what a report means;
both are the supervisor's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Forbidden, OtherDirectory, UnknownHandler
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.versions import say_hello
from deathless.codec.wire import Admin, AdminReply, Hello, Type, decode_struct, struct_packet
from deathless.core.access.authorisation import Port
from deathless.core.supervisor.detection import Detector, Report
from deathless.shell.link.standing import Standing
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import descriptors_for
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.proof import Door
from deathless.shell.net.silent_connections import SilentConnections
from deathless.shell.net.tls import certified

CONNECTIONS_MAX: Final = 256  # that there are descriptors for: other supervisors, and tools
PACKET_BYTES_MAX: Final = 1 << 20
BUFFER_BYTES_MAX: Final = 4 << 20


class ControlPort:
    """Owns the connections that a supervisor accepted.

    Args:
        config: the replica's.
        reported: takes another supervisor's report; gives why that one is not to be heard, which ends its connection.
        done: called behind each buffer of packets.
        commands: by name; each gives what its caller is told, None for an empty object.
        door: asks who connects to show that it stands in our directory; None: nobody is asked.
        safeguards: what is kept.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        reported: Callable[[Report], DeathlessError | None],
        done: Callable[[], None],
        commands: Mapping[str, Callable[[], object]],
        door: Door | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self._config = config
        self._reported = reported
        self._done = done
        self._commands = commands
        self._door = door
        self._safeguards = safeguards
        self._silent = SilentConnections(descriptors_for(CONNECTIONS_MAX))
        self._accepted: set[ServerConnection] = set()
        self._number = 0  # of the last connection
        self.tls = certified(config.tls)  # that the port listens with: nobody orders without showing who it is
        self._guard = PortGuard(config, Port.CONTROL, self.tls)

    def accept(self) -> ServerConnection:
        """Give what serves one more connection."""
        self._number += 1
        return ServerConnection(
            self,
            self._number,
            service=self._config.shard_name,
            token=self._config.token,
            packet_bytes_max=PACKET_BYTES_MAX,
            buffer_bytes_max=BUFFER_BYTES_MAX,
            guard=self._guard,
            door=self._door,
            silent=self._silent,
        )

    def close(self) -> None:
        """Close every connection."""
        for connection in self._accepted:
            connection.close()

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        self._accepted.add(connection)

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""
        self._accepted.discard(connection)

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """See packets.Owner."""
        for kind, body in packets:
            if kind == Type.REPORT:
                report = decode_struct(Report, body)
                self._check_report(connection, report)
                refusal = self._reported(report)
                if refusal is not None:
                    connection.refuse(refusal)
                    break
            elif kind == Type.ADMIN:
                request = decode_struct(Admin, body)
                connection.send(struct_packet(Type.ADMIN_REPLY, self._answer(request)))
            elif kind == Type.PING:
                hello = say_hello("supervisor", self._config.shard_name, self._config.replica)
                connection.send(struct_packet(Type.PONG, hello))
        self._done()

    def _check_report(self, connection: ServerConnection, report: Report) -> None:
        """Look whether this connection may say this. Raises: Forbidden, OtherDirectory."""
        name = connection.hello.name if connection.hello is not None else ""
        if report.replica != name and self._safeguards.own_reports_only:
            raise Forbidden(
                f"a connection of replica {name!r} reported about {report.replica!r}",
                remedy="each supervisor reports only about its own replica",
            )
        if connection.proved or self._door is None:
            return
        member = self._door.announced(name)  # a build from before the proof: a copy's announces itself elsewhere
        if member is None or (member.pid, member.control, member.instance) != (
            report.pid,
            report.control,
            report.instance,
        ):
            raise OtherDirectory(
                f"replica {name!r} does not match its entry in our members/: it runs in another directory, or has just "
                "started"
            )

    def _answer(self, request: Admin) -> AdminReply:
        try:
            command = self._commands.get(request.command)
            if command is None:
                raise UnknownHandler(f"no command {request.command!r}")
            told = command()
        except DeathlessError as error:
            return AdminReply(request.id, error.code, msgspec.json.encode({"error": error.message}))
        return AdminReply(request.id, "", msgspec.json.encode({} if told is None else told))


def status_of(config: ReplicaConfig, detector: Detector, ours: Standing, now: float) -> dict[str, object]:
    """Give what `deathless status` shows, as one supervisor knows it.

    Args:
        config: of its replica.
        detector: what it knows of all.
        ours: how its replica stands; what its report does not say is told by it alone.
        now: monotonic seconds.
    """
    alone = ("waits_for", "waits_since", "waits_until", "outside_held", "program")
    claim = detector.primary
    heard = {**detector.heard_ms(now), config.replica: 0}
    return {
        "service": config.service,
        "directory": config.directory,
        "asked": config.replica,
        "primary": {"replica": claim.replica, "epoch": claim.epoch, "client": claim.client} if claim else None,
        "replicas": [
            {
                **{f: getattr(report, f) for f in Report.__struct_fields__ if f != "heard"},
                **({field: getattr(ours, field) for field in alone} if name == config.replica else {}),
                "heardMs": heard.get(name, -1),
            }
            for name, report in sorted(detector.reports.items())
        ],
    }
