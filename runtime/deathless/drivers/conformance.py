"""What every sink must pass: a kit that plays the host, and breaks the sink between every two steps, from a seed.

    async def test_my_sink(seed):
        await check(World(sink=lambda: MySink(...), arrived=read_numbers), seed=seed)

The world outside is the caller's: `sink` gives a new, closed sink that writes to it, `arrived` reads what is there. The
kit sends messages of method `write` with arguments `{"number": N, "text": ...}`, N being 1, 2, 3, ... in the order in
which they must arrive; with `refused` some are of that method, and the sink must refuse them for good.

How it breaks a sink: a call is given up after so many turns of the event loop, as a process's death would; the sink is
opened again, or another one is made, in the same or a later epoch; a sink of an earlier epoch, closed or not, tries
once more. After each, what the sink says of its position must agree with what has arrived.

Guarantees: the same seed gives the same story, as far as the sink's own awaits do. Raises AssertionError with the
story. Does not: kill processes. Imports drivers.port and codec.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from deathless.base.errors import DeliveryRefused, Deposed, SinkUnavailable
from deathless.codec.wire import error_reply
from deathless.drivers.port import Answer, Delivery, Opened, Reference, Sink, Source

STEPS: Final = 40
BATCH_MAX: Final = 6
TURNS_MAX: Final = 12  # of the event loop, before a call is given up
SERVICE_ID: Final = b"0123456789abcdef"


class World(msgspec.Struct, frozen=True):
    """A world outside, and how to reach it."""

    sink: Callable[[], Sink]
    arrived: Callable[[], Awaitable[Sequence[int]]]  # the numbers, in the order in which they arrived
    refused: str = ""  # method that the sink refuses for good; empty: none
    exact: bool = True  # it keeps positions: exactly once. False: at least once, repetitions allowed


async def check(world: World, *, seed: int, steps: int = STEPS) -> None:
    """Play one story. Raises: AssertionError saying what broke, and the story up to there."""
    play = _Play(world, random.Random(seed))  # noqa: S311  a story, no secret
    try:
        await play.run(steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(play.story)) from error
    finally:
        for sink in play.sinks:
            await sink.close()


class _Play:
    """The host's part, told by a seed."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.story: list[str] = []
        self.sinks: list[Sink] = []  # all that were made
        self._world = world
        self._chance = chance
        self._epoch = 1
        self._sink: Sink | None = None
        self._former: list[Sink] = []  # of earlier epochs
        self._next = 1  # as the sink said, or should
        self._first = 1  # that the source keeps: nothing below it comes again
        self._must: list[int] = []  # numbers that must have arrived: durable
        self._answers: dict[int, bytes] = {}  # that were given and not confirmed
        self._made: dict[int, Delivery] = {}  # by position
        self._empty: dict[int, bool] = {}  # by position: it holds nothing
        self._repeated = False  # something may have been done that was not told

    async def run(self, steps: int) -> None:
        await self._open()
        for _ in range(steps):
            step = self._chance.choice(
                [self._deliver, self._deliver, self._deliver, self._broken_deliver, self._reopen, self._take_over,
                 self._late, self._confirm]
            )  # fmt: skip
            await step()
            await self._compare()
        await self._deliver()
        await self._compare()

    # ---- steps -----------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._sink is None:
            self._repeated = bool(self.sinks)  # this one knows nothing of what those before it did
            self._sink = self._world.sink()
            self.sinks.append(self._sink)
        sink = self._sink
        opened = await sink.open(self._source(self._epoch), self._first)
        self._say(f"open in epoch {self._epoch}: next is {opened.next_position}")
        self._check_opened(opened)

    def _check_opened(self, opened: Opened) -> None:
        if self._world.exact:
            assert self._next <= opened.next_position, f"it forgot {opened.next_position} to {self._next - 1}"
            last = max(self._made, default=0)
            assert opened.next_position <= last + 1, f"it has {opened.next_position - 1}, {last} was sent"
        else:
            assert self._first <= opened.next_position <= self._next, "it goes on where nothing was sent, or is kept"
        for position in range(self._next, opened.next_position):
            self._count(position)
        self._next = opened.next_position
        given = {answer.position: answer for answer in opened.answers}
        assert list(given) == sorted(given), "its answers ascend"
        for position, reply in self._answers.items():
            if not self._world.exact:
                continue
            assert position in given, f"it forgot the answer of {position}"
            assert given[position].reply == reply, f"another answer of {position} than it gave"
        for answer in opened.answers:
            self._check_answer(answer)

    async def _deliver(self) -> None:
        sink = self._sink
        assert sink is not None
        batch = self._batch()
        await self._deliver_whole(sink, batch)

    async def _deliver_whole(self, sink: Sink, batch: list[Delivery]) -> None:
        while batch:
            refusable = next((each for each in batch if each.method == self._world.refused), None)
            try:
                answers = await sink.deliver(batch)
            except DeliveryRefused as error:
                at = self._check_refusal(batch, refusable, error)
                refusable = batch[at]
                before, batch = batch[:at], batch[at + 1 :]
                await self._deliver_whole(sink, before)
                await self._pass_over(sink, refusable, error)
                continue
            assert refusable is None, f"it took {refusable}"
            self._say(f"delivered {batch[0].position} to {batch[-1].position}")
            for each in batch:
                self._count(each.position)
            wanted = [each.position for each in batch if each.reference is not None]
            assert [answer.position for answer in answers] == wanted, f"answers of {wanted} are wanted"
            for answer in answers:
                self._check_answer(answer)
            self._next = batch[-1].position + 1
            return

    def _check_refusal(self, batch: list[Delivery], refusable: Delivery | None, error: DeliveryRefused) -> int:
        """Give which one of the batch it is."""
        assert refusable is not None, f"it refuses {error.position}: {error.why}"
        assert error.position == refusable.position, f"it refuses {error.position}"
        self._say(f"{error.position} refused")
        return batch.index(refusable)

    async def _pass_over(self, sink: Sink, refused: Delivery, error: DeliveryRefused) -> None:
        answer = None
        if refused.reference is not None:
            answer = Answer(refused.position, refused.reference, error_reply(error.code, "refused", error.why))
            self._answers[refused.position] = answer.reply
        await sink.pass_over(refused.position, answer)
        self._next = refused.position + 1

    async def _broken_deliver(self) -> None:
        """Its caller is gone after some turns: nobody knows what was done, and the next sink must."""
        sink = self._sink
        assert sink is not None
        task = asyncio.ensure_future(sink.deliver(self._batch()))
        turns = self._chance.randrange(TURNS_MAX)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert not isinstance(result, AssertionError), str(result)
        self._say(f"a delivery was given up after {turns} turns")
        self._repeated = True
        await sink.close()
        self._sink = None
        await self._open()

    async def _reopen(self) -> None:
        """As after SinkUnavailable: the same object; or as after a death: another one."""
        if self._chance.random() < 0.5:
            self._sink = None
        await self._open()

    async def _take_over(self) -> None:
        """A later epoch's sink is opened while the earlier one still lives: it is of another process."""
        assert self._sink is not None
        self._former.append(self._sink)
        self._sink = None
        self._epoch += 1
        await self._open()

    async def _late(self) -> None:
        """A sink of an earlier epoch tries once more."""
        if not self._former or not self._world.exact:
            return
        late = self._chance.choice(self._former)
        self._say("a deposed sink tries")
        batch = self._batch()
        for attempt in (
            lambda: late.deliver(batch),
            lambda: late.pass_over(self._next, None),
            lambda: late.open(self._source(self._epoch - 1), self._first),
        ):
            try:
                await attempt()
            except (Deposed, SinkUnavailable):
                continue
            raise AssertionError("a deposed sink was not refused")

    async def _confirm(self) -> None:
        """The source has all answers: it keeps nothing below the next position any more."""
        assert self._sink is not None
        if self._next == 1:
            return
        await self._sink.confirmed(self._next - 1)
        self._answers.clear()
        self._first = self._next
        self._say(f"confirmed through {self._next - 1}")

    # ---- judging ---------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        arrived = list(await self._world.arrived())
        if self._world.exact:
            assert arrived == self._must, f"arrived {arrived[-10:]}, and {self._must[-10:]} must have"
            return
        first_ones = list(dict.fromkeys(arrived))
        assert set(self._must) <= set(first_ones), f"lost: {sorted(set(self._must) - set(first_ones))}"
        assert self._repeated or len(arrived) == len(first_ones), "repeated without a reason"

    def _count(self, position: int) -> None:
        made = self._made.get(position)
        if made is None:
            return  # a position that held nothing
        number = made.arguments["number"]
        assert isinstance(number, int)
        if made.method != self._world.refused and number not in self._must:
            self._must.append(number)

    def _check_answer(self, answer: Answer) -> None:
        made = self._made[answer.position]
        assert answer.reference == made.reference, f"answer of {answer.position} for another one"
        before = self._answers.setdefault(answer.position, answer.reply) if answer.position >= self._first else None
        assert before in (None, answer.reply) or not self._world.exact, f"two answers of {answer.position}"

    # ---- what is sent ----------------------------------------------------------------------------------------

    def _source(self, epoch: int) -> Source:
        return Source("shop", 0, SERVICE_ID, 1, epoch)

    def _batch(self) -> list[Delivery]:
        """Messages from the next position on; some positions hold nothing, as a CANCEL does."""
        found: list[Delivery] = []
        position, count = self._next, self._chance.randint(1, BATCH_MAX)
        while len(found) < count:
            if not self._empty.setdefault(position, self._chance.random() < 0.1):
                found.append(self._delivery(position))
            position += 1
        return found

    def _delivery(self, position: int) -> Delivery:
        """Give the message of this position, the same one each time."""
        made = self._made.get(position)
        if made is None:
            refused = self._world.refused and self._chance.random() < 0.2
            made = self._made[position] = Delivery(
                position=position,
                method=self._world.refused if refused else "write",
                key=f"key-{self._chance.randrange(3)}",
                arguments={"number": position, "text": f"ü{self._chance.random()}\n"},
                reference=Reference(100 + position, 1) if self._chance.random() < 0.4 else None,
                deadline_us=0,
                idempotency_key=f"shop/0/id/1/driver/{position}",
            )
        return made

    def _say(self, text: str) -> None:
        self.story.append(text)
