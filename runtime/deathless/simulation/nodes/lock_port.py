"""A simulated worker's way to the lock: asked again until there is an answer; twin of the shell's.

Guarantees: `done` is called once, with an answer of the lock, and what it led to is done behind it. Does not: decide
what an answer means (core does).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError, LockUnavailable
from deathless.core import events as ev
from deathless.core.supervisor.records import LockIs
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.engine.replica.failures import as_ours

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

T = TypeVar("T")
RETRY_MIN_S: Final = 0.02
RETRY_MAX_S: Final = 0.25
ASK_S: Final = 0.2  # between two asks whether the lock store answers a follower
ANSWER_S: Final = 0.5  # an answer that takes longer is a miss


class LockChannel(Protocol):
    """The way to the lock: at once for a directory, over a network for a store."""

    def ask(
        self,
        worker: WorkerNode,
        operation: Callable[[Lock], object],
        answered: Callable[[object], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Carry an operation out; one of the two is called in the worker, later."""
        ...


class SimLockPort:
    """Of one worker.

    Args:
        worker: who asks.
        channel: the way.
    """

    def __init__(self, worker: WorkerNode, channel: LockChannel) -> None:
        self._worker = worker
        self._channel = channel
        self._watch = 0  # number of the present watch of the lock; odd while it asks

    def ask(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """See LockPort."""
        self._ask(cast("Callable[[Lock], object]", operation), cast("Callable[[object], None]", done), RETRY_MIN_S)

    def _ask(self, operation: Callable[[Lock], object], done: Callable[[object], None], pause_s: float) -> None:
        def failed(error: Exception) -> None:
            if isinstance(error, LockUnavailable):
                longer_s = next_pause(pause_s, first_s=RETRY_MIN_S, most_s=RETRY_MAX_S)
                self._worker.call_later(pause_s, lambda: self._ask(operation, done, longer_s))
            else:
                self._broken(error)

        self._channel.ask(self._worker, operation, lambda answer: self.answered(done, answer), failed)

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """See LockPort."""

        def found(view: LockView) -> None:
            held = view.holder
            done(held if held is not None and held.nonce == nonce else None)

        def failed(error: Exception) -> None:
            if isinstance(error, LockUnavailable):
                self.ask(lambda lock: lock.view(), found)
            else:
                self._broken(error)

        self._channel.ask(
            self._worker,
            lambda lock: lock.take(replica, nonce, seen),
            lambda answer: self.answered(cast("Callable[[object], None]", done), answer),
            failed,
        )

    def answered(self, done: Callable[[object], None], answer: object) -> None:
        """Give an answer to whoever asked, and do what it led to."""
        try:
            done(answer)
        except DeathlessError as error:
            self._broken(error)
        self._worker.host_of_engine.after()

    def _broken(self, error: Exception) -> None:
        self._worker.post(ev.Failed(as_ours(error, "asking the lock")))

    def tell(self) -> None:
        """The supervisor doubts what others claim: say what the lock says, if it answers."""

        def answered(view: object) -> None:
            assert isinstance(view, LockView)
            holder = view.holder.replica if view.holder is not None else ""
            self._worker.host.tell_supervisor(LockIs(view.epoch, holder))

        self._channel.ask(self._worker, lambda lock: lock.view(), answered, lambda _: None)

    def watch(self, wanted: bool) -> None:
        """A follower whose primary gets no answer from the lock store finds out whether it does itself."""
        if wanted != bool(self._watch % 2):
            self._watch += 1
            self._worker.page.lock_answers_s = 0.0
            if self._watch % 2:
                self._ask_if_it_answers(self._watch, None)

    def _ask_if_it_answers(self, watch: int, since: float | None) -> None:
        if watch != self._watch:
            return
        worker, now = self._worker, self._worker.host.clock.now
        asked = now()

        def ended(answered: bool) -> None:
            if watch == self._watch:
                first = (since or now()) if answered and now() - asked <= ANSWER_S else None
                worker.page.lock_answers_s = now() - first if first is not None else 0.0
                worker.call_later(ASK_S, lambda: self._ask_if_it_answers(watch, first))

        self._channel.ask(worker, lambda lock: lock.view(), lambda _: ended(True), lambda _: ended(False))
