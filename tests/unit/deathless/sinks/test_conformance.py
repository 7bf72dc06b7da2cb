"""The kit against stores in memory: one that is right passes, and each safeguard that is missing is found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from deathless.base.errors import Deposed, SinkRowNotKept, SinkRowRefused, SinkTipMismatch
from deathless.sinks.conformance import World, check
from deathless.sinks.port import Block, BlockRefused, Claim, Decision, Key, Opened, RefusedRow, Tip

pytest.importorskip("pyarrow", reason="blocks are made with pyarrow: pip install deathless[topics]")
SEEDS = range(40)
WITHOUT = [
    "fence first", "epoch", "writer", "compare", "one transaction", "kept with the tip", "fenced refusals",
    "refused again",
]  # fmt: skip


class Memory:
    """What a store has, whoever writes to it."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.epoch = 0
        self.writer = ""
        self.tip = Tip(0, 1, "", 0)
        self.decisions: list[Decision] = []
        self.kept: dict[int, str] = {}  # rows that were refused, and why
        self.mended = False  # what was refused is not refused any more


class MemoryStore:
    """A store in memory; `without` names the safeguard that it lacks."""

    def __init__(self, memory: Memory, without: str = "") -> None:
        self._memory = memory
        self._without = without
        self._claim: Claim | None = None

    async def open(self, claim: Claim, schema: str) -> Opened:
        await asyncio.sleep(0)
        tip = self._memory.tip  # too early for who reads before it fences
        await asyncio.sleep(0)
        if claim.epoch < self._memory.epoch and self._without != "epoch":
            raise Deposed("a later epoch writes here")
        self._memory.epoch, self._memory.writer, self._claim = claim.epoch, claim.writer, claim
        return Opened(tip if self._without == "fence first" else self._memory.tip, "c")

    async def write(self, block: Block, expected: int) -> None:
        memory = self._memory
        await asyncio.sleep(0)
        found = [row for batch in block.batches for row in batch.to_pylist()]
        if any(row["text"] == "bad" for row in found):
            raise BlockRefused("it is bad")
        numbers = [row["number"] for row in found]
        if self._without == "one transaction":
            memory.rows += numbers
        await asyncio.sleep(0)
        self._check(expected, self._without)
        if self._without != "one transaction":
            memory.rows += numbers
        memory.tip = msgspec.structs.replace(memory.tip, next_position=block.end, columns="c")

    def _check(self, expected: int, without: str) -> None:
        memory, claim = self._memory, self._claim
        is_ours = claim is not None and (claim.epoch, claim.writer) == (memory.epoch, memory.writer)
        if not is_ours and without != "writer":
            raise Deposed("another one writes here")
        if memory.tip.next_position != expected and without != "compare":
            raise SinkTipMismatch("the tip is elsewhere")

    async def give_up(self, block: Block, expected: int, why: str) -> None:
        memory = self._memory
        await asyncio.sleep(0)
        if self._without == "kept with the tip":
            memory.kept[block.start] = why
        await asyncio.sleep(0)
        if self._without != "fenced refusals":
            self._check(expected, "")
        memory.kept[block.start] = why
        memory.tip = msgspec.structs.replace(memory.tip, next_position=block.end, columns="c")

    async def refused(self, key: Key) -> Sequence[RefusedRow]:
        return [RefusedRow(at, 1, "", why, '{"text":"bad"}') for at, why in sorted(self._memory.kept.items())]

    async def retry(self, key: Key, position: int, why: str) -> None:
        if position not in self._memory.kept:
            raise SinkRowNotKept(f"position {position}")
        if self._memory.mended:
            del self._memory.kept[position]
            self._memory.rows.append(position)
            return
        if self._without != "refused again":
            raise SinkRowRefused(f"position {position} is refused again")

    async def discard(self, key: Key, position: int, why: str) -> None:
        if self._memory.kept.pop(position, None) is None:
            raise SinkRowNotKept(f"position {position}")

    async def tip(self, key: Key) -> Tip | None:
        return self._memory.tip

    async def decisions(self, key: Key) -> Sequence[Decision]:
        return self._memory.decisions[::-1]

    async def skip(self, key: Key, expected: int, end: int, why: str) -> None:
        if self._memory.tip.next_position != expected:
            raise SinkTipMismatch("it is elsewhere")
        self._memory.tip = msgspec.structs.replace(self._memory.tip, next_position=end)
        self._memory.writer = ""
        self._memory.decisions.append(Decision("", "skip", expected, end, why))

    async def adopt(self, key: Key, incarnation: int, why: str) -> Tip:
        before = self._memory.tip
        self._memory.tip = msgspec.structs.replace(before, columns="", adoption=before.adoption + 1)
        self._memory.writer = ""
        return self._memory.tip

    async def close(self) -> None:
        """Nothing is open."""


def play(seed: int, without: str = "") -> None:
    memory = Memory()

    async def stored() -> list[int]:
        return memory.rows

    asyncio.run(check(World(lambda: MemoryStore(memory, without), stored, refused="bad", keeps=True), seed=seed))


def play_all(without: str) -> None:
    for seed in SEEDS:
        play(seed, without)


@pytest.mark.parametrize("seed", SEEDS)
def test_store_that_keeps_the_rules_passes(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("without", WITHOUT)
def test_store_without_one_of_them_is_found(without: str) -> None:
    with pytest.raises(AssertionError, match=r"seed \d+: "):
        play_all(without)
