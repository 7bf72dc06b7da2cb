"""A small world of an out-driver: a service that sends, drivers that crash and freeze, a sink that fails, one judge.

    service --messages of positions--> session (the product's) --> sink --one transaction--> outside
       ^---------- commits, answers ---------'   one per epoch; the frozen one of an earlier epoch thaws

Everything is in memory and on one event loop that waits for nothing, so a seed says all that happens. Faults: the
driver is killed between any two steps of its sink, also with its replica (the next primary remembers fewer commits);
it freezes there while a later epoch is served, and goes on long behind; the sink is away before it applies a batch, or
behind that; connections end, packets are lost or come late, confirmations of answers are lost.

Judged: each effect once, in order, and by no epoch below one that was seen; each request has one answer; nothing is
committed that is not outside or whose answer the service may still lack; and all comes to an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
from tests.encoded import encode_cancel, encode_fork

from deathless.base.errors import CorruptFrame, DeathlessError, DeliveryRefused, Deposed, SinkUnavailable
from deathless.codec.peer_messages import Reference, Request, encode_request
from deathless.codec.wire import ok_reply
from deathless.drivers.port import Answer, Delivery, Opened, Source
from deathless.drivers.session import Session
from deathless.drivers.source_link import Policy

STEPS: Final = 120
HEALED_ROUNDS_MAX: Final = 400
CLOCK_US: Final = 1000
KINDS: Final = ("fork", "fork", "fork", "request", "request", "refused fork", "refused request", "cancel", "late")


class Outside:
    """What stands in the world: effects, and beside them position, epoch and answers, in one transaction each."""

    def __init__(self) -> None:
        self.position = 0  # next one; 0: nobody wrote here
        self.epoch = 0
        self.effects: list[tuple[int, int]] = []  # (number, epoch), as they were applied
        self.answers: dict[int, Answer] = {}
        self.wrong: list[str] = []


class Sink:
    """Exactly once; each of its steps can be its last, or a long one."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._epoch = 0
        self.fails = 0  # steps until one fails; 0: none does
        self.running = asyncio.Event()  # cleared: frozen
        self.running.set()

    async def _step(self) -> None:
        await asyncio.sleep(0)
        await self.running.wait()
        if self.fails:
            self.fails -= 1
            if not self.fails:
                raise SinkUnavailable("away")

    def _fence(self) -> None:
        if self._outside.epoch > self._epoch:
            raise Deposed(f"epoch {self._outside.epoch} writes here")

    async def open(self, source: Source, first: int) -> Opened:
        """See Sink."""
        await self._step()
        self._epoch = source.epoch
        self._fence()
        self._outside.epoch = source.epoch
        self._outside.position = self._outside.position or first
        return Opened(self._outside.position, [self._outside.answers[at] for at in sorted(self._outside.answers)])

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """See Sink."""
        await self._step()
        for each in deliveries:
            if each.method == "refused":
                raise DeliveryRefused("no", position=each.position)
        self._fence()  # from here on one transaction
        found: list[Answer] = []
        for each in deliveries:
            if each.position < self._outside.position:
                found += [self._outside.answers[each.position]] if each.position in self._outside.answers else []
                continue
            self._outside.effects.append((int(str(each.arguments["number"])), self._epoch))
            if each.reference is not None:
                reply = ok_reply(msgspec.msgpack.encode(each.arguments["number"]))
                found.append(Answer(each.position, each.reference, reply))
        self._outside.answers.update((answer.position, answer) for answer in found)
        self._outside.position = max(self._outside.position, deliveries[-1].position + 1)
        await self._step()
        return found

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        """See Sink."""
        await self._step()
        self._fence()
        if position >= self._outside.position:
            self._outside.position = position + 1
            if answer is not None:
                self._outside.answers[position] = answer
        await self._step()

    async def confirmed(self, through: int) -> None:
        """See Sink."""
        await self._step()
        self._fence()
        for position in [each for each in self._outside.answers if each <= through]:
            del self._outside.answers[position]

    async def close(self) -> None:
        """See Sink."""


class Way:
    """Where a driver's answers go; all of it dies with the driver."""

    def __init__(self) -> None:
        self.kept: deque[Answer] = deque()
        self._last = 0

    @property
    def lowest(self) -> int | None:
        """See session.Outgoing."""
        return self.kept[0].position if self.kept else None

    def add(self, answers: Sequence[Answer]) -> None:
        """See session.Outgoing."""
        for answer in answers:
            if answer.position > self._last:
                self._last = answer.position
                self.kept.append(answer)


