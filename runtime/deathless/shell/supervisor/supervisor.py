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
reading and first writing who the service is; decide takeovers (core.supervisor.detection does).
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
    LogTruncated,
    NoInodes,
    OtherSupervisor,
    Parked,
    StorageReadOnly,
    StorageSlow,
)
from deathless.base.errors import (
    Diverged as DivergedError,
)
from deathless.base.limits import STOP_MAX_S
from deathless.codec.wire import Type, struct_packet
from deathless.core.replica.missing import Missing
from deathless.core.supervisor.detection import UNPROVED_S, Detector, Report, WorkerState
from deathless.core.supervisor.divergences import Divergences
from deathless.engine.ports import ServiceRecord
from deathless.engine.replica.failures import as_ours
from deathless.execution.turn.running import Running
from deathless.shell.directory.identity import prepare
from deathless.shell.directory.instance import clear_former, lock_replica
from deathless.shell.directory.later_instance import take_generation_after
from deathless.shell.directory.members import Board, Member
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type
from deathless.shell.link.config_file import read_config
from deathless.shell.link.orders import (
    AddressesAre,
    LineProtocol,
    LockIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
)
from deathless.shell.link.progress import Progress, Signs, Verdict
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.link.standing import SERVING, SHARED, Standing
from deathless.shell.link.status_page import (
    CALLS,
    LOCK_ANSWERS,
    LSN,
    PROVED,
    SLOWEST,
    STORAGE,
    TICKS,
    UNPROVED,
    UPSTREAM,
    Page,
    open_page,
    sweep,
    waits_of,
)
from deathless.shell.net.connections import CLOSING_TURNS
from deathless.shell.net.listening import announced, listen
from deathless.shell.net.proof import Door, Secrets
from deathless.shell.net.tls import refresh, server_context
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.process.reaping import END_S, end_all
from deathless.shell.process.restarts import Child
from deathless.shell.supervisor.control_port import ControlPort, status_of
from deathless.shell.supervisor.departure import Leave
from deathless.shell.supervisor.message_deaths import MessageDeaths
from deathless.shell.supervisor.other_supervisors import Peers
from deathless.shell.supervisor.side_processes import Attendants, reap_orphans
from deathless.shell.supervisor.termination_message import leave_word
from deathless.shell.supervisor.usable import when_usable
from deathless.shell.supervisor.worker_news import WorkerNews

