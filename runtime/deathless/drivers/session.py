"""One source and its sink: takes the messages that come, in order, and has them delivered.

    PEER_HELLO --> open the sink --> PEER_WELCOME(position) --> messages --> deliver --> answers, PEER_COMMIT
                      ^                                                        |
                      '---------- a pause, doubled each time <--- PEER_REFUSED(why), when the sink takes nothing

A session outlives connections: a primary that connects again, because an address took long to answer, finds the same
sink at work and is told from where to send what it may have lost.

What is acknowledged: a position below which all is durable **and** all answers are confirmed by the service. So an
answer needs no memory of ours: whatever dies, either the sink still has it, or the message comes again.

Guarantees: positions are taken in order, a lower one is dropped, a higher one ends the connection (I3). Nothing is
given up: a sink that takes nothing is opened again for ever (I4). The queue is bounded by what the primary sends
without an acknowledgement (I10). Does not: open sockets (host), send answers (answers). Imports drivers.port, codec
and base.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from deathless.base.errors import (
    CorruptFrame,
    DeadlineExceeded,
    DeathlessError,
    DeliveryRefused,
    Deposed,
    Internal,
    SinkUnavailable,
)
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import Reference, Request, decode_body
from deathless.codec.wire import error_reply
from deathless.drivers.port import Answer, Delivery, Sink, Source

_LOG: Final = logging.getLogger("deathless.drivers")
AGAIN_MIN_S: Final = 0.02
AGAIN_MAX_S: Final = 2.0  # between two attempts with a sink that takes nothing
REFUSED_MAX_S: Final = 30.0  # with one that refuses a message which may not be skipped
ASKED_MAX_S: Final = 300.0  # the longest pause that the other side may ask for
BATCH_MESSAGES: Final = 256


class Policy(msgspec.Struct, frozen=True):
    """What the manifest says of deliveries."""

    driver: str
    skip_refused: bool = False  # a fork that is refused is passed over; False: the driver stays at it
    batch_messages: int = BATCH_MESSAGES


class Listener(Protocol):
    """A primary's connection, as a session sees it."""

    def welcome(self, next_position: int) -> None:
        """Tell it from where to send; what it sends from now on counts."""
        ...

    def commit(self, through: int) -> None:
        """Tell it what it may forget."""
        ...

    def refuse(self, error: DeathlessError) -> None:
        """Tell it why nothing is taken, and end it."""
        ...


class Outgoing(Protocol):
    """Where answers go: to the service, for as long as it takes."""

    @property
    def lowest(self) -> int | None:
        """Lowest position whose answer is not confirmed; None: there is none."""
        ...

    def add(self, answers: Sequence[Answer]) -> None:
        """Send these; one that is under way already is not sent twice."""
        ...


class Passed(NamedTuple):
    """A position that has nothing for the world outside."""

    position: int
    answer: Answer | None


