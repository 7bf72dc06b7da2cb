"""One process of a replica of a town's house: a whole engine, and the world as it sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from tests.spec.customer import SECRET

from deathless.base.errors import DeathlessError
from deathless.codec.peer_messages import ActivityStart, PeerHello, Reference, Target
from deathless.codec.snapshot import Head, Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import (
    PacketReader,
    decode_batch,
)
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.primary.admission import cut_messages
from deathless.core.replica.replica import Replica, State
from deathless.core.replica.witness import Sighting
from deathless.core.tables.logical_time import Anchor
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import Holder, LockView
from deathless.engine.replica.applying import Code
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.simulation.models.log_driver import LIMITS as SMALL_FILES
from deathless.simulation.models.log_driver import SERVICE_ID, STORE
from deathless.simulation.world.disk import CHANGES

if TYPE_CHECKING:
    from tests.spec.town import House, Town

LIMITS = SMALL_FILES
WALL_US = 1_700_000_000_000_000
CUSTOMER = ev.Conn(1)


class Killed(BaseException):
    """The process ends here, in the middle of a call; nothing handles it."""


@dataclass(eq=False)
class Link:
    """A connection from a primary to another service's."""

    sender: Process
    target: Target
    receiver: Process
    conn: ev.Conn
    ready: bool = False
    sender_open: bool = True
    receiver_open: bool = True


