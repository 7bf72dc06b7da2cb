"""A shop, a bank and a customer: whole engines with real handlers over simulated disks, on connections that break.

    town.step()     the one thing that is due next happens: a packet arrives, the lock is asked, its answer comes, an
                    activity begins or ends, somebody connects, time passes
    town.kill(...)  and the other faults come between two steps, so a test can put each of them at every place there is

Two things happen in one order for ever, unless a fault moves them, so a number of steps names a place in the story.
Deposed primaries live on and talk. The lock answers in two steps (asked, told), so that a process may die or be deposed
between the two. The customer knows nothing but to ask again what has no answer.

`Town.story()` is what anybody outside saw, and what a replay of the logs in fresh processes gives; the tests judge it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from tests.spec.customer import Calls, Customer
from tests.spec.process import CUSTOMER, LIMITS, Killed, Link, Process
from tests.spec.shop_and_bank import bank, shop

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import Frame
from deathless.codec.peer_messages import ActivityStart, Target
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import (
    Hello,
    PeerWelcome,
    Type,
    decode_peer_commit,
    decode_struct,
    ok_reply,
)
from deathless.core import events as ev
from deathless.core.replica.replica import State
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.simulation.models.log_driver import RECORD, SERVICE_ID, STORE
from deathless.simulation.world.disk import SimDisk

STEP_S = 0.002  # each step takes this long: more than `clock_step_us`
AGAIN_S = 0.05  # between two attempts to connect
STEPS_MAX = 500
TEXTS: Calls = (("pay", {"n": 1}), ("pay", {"n": 2}), ("refuse", {}), ("pay", {"n": 3}), ("settle", {}))


class NeverEnds(AssertionError):
    """The story takes far longer than any that comes to its end."""


@dataclass(eq=False)
class Action:
    """One thing that is going to happen, to a process; on a link it is a packet."""

    process: Process | None  # None: the customer
    what: str
    do: Callable[[], None]
    link: Link | None = None
    by: Process | None = None  # who sent it


class House:
    """A service: its disk, and one process after another."""

    def __init__(self, town: Town, name: str) -> None:
        self.town = town
        self.name = name
        self.disk = SimDisk(random.Random(7))
        self.record = msgspec.structs.replace(RECORD, name=name, fence="etcd")
        self.checkpoint: Snapshot | None = None  # what the next process loads
        self.processes: list[Process] = []

    def make_shard(self, safeguards: Safeguards = ALL_SAFEGUARDS, limits: Limits = LIMITS) -> Shard:
        """A fresh one."""
        return open_shard({"shop": shop, "bank": bank}[self.name], limits, bytes(32), safeguards=safeguards)

    def start(self) -> None:
        """A new process, which will lead."""
        made = Process(self.town, self, f"r{len(self.processes)}")
        self.processes.append(made)
        made.engine.begin()

    @property
    def now(self) -> Process:
        """The newest process."""
        return self.processes[-1]

    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]

    @property
    def idle(self) -> bool:
        """Does its primary owe nobody anything?"""
        shard = self.now.engine.shard
        return self.now.leads and not shard.outbox.bytes and not shard.executor.invocation_count()

    def maybe_checkpoint(self) -> Snapshot | None:
        """A copy of what the primary has, if all of it is confirmed."""
        primary = self.now.engine.core.primary
        if not self.now.leads or primary is None or primary.synced_lsn > primary.confirmed_lsn:
            return None
        record = self.record
        return self.now.engine.shard.snapshot(
            service=record.name,
            service_id=record.service_id,
            incarnation=record.incarnation,
            epoch=self.now.engine.applying.log_epoch,
            fingerprint=bytes(16),
        )

    def till(self, shard: Shard) -> dict[str, Any]:
        """What a shard of the bank holds."""
        encoded = shard.executor.state().get(b"till")
        found: dict[str, Any] = {"booked": [], "asked": 0} if encoded is None else msgspec.msgpack.decode(encoded)
        return found

    def frames(self, disk: SimDisk | None = None) -> list[Frame]:
        """The log, read by nobody's eyes: all that a successor would find; on `disk`, if it is not ours."""
        disk = disk or self.disk
        reader = ShardLog(disk.view("reader"), LIMITS, "reader", Identity(SERVICE_ID, 7, "etcd", STORE))
        head = DirectoryLock(disk.view("reader"), process="reader", fresh_store_id=STORE).view().head
        tail = reader.read_tail(head, 0, bytes(16), 0)
        return [frame for frame, _ in (*tail.confirmed, *tail.unconfirmed)]


