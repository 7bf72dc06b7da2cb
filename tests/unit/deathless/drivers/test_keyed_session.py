"""A keyed session: who waits for nobody, what is acknowledged when, and what the service is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import msgspec
import pytest
from tests.encoded import encode_cancel, encode_fork

from deathless.base.errors import DeathlessError, DeliveryRefused, Deposed, SinkUnavailable
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import (
    RedeliveredFork,
    Reference,
    Request,
    encode_body,
    encode_request,
)
from deathless.codec.wire import ReplyError, ok_reply
from deathless.drivers import key_queues
from deathless.drivers.keyed_session import KeyedSession
from deathless.drivers.port import Answer, Delivery, KeyedSink, Opened, Source
from deathless.drivers.source_link import Policy

SOURCE = Source("shop", 0, b"i" * 16, 1, 2)
DONE = ok_reply(msgspec.msgpack.encode(1))


class World:
    """A sink with a dead key, a key that is refused, and one whose sink has a bug."""

    concurrency = 4

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.keys: list[str] = []  # idempotency keys of attempts
        self.dead = {"dead"}
        self.opens_at = 1  # of so many attempts to open
        self.opened = 0

    async def open(self, source: Source, first: int) -> Opened:
        """See Sink."""
        self.opened += 1
        if self.opened < self.opens_at:
            raise SinkUnavailable("no certificate yet")
        return Opened(first)

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """See Sink."""
        raise AssertionError("one by one")

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        """See Sink."""
        raise AssertionError("it keeps no position")

    async def confirmed(self, through: int) -> None:
        """See Sink."""

    async def close(self) -> None:
        """See Sink."""

    def destination(self, delivery: Delivery) -> str:
        """See KeyedSink."""
        return delivery.key

    async def attempt(self, delivery: Delivery) -> bytes:
        """See KeyedSink."""
        await asyncio.sleep(0)
        self.keys.append(delivery.idempotency_key)
        if delivery.key in self.dead:
            raise SinkUnavailable("503")
        if delivery.key == "refused":
            raise DeliveryRefused("410", position=delivery.position)
        if delivery.key == "bug":
            raise KeyError("no such thing")
        self.done.append((delivery.key, delivery.position))
        return DONE


class Told:
    """A primary's connection, and the way of answers."""

    def __init__(self) -> None:
        self.welcomed: list[int] = []
        self.through = 0
        self.refused: list[DeathlessError] = []
        self.answers: dict[int, Answer] = {}
        self.confirmed: set[int] = set()

    def welcome(self, next_position: int) -> None:
        """See Listener."""
        self.welcomed.append(next_position)

    def commit(self, through: int) -> None:
        """See Listener."""
        assert through > self.through
        self.through = through

    def refuse(self, error: DeathlessError) -> None:
        """See Listener."""
        self.refused.append(error)

    @property
    def lowest(self) -> int | None:
        """See Outgoing."""
        return min(self.answers.keys() - self.confirmed, default=None)

    def add(self, answers: Sequence[Answer]) -> None:
        """See Outgoing."""
        for answer in answers:
            assert answer.position not in self.answers
            self.answers[answer.position] = answer

    def error_of(self, position: int) -> ReplyError:
        """What is told of a position."""
        return msgspec.msgpack.decode(self.answers[position].reply[1:], type=ReplyError)


