"""The health port: is this replica alive, is it ready, and its metrics; plain HTTP, without any data of the service.

    GET /livez    200 while the supervisor is heard; a probe that fails restarts the whole replica
    GET /readyz   200 while it follows or leads, its program serves and its front door accepts; the body says why not
    GET /metrics  of the replica and, where they answer, of its worker and its HTTP port: counts, nothing of any call

A process of its own: it answers although the worker is down, and nobody's requests slow the supervisor.

Guarantees: each answer is given within FRONT_DOOR_S and the time the worker has for its status. Does not: read the
shared directory, which may hang. Imports shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import sys
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.link.config_file import read_config
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.standing import HEARD_MAX_S, PROGRAM_SERVES, SERVING, Standing
from deathless.shell.net.listening import split_address
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.web.metrics import CONTENT_TYPE, MetricSet
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.replica_metrics import labels_of, replica_metrics
from deathless.shell.web.request import HttpLimits, Request, RequestTasks
from deathless.shell.web.tls import front_tls

_LOG: Final = logging.getLogger("deathless.health")
FRONT_DOOR_S: Final = 0.5  # it must accept and answer within this
ANSWER_BYTES_MAX: Final = 4096
METRICS_BYTES_MAX: Final = 1 << 18  # of the HTTP port
CONNECTIONS_MAX: Final = 64


class Health:
    """Answers probes.

    Args:
        config: the replica's.
    """

    def __init__(self, config: ReplicaConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._standing: Standing | None = None
        self._heard_at = self._loop.time()
        self._tasks = RequestTasks()

    def told(self, record: object) -> None:
        """The supervisor says how the replica stands."""
        if isinstance(record, Standing):
            self._standing, self._heard_at = record, self._loop.time()

    def handle(self, request: Request) -> None:
        """See Application."""
        if request.method not in (b"GET", b"HEAD"):
            request.respond(405, b"{}", headers=[(b"allow", b"GET, HEAD")])
        elif request.target == b"/livez":
            why = self._silence()
            request.respond(503 if why else 200, msgspec.json.encode({"live": not why, "why": why}))
        elif request.target == b"/readyz":
            self._tasks.spawn(request, self._ready(request))
        elif request.target == b"/metrics":
            self._tasks.spawn(request, self._expose(request))
        else:
            request.respond(404, b"{}")

    def _silence(self) -> str:
        """Why the supervisor is not well; empty: it is."""
        silent_s = self._loop.time() - self._heard_at
        return f"the supervisor has said nothing for {silent_s:.0f} s" if silent_s > HEARD_MAX_S else ""

    async def _ready(self, request: Request) -> None:
        standing = self._standing
        why = (
            self._silence()
            or not_ready(standing)
            or self._upgrades(standing)
            or self._without_program(standing)
            or await self._front_door(standing)
        )
        role, epoch = (standing.role, standing.epoch) if standing is not None else ("", 0)
        body = {"ready": not why, "role": role, "epoch": epoch, "why": why}
        request.respond(503 if why else 200, msgspec.json.encode(body))

    def _upgrades(self, standing: Standing | None) -> str:
        """Why one that was started for an upgrade serves nobody yet: what it takes over for may be called off."""
        taking = standing is not None and standing.role == "taking-over"
        return "taking-over: an upgrade is not made yet" if taking and self._config.upgrade is not None else ""

    def _without_program(self, standing: Standing | None) -> str:
        """Why its program does not serve, without which the replica is none; empty: it does, or there is none."""
        if self._config.binding is None or standing is None:
            return ""
        program = standing.program
        if program is None:
            return "program: nobody has said yet how it is"
        return "" if program.state == PROGRAM_SERVES else f"program {program.state}: {program.text}".rstrip(": ")

    async def _front_door(self, standing: Standing | None) -> str:
        """Why callers are not served; empty: they are."""
        assert standing is not None, "who has told nothing is not ready"
        try:
            async with asyncio.timeout(FRONT_DOOR_S):
                if not self._config.ingress_listen:
                    _, writer = await _connect(standing.client, None)
                    writer.transport.abort()
                elif not standing.ingress:
                    return "the HTTP port does not listen yet"
                else:
                    await _ask(standing.ingress, _own_context(self._config))
        except (OSError, TimeoutError, DeathlessError, ValueError) as error:
            return f"the front door does not answer: {str(error) or type(error).__name__}"
        return ""

    async def _expose(self, request: Request) -> None:
        standing = self._standing
        text = expose_standing(standing, labels_of(self._config)) if standing is not None else b""
        address = standing.client if standing is not None else ""
        parts = await asyncio.gather(replica_metrics(self._config, address), self._ingress_metrics(standing))
        request.respond(200, text + b"".join(parts), content_type=CONTENT_TYPE.encode())

    async def _ingress_metrics(self, standing: Standing | None) -> bytes:
        """What the HTTP port counts, which a scraper has no certificate to ask for; nothing where it is silent."""
        if standing is None or not standing.ingress:
            return b""
        try:
            async with asyncio.timeout(FRONT_DOOR_S):
                return await _fetch(standing.ingress, _own_context(self._config), b"/metrics?own")
        except (OSError, TimeoutError, DeathlessError, ValueError) as error:
            _LOG.debug("can't get the metrics of the HTTP port", extra={"why": str(error) or type(error).__name__})
            return b""


def not_ready(standing: Standing | None) -> str:
    """Why a replica that stands so serves nobody; empty: it does, as far as its supervisor knows."""
    if standing is None:
        return "the supervisor has not said how the replica stands"
    if standing.stopping:
        return "stopping"
    if standing.role == "fenced":
        return "fenced: the annotation deathless.dev/fenced keeps its worker stopped"
    if standing.condition:
        return f"refused: {standing.text or standing.condition}"
    if standing.role not in SERVING:
        return f"{standing.role}: {standing.text or standing.problem}" if standing.problem else standing.role
    return "" if standing.state == "running" else f"its worker is {standing.state}"


def expose_standing(standing: Standing, labels: Mapping[str, str]) -> bytes:
    """Give what a supervisor knows in the metrics' text format; the labels are on all of it."""
    metrics = MetricSet("deathless_supervisor", labels=labels)
    metrics.gauge("role", "1 for the role it has.", lambda: {standing.role: 1.0}, labels=("role",))
    metrics.gauge("epoch", "Highest epoch its worker met.", lambda: standing.epoch)
    metrics.gauge("lsn", "Last message applied.", lambda: standing.lsn)
    metrics.gauge("lag_messages", "Messages behind the replica that is farthest.", lambda: standing.lag)
    metrics.gauge("takeovers", "How often it became primary since its start.", lambda: standing.takeovers, counts=True)
    metrics.gauge("ready", "1 while it follows or leads.", lambda: 0 if not_ready(standing) else 1)
    told = {standing.condition: 1.0} if standing.condition else {}
    metrics.gauge("condition", "1 for the error that keeps it stopped.", lambda: told, labels=("code",))
    return metrics.expose()