class Session:
    """Takes one source's messages to one sink; `run` works until it is cancelled.

    Args:
        source: who sends.
        first: the first position that it keeps.
        sink: made for this source.
        answers: takes them to the service.
        clock_us: microseconds since 1970, for deadlines.
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
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.source = source
        self.problem: DeathlessError | None = None  # why nothing is taken; None: all is well
        self.delivered = 0  # since we began
        self.skipped = 0
        self._first = first
        self._sink = sink
        self._policy = policy
        self._answers = answers
        self._clock_us = clock_us
        self._sleep = sleep
        self._queue: deque[tuple[int, bytes]] = deque()  # not durable. Invariant: consecutive positions
        self._next = 0  # first position that is not durable; 0: the sink is not open
        self._expected = 0  # of the connection
        self._acked = 0  # told to the primary
        self._told = 0  # told to the sink as confirmed
        self._kept = 0  # last position with an answer
        self._open = False
        self._listener: Listener | None = None
        self._welcomed = False
        self._work = asyncio.Event()
        self._pause_s = 0.0

    # ---- the connection --------------------------------------------------------------------------------------

    def attach(self, listener: Listener, first: int) -> None:
        """A primary's connection takes the place of any older one."""
        self._first = max(self._first, first)
        self._listener, self._welcomed = listener, False
        if isinstance(self.problem, Deposed):
            self._refuse(self.problem)
        elif self._open:
            self._welcome()

    def detach(self, listener: Listener) -> None:
        """A connection ended."""
        if self._listener is listener:
            self._listener, self._welcomed = None, False

    def _welcome(self) -> None:
        """Say from where: what is durable, but not beyond an answer that the service has not confirmed."""
        assert self._listener is not None
        self._expected = self._next + len(self._queue)
        position = max(min(self._next, self._unconfirmed()), min(self._first, self._next))
        self._acked = position - 1
        self._welcomed = True
        self._listener.welcome(position)

    def taken(self, listener: Listener, first: int, messages: Sequence[bytes]) -> None:
        """Take messages of consecutive positions.

        Raises: CorruptFrame when there is a gap before them; the caller ends the connection.
        """
        if self._listener is not listener or not self._welcomed:
            return
        if first > self._expected:
            raise CorruptFrame(f"message {first}, where {self._expected} is expected")
        for position, message in enumerate(messages, first):
            if position == self._expected:
                self._queue.append((position, message))
                self._expected += 1
        self._work.set()

    def _refuse(self, error: DeathlessError) -> None:
        listener, self._listener, self._welcomed = self._listener, None, False
        if listener is not None:
            listener.refuse(error)

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
            except DeliveryRefused as error:
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
        self._pause_s = min(max(2 * self._pause_s, AGAIN_MIN_S), most_s)
        asked = error.retry_after_s if isinstance(error, SinkUnavailable) else 0.0
        await self._sleep(max(self._pause_s, min(asked, ASKED_MAX_S)))

    def _fail(self, error: DeathlessError) -> None:
        self._open = False
        if str(error) != str(self.problem):
            _LOG.warning("driver stands", extra={"driver": self._policy.driver, "at": self._next, "why": str(error)})
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
        self.skipped += 1
        _LOG.error(
            "message refused and passed over",
            extra={
                "driver": self._policy.driver,
                "position": refused.position,
                "method": refused.method,
                "key": refused.key,
                "why": error.why,
            },
        )
        return Passed(refused.position, None)

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

    def confirmed(self) -> None:
        """The service has confirmed answers."""
        self._work.set()

    def _unconfirmed(self) -> int:
        lowest = self._answers.lowest
        return self._next if lowest is None else lowest

    async def _tell(self) -> None:
        through = min(self._next, self._unconfirmed()) - 1
        if through > self._told and self._kept > self._told:
            await self._sink.confirmed(through)
            self._told = through
        if self._welcomed and self._listener is not None and through > self._acked:
            self._acked = through
            self._listener.commit(through)

    def _read(self, position: int, message: bytes) -> Delivery | Passed:
        """Take a message apart; what is none for the world outside is passed over."""
        try:
            taken = decode(message)
            if taken.kind not in (Kind.FORK, Kind.REQUEST):
                return Passed(position, None)  # CANCEL: what was asked for is under way, or done
            reference, deadline_us = None, 0
            if taken.kind == Kind.REQUEST:
                asked = decode_body(Request, taken.idempotency_key)
                reference, deadline_us = Reference(asked.invocation, asked.operation), asked.deadline_us
            if reference is not None and 0 < deadline_us <= self._clock_us():
                reply = error_reply(DeadlineExceeded.code, DeadlineExceeded.__name__, "not done: its time was over")
                return Passed(position, Answer(position, reference, reply))
            arguments = msgspec.msgpack.decode(taken.args, type=dict[str, object]) if taken.args else {}
            return Delivery(
                position=position,
                method=taken.method.decode(errors="backslashreplace"),
                key=taken.key.decode(errors="backslashreplace"),
                arguments=arguments,
                reference=reference,
                deadline_us=deadline_us,
                idempotency_key=idempotency_key(self.source, self._policy.driver, position),
            )
        except (CorruptFrame, msgspec.MsgspecError, UnicodeDecodeError) as error:
            _LOG.error("unreadable message passed over", extra={"position": position, "why": str(error)})
            return Passed(position, None)


def idempotency_key(source: Source, driver: str, position: int) -> str:
    """Give the key of one message: the same for every attempt, and no other message's."""
    who = f"{source.service}/{source.shard}/{source.service_id.hex()[:16]}/{source.incarnation}"
    return f"{who}/{driver}/{position}"


def _complete(deliveries: Sequence[Delivery], answers: Sequence[Answer]) -> list[Answer]:
    """Give an answer for each one that waits: a sink that forgets one must not make a handler wait for ever."""
    given = {answer.position: answer for answer in answers}
    none = error_reply(Internal.code, Internal.__name__, "it was done, and the driver's sink gave no answer")
    return [
        given.get(each.position) or Answer(each.position, each.reference, none)
        for each in deliveries
        if each.reference is not None
    ]
