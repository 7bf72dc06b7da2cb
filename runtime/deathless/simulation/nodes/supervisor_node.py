"""A simulated supervisor: the sockets, the line and the page around `core.supervisor.machine`; twin of the shell's.

Guarantees: what is decided is decided by the machine that runs for real, told in the same order: a worker's death at
once, its last words behind it. Its own death ends its worker. Does not: have an ingress or serve tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from deathless.base.backoff import next_pause, pause_after
from deathless.base.errors import LockUnavailable, OtherDirectory
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.versions import say_hello
from deathless.codec.wire import Hello, Refused, Type, decode_struct, struct_packet
from deathless.core.supervisor.detection import Detector, Report
from deathless.core.supervisor.dispatch import Dispatch
from deathless.core.supervisor.effects import (
    Effect,
    Exit,
    KillWorker,
    LookAgain,
    Note,
    PeerLives,
    ReadMembers,
    RefuseReport,
    StartWorker,
    Tell,
    TellPeers,
)
from deathless.core.supervisor.events import (
    Begun,
    Event,
    Fenced,
    HeartbeatDue,
    LineEnded,
    LineOpened,
    MembersSeen,
    MessageId,
    PageRead,
    ReportReceived,
    ReportsTaken,
    StopOrdered,
    Superseded,
    WorkerExited,
    WorkerSaid,
    WorkerStarted,
    WorkerSuspended,
)
from deathless.core.supervisor.machine import Settings, SupervisorMachine
from deathless.core.supervisor.records import ToSupervisor, ToWorker
from deathless.engine.ports import FileSystem, Lock, ServiceRecord
from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.directory import Stands
from deathless.simulation.world.network import Endpoint, Network
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Process, ProcessState, Timer
from deathless.simulation.world.sockets import Accepted, Opened

CONTROL_BUFFER_BYTES: Final = 4 << 20
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 2.0  # between two attempts to connect to a peer
RUNNER_PAUSE_US: Final = 100_000
NO_LIFE: Final = -1


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

    @property
    def local(self) -> bool:
        """Whether the log lies on a file system of this machine."""
        ...

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

    def start_worker(self) -> int:
        """Start the worker's process, with a fresh page; gives which life of it this is."""
        ...

    def tell_worker(self, record: ToWorker) -> None:
        """Send over the line."""
        ...

    def note(self, what: str) -> None:
        """Record in the trace."""
        ...


@dataclass(slots=True, kw_only=True)
class _Peer:
    """Another supervisor, as it announced itself last."""

    address: str
    connection: Opened | None = None
    delay_s: float = 0.0
    refusals: int = 0  # for which it stands in another directory than we
    try_at: float = 0.0  # not before, monotonic seconds


