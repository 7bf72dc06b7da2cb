"""A simulated supervisor: keeps its worker running, tells the others how it is, detects failure; twin of the shell's.

Guarantees: the same duties in the same order as the real supervisor: reports each heartbeat and at once on a change,
orders to take over by core.supervisor.detection, who is primary, deaths in a message (I11), restarts. Its own death
ends its worker. Does not: have an ingress or serve tools. May import engine and below, and the simulation's parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from deathless.base.backoff import next_pause, pause_after
from deathless.base.errors import LockUnavailable, LogTruncated, OtherDirectory
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import PROTOCOL_VERSION, Hello, Refused, Type, decode_struct, struct_packet
from deathless.core.replica.missing import Missing
from deathless.core.supervisor.detection import UNPROVED_S, Detector, Report, WorkerState
from deathless.core.supervisor.divergences import Divergences
from deathless.engine.ports import FileSystem, Lock, ServiceRecord
from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.directory import Stands
from deathless.simulation.world.line import (
    AddressesAre,
    AskLock,
    Deaths,
    Diverged,
    LockIs,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
    ToWorker,
)
from deathless.simulation.world.network import Endpoint, Network
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Process, ProcessState, Timer
from deathless.simulation.world.sockets import Accepted, Opened

CONTROL_BUFFER_BYTES: Final = 4 << 20
RESTART_MIN_S, RESTART_MAX_S = 0.05, 5.0
STABLE_S: Final = 10.0
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 2.0  # between two attempts to connect to a peer
RUNNER_PAUSE_US: Final = 100_000
ORDERED_END_CODES: Final = frozenset({"", "DL2001"})
FINAL_CODES: Final = frozenset(
    {"DL3001", "DL3012", "DL3013", "DL4001", "DL4003", "DL4004", "DL4005", "DL4006", "DL4007", "DL4009"}
)
"""As the shell's: errors an operator must act on; the worker is not started again."""
DIVERGED_CODE: Final = "DL4008"


class Host(Stands, Protocol):
    """What a supervisor gets from its replica."""

    name: str
    service_name: str
    clock: SimClock
    network: Network
    limits: Limits
    safeguards: Safeguards
    worker: Process
    supervisor: Process
    page: Page | None
    local: bool  # the log lies on a file system of this machine

    def open_filesystem(self, process: Process) -> FileSystem:
        """A view of the shared directory for one process."""
        ...

    def open_first_lock(self, filesystem: FileSystem, process: Process) -> Lock:
        """The lock, to be asked at once."""
        ...

    def draw_service(self) -> ServiceRecord:
        """What a service keeps for its life, as this replica would draw it."""
        ...

    def members(self) -> Mapping[str, str]:
        """Control addresses of all replicas that have announced themselves, by name."""
        ...

    def refused(self, code: str) -> None:
        """Another replica does not go on with us, or we with it: evidence for the verdict."""
        ...

    def withdraw(self) -> None:
        """Take our announcement back."""
        ...

    def start_worker(self) -> None:
        """Start the worker's process, with a fresh page."""
        ...

    def tell_worker(self, record: ToWorker) -> None:
        """Send over the line."""
        ...

    def note(self, what: str) -> None:
        """Record in the trace."""
        ...


