"""A lock that gives no answer is asked again; a take without an answer is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from deathless.base.errors import LockUnavailable
from deathless.base.ids import Epoch
from deathless.core.supervisor.records import LockIs
from deathless.engine.ports import AsyncLock, Holder, LockView
from deathless.shell.worker import lock_asker
from deathless.shell.worker.lock_asker import LockAsker

NONCE = bytes(16)
OURS = Holder(Epoch(3), "r0", NONCE)


class SilentLock:
    """Gives no answer so many times."""

    def __init__(self, silent: int, holder: Holder | None = None) -> None:
        self.silent = silent
        self.holder = holder
        self.views = 0

    async def view(self) -> LockView:
        """See the port."""
        self.views += 1
        if self.silent:
            self.silent -= 1
            raise LockUnavailable("not now")
        return cast("LockView", type("View", (), {"holder": self.holder})())

    async def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See the port."""
        raise LockUnavailable("done, or not")


def asked(lock: SilentLock, work: str) -> tuple[list[Any], int]:
    """What `ask` or `take` gave, and how often effects were carried out behind it."""
    answers: list[Any] = []
    after: list[int] = []

    async def main() -> None:
        asker = asker_of(lock, after)
        if work == "ask":
            await asker.ask(lambda store: store.view(), answers.append)
        else:
            await asker.take("r0", NONCE, cast("LockView", None), answers.append)

    asyncio.run(main())
    return answers, len(after)


def asker_of(lock: SilentLock, after: list[int], answering: list[int] | None = None) -> LockAsker:
    """An asker of a scripted lock."""

    def spawn(work: Awaitable[None]) -> asyncio.Future[None]:
        return asyncio.ensure_future(work)

    told = [] if answering is None else answering
    return LockAsker(cast("AsyncLock", lock), after=lambda: after.append(1), answering=told.append, spawn=spawn)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_asker, "RETRY_MIN_S", 0.0)


def test_operation_is_asked_until_there_is_an_answer() -> None:
    lock = SilentLock(3)
    answers, after = asked(lock, "ask")
    assert (len(answers), after, lock.views) == (1, 1, 4)


@pytest.mark.parametrize(("holder", "given"), [(OURS, OURS), (Holder(Epoch(3), "r1", b"1" * 16), None), (None, None)])
def test_take_without_an_answer_gives_what_the_lock_says_then(holder: Holder | None, given: Holder | None) -> None:
    assert asked(SilentLock(1, holder), "take") == ([given], 1)


def test_whether_the_store_answers_is_found_out_while_it_is_wanted() -> None:
    told: list[int] = []

    async def main() -> None:
        asker = asker_of(SilentLock(0), [], told)
        asker.watch(True)
        asker.watch(True)
        async with asyncio.timeout(20):
            while not told:  # noqa: ASYNC110  the asker has no event to wait for
                await asyncio.sleep(0)
        watching = asker._watching
        assert watching is not None
        asker.watch(False)
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(main())


def test_what_the_lock_says_is_told_once_it_answers() -> None:
    said: list[LockIs] = []

    async def main() -> None:
        lock = DirectoryLockFake()
        asker = asker_of(cast("SilentLock", lock), [])
        await asyncio.gather(asker.tell(said.append), asker.tell(said.append))
        await asker.tell(said.append)
        lock.silent = 1
        await asker.tell(said.append)

    asyncio.run(main())
    assert said == [LockIs(3, "r0"), LockIs(3, "")], "one look at a time, and nothing without an answer"


class DirectoryLockFake(SilentLock):
    """Knows an epoch, and has no holder after the first look."""

    def __init__(self) -> None:
        super().__init__(0, OURS)

    async def view(self) -> LockView:
        """See the port."""
        await super().view()
        await asyncio.sleep(0)
        holder, self.holder = self.holder, None
        return LockView(None, 3, 3, holder, 0, "")