_LOG = logging.getLogger("deathless.supervisor")
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # state in few large pages: a fork for a checkpoint copies a short table
INGRESS_STOP_MAX_S = 6.0  # so long the ingress may answer what it took in, before the worker is asked to stop
LAST_WORDS_S = 0.25  # after a worker's death its line's end is waited for so long
TLS_S = 2.0  # between two looks at the certificates' files
SLOW_TOLD_MS = 1000  # a storage that takes so long for a call is told to operators
_STORAGE: dict[int, type[DeathlessError]] = {1: StorageReadOnly, 2: NoInodes}
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
        settings: the file that the config was made from; None: nobody changes it under a running replica.
    """

    def __init__(
        self, config: ReplicaConfig, config_path: str, *, reaps: bool = False, settings: SettingsFile | None = None
    ) -> None:
        self.config = config
        self._settings = settings
        self._served = False
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
        self._died_in: Running | None = None  # the message in which this worker died, or is being ended
        self._claimed_lsn = 0  # of the last order to take over: what another replica says it has applied
        self._missing = Missing()  # of what workers end for because the log lacks it
        self._local = True  # the log's storage is this machine's
        self._died: tuple[int, float] | None = None  # the worker's exit code, and when; its last words are awaited
        self._board = Board(config.directory, config.replica, self._members_seen, config.instance, self._be_superseded)
        self._kick = asyncio.Event()
        self._peers = Peers(config, self._kick.set, self._board.ask_later)
        self._attendants = Attendants(config, config_path, self._be_fenced)
        self._members: dict[str, Member] = {}  # as members/ was seen last
        self._door = Door(Secrets(config.directory, in_thread=True), lambda name: self._members.get(name))  # noqa: PLW0108  it is replaced
        self._leave = Leave(waits=bool(config.instance))
        self._reaps = reaps
        self._fenced = False  # an operator keeps the worker stopped
        self._superseded = ""  # why the worker stays stopped: a later instance of this replica runs
        self._last_error = ""  # the one behind condition or problem, in full
        self._fingerprint = ""  # of the worker's code, hexadecimal
        self._record: ServiceRecord | None = None
        self._takeovers = 0
        self._since = (time.time(), "")  # wall seconds, and the role that began then
        self._control = ControlPort(
            config,
            reported=self._report_received,
            done=self._control_packets_done,
            commands={"status": self.status, "stop": self._order_stop, "restart-worker": self._restart_worker},
            door=self._door,
        )
        self._stopped = asyncio.Event()  # we were told to stop
        self._news = WorkerNews()
        self._deaths = MessageDeaths()
        self._stop_ordered = False
        self._stop_deadline = float("inf")  # of the whole stop
        self._ingress_deadline = float("inf")  # of the ingress's part of it
        self._worker_deadline = float("inf")  # of a worker that was told, or said, to end
        self._worker_told = False  # this worker has got its Stop
        self._storage_told = ""  # the problem that we told because of the storage alone
        self._end_ordered = False  # we end this worker: its death is no message's doing
        self._last_stop: Stopping | None = None
        self._divergences = Divergences(self.limits.rebases_per_hour_max)
        self._exit_code = 0
        self._tls_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._hash_seed = 0

    # ---- life ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until stopped; gives the exit code.

        Raises: what `prepare` refuses to start with; PortTaken; SettingsChanged; OSError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._order_stop)
        config = self.config
        self._record = await self._prepare()
        if self._record is None:
            return 0
        self._hash_seed = self._record.hash_seed
        self._local = filesystem_type(config.directory) in LOCAL_TYPES
        sweep()
        self._door.secrets.sweep()
        tls = server_context(self._control.tls)
        server, address = await listen(self._control.accept, self.config.control_listen, tls)
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
        work = asyncio.ensure_future(when_usable(self._find_out, self._check_settings))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not work.done():
            work.cancel()
        await asyncio.wait({work, stopped})
        return None if work.cancelled() else work.result()

    async def _find_out(self) -> ServiceRecord:
        await self._take_replica()
        record = await prepare(self.config)
        self._page = self._open_page(fresh=False)
        self._count_death_in_page()
        return record

    def _check_settings(self) -> None:
        """End where we have not served with our settings and they are others by now. Raises: SettingsChanged."""
        if self._settings is not None and not (self._served or self._held or self._stop_ordered):
            self._settings.check()

    async def _take_replica(self) -> None:
        """Be the one supervisor of this replica, or of this instance of it; harmless when called again."""
        config = self.config
        if self._lock_file < 0:
            self._lock_file = lock_replica(self.folder, config.replica, config.instance)
        self.report.generation = await take_generation_after(self.folder, config.replica, config.instance)
        clear_former(self.folder, config.instance)

    def _end(self) -> None:
        """Leave nothing behind: no process, no connection, after an orderly stop no announcement."""
        self._peers.close()
        self._control.close()
        self._door.secrets.close()
        if self._line is not None:
            self._line.close()
        children = (self.worker.process, self.ingress.process, *self._attendants.let_go())
        end_all(each for each in children if each is not None)  # what one that is left may do: shell.directory.instance
        orderly = self._stop_ordered and self._exit_code == 0
        self._board.close(withdraw=orderly)

    async def _loop(self) -> None:
        while True:
            now = time.monotonic()
            if self._died is not None and now - self._died[1] > LAST_WORDS_S:
                self._worker_gone(now)
            if self._stop_ordered:
                if self._may_leave(now):
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
                self._check_settings()
            self._peers.connect_due()
            self._kick.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), self.limits.heartbeat_s)

    def _order_stop(self) -> None:
        """SIGTERM: an orderly stop; what is admitted is confirmed and answered first."""
        if self._stop_ordered:
            return
        now = time.monotonic()
        self._stop_ordered = True
        self._stopped.set()
        self._stop_deadline = now + STOP_MAX_S + (self._handover_wait_s if self._worker_told else 0.0)
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
            # Others do not listen to an instance that was superseded: they take over from it, whatever it waits for.
            self._line.send(Stop(at_once=bool(self._superseded)))
            self._stop_deadline += self._handover_wait_s
            if self._held:
                self._end_ordered = True
                self._worker_deadline = now + STOP_MAX_S + self._handover_wait_s

    @property
    def _handover_wait_s(self) -> float:
        """How much longer than others our worker may take to stop in order: a primary waits for activities."""
        return self.limits.handover_wait_s if self.report.role == "primary" else 0.0

    def _end_worker(self) -> None:
        if self.worker.process is not None and self._died is None:
            self._end_ordered = True
            self.worker.process.kill()

    def _open_page(self, *, fresh: bool = True) -> Page:
        return open_page(self.config.directory, self.config.replica, instance=self.config.instance, fresh=fresh)

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

    def _be_superseded(self, later: str) -> None:
        """A later instance of this replica runs: it is the one to be heard, and we only cost it time."""
        why = f"replica {self.config.replica} is run by instance {later}, which started later"
        if not self._superseded:
            _LOG.error("a later instance runs", extra={"why": why})
            self._superseded = str(OtherSupervisor(why, remedy="do nothing if this pod is being replaced"))
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
        overdue = now > min(self._stop_deadline, self._worker_deadline) + END_S  # killed, and hangs in the kernel
        if self.worker.process is not None and not overdue:
            return False
        return self._leave.is_due(now, handed_over=bool(self.report.successor), led=self.detector.led(now))

    def _start_children(self, now: float) -> None:
        self._attendants.start_due(now, self._environment())
        if self.worker.due(now):
            try:
                self._start_worker(now)
            except OSError as error:  # the page can't be opened, or no process be made
                self._worker_not_started(error, now)
        if self.config.ingress_listen and self.report.client and self.ingress.due(now):
            try:
                self._start_ingress(now)
            except OSError as error:
                self.ingress.not_started(now)
                _LOG.warning("ingress can't be started yet", extra={"why": str(error)})

    def worker_command(self, descriptor: int) -> list[str]:
        """What a worker is started with; `descriptor` is its end of the socket pair."""
        page = self._page.path if self._page is not None else ""
        return [sys.executable, "-m", "deathless.shell.worker.worker", self.config_path, str(descriptor), page]

    def ingress_command(self) -> list[str]:
        """What an ingress is started with."""
        return [sys.executable, "-m", "deathless.shell.ingress.ingress", self.config_path, str(os.getpid())]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONHASHSEED": str(self._hash_seed),
            "PYTHONUNBUFFERED": "1",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def _worker_not_started(self, error: OSError, now: float) -> None:
        ours = as_ours(error, "start of the worker")
        self.worker.not_started(now)
        self.report.problem, self._last_error = ours.code, str(ours)
        if ours.code in FINAL_CODES:
            self.worker.start_at = None
            self._set_condition(ours.code, str(ours))
        _LOG.warning("worker can't be started", extra={"code": ours.code, "why": str(ours)})

    def _start_worker(self, now: float) -> None:
        self._page = self._open_page()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            self.worker.process = subprocess.Popen(
                self.worker_command(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                env={"GLIBC_TUNABLES": HUGE_PAGES, **self._environment()},
                stdin=subprocess.DEVNULL,
            )
            stack.pop_all()
        self.worker.started_at = now
        self.worker.start_at = None
        self._progress.begin()
        self._worker_deadline = float("inf")
        self._last_stop = None
        self._news.worker_started()
        self._worker_told, self._end_ordered, self._died_in = False, False, None
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
        elif self._died_in is not None and role not in ("primary", "taking-over"):
            # A logged message that kills a follower stops that follower alone, and an operator sees why (I11).
            self.report.problem = Parked.code
        if stop is not None and self._is_final(stop.code, role, now):
            if not self._waits_for_claim(role):
                child.start_at = None
            self._set_condition(stop.code, stop.text)
            _LOG.error("worker needs an operator", extra={"code": stop.code, "why": stop.text})
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

    def _waits_for_claim(self, role: str) -> bool:
        """Did a takeover end because another replica says that it has more? It is asked again with the next one."""
        return role == "taking-over" and self._claimed_lsn > self.report.lsn

    def _worker_diverged(self, text: str, now: float) -> None:
        """I6: tell the others, so that the primary checkpoints at once; start again from that, so often an hour."""
        self.worker.start_at = self._divergences.met(text, now)
        self.report.divergences = self._divergences.texts
        if self.worker.start_at is None:
            self._set_condition(DivergedError.code, text)
        _LOG.error("worker diverged", extra={"why": text, "times_this_hour": len(self.report.divergences)})

    def _count_death_in_page(self, *, gone: bool = True) -> None:
        """I11: the message that stands in the page when the worker dies, or is ended for it; counted once."""
        if self._page is None or (running := self._page.read_running()) is None:
            return
        if running != self._died_in and (running.session or running.seq):
            self._died_in = running
            if not self._end_ordered:
                self._deaths.met(running.session, running.seq)
                self.report.deaths = self._deaths.counts
                _LOG.warning("worker died in a message", extra={"session": running.session, "seq": running.seq})
        if gone:
            self._page.clear()  # without the storage: a second look would count it twice

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
            report.full, report.outbox_full, report.clock = page.full, page.outbox_full, page.clock
            report.unproved = page.cells[UNPROVED] >= UNPROVED_S * 1000
            self._tell_storage(page)

    def _tell_storage(self, page: Page) -> None:
        """Say what the worker's storage is just now, as long as it is so and nothing else is wrong."""
        slow = self.report.slow_ms >= SLOW_TOLD_MS
        error = _STORAGE.get(page.cells[STORAGE], StorageSlow if slow else None)
        code = error.code if error is not None else ""
        if code != self._storage_told and self.report.problem in ("", self._storage_told):
            self._storage_told = self.report.problem = code
            text = f"a write took {self.report.slow_ms} ms" if error is StorageSlow else self.config.directory
            self._last_error = str(error(text)) if error is not None else ""

    def _state_by_page(self, page: Page, now: float) -> WorkerState:
        signs = Signs(running=page.read_running(), ticks=page.cells[TICKS], calls=page.cells[CALLS])
        self.report.slow_ms = page.cells[SLOWEST]
        verdict = self._progress.look(signs, now, self.detector.call_max_s(now))
        if verdict is Verdict.FINE:
            return WorkerState.RUNNING
        if verdict is Verdict.OVERDUE and self.report.role != "recovering" and self.worker.process is not None:
            _LOG.error("nothing moved for turn_max_s; the worker is ended", extra={"running": signs.running})
            self.worker.process.kill()
            self._count_death_in_page(gone=False)  # told with STUCK: who takes over is not to run it unawares
        return WorkerState.STUCK

    def _worker_said(self, line: LineProtocol, record: object) -> None:
        if line is not self._line:
            return  # a former worker's
        match record:
            case RoleIs(role, epoch, reason, lsn):
                _LOG.info("role", extra={"role": role, "epoch": epoch, "why": reason, "lsn": lsn})
                if self._died is None:
                    self.report.role, self.report.lsn = role, lsn
                    led = self.detector.led(time.monotonic())
                    retried = self.report.condition == LogTruncated.code and role != "primary" and not led
                    if self.report.condition and not retried:
                        self.report.condition = ""
                        leave_word(self.config.termination_file, "")
                if role == "primary" and epoch > self.report.epoch:
                    self._takeovers += 1
                if role not in ("recovering", "taking-over"):
                    self.report.problem, self._last_error = "", ""
                self._served = self._served or role in SERVING
                self._missing.role_said(role, led=self.detector.led(time.monotonic()))
                self.report.epoch = max(epoch, self.report.epoch)
            case AddressesAre(client, replication, fingerprint):
                self.report.client, self.report.replication = client, replication
                self._fingerprint = fingerprint
                self._announce()
            case LockIs(epoch, holder):
                self.detector.lock_answered(epoch, holder, time.monotonic())
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
            Member(report.replica, *addresses, os.getpid(), report.instance, report.generation, proves=True)
        )

    def _members_seen(self, members: dict[str, Member]) -> None:
        self._members = members
        mine = members.get(self.config.replica)
        if mine is not None and mine.instance == self.report.instance:
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
            settings=self._settings.hash if self._settings else "",
            takeovers=self._takeovers,
            stopping=self._stop_ordered,
            others=tuple(sorted(set(self.detector.reports) - {report.replica})),
            led=report.role == "primary" or self.detector.led(now),
            silent=self.detector.silent(now, proved_s),
            **(waits_of(self._page) if self._page is not None and report.role == "primary" else {}),
        )

    def _tell_worker(self) -> None:
        if self._line is not None and self._died is None and self.report.role != "starting":
            self._news.tell(self._line.send, self.detector, time.monotonic())

    def _maybe_order_takeover(self, now: float) -> None:
        if self._line is None or self._died is not None or self._stop_ordered or self._page is None:
            return
        heard_ns = self._page.cells[UPSTREAM]
        age = (time.monotonic_ns() - heard_ns) / 1e9 if heard_ns else float("inf")
        order = self.detector.decide(now, age, self._page.cells[LOCK_ANSWERS] / 1000)
        if order is not None:
            _LOG.warning("takeover", extra={"epoch": order.epoch, "why": order.reason})
            self._claimed_lsn = order.confirmed_lsn
            self._line.send(TakeOver(order.epoch, order.reason, order.confirmed_lsn))

    # ---- control port ----------------------------------------------------------------------------------------

    def _report_received(self, report: Report) -> DeathlessError | None:
        """Another supervisor tells how it is; gives why it is not to be heard."""
        if report.replica == self.config.replica:
            return None
        if report.replica not in self.detector.reports:
            self._board.look()
        if self.detector.report_received(report, time.monotonic()):
            self._peers.heard(report.replica)
            return None
        later = self.detector.reports[report.replica].instance
        return OtherSupervisor(f"replica {report.replica} is run by instance {later}, which started later")

    def _control_packets_done(self) -> None:
        self._tell_worker()
        self._maybe_order_takeover(time.monotonic())

    def _restart_worker(self) -> None:
        now = time.monotonic()
        if self.worker.process is not None and self._line is not None:
            self._end_ordered = True
            self._worker_deadline = now + STOP_MAX_S + self._handover_wait_s
            self._line.send(Stop())
        elif not (self._stop_ordered or self._held):
            self.worker.start_at = now
            self._divergences.clear()
            self.report.divergences = []
            self._kick.set()

    def status(self) -> dict[str, object]:
        """What `deathless status` shows, as this supervisor knows it."""
        return status_of(self.config, self.detector, self._standing(), time.monotonic())

    def _spawn(self, work: object) -> None:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type,var-annotated]  # coroutines only
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(
    config: ReplicaConfig, config_path: str, *, reaps: bool = False, settings: SettingsFile | None = None
) -> int:
    """Run one supervisor to its end. Raises: as `Supervisor.run`."""
    return await Supervisor(config, config_path, reaps=reaps, settings=settings).run()


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
    never_wait()
    sys.exit(main())
