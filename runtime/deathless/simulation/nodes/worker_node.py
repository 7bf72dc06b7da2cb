"""A simulated worker: one replica's engine over the simulated disk, lock and network; twin of the shell's worker.

    supervisor <-- line --> worker <-- clients (client address), followers (replication address)
                              '--> primary (replication address of another worker)

Guarantees: the same order of steps as the real worker: a buffer's packets are taken in, all that is readable is read
before a frame is formed, completions come back at once, a lock without an answer is asked again. Every call of the
disk or the lock is a place where it may be frozen or killed. Does not: decide anything (core does). May import engine
and below, and the simulation's parts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar
from zlib import crc32

import msgspec

from deathless.base.errors import ActivityFailed, DeathlessError, Internal
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.shards import Sharding
from deathless.codec.peer_messages import ActivityStart, PeerHello, Reference, Target
from deathless.codec.snapshot import Begun, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import (
    Admin,
    Batch,
    Type,
    error_reply,
    ok_reply,
    struct_packet,
)
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.effects import Effect, RunFrame
from deathless.core.primary.suspicion import Runs
from deathless.core.replica.replica import Replica
from deathless.core.replica.witness import Sighting
from deathless.core.supervisor.detection import FOLLOWING_ROLES
from deathless.core.supervisor.records import (
    AddressesAre,
    AskLock,
    Deaths,
    Diverged,
    PrimaryIs,
    RoleIs,
    Stop,
    Stopping,
    TakeOver,
    ToSupervisor,
    ToWorker,
)
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.spool import Spool
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import FileSystem, Lock, LockView
from deathless.engine.replica.applying import Code
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.replica.upgrade_steps import Upgrade, to_be_made
from deathless.engine.shard.assembly import open_shard
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running
from deathless.simulation.nodes.checkpoints import Checkpoints
from deathless.simulation.nodes.connections import SimConnections
from deathless.simulation.nodes.former import SimFormer, SimUpgrade
from deathless.simulation.nodes.lock_port import LockChannel, SimLockPort
from deathless.simulation.nodes.peer_links import PeerLinks
from deathless.simulation.nodes.segment_maker import SimSegmentMaker
from deathless.simulation.nodes.upstream import SimUpstream
from deathless.simulation.workload.codes import LabCode
from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.directory import Stands
from deathless.simulation.world.network import Network
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Process, ProcessKilled, Timer

T = TypeVar("T")
PING_S: Final = 0.05  # an idle primary is heard by its followers this often
ACTIVITY_MAX_S: Final = 0.05  # how long an activity takes, at most
CRASH_SHARE: Final = 0.5  # of the attempts of a shaky activity
WITNESS_S: Final = 0.5  # between two points of the witness in the lock store: a run is short
STOP_US: Final = 5_000  # between the last words of a worker and its end
CHECK_EVERY: Final = 16  # events between two looks at all invariants of the session table


class Host(Stands, Protocol):
    """What a worker gets from its replica."""

    name: str
    service_name: str
    code: LabCode
    upgrade: SimUpgrade | None
    level: int  # newest format level that its build knows
    sharding: Sharding
    chance: random.Random
    clock: SimClock
    network: Network
    limits: Limits
    safeguards: Safeguards
    spool: Spool
    worker: Process
    helper: Process

    def open_filesystem(self, process: Process) -> FileSystem:
        """A view of the shared directory for one process."""
        ...

    def sightings(self) -> Sequence[Sighting]:
        """What the pages of this machine say was confirmed."""
        ...

    def open_lock(self, filesystem: FileSystem) -> tuple[Lock, LockChannel]:
        """The lock, to be asked at once while the worker starts, and the way to it afterwards."""
        ...

    def nonce(self) -> bytes:
        """16 bytes drawn."""
        ...

    def name_of(self, target: Target) -> str:
        """What a service, or a shard of it, is called in handshakes."""
        ...

    def addresses_of(self, target: Target) -> list[str]:
        """Client addresses of all its replicas."""
        ...

    def left_for(self, target: Target, data: bytes) -> None:
        """Packets leave for a peer: evidence for the verdict."""
        ...

    def activity_began(self, start: ActivityStart) -> None:
        """An activity begins: evidence for the verdict."""
        ...

    def tell_supervisor(self, record: ToSupervisor) -> None:
        """Send over the line."""
        ...

    def note(self, what: str) -> None:
        """Record in the trace."""
        ...

    def worker_stops(self, error: DeathlessError) -> None:
        """The worker ends with an error, for the verdict."""
        ...


class CheckedReplica(Replica):
    """The core with every invariant looked at after every event."""

    events = 0
    short_releases = 0

    def handle(self, event: ev.Event, now: float, wall_us: int) -> list[Effect]:
        """See Replica."""
        effects = super().handle(event, now, wall_us)
        self._check()
        return effects

    def short_frame(self, batches: Sequence[tuple[ev.Conn, Batch]], now: float, wall_us: int) -> RunFrame | None:
        """See Replica."""
        frame = super().short_frame(batches, now, wall_us)
        self._check()
        return frame

    def short_release(
        self, event: ev.FrameSynced, now: float, wall_us: int, *, plain: bool = False
    ) -> tuple[dict[ev.Conn, list[bytes]], list[Effect]]:
        """See Replica."""
        released = super().short_release(event, now, wall_us, plain=plain)
        self.short_releases += 1
        self._check()
        return released

    def _check(self) -> None:
        if self.primary is not None:
            self.primary.check_invariants()
        self.events += 1
        if self.events % CHECK_EVERY == 0:
            self._sessions.check_invariants()


def takes_short_way(seed: bytes, replica: str) -> bool:
    """May this replica's calls take the short way? Three in four may; it draws nothing from the run's seed."""
    return (seed[0] + crc32(replica.encode())) % 4 > 0


class SimLoop:
    """The loop of a simulated process, as its engine's host sees it."""

    def __init__(self, process: Process, clock: SimClock) -> None:
        self._process = process
        self.now = clock.now
        self.call_soon = process.post

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """See engine.replica.host.Loop. A microsecond is the step of virtual time: never before."""
        return self._process.call_later(max(0, math.ceil(seconds * 1e6)), callback)


