"""Whether the lock store answers: time without a miss is counted, a miss begins it anew, a late answer is a miss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deathless.base.errors import ForeignDirectory, LockUnavailable
from deathless.shell.lock_stores import reachability as lock_answers
from deathless.shell.lock_stores.reachability import ask_on


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_answers, "ASK_S", 0.002)
    monkeypatch.setattr(lock_answers, "ANSWER_S", 0.02)


class Store:
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.asked = 0

    async def view(self) -> object:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return object()


def asking(look: Callable[[Store, list[int]], Awaitable[None]]) -> list[int]:
    """Ask while `look` looks; gives all that was told."""
    told: list[int] = []

    async def main() -> None:
        store = Store()
        task = asyncio.ensure_future(ask_on(store.view, told.append))
        async with asyncio.timeout(10):
            await look(store, told)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    return told


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  nothing there can be waited on
        await asyncio.sleep(0)


def test_time_without_a_miss_grows_from_the_first_answer_and_is_nothing_at_the_end() -> None:
    async def look(_store: Store, told: list[int]) -> None:
        await until(lambda: bool(told) and told[-1] >= 20)

    told = asking(look)
    assert told[0] == 0
    assert told[:-1] == sorted(told[:-1])
    assert told[-1] == 0


@pytest.mark.parametrize("error", [LockUnavailable("away"), ForeignDirectory("not ours"), OSError("broken")])
def test_miss_begins_the_time_anew(error: Exception) -> None:
    async def look(store: Store, told: list[int]) -> None:
        await until(lambda: bool(told) and told[-1] >= 20)
        store.error = error
        await until(lambda: told[-1] == 0)
        asked, store.error = store.asked, None
        await until(lambda: store.asked > asked + 1)
        assert told[-1] < 20
        await until(lambda: told[-1] >= 20)

    asking(look)


def test_late_answer_is_a_miss_as_soon_as_it_is_late_and_is_waited_for() -> None:
    async def look(store: Store, told: list[int]) -> None:
        await until(lambda: bool(told) and told[-1] >= 20)
        store.hold = asyncio.Event()
        await until(lambda: told[-1] == 0)
        asked, count = store.asked, len(told)
        store.hold.set()
        await until(lambda: len(told) > count)
        assert (store.asked, told[-1]) == (asked, 0)

    asking(look)


def test_ask_under_way_ends_with_the_asking() -> None:
    ended: list[bool] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        task = asyncio.ensure_future(ask_on(forever, lambda _: None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert ended == [True]

    asyncio.run(main())


def test_bug_in_asking_is_not_taken_for_silence() -> None:
    async def main() -> None:
        store = Store()
        store.error = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            await ask_on(store.view, lambda _: None)

    asyncio.run(main())
