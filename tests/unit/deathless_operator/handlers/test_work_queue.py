"""The queue of keys: once each, one worker at a time, growing pauses; time is the loop's, which the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deathless_operator.handlers.work_queue import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key, WorkQueue

pytestmark = pytest.mark.asyncio

A, B = Key("DeathlessService", "shop", "a"), Key("DeathlessService", "shop", "b")


class Clock:
    """Moves a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0
        loop.time = self._now  # type: ignore[method-assign]

    def _now(self) -> float:
        return self._real() + self._ahead

    async def pass_by(self, seconds: float) -> None:
        self._ahead += seconds
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def queue() -> Iterator[WorkQueue]:
    made = WorkQueue()
    yield made
    made.close()


async def test_key_added_often_is_given_out_once(queue: WorkQueue) -> None:
    for _ in range(10):
        queue.add(A)
    queue.add(B)
    assert queue.depth == 2
    assert [await queue.get(), await queue.get()] == [A, B]
    assert queue.depth == 0 and queue.busy == 2


async def test_key_added_while_in_work_comes_again_and_never_twice_at_once(queue: WorkQueue) -> None:
    queue.add(A)
    assert await queue.get() == A
    queue.add(A)
    queue.add(A)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(A, again_in_s=300.0)
    assert await waiting == A
    queue.done(A)
    assert queue.depth == 0 and queue.busy == 0


async def test_key_added_for_later_while_in_work_waits_for_the_rest_of_its_time(queue: WorkQueue) -> None:
    clock = Clock(asyncio.get_running_loop())
    queue.add(A)
    assert await queue.get() == A
    queue.add(A, delay_s=30.0)
    queue.add(A, delay_s=60.0)
    await clock.pass_by(20.0)
    queue.done(A)
    waiting = asyncio.ensure_future(queue.get())
    await clock.pass_by(9.0)
    assert not waiting.done()
    await clock.pass_by(1.0)
    assert await waiting == A


async def test_later_key_waits_and_an_event_makes_it_due(queue: WorkQueue) -> None:
    clock = Clock(asyncio.get_running_loop())
    queue.add(A, delay_s=300.0)
    waiting = asyncio.ensure_future(queue.get())
    await clock.pass_by(299.0)
    assert not waiting.done()
    queue.add(A)
    assert await waiting == A


async def test_earlier_time_wins_and_stale_entries_are_dropped(queue: WorkQueue) -> None:
    clock = Clock(asyncio.get_running_loop())
    queue.add(A, delay_s=10.0)
    queue.add(A, delay_s=100.0)
    queue.add(A, delay_s=5.0)
    await clock.pass_by(6.0)
    assert await queue.get() == A
    queue.done(A)
    waiting = asyncio.ensure_future(queue.get())
    await clock.pass_by(200.0)
    assert not waiting.done()
    queue.close()
    assert await waiting is None


async def test_failing_key_waits_longer_each_time_and_is_forgiven_when_done(queue: WorkQueue) -> None:
    clock = Clock(asyncio.get_running_loop())
    pauses = []
    queue.add(A)
    for _ in range(12):
        assert await queue.get() == A
        pauses.append(queue.failed(A))
        await clock.pass_by(pauses[-1] + 0.01)
    assert pauses[:3] == [BACKOFF_FIRST_S, 2 * BACKOFF_FIRST_S, 4 * BACKOFF_FIRST_S]
    assert pauses[-1] == BACKOFF_MAX_S
    assert await queue.get() == A
    queue.done(A)
    queue.add(A)
    assert await queue.get() == A
    assert queue.failed(A) == BACKOFF_FIRST_S


async def test_event_during_a_failing_look_does_not_shorten_the_pause(queue: WorkQueue) -> None:
    queue.add(A)
    assert await queue.get() == A
    queue.add(A)
    queue.failed(A)
    assert queue.depth == 0


async def test_time_in_work_is_told(queue: WorkQueue) -> None:
    clock = Clock(asyncio.get_running_loop())
    assert queue.longest_s() == 0.0
    queue.add(A)
    await queue.get()
    await clock.pass_by(700.0)
    assert queue.longest_s() >= 700.0


async def test_closed_queue_gives_nothing_and_takes_nothing(queue: WorkQueue) -> None:
    queue.add(A)
    assert await queue.get() == A
    queue.close()
    queue.add(B)
    queue.done(A, again_in_s=0.0)
    assert await queue.get() is None and queue.depth == 0