class Driver:
    """A process: a session and its sink, of one epoch."""

    def __init__(self, world: World, epoch: int) -> None:
        self.epoch = epoch
        self.sink = Sink(world.outside)
        self.way = Way()
        source = Source("shop", 0, b"i" * 16, 1, epoch)
        policy = Policy("ledger", skip_refused=True, batch_messages=world.chance.randint(1, 6))
        self.session = Session(
            source, world.acked + 1, self.sink, policy, self.way, clock_us=lambda: CLOCK_US, sleep=_pause
        )
        self.task = asyncio.ensure_future(self.session.run())

    async def kill(self) -> None:
        """End it where it stands."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def _pause(_: float) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Connection:
    """A primary's connection to its driver."""

    def __init__(self, world: World, driver: Driver) -> None:
        self.cursor = 0  # next position to send; 0: not welcomed, or ended
        self.sent = 1  # next position that it would have sent
        self._world = world
        self._driver = driver
        driver.session.attach(self, world.acked + 1)

    def welcome(self, next_position: int) -> None:
        """See session.Listener."""
        self.cursor = self.sent = next_position
        self._world.committed(self._driver, next_position - 1)

    def commit(self, through: int) -> None:
        """See session.Listener."""
        self._world.committed(self._driver, through)

    def refuse(self, error: DeathlessError) -> None:
        """See session.Listener."""
        self.cursor = 0


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.outside = Outside()
        self.messages: list[bytes] = []  # of position 1 and on
        self.expected: list[int] = []  # numbers of the effects that must be
        self.waits: dict[int, Reference] = {}  # position of a request: who waits
        self.answers: dict[Reference, bytes] = {}  # the first of each
        self.wrong: list[str] = []
        self.acked = 0  # the primary knows
        self.deposed = 0  # drivers of earlier epochs that thawed and were refused
        self._logged = 0  # of that, what the next primary will know
        self._frozen: list[Driver] = []
        self._former: list[Connection] = []  # of the present driver
        self._epoch = 1
        self._driver = Driver(self, 1)
        self._connection = Connection(self, self._driver)

    # ---- what happens ----------------------------------------------------------------------------------------

    async def run(self) -> list[str]:
        """Live, heal, and be judged; gives what was wrong."""
        happens = (
            [self._turns] * 6 + [self._send] * 3 + [self._pump] * 4 + [self._take_answers] * 2
            + [self._reconnect, self._lose, self._late, self._crash, self._crash_replica, self._freeze, self._thaw]
            + [self._fail, self._log]
        )  # fmt: skip
        for _ in range(STEPS):
            await self.chance.choice(happens)()
        await self._heal()
        await self._driver.kill()
        self._judge()
        return [*self.wrong, *self.outside.wrong]

    async def _turns(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            await asyncio.sleep(0)

    async def _send(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            number, kind = len(self.messages) + 1, self.chance.choice(KINDS)
            args = msgspec.msgpack.encode({"number": number})
            method = b"refused" if kind.startswith("refused") else b"write"
            reference = Reference(1000 + number, 1)
            if kind == "cancel":
                self.messages.append(encode_cancel(reference))
            elif kind.endswith("fork"):
                self.messages.append(encode_fork(method=method, key=b"k", args=args))
                if kind == "refused fork":
                    self.waits[number] = Reference(0, number)  # the service lists it
            else:
                deadline_us = CLOCK_US - 1 if kind == "late" else 0
                request = Request(reference.invocation, 1, deadline_us)
                self.messages.append(encode_request(request, method=method, key=b"k", args=args))
                self.waits[number] = reference
            if kind in ("fork", "request"):
                self.expected.append(number)

    async def _pump(self) -> None:
        connection = self._connection
        if not connection.cursor:
            return
        first, count = connection.cursor, self.chance.randint(1, 8)
        found = self.messages[first - 1 : first - 1 + count]
        connection.cursor += len(found)
        connection.sent = connection.cursor
        try:
            self._driver.session.taken(connection, first, found)
        except CorruptFrame:  # the host ends the connection
            await self._reconnect()

    async def _late(self) -> None:
        """A packet of a connection that ended arrives all the same."""
        connection = self.chance.choice(self._former[-3:]) if self._former else self._connection
        if not connection.cursor or connection is not self._connection:
            found = self.messages[connection.sent - 1 : connection.sent + 3]
            with contextlib.suppress(CorruptFrame):  # the host would end it, which it is
                self._driver.session.taken(connection, connection.sent, found)

    async def _lose(self) -> None:
        """A packet is lost, which no connection does: the receiver must see it."""
        if self._connection.cursor:
            self._connection.cursor = min(self._connection.cursor + 1, len(self.messages) + 1)

    async def _reconnect(self) -> None:
        self._driver.session.detach(self._connection)
        self._former.append(self._connection)
        self._connection = Connection(self, self._driver)

    async def _take_answers(self) -> None:
        """The service takes some in; its confirmation may be lost, and then they come again."""
        kept = self._driver.way.kept
        count = self.chance.randint(0, len(kept))
        for answer in list(kept)[:count]:
            before = self.answers.setdefault(answer.reference, answer.reply)
            if before != answer.reply:
                self.wrong.append(f"two answers of {answer.position}")
        if self.chance.random() < 0.7:
            for _ in range(count):
                kept.popleft()
            self._driver.session.confirmed()

    async def _crash(self) -> None:
        await self._driver.kill()
        self._driver = Driver(self, self._epoch)
        self._former.clear()
        self._connection = Connection(self, self._driver)

    async def _log(self) -> None:
        """What is confirmed outside is logged now and then."""
        self._logged = self.acked

    async def _lead(self) -> None:
        """A later primary, beside a driver of its own, knows what was logged alone."""
        self.acked = self._logged
        self._epoch += 1
        self._driver = Driver(self, self._epoch)
        self._former.clear()
        self._connection = Connection(self, self._driver)

    async def _crash_replica(self) -> None:
        await self._driver.kill()
        await self._lead()

    async def _freeze(self) -> None:
        """It stands where it is, with what it was given, and somebody else leads."""
        self._driver.sink.running.clear()
        self._frozen.append(self._driver)
        await self._lead()

    async def _thaw(self) -> None:
        if self._frozen:
            driver = self._frozen.pop(self.chance.randrange(len(self._frozen)))
            driver.sink.running.set()
            await self._turns()
            self.deposed += isinstance(driver.session.problem, Deposed)
            await driver.kill()

    async def _fail(self) -> None:
        self._driver.sink.fails = self.chance.randint(1, 4)

    async def _heal(self) -> None:
        while self._frozen:
            await self._thaw()
        await self._reconnect()
        for _ in range(HEALED_ROUNDS_MAX):
            if self.acked == len(self.messages) and set(self.waits.values()) <= self.answers.keys():
                return
            if not self._connection.cursor:
                await self._reconnect()
            await self._pump()
            await self._turns()
            await self._take_answers()
        self.wrong.append(f"{self.acked} of {len(self.messages)} are confirmed at the end")

    # ---- judging ---------------------------------------------------------------------------------------------

    def committed(self, driver: Driver, through: int) -> None:
        """A driver says that all up to here needs to be kept no more."""
        if driver.epoch < self._epoch:
            return  # of a primary that leads no more: nobody believes it
        if through >= max(self.outside.position, 1):
            self.wrong.append(f"{through} is committed, and outside is all below {self.outside.position}")
        lacking = [at for at, reference in self.waits.items() if at <= through and reference not in self.answers]
        if lacking:
            self.wrong.append(f"{through} is committed, and the service has no answer of {lacking}")
        self.acked = max(self.acked, through)

    def _judge(self) -> None:
        numbers = [number for number, _ in self.outside.effects]
        if numbers != self.expected:
            self.wrong.append(f"effects {numbers}, and {self.expected} must be")
        epochs = [epoch for _, epoch in self.outside.effects]
        if epochs != sorted(epochs):
            self.wrong.append(f"epochs {epochs}: an old one wrote behind a later one")
        for position, reference in self.waits.items():
            if reference not in self.answers:
                self.wrong.append(f"no answer of {position}")


def run_driver_seed(seed: int) -> World:
    """Live the life of a seed; what was wrong stands in `wrong`."""
    world: list[World] = []

    async def live() -> None:
        world.append(World(seed))
        await world[0].run()

    asyncio.run(live())
    return world[0]
