"""What every store of sinks must pass: a kit that plays the sink, and breaks the store between every two steps.

    async def test_my_store(seed):
        await check(World(store=lambda: MyStore(...), stored=read_numbers), seed=seed)

The world outside is the caller's: `store` gives a new, closed store that writes to it, `stored` reads the column
`number` of the table, in any order. The kit writes rows of the schema `number:int64,text:utf8`, of which number is the
position: so a position that is stored twice, or left out, shows. With `refused` some rows have that text, and the store
must refuse them for good.

How it breaks a store: a call is given up after so many turns of the event loop, as a process's death would; the store
is opened again, or another one is made, in the same or a later epoch; a store of an earlier epoch, or of an earlier
process in the same one, tries once more; an operator skips positions, or adopts the store. Of a store that keeps what
it refuses (KeepsRefused), rows are kept and seen to. After each, the tip must agree with the rows.

Guarantees: the same seed gives the same story, as far as the store's own awaits do. Raises AssertionError with the
story. Does not: kill processes. Imports the port and topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from deathless.base.errors import (
    DeathlessError,
    Deposed,
    SinkRowNotKept,
    SinkRowRefused,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.sinks.port import Block, BlockRefused, Claim, KeepsRefused, Key, Store
from deathless.topics.arrow import Row, record_batch

STEPS: Final = 30
BLOCK_MAX: Final = 9  # positions
TURNS_MAX: Final = 24  # of the event loop, before a call is given up
SCHEMA: Final = "number:int64,text:utf8"
KEY: Final = Key("facts", "shop", 0, "0123456789abcdef" * 2)


class World(msgspec.Struct, frozen=True):
    """A world outside, and how to reach it."""

    store: Callable[[], Store]
    stored: Callable[[], Awaitable[Sequence[int]]]  # numbers in the table
    refused: str = ""  # text of a row that the store refuses for good; empty: none
    keeps: bool = False  # it is a store that keeps what it refuses, and is told to


def block_of(start: int, end: int, text: Callable[[int], str] = str) -> Block:
    """Give the rows of these positions; every seventh position has none."""
    rows = [Row(at, f"key-{at % 3}", at, [at, text(at)]) for at in range(start, end) if at % 7]
    return Block(start, end, [record_batch(SCHEMA, 0, rows)] if rows else [])


async def check(world: World, *, seed: int, steps: int = STEPS) -> None:
    """Play one story. Raises: AssertionError saying what broke, and the story up to there."""
    play = _Play(world, random.Random(seed))  # noqa: S311 - a story, no secret
    try:
        await play.run(steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(play.story)) from error
    finally:
        for store in play.stores:
            await store.close()


class _Play:
    """The sink's part, told by a seed."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.story: list[str] = []
        self.stores: list[Store] = []  # all that were made
        self._world = world
        self._chance = chance
        self._epoch = 1
        self._writers = 0
        self._store = self._made()
        self._former: list[tuple[Store, Claim]] = []  # of earlier claims
        self._claim = Claim(KEY, 1, 1, "")
        self._next = 0  # the tip, as it must be
        self._given_up: set[int] = set()  # positions that were skipped
        self._kept: set[int] = set()  # positions whose rows were refused, and are kept
        self._bad: dict[int, bool] = {}  # by position: its row is refused

    async def run(self, steps: int) -> None:
        """Play so many steps."""
        await self._open()
        for _ in range(steps):
            step = self._chance.choice(
                [self._write, self._write, self._write, self._broken_write, self._broken_open, self._reopen,
                 self._take_over, self._overtake, self._late, self._skip, self._adopt, self._elsewhere,
                 self._keep_refused, self._see_to_refused]
            )  # fmt: skip
            await step()
            await self._compare()
        await self._write()
        await self._compare()

    # ---- steps -----------------------------------------------------------------------------------------------

    def _made(self) -> Store:
        store = self._world.store()
        self.stores.append(store)
        return store

    def _claimed(self) -> Claim:
        self._writers += 1
        return Claim(KEY, 1, self._epoch, f"w{self._writers}")

    async def _open(self, possible: Sequence[int] = ()) -> None:
        """Open, and compare the tip; `possible`: others that it may be, because a write was given up."""
        self._claim = self._claimed()
        opened = await self._store.open(self._claim, SCHEMA)
        found = opened.tip.next_position
        self._say(f"open as {self._claim.writer} in epoch {self._epoch}: the tip is {found}")
        assert found in (self._next, *possible), f"the tip is {found}, and must be {self._next} of {list(possible)}"
        assert not opened.tip.columns or opened.tip.columns == opened.columns, "the columns did not change"
        assert not opened.foreign and not opened.retired
        self._next = found

    async def _write(self) -> None:
        block = self._block()
        bad = [at for at in range(block.start, block.end) if self._is_bad(at)]
        try:
            await self._store.write(block, self._next)
        except BlockRefused:
            assert bad, "a block without a refused row was refused"
            self._say(f"{block.start} to {block.end - 1} are refused")
            return
        assert not bad, f"it took {bad}"
        self._say(f"{block.start} to {block.end - 1} are stored")
        self._next = block.end

    async def _broken_write(self) -> None:
        """Its caller is gone after some turns: nobody knows what was stored, and the next claim must."""
        block, turns = self._block(), self._chance.randrange(TURNS_MAX)
        await self._broken(self._store.write(block, self._next), turns)
        self._say(f"storing {block.start} to {block.end - 1} was given up after {turns} turns")
        await self._begin_again([block.end])

    async def _broken_open(self) -> None:
        turns = self._chance.randrange(TURNS_MAX)
        await self._broken(self._store.open(self._claimed(), SCHEMA), turns)
        self._say(f"open was given up after {turns} turns")
        await self._begin_again()

    async def _broken(self, call: Awaitable[object], turns: int) -> None:
        task = asyncio.ensure_future(call)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert not isinstance(result, AssertionError), str(result)

    async def _begin_again(self, possible: Sequence[int] = ()) -> None:
        """Another process of the same epoch; what the one before it began may still be under way in the store."""
        if self._chance.random() < 0.5:
            self._former.append((self._store, self._claim))
        else:
            await self._store.close()
        self._store = self._made()
        await self._open(possible)

    async def _reopen(self) -> None:
        """As after SinkUnavailable: the same object; or as after a death: another one."""
        if self._chance.random() < 0.5:
            self._store = self._made()
        await self._open()

    async def _take_over(self) -> None:
        """A later epoch's store is opened while the earlier one still lives: it is of another process."""
        self._former.append((self._store, self._claim))
        self._epoch += 1
        self._store = self._made()
        await self._open()

    async def _overtake(self) -> None:
        """A later epoch's store is opened while the earlier one is in the midst of a block."""
        block = self._block()
        begun = asyncio.ensure_future(self._store.write(block, self._next))
        turns = self._chance.randrange(TURNS_MAX)
        for _ in range(turns):
            await asyncio.sleep(0)
        self._say(f"storing {block.start} to {block.end - 1} is overtaken after {turns} turns")
        self._former.append((self._store, self._claim))
        self._epoch += 1
        self._store = self._made()
        await self._open([block.end])
        (result,) = await asyncio.gather(begun, return_exceptions=True)
        assert result is not None or self._next == block.end, "it stored behind the fence"
        assert not isinstance(result, AssertionError), str(result)

    async def _late(self) -> None:
        """A store of an earlier claim tries once more; one of an earlier epoch also to open."""
        if not self._former:
            return
        late, claim = self._chance.choice(self._former)
        self._say(f"{claim.writer} of epoch {claim.epoch} tries")
        block = self._block()
        attempts: list[Callable[[], Awaitable[object]]] = [lambda: late.write(block, self._next)]
        if claim.epoch < self._epoch:
            attempts.append(lambda: late.open(claim, SCHEMA))
        if self._world.keeps and isinstance(late, KeepsRefused):
            at = next(at for at in range(self._next + 1, self._next + 3) if at % 7)
            single = block_of(at, at + 1)
            attempts.append(lambda: late.give_up(single, self._next, "late"))
        for attempt in attempts:
            try:
                await attempt()
            except (Deposed, SinkUnavailable, SinkTipMismatch, BlockRefused):
                continue
            raise AssertionError("a deposed store was not refused")

    async def _skip(self) -> None:
        """An operator gives up some positions; the sink meets it at its next block."""
        expected = self._next + self._chance.choice((0, 0, 1))
        end = max(expected, 1) + self._chance.randint(1, 3)
        operator = self._made()
        try:
            await operator.skip(KEY, expected, end, "tried")
        except SinkTipMismatch:
            assert expected != self._next, "the tip stood there"
            return
        assert expected == self._next, "it skipped what is not next"
        self._say(f"{expected} to {end - 1} are skipped")
        self._given_up |= set(range(expected or 1, end))
        self._next = end
        await self._is_refused()
        await self._open()
        assert (await operator.decisions(KEY))[0].next == end, "what was decided is kept"

    async def _keep_refused(self) -> None:
        """The row at the tip is refused: it is kept, and the tip moves behind it; or the caller is gone meanwhile."""
        at, store = max(self._next, 1), self._store
        if not self._world.keeps or not self._is_bad(at):
            return
        assert isinstance(store, KeepsRefused)
        work = store.give_up(block_of(at, at + 1, self._text), self._next, "tried")
        if self._chance.random() < 0.3:
            turns = self._chance.randrange(TURNS_MAX)
            await self._broken(work, turns)
            self._say(f"keeping {at} was given up after {turns} turns")
            await self._begin_again([at + 1])
        else:
            await work
            self._next = at + 1
        if self._next > at:
            self._say(f"{at} is kept as refused")
            self._kept.add(at)
            self._given_up.add(at)
        await self._compare_kept(self._made())

    async def _see_to_refused(self) -> None:
        """An operator has a row stored that is kept, which the table still refuses; or lets go of it."""
        if not self._kept:
            return
        operator = self._made()
        assert isinstance(operator, KeepsRefused)
        at = self._chance.choice(sorted(self._kept))
        if self._chance.random() < 0.5:
            await operator.discard(KEY, at, "tried")
            self._kept.remove(at)
            self._say(f"{at} is discarded")
        try:
            await operator.retry(KEY, at, "tried")
        except SinkRowRefused:
            assert at in self._kept, "it was let go of"
        except SinkRowNotKept:
            assert at not in self._kept, "it is kept"
        else:
            raise AssertionError("it stored a row that it refuses, or does not keep")
        await self._compare_kept(operator)

    async def _adopt(self) -> None:
        operator = self._made()
        tip = await operator.adopt(KEY, 1, "tried")
        self._say(f"adopted at {tip.next_position}")
        assert tip.next_position == self._next
        assert tip.columns == ""
        await self._is_refused()
        await self._open()

    async def _is_refused(self) -> None:
        """The sink does not go on where an operator has moved the tip, until it has read it anew."""
        try:
            await self._store.write(self._block(good=True), self._next)
        except (Deposed, SinkTipMismatch, SinkUnavailable):
            return
        raise AssertionError("a store went on though an operator has decided")

    async def _elsewhere(self) -> None:
        """The tip is ours, and not where the sink thinks: nothing is stored."""
        try:
            await self._store.write(block_of(self._next + 5, self._next + 6), self._next + 5)
        except SinkTipMismatch:
            await self._begin_again()
            return
        except DeathlessError as error:
            raise AssertionError(f"it says {error} where its tip is elsewhere") from error
        raise AssertionError("it wrote though its tip is elsewhere")

    # ---- judging ---------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        found = sorted(await self._world.stored())
        wanted = [at for at in range(1, self._next) if at % 7 and at not in self._given_up]
        assert found == wanted, f"stored {found[-12:]}, and must be {wanted[-12:]}"
        tip = await self._made().tip(KEY)
        assert tip is not None and tip.next_position == self._next, f"the tip is {tip}, and must be {self._next}"

    async def _compare_kept(self, operator: Store) -> None:
        assert isinstance(operator, KeepsRefused)
        kept = [each.position for each in await operator.refused(KEY)]
        assert kept == sorted(self._kept), f"refused and kept are {kept}, and must be {sorted(self._kept)}"

    # ---- what is sent ----------------------------------------------------------------------------------------

    def _block(self, *, good: bool = False) -> Block:
        """Rows from the tip on; one that is refused is by itself in its block now and then."""
        start = max(self._next, 1)
        end = start + self._chance.randint(1, BLOCK_MAX)
        if good or self._chance.random() < 0.7:
            while end > start + 1 and any(self._is_bad(at) for at in range(start, end)):
                end -= 1
        if any(self._is_bad(at) for at in range(start, end)) and (good or self._chance.random() < 0.3):
            self._bad |= dict.fromkeys(range(start, end), False)
        return block_of(start, end, self._text)

    def _text(self, position: int) -> str:
        return self._world.refused if self._is_bad(position) else f"ü{position}\n\t\\"

    def _is_bad(self, position: int) -> bool:
        """Is this position's row refused? The same answer each time, until somebody mends the table."""
        if not self._world.refused or not position % 7:
            return False
        return self._bad.setdefault(position, self._chance.random() < 0.1)

    def _say(self, text: str) -> None:
        self.story.append(text)
