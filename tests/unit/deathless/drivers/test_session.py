"""A session alone: what it takes, what it tells, how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

import msgspec
import pytest
from tests.encoded import encode_fork
from tests.unit.deathless.drivers.memory_sink import Memory, MemorySink

from deathless.base.errors import CorruptFrame, DeathlessError, Deposed, SinkUnavailable
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Request, encode_request
from deathless.codec.wire import ReplyError
from deathless.drivers.key_queues import ASKED_MAX_S
from deathless.drivers.port import Answer, Delivery, DeliveryRefused, Source
from deathless.drivers.session import AGAIN_MAX_S, AGAIN_MIN_S, REFUSED_MAX_S, Session
from deathless.drivers.source_link import Policy

SOURCE = Source("shop", 0, b"i" * 16, 1, 2)


class Told:
    """A primary's connection, and the way of answers."""

    def __init__(self) -> None:
        self.welcomed: list[int] = []
        self.through = 0
        self.refused: list[DeathlessError] = []
        self.answers: list[Answer] = []

    def welcome(self, next_position: int) -> None:
        self.welcomed.append(next_position)

    def commit(self, through: int) -> None:
        assert through > self.through
        self.through = through

    def refuse(self, error: DeathlessError) -> None:
        self.refused.append(error)

    @property
    def lowest(self) -> int | None:
        return self.answers[0].position if self.answers else None

    def add(self, answers: Sequence[Answer]) -> None:
        self.answers += [answer for answer in answers if answer not in self.answers]


class Bench:
    """A session at work."""

    def __init__(self, memory: Memory, *, sink: MemorySink | None = None, first: int = 1, batch: int = 256) -> None:
        self.memory = memory
        self.told = Told()
        self.pauses: list[float] = []
        policy = Policy("ledger", batch_messages=batch)
        made = sink or MemorySink(memory)
        self.session = Session(SOURCE, first, made, policy, self.told, clock_us=lambda: 1000, sleep=self._sleep)
        self.session.attach(self.told, first)
        self.task = asyncio.ensure_future(self.session.run())

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)
        self.session.attach(self.told, 1)

    async def settled(self) -> None:
        """Until nothing is left to do: everything here is in memory."""
        for _ in range(300):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.session.close()


def fork(number: int, method: str = "write") -> bytes:
    return encode_fork(method=method.encode(), key=b"k", args=msgspec.msgpack.encode({"number": number}))


def request(number: int, deadline_us: int = 0) -> bytes:
    args = msgspec.msgpack.encode({"number": number})
    return encode_request(Request(100 + number, 1, deadline_us), method=b"write", key=b"k", args=args)


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_i3_each_position_is_taken_once_and_a_gap_ends_the_connection() -> None:
    async def main() -> None:
        bench = Bench(Memory())
        await bench.settled()
        bench.session.taken(bench.told, 1, [fork(1), fork(2)])
        bench.session.taken(bench.told, 1, [fork(1), fork(2), fork(3)])
        with pytest.raises(CorruptFrame, match="message 5 was sent, 4 was expected"):
            bench.session.taken(bench.told, 5, [fork(5)])
        await bench.settled()
        assert bench.memory.positions == [1, 2, 3]
        assert (bench.told.welcomed, bench.told.through) == ([1], 3)
        await bench.end()

    run(main())


def test_a_newer_connection_counts_and_what_the_older_still_sends_does_not() -> None:
    async def main() -> None:
        bench, newer = Bench(Memory()), Told()
        await bench.settled()
        bench.session.attach(newer, 1)
        assert newer.welcomed == [1]
        bench.session.taken(bench.told, 1, [fork(1)])
        bench.session.detach(bench.told)
        await bench.settled()
        assert bench.memory.positions == []
        bench.session.taken(newer, 1, [fork(1)])
        await bench.settled()
        assert (newer.through, bench.told.through) == (1, 0)
        await bench.end()

    run(main())


def test_what_has_an_answer_that_nobody_confirmed_is_not_acknowledged() -> None:
    async def main() -> None:
        bench = Bench(Memory())
        await bench.settled()
        bench.session.taken(bench.told, 1, [fork(1), request(2), fork(3)])
        await bench.settled()
        assert (bench.memory.positions, bench.told.through) == ([1, 2, 3], 1)
        newer = Told()
        bench.session.attach(newer, 1)
        assert newer.welcomed == [2], "also not by saying from where to send"
        bench.told.answers.clear()
        bench.session.confirmed()
        await bench.settled()
        assert newer.through == 3
        assert bench.memory.answers == {}, "the sink was told"
        await bench.end()

    run(main())