class Process:
    """One process of a replica, and the world as its engine sees it."""

    def __init__(self, town: Town, house: House, name: str) -> None:
        self.town = town
        self.house = house
        self.name = name
        self.dead = False
        self.wanted: dict[Target, Link | None] = {}
        self.dialed: dict[Target, float] = {}  # when it was connected to last
        self.accepted: dict[ev.Conn, Link] = {}
        self.errors: list[DeathlessError | None] = []
        self.calls = 0  # of the file system, those that change something
        self.dies_at: int | None = None  # before this one, by `dies`
        self.dies: Callable[[], None] = lambda: town.kill(self)
        safeguards = town.safeguards
        fs = house.disk.view(name, self._gate)
        self.lock_store = DirectoryLock(fs, process=name, fresh_store_id=STORE)
        self.lock_store.prepare()
        record = self.lock_store.create_service(house.record)
        log = ShardLog(fs, LIMITS, name, Identity(SERVICE_ID, 7, "etcd", STORE), safeguards)
        log.prepare()
        self.log = log
        shard = house.make_shard(safeguards)
        self.engine = ReplicaEngine(
            core=Replica(
                replica=name, sessions=shard.sessions, place=shard.place, limits=LIMITS, safeguards=safeguards
            ),
            shard=shard,
            log=log,
            service=record,
            store_id=STORE,
            code=Code(bytes(16)),
            outside=Outside(
                clock=self,
                lock=self,
                clients=self,
                upstream=Alone(),
                peers=Around(self),
                activities=Around(self),
                checkpoints=self,
                witness=self,
                watchers=self,
                process=self,
            ),
            limits=LIMITS,
            safeguards=safeguards,
        )
        self.engine.core.owners.opened(CUSTOMER, SECRET, "")
        self.intake = Intake(self.engine, lambda conn, request: None)

    def _gate(self, operation: str, path: str, moment: str) -> None:
        if self.dead:
            raise Killed
        if moment == "before" and operation in CHANGES:
            if self.calls == self.dies_at:
                self.dies()
                raise Killed
            self.calls += 1

    @property
    def leads(self) -> bool:
        return not self.dead and self.engine.core.state is State.PRIMARY

    # ---- Outside -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.town.now

    def wall_us(self) -> int:
        return WALL_US + round(self.town.now * 1e6)

    def boot_us(self) -> int:
        return round(self.town.now * 1e6)

    def anchor(self) -> Anchor | None:
        return None

    def note_anchor(self, anchor: Anchor) -> None:
        """What a town's clocks say is always right."""

    def nonce(self) -> bytes:
        return self.town.chance.randbytes(16)

    def try_out(self, runs: object) -> None:
        """Nothing kills here."""

    def complete(self, event: ev.Event) -> None:
        self.engine.post(event)

    def ask(self, operation: Callable[[Any], Any], done: Callable[[Any], None]) -> None:
        def asked() -> None:
            answer = operation(self.lock_store)
            self.town.later(self, "the lock's answer", lambda: done(answer))

        self.town.later(self, "a question to the lock", asked)

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        self.ask(lambda lock: lock.take(replica, nonce, seen), done)

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """Nobody puts a directory back here."""

    def sightings(self) -> list[Sighting]:
        return []

    def boot(self) -> int:
        return 0

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        self.town.later(self, "the end of a pause", done)

    def send(self, conn: ev.Conn, data: bytes) -> None:
        for kind, body in PacketReader(1 << 30).feed(data):
            if conn == CUSTOMER:
                told = partial(self.town.customer.arrived, kind, body)
                self.town.later(None, "a packet to the customer", told, self)
            elif conn in self.accepted:
                self.town.back(self.accepted[conn], kind, body)

    def disconnect(self, conn: ev.Conn) -> None:
        link = self.accepted.pop(conn, None)
        if link is not None:
            self.town.receiver_hangs_up(link)

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Nobody collects them here."""

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """Nobody reads a log here."""

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        raise AssertionError("nobody upgrades here")

    def load_newest(self, fits: Callable[[Head], bool]) -> Snapshot | None:
        return self.house.checkpoint

    def write(self, snapshot: Callable[[], Snapshot], lsn: int, chain: bytes, done: Callable[[int, str], None]) -> None:
        made = snapshot()
        done(made.lsn, "c")

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:
        raise AssertionError("nobody upgrades here")

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        done(True)

    def prune(self, below: int) -> None:
        """They are few."""

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """None is read back."""
        done([])

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """The town looks at `leads`."""

    def end(self, error: DeathlessError | None, successor: str = "") -> None:
        self.errors.append(error)
        self.town.kill(self)

    # ---- what happens to it ------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        self.engine.post(event)

    def arrived(self, conn: ev.Conn, kind: int, body: bytes) -> None:
        self.intake.packets(conn, [(kind, body)])
        self.intake.drained()

    def introduction(self, target: Target) -> bytes:
        record = self.engine.service
        primary = self.engine.core.primary
        assert primary is not None
        hello = PeerHello(record.name, 0, record.service_id, record.incarnation)
        return msgspec.msgpack.encode(primary.messaging.outreach.introduction(target, hello, primary.epoch))


class Alone:
    """There are no followers here."""

    def follow(self, replica: str) -> None:
        """Nobody is followed."""

    def ask(self, lsn: int, chain: bytes) -> None:
        """As `follow`."""

    def leave(self) -> None:
        """As `follow`."""

    def send(self, data: bytes) -> None:
        """As `follow`."""


class Around:
    """Peers and activities of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def dial(self, target: Target) -> None:
        self._process.wanted.setdefault(target, None)

    def send(self, target: Target, data: bytes) -> None:
        link = self._process.wanted.get(target)
        if link is not None and link.ready:
            for kind, body in PacketReader(1 << 30).feed(data):
                batch = decode_batch(body)
                for at, message in enumerate(cut_messages(batch)):
                    self._process.town.leaves(self._process.house, target, batch.run.first_seq + at, message)
                    self._process.town.wire.append(
                        (self._process.house.name, target, batch.run.first_seq + at, message)
                    )
                self._process.town.there(link, kind, body)

    def drop(self, target: Target) -> None:
        link = self._process.wanted.pop(target, None)
        if link is not None:
            self._process.town.sender_hangs_up(link)

    def start(self, start: ActivityStart) -> None:
        self._process.town.start_activity(self._process, start)

    def stop(self, reference: Reference) -> None:
        """It may end by itself: its outcome is of no interest to anybody."""
