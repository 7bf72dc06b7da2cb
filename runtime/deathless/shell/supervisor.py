"""Pid 1 of a replica: keeps its worker and ingress running, tells the other supervisors how they are, detects failure.

    supervisor --(socket pair: orders, roles)--> worker          control port <-- other supervisors, tools
        |  '-----(page: ticks, message run)----'  |
        '--> ingress                              '-- dies with the supervisor's end of the pair

No handler ever runs here, and once it runs nothing here waits for the log's storage, so a supervisor answers for a busy
or hung worker. It learns of its worker's death or stop from the kernel at once and tells the others, which makes a
takeover start within milliseconds. A message that stood in the page when the worker died is counted and told too (I11).

    a worker's end:  SIGCHLD -> DEAD is told -> its last words are read (the line's end) -> when to start it again
    held:            its worker stays stopped: an operator fences this replica, or a later instance of it runs

Guarantees: one supervisor per replica, or per instance of it (a kernel lock on a file). Its own death ends its worker.
What a former worker said is never taken for the present one's. Does not: touch the log or the lock's values beyond
reading and first writing who the service is; decide takeovers (core.detection does).
"""

from __future__ import annotations

import asyncio
import contextlib
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
from deathless.base.errors import (
    DeathlessError,
    Deposed,
    Internal,
    InvalidConfig,
    LockUnavailable,
    LogTruncated,
    OtherSupervisor,
    Parked,
)
from deathless.base.errors import (
    Diverged as DivergedError,
)
from deathless.codec.wire import Admin, AdminReply, Hello, Type, decode_struct, struct_packet
from deathless.core.detection import UNPROVED_S, Detector, Report, WorkerState
from deathless.core.divergences import Divergences
from deathless.core.missing import Missing
from deathless.engine.failures import as_ours
from deathless.engine.ports import ServiceRecord
from deathless.shell.attendants import Attendants, reap_orphans
from deathless.shell.child import Child
from deathless.shell.filesystem import LOCAL_TYPES, filesystem_type
from deathless.shell.identity import prepare
from deathless.shell.instance import clear_former, lock_replica, take_generation
from deathless.shell.leave import Leave
from deathless.shell.logs import configure
from deathless.shell.members import Board, Member
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
from deathless.shell.packets import CLOSING_TURNS, ServerConnection, announced, listen
from deathless.shell.page import CALLS, LOCK_ANSWERS, LSN, PROVED, TICKS, UNPROVED, UPSTREAM, Page, page_path
from deathless.shell.peers import Peers
from deathless.shell.progress import Progress, Signs, Verdict
from deathless.shell.standing import SHARED, Standing
from deathless.shell.termination import leave_word
from deathless.shell.tls import refresh, server_context

_LOG = logging.getLogger("deathless.supervisor")
PACKET_BYTES_MAX = 1 << 20
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # state in few large pages: a fork for a checkpoint copies a short table
STOP_MAX_S = 15.0  # an orderly stop that takes longer is ended
INGRESS_STOP_MAX_S = 6.0  # so long the ingress may answer what it took in, before the worker is asked to stop
LAST_WORDS_S = 0.25  # after a worker's death its line's end is waited for so long
LOCK_RETRY_MIN_S, LOCK_RETRY_MAX_S = 0.1, 2.0  # at the start, while the lock store gives no answer
TLS_S = 2.0  # between two looks at the certificates' files
DEATHS_MAX = 64  # messages whose deaths are remembered; the oldest goes first
FINAL_CODES = frozenset(
    {"DL3001", "DL3012", "DL3013", "DL4001", "DL4003", "DL4004", "DL4005", "DL4006", "DL4007", "DL4009"}
)
"""Errors an operator must act on: the worker is not started again until the supervisor is."""


