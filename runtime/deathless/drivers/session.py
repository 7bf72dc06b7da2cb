"""A sink that keeps its position, or takes messages together: all of one source reaches it in the order it was sent.

    messages --> deliver --> answers, PEER_COMMIT
        ^           |
        '-----------'  a pause, doubled each time, and the sink is opened anew <--- when the sink takes nothing

Guarantees: nothing overtakes. A sink that takes nothing is opened again for ever (I4); what it refuses for good is told
to who waits, or listed by the service where `onRefusal` is skip. The queue is bounded by what the primary sends without
an acknowledgement (I10). Does not: know keys (`keyed_session` does).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError, DeliveryRefused, Deposed, Internal, Invalid, SinkUnavailable
from deathless.codec.wire import error_reply
from deathless.drivers.key_queues import ASKED_MAX_S
from deathless.drivers.port import Answer, Delivery, Sink, Source
from deathless.drivers.source_link import Outgoing, Passed, Policy, SourceLink

_LOG: Final = logging.getLogger("deathless.drivers")
AGAIN_MIN_S: Final = 0.02
AGAIN_MAX_S: Final = 2.0  # between two attempts with a sink that takes nothing
REFUSED_MAX_S: Final = 30.0  # with one that refuses a message which may not be skipped


class Session(SourceLink):
    """Takes one source's messages to one sink; `run` works until it is cancelled.

    Args:
        source, first, policy, answers, clock_us: see SourceLink.
        sink: made for this source.
        sleep: between two attempts.
    """

    def __init__(
        self,
        source: Source,
        first: int,
        sink: Sink,
        policy: Policy,
        answers: Outgoing,
        *,
        clock_us: Callable[[], int] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(source, first, policy, answers, clock_us)
        self._sink = sink
        self._sleep = sleep
        self._queue: deque[tuple[int, bytes]] = deque()  # not durable. Invariant: consecutive positions
        self._told = 0  # told to the sink as confirmed
        self._kept = 0  # last position with an answer
        self._pause_s = 0.0

    def _taken_through(self) -> int:
        return self._next + len(self._queue)

    def _take(self, position: int, message: bytes) -> None:
        self._queue.append((position, message))

    # ---- the sink --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, deliver, and again, for ever; ends only when a later epoch was seen."""
        while True:
            try:
                await self._opened()
                while True:
                    await self._work.wait()
                    self._work.clear()
                    await self._deliver_all()
            except Deposed as error:
                self._fail(error)
                return
            except Invalid as error:  # DeliveryRefused, and what an operator must put right
                await self._rest(error, REFUSED_MAX_S)
            except SinkUnavailable as error:
                await self._rest(error, AGAIN_MAX_S)
            except Exception as error:  # noqa: BLE001  a bug of the sink's; nothing is lost by trying again
                _LOG.exception("the sink failed", extra={"driver": self._policy.driver})
                await self._rest(SinkUnavailable(f"{type(error).__name__}: {error}"), AGAIN_MAX_S)

    async def _opened(self) -> None:
        opened = await self._sink.open(self.source, self._first)
        self._next = opened.next_position
        self._give(opened.answers)
        self._open = True
        if self._pause_s == 0.0:
            self.problem = None
        if self._listener is not None and not self._welcomed:
            self._welcome()
        self._work.set()

    async def _rest(self, error: DeathlessError, most_s: float) -> None:
        self._fail(error)
        self._pause_s = next_pause(self._pause_s, first_s=AGAIN_MIN_S, most_s=most_s)
        asked = error.retry_after_s if isinstance(error, SinkUnavailable) else 0.0
        await self._sleep(max(self._pause_s, min(asked, ASKED_MAX_S)))

    def _fail(self, error: DeathlessError) -> None:
        self._open = False
        if str(error) != str(self.problem):
            _LOG.warning(
                "driver can't deliver", extra={"driver": self._policy.driver, "at": self._next, "why": str(error)}
            )
        self.problem = error
        self._queue.clear()  # the primary sends it again from where it is told next
        self._refuse(error)

    async def close(self) -> None:
        """Let go of the sink; `run` was cancelled."""
        self._refuse(Deposed(f"epoch {self.source.epoch} of {self.source.service} ended here"))
        await self._sink.close()

    # ---- delivering ------------------------------------------------------------------------------------------

    async def _deliver_all(self) -> None:
        """Deliver what has arrived, and tell both sides how far all is done."""
        while True:
            await self._tell()
            if not self._queue:
                return
            await self._deliver_some()
            self._pause_s, self.problem = 0.0, None
            await asyncio.sleep(0)  # what has arrived meanwhile belongs to the next batch

    async def _deliver_some(self) -> None:
        items = [self._read(*each) for each, _ in zip(self._queue, range(self._policy.batch_messages), strict=False)]
        pending: list[Delivery] = []
        for item in items:
            if isinstance(item, Delivery):
                pending.append(item)
            elif item.answer is not None:
                await self._deliver(pending)
                pending = []
                await self._pass_over(item)
        await self._deliver(pending)
        last = items[-1].position
        if self._next <= last:
            await self._pass_over(Passed(last, None))

    async def _deliver(self, deliveries: list[Delivery]) -> None:
        while deliveries:
            try:
                answers = await self._sink.deliver(deliveries)
            except DeliveryRefused as error:
                at = next((n for n, each in enumerate(deliveries) if each.position == error.position), -1)
                if at < 0:
                    raise Internal(f"the sink refuses message {error.position}, which it was not given") from None
                refused = deliveries[at]
                await self._deliver(deliveries[:at])
                if refused.reference is None and not self._policy.skip_refused:
                    raise
                await self._pass_over(self._refused(refused, error))
                deliveries = deliveries[at + 1 :]
                continue
            self._give(_complete(deliveries, answers))
            self.delivered += len(deliveries)
            self._done(deliveries[-1].position)
            return

    def _refused(self, refused: Delivery, error: DeliveryRefused) -> Passed:
        if refused.reference is not None:
            reply = error_reply(error.code, type(error).__name__, error.why)
            return Passed(refused.position, Answer(refused.position, refused.reference, reply))
        return Passed(refused.position, self._give_up(refused, f"refused: {error.why}"))

    async def _pass_over(self, item: Passed) -> None:
        await self._sink.pass_over(item.position, item.answer)
        if item.answer is not None:
            self._give([item.answer])
        self._done(item.position)

    def _give(self, answers: Sequence[Answer]) -> None:
        if answers:
            self._kept = max(self._kept, answers[-1].position)
            self._answers.add(answers)

    def _done(self, position: int) -> None:
        self._next = position + 1
        while self._queue and self._queue[0][0] <= position:
            self._queue.popleft()

    async def _tell(self) -> None:
        through = min(self._next, self._unconfirmed()) - 1
        if through > self._told and self._kept > self._told:
            await self._sink.confirmed(through)
            self._told = through
        self._commit()


def _complete(deliveries: Sequence[Delivery], answers: Sequence[Answer]) -> list[Answer]:
    """Give an answer for each one that waits: a sink that forgets one must not make a handler wait for ever."""
    given = {answer.position: answer for answer in answers}
    none = error_reply(Internal.code, Internal.__name__, "it was done, and the driver's sink gave no answer")
    return [
        given.get(each.position) or Answer(each.position, each.reference, none)
        for each in deliveries
        if each.reference is not None
    ]