class WorkerNode:
    """One life of a worker: what it is made of, what its supervisor orders, what it shows in its page, and its end."""

    def __init__(self, host: Host, page: Page) -> None:
        self.host = host
        self.page = page
        self.process = host.worker
        self.limits = host.limits
        self.engine: ReplicaEngine | None = None  # None: it is still starting
        self.primary_is = PrimaryIs(0, "", "", "")
        self.client_address = f"{host.machine}:1"
        self.replication_address = f"{host.machine}:2"
        self.stopping = False
        self.host_of_engine = EngineHost(SimLoop(host.worker, host.clock), self._switchover_refused)
        self.call_later = SimLoop(host.worker, host.clock).call_later
        self._connections = SimConnections(self)
        self._lock: SimLockPort
        self._checkpoints: Checkpoints
        self._unproved_since: float | None = None  # of the engine, at the last tick
        self._following = False

    # ---- life ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """First callback of the process: open everything and begin."""
        try:
            self._open()
        except DeathlessError as error:
            self.end(error)

    def _open(self) -> None:
        """Put the replica together, as a worker does; in one piece, since each part is handed to the next."""
        host, limits = self.host, self.limits
        filesystem = host.open_filesystem(self.process)
        lock, channel = host.open_lock(filesystem)
        self._lock = SimLockPort(self, channel)
        view = lock.view()
        record = view.service
        if record is None:
            raise Internal("the service is not in the lock store; the supervisor writes it first")
        identity = Identity(record.service_id, record.incarnation, record.fence, view.store_id)
        log = ShardLog(
            filesystem,
            limits,
            host.name,
            identity,
            host.safeguards,
            # A roll has syncs of its own: they would hide one that a test leaves out.
            maker=SimSegmentMaker(self, filesystem) if host.safeguards == ALL_SAFEGUARDS else None,
            nonce=f"{self.process.name}.{self.process.generation}",
            newest=host.level,
        )
        upgrade = self._upgrade(log, view)
        shard = open_shard(
            host.code.definition if host.upgrade is None else host.upgrade.to.definition,
            limits,
            record.seed,
            self.page.running,
            sharding=host.sharding,
            outbox=self.make_outbox(),
            safeguards=host.safeguards,
        )
        log.prepare()
        self._checkpoints = Checkpoints(self, filesystem, log.spare.free)
        self.engine = self.host_of_engine.engine = ReplicaEngine(
            core=CheckedReplica(
                replica=host.name,
                sessions=shard.sessions,
                place=shard.place,
                limits=limits,
                safeguards=host.safeguards,
                upgrade=upgrade.id if upgrade is not None else b"",
            ),
            shard=shard,
            log=log,
            service=record,
            store_id=view.store_id,
            code=Code(host.code.fingerprint, level=host.level),
            outside=Outside(
                clock=host.clock,
                lock=self._lock,
                clients=self._connections,
                upstream=SimUpstream(self),
                peers=PeerLinks(self),
                activities=self,
                checkpoints=self._checkpoints,
                witness=self,
                watchers=self,
                process=SimProcess(self),
            ),
            limits=limits,
            witness_s=WITNESS_S,
            safeguards=host.safeguards,
            short_way=takes_short_way(record.seed, host.name),
            upgrade=upgrade,
        )
        self.host_of_engine.intake = Intake(self.engine, self._admin)
        host.network.listen(self.process, self.client_address, self._connections.accept)
        host.network.listen(self.process, self.replication_address, self._connections.accept)
        host.tell_supervisor(AddressesAre(self.client_address, self.replication_address))
        self.call_later(PING_S, self._tick)
        self.host_of_engine.begin()

    def _upgrade(self, log: ShardLog, view: LockView) -> Upgrade | None:
        """Give what this replica was started for, unless it is made."""
        host, wanted = self.host, self.host.upgrade
        if wanted is None:
            return None
        record = view.service
        assert record is not None
        former = SimFormer(self, host.code, wanted, record.seed)
        code = Code(wanted.to.fingerprint, level=host.level)
        upgrade = Upgrade(wanted.id, wanted.from_generation, former, code, host.code.version, wanted.to.version, 1)
        if to_be_made(log.check_head(view.head) if view.head else None, upgrade):
            return upgrade
        host.code, host.upgrade = wanted.to, None
        return None

    def begin_first(self, state: dict[bytes, bytes], done: Callable[[Begun | None], None]) -> None:
        """Have a generation's first checkpoint begun with this state."""
        self._checkpoints.begin_first(state, done)

    @property
    def running_code(self) -> LabCode:
        """What runs messages here."""
        host = self.host
        made = host.upgrade is not None and self.running.fingerprint == host.upgrade.to.fingerprint
        return host.upgrade.to if made and host.upgrade is not None else host.code

    def make_outbox(self) -> Outbox:
        """Give an empty one, which spills as the limits say."""
        return Outbox(self.host.spool, self.limits.outbox_memory_bytes_max)

    @property
    def running(self) -> ReplicaEngine:
        """The engine, once it runs."""
        assert self.engine is not None
        return self.engine

    def end(self, error: DeathlessError | None, successor: str = "") -> None:
        """See Process: say why, send what was written, end."""
        self.stopping = True
        code, text = (error.code, str(error)) if error is not None else ("", "stopped in order")
        self.host.note(f"ends {code} {text}")
        if error is not None:
            self.host.worker_stops(error)
        self.host.tell_supervisor(Stopping(code, text, successor))
        self.process.call_later(STOP_US, self.process.kill)

    def ordered(self, record: ToWorker) -> None:
        """The supervisor says something."""
        if self.engine is None:
            # The real one reads its line only once its loop runs: nothing is lost, it comes later.
            self.call_later(0.001, lambda: self.ordered(record))
            return
        match record:
            case PrimaryIs(epoch, replica, client):
                self.primary_is = record
                self._watch_lock()
                self.post(ev.PrimarySeen(epoch, replica, client))
            case TakeOver(epoch, reason, confirmed_lsn):
                self.post(ev.TakeoverOrdered(epoch, reason, confirmed_lsn))
            case Deaths(session, seq, deaths):
                self.post(ev.DeathsReported(session, seq, deaths))
            case Diverged(replica, text):
                self.post(ev.DivergenceReported(replica, text))
            case AskLock():
                self._lock.tell()
            case Stop(at_once):
                self.post(ev.StopOrdered(at_once=at_once))

    def _tick(self) -> None:
        engine = self.running
        self.page.ticks += 1
        self.page.lsn = engine.place.lsn
        since = engine.unproved_since
        same = since is not None and since == self._unproved_since
        self.page.unproved_s = self.page.unproved_s + PING_S if same else 0.0
        self._unproved_since = since
        primary = engine.core.primary
        if primary is not None:
            self.page.full, self.page.outbox_full = primary.full, primary.outbox_full
            self._connections.ping_followers()
            engine.witness.maybe_store(engine.holder)
        self._checkpoints.confirmed(engine.core.confirmed_lsn)
        self.call_later(PING_S, self._tick)

    # ---- the engine ------------------------------------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Give the engine an event."""
        self.host_of_engine.post(event)

    def _switchover_refused(self, _conn: ev.Conn, _request: int, why: str) -> None:
        self.host.note(f"switchover failed: {why}")

    def answered(self, done: Callable[[], None]) -> None:
        """Call what was waited for, and do what it led to."""
        self._lock.answered(lambda _: done(), None)

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """See Witness."""
        self.page.confirmed = msgspec.structs.replace(point, boot=1)

    def sightings(self) -> Sequence[Sighting]:
        """See Witness."""
        return self.host.sightings()

    def boot(self) -> int:
        """See Witness. A page that a power cut ended is gone: whatever stands is of this boot."""
        return 1

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Watchers."""
        lsn = self.running.place.lsn
        self.page.lsn = lsn
        self._following = role in FOLLOWING_ROLES
        self._watch_lock()
        self.host.note(f"{role} epoch {epoch} lsn {lsn}: {reason}")
        self.host.tell_supervisor(RoleIs(role, epoch, reason, lsn))

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Watchers: nobody collects them here."""

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Watchers: nobody reads a log here."""

    def _watch_lock(self) -> None:
        self._lock.watch(self._following and self.primary_is.unproved)

    def start(self, start: ActivityStart) -> None:
        """See Activities: it ends some time later, with its own name, unless it is stopped before.

        The process of one that is called `shaky` crashes now and then.
        """
        self.host.activity_began(start)
        chance = self.host.chance
        reply = ok_reply(msgspec.msgpack.encode(start.name))
        if start.name == "shaky" and chance.random() < CRASH_SHARE:
            reply = error_reply(ActivityFailed.code, ActivityFailed.__name__, "its process ended")
        ended = ev.ActivityEnded(start.invocation, start.operation, start.attempt, reply)
        self.call_later(chance.random() * ACTIVITY_MAX_S, lambda: self.post(ended))

    def stop(self, reference: Reference) -> None:
        """See Activities: its end is not asked for any more."""

    # ---- the primary -----------------------------------------------------------------------------------------

    def primary_address(self) -> str:
        """Where clients find the primary."""
        return self.client_address if self.running.core.role_for_clients == "primary" else self.primary_is.client

    def followed_address(self, replica: str) -> str:
        """Where a replica that leads is followed; empty: that is not known."""
        return self.primary_is.replication if self.primary_is.replica == replica else ""

    def introduction(self, target: Target) -> bytes:
        """Give the PEER_HELLO packet of this primary for a target."""
        engine = self.running
        primary = engine.core.primary
        assert primary is not None
        record = engine.service
        host = self.host
        hello = PeerHello(host.code.definition.name, host.sharding.shard, record.service_id, record.incarnation)
        return struct_packet(Type.PEER_HELLO, primary.messaging.outreach.introduction(target, hello, primary.epoch))

    def _admin(self, _conn: ev.Conn, request: Admin) -> None:
        raise Internal(f"nobody sends {request.command} here")


class SimProcess:
    """The process of a simulated worker, as its engine sees it."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self.end = worker.end
        self.nonce = worker.host.nonce

    def complete(self, event: ev.Event) -> None:
        """See Process."""
        self._worker.running.post(event)

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """See Process."""
        self._worker.call_later(seconds, lambda: self._worker.answered(done))

    def try_out(self, runs: Runs) -> Running | None:
        """See Process: the copy is a shard of its own, made from what this one holds."""
        worker, cells = self._worker, bytearray(PAGE_BYTES)
        engine, host, limits = worker.running, worker.host, worker.limits
        service = engine.service
        code = worker.running_code
        copy = open_shard(
            code.definition,
            limits,
            service.seed,
            Cells(cells),
            sharding=host.sharding,
            safeguards=host.safeguards,
        )
        held = engine.shard.snapshot(
            service=service.name,
            service_id=service.service_id,
            incarnation=service.incarnation,
            epoch=engine.applying.log_epoch,
            fingerprint=engine.fingerprint,
        )
        copy.restore(held)
        try:
            copy.execute(runs)
        except ProcessKilled:
            worker.process.check()  # it may be this process that was killed
            return read_running(bytes(cells))
        return None