class SupervisorNode:
    """One life of a supervisor."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.process = host.supervisor
        self.machine = SupervisorMachine(Settings(replica=host.name, limits=host.limits), self._now(), host.safeguards)
        self._dispatch = Dispatch(self._handle, self._do)
        self._peers: dict[str, _Peer] = {}
        self._door = host.door("supervisor")
        self._number = 0
        self._timer: Timer | None = None
        self._kicked = False
        self._life = NO_LIFE  # of the worker's process, whose words count

    @property
    def report(self) -> Report:
        """What the other supervisors are told."""
        return self.machine.report

    @property
    def detector(self) -> Detector:
        """What is known of the set."""
        return self.machine.detector

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
        address = f"{host.machine}:3"
        host.network.listen(self.process, address, self._accept)
        self._take(Begun(address, local=host.local, running=self._take_running()))
        self._beat()

    def _beat(self) -> None:
        """One round of the loop."""
        self._kicked = False
        self._meet_members()
        self._take(HeartbeatDue())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.process.call_later(round(self.host.limits.heartbeat_s * 1e6), self._beat)

    def _beat_if_kicked(self) -> None:
        if self._kicked:
            self._beat()

    def order_stop(self) -> None:
        """SIGTERM: an orderly stop."""
        if not self.machine.stop.ordered:
            self.host.note("is told to stop")
        self._take(StopOrdered())

    def fence(self, fenced: bool) -> None:
        """An operator keeps the worker stopped, or does not any more."""
        self._take(Fenced(fenced))

    def be_superseded(self, later: str) -> None:
        """A later instance of this replica runs."""
        self._take(Superseded(later))

    # ---- events and effects ----------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._dispatch.take(event)

    def _handle(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self._now(), self._read_page())

    def _do(self, effect: Effect) -> None:
        host = self.host
        match effect:
            case TellPeers():
                data = struct_packet(Type.REPORT, effect.report)
                for peer in list(self._peers.values()):
                    if peer.connection is not None:
                        peer.connection.send(data)
            case Tell():
                host.tell_worker(effect.record)
            case StartWorker():
                self._life = host.start_worker()
                self._take(WorkerStarted())
                self._take(LineOpened())
            case KillWorker():
                host.worker.kill()
            case LookAgain():
                if not self._kicked:
                    self._kicked = True
                    self.process.post(self._beat_if_kicked)
            case PeerLives():
                self._peer_lives(effect.replica)
            case ReadMembers():
                self._meet_members()
            case Note():
                if effect.level != "info":
                    host.note(f"{effect.text} {effect.fields}")
            case Exit():
                host.withdraw()
                self.process.kill()
            case _:
                pass  # there is no ingress, nobody to read a word that is left, and everybody is announced

    def _peer_lives(self, name: str) -> None:
        """No need to wait longer before connecting to it."""
        peer = self._peers.get(name)
        if peer is not None and peer.connection is None:
            peer.try_at = 0.0

    def _read_page(self) -> PageRead | None:
        page = self.host.page
        if page is None:
            return None
        return PageRead(
            running=page.read_running(),
            ticks=page.ticks,
            calls=page.syncs,
            lsn=page.lsn,
            full=page.full,
            outbox_full=page.outbox_full,
            unproved_s=page.unproved_s,
            slowest_ms=page.slow_ms,
            upstream_age_s=self._now() - page.upstream_us / 1e6 if page.upstream_us else float("inf"),
            lock_answers_s=page.lock_answers_s,
        )

    def _take_running(self) -> MessageId | None:
        """The message that stands in the page of a worker that is gone, once."""
        page = self.host.page
        running = page.read_running() if page is not None else None
        if page is None or running is None:
            return None
        page.clear()
        return running

    # ---- the worker ------------------------------------------------------------------------------------------

    def worker_ended(self) -> None:
        """SIGCHLD: it died."""
        self._take(WorkerExited(1, self._take_running()))

    def line_ended(self, life: int) -> None:
        """Everything that a life of the worker said was told."""
        if life == self._life:
            self._life = NO_LIFE
            self._take(LineEnded())

    def children_changed(self) -> None:
        """SIGCHLD: it was stopped or goes on."""
        if self.host.worker.alive:
            self._take(WorkerSuspended(self.host.worker.state is ProcessState.FROZEN))

    def worker_said(self, life: int, record: ToSupervisor) -> None:
        """A life of the worker says something."""
        if life == self._life:
            self._take(WorkerSaid(record))

    # ---- other supervisors -----------------------------------------------------------------------------------

    def _meet_members(self) -> None:
        members = self.host.members()
        self._take(MembersSeen(frozenset(members)))
        now = self._now()
        for name, address in members.items():
            if name == self.host.name:
                continue
            peer = self._peers.setdefault(name, _Peer(address=address))
            if peer.address != address:  # it announces another one
                if peer.connection is not None:
                    peer.connection.close()
                peer.address, peer.connection, peer.try_at = address, None, 0.0
            if peer.connection is None and now >= peer.try_at:
                self._connect(name, peer)

    def _connect(self, name: str, peer: _Peer) -> None:
        def ready() -> None:
            peer.delay_s = 0.0
            self._do(LookAgain())

        def lost() -> None:
            if peer.connection is not connection:
                return
            peer.connection = None
            peer.delay_s = next_pause(peer.delay_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
            peer.try_at = self._now() + peer.delay_s

        hello = say_hello("supervisor", self.host.service_name, self.host.name)
        connection = peer.connection = Opened(
            self.host.network,
            self.process,
            peer.address,
            hello,
            received=lambda packets: self._told(name, packets),
            ready=ready,
            lost=lost,
            asker=self.host.asker("supervisor"),
        )

    def _told(self, name: str, packets: list[tuple[int, bytes]]) -> None:
        """All that a supervisor says on a connection that it accepted is that it refuses us."""
        for kind, body in packets:
            if kind != Type.REFUSED:
                continue
            code = decode_struct(Refused, body).code
            if code == OtherDirectory.code:
                self.host.note(f"{name} refuses us: {code}")
                self.host.refused(code)
                peer = self._peers[name]
                peer.refusals += 1
                peer.delay_s = pause_after(peer.refusals, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S) / 2

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
        for kind, body in packets:
            if kind == Type.REPORT and not self._report_taken(connection, decode_struct(Report, body)):
                connection.close()
                break
        self._take(ReportsTaken())

    def _report_taken(self, connection: Accepted, report: Report) -> bool:
        """False: this connection may not say this, or is not to be heard."""
        name = connection.hello.name if connection.hello is not None else ""
        if report.replica != name and self.host.safeguards.own_reports_only:
            return False
        effects = self._dispatch.ask(ReportReceived(report))
        return not any(isinstance(effect, RefuseReport) for effect in effects)