class Town:
    """Both houses and the customer.

    Args:
        calls: what the customer asks for, in order.
        seed: of nonces, and of what power cuts leave.
    """

    def __init__(
        self,
        calls: Calls = TEXTS,
        *,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        seed: int = 1,
        services: Sequence[str] = ("shop", "bank"),
    ) -> None:
        self.safeguards = safeguards
        self.chance = random.Random(seed)
        self.now = 10.0
        self.steps = 0
        self.steps_max = STEPS_MAX
        self.actions: deque[Action] = deque()
        self.wire: list[tuple[str, Target, int, bytes]] = []  # (sender, target, position, message), all that left
        self.begun: list[tuple[str, str]] = []  # (activity, key) of each activity that touched the world
        self.conns = 10
        self.frozen: set[Process] = set()  # nothing happens to them, and what they sent stays under way, until `thaw`
        self.late: list[Action] = []
        self.leaves: Callable[[House, Target, int, bytes], None] = lambda *_: None  # told what is sent, before it is
        self.loses: Callable[[Action], bool] = lambda action: False  # which packets the world loses
        self.trail: list[tuple[Link, str, int, bytes]] = []  # (link, "there" or "back", kind, body) of what arrived
        self.customer = Customer(calls, self.to_shop)
        self.houses = {name: House(self, name) for name in services}
        for house in self.houses.values():
            house.start()

    # ---- what can happen ---------------------------------------------------------------------------------------

    def later(self, process: Process | None, what: str, do: Callable[[], None], by: Process | None = None) -> None:
        """Something that will happen to a process; it is no packet of a link."""
        self.actions.append(Action(process, what, do, None, by))

    def to_shop(self, kind: int, body: bytes) -> None:
        process = self.houses["shop"].now
        self.later(process, "a packet of the customer", lambda: process.arrived(CUSTOMER, kind, body))

    def there(self, link: Link, kind: int, body: bytes) -> None:
        def arrives() -> None:
            if link.receiver_open:
                self.trail.append((link, "there", kind, body))
                link.receiver.arrived(link.conn, kind, body)

        self.actions.append(Action(link.receiver, f"packet {kind} there", arrives, link, link.sender))

    def back(self, link: Link, kind: int, body: bytes) -> None:
        do = partial(self._came_back, link, kind, body)
        self.actions.append(Action(link.sender, f"packet {kind} back", do, link, link.receiver))

    def _came_back(self, link: Link, kind: int, body: bytes) -> None:
        process = link.sender
        if process.wanted.get(link.target) is not link:
            return
        self.trail.append((link, "back", kind, body))
        if kind == Type.PEER_WELCOME:
            told = decode_struct(PeerWelcome, body)
            link.ready = True
            process.tell(ev.PeerReady(link.target, told.session, told.next_position, told.history))
        elif kind == Type.PEER_COMMIT:
            process.tell(ev.PeerCommitted(link.target, decode_peer_commit(body)[1]))
        elif kind in (Type.PEER_REFUSED, Type.BATCH_REFUSED):
            self.sender_hangs_up(link)

    def start_activity(self, process: Process, start: ActivityStart) -> None:
        def begins() -> None:
            self.begun.append((start.name, start.key))
            count = len(self.begun)
            ended = ev.ActivityEnded(
                start.invocation, start.operation, start.attempt, ok_reply(msgspec.msgpack.encode(count))
            )
            self.later(process, "an activity ends", lambda: process.tell(ended))

        self.later(process, "an activity begins", begins)

    def sender_hangs_up(self, link: Link) -> None:
        """The sending end closes; what it sent may still arrive, then the other end learns."""
        link.sender_open = False
        process = link.sender
        if process.wanted.get(link.target) is link:
            process.wanted[link.target] = None
            if link.ready and not process.dead:
                process.tell(ev.PeerLost(link.target))
        self.later(link.receiver, "a connection ends there", lambda: self._receiver_learns(link), link.sender)

    def _receiver_learns(self, link: Link) -> None:
        process = link.receiver
        link.receiver_open = False
        if process.accepted.pop(link.conn, None) is not None:
            process.intake.lost(link.conn)
            process.tell(ev.ConnectionLost(link.conn))

    def receiver_hangs_up(self, link: Link) -> None:
        link.receiver_open = False

        def learns() -> None:
            if link.sender.wanted.get(link.target) is link:
                self.sender_hangs_up(link)

        self.later(link.sender, "a connection ends back", learns, link.receiver)

    def _connect(self, process: Process, target: Target) -> bool:
        receiver = self.houses[target.service].now
        if not receiver.leads or not process.leads or self.now < process.dialed.get(target, 0.0) + AGAIN_S:
            return False
        process.dialed[target] = self.now
        self.conns += 1
        link = Link(process, target, receiver, ev.Conn(self.conns))
        process.wanted[target] = receiver.accepted[link.conn] = link
        hello = Hello(1, "peer", target.service, process.house.name)
        receiver.intake.opened(link.conn, hello, "")
        self.there(link, Type.PEER_HELLO, process.introduction(target))
        return True

    # ---- steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """The next thing happens."""
        self.steps += 1
        self.now += STEP_S
        if self.steps >= self.steps_max:
            raise NeverEnds(self.describe())
        action = self._next()
        if action is None:
            self._idle()
            return
        with suppress(Killed):
            action.do()

    def _next(self) -> Action | None:
        while self.actions:
            action = self.actions.popleft()
            if self.loses(action):
                continue
            if action.by in self.frozen or action.process in self.frozen:
                self.late.append(action)
            elif action.process is None or not action.process.dead:
                return action
        return None

    def thaw(self) -> None:
        """Who was frozen goes on, and what it sent arrives."""
        self.frozen.clear()
        self.actions.extend(self.late)
        self.late.clear()

    def _idle(self) -> None:
        """Nothing is under way: somebody begins something, or time passes."""
        moved = False
        for house in self.houses.values():
            moved |= self._lead(house)
            for process in [p for p in house.alive() if p not in self.frozen]:
                for target, link in list(process.wanted.items()):
                    if link is not None and not link.ready:
                        self.sender_hangs_up(link)  # an answer that can't come any more
                        moved = True
                    elif link is None:
                        moved |= self._connect(process, target)
        if not self.customer.served and self.houses["shop"].now.leads:
            self.customer.ask()
        self._pass_time(jump=not moved)

    def _lead(self, house: House) -> bool:
        process = house.now
        if process.dead:
            house.start()
            return True
        if process.engine.core.state is not State.FOLLOWING:
            return False
        process.tell(ev.TakeoverOrdered(process.lock_store.view().epoch, "the one before is gone"))
        return True

    def _pass_time(self, *, jump: bool) -> None:
        alive = [p for house in self.houses.values() for p in house.alive() if p not in self.frozen]
        dues = [due for process in alive if (due := process.engine.deadline()) is not None]
        if jump:
            self.now = max(self.now, min(dues, default=0.0))
        for process in alive:
            due = process.engine.deadline()
            if not process.dead and due is not None and due <= self.now:
                with suppress(Killed):
                    process.tell(ev.TimerFired())

    @property
    def settled(self) -> bool:
        """Everybody is served, nobody owes anybody anything."""
        return self.customer.served and all(house.idle for house in self.houses.values())

    def run(self, steps: int | None = None) -> Town:
        """So many steps, or up to the end."""
        if steps is not None:
            for _ in range(steps):
                self.step()
            return self
        while not self.settled:
            self.step()
        return self

    def describe(self) -> str:
        """Where it hangs."""
        processes = [(h.name, p.name, p.engine.core.state, p.errors) for h in self.houses.values() for p in h.alive()]
        return f"it does not end: {processes}, {self.customer.answered} answered, begun {self.begun}"

    def kill(self, process: Process) -> None:
        """kill -9: what it sent is under way, what it wrote stays in the page cache."""
        if process.dead:
            return
        process.dead = True
        for link in [link for link in process.wanted.values() if link is not None]:
            link.sender_open = False
            self.later(link.receiver, "a connection ends there", partial(self._receiver_learns, link), process)
        for link in list(process.accepted.values()):
            self.receiver_hangs_up(link)