class SupervisorNode:
    """One life of a supervisor."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.process = host.supervisor
        self.limits = host.limits
        self.detector = Detector(replica=host.name, limits=host.limits, now=self._now(), safeguards=host.safeguards)
        self.report = Report(replica=host.name, state=WorkerState.DEAD, role="starting", epoch=0, lsn=0)
        self.stays_stopped = ""  # code of the error that an operator must act on
        self._peers: dict[str, Opened] = {}
        self._addresses: dict[str, str] = {}  # at which each peer was tried last
        self._door = host.door("supervisor")
        self._number = 0
        self._timer: Timer | None = None
        self._kicked = False
        self._delays: dict[str, float] = {}  # between two attempts to connect to a peer, seconds
        self._refusals: dict[str, int] = {}  # for which it stands in another directory than we
        self._try_at: dict[str, float] = {}  # not before, monotonic seconds
        self._started_at = 0.0
        self._delay_s = 0.0
        self._start_at: float | None = 0.0
        self._worker_runs = False
        self._told_primary: PrimaryIs | None = None
        self._told_deaths: dict[tuple[int, int], int] = {}  # deaths told to this worker
        self._deaths: dict[tuple[int, int], int] = {}
        self._last_stop: Stopping | None = None
        self._missing = Missing()
        self._claimed_lsn = 0  # of the last order to take over: what another replica says it has applied
        self.stop_ordered = False
        self._worker_told = False  # this worker has got its Stop
        self._running_since: tuple[object, float] = (None, 0.0)
        self._sync_since: tuple[int, float] = (0, 0.0)
        self._divergences = Divergences(self.limits.rebases_per_hour_max)
        self._told_divergences: dict[str, int] = {}

    def _now(self) -> float:
        return self.host.clock.steady_us() / 1e6

    # ---- life ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """First callback of the process: write the service if there is none, then begin."""
        host = self.host
        filesystem = host.open_filesystem(self.process)
        while True:
            try:
                lock = host.open_first_lock(filesystem, self.process)
                if lock.view().service is None:
                    lock.create_service(host.draw_service())
                break
            except (LockUnavailable, OSError):
                # The real one ends, and its runner starts it again.
                self.process.pause(RUNNER_PAUSE_US)
        self._count_death_in_page()
        host.network.listen(self.process, f"{host.machine}:3", self._accept)
        self.report.control = f"{host.machine}:3"
        self._turn()

    def _turn(self) -> None:
        """One round of the loop."""
        self._kicked = False
        now = self._now()
        if self.stop_ordered and not self._worker_runs:
            self.host.withdraw()
            self.process.kill()
        self._meet_members()
        if not self._worker_runs and self._start_at is not None and now >= self._start_at:
            self._start_worker(now)
        self._watch_worker(now)
        self._tell_others(now)
        self._maybe_order_takeover(now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.process.call_later(round(self.limits.heartbeat_s * 1e6), self._turn)

    def _kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            self.process.post(self._turn_if_kicked)

    def _turn_if_kicked(self) -> None:
        if self._kicked:
            self._turn()

    def order_stop(self) -> None:
        """SIGTERM: an orderly stop."""
        if self.stop_ordered:
            return
        self.host.note("is told to stop")
        self.stop_ordered = True
        self._start_at = None
        self._pass_stop_on()
        self._kick()

    def _pass_stop_on(self) -> None:
        """The worker is told once it can hear."""
        if self.stop_ordered and not self._worker_told and self._worker_runs:
            self._worker_told = True
            self.host.tell_worker(Stop())

    # ---- the worker ------------------------------------------------------------------------------------------

    def _start_worker(self, now: float) -> None:
        self.host.start_worker()
        self._worker_runs = True
        self._started_at = now
        self._start_at = None
        self._last_stop = None
        self._told_primary = None
        self._told_deaths.clear()
        report = self.report
        report.state, report.role, report.client, report.replication = WorkerState.STARTING, "starting", "", ""
        report.successor = ""

    def worker_ended(self) -> None:
        """SIGCHLD: it died."""
        now = self._now()
        self._worker_runs = False
        self._count_death_in_page()
        stop = self._last_stop
        if (stop is not None and stop.code in ORDERED_END_CODES) or now - self._started_at >= STABLE_S:
            self._delay_s = 0.0
        else:
            self._delay_s = next_pause(self._delay_s, first_s=RESTART_MIN_S, most_s=RESTART_MAX_S)
        self._start_at = now + self._delay_s
        role = self.report.role
        self.report.state = WorkerState.DEAD
        self.report.role = "dead"
        if stop is not None and self._is_final(stop.code, role, now):
            if not self._waits_for_claim(role):
                self._start_at = None
            self.report.condition = self.stays_stopped = stop.code
        elif stop is not None and stop.code == DIVERGED_CODE:
            self._worker_diverged(stop.text, now)
        if self.stop_ordered:
            self._start_at = None
        self.children_changed()

    def _is_final(self, code: str, role: str, now: float) -> bool:
        """Would a new worker meet the same?"""
        if code != LogTruncated.code:
            return code in FINAL_CODES
        return self._missing.ended(role, now, local=self.host.local)

    def _waits_for_claim(self, role: str) -> bool:
        """Did a takeover end because another replica says that it has more? It is asked again with the next one."""
        return role == "taking-over" and self._claimed_lsn > self.report.lsn

    def _worker_diverged(self, text: str, now: float) -> None:
        """I6: tell the others, so that the primary checkpoints at once; start again from that, not too often."""
        self._start_at = self._divergences.met(text, now)
        self.report.divergences = self._divergences.texts
        if self._start_at is None:
            self.report.condition = self.stays_stopped = DIVERGED_CODE

    def children_changed(self) -> None:
        """SIGCHLD: it died, was stopped or goes on."""
        now = self._now()
        self._watch_worker(now)
        self._tell_others(now)
        self._kick()

    def _count_death_in_page(self) -> None:
        """I11: the message that stood in the page when the worker died, and was not completed."""
        running = self.host.page.read_running() if self.host.page is not None else None
        if running is None:
            return
        self.host.page = None
        if running.session or running.seq:
            key = (running.session, running.seq)
            self._deaths[key] = self._deaths.get(key, 0) + 1
            self.report.deaths = [(session, seq, count) for (session, seq), count in self._deaths.items()]
            self.host.note(f"worker died in message {key}, {self._deaths[key]} times")

    def _watch_worker(self, now: float) -> None:
        """Keep our own report true."""
        report, page = self.report, self.host.page
        report.unproved = False
        if not self._worker_runs:
            report.state = WorkerState.DEAD
        elif self.host.worker.state is ProcessState.FROZEN:
            report.state = WorkerState.STOPPED
        elif page is not None and report.role != "starting":
            report.state = WorkerState.STUCK if self._is_stuck(page, now) else WorkerState.RUNNING
            report.lsn, report.slow_ms = page.lsn, page.slow_ms
            report.full, report.outbox_full = page.full, page.outbox_full
            report.unproved = page.unproved_s >= UNPROVED_S

    def _is_stuck(self, page: Page, now: float) -> bool:
        running = page.read_running()
        if running != self._running_since[0]:
            self._running_since = (running, now)
        if page.syncs != self._sync_since[0]:
            self._sync_since = (page.syncs, now)
        if running is not None and now - self._running_since[1] > self.limits.turn_max_s:
            self.host.worker.kill()
            return True
        return bool(page.syncs % 2) and now - self._sync_since[1] > self.detector.call_max_s(now)

    def worker_said(self, record: ToSupervisor) -> None:
        """The worker says something."""
        match record:
            case RoleIs(role, epoch, _, lsn):
                self.report.role, self.report.lsn = role, lsn
                self.report.epoch = max(epoch, self.report.epoch)
                led = self.detector.led(self._now())
                if role == "primary" or led or self.stays_stopped != LogTruncated.code:
                    self.report.condition = self.stays_stopped = ""
                self._missing.role_said(role, led=led)
            case AddressesAre(client, replication):
                self.report.client, self.report.replication = client, replication
            case LockIs(epoch, holder):
                self.detector.lock_answered(epoch, holder, self._now())
            case Stopping():
                self._last_stop = record
                self.report.successor = record.successor
                if self.report.role == "primary":
                    self.report.role = "stopping"
        now = self._now()
        self._watch_worker(now)
        self._tell_others(now)
        self._kick()

    # ---- other supervisors -----------------------------------------------------------------------------------

    def _meet_members(self) -> None:
        members = self.host.members()
        self.detector.members_seen(set(members))
        self.detector.forget_removed(self._now())
        now = self._now()
        for name, address in members.items():
            if name == self.host.name:
                continue
            if self._addresses.setdefault(name, address) != address:  # it announces another one
                self._addresses[name] = address
                self._try_at.pop(name, None)
                if name in self._peers:
                    self._peers.pop(name).close()
            if name not in self._peers and now >= self._try_at.get(name, 0.0):
                self._connect(name, address)

    def _connect(self, name: str, address: str) -> None:
        def ready() -> None:
            self._delays[name] = 0.0
            self._kick()

        def lost() -> None:
            if self._peers.get(name) is not connection:
                return
            del self._peers[name]
            self._delays[name] = next_pause(self._delays.get(name, 0.0), first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
            self._try_at[name] = self._now() + self._delays[name]

        hello = Hello(PROTOCOL_VERSION, "supervisor", self.host.service_name, self.host.name)
        connection = self._peers[name] = Opened(
            self.host.network,
            self.process,
            address,
            hello,
            received=lambda packets: self._told(name, packets),
            ready=ready,
            lost=lost,
            asker=self.host.asker("supervisor"),
        )

    def _told(self, name: str, packets: list[tuple[int, bytes]]) -> None:
        """All that a supervisor says on a connection that it accepted is that it refuses us."""
        for kind, body in packets:
            if kind == Type.REFUSED:
                code = decode_struct(Refused, body).code
                if code == OtherDirectory.code:
                    self.host.note(f"{name} refuses us: {code}")
                    self.host.refused(code)
                    self._refusals[name] = self._refusals.get(name, 0) + 1
                    refused = self._refusals[name]
                    self._delays[name] = pause_after(refused, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S) / 2

    def _tell_others(self, now: float) -> None:
        self.report.heard = self.detector.heard_ms(now)
        self.detector.report_received(msgspec.structs.replace(self.report), now)
        data = struct_packet(Type.REPORT, self.report)
        for connection in list(self._peers.values()):
            connection.send(data)
        self._tell_worker()

    def _tell_worker(self) -> None:
        if not self._worker_runs or self.report.role == "starting":
            return
        if self.detector.claims.question_due(self._now()):
            self.host.tell_worker(AskLock())
        claim = self.detector.primary
        if claim is not None:
            unproved = self.detector.unproved(self._now())
            told = PrimaryIs(claim.epoch, claim.replica, claim.client, claim.replication, unproved)
            if told != self._told_primary:
                self._told_primary = told
                self.host.tell_worker(told)
        deaths: dict[tuple[int, int], int] = {}
        for report in self.detector.reports.values():
            if len(report.divergences) > self._told_divergences.get(report.replica, 0):
                self.host.tell_worker(Diverged(report.replica, report.divergences[-1]))
            self._told_divergences[report.replica] = len(report.divergences)
            for session, seq, count in report.deaths:
                deaths[session, seq] = deaths.get((session, seq), 0) + count
        for (session, seq), total in deaths.items():
            if self._told_deaths.get((session, seq)) != total:
                self.host.tell_worker(Deaths(session, seq, total))
        for session, seq in sorted(self._told_deaths.keys() - deaths.keys()):
            self.host.tell_worker(Deaths(session, seq, 0))
        self._told_deaths = deaths

    def _maybe_order_takeover(self, now: float) -> None:
        page = self.host.page
        if not self._worker_runs or self.stop_ordered or page is None:
            return
        age = now - page.upstream_us / 1e6 if page.upstream_us else float("inf")
        order = self.detector.decide(now, age, page.lock_answers_s)
        if order is not None:
            self._claimed_lsn = order.confirmed_lsn
            self.host.note(f"orders a takeover from epoch {order.epoch}: {order.reason}")
            self.host.tell_worker(TakeOver(order.epoch, order.reason, order.confirmed_lsn))

    # ---- control address -------------------------------------------------------------------------------------

    def _accept(self, end: Endpoint) -> None:
        self._number += 1
        Accepted(self, self._number, end, CONTROL_BUFFER_BYTES, self.host.service_name, self._door)

    def opened(self, connection: Accepted, hello: Hello) -> None:
        """See sockets.Owner."""
        self.host.let_in(connection.machine, hello.kind)

    def lost(self, connection: Accepted) -> None:
        """See sockets.Owner."""

    def packets(self, connection: Accepted, packets: list[tuple[int, bytes]]) -> None:
        """See sockets.Owner: reports of other supervisors."""
        now = self._now()
        for kind, body in packets:
            if kind == Type.REPORT:
                report = decode_struct(Report, body)
                name = connection.hello.name if connection.hello is not None else ""
                if report.replica != name and self.host.safeguards.own_reports_only:
                    connection.close()
                    break
                self.detector.report_received(report, now)
                if report.replica not in self._peers:  # it lives: no need to wait longer
                    self._try_at.pop(report.replica, None)
                    self._meet_members()
        self._tell_worker()
        self._maybe_order_takeover(now)
