"""Spans on their way out: the primary's worker hands them to a process that exports them.

    worker --(socket pair, one packet for some spans)--> span_exporter --(OTLP)--> collector
           <--(what became of them, totals)-------------

The worker has no time for a collector, and no thread may share its interpreter. So the exporter is a process of its
own, begun with the first spans. It lives as long as the worker; then it sends what it has and ends by itself, so that a
worker that is killed takes along only what it had not handed over.

Guarantees: `export` never waits and never fails; what the exporter can't take is counted and let go, so memory stays
bounded by the socket. Does not: export twice, or what a replica did that does not lead (the engine does not ask then).
May import codec and base.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

import msgspec

from deathless.base.backoff import next_pause
from deathless.base.config import ReplicaConfig
from deathless.base.errors import TracesLost
from deathless.codec.traces import Span
from deathless.codec.untrusted import read_msgpack

_LOG: Final = logging.getLogger("deathless.traces")
PACKET_SPANS_MAX: Final = 32
PACKET_BYTES_MAX: Final = 64 << 10
RESTART_MIN_S, RESTART_MAX_S = 1.0, 60.0


class Ended(msgspec.Struct, array_like=True, frozen=True):
    """Some spans, and when they ended."""

    end_us: int
    spans: list[Span]


class Totals(msgspec.Struct, array_like=True, frozen=True):
    """What became of spans since the exporter began."""

    exported: int
    failed: int


class Spans:
    """The way out of one worker.

    Args:
        config: of the replica.
        command: what starts the exporter, given the number of its descriptor.
    """

    def __init__(self, config: ReplicaConfig, command: Callable[[int], Sequence[str]]) -> None:
        self._wanted = config.tracing is not None and installed()
        self._command = command
        self._loop = asyncio.get_running_loop()
        self._pair: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []  # let go, and not seen to have ended
        self._again_at = 0.0  # of the loop: no exporter is started before
        self._pause_s = RESTART_MIN_S
        self._before = Totals(0, 0)  # of exporters that have ended
        self._now = Totals(0, 0)  # of the one that runs
        self._dropped = 0  # never handed over

    def export(self, spans: Sequence[Span], end_us: int) -> None:
        """Hand spans over that ended at wall time `end_us`."""
        if not self._wanted:
            return
        for start in range(0, len(spans), PACKET_SPANS_MAX):
            some = list(spans[start : start + PACKET_SPANS_MAX])
            if not self._send(msgspec.msgpack.encode(Ended(end_us, some))):
                self._dropped += len(some)

    def _send(self, data: bytes) -> bool:
        if len(data) > PACKET_BYTES_MAX or not self._ready():
            return False
        assert self._pair is not None
        try:
            self._pair.send(data)
        except BlockingIOError:  # it is behind: a collector that does not answer
            return False
        except OSError as error:
            self._lost(str(error))
            return False
        return True

    def _ready(self) -> bool:
        """Start the exporter, if none runs and it is time."""
        if self._pair is not None:
            return True
        now = self._loop.time()
        if now < self._again_at:
            return False
        self._again_at = now + self._pause_s
        self._pause_s = next_pause(self._pause_s, first_s=RESTART_MIN_S, most_s=RESTART_MAX_S)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            command = self._command(theirs.fileno())
            try:
                self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
            except OSError as error:
                ours.close()
                _LOG.warning(
                    "can't start the process that exports spans", extra={"code": TracesLost.code, "why": str(error)}
                )
                return False
        self._pair = ours
        self._loop.add_reader(ours, self._told)
        return True

    def _told(self) -> None:
        """Take in what became of spans."""
        assert self._pair is not None
        try:
            data = self._pair.recv(PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
            return
        if not data:
            self._lost("it ended")
            return
        with contextlib.suppress(msgspec.MsgspecError):
            self._now = read_msgpack(data, Totals)

    def _lost(self, why: str) -> None:
        _LOG.warning("the process that exports spans has ended", extra={"code": TracesLost.code, "why": why})
        self._before = Totals(self._before.exported + self._now.exported, self._before.failed + self._now.failed)
        self._now = Totals(0, 0)
        self.close()

    def close(self) -> None:
        """Let the exporter go: it sends what it has, and ends."""
        pair, self._pair = self._pair, None
        if pair is not None:
            self._loop.remove_reader(pair)
            pair.close()
        if self._process is not None:
            self._leaving.append(self._process)
            self._process = None
        # One that still sends ends later, and is looked at again when the next one has gone.
        self._leaving = [each for each in self._leaving if each.poll() is None]

    def status(self) -> dict[str, object]:
        """Give numbers for metrics."""
        if not self._wanted:
            return {}
        return {
            "spans_exported": self._before.exported + self._now.exported,
            "spans_lost": self._before.failed + self._now.failed + self._dropped,
        }


def installed() -> bool:
    """Is the library there that spans are exported with?"""
    there = find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None
    if not there:
        remedy = "pip install 'deathless[otel]'"
        _LOG.error("spec.tracing is set, but OpenTelemetry is missing", extra={"code": TracesLost.code, "do": remedy})
    return there


def exporter_command(config: ReplicaConfig) -> Callable[[int], list[str]]:
    """Give what starts the exporter of a replica."""
    endpoint = config.tracing.endpoint if config.tracing is not None else ""
    start = [sys.executable, "-m", "deathless.shell.worker.span_exporter"]
    rest = [config.service, config.replica, endpoint, config.log_level]
    return lambda descriptor: [*start, str(descriptor), *rest]
