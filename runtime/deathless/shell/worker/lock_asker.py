"""How a worker asks its lock store: until there is an answer, since no answer is neither yes nor no (I1).

A take that got no answer may have been carried out, so the lock is read before anything is concluded. A follower whose
primary gets no answer finds out here whether the store answers it, and says so in the page.

Guarantees: `done` is called once, with an answer of the store, and the engine's effects are carried out behind it.
Does not: decide what an answer means (core does).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError, LockUnavailable
from deathless.core.supervisor.records import LockIs
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.shell.lock_stores.reachability import ask_on

T = TypeVar("T")
_LOG = logging.getLogger("deathless.worker")
RETRY_MIN_S: Final = 0.02
RETRY_MAX_S: Final = 0.25  # a primary asks again before LOCK_ANSWERS_S depose it


class LockAsker:
    """Asks one lock for one worker.

    Args:
        lock: the shard's.
        after: carries out what an answer led to.
        answering: told for how many milliseconds the store has been answering while `watch` is on; 0: it does not.
        spawn: runs work beside the caller; its failure stops the replica.
    """

    def __init__(
        self,
        lock: AsyncLock,
        *,
        after: Callable[[], None],
        answering: Callable[[int], None],
        spawn: Callable[[Awaitable[None]], asyncio.Future[None]],
    ) -> None:
        self._store = lock
        self._after = after
        self._answering = answering
        self._spawn = spawn
        self._watching: asyncio.Future[None] | None = None
        self._telling = False  # a look for the supervisor is under way

    def ask(
        self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]
    ) -> asyncio.Future[None]:
        """Carry an operation out and give its answer to `done`."""
        return self._spawn(self._ask(operation, done))

    async def _ask(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        done(await self._answer_of(operation))
        self._after()

    def take(
        self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]
    ) -> asyncio.Future[None]:
        """Take or steal the lock as it was seen; `done` gets None where somebody else was faster."""
        return self._spawn(self._take(replica, nonce, seen, done))

    async def _take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        holder: Holder | None
        try:
            holder = await self._store.take(replica, nonce, seen)
        except LockUnavailable:
            view = await self._answer_of(lambda lock: lock.view())
            holder = view.holder if view.holder is not None and view.holder.nonce == nonce else None
        done(holder)
        self._after()

    def tell(self, send: Callable[[LockIs], None]) -> asyncio.Future[None]:
        """Say what the lock says, if it answers: the supervisor doubts what another replica claims."""
        return self._spawn(self._tell(send))

    async def _tell(self, send: Callable[[LockIs], None]) -> None:
        if self._telling:
            return
        self._telling = True
        try:
            view = await self._store.view()
        except (DeathlessError, OSError):  # whoever needs the lock meets it again, and says so
            return
        finally:
            self._telling = False
        send(LockIs(view.epoch, view.holder.replica if view.holder is not None else ""))

    async def _answer_of(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]]) -> T:
        pause = RETRY_MIN_S
        while True:
            try:
                answer = operation(self._store)
                return cast("T", await answer if inspect.isawaitable(answer) else answer)
            except LockUnavailable as error:
                _LOG.warning("lock store gives no answer", extra={"why": str(error)})
                await asyncio.sleep(pause)
                pause = next_pause(pause, first_s=RETRY_MIN_S, most_s=RETRY_MAX_S)

    def watch(self, wanted: bool) -> None:
        """Find out, for as long as it is wanted, whether the store answers this replica."""
        if wanted and self._watching is None:
            self._watching = self._spawn(ask_on(self._store.view, self._answering))
        elif not wanted and self._watching is not None:
            self._watching.cancel()
            self._watching = None