class Supervisor:
    """One replica's supervisor; `run` ends when it is told to stop.

    Args:
        config: the replica's.
        config_path: where its children read it.
        reaps: orphans of this machine, or pod, become our children; their ends are taken note of.
    """

    def __init__(self, config: ReplicaConfig, config_path: str, *, reaps: bool = False) -> None:
        self.config = config
        self.config_path = config_path
        self.limits = config.make_limits()
        self.folder = Path(config.directory) / "replicas" / config.replica
        self.detector = Detector(
            replica=config.replica,
            limits=self.limits,
            promote_checkpointer=config.promote_checkpointer,
            now=time.monotonic(),
        )
        self.report = Report(replica=config.replica, state=WorkerState.DEAD, role="starting", epoch=0, lsn=0)
        self.report.instance = config.instance
        self.worker = Child("worker")
        self.ingress = Child("ingress")
        self._lock_file = -1
        self._page: Page | None = None
        self._progress = Progress(turn_max_s=self.limits.turn_max_s, log_call_max_s=self.limits.log_call_max_s)
        self._line: LineProtocol | None = None
        self._died_in_message = False  # the last worker
        self._missing = Missing()  # of what workers end for because the log lacks it
        self._local = True  # the log's storage is this machine's
        self._died: tuple[int, float] | None = None  # the worker's exit code, and when; its last words are awaited
        self._board = Board(config.directory, config.replica, self._members_seen, config.instance)
        self._peers = Peers(config, self._kick_loop, self._be_superseded)
        self._attendants = Attendants(config, config_path, self._be_fenced)
        self._leave = Leave(waits=bool(config.instance))
        self._reaps = reaps
        self._fenced = False  # an operator keeps the worker stopped
        self._superseded = ""  # why the worker stays stopped: a later instance of this replica runs
        self._last_error = ""  # the one behind condition or problem, in full
        self._fingerprint = ""  # of the worker's code, hexadecimal
        self._record: ServiceRecord | None = None
        self._takeovers = 0
        self._since = (time.time(), "")  # wall seconds, and the role that began then
        self._accepted: set[ServerConnection] = set()
        self._conn_number = 0
        self._kick = asyncio.Event()
        self._stopped = asyncio.Event()  # we were told to stop
        self._told_primary: PrimaryIs | None = None
        self._deaths: dict[tuple[int, int], int] = {}
        self._told_deaths: dict[tuple[int, int], int] = {}  # (session, seq) -> deaths told to this worker
        self._stop_ordered = False
        self._stop_deadline = float("inf")  # of the whole stop
        self._ingress_deadline = float("inf")  # of the ingress's part of it
        self._worker_deadline = float("inf")  # of a worker that was told, or said, to end
        self._worker_told = False  # this worker has got its Stop
        self._end_ordered = False  # we end this worker: its death is no message's doing
        self._last_stop: Stopping | None = None
        self._divergences = Divergences(self.limits.rebases_per_hour_max)
        self._told_divergences: dict[str, int] = {}
        self._exit_code = 0
        self._tls_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._hash_seed = 0

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until stopped; gives the exit code.

        Raises: what `prepare` refuses to start with; PortTaken; OSError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._order_stop)
        config = self.config
        self._lock_file = lock_replica(self.folder, config.replica, config.instance)
        self.report.generation = take_generation(self.folder, config.replica, config.instance)
        clear_former(self.folder, config.instance)
        self._record = await self._prepare()
        if self._record is None:
            return 0
        self._hash_seed = self._record.hash_seed
        self._local = filesystem_type(config.directory) in LOCAL_TYPES
        self._page = Page(self._page_path)
        self._count_death_in_page()
        tls = server_context(self.config.tls)
        server, address = await listen(self._accept, self.config.control_listen, tls)
        self.report.control = announced(address, config.advertise_host)
        self.report.pid = os.getpid()
        loop.add_signal_handler(signal.SIGCHLD, self._children_changed)
        self._board.start()
        self._announce()
        try:
            await self._loop()
        finally:
            server.close()
            self._end()
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)
        return self._exit_code

    async def _prepare(self) -> ServiceRecord | None:
        """Find out whom the directory belongs to; None: we were told to stop meanwhile."""
        work = asyncio.ensure_future(self._find_out())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not work.done():
            work.cancel()
        await asyncio.wait({work, stopped})
        return None if work.cancelled() else work.result()

    async def _find_out(self) -> ServiceRecord:
        """Ask for as long as the lock store gives no answer."""
        pause = LOCK_RETRY_MIN_S
        while True:
            try:
                return await prepare(self.config)
            except LockUnavailable as error:
                _LOG.warning("lock store gives no answer", extra={"why": str(error)})
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOCK_RETRY_MAX_S)

    def _end(self) -> None:
        """Leave nothing behind: no process, no connection, after an orderly stop no announcement and no page."""
        self._peers.close()
        for connection in self._accepted:
            connection.close()
        if self._line is not None:
            self._line.close()
        self._attendants.end()
        for child in (self.ingress, self.worker):
            if child.process is not None:
                child.process.kill()
                child.process.wait()
        orderly = self._stop_ordered and self._exit_code == 0
        self._board.close(withdraw=orderly)
        if orderly and self._page is not None and self._page.read_running() is None:
            self._page.forget()

    async def _loop(self) -> None:
        while True:
            now = time.monotonic()
            if self._died is not None and now - self._died[1] > LAST_WORDS_S:
                self._worker_gone(now)
            if self._stop_ordered:
                if self.worker.process is None and self._may_leave(now):
                    return
                self._pass_stop_on(now)
            elif self._held:
                self._pass_stop_on(now)
            self._start_children(now)
            self._watch_worker(now)
            self._tell_others(now)
            self._maybe_order_takeover(now)
            if now > min(self._stop_deadline, self._worker_deadline):
                self._end_worker()
            if now >= self._tls_at:
                self._tls_at = now + TLS_S
                refresh(self.config.tls)
            self._peers.connect_due()
            self._kick.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), self.limits.heartbeat_s)

    def _kick_loop(self) -> None:
        self._kick.set()

    def _order_stop(self) -> None:
        """SIGTERM: an orderly stop; what is admitted is confirmed and answered first."""
        if self._stop_ordered:
            return
        now = time.monotonic()
        self._stop_ordered = True
        self._stopped.set()
        self._stop_deadline = now + STOP_MAX_S
        self._ingress_deadline = now + INGRESS_STOP_MAX_S
        self.worker.start_at = self.ingress.start_at = None
        if self.ingress.process is not None:
            self.ingress.process.terminate()
        self._kick.set()

    def _pass_stop_on(self, now: float) -> None:
        """The worker stops; at the end of all, once the ingress has answered its callers."""
        answering = self._stop_ordered and self.ingress.process is not None and now < self._ingress_deadline
        if self._worker_told or answering or self._died is not None:
            return
        if self._line is not None and self._line.open:
            self._worker_told = True
            self._line.send(Stop())
            if self._held:
                self._end_ordered = True
                self._worker_deadline = now + STOP_MAX_S

    def _end_worker(self) -> None:
        if self.worker.process is not None and self._died is None:
            self._end_ordered = True
            self.worker.process.kill()

    @property
    def _page_path(self) -> str:
        return page_path(self.config.directory, self.config.replica, instance=self.config.instance)

    # ---- held ------------------------------------------------------------------------------------------------

    @property
    def _held(self) -> bool:
        """The worker is to stay stopped."""
        return self._fenced or bool(self._superseded)

    def _be_fenced(self, fenced: bool) -> None:
        """An operator keeps the worker stopped, or does not any more; a primary hands over first."""
        if fenced == self._fenced:
            return
        _LOG.warning("fenced" if fenced else "not fenced any more")
        self._fenced = fenced
        self._hold()
        if not self._held and self.worker.process is None and not self.report.condition and not self._stop_ordered:
            self.report.role = "dead"
            self.worker.start_at = time.monotonic()

    def _be_superseded(self, why: str) -> None:
        """A later instance of this replica runs: it is the one to be heard, and we only cost it time."""
        if not self._superseded:
            _LOG.error("a later instance runs", extra={"why": why})
            self._superseded = str(OtherSupervisor(why, remedy="nothing to do where this pod is being replaced"))
            self._hold()

    def _hold(self) -> None:
        if self._held and self.worker.process is None:
            self._stay_stopped()
        self._kick.set()

    def _stay_stopped(self) -> None:
        self.worker.start_at = None
        self.report.role = "fenced" if self._fenced else "dead"
        if self._superseded:
            self._set_condition(OtherSupervisor.code, self._superseded)

    def _set_condition(self, code: str, text: str) -> None:
        """An operator must act: say it where one looks."""
        self.report.condition, self._last_error = code, text
        leave_word(self.config.termination_file, text)

    # ---- children --------------------------------------------------------------------------------------------

    def _may_leave(self, now: float) -> bool:
        return self._leave.is_due(now, handed_over=bool(self.report.successor), led=self.detector.led(now))

    def _start_children(self, now: float) -> None:
        self._attendants.start_due(now, self._environment())
        if self.worker.process is None and self.worker.start_at is not None and now >= self.worker.start_at:
            self._start_worker(now)
        ready = self.config.ingress_listen and self.report.client
        if (
            ready
            and self.ingress.process is None
            and self.ingress.start_at is not None
            and now >= self.ingress.start_at
        ):
            self._start_ingress(now)

    def worker_command(self, descriptor: int) -> list[str]:
        """What a worker is started with; `descriptor` is its end of the socket pair."""
        return [sys.executable, "-m", "deathless.shell.worker", self.config_path, str(descriptor)]

    def ingress_command(self) -> list[str]:
        """What an ingress is started with."""
        return [sys.executable, "-m", "deathless.shell.ingress", self.config_path, str(os.getpid())]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONHASHSEED": str(self._hash_seed),
            "PYTHONUNBUFFERED": "1",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def _start_worker(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._page = Page(self._page_path, fresh=True)
            self.worker.process = subprocess.Popen(
                self.worker_command(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                env={"GLIBC_TUNABLES": HUGE_PAGES, **self._environment()},
                stdin=subprocess.DEVNULL,
            )
        self.worker.started_at = now
        self.worker.start_at = None
        self._progress.begin()
        self._worker_deadline = float("inf")
        self._last_stop = None
        self._told_primary = None
        self._worker_told = self._end_ordered = False
        self._told_deaths.clear()
        self.report.state, self.report.role, self.report.client, self.report.replication = (
            WorkerState.STARTING,
            "starting",
            "",
            "",
        )
        self.report.successor = ""
        self.report.worker_pid = self.worker.pid
        line = LineProtocol(
            ToSupervisor, lambda record: self._worker_said(line, record), lambda: self._line_ended(line)
        )
        self._line = line
        self._spawn(self._attach(line, ours))

    async def _attach(self, line: LineProtocol, ours: socket.socket) -> None:
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        self._kick.set()

    def _start_ingress(self, now: float) -> None:
        self.ingress.process = subprocess.Popen(
            self.ingress_command(), env=self._environment(), stdin=subprocess.DEVNULL
        )
        self.ingress.started_at = now
        self.ingress.start_at = None

    def _children_changed(self) -> None:
        """SIGCHLD: somebody died, was stopped or goes on."""
        now = time.monotonic()
        for child in (self.worker, self.ingress):
            while child.process is not None and not (child is self.worker and self._died is not None):
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
                elif child is self.worker:
                    self._worker_died(status, now)
                else:
                    self._ingress_died(status, now)
        self._attendants.reap(now)
        if self._reaps:
            reap_orphans({self.worker.pid, self.ingress.pid} | self._attendants.pids)
        self._watch_worker(now)
        self._tell_others(now)
        self._kick.set()

    def _ingress_died(self, status: int, now: float) -> None:
        child = self.ingress
        assert child.process is not None
        code = child.process.returncode = os.waitstatus_to_exitcode(status)
        child.ended(now, at_once=False)
        if self._stop_ordered:
            child.start_at = None
            return
        _LOG.warning("ingress ended", extra={"exit_code": code, "again_in_s": child.delay_s})

    def _worker_died(self, status: int, now: float) -> None:
        """Tell it at once; what it said last may still be on the line."""
        assert self.worker.process is not None
        code = self.worker.process.returncode = os.waitstatus_to_exitcode(status)
        self._died = code, now
        self._count_death_in_page()
        self.report.state = WorkerState.DEAD
        self.report.worker_pid = 0
        if self._line is None or self._line.ended:
            self._worker_gone(now)

    def _line_ended(self, line: LineProtocol) -> None:
        if line is self._line and self._died is not None:
            self._worker_gone(time.monotonic())

    def _worker_gone(self, now: float) -> None:
        """The worker is dead and all it said is read: decide when to start it again."""
        assert self._died is not None
        (code, _), self._died = self._died, None
        if self._line is not None:
            self._line.close()
            self._line = None
        child, stop, role = self.worker, self._last_stop, self.report.role
        ordered = stop is not None and stop.code in ("", Deposed.code)
        child.ended(now, at_once=ordered)
        self._worker_deadline = float("inf")
        self.report.role = "dead"
        if stop is not None:
            self.report.problem = "" if ordered else stop.code
            self._last_error = "" if ordered else stop.text
        elif self._died_in_message and role not in ("primary", "taking-over"):
            # A logged message that kills a follower stops that follower alone, and an operator sees why (I11).
            self.report.problem = Parked.code
        if stop is not None and self._is_final(stop.code, role, now):
            child.start_at = None
            self._set_condition(stop.code, stop.text)
            _LOG.error("worker stays stopped", extra={"code": stop.code, "why": stop.text})
        elif stop is not None and stop.code == DivergedError.code:
            self._worker_diverged(stop.text, now)
        if self._held:
            self._stay_stopped()
        elif self._stop_ordered:
            child.start_at = None
        else:
            why = stop.text if stop else "killed"
            _LOG.warning("worker ended", extra={"exit_code": code, "why": why, "again_in_s": child.delay_s})
        self._kick.set()

    def _is_final(self, code: str, role: str, now: float) -> bool:
        """Would a new worker meet the same?"""
        if code != LogTruncated.code:
            return code in FINAL_CODES
        return self._missing.ended(role, now, local=self._local)

    def _worker_diverged(self, text: str, now: float) -> None:
        """I6: tell the others, so that the primary checkpoints at once; start again from that, so often an hour."""
        self.worker.start_at = self._divergences.met(text, now)
        self.report.divergences = self._divergences.texts
        if self.worker.start_at is None:
            self._set_condition(DivergedError.code, text)
        _LOG.error("worker diverged", extra={"why": text, "times_this_hour": len(self.report.divergences)})

    def _count_death_in_page(self) -> None:
        """I11: the message that stood in the page when the worker died, and was not completed; counted once."""
        page = self._page
        running = page.read_running() if page is not None else None
        self._died_in_message = False
        if page is None or running is None:
            return
        self._died_in_message = bool(running.session or running.seq)
        if self._died_in_message and not self._end_ordered:
            key = (running.session, running.seq)
            self._deaths[key] = self._deaths.get(key, 0) + 1
            while len(self._deaths) > DEATHS_MAX:
                self._deaths.pop(next(iter(self._deaths)))
            self.report.deaths = [(session, seq, count) for (session, seq), count in self._deaths.items()]
            _LOG.warning("worker died in a message", extra={"session": running.session, "seq": running.seq})
        self._page = Page(page.path, fresh=True)

    def _watch_worker(self, now: float) -> None:
        """Keep our own report true."""
        report, page = self.report, self._page
        report.unproved = False
        if self.worker.process is None or self._died is not None:
            report.state = WorkerState.DEAD
        elif self.worker.stopped:
            report.state = WorkerState.STOPPED
        elif page is not None and report.role not in ("starting", "stopping"):
            report.state = self._state_by_page(page, now)
            report.lsn = page.cells[LSN]
            report.full, report.outbox_full = page.full, page.outbox_full
            report.unproved = page.cells[UNPROVED] >= UNPROVED_S * 1000

    def _state_by_page(self, page: Page, now: float) -> WorkerState:
        signs = Signs(running=page.read_running(), ticks=page.cells[TICKS], calls=page.cells[CALLS])
        verdict = self._progress.look(signs, now)
        if verdict is Verdict.FINE:
            return WorkerState.RUNNING
        if verdict is Verdict.OVERDUE and self.report.role != "recovering" and self.worker.process is not None:
            _LOG.error("nothing moved for turn_max_s; the worker is ended", extra={"running": signs.running})
            self.worker.process.kill()
        return WorkerState.STUCK

    def _worker_said(self, line: LineProtocol, record: object) -> None:
        if line is not self._line:
            return  # a former worker's
        match record:
            case RoleIs(role, epoch, reason, lsn):
                _LOG.info("role", extra={"role": role, "epoch": epoch, "why": reason, "lsn": lsn})
                if self._died is None:
                    self.report.role, self.report.lsn = role, lsn
                    if self.report.condition:
                        self.report.condition = ""
                        leave_word(self.config.termination_file, "")
                if role == "primary" and epoch > self.report.epoch:
                    self._takeovers += 1
                if role not in ("recovering", "taking-over"):
                    self.report.problem, self._last_error = "", ""
                self._missing.role_said(role, led=self.detector.led(time.monotonic()))
                self.report.epoch = max(epoch, self.report.epoch)
            case AddressesAre(client, replication, fingerprint):
                self.report.client, self.report.replication = client, replication
                self._fingerprint = fingerprint
                self._announce()
            case Stopping():
                self._last_stop = record
                self.report.successor = record.successor
                self._worker_deadline = time.monotonic() + STOP_MAX_S
                if self.report.role == "primary":
                    self.report.role = "stopping"
            case _:
                raise Internal(f"worker said {record!r}")
        now = time.monotonic()
        self._watch_worker(now)
        self._tell_others(now)
        self._kick.set()

    # ---- other supervisors -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        report = self.report
        config = self.config
        ingress = announced(config.ingress_listen, config.advertise_host) if config.ingress_listen else ""
        addresses = (report.control, report.client, report.replication, ingress)
        self._board.announce(
            Member(report.replica, *addresses, os.getpid(), instance=report.instance, generation=report.generation)
        )

    def _members_seen(self, members: dict[str, Member]) -> None:
        mine = members.get(self.config.replica)
        if mine is not None and mine.generation > self.report.generation:
            self._be_superseded(f"replica {mine.replica} is run by instance {mine.instance}, which started later")
        elif mine is not None and mine.instance == self.report.instance:
            self.report.ingress = mine.ingress
        self.detector.members_seen(set(members))
        self.detector.forget_removed(time.monotonic())
        self._peers.meet(members)

    def _tell_others(self, now: float) -> None:
        self.report.heard = self.detector.heard_ms(now)
        self.detector.report_received(msgspec.structs.replace(self.report), now)
        self._attendants.tell(self._standing(), now)
        data = struct_packet(Type.REPORT, self.report)
        self._peers.tell(data)
        self._tell_worker()

    def _standing(self) -> Standing:
        """What is told to the processes beside us."""
        report, record, now = self.report, self._record, time.monotonic()
        proved_s = now - self._page.cells[PROVED] / 1e9 if self._page is not None else float("inf")
        if report.role != self._since[1]:
            self._since = (time.time(), report.role)
        return Standing(
            **{name: getattr(report, name) for name in SHARED},
            service=self.config.service,
            lag=max(each.lsn for each in self.detector.reports.values()) - report.lsn,
            text=self._last_error if report.condition or report.problem else "",
            fingerprint=self._fingerprint,
            service_id=record.service_id.hex() if record is not None else "",
            incarnation=record.incarnation if record is not None else 0,
            since=self._since[0],
            takeovers=self._takeovers,
            stopping=self._stop_ordered,
            others=tuple(sorted(set(self.detector.reports) - {report.replica})),
            led=report.role == "primary" or self.detector.led(now),
            silent=self.detector.silent(now, proved_s),
        )

    def _tell_worker(self) -> None:
        claim = self.detector.primary
        if self._line is None or self._died is not None or self.report.role == "starting":
            return
        if claim is not None:
            unproved = self.detector.unproved(time.monotonic())
            told = PrimaryIs(claim.epoch, claim.replica, claim.client, claim.replication, unproved)
            if told != self._told_primary:
                self._told_primary = told
                self._line.send(told)
        for report in self.detector.reports.values():
            if len(report.divergences) > self._told_divergences.get(report.replica, 0):
                self._line.send(Diverged(report.replica, report.divergences[-1]))
            self._told_divergences[report.replica] = len(report.divergences)
        deaths: dict[tuple[int, int], int] = {}
        for report in self.detector.reports.values():
            for session, seq, count in report.deaths:
                deaths[session, seq] = deaths.get((session, seq), 0) + count
        for (session, seq), total in deaths.items():
            if self._told_deaths.get((session, seq)) != total:
                self._line.send(Deaths(session, seq, total))
        self._told_deaths = deaths

    def _maybe_order_takeover(self, now: float) -> None:
        if self._line is None or self._died is not None or self._stop_ordered or self._page is None:
            return
        heard_ns = self._page.cells[UPSTREAM]
        age = (time.monotonic_ns() - heard_ns) / 1e9 if heard_ns else float("inf")
        order = self.detector.decide(now, age, self._page.cells[LOCK_ANSWERS] / 1000)
        if order is not None:
            _LOG.warning("takeover", extra={"epoch": order.epoch, "why": order.reason})
            self._line.send(TakeOver(order.epoch, order.reason, order.confirmed_lsn))

    # ---- control port ----------------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        self._conn_number += 1
        return ServerConnection(
            self,
            self._conn_number,
            service=self.config.shard_name,
            token=self.config.token,
            packet_bytes_max=PACKET_BYTES_MAX,
            buffer_bytes_max=4 << 20,
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """See packets.Owner."""
        self._accepted.add(connection)

    def lost(self, connection: ServerConnection) -> None:
        """See packets.Owner."""
        self._accepted.discard(connection)

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """Reports of other supervisors, commands of tools."""
        now = time.monotonic()
        for kind, body in packets:
            if kind == Type.REPORT:
                report = decode_struct(Report, body)
                if report.replica == self.config.replica:
                    continue
                if report.replica not in self.detector.reports:
                    self._board.look()
                if not self.detector.report_received(report, now):
                    later = self.detector.reports[report.replica].instance
                    why = f"replica {report.replica} is run by instance {later}, which started later"
                    connection.refuse(OtherSupervisor(why))
                    break
                self._peers.heard(report.replica)
            elif kind == Type.ADMIN:
                self._answer(connection, decode_struct(Admin, body))
            elif kind == Type.PING:
                connection.send(
                    struct_packet(Type.PONG, Hello(1, "supervisor", self.config.shard_name, self.config.replica))
                )
        self._tell_worker()
        self._maybe_order_takeover(now)

    def _answer(self, connection: ServerConnection, request: Admin) -> None:
        code, result, now = "", b"{}", time.monotonic()
        if request.command == "status":
            result = msgspec.json.encode(self.status())
        elif request.command == "stop":
            self._order_stop()
        elif request.command == "restart-worker":
            if self.worker.process is not None and self._line is not None:
                self._end_ordered = True
                self._worker_deadline = now + STOP_MAX_S
                self._line.send(Stop())
            elif not (self._stop_ordered or self._held):
                self.worker.start_at = now
                self._divergences.clear()
                self.report.divergences = []
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
                {
                    **{f: getattr(report, f) for f in Report.__struct_fields__ if f != "heard"},
                    "heardMs": heard.get(name, -1),
                }
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


async def serve(config: ReplicaConfig, config_path: str, *, reaps: bool = False) -> int:
    """Run one supervisor to its end. Raises: as `Supervisor.run`."""
    return await Supervisor(config, config_path, reaps=reaps).run()


def main(arguments: list[str] | None = None) -> int:
    """Run one replica from a JSON config file; gives the exit code of `base.errors`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        config = read_config(arguments[0])
        configure(config.log_level, config.replica, "supervisor")
        return asyncio.run(serve(config, arguments[0]))
    except (DeathlessError, OSError) as error:
        ours = as_ours(error, "supervisor")
        _LOG.error("supervisor stops", extra={"code": ours.code, "why": str(ours)})
        sys.stderr.write(f"{ours}\n")
        return ours.exit_code


if __name__ == "__main__":
    sys.exit(main())
