"""The kit lets a right sink pass, and finds each mistake."""

from __future__ import annotations

import pytest
from tests.unit.deathless.drivers.memory_sink import Memory, MemorySink

from deathless.drivers.conformance import World, check

pytestmark = pytest.mark.asyncio
SEEDS = range(20)


def world(memory: Memory, *, refused: str = "no") -> World:
    return World(sink=lambda: MemorySink(memory), arrived=memory.numbers, refused=refused)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_sink_that_keeps_all_together_passes(seed: int) -> None:
    await check(world(Memory()), seed=seed)


@pytest.mark.parametrize("off", ["epoch", "fence", "answers", "all or nothing", "position with effect", "an answer"])
async def test_a_sink_with_one_mistake_is_found_out(off: str) -> None:
    async def all_seeds() -> None:
        for seed in SEEDS:
            await check(world(Memory(off=off), refused=""), seed=seed)

    with pytest.raises(AssertionError, match=r"seed \d+: "):
        await all_seeds()