class Bench:
    """A session at work."""

    def __init__(self, world: World, **policy: object) -> None:
        assert isinstance(world, KeyedSink)
        self.told = Told()
        self.now = 100.0
        self.clock_us = 1000
        made = msgspec.convert({"driver": "mail", **policy}, Policy)
        self.session = KeyedSession(
            SOURCE, 1, world, made, self.told, clock_us=lambda: self.clock_us, now=lambda: self.now
        )
        self.session.attach(self.told, 1)
        self.task = asyncio.ensure_future(self.session.run())
        self.position = 0

    def send(self, *keys: str) -> None:
        """Forks of these keys."""
        self.give(*(encode_fork(method=b"write", key=key.encode(), args=b"") for key in keys))

    def give(self, *messages: bytes) -> None:
        """Messages at the next positions."""
        self.session.taken(self.told, self.position + 1, messages)
        self.position += len(messages)

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.session._work.set()

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait for what the session does."""
        while not ready():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)


def story(tell: Callable[[World, Bench], Coroutine[None, None, None]], **policy: object) -> World:
    """Run a story with a time limit."""
    world = World()

    async def live() -> None:
        bench = Bench(world, **policy)
        async with asyncio.timeout(20):
            await bench.until(lambda: bench.told.welcomed)
            await tell(world, bench)
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)
        await bench.session.close()
        assert isinstance(bench.told.refused[-1], Deposed)

    asyncio.run(live())
    return world


def test_a_dead_receiver_stops_nobody_else_however_many_messages_come() -> None:
    async def tell(world: World, bench: Bench) -> None:
        sent = 0
        for number in range(40):
            bench.send("dead", *(f"k{number}-{n}" for n in range(50)))
            sent += 50
            while len(world.done) < sent:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
        assert bench.told.through == 0, "the first message is not done"
        assert "503" in str(bench.session.problem)

    story(tell)


def test_all_is_acknowledged_once_the_dead_receiver_is_back() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("a", "dead", "b", "dead")
        await bench.until(lambda: len(world.done) == 2)
        await bench.until(lambda: bench.told.through == 1)
        world.dead.clear()
        bench.later(key_queues.PAUSE_MIN_S)
        await bench.until(lambda: bench.told.through == 4)
        assert [position for key, position in world.done if key == "dead"] == [2, 4]
        await bench.until(lambda: bench.session.problem is None)

    story(tell)


def test_what_is_given_up_is_told_to_the_service_and_acknowledged_once_that_has_it() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("dead", "a")
        await bench.until(lambda: 1 in bench.told.answers)
        assert bench.told.answers[1].reference == Reference(0, 1)
        assert bench.told.error_of(1).code == "DL3044"
        assert bench.told.error_of(1).text == "503 (given up after 1 attempts)"
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.told.through == 0
        bench.told.confirmed.add(1)
        bench.session.confirmed()
        await bench.until(lambda: bench.told.through == 2)
        assert bench.session.given_up == 1

    story(tell, attempts_max=1)


def test_what_is_too_old_is_given_up() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("dead")
        await bench.until(lambda: bench.session.problem is not None)
        bench.later(3600.0)
        await bench.until(lambda: 1 in bench.told.answers)

    story(tell, age_max_s=60.0)


@pytest.mark.parametrize("policy", [{"room_messages": 10}, {"room_bytes": 150}])
def test_a_receiver_that_holds_up_all_the_room_there_is_is_given_up_for_the_others(policy: dict[str, int]) -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("dead", *(f"k{n}" for n in range(12)))
        await bench.until(lambda: 1 in bench.told.answers)
        assert len(world.done) == 12
        assert "no room" in bench.told.error_of(1).text

    story(tell, **policy)


def test_a_fork_that_is_refused_holds_its_key_or_is_given_up() -> None:
    async def stays(world: World, bench: Bench) -> None:
        bench.send("refused", "a", "refused")
        await bench.until(lambda: world.done and bench.session.problem)
        assert (bench.told.answers, len(world.keys)) == ({}, 2)

    async def skipped(world: World, bench: Bench) -> None:
        bench.send("refused", "a", "refused")
        await bench.until(lambda: len(bench.told.answers) == 2)
        assert bench.told.error_of(1).text == "refused: 410"

    story(stays)
    story(skipped, skip_refused=True)


def test_who_waits_is_answered_whatever_becomes_of_the_message() -> None:
    async def tell(world: World, bench: Bench) -> None:
        for number, key in enumerate(("a", "refused", "dead"), 1):
            bench.give(encode_request(Request(10 + number, 1), method=b"write", key=key.encode(), args=b""))
        late = Request(20, 1, 999)
        bench.give(encode_request(late, method=b"write", key=b"late", args=b""), encode_cancel(Reference(11, 1)))
        await bench.until(lambda: len(bench.told.answers) == 4)
        assert bench.told.answers[1] == Answer(1, Reference(11, 1), DONE)
        assert [bench.told.error_of(at).code for at in (2, 3, 4)] == ["DL3040", "DL3044", "DL3022"]
        assert [bench.told.answers[at].reference.invocation for at in (2, 3, 4)] == [12, 13, 20]
        bench.told.confirmed |= {1, 2, 3, 4}
        bench.session.confirmed()
        await bench.until(lambda: bench.told.through == 5)
        assert [key for key, _ in world.done] == ["a"]

    story(tell, attempts_max=1)


def test_what_waits_behind_a_dead_receiver_beyond_its_deadline_is_not_done_once_that_is_back() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("dead")
        bench.give(encode_request(Request(20, 1, 2000), method=b"write", key=b"dead", args=b""))
        await bench.until(lambda: bench.session.problem is not None)
        bench.clock_us = 2000
        world.dead.clear()
        bench.later(60.0)
        await bench.until(lambda: 2 in bench.told.answers)
        assert bench.told.error_of(2).code == "DL3022"
        assert [position for _, position in world.done] == [1]

    story(tell)


def test_a_sink_that_can_not_name_a_destination_costs_nobody_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def destination(self: World, delivery: Delivery) -> str:
        raise ValueError("no such host")

    monkeypatch.setattr(World, "destination", destination)

    async def tell(world: World, bench: Bench) -> None:
        bench.send("dead", "a", "b")
        await bench.until(lambda: len(world.done) == 2)

    story(tell)


def test_a_bug_of_the_sink_costs_its_own_key_alone() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("bug", "a", "b")
        await bench.until(lambda: len(world.done) == 2 and "KeyError" in str(bench.session.problem))

    story(tell)


def test_a_primary_that_connects_anew_is_told_from_where_and_nothing_is_attempted_twice() -> None:
    async def tell(world: World, bench: Bench) -> None:
        bench.send("a", "dead", "b")
        await bench.until(lambda: len(world.done) == 2)
        bench.session.detach(bench.told)
        bench.session.attach(bench.told, 1)
        assert bench.told.welcomed == [1, 2]
        bench.position = 1
        bench.send("dead", "b", "c")
        await bench.until(lambda: len(world.done) == 3)
        assert [key for key, _ in world.done] == ["a", "b", "c"]

    story(tell)


def test_a_sink_that_can_not_be_opened_is_tried_again_and_says_why() -> None:
    async def live() -> None:
        world = World()
        world.opens_at = 2
        bench = Bench(world)
        async with asyncio.timeout(20):
            await bench.until(lambda: bench.told.refused)
            assert isinstance(bench.session.problem, SinkUnavailable)
            bench.session.attach(bench.told, 1)
            await bench.until(lambda: bench.told.welcomed)
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)

    asyncio.run(live())


def test_a_message_that_is_sent_again_has_the_idempotency_key_of_its_first_position() -> None:
    async def tell(world: World, bench: Bench) -> None:
        envelope = encode_body(RedeliveredFork(position=77))
        bench.give(encode(Kind.FORK, method=b"write", key=b"a", idempotency_key=envelope))
        await bench.until(lambda: world.done)
        assert world.keys[0].endswith("/mail/77")

    story(tell)
