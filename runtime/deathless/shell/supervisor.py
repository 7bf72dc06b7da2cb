"""Pid 1 of a replica: keeps its worker and ingress running, tells the other supervisors how they are, detects failure.

    supervisor --(socket pair: orders, roles)--> worker          control port <-- other supervisors, tools
        |  '-----(page: ticks, message run)----'  |
        '--> ingress                              '-- dies with the supervisor's end of the pair

No handler ever runs here, so a supervisor answers for a busy worker. It learns of its worker's death or stop from the
kernel at once and tells the others, which makes a takeover start within milliseconds. A message that stood in the
page when the worker died is counted and told too (I11).

Guarantees: one supervisor per replica (a kernel lock on a file). Its own death ends its worker. Does not: touch the
log or the lock's values beyond reading and first writing who the service is; decide takeovers (core.detection does).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal, InvalidConfig, OtherSupervisor
from deathless.codec.wire import Admin, AdminReply, Hello, Type, decode_struct, struct_packet
from deathless.core.detection import Detector, Report, WorkerState
from deathless.shell.children import die_with_parent
from deathless.shell.identity import prepare
from deathless.shell.logs import configure
from deathless.shell.members import Member, read_members, remove_member, write_member
from deathless.shell.orders import (
    AddressesAre,
    Deaths,
    Diverged,
    LineProtocol,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
)
from deathless.shell.packets import ClientConnection, ServerConnection, listen, split_address
from deathless.shell.page import FULL, LSN, SYNCS, UPSTREAM, Page
from deathless.shell.tls import client_context, server_context

_LOG = logging.getLogger("deathless.supervisor")
PACKET_BYTES_MAX = 1 << 20
SYNC_MAX_S = 2.0  # a sync longer than this makes the worker STUCK: its log hangs
RESTART_MIN_S, RESTART_MAX_S = 0.05, 5.0  # between two starts of a worker that fails
STABLE_S = 10.0  # a worker that ran so long starts again without waiting
STOP_MAX_S = 15.0  # an orderly stop that takes longer is ended
MEMBERS_S = 0.5  # between two looks at members/
HOUR_S = 3600.0
DIVERGED_S = 2.0  # a differing worker starts again after this, doubling: the primary's checkpoint needs a moment
FINAL_CODES = frozenset({"DL3001", "DL3012", "DL3013", "DL4001", "DL4003", "DL4004", "DL4005", "DL4006", "DL4007", "DL4009"})
"""Errors an operator must act on: the worker is not started again until the supervisor is."""


class Child:
    """A child process with its restarts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False  # by a signal
        self.started_at = 0.0
        self.delay_s = 0.0
        self.start_at: float | None = 0.0  # when to start it next; None: not at all

    @property
    def pid(self) -> int:
        """Process id; 0: none runs."""
        return self.process.pid if self.process is not None else 0

    def ended(self, now: float, *, at_once: bool) -> None:
        """Plan the next start: at once after an expected end or a long run, else with doubling delay."""
        self.process = None
        self.stopped = False
        if at_once or now - self.started_at >= STABLE_S:
            self.delay_s = 0.0
        else:
            self.delay_s = min(max(self.delay_s * 2, RESTART_MIN_S), RESTART_MAX_S)
        self.start_at = now + self.delay_s