async def _connect(address: str, context: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = split_address(address)
    return await asyncio.open_connection(host, port, ssl=context, limit=ANSWER_BYTES_MAX)


async def _ask(address: str, context: ssl.SSLContext | None) -> None:
    """Raises: OSError, ValueError when the HTTP port does not answer well."""
    reader, writer = await _connect(address, context)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: health\r\nconnection: close\r\n\r\n")
        status = await reader.readline()
    finally:
        writer.transport.abort()
    if b" 200 " not in status:
        raise ValueError(f"it answered {status[:40]!r}")


async def _fetch(address: str, context: ssl.SSLContext | None, target: bytes) -> bytes:
    """Give the body of an answer 200. Raises: OSError, ValueError."""
    reader, writer = await _connect(address, context)
    try:
        writer.write(b"GET " + target + b" HTTP/1.1\r\nhost: health\r\nconnection: close\r\n\r\n")
        answer = bytearray()
        while part := await reader.read(ANSWER_BYTES_MAX):
            answer += part
            if len(answer) > METRICS_BYTES_MAX:
                raise ValueError(f"the answer is longer than {METRICS_BYTES_MAX} bytes")
    finally:
        writer.transport.abort()
    head, found, body = bytes(answer).partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0]
    if not found or b" 200 " not in status:
        raise ValueError(f"it answered {status[:40]!r}")
    return body


def _own_context(config: ReplicaConfig) -> ssl.SSLContext | None:
    """TLS to our own HTTP port: whom we ask is known, so nothing is checked; what it may ask for is shown."""
    tls = front_tls(config)
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls.require_client_certificate and tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key or None)
    return context


async def serve(config: ReplicaConfig, pair: socket.socket) -> None:
    """Answer until the supervisor is gone. Raises: PortTaken, InvalidConfig."""
    health = Health(config)
    ended = asyncio.Event()
    pair.setblocking(False)
    line = LineProtocol(Standing, health.told, ended.set)
    await asyncio.get_running_loop().create_connection(lambda: line, sock=pair)
    limits = HttpLimits(body_bytes_max=1024, connections_max=CONNECTIONS_MAX)
    http = HttpServer(health, limits, now=time.monotonic, wall=time.time)
    try:
        address = await http.start(config.health_listen)
        _LOG.info("health port", extra={"address": address})
        await ended.wait()
    finally:
        line.close()
        await asyncio.sleep(0)


def main(arguments: list[str]) -> int:
    """`python -m deathless.shell.pod.health_port CONFIG.json DESCRIPTOR PARENT`; the exit code is the error's."""
    path, descriptor, parent = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # probes go on until the supervisor ends
    config = read_config(path)
    configure(config.log_level, config.replica, "health")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(config, socket.socket(fileno=int(descriptor))))
    except DeathlessError as error:
        _LOG.error("can't serve the health port", extra={"code": error.code, "why": str(error)})
        return error.exit_code
    return 0


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
