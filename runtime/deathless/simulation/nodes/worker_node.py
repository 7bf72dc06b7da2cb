"""A simulated worker: one replica's engine over the simulated disk, lock and network; twin of the shell's worker.

    supervisor <-- line --> worker <-- clients (client address), followers (replication address)
                              '--> primary (replication address of another worker)

Guarantees: the same order of steps as the real worker: a buffer's packets are taken in, all that is readable is read
before a frame is formed, completions come back at once, a lock without an answer is asked again. Every call of the
disk or the lock is a place where it may be frozen or killed. Does not: decide anything (core does). May import engine
and below, and the simulation's parts.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar, cast

import msgspec

from deathless.base.backoff import next_pause
from deathless.base.errors import ActivityFailed, DeathlessError, Internal, LockUnavailable
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.base.shards import Sharding
from deathless.base.storage import Use, waits
from deathless.codec.checkpoint import decode
from deathless.codec.peer_messages import ActivityStart, PeerHello, Reference, Target
from deathless.codec.snapshot import Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.versions import say_hello
from deathless.codec.wire import (
    Admin,
    Follow,
    Hello,
    Type,
    error_reply,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.effects import Effect
from deathless.core.primary.suspicion import Runs
from deathless.core.replica.replica import Replica
from deathless.core.replica.witness import Sighting
from deathless.core.supervisor.detection import FOLLOWING_ROLES
from deathless.core.supervisor.records import (
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
from deathless.core.tables.logical_time import Anchor
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.spool import Spool
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.own_history import counted_on_log
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import AsyncLock, FileSystem, Holder, Lock, LockView
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.shard.assembly import open_shard
from deathless.execution.author.service import Service
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running
from deathless.simulation.nodes.peer_links import PeerLinks
from deathless.simulation.world.clock import SimClock
from deathless.simulation.world.directory import Stands
from deathless.simulation.world.network import Endpoint, Network
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Process, ProcessKilled, ProcessState, Timer
from deathless.simulation.world.sockets import Accepted, Opened

T = TypeVar("T")
LOCK_RETRY_MIN_S: Final = 0.02
LOCK_RETRY_MAX_S: Final = 0.25
LOCK_ASK_S: Final = 0.2  # between two asks whether the lock store answers a follower
LOCK_ANSWER_S: Final = 0.5  # an answer that takes longer is a miss
PING_S: Final = 0.05  # an idle primary is heard by its followers this often
ACTIVITY_MAX_S: Final = 0.05  # how long an activity takes, at most
CRASH_SHARE: Final = 0.5  # of the attempts of a shaky activity
WITNESS_S: Final = 0.5  # between two points of the witness in the lock store: a run is short
STOP_US: Final = 5_000  # between the last words of a worker and its end
FINGERPRINT: Final = bytes(range(16))
CHECK_EVERY: Final = 16  # events between two looks at all invariants of the session table


class LockChannel(Protocol):
    """The way to the lock: at once for a directory, over a network for a store."""

    def ask(
        self,
        worker: WorkerNode,
        operation: Callable[[Lock], object],
        answered: Callable[[object], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Carry an operation out; one of the two is called in the worker, later."""
        ...


class Host(Stands, Protocol):
    """What a worker gets from its replica."""

    name: str
    service_name: str
    definition: Service
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

    def handle(self, event: ev.Event, now: float, wall_us: int) -> list[Effect]:
        """See Replica."""
        effects = super().handle(event, now, wall_us)
        if self.primary is not None:
            self.primary.check_invariants()
        self.events += 1
        if self.events % CHECK_EVERY == 0:
            self._sessions.check_invariants()
        return effects


