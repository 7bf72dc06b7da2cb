"""Whole engines over one simulated disk, with an outside in memory: what they send is kept, what they follow is joined.

A `Node` is one process of a replica. Its lock answers at once unless `held`, its checkpoints are snapshots that all
nodes share, its stream to followers is carried by `World.pump`. The executor echoes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.unit.deathless.core.primary_world import WALL_US, Echo, batch, call

from deathless.base.errors import DeathlessError
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import Frame
from deathless.codec.generations import NEWEST
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.session_proof import nonce_of
from deathless.codec.snapshot import Head, Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import (
    Admin,
    Follow,
    Hello,
    PacketReader,
    Registered,
    Type,
    decode_replies,
    decode_struct,
    struct_packet,
)
from deathless.codec.witness import Point
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.replica import Replica, State
from deathless.core.replica.witness import Sighting
from deathless.core.tables.logical_time import Anchor
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import Executor, Holder, LockView
from deathless.engine.replica.applying import Code
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.engine.replica.upgrade_steps import Upgrade
from deathless.engine.shard.assembly import shard_around
from deathless.simulation.models.log_driver import LIMITS as SMALL_FILES
from deathless.simulation.models.log_driver import RECORD, SERVICE_ID, STORE
from deathless.simulation.world.disk import SimDisk

FINGERPRINT = bytes(16)
OTHER_FINGERPRINT = b"of other code..."
UPGRADE_ID = b"of an upgrade..."
CLIENT = ev.Conn(1)
SECRET = b"the client's own"


class Node:
    """A replica's engine and the world as it sees it."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        executor: Executor | None = None,
        fence: str = "seal",
        fingerprint: bytes = FINGERPRINT,
        spellings: frozenset[bytes] = frozenset(),
        adopted: frozenset[tuple[bytes, int]] = frozenset(),
        store_id: str = STORE,
        short_way: bool = True,
        upgrade: Upgrade | None = None,
        level: int = NEWEST,
    ) -> None:
        self.world = world
        self.name = name
        self.stopped: list[DeathlessError | None] = []
        self.sent: list[tuple[int, int, bytes]] = []
        self.roles: list[str] = []
        self.upstream: str | None = None
        self.disconnected: list[int] = []
        self.reached: list[fx.Effect] = []  # what went to peers and activities
        self.admin: list[Admin] = []
        self.held: list[Callable[[], None]] | None = None  # answers of the lock that wait; None: they come at once
        self.take_fails = False
        self.first_fails = ""  # what goes wrong with the first checkpoint of a generation; empty: nothing
        self.first_held: list[Callable[[], None]] | None = None  # writes of one that take long; None: none does
        self.first_at_head: list[int] = []  # head, when it was written
        self.paused: list[float] = []
        self.noted: list[tuple[int, Point, bool]] = []  # packets sent before, the witness, is it a reign's first
        fs = world.disk.view(name)
        self.lock_store = DirectoryLock(fs, process=name, fresh_store_id=STORE)
        self.lock_store.prepare()
        self.lock_store.create_service(world.record)
        log = ShardLog(fs, world.limits, name, Identity(SERVICE_ID, 7, fence, STORE), safeguards, newest=level)
        log.prepare()
        shard = shard_around(executor or Echo(), world.limits, safeguards)
        self.log = log
        self.engine = ReplicaEngine(
            core=Replica(
                replica=name,
                sessions=shard.sessions,
                place=shard.place,
                limits=world.limits,
                safeguards=safeguards,
                upgrade=b"" if upgrade is None else upgrade.id,
            ),
            shard=shard,
            log=log,
            service=msgspec.structs.replace(RECORD, fence=fence),
            store_id=store_id,
            code=Code(fingerprint, adopted, lambda theirs: f"it was {theirs.hex()[:4]}", spellings, level),
            outside=Outside(
                clock=self,
                lock=self,
                clients=self,
                upstream=NodeUpstream(self),
                peers=NodeReach(self.reached),
                activities=NodeReach(self.reached),
                checkpoints=self,
                witness=self,
                watchers=self,
                process=self,
            ),
            limits=world.limits,
            safeguards=safeguards,
            short_way=short_way,
            upgrade=upgrade,
        )
        self.engine.core.owners.opened(CLIENT, SECRET, "")
        self.intake = Intake(self.engine, lambda conn, request: self.admin.append(request))

    # ---- Outside ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.world.now

    def wall_us(self) -> int:
        return WALL_US

    def boot_us(self) -> int:
        return round(self.world.now * 1e6)

    def anchor(self) -> Anchor | None:
        return None

    def note_anchor(self, anchor: Anchor) -> None:
        """There is no process to come."""

    def nonce(self) -> bytes:
        return self.world.rng.randbytes(16)

    def try_out(self, runs: object) -> None:
        """Nothing kills here."""

    def complete(self, event: ev.Event) -> None:
        self.engine.post(event)

    def ask(self, operation: Callable[[Any], Any], done: Callable[[Any], None]) -> None:
        if self.held is None:
            done(operation(self.lock_store))
        else:
            self.held.append(lambda: done(operation(self.lock_store)))

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        if self.take_fails:
            done(None)
        else:
            self.ask(lambda lock: lock.take(replica, nonce, seen), done)

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        self.noted.append((len(self.sent), point, first))
        self.world.pages[self.name] = msgspec.structs.replace(point, boot=self.world.boot)

    def sightings(self) -> list[Sighting]:
        return [Sighting(point, f"page of {name}") for name, point in self.world.pages.items()]

    def boot(self) -> int:
        return self.world.boot

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        self.paused.append(seconds)
        done()

    def send(self, conn: ev.Conn, data: bytes) -> None:
        self.sent += [(conn, kind, body) for kind, body in PacketReader(1 << 30).feed(data)]

    def disconnect(self, conn: ev.Conn) -> None:
        self.disconnected.append(conn)

    def export_spans(self, spans: Sequence[Span]) -> None:
        self.reached.append(fx.ExportSpans(spans))

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        self.reached.append(fx.ReportUnknown(records))

    def load_newest(self, fits: Callable[[Head], bool]) -> Snapshot | None:
        fitting = [snapshot for snapshot in self.world.checkpoints if fits(snapshot.head())]
        return max(fitting, key=lambda snapshot: snapshot.lsn, default=None)

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        return next((each for each in self.world.first if (each.lsn, each.chain) == (lsn, chain)), None)

    def write(self, snapshot: Callable[[], Snapshot], lsn: int, chain: bytes, done: Callable[[int, str], None]) -> None:
        self.world.checkpoints.append(snapshot())
        done(snapshot().lsn, f"c{snapshot().lsn}")

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:
        self.first_at_head.append(self.lock_store.view().head)

        def written() -> None:
            if not self.first_fails:
                self.world.first.append(snapshot())
            done(self.first_fails)

        if self.first_held is None:
            written()
        else:
            self.first_held.append(written)

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        done(True)

    def prune(self, below: int) -> None:
        self.world.pruned.append(below)

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        done(sorted(snapshot.lsn for snapshot in self.world.checkpoints))

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        self.roles.append(role)

    def end(self, error: DeathlessError | None, successor: str = "") -> None:
        self.stopped.append(error)

    # ---- driving ---------------------------------------------------------------------------------------------

    @property
    def conn(self) -> ev.Conn:
        """The connection on which a primary knows this node."""
        return ev.Conn(100 + int(self.name[1:]) + (50 if self.name[0] == "u" else 0))

    @property
    def state(self) -> State:
        return self.engine.core.state

    def begin(self) -> Node:
        """Recover."""
        self.engine.begin()
        return self

    def take_over(self, epoch: int = 0) -> Node:
        """Try to become primary."""
        self.engine.post(ev.TakeoverOrdered(epoch, "test"))
        return self

    def register(self) -> int:
        """A session on the client's connection; gives its id."""
        self.intake.packets(CLIENT, [(Type.REGISTER, nonce_of(SECRET))])
        self.intake.drained()
        return next(decode_struct(Registered, body).session for _, kind, body in self.sent if kind == Type.REGISTERED)

    def call(self, session: int, first_seq: int, *args: bytes) -> None:
        """Calls of that session, and a frame."""
        sent = batch(session, first_seq, [call(each) for each in args])
        self.engine.batches_received([(CLIENT, sent)])

    def idle(self) -> None:
        """Let time pass, so that the closing frame is written."""
        self.world.now += 1.0
        self.engine.post(ev.TimerFired())

    def replies(self) -> list[tuple[int, bytes]]:
        """(seq, arguments echoed) of every reply sent."""
        found: list[tuple[int, bytes]] = []
        for _, kind, body in self.sent:
            if kind == Type.REPLIES:
                _, seqs, replies = decode_replies(body)
                found += [(seq, reply[1:]) for seq, reply in zip(seqs, replies, strict=True)]
        return found

    def error(self) -> DeathlessError:
        """What it stopped with."""
        (error,) = self.stopped
        assert error is not None
        return error


