"""The processes beside a supervisor, told how it stands: announcer, health port, sinks, sources, program; and drivers.

    supervisor --(socket pair: Standing)--> announcer   writes role and status on the pod
               --(socket pair: Standing)--> health      answers probes
               --(socket pair: Standing)--> sinks       read topics while it leads, and store their rows outside
               --(socket pair: Standing)--> sources     read outside while it leads, and bring rows to inputs
               --(socket pair: Standing)--> application keeps the program, and says how that is (Program)
               -----------------------------> drivers   talk to a primary beside them, and to the world outside

All are children, so that neither the API server's silence nor anybody's requests keep the supervisor from answering
for its worker; they end with it.

Guarantees: a change is told at once, an unchanged standing each BEAT_S; a child that does not read misses what is in
between and gets the last; one that reads nothing for too long (`core.supervisor.side_watch`) is killed; one that ends
is started again after a pause that doubles up to RESTART_MAX_S. Does not: wait for any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.core.supervisor.restarts import Restarts
from deathless.core.supervisor.side_watch import SideWatch
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.standing import BEAT_S, Fenced, Program, Standing

_LOG: Final = logging.getLogger("deathless.side_processes")


class SideProcess:
    """One child.

    Args:
        name: for the log.
        command: starts it; given its descriptor.
        said: called with what it says; None: it is told nothing, and says nothing.
        gone: called when it has ended.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], list[str]],
        said: Callable[[object], None] | None = None,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = Restarts()
        self._command = command
        self._said = said
        self._gone = gone
        self._line: LineProtocol | None = None
        self._due = True  # it has not got the last standing
        self._attaching: asyncio.Task[None] | None = None
        self._watch = SideWatch()

    def start_due(self, now: float, environment: dict[str, str]) -> None:
        """Start it if it does not run and its time has come."""
        if not self.restarts.due(now):
            return
        try:
            self._start(environment)
        except OSError as error:
            self.restarts.not_started(now)
            _LOG.warning("%s can't be started yet", self.name, extra={"why": str(error)})
        else:
            self.restarts.started(now)

    def _start(self, environment: dict[str, str]) -> None:
        if self._said is None:
            self.process = subprocess.Popen(self._command(-1), env=environment, stdin=subprocess.DEVNULL)
            return
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            descriptor = theirs.fileno()
            self.process = subprocess.Popen(
                self._command(descriptor), pass_fds=(descriptor,), env=environment, stdin=subprocess.DEVNULL
            )
            stack.pop_all()
        self._due = True
        line = LineProtocol(Fenced | Program, self._said, _nothing)
        self._line, self._watch = line, SideWatch()
        ours.setblocking(False)
        self._attaching = asyncio.get_running_loop().create_task(_attach(line, ours))

    def tell(self, standing: Standing, *, changed: bool) -> None:
        """Send it what it has not got, unless it still has to read what it was sent."""
        self._due = self._due or changed
        line = self._line
        if self._due and line is not None and line.open and line.flushed:
            line.send(standing)
            self._due = False

    def look(self, now: float) -> None:
        """Kill it if it stands still; it is started again once it has ended. Call it with each heartbeat."""
        line, process = self._line, self.process
        if line is None or process is None or not line.open:
            return
        if self._watch.is_frozen(now, line.sent, line.unread):
            _LOG.error("%s has read nothing for a while and is killed", self.name, extra={"pid": process.pid})
            process.kill()
            self._watch = SideWatch()  # it is told once

    def reap(self, now: float) -> None:
        """SIGCHLD: plan its next start if it has ended."""
        process = self.process
        if process is None or process.poll() is None:
            return
        self.process = None
        self._close()
        self._gone()
        self.restarts.ended(now, at_once=False)
        _LOG.warning(
            "%s ended", self.name, extra={"exit_code": process.returncode, "again_in_s": self.restarts.delay_s}
        )

    def let_go(self) -> subprocess.Popen[bytes] | None:
        """Give the process to who ends it; None: none runs."""
        process, self.process = self.process, None
        self._close()
        return process

    def _close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


