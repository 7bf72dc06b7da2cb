"""A sink that delivers each message by itself: no key waits for another, and what can't be delivered is given up.

    messages --> KeyQueues --attempt, several at a time--> sink --> done in any order
                     '--given up--> the service lists it (or who waits is told) --confirmed--> done

The sink keeps no position, so a new process begins with the first message that the service keeps: at least once, and
what was done behind a message that waits comes again. Only a position below which all is done is acknowledged.

Guarantees: one dead receiver stops nobody else. At most `room_bytes` and `room_messages` are taken behind a message
that waits; then it is given up, because others need its room. Nothing is given up without the service's having
confirmed that it knows. Does not: decide what is attempted when (`key_queues` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError, DeliveryRefused, Deposed, SinkUnavailable
from deathless.codec.wire import error_reply
from deathless.drivers.key_queues import GivenUp, KeyQueues
from deathless.drivers.port import Answer, Delivery, KeyedSink, Source
from deathless.drivers.session import AGAIN_MAX_S, AGAIN_MIN_S
from deathless.drivers.source_link import Outgoing, Passed, Policy, SourceLink, too_late

_LOG: Final = logging.getLogger("deathless.drivers")
TROUBLES_TOLD_MAX: Final = 3  # keys that are named in what operators see


class KeyedSession(SourceLink):
    """Takes one source's messages to one keyed sink; `run` works until it is cancelled.

    Args:
        source, first, policy, answers, clock_us: see SourceLink.
        sink: made for this source.
        now: monotonic seconds.
    """

    def __init__(
        self,
        source: Source,
        first: int,
        sink: KeyedSink,
        policy: Policy,
        answers: Outgoing,
        *,
        clock_us: Callable[[], int] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source, first, policy, answers, clock_us)
        self._sink = sink
        self._now = now
        self._faulty = False  # the sink could not name a destination, which was told
        self._queues = KeyQueues(
            self._destination,
            concurrency=sink.concurrency,
            attempts_max=policy.attempts_max,
            age_max_s=policy.age_max_s,
        )
        self._sizes: dict[int, int] = {}  # bytes of each position from `_next` on. Invariant: consecutive positions
        self._bytes = 0  # Invariant: their sum
        self._done: set[int] = set()  # of these, the ones that are done
        self._attempts: set[asyncio.Task[None]] = set()

    def _destination(self, delivery: Delivery) -> str:
        try:
            return self._sink.destination(delivery)
        except Exception:  # noqa: BLE001  a bug of the sink's costs no other key: this one has its own destination
            if not self._faulty:
                self._faulty = True
                _LOG.exception("the sink failed to name a destination", extra={"driver": self._policy.driver})
            return f"key {delivery.key}"

    def _taken_through(self) -> int:
        return self._next + len(self._sizes)

    def _take(self, position: int, message: bytes) -> None:
        self._sizes[position] = len(message)
        self._bytes += len(message)
        item = self._read(position, message)
        if isinstance(item, Passed):
            self._finish(position, item.answer)
        else:
            self._queues.add(item, self._now())

    # ---- the sink --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, attempt, and again, for ever; ends only when a later epoch was seen."""
        await self._opened()
        while True:
            self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._work.wait()
            self._work.clear()

    async def _opened(self) -> None:
        pause_s = AGAIN_MIN_S
        while True:
            try:
                opened = await self._sink.open(self.source, self._first)
            except Exception as error:  # noqa: BLE001  a bug of the sink's; nothing is lost by trying again
                ours = error if isinstance(error, DeathlessError) else SinkUnavailable(_said(error))
                if str(ours) != str(self.problem):
                    _LOG.warning("driver can't deliver", extra={"driver": self._policy.driver, "why": str(ours)})
                self.problem = ours
                self._refuse(ours)
                await asyncio.sleep(pause_s)
                pause_s = next_pause(pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
                continue
            self._next = opened.next_position
            self._open = True
            self.problem = None
            if self._listener is not None and not self._welcomed:
                self._welcome()
            return

    def _step(self) -> None:
        """Begin what may begin, give up what must be, and tell both sides how far all is done."""
        now = self._now()
        for delivery in self._queues.ready(now):
            task = asyncio.get_running_loop().create_task(self._attempt(delivery))
            self._attempts.add(task)
            task.add_done_callback(self._attempts.discard)
        while given_up := self._queues.give_up(now, pressed=self._pressed):
            for each in given_up:
                self._pass_up(each)
        troubles = self._queues.troubles()
        named = "; ".join(f"key {each.key!r}: {each.why}" for each in troubles[:TROUBLES_TOLD_MAX])
        self.problem = SinkUnavailable(f"{len(troubles)} keys wait: {named}") if troubles else None
        self._commit()

    @property
    def _pressed(self) -> bool:
        return self._bytes >= self._policy.room_bytes or len(self._sizes) >= self._policy.room_messages

    def _pause_s(self) -> float | None:
        deadline = self._queues.deadline()
        return None if deadline is None else max(0.0, deadline - self._now())

    async def _attempt(self, delivery: Delivery) -> None:
        queues = self._queues
        given_up: GivenUp | None = None
        if delivery.reference is not None and self._is_over(delivery.deadline_us):  # while it waited for its key
            queues.withdrawn(delivery)
            self._finish(delivery.position, too_late(delivery.position, delivery.reference))
            self._work.set()
            return
        try:
            reply = await self._sink.attempt(delivery)
        except DeliveryRefused as error:
            if delivery.reference is not None:
                queues.succeeded(delivery)
                refusal = error_reply(error.code, type(error).__name__, error.why)
                self._finish(delivery.position, Answer(delivery.position, delivery.reference, refusal))
            elif self._policy.skip_refused:
                queues.succeeded(delivery)
                given_up = GivenUp(delivery, f"refused: {error.why}")
            else:
                given_up = queues.refused(delivery, self._now(), f"refused: {error.why}")
        except SinkUnavailable as error:
            given_up = queues.failed(delivery, self._now(), error.message, error.retry_after_s)
        except Exception as error:  # noqa: BLE001  a bug of the sink's costs this message's key alone
            _LOG.exception("the sink failed", extra={"driver": self._policy.driver, "position": delivery.position})
            given_up = queues.failed(delivery, self._now(), _said(error))
        else:
            queues.succeeded(delivery)
            self.delivered += 1
            answer = Answer(delivery.position, delivery.reference, reply) if delivery.reference is not None else None
            self._finish(delivery.position, answer)
        if given_up is not None:
            self._pass_up(given_up)
        self._work.set()

    def _pass_up(self, given_up: GivenUp) -> None:
        delivery, why = given_up
        self._finish(delivery.position, self._give_up(delivery, why))

    def _finish(self, position: int, answer: Answer | None) -> None:
        """A position is done; it is acknowledged once all before it are, and the service has confirmed the answers."""
        if answer is not None:
            self._answers.add([answer])
        self._done.add(position)
        while self._next in self._done:
            self._done.discard(self._next)
            self._bytes -= self._sizes.pop(self._next)
            self._next += 1

    async def close(self) -> None:
        """Let go of the sink; `run` was cancelled."""
        self._refuse(Deposed(f"epoch {self.source.epoch} of {self.source.service} ended here"))
        for task in list(self._attempts):
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await self._sink.close()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