class WorkerNode:
    """One life of a worker: the simulated `Outside` of its engine, and the owner of its connections."""

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
        self._intake: Intake
        self._lock: LockChannel
        self._connections: dict[int, Accepted] = {}
        self._followers: dict[int, None] = {}
        self._conn_number = 0
        self._upstream: Opened | None = None
        self._peer_links = PeerLinks(self)
        self._door = host.door("worker")
        self._flushing = False
        self._timer: Timer | None = None
        self._timer_at: float | None = None
        self._checkpoints: Checkpoints
        self._unproved_since: float | None = None  # of the engine, at the last tick
        self._following = False
        self._lock_watch = 0  # number of the present watch of the lock; odd while it asks

    # ---- life ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """First callback of the process: open everything and begin."""
        try:
            self._open()
        except DeathlessError as error:
            self.stop(error)

    def _open(self) -> None:
        host, limits = self.host, self.limits
        filesystem = host.open_filesystem(self.process)
        lock, self._lock = host.open_lock(filesystem)
        view = lock.view()
        record = view.service
        if record is None:
            raise Internal("the service is not in the lock store; the supervisor writes it first")
        shard = open_shard(
            host.definition,
            limits,
            record.seed,
            self.page.running,
            sharding=host.sharding,
            outbox=self.make_outbox(),
            safeguards=host.safeguards,
        )
        identity = Identity(record.service_id, record.incarnation, record.fence, view.store_id)
        log = ShardLog(filesystem, limits, host.name, identity, host.safeguards)
        log.prepare()
        self._checkpoints = Checkpoints(self, filesystem, log.spare.free)
        self.engine = ReplicaEngine(
            core=CheckedReplica(
                replica=host.name,
                sessions=shard.sessions,
                place=shard.place,
                limits=limits,
                safeguards=host.safeguards,
            ),
            shard=shard,
            log=log,
            service=record,
            store_id=view.store_id,
            fingerprint=FINGERPRINT,
            outside=self,
            limits=limits,
            witness_s=WITNESS_S,
            safeguards=host.safeguards,
        )
        self._intake = Intake(self.engine, self._admin)
        host.network.listen(self.process, self.client_address, self._accept)
        host.network.listen(self.process, self.replication_address, self._accept)
        host.tell_supervisor(AddressesAre(self.client_address, self.replication_address))
        self._call_later(PING_S, self._tick)
        self.engine.begin()
        self._set_timer()

    def make_outbox(self) -> Outbox:
        """Give an empty one, which spills as the limits say."""
        return Outbox(self.host.spool, self.limits.outbox_memory_bytes_max)

    @property
    def running(self) -> ReplicaEngine:
        """The engine, once it runs."""
        assert self.engine is not None
        return self.engine

    def stop(self, error: DeathlessError | None, successor: str = "") -> None:
        """See Outside: say why, send what was written, end."""
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
            self._call_later(0.001, lambda: self.ordered(record))
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
                self._tell_lock()
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
            ping = packet(Type.PING)
            for number in list(self._followers):
                self._connections[number].send(ping)
            engine.witness.maybe_store(engine.holder)
        self._checkpoints.confirmed(engine.core.confirmed_lsn)
        self._call_later(PING_S, self._tick)

    # ---- engine loop -----------------------------------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Give the engine an event."""
        self.running.post(event)
        self._after()

    def _after(self) -> None:
        primary = self.running.core.primary
        if primary is not None and primary.switchover_failed is not None:
            self.host.note(f"switchover failed: {primary.switchover_failed[2]}")
            primary.switchover_failed = None
        self._set_timer()

    def _flush(self) -> None:
        self._flushing = False
        self._intake.drained()
        self._after()

    def _schedule_flush(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.process.post(self._flush)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self.process.call_later(max(0, round(delay_s * 1e6)), callback)

    def _set_timer(self) -> None:
        deadline = self.running.deadline()
        if deadline == self._timer_at:
            return
        self._timer_at = deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            # A microsecond is the step of virtual time: never fire before the deadline.
            self._timer = self._call_later(deadline - self.now() + 1e-6, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer_at = None
        self._timer = None
        self.post(ev.TimerFired())

    # ---- Outside ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """See Outside."""
        return self.host.clock.steady_us() / 1e6

    def wall_us(self) -> int:
        """See Outside."""
        return self.host.clock.wall_us()

    def boot_us(self) -> int:
        """See Outside."""
        return self.host.clock.boot_us()

    def anchor(self) -> Anchor | None:
        """See Outside."""
        return self.host.clock.anchor()

    def note_anchor(self, anchor: Anchor) -> None:
        """See Outside."""
        self.host.clock.note(anchor)

    def nonce(self) -> bytes:
        """See Outside."""
        return self.host.nonce()

    def try_out(self, runs: Runs) -> Running | None:
        """See Outside: the copy is a shard of its own, made from what this one holds."""
        engine, host, limits, cells = self.running, self.host, self.limits, bytearray(PAGE_BYTES)
        service = engine.service
        copy = open_shard(
            host.definition, limits, service.seed, Cells(cells), sharding=host.sharding, safeguards=host.safeguards
        )
        held = engine.shard.snapshot(
            service=service.name,
            service_id=service.service_id,
            incarnation=service.incarnation,
            epoch=engine.log_epoch,
            fingerprint=FINGERPRINT,
        )
        copy.restore(held)
        try:
            copy.execute(runs)
        except ProcessKilled:
            self.process.check()  # it may be this process that was killed
            return read_running(bytes(cells))
        return None

    def complete(self, event: ev.Event) -> None:
        """See Outside."""
        self.running.post(event)

    def lock(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """See Outside."""
        self._ask_lock(
            cast("Callable[[Lock], object]", operation), cast("Callable[[object], None]", done), LOCK_RETRY_MIN_S
        )

    def _ask_lock(self, operation: Callable[[Lock], object], done: Callable[[object], None], pause_s: float) -> None:
        def failed(error: Exception) -> None:
            if isinstance(error, LockUnavailable):
                longer_s = next_pause(pause_s, first_s=LOCK_RETRY_MIN_S, most_s=LOCK_RETRY_MAX_S)
                self._call_later(pause_s, lambda: self._ask_lock(operation, done, longer_s))
            else:
                self._broken(error)

        self._lock.ask(self, operation, lambda answer: self._answered(done, answer), failed)

    def take_lock(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """See Outside."""

        def found(view: LockView) -> None:
            held = view.holder
            done(held if held is not None and held.nonce == nonce else None)

        def failed(error: Exception) -> None:
            if isinstance(error, LockUnavailable):
                self.lock(lambda lock: lock.view(), found)
            else:
                self._broken(error)

        self._lock.ask(
            self,
            lambda lock: lock.take(replica, nonce, seen),
            lambda answer: self._answered(cast("Callable[[object], None]", done), answer),
            failed,
        )

    def _answered(self, done: Callable[[object], None], answer: object) -> None:
        try:
            done(answer)
        except DeathlessError as error:
            self._broken(error)
        self._after()

    def _broken(self, error: Exception) -> None:
        self.post(ev.Failed(as_ours(error, "asking the lock")))

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """See Outside."""
        self.page.confirmed = msgspec.structs.replace(point, boot=1)

    def sightings(self) -> Sequence[Sighting]:
        """See Outside."""
        return self.host.sightings()

    def boot(self) -> int:
        """See Outside. A page that a power cut ended is gone: whatever stands is of this boot."""
        return 1

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """See Outside."""
        self._call_later(seconds, lambda: self._answered(lambda _: done(), None))

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """See Outside."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.send(data)

    def disconnect(self, conn: ev.Conn) -> None:
        """See Outside."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.close()

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Outside."""
        lsn = self.running.place.lsn
        self.page.lsn = lsn
        self._following = role in FOLLOWING_ROLES
        self._watch_lock()
        self.host.note(f"{role} epoch {epoch} lsn {lsn}: {reason}")
        self.host.tell_supervisor(RoleIs(role, epoch, reason, lsn))

    def _watch_lock(self) -> None:
        """A follower whose primary gets no answer from the lock store finds out whether it does itself."""
        if (self._following and self.primary_is.unproved) != bool(self._lock_watch % 2):
            self._lock_watch += 1
            self.page.lock_answers_s = 0.0
            if self._lock_watch % 2:
                self._ask_if_it_answers(self._lock_watch, None)

    def _tell_lock(self) -> None:
        """The supervisor doubts what others claim: say what the lock says, if it answers."""

        def answered(view: object) -> None:
            assert isinstance(view, LockView)
            holder = view.holder.replica if view.holder is not None else ""
            self.host.tell_supervisor(LockIs(view.epoch, holder))

        self._lock.ask(self, lambda lock: lock.view(), answered, lambda _: None)

    def _ask_if_it_answers(self, watch: int, since: float | None) -> None:
        if watch != self._lock_watch:
            return
        asked = self.now()

        def ended(answered: bool) -> None:
            if watch == self._lock_watch:
                first = (since or self.now()) if answered and self.now() - asked <= LOCK_ANSWER_S else None
                self.page.lock_answers_s = self.now() - first if first is not None else 0.0
                self._call_later(LOCK_ASK_S, lambda: self._ask_if_it_answers(watch, first))

        self._lock.ask(self, lambda lock: lock.view(), lambda _: ended(True), lambda _: ended(False))

    def dial_peer(self, target: Target) -> None:
        """See Outside."""
        self._peer_links.dial(target)

    def send_peer(self, target: Target, data: bytes) -> None:
        """See Outside."""
        self._peer_links.send(target, data)

    def drop_peer(self, target: Target) -> None:
        """See Outside."""
        self._peer_links.drop(target)

    def start_activity(self, start: ActivityStart) -> None:
        """See Outside: it ends some time later, with its own name, unless it is stopped before.

        The process of one that is called `shaky` crashes now and then.
        """
        self.host.activity_began(start)
        chance = self.host.chance
        reply = ok_reply(msgspec.msgpack.encode(start.name))
        if start.name == "shaky" and chance.random() < CRASH_SHARE:
            reply = error_reply(ActivityFailed.code, ActivityFailed.__name__, "its process ended")
        ended = ev.ActivityEnded(start.invocation, start.operation, start.attempt, reply)
        self._call_later(chance.random() * ACTIVITY_MAX_S, lambda: self.post(ended))

    def stop_activity(self, reference: Reference) -> None:
        """See Outside: its end is not asked for any more."""

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Outside: nobody collects them here."""

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Outside: nobody reads a log here."""

    def introduction(self, target: Target) -> bytes:
        """Give the PEER_HELLO packet of this primary for a target."""
        engine = self.running
        primary = engine.core.primary
        assert primary is not None
        record = engine.service
        host = self.host
        hello = PeerHello(host.definition.name, host.sharding.shard, record.service_id, record.incarnation)
        return struct_packet(Type.PEER_HELLO, primary.messaging.outreach.introduction(target, hello, primary.epoch))

    def load_checkpoint(self) -> Snapshot | None:
        """See Outside."""
        return self._checkpoints.load_newest()

    def write_checkpoint(self, snapshot: Callable[[], Snapshot], done: Callable[[int, str], None]) -> None:
        """See Outside."""
        self._checkpoints.write(snapshot(), done)

    def verify_checkpoint(self, lsn: int, name: str, done: Callable[[bool], None]) -> None:
        """See Outside."""
        self._checkpoints.verify(name, done)

    def prune_checkpoints(self, below: int) -> None:
        """See Outside."""
        self._checkpoints.prune(below)

    def verified_checkpoints(self, head: int, done: Callable[[list[int]], None]) -> None:
        """See Outside."""
        self._checkpoints.count(head, done)

    # ---- the primary's stream --------------------------------------------------------------------------------

    def follow(self, replica: str, epoch: int, lsn: int, chain: bytes) -> None:
        """See Outside."""
        address = self.primary_is.replication if self.primary_is.replica == replica else ""
        connection = Opened(
            self.host.network,
            self.process,
            address,
            say_hello(
                "follower",
                self.host.service_name,
                self.host.name,
                fingerprint=self.running.fingerprint,
            ),
            received=self._upstream_packets,
            ready=lambda: self._upstream_ready(connection),
            lost=lambda: self._upstream_lost(connection),
            asker=self.host.asker("worker"),
        )
        self._upstream = connection

    def _upstream_ready(self, connection: Opened) -> None:
        if self._upstream is connection:
            place = self.running.place
            self.ask_upstream(place.lsn, place.chain)

    def ask_upstream(self, lsn: int, chain: bytes) -> None:
        """See Outside."""
        self.send_upstream(struct_packet(Type.FOLLOW, Follow(self.host.name, lsn, chain, False)))

    def leave(self) -> None:
        """See Outside."""
        connection, self._upstream = self._upstream, None
        if connection is not None:
            connection.close()

    def send_upstream(self, data: bytes) -> None:
        """See Outside."""
        if self._upstream is not None:
            self._upstream.send(data)

    def _upstream_lost(self, connection: Opened) -> None:
        if self._upstream is connection:
            self._upstream = None
            self.post(ev.ConnectionLost(ev.UPSTREAM))

    def _upstream_packets(self, packets: list[tuple[int, bytes]]) -> None:
        self.page.upstream_us = self.host.clock.steady_us()
        self._intake.upstream(packets)
        self._after()

    # ---- accepted connections --------------------------------------------------------------------------------

    def _accept(self, end: Endpoint) -> None:
        self._conn_number += 1
        Accepted(self, self._conn_number, end, self.limits.stream_buffer_bytes_max, self.host.service_name, self._door)

    def opened(self, connection: Accepted, hello: Hello) -> None:
        """See sockets.Owner."""
        number = connection.number
        refusal = self._intake.refusal(hello)
        if refusal is not None:
            raise refusal
        self._connections[number] = connection
        self.host.let_in(connection.machine, hello.kind)
        if hello.kind == "follower":
            self._followers[number] = None
        leads = self.running.core.role_for_clients == "primary"
        primary = self.client_address if leads else self.primary_is.client
        connection.send(self._intake.opened(ev.Conn(number), hello, primary))
        self.post(ev.ConnectionOpened(ev.Conn(number), hello))

    def lost(self, connection: Accepted) -> None:
        """See sockets.Owner."""
        if self._connections.pop(connection.number, None) is not None:
            self._followers.pop(connection.number, None)
            self._intake.lost(ev.Conn(connection.number))
            self.post(ev.ConnectionLost(ev.Conn(connection.number)))

    def packets(self, connection: Accepted, packets: list[tuple[int, bytes]]) -> None:
        """See sockets.Owner."""
        self._intake.packets(ev.Conn(connection.number), packets)
        self._schedule_flush()

    def _admin(self, _conn: ev.Conn, request: Admin) -> None:
        raise Internal(f"nobody sends {request.command} here")


class Checkpoints:
    """Checkpoints of one worker: written and read back by its helper, announced once confirmed; twin of the shell's."""

    def __init__(self, worker: WorkerNode, filesystem: FileSystem, make_room: Callable[[], None]) -> None:
        self._worker = worker
        self._make_room = make_room
        self._store = self._open(filesystem)
        self._waiting: tuple[int, str, Callable[[int, str], None]] | None = None  # written, not confirmed
        self._confirmed_lsn = 0
        self._busy = False
        self._counting = False

    def _open(self, filesystem: FileSystem) -> CheckpointStore:
        host = self._worker.host
        kept = self._worker.limits.checkpoints_kept
        return CheckpointStore(
            filesystem,
            host.name,
            kept=kept,
            decode=lambda read: decode(read, self._worker.make_outbox()),
            make_room=self._make_room,
            safeguards=host.safeguards,
        )

    def load_newest(self) -> Snapshot | None:
        """The newest announced one that reads back well."""
        return self._store.load_newest()

    def write(self, snapshot: Snapshot, done: Callable[[int, str], None]) -> None:
        """Have the helper write it; a second call meanwhile does nothing."""
        if self._busy:
            return
        self._busy = True

        def written(name: str) -> None:
            if not name:
                self._busy = False
                done(snapshot.lsn, "")
                return
            self._waiting = (snapshot.lsn, name, done)
            self.confirmed(self._confirmed_lsn)

        self._help(lambda store, _: store.write(snapshot), "", written)

    def confirmed(self, lsn: int) -> None:
        """Everything up to `lsn` is confirmed: announce what waits for that."""
        self._confirmed_lsn = max(self._confirmed_lsn, lsn)
        if self._waiting is None or self._waiting[0] > self._confirmed_lsn:
            return
        (at, name, done), self._waiting = self._waiting, None
        self._busy = False
        try:
            self._store.announce(name)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and not waits(error, Use.CHECKPOINT):
                raise
            done(at, "")
            return
        self._worker.host.note(f"checkpoint {name[:16]}")
        done(at, name)

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        """Have the helper read one back."""
        self._help(lambda store, _: bool(store.verify(name)), False, done)

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """Have the helper look which ones stand verified on the log of this head."""
        if self._counting:
            return
        self._counting = True

        def counted(lsns: list[int]) -> None:
            self._counting = False
            done(lsns)

        safeguards = self._worker.host.safeguards
        none: list[int] = []
        self._help(lambda store, filesystem: counted_on_log(filesystem, store, head, safeguards), none, counted)

    def prune(self, below: int) -> None:
        """Remove those of less than this lsn."""
        self._store.prune(below)

    def _help(self, work: Callable[[CheckpointStore, FileSystem], T], failed: T, done: Callable[[T], None]) -> None:
        host, worker = self._worker.host, self._worker.process
        generation = worker.generation

        def run() -> None:
            try:
                filesystem = host.open_filesystem(host.helper)
                result = work(self._open(filesystem), filesystem)
            except (DeathlessError, OSError) as error:
                host.note(f"helper: {error}")
                result = failed
            if worker.generation == generation:
                worker.post(lambda: done(result))

        if host.helper.state is ProcessState.DEAD:
            host.helper.start(run)
        else:
            host.helper.post(run)