class Supervisor:
    """One replica's supervisor; `run` ends when it is told to stop."""

    def __init__(self, config: ReplicaConfig, config_path: str) -> None:
        self.config = config
        self.config_path = config_path
        self.limits = config.make_limits()
        self.folder = Path(config.directory) / "replicas" / config.replica
        self.detector = Detector(
            replica=config.replica, limits=self.limits, promote_checkpointer=config.promote_checkpointer, now=time.monotonic()
        )
        self.report = Report(replica=config.replica, state=WorkerState.DEAD, role="starting", epoch=0, lsn=0)
        self.worker = Child("worker")
        self.ingress = Child("ingress")
        self._ingress_address = ""
        self._lock_file = -1
        self._page: Page | None = None
        self._line: LineProtocol | None = None
        self._peers: dict[str, ClientConnection] = {}
        self._connecting: set[str] = set()
        self._tools: dict[int, ServerConnection] = {}
        self._conn_number = 0
        self._stopping = asyncio.Event()
        self._kick = asyncio.Event()
        self._told_primary: PrimaryIs | None = None
        self._deaths: dict[tuple[int, int], int] = {}
        self._told_deaths: set[tuple[int, int, int]] = set()
        self._stop_ordered = False
        self._last_stop: Stopping | None = None
        self._running_since: tuple[object, float] = (None, 0.0)
        self._sync_since: tuple[int, float] = (0, 0.0)
        self._divergences: list[float] = []
        self._told_divergences: dict[str, int] = {}
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._hash_seed = 0

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until stopped; gives the exit code."""
        loop = asyncio.get_running_loop()
        self._take_file_lock()
        record = await prepare(self.config)
        self._hash_seed = record.hash_seed
        self._page = Page(str(self.folder / "page"))
        self._count_death_in_page()
        tls = server_context(self.config.tls)
        server, address = await listen(self._accept, self.config.control_listen, tls)
        self.report.control = address
        self.report.pid = os.getpid()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._order_stop)
        loop.add_signal_handler(signal.SIGCHLD, self._children_changed)
        self._write_member()
        try:
            await self._loop()
        finally:
            server.close()
            for child in (self.ingress, self.worker):
                if child.process is not None:
                    child.process.kill()
            if self._stop_ordered:
                remove_member(self.config.directory, self.config.replica)
        return self._exit_code

    async def _loop(self) -> None:
        members_at = 0.0
        while True:
            now = time.monotonic()
            if self._stop_ordered and self.worker.process is None:
                return
            if now >= members_at:
                members_at = now + MEMBERS_S
                self._meet_members()
            self._start_children(now)
            self._watch_worker(now)
            self._tell_others(now)
            self._maybe_order_takeover(now)
            if self._stop_ordered and now > self._stop_deadline and self.worker.process is not None:
                self.worker.process.kill()
            self._kick.clear()
            try:
                await asyncio.wait_for(self._kick.wait(), self.limits.heartbeat_s)
            except TimeoutError:
                continue

    def _order_stop(self) -> None:
        """SIGTERM: an orderly stop; what is admitted is confirmed and answered first."""
        if self._stop_ordered:
            return
        self._stop_ordered = True
        self._stop_deadline = time.monotonic() + STOP_MAX_S
        self.worker.start_at = self.ingress.start_at = None
        if self.ingress.process is not None:
            self.ingress.process.terminate()
        if self._line is not None:
            self._line.send(Stop())
        self._kick.set()

    def _take_file_lock(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.folder / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.pread(self._lock_file, 32, 0).decode(errors="replace").strip()
            raise OtherSupervisor(f"replica {self.config.replica} in {self.config.directory} is run by process {other}") from None
        os.ftruncate(self._lock_file, 0)
        os.pwrite(self._lock_file, f"{os.getpid()}\n".encode(), 0)

    # ---- children --------------------------------------------------------------------------------------------

    def _start_children(self, now: float) -> None:
        if self.worker.process is None and self.worker.start_at is not None and now >= self.worker.start_at:
            self._start_worker(now)
        ready = self.config.ingress_listen and self.report.client
        if ready and self.ingress.process is None and self.ingress.start_at is not None and now >= self.ingress.start_at:
            self._start_ingress(now)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONHASHSEED": str(self._hash_seed), "PYTHONUNBUFFERED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}

    def _start_worker(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        self._page = Page(str(self.folder / "page"), fresh=True)
        command = [sys.executable, "-m", "deathless.shell.worker", self.config_path, str(theirs.fileno())]
        self.worker.process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), env=self._environment(), preexec_fn=die_with_parent, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self.worker.started_at = now
        self.worker.start_at = None
        self._last_stop = None
        self._told_primary = None
        self._told_deaths.clear()
        self.report.state, self.report.role, self.report.client, self.report.replication = WorkerState.STARTING, "starting", "", ""
        self.report.worker_pid = self.worker.pid
        line = LineProtocol(ToSupervisor, self._worker_said, lambda: None)
        self._line = line
        self._spawn(self._attach(line, ours))

    async def _attach(self, line: LineProtocol, ours: socket.socket) -> None:
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        if self._stop_ordered:
            line.send(Stop())

    def _start_ingress(self, now: float) -> None:
        command = [sys.executable, "-m", "deathless.shell.ingress", self.config_path]
        self.ingress.process = subprocess.Popen(
            command, env=self._environment(), preexec_fn=die_with_parent, stdin=subprocess.DEVNULL
        )
        self.ingress.started_at = now
        self.ingress.start_at = None

    def _children_changed(self) -> None:
        """SIGCHLD: somebody died, was stopped or goes on."""
        now = time.monotonic()
        for child in (self.worker, self.ingress):
            while child.process is not None:
                try:
                    pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                except ChildProcessError:
                    pid, status = child.pid, 0
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    child.stopped = True
                elif os.WIFCONTINUED(status):
                    child.stopped = False
                else:
                    self._child_ended(child, status, now)
        self._watch_worker(now)
        self._tell_others(now)
        self._kick.set()

    def _child_ended(self, child: Child, status: int, now: float) -> None:
        assert child.process is not None
        child.process.returncode = os.waitstatus_to_exitcode(status)
        code = child.process.returncode
        if child is self.ingress:
            child.ended(now, at_once=False)
            if self._stop_ordered:
                child.start_at = None
            _LOG.warning("ingress ended", extra={"exit_code": code})
            return
        self._count_death_in_page()
        stop = self._last_stop
        child.ended(now, at_once=stop is not None and stop.code in ("", "DL2001"))
        self.report.state = WorkerState.DEAD
        self.report.role = "dead"
        self.report.worker_pid = 0
        if stop is not None and stop.code in FINAL_CODES:
            child.start_at = None
            self.report.condition = stop.code
            _LOG.error("worker stays stopped", extra={"code": stop.code, "why": stop.text})
        elif stop is not None and stop.code == "DL4008":
            self._worker_diverged(stop.text, now)
        if self._stop_ordered:
            child.start_at = None
            self._exit_code = 0
        else:
            _LOG.warning("worker ended", extra={"exit_code": code, "why": stop.text if stop else "killed"})

    def _worker_diverged(self, text: str, now: float) -> None:
        """I6: tell the others, so that the primary checkpoints at once; start again from that, at most so often an hour."""
        self._divergences = [at for at in self._divergences if now - at < HOUR_S] + [now]
        self.report.divergences = [*self.report.divergences, text][-len(self._divergences) :]
        if len(self._divergences) > self.limits.rebases_per_hour_max:
            self.worker.start_at = None
            self.report.condition = "DL4008"
        else:
            self.worker.start_at = now + DIVERGED_S * 2 ** (len(self._divergences) - 1)
        _LOG.error("worker diverged", extra={"why": text, "times_this_hour": len(self._divergences)})

    def _count_death_in_page(self) -> None:
        """I11: the message that stood in the page when the worker died, and was not completed."""
        page = self._page
        running = page.read_running() if page is not None else None
        if page is None or running is None:
            return
        if running.session or running.seq:
            key = (running.session, running.seq)
            self._deaths[key] = self._deaths.get(key, 0) + 1
            while len(self._deaths) > 64:
                self._deaths.pop(next(iter(self._deaths)))
            self.report.deaths = [(session, seq, count) for (session, seq), count in self._deaths.items()]
            _LOG.warning("worker died in a message", extra={"session": running.session, "seq": running.seq})
        Page(str(self.folder / "page"), fresh=True)

    def _watch_worker(self, now: float) -> None:
        """Keep our own report true."""
        report, page = self.report, self._page
        if self.worker.process is None:
            report.state = WorkerState.DEAD
        elif self.worker.stopped:
            report.state = WorkerState.STOPPED
        elif page is not None and report.role != "starting":
            report.state = WorkerState.STUCK if self._is_stuck(page, now) else WorkerState.RUNNING
            report.lsn = page.cells[LSN]
            report.full = bool(page.cells[FULL])

    def _is_stuck(self, page: Page, now: float) -> bool:
        running = page.read_running()
        if running != self._running_since[0]:
            self._running_since = (running, now)
        syncs = page.cells[SYNCS]
        if syncs != self._sync_since[0]:
            self._sync_since = (syncs, now)
        if running is not None and now - self._running_since[1] > self.limits.turn_max_s:
            _LOG.error("turn passes turn_max_s; the worker is ended", extra={"session": running.session, "seq": running.seq})
            if self.worker.process is not None:
                self.worker.process.kill()
            return True
        return bool(syncs % 2) and now - self._sync_since[1] > SYNC_MAX_S

    def _worker_said(self, record: object) -> None:
        match record:
            case RoleIs(role, epoch, reason, lsn):
                _LOG.info("role", extra={"role": role, "epoch": epoch, "why": reason, "lsn": lsn})
                self.report.role, self.report.lsn = role, lsn
                self.report.epoch = max(epoch, self.report.epoch)
                self.report.condition = ""
            case AddressesAre(client, replication):
                self.report.client, self.report.replication = client, replication
                self._write_member()
            case Stopping():
                self._last_stop = record
                if self.report.role == "primary":
                    self.report.role = "stopping"
            case _:
                raise Internal(f"worker said {record!r}")
        now = time.monotonic()
        self._watch_worker(now)
        self._tell_others(now)
        self._kick.set()

    # ---- other supervisors -----------------------------------------------------------------------------------

    def _write_member(self) -> None:
        report = self.report
        ingress = self.config.ingress_listen
        write_member(
            self.config.directory,
            Member(report.replica, report.control, report.client, report.replication, ingress, os.getpid()),
        )

    def _meet_members(self) -> None:
        members = read_members(self.config.directory)
        self.detector.members_seen(set(members))
        for name, member in members.items():
            if name != self.config.replica and name not in self._peers and name not in self._connecting:
                self._connecting.add(name)
                self._spawn(self._connect(name, member.control))

    async def _connect(self, name: str, address: str) -> None:
        hello = Hello(1, "supervisor", self.config.service, self.config.replica, self.config.token)
        connection = ClientConnection(hello, lambda _: None, lambda: self._peer_lost(name), PACKET_BYTES_MAX)
        try:
            host, port = split_address(address)
            await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=client_context(self.config.tls)
                ),
                1.0,
            )
        except (OSError, TimeoutError, InvalidConfig):
            return
        finally:
            self._connecting.discard(name)
        self._peers[name] = connection
        self._kick.set()

    def _peer_lost(self, name: str) -> None:
        self._peers.pop(name, None)

    def _tell_others(self, now: float) -> None:
        self.report.heard = self.detector.heard_ms(now)
        self.detector.report_received(msgspec.structs.replace(self.report), now)
        data = struct_packet(Type.REPORT, self.report)
        for connection in list(self._peers.values()):
            connection.send(data)
        self._tell_worker()

    def _tell_worker(self) -> None:
        claim = self.detector.primary
        if self._line is None or self.report.role == "starting":
            return
        if claim is not None:
            told = PrimaryIs(claim.epoch, claim.replica, claim.client, claim.replication)
            if told != self._told_primary:
                self._told_primary = told
                self._line.send(told)
        for report in self.detector.reports.values():
            if len(report.divergences) > self._told_divergences.get(report.replica, 0):
                self._line.send(Diverged(report.replica, report.divergences[-1]))
            self._told_divergences[report.replica] = len(report.divergences)
            for session, seq, count in report.deaths:
                if (session, seq, count) not in self._told_deaths:
                    self._told_deaths.add((session, seq, count))
                    total = sum(c for r in self.detector.reports.values() for s, q, c in r.deaths if (s, q) == (session, seq))
                    self._line.send(Deaths(session, seq, total))

    def _maybe_order_takeover(self, now: float) -> None:
        if self._line is None or self._stop_ordered or self._page is None:
            return
        heard_ns = self._page.cells[UPSTREAM]
        age = (time.monotonic_ns() - heard_ns) / 1e9 if heard_ns else float("inf")
        order = self.detector.decide(now, age)
        if order is not None:
            _LOG.warning("takeover", extra={"epoch": order.epoch, "why": order.reason})
            self._line.send(TakeOver(order.epoch, order.reason))

    # ---- control port ----------------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        self._conn_number += 1
        return ServerConnection(
            self,
            self._conn_number,
            service=self.config.service,
            token=self.config.token,
            packet_bytes_max=PACKET_BYTES_MAX,
            buffer_bytes_max=4 << 20,
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """Reports of other supervisors, commands of tools."""
        now = time.monotonic()
        for kind, body in packets:
            if kind == Type.REPORT:
                report = decode_struct(Report, body)
                if report.replica != self.config.replica:
                    self.detector.report_received(report, now)
            elif kind == Type.ADMIN:
                self._answer(connection, decode_struct(Admin, body))
            elif kind == Type.PING:
                connection.send(struct_packet(Type.PONG, Hello(1, "supervisor", self.config.service, self.config.replica)))
        self._tell_worker()
        self._maybe_order_takeover(now)

    def _answer(self, connection: ServerConnection, request: Admin) -> None:
        code, result = "", b"{}"
        if request.command == "status":
            result = msgspec.json.encode(self.status())
        elif request.command == "stop":
            self._order_stop()
        elif request.command == "restart-worker":
            if self.worker.process is not None:
                self.worker.process.terminate()
            elif not self._stop_ordered:
                self.worker.start_at = time.monotonic()
                self._divergences.clear()
                self._kick.set()
        else:
            code, result = "DL3004", msgspec.json.encode({"error": f"no command {request.command!r}"})
        connection.send(struct_packet(Type.ADMIN_REPLY, AdminReply(request.id, code, result)))

    def status(self) -> dict[str, object]:
        """What `deathless status` shows, as this supervisor knows it."""
        now = time.monotonic()
        claim = self.detector.primary
        heard = {**self.detector.heard_ms(now), self.config.replica: 0}
        return {
            "service": self.config.service,
            "directory": self.config.directory,
            "asked": self.config.replica,
            "primary": {"replica": claim.replica, "epoch": claim.epoch, "client": claim.client} if claim else None,
            "replicas": [
                {**{f: getattr(report, f) for f in Report.__struct_fields__ if f != "heard"}, "heardMs": heard.get(name, -1)}
                for name, report in sorted(self.detector.reports.items())
            ],
        }

    def _spawn(self, work: object) -> None:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type,var-annotated]  # coroutines only
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def read_config(path: str) -> ReplicaConfig:
    """Read a replica's config. Raises: InvalidConfig naming file and field."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=ReplicaConfig)
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}") from None


def main(arguments: list[str] | None = None) -> int:
    """Run one replica from a JSON config file; gives the exit code of `base.errors`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        config = read_config(arguments[0])
        configure(config.log_level, config.replica, "supervisor")
        return asyncio.run(Supervisor(config, arguments[0]).run())
    except DeathlessError as error:
        _LOG.error("supervisor stops", extra={"code": error.code, "why": str(error)})
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