class SideProcesses:
    """All of them.

    Args:
        config: says which there are.
        config_path: for their command lines.
        fenced: told what an operator says of our worker.
    """

    def __init__(self, config: ReplicaConfig, config_path: str, fenced: Callable[[bool], None]) -> None:
        self.program: Program | None = None  # None: there is none, or it has not said how it is
        self._all: list[SideProcess] = []
        self._fenced = fenced
        self._told: Standing | None = None
        self._told_at = 0.0

        def command(module: str) -> Callable[[int], list[str]]:
            program = [sys.executable, "-m", f"deathless.shell.{module}", config_path]
            return lambda descriptor: [*program, str(descriptor), str(os.getpid())]

        if config.announce_kubernetes:
            self._all.append(SideProcess("announcer", command("pod.announcer"), self._take_fence))
        if config.health_listen:
            self._all.append(SideProcess("health", command("pod.health_port"), _says_nothing))
        for driver in config.drivers:
            self._all.append(SideProcess(f"driver {driver.name}", _driver(config_path, driver.name)))
        for sink in config.sinks:
            self._all.append(SideProcess(f"sink {sink.name}", _sink(config_path, sink.name), _says_nothing))
        if config.binding is not None:
            path = _application(config_path)
            self._all.append(SideProcess("application", path, self._take_program, self._program_gone))
        for source in config.sources:
            self._all.append(SideProcess(f"source {source.name}", _source(config_path, source.name), _says_nothing))

    def _take_fence(self, record: object) -> None:
        if isinstance(record, Fenced):
            self._fenced(record.fenced)

    def _take_program(self, record: object) -> None:
        if isinstance(record, Program):
            self.program = record

    def _program_gone(self) -> None:
        """The process that keeps the program ended, and the program with it."""
        self.program = Program(state="ended", text="the process that keeps the program ended, and is started again")

    @property
    def pids(self) -> set[int]:
        """Process ids of those that run."""
        return {each.process.pid for each in self._all if each.process is not None}

    def start_due(self, now: float, environment: dict[str, str]) -> None:
        """Start those whose time has come; call it with each heartbeat."""
        for each in self._all:
            each.start_due(now, environment)

    def tell(self, standing: Standing, now: float) -> None:
        """Tell all how we stand; call it with each heartbeat and after each change."""
        if not self._all:
            return
        plain = msgspec.structs.replace(standing, lsn=0, lag=0)
        changed = plain != self._told or now - self._told_at >= BEAT_S
        if changed:
            self._told, self._told_at = plain, now
        for each in self._all:
            each.tell(standing, changed=changed)
            each.look(now)

    def reap(self, now: float) -> None:
        """SIGCHLD."""
        for each in self._all:
            each.reap(now)

    def let_go(self) -> list[subprocess.Popen[bytes]]:
        """Give all that run to who ends them."""
        return [process for each in self._all if (process := each.let_go()) is not None]


def _driver(config_path: str, name: str) -> Callable[[int], list[str]]:
    """A module of a layer above: it is started, never imported."""
    program = [sys.executable, "-m", "deathless.drivers.host", config_path, name]
    return lambda _: [*program, str(os.getpid())]


def _sink(config_path: str, name: str) -> Callable[[int], list[str]]:
    """A module of a layer above, as a driver's."""
    program = [sys.executable, "-m", "deathless.sinks.host", config_path, name]
    return lambda descriptor: [*program, str(descriptor), str(os.getpid())]


def _source(config_path: str, name: str) -> Callable[[int], list[str]]:
    """A module of a layer above, as a driver's."""
    program = [sys.executable, "-m", "deathless.sources.host", config_path, name]
    return lambda descriptor: [*program, str(descriptor), str(os.getpid())]


def _application(config_path: str) -> Callable[[int], list[str]]:
    """A module of a layer above, as a driver's."""
    program = [sys.executable, "-m", "deathless.foreign.host", config_path, "application"]
    return lambda descriptor: [*program, str(descriptor), str(os.getpid())]


def _says_nothing(_: object) -> None:
    """Whatever a sink, a source or the health port said would be no operator's word."""


def reap_orphans(own: set[int]) -> None:
    """Take the exit codes of processes the kernel gave us, as it does to process 1; `own` are waited for elsewhere."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        # One of our own that ended just now is told by a signal of its own; what is behind it then as well.
        if found is None or found.si_pid in own:
            return
        os.waitpid(found.si_pid, 0)  # it has ended: this does not wait


async def _attach(line: LineProtocol, ours: socket.socket) -> None:
    await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)


def _nothing() -> None:
    """Its end is told by SIGCHLD."""