class NodeUpstream:
    """The stream that a node follows."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def follow(self, replica: str) -> None:
        self._node.upstream = replica
        place = self._node.engine.place
        self.ask(place.lsn, place.chain)

    def ask(self, lsn: int, chain: bytes) -> None:
        self.send(
            struct_packet(Type.FOLLOW, Follow(self._node.name, lsn, chain, False, bool(self._node.engine.core.upgrade)))
        )

    def leave(self) -> None:
        self._node.upstream = None

    def send(self, data: bytes) -> None:
        target = self._node.world.nodes.get(self._node.upstream or "")
        if target is not None:
            target.intake.packets(self._node.conn, list(PacketReader(1 << 30).feed(data)))


class NodeReach:
    """What goes to peers and activities: it is kept."""

    def __init__(self, reached: list[fx.Effect]) -> None:
        self._reached = reached

    def dial(self, target: Target) -> None:
        self._reached.append(fx.DialPeer(target))

    def send(self, target: Target, data: bytes) -> None:
        self._reached.append(fx.SendPeer(target, data))

    def drop(self, target: Target) -> None:
        self._reached.append(fx.DropPeer(target))

    def start(self, start: ActivityStart) -> None:
        self._reached.append(fx.StartActivity(start))

    def stop(self, reference: Reference) -> None:
        self._reached.append(fx.StopActivity(reference))


class FormerShard:
    """The former code of an upgrader: a shard that echoes; what is made of its state is that itself.

    Attributes:
        failure: that is told in place of what was made; None: none.
        change: makes something else of what is given.
        answer: gives what was made; None until it is asked for.
    """

    def __init__(self, limits: Limits) -> None:
        self.failure: DeathlessError | None = None
        self.change: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot
        self.level: int = NEWEST  # that its build knows
        self.held = False  # it answers once `answer` is called
        self.answer: Callable[[], None] | None = None
        self._shard = shard_around(Echo(), limits)

    def restore(self, snapshot: Snapshot) -> None:
        self._shard.restore(snapshot)

    def apply(self, frame: Frame) -> None:
        self._shard.apply(frame)

    def migrated(self, done: Callable[[Snapshot | DeathlessError], None]) -> None:
        made = self._shard.snapshot(service="bank", service_id=SERVICE_ID, incarnation=7, epoch=1, fingerprint=b"")
        self.answer = lambda: done(self.failure or self.change(made))
        if not self.held:
            self.answer()


class World:
    """A disk, and the nodes on it."""

    def __init__(self, limits: Limits = SMALL_FILES, fence: str = "seal") -> None:
        self.limits = limits
        self.rng = random.Random(7)
        self.disk = SimDisk(self.rng)
        self.now = 10.0
        self.nodes: dict[str, Node] = {}
        self.checkpoints: list[Snapshot] = []
        self.first: list[Snapshot] = []  # those that generations of the code begin with
        self.pruned: list[int] = []
        self.pages: dict[str, Point] = {}  # by replica
        self.boot = 1
        self.record = msgspec.structs.replace(RECORD, fence=fence)

    def node(self, name: str, **settings: Any) -> Node:
        """A new process of a replica; the one before is gone."""
        made = Node(self, name, **settings)
        self.nodes[name] = made
        return made

    def primary(self, name: str = "r0", **settings: Any) -> Node:
        """One that recovered and took over."""
        made = self.node(name, **settings).begin()
        epoch = made.lock_store.view().epoch
        made.take_over(epoch)
        assert made.state is State.PRIMARY, made.stopped
        return made

    def follower(self, name: str, of: Node, **settings: Any) -> Node:
        """One that follows a primary and has what it has."""
        made = self.node(name, **settings).begin()
        of.intake.opened(made.conn, Hello(1, "follower", "bank", name, fingerprint=made.engine.fingerprint), "")
        made.engine.post(ev.PrimarySeen(of.engine.core.known_epoch, of.name, ""))
        self.pump(of)
        return made

    def upgrader(self, of: Node, *, name: str = "u9", **settings: Any) -> Node:
        """One that follows a primary by its code, to upgrade the service to another."""
        generation = of.engine.place.generation.number
        former = FormerShard(self.limits)
        former.level = settings.pop("former_level", NEWEST)
        code = Code(settings.pop("to", OTHER_FINGERPRINT))
        upgrade = Upgrade(UPGRADE_ID, generation, former, code, generation, generation + 1, 5)
        settings.setdefault("fingerprint", of.engine.fingerprint)
        return self.follower(name, of, upgrade=upgrade, **settings)

    def pump(self, of: Node) -> None:
        """Carry what a primary has sent to its followers, until nothing is left."""
        moved = True
        while moved:
            moved = False
            for node in list(self.nodes.values()):
                packets = [(kind, body) for conn, kind, body in of.sent if conn == node.conn]
                of.sent = [each for each in of.sent if each[0] != node.conn]
                if packets and node.upstream == of.name:
                    node.intake.upstream(packets)
                    moved = True
