"""A source as a driver hears it: the connection of its primary, the positions that come, and the messages in them.

    PEER_HELLO --> attach --> PEER_WELCOME(position) --> taken, taken, ... --> PEER_COMMIT

A session outlives connections: a primary that connects again, because an address took long to answer, finds the same
sink at work and is told from where to send what it may have lost.

What is acknowledged: a position below which all is done **and** all answers are confirmed by the service. So an answer
needs no memory of ours: whatever dies, either the sink still has it, or the message comes again.

Guarantees: positions are taken in order, a lower one is dropped, a higher one ends the connection (I3). Does not: bring
anything to a sink (`session` and `keyed_session` do), open sockets (host), send answers (answers).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from deathless.base.errors import CorruptFrame, DeadlineExceeded, DeathlessError, DeliveryGivenUp, Deposed
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import RedeliveredFork, Reference, Request, decode_body
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import error_reply
from deathless.drivers.port import Answer, Delivery, Source

_LOG: Final = logging.getLogger("deathless.drivers")
BATCH_MESSAGES: Final = 256
WHY_MAX: Final = 2000  # characters of what an operator is told of a message that was given up


class Policy(msgspec.Struct, frozen=True):
    """What the manifest says of deliveries."""

    driver: str
    skip_refused: bool = False  # a fork that is refused is given up; False: it waits, and what is behind it too
    batch_messages: int = BATCH_MESSAGES
    attempts_max: int = 0  # of one message, where each is delivered by itself; 0: no limit
    age_max_s: float = 0.0  # likewise, since it was taken; 0: no limit
    room_bytes: int = 4 << 20  # taken behind a message that is not done, before that is given up for others
    room_messages: int = 8192  # likewise


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


class SourceLink(ABC):
    """One source, heard through one connection at a time; below it is how messages get to the sink.

    Args:
        source: who sends.
        first: the first position that it keeps.
        answers: takes them to the service.
        clock_us: microseconds since 1970, for deadlines.
    """

    def __init__(
        self, source: Source, first: int, policy: Policy, answers: Outgoing, clock_us: Callable[[], int] | None = None
    ) -> None:
        self.source = source
        self.problem: DeathlessError | None = None  # why nothing is taken, or a key waits; None: all is well
        self.delivered = 0  # since we began
        self.given_up = 0  # likewise
        self._first = first
        self._policy = policy
        self._answers = answers
        self._clock_us = clock_us or (lambda: time.time_ns() // 1000)
        self._next = 0  # first position that is not done; 0: the sink is not open
        self._expected = 0  # of the connection
        self._acked = 0  # told to the primary
        self._open = False
        self._listener: Listener | None = None
        self._welcomed = False
        self._work = asyncio.Event()

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

    @abstractmethod
    def _taken_through(self) -> int:
        """Give the position behind the last one that we hold or are done with."""

    @abstractmethod
    def _take(self, position: int, message: bytes) -> None:
        """Take a message in; `_work` is set behind the last one."""

    def _welcome(self) -> None:
        """Say from where: what is done, but not beyond an answer that the service has not confirmed."""
        assert self._listener is not None
        self._expected = self._taken_through()
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
            raise CorruptFrame(f"message {first} was sent, {self._expected} was expected")
        for position, message in enumerate(messages, first):
            if position == self._expected:
                self._take(position, message)
                self._expected += 1
        self._work.set()

    def _refuse(self, error: DeathlessError) -> None:
        listener, self._listener, self._welcomed = self._listener, None, False
        if listener is not None:
            listener.refuse(error)

    def confirmed(self) -> None:
        """The service has confirmed answers."""
        self._work.set()

    def _unconfirmed(self) -> int:
        lowest = self._answers.lowest
        return self._next if lowest is None else lowest

    def _commit(self) -> int:
        """Tell the primary what it may forget; gives up to where that is."""
        through = min(self._next, self._unconfirmed()) - 1
        if self._welcomed and self._listener is not None and through > self._acked:
            self._acked = through
            self._listener.commit(through)
        return through

    # ---- messages --------------------------------------------------------------------------------------------

    def _give_up(self, delivery: Delivery, why: str) -> Answer:
        """Give what the service is told of a message that is not attempted any more.

        Who waits for it gets the error. A fork is listed by the service (`core.tables.undelivered`), which knows it by
        its
        position: the reference of the answer names that, and invocation 0, which is nobody's.
        """
        self.given_up += 1
        _LOG.error(
            "message given up",
            extra={
                "driver": self._policy.driver,
                "position": delivery.position,
                "method": delivery.method,
                "key": delivery.key,
                "why": why,
            },
        )
        reference = delivery.reference or Reference(0, delivery.position)
        return Answer(
            delivery.position, reference, error_reply(DeliveryGivenUp.code, DeliveryGivenUp.__name__, why[:WHY_MAX])
        )

    def _is_over(self, deadline_us: int) -> bool:
        return 0 < deadline_us <= self._clock_us()

    def _read(self, position: int, message: bytes) -> Delivery | Passed:
        """Take a message apart; what is none for the world outside is passed over."""
        try:
            taken = decode(message)
            if taken.kind not in (Kind.FORK, Kind.REQUEST):
                return Passed(position, None)  # CANCEL: what was asked for is under way, or done
            reference, deadline_us, known_as = None, 0, position
            if taken.kind == Kind.REQUEST:
                asked = decode_body(Request, taken.idempotency_key)
                reference, deadline_us = Reference(asked.invocation, asked.operation), asked.deadline_us
            else:
                known_as = decode_body(RedeliveredFork, taken.idempotency_key).position or position
            if reference is not None and self._is_over(deadline_us):
                return Passed(position, too_late(position, reference))
            arguments = read_msgpack(taken.args, dict[str, object]) if taken.args else {}
            return Delivery(
                position=position,
                method=taken.method.decode(errors="backslashreplace"),
                key=taken.key.decode(errors="backslashreplace"),
                arguments=arguments,
                reference=reference,
                deadline_us=deadline_us,
                idempotency_key=idempotency_key(self.source, self._policy.driver, known_as),
            )
        except (CorruptFrame, msgspec.MsgspecError) as error:
            _LOG.error("unreadable message skipped", extra={"position": position, "why": str(error)})
            return Passed(position, None)


def too_late(position: int, reference: Reference) -> Answer:
    """Give the answer to a message that is not delivered, because nobody waits for it any more."""
    reply = error_reply(DeadlineExceeded.code, DeadlineExceeded.__name__, "not done: its time was over")
    return Answer(position, reference, reply)


def idempotency_key(source: Source, driver: str, position: int) -> str:
    """Give the key of one message: the same for every attempt, and no other message's."""
    who = f"{source.service}/{source.shard}/{source.service_id.hex()[:16]}/{source.incarnation}"
    return f"{who}/{driver}/{position}"
