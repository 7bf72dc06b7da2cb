"""The process that leads a service in an environment: the real engine, over a disk and clocks in memory.

    caller, peers --> Intake --> ReplicaEngine (core, shard, log) --> disk in memory
                                      '--> activities, peers, checkpoints, lock

It is the twin of the shell's worker, as the simulation's is: what it decides nothing of is decided by the same core,
and what it writes is the same log. There is one process of a service at a time; a successor reads the log from the
newest checkpoint, or from its beginning, and compares every turn with what is logged.

Guarantees: each call of the disk that changes something, and each thing that leaves, is a point at which it may be
killed. Does not: choose the points (moments does), say who succeeds (served does).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from deathless.base.errors import DeathlessError, Internal, InvalidUse
from deathless.base.times import first_us
from deathless.codec.checkpoint import decode as decode_checkpoint
from deathless.codec.frames import Frame, FrameKind, Run
from deathless.codec.peer_messages import PeerHello, Target
from deathless.codec.snapshot import Head, Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import Admin, Hello, PacketReader, Refused, Type, struct_packet
from deathless.codec.witness import Point as Confirmed
from deathless.core import events as ev
from deathless.core.access.authorisation import authorise
from deathless.core.primary.suspicion import Runs
from deathless.core.replica.replica import Replica
from deathless.core.replica.witness import Sighting
from deathless.core.supervisor.detection import FOLLOWING_ROLES
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.own_history import counted_on_log
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.engine.replica.applying import Code
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Executed, Shard
from deathless.execution.turn.running import Running
from deathless.testing.activities import Activities
from deathless.testing.links import PACKET_BYTES_MAX, End
from deathless.testing.loop import Life, Timer
from deathless.testing.peer_links import PeerLinks

if TYPE_CHECKING:
    from deathless.testing.served import Served

T = TypeVar("T")
FINGERPRINT: Final = bytes(16)
ACTIVITY_PROCESSES: Final = 256  # no process runs them here, so none waits for another


class _Accepted:
    """A connection that was accepted."""

    __slots__ = ("end", "hello", "reader")

    def __init__(self, end: End) -> None:
        self.end = end
        self.hello: Hello | None = None
        self.reader = PacketReader(PACKET_BYTES_MAX)


class _Timer:
    """The timer that the engine's host asked for last."""

    __slots__ = ("at_us", "callback")

    def __init__(self, at_us: int, callback: Callable[[], None]) -> None:
        self.at_us = at_us
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Have it not called."""
        self.callback = None


class Primary:
    """One life of it."""

    def __init__(self, served: Served, name: str) -> None:
        self.served = served
        self.name = name
        self.loop = served.loop
        self.life = Life(f"{served.name} {name}", self._died)
        self.engine: ReplicaEngine
        self.leads = False
        self.activities = Activities(self)
        self.peers = PeerLinks(self)
        self.checkpoints: Checkpoints
        self.host = EngineHost(self, lambda *_: None)
        self.lock: DirectoryLock
        self._connections: dict[int, _Accepted] = {}
        self._count = 0
        self._timer: _Timer | None = None

    # ---- life ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """First callback of the process: open everything, recover, and lead."""
        served, limits = self.served, self.served.limits
        disk = served.view(self.name)
        self.lock = DirectoryLock(disk, process=self.life.name.replace(" ", "."), fresh_store_id="store")
        self.lock.prepare()
        record = self.lock.create_service(served.record)
        view = self.lock.view()
        shard = open_shard(served.service, limits, record.seed, tell=served.bug)
        identity = Identity(record.service_id, record.incarnation, record.fence, view.store_id)
        log = WatchedLog(disk, limits, self.name, identity)
        log.watch(served, shard)
        log.prepare()
        self.checkpoints = Checkpoints(self, log)
        core = Replica(
            replica=self.name,
            sessions=shard.sessions,
            place=shard.place,
            limits=limits,
            activity_processes=ACTIVITY_PROCESSES,
        )
        self.engine = self.host.engine = ReplicaEngine(
            core=core,
            shard=shard,
            log=log,
            service=record,
            store_id=view.store_id,
            code=Code(FINGERPRINT),
            outside=Outside(
                clock=served.clock,
                lock=self,
                clients=self,
                upstream=_Nobody(),
                peers=self.peers,
                activities=self.activities,
                checkpoints=self.checkpoints,
                witness=self,
                watchers=self,
                process=self,
            ),
            limits=limits,
        )
        self.host.intake = Intake(self.engine, self._admin)
        served.links.listen(served.name, self.life, self._accept)
        self.host.begin()

    def end(self, error: DeathlessError | None, successor: str = "") -> None:  # noqa: ARG002 - as the port has it
        """See Process."""
        self.loop.end(self.life, error)

    def _died(self, error: BaseException | None) -> None:
        self.leads = False
        self._timer = None
        self.served.links.died(self.life)
        self.served.died(self, error)

    # ---- time ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """See engine.replica.host.Loop."""
        return self.loop.seconds()

    def call_soon(self, callback: Callable[[], None]) -> object:
        """See Loop."""
        self.loop.post(callback, self.life)
        return None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        """See Loop."""
        self._timer = _Timer(self.loop.now_us + self.loop.us_until(seconds), callback)
        return self._timer

    def wakes_us(self) -> int | None:
        """When something of the service is due: a timer, a tick, a deadline, a message to be sent again.

        An idle primary also looks at its fence each second, and whether a checkpoint is due. Time that is skipped does
        not stop for that; it is done at the next moment that something is due (`fire`).
        """
        timer, engine = self._timer, self.engine
        if timer is None or timer.callback is None:
            return None
        primary = engine.core.primary
        if primary is None or primary.synced_lsn > primary.confirmed_lsn:
            return timer.at_us
        now_us = self.loop.now_us
        times, due = engine.place.times, engine.place.due
        wakes = []
        if due.first_us:
            since_us = times.wall_us - self.loop.wall_us + now_us  # when the last record of time was drawn
            waits = first_us(
                due.elapsed_us and max(1, due.elapsed_us - times.elapsed_us),
                due.time_us and max(1, due.time_us - times.time_us),
            )
            wakes.append(since_us + waits)
        others = (primary.messaging.deadline(), primary.messaging.outreach.trim_deadline)
        wakes += [int(seconds * 1e6) for seconds in others if seconds is not None]
        if not wakes:
            return None
        first = min(wakes)
        return max(first, timer.at_us) if first <= now_us else first

    def fire(self) -> None:
        """Time has passed: do what is due."""
        timer = self._timer
        if timer is not None and timer.at_us <= self.loop.now_us and timer.callback is not None:
            self._timer = None
            self.loop.later_in_it()
            self.loop.post(timer.callback, self.life)

    # ---- the engine's process, watchers and witness --------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Give the engine an event."""
        self.host.post(event)

    def complete(self, event: ev.Event) -> None:
        """See Process."""
        self.engine.post(event)

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """See Process."""

        def over() -> None:
            done()
            self.host.after()

        self.later(seconds, over)

    def later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have something done by this process after so many seconds."""
        return self.loop.at(self.loop.now_us + math.ceil(seconds * 1e6), callback, self.life)

    def nonce(self) -> bytes:
        """See Process."""
        return self.served.draw(16)

    def try_out(self, runs: Runs) -> Running | None:  # noqa: ARG002 - as the port has it
        """See Process: nobody dies of a message here."""
        return None

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """See Watchers: a successor takes over as soon as it may."""
        if reason == "recovered" and role in FOLLOWING_ROLES:
            self.loop.post(self._take_over, self.life)
        if role == "primary":
            self.leads = True
            self.served.now_leads(self, epoch)

    def _take_over(self) -> None:
        self.post(ev.TakeoverOrdered(self.lock.view().epoch, "nobody else is there"))

    def export_spans(self, spans: Sequence[Span]) -> None:
        """See Watchers: nobody collects them."""

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """See Watchers: the shard lists them."""

    def note_confirmed(self, point: Confirmed, *, first: bool) -> None:  # noqa: ARG002 - as the port has it
        """See Witness."""
        self.served.confirmed[self.name] = point

    def sightings(self) -> Sequence[Sighting]:
        """See Witness."""
        return [Sighting(point, f"page of {name}") for name, point in self.served.confirmed.items()]

    def boot(self) -> int:
        """See Witness."""
        return 0

    def _admin(self, _conn: ev.Conn, request: Admin) -> None:
        raise InvalidUse(f"an environment takes no command {request.command!r}")

    # ---- the lock ------------------------------------------------------------------------------------------------

    def ask(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """See LockPort."""

        def answer() -> None:
            done(cast("T", operation(self.lock)))
            self.host.after()

        self.loop.post(answer, self.life)

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """See LockPort."""

        def answer() -> None:
            done(self.lock.take(replica, nonce, seen))
            self.host.after()

        self.loop.post(answer, self.life)

    # ---- connections -------------------------------------------------------------------------------------------

    def _accept(self, end: End) -> None:
        self._count += 1
        number, accepted = self._count, _Accepted(end)
        self._connections[number] = accepted
        end.data = partial(self._data, number, accepted)
        end.closed = partial(self._lost, number)

    def _data(self, number: int, accepted: _Accepted, data: bytes) -> None:
        conn, intake = ev.Conn(number), self.host.intake
        try:
            packets = list(accepted.reader.feed(data))
            if accepted.hello is None and packets:
                hello = accepted.hello = authorise(*packets.pop(0), service=self.served.name, token="")
                accepted.end.send(intake.opened(conn, hello, self.served.name))
                self.post(ev.ConnectionOpened(conn, hello))
            if packets:
                intake.packets(conn, packets)
                self.host.schedule_flush()
                self.host.after()
        except DeathlessError as error:
            accepted.end.send(struct_packet(Type.REFUSED, Refused(error.code, error.message)))
            self.disconnect(conn)

    def _lost(self, number: int) -> None:
        accepted = self._connections.pop(number, None)
        if accepted is not None and accepted.hello is not None:
            self.host.intake.lost(ev.Conn(number))
            self.post(ev.ConnectionLost(ev.Conn(number)))

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """See Clients."""
        accepted = self._connections.get(conn)
        if accepted is None:
            return
        replies = data[4:5] in _REPLIES and accepted.hello is not None and accepted.hello.kind == "client"
        if replies:
            self.served.reached("reply")
        accepted.end.send(data)
        if replies:
            self.served.reached("replied")

    def disconnect(self, conn: ev.Conn) -> None:
        """See Clients."""
        accepted = self._connections.get(conn)
        if accepted is not None:
            accepted.end.close()
            self._lost(conn)

    def introduction(self, target: Target) -> bytes:
        """Give the PEER_HELLO packet of this primary for a target."""
        engine = self.engine
        primary, record = engine.core.primary, engine.service
        assert primary is not None
        hello = PeerHello(self.served.name, 0, record.service_id, record.incarnation)
        return struct_packet(Type.PEER_HELLO, primary.messaging.outreach.introduction(target, hello, primary.epoch))


_REPLIES: Final = frozenset({bytes([Type.REPLIES]), bytes([Type.RESULTS])})


class WatchedLog(ShardLog):
    """The log of a primary, each step of which is a point."""

    def watch(self, served: Served, shard: Shard) -> None:
        """Tell of each frame: before it is written, behind that, and once it is synced."""
        append, sync, execute = self.append, self.sync, shard.execute
        named = False  # the frame under way holds more than the shard's own records

        def watched_execute(runs: Sequence[tuple[Run, Sequence[bytes]]]) -> Executed:
            nonlocal named
            place = shard.place
            due, began = place.due, bool(place.times.time_us)
            done = execute(runs)
            named = any(run.session for run, _ in runs) or (began and due.reached(place.times)) or bool(done.sent)
            return done

        def watched_append(
            kind: int, payload: bytes, *, first_lsn: int, count: int, confirmed_lsn: int
        ) -> tuple[Frame, bytes]:
            nonlocal named
            named = named and kind == FrameKind.DATA
            served.reached("turn", named=named)
            made = append(kind, payload, first_lsn=first_lsn, count=count, confirmed_lsn=confirmed_lsn)
            served.reached("written", named=named)
            return made

        def watched_sync() -> None:
            sync()
            served.reached("synced", named=named)

        self.append, self.sync = watched_append, watched_sync
        # Of this one shard: who opens it gives no class of its own.
        shard.execute = watched_execute  # type: ignore[method-assign]  # every caller reads it from the object


class _Nobody:
    """The primary that is followed: there is none."""

    def follow(self, replica: str) -> None:
        """See Upstream."""

    def ask(self, lsn: int, chain: bytes) -> None:
        """See Upstream."""

    def send(self, data: bytes) -> None:
        """See Upstream."""

    def leave(self) -> None:
        """See Upstream."""


class Checkpoints:
    """Of one primary; written and read back at once, and announced once what is in them is confirmed."""

    def __init__(self, primary: Primary, log: ShardLog) -> None:
        self._primary = primary
        self._disk = primary.served.view(f"{primary.name}.helper")
        self._store = CheckpointStore(
            self._disk,
            primary.name,
            kept=primary.served.limits.checkpoints_kept,
            decode=decode_checkpoint,
            make_room=log.spare.free,
        )

    def load_newest(self, fits: Callable[[Head], bool]) -> Snapshot | None:
        """See Checkpoints."""
        return self._store.load_newest(fits=fits)

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        """See Checkpoints."""
        return self._store.load_at(lsn, chain)

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:  # noqa: ARG002 - as the port has it
        """See Checkpoints."""
        raise Internal("nobody upgrades a service under test")

    def write(self, snapshot: Callable[[], Snapshot], lsn: int, chain: bytes, done: Callable[[int, str], None]) -> None:  # noqa: ARG002 - as the port has it
        """See Checkpoints."""
        copied = snapshot()

        def written() -> None:
            if self._primary.engine.core.confirmed_lsn < lsn:
                done(lsn, "")  # the core asks again
                return
            name = self._store.write(copied)
            self._store.announce(name)
            done(lsn, name)

        self._primary.loop.post(written, self._primary.life)

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        """See Checkpoints."""
        self._primary.loop.post(lambda: done(bool(self._store.verify(name))), self._primary.life)

    def prune(self, below: int) -> None:
        """See Checkpoints."""
        self._store.prune(below)

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """See Checkpoints."""
        self._primary.loop.post(lambda: done(counted_on_log(self._disk, self._store, head)), self._primary.life)