def test_what_comes_together_is_delivered_together_up_to_a_maximum() -> None:
    class Counting(MemorySink):
        sizes: list[int] = []  # noqa: RUF012  one test's

        async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
            self.sizes.append(len(deliveries))
            return await super().deliver(deliveries)

    async def main() -> None:
        memory = Memory()
        bench = Bench(memory, sink=Counting(memory), batch=4)
        await bench.settled()
        bench.session.taken(bench.told, 1, [fork(number) for number in range(1, 11)])
        await bench.settled()
        assert Counting.sizes == [4, 4, 2]
        assert memory.positions == list(range(1, 11))
        await bench.end()

    run(main())


def test_pauses_double_and_the_other_side_may_ask_for_longer_ones() -> None:
    async def main() -> None:
        asking = SinkUnavailable("busy")
        asking.retry_after_s = 7.0
        forever = SinkUnavailable("busy")
        forever.retry_after_s = 10_000.0
        bench = Bench(Memory(fails=[*[SinkUnavailable("away")] * 9, asking, forever]))
        await bench.settled()
        assert bench.pauses[:3] == [AGAIN_MIN_S, 2 * AGAIN_MIN_S, 4 * AGAIN_MIN_S]
        assert bench.pauses[8:] == [AGAIN_MAX_S, 7.0, ASKED_MAX_S]
        assert bench.told.refused[0].message == "away"
        bench.session.taken(bench.told, 1, [fork(1)])
        await bench.settled()
        assert bench.session.problem is None
        await bench.end()

    run(main())


def test_a_refusal_that_stops_the_driver_is_tried_again_less_and_less_often() -> None:
    async def main() -> None:
        bench = Bench(Memory(refuses={1}))
        for _ in range(14):
            await bench.settled()
            if bench.told.welcomed:
                bench.session.taken(bench.told, 1, [fork(1), fork(2)])
        assert isinstance(bench.session.problem, DeliveryRefused)
        assert bench.pauses[-1] == REFUSED_MAX_S
        assert bench.memory.positions == [], "nothing behind it overtakes it"
        await bench.end()

    run(main())


def test_what_can_t_be_read_is_passed_over() -> None:
    async def main() -> None:
        bench = Bench(Memory())
        await bench.settled()
        broken = encode(Kind.FORK, method=b"m", idempotency_key=b"\xc0", args=b"\xc1")
        bench.session.taken(bench.told, 1, [b"short", broken, encode(Kind.CALL), fork(4)])
        await bench.settled()
        assert bench.memory.positions == [4]
        assert bench.told.through == 4
        await bench.end()

    run(main())


def test_a_request_is_done_only_before_its_deadline() -> None:
    async def main() -> None:
        bench = Bench(Memory())
        await bench.settled()
        bench.session.taken(bench.told, 1, [request(1, 1000), request(2, 1001)])
        await bench.settled()
        assert bench.memory.positions == [2]
        late, done = bench.told.answers
        assert msgspec.msgpack.decode(late.reply[1:], type=ReplyError).code == "DL3022"
        assert done.reply[0] == 0
        await bench.end()

    run(main())


def test_a_sink_that_forgets_an_answer_lets_nobody_wait_for_ever() -> None:
    async def main() -> None:
        bench = Bench(Memory(off="an answer"))
        await bench.settled()
        bench.session.taken(bench.told, 1, [request(1)])
        await bench.settled()
        assert msgspec.msgpack.decode(bench.told.answers[0].reply[1:], type=ReplyError).code == "DL9001"
        await bench.end()

    run(main())


def test_a_sink_that_refuses_what_it_was_not_given_is_told_as_a_bug() -> None:
    class Wrong(MemorySink):
        async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
            raise DeliveryRefused("no", position=99)

    async def main() -> None:
        bench = Bench(Memory(), sink=Wrong(Memory()))
        await bench.settled()
        bench.session.taken(bench.told, 1, [fork(1)])
        await bench.settled()
        assert "refuses message 99" in bench.told.refused[0].message
        await bench.end()

    run(main())


def test_a_deposed_session_takes_nothing_any_more() -> None:
    async def main() -> None:
        bench = Bench(Memory(epoch=3))
        await bench.settled()
        assert bench.task.done()
        late = Told()
        bench.session.attach(late, 1)
        assert [type(error) for error in (*bench.told.refused, *late.refused)] == [Deposed, Deposed]
        await bench.end()

    run(main())


def test_a_sink_without_memory_begins_with_what_is_kept() -> None:
    async def main() -> None:
        bench = Bench(Memory(), first=41)
        await bench.settled()
        assert bench.told.welcomed == [41]
        await bench.end()

    run(main())
