"""What a sink of an out-driver must be, and what it is given.

    open ---> deliver, deliver, ... ---> close          the host calls one after the other, never two at a time
      ^          |      '--> confirmed, pass_over
      '----------'  SinkUnavailable: opened anew, the same object, after a pause

A sink brings deliveries to the world outside, in the order of their positions. Each delivery has a position, from 1,
that ascends without repetition; a gap is a position that had nothing for the outside world. One sink serves one driver
and one source; another epoch of the source is another sink, and the older one is closed first.

**Where to go on** is the sink's to say, in `open`: the first position it has not made durable. One that keeps the
position with the effect gets each delivery exactly once, whatever dies. One that can't (an HTTP address) gives `first`:
at least once, and `Delivery.idempotency_key` is the same for every attempt.

**All or nothing**: `deliver` returns when all of its deliveries are durable. When it raises, none of them counts: those
that the sink's next `open` (SinkUnavailable) or the host's next call (DeliveryRefused) repeats come with the same
positions and the same bytes. A sink that did some of them before it raised must know them again.

**Fencing**: a sink that keeps its position keeps the highest epoch beside it, and refuses a lower one in the same
transaction in which it would write (Deposed). Two processes may hold sinks of one source at the same time, of two
replicas; the epoch says which one counts.

Guarantees: everything here is data. Does not: know how deliveries come (the host does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from deathless.base.errors import DeliveryRefused, Deposed, InvalidConfig, SinkUnavailable
from deathless.codec.peer_messages import Reference

__all__ = [
    "Answer",
    "Delivery",
    "DeliveryRefused",
    "Deposed",
    "Factory",
    "KeyedSink",
    "Opened",
    "Reference",
    "Settings",
    "Sink",
    "SinkUnavailable",
    "Source",
]

T = TypeVar("T")


class Source(msgspec.Struct, frozen=True):
    """Who sends: one shard of one service, led in this epoch. Positions belong to all of it but the epoch."""

    service: str
    shard: int
    service_id: bytes  # 16 bytes: a service created anew under the same name has another one
    incarnation: int  # likewise after a restore
    epoch: int  # grows with every takeover


class Delivery(msgspec.Struct, frozen=True):
    """One message for the world outside."""

    position: int  # from 1, ascending
    method: str
    key: str
    arguments: dict[str, object]  # by name, as the handler gave them
    reference: Reference | None  # who waits for an answer; None: nobody (a fork)
    deadline_us: int  # until when somebody waits, microseconds since 1970; 0: for ever, or nobody does
    idempotency_key: str  # the same for every attempt of this message, another one for every other message


class Answer(msgspec.Struct, frozen=True):
    """What whoever waits for a delivery is told."""

    position: int
    reference: Reference
    reply: bytes  # as every reply: `deathless.codec.wire.ok_reply(msgpack)` or `error_reply(code, type, text)`


class Opened(msgspec.Struct, frozen=True):
    """What a sink knows when it is opened."""

    next_position: int  # everything below is durable and is not delivered again
    answers: Sequence[Answer] = ()  # of positions below, kept and not `confirmed` yet, ascending


class Sink(Protocol):
    """One driver's way to the world outside, for one source."""

    async def open(self, source: Source, first: int) -> Opened:
        """Connect, and say where to go on; called again on the same object after SinkUnavailable.

        Args:
            source: who sends; the same at each call of one object.
            first: the first position that is still kept at the source. A sink that never heard of this source, or that
                keeps no positions, goes on here.

        Raises: Deposed, SinkUnavailable.
        """
        ...

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """Make all of these durable, in their order; give an answer for each one with a reference, ascending.

        The answers are kept with the position by a sink that keeps one, until `confirmed`.

        Raises: Deposed; SinkUnavailable when it can't now; DeliveryRefused when the world says no to one for good. The
            host then delivers those before it again, passes that one over, and goes on behind it.
        """
        ...

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        """Make durable that this position, the next one, is done without effect; keep the answer as any other.

        Raises: Deposed, SinkUnavailable.
        """
        ...

    async def confirmed(self, through: int) -> None:
        """The source has all answers up to this position: forget them. Called now and then, not for each one.

        Raises: Deposed, SinkUnavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; it is not opened again. Raises nothing."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A sink that keeps no position and delivers each message by itself: keys do not wait for each other.

    The host then calls `open`, `attempt` and `close` alone, with several attempts under way at a time, one of each key.
    """

    @property
    def concurrency(self) -> int:
        """How many attempts may be under way at a time."""
        ...

    def destination(self, delivery: Delivery) -> str:
        """Name what fails as a whole: one that took nothing several times in a row is left alone for a while."""
        ...

    async def attempt(self, delivery: Delivery) -> bytes:
        """Deliver one message; give the reply for whoever waits (see `Answer.reply`).

        Raises: SinkUnavailable when it can't now; DeliveryRefused when the world says no for good.
        """
        ...


class Settings(msgspec.Struct, frozen=True):
    """What a factory of sinks is given, from the manifest's `spec.drivers`."""

    driver: str  # its name
    options: dict[str, object]  # as they stand there
    folder: str = "."  # absolute: what relative paths in the options start from

    def typed(self, kind: type[T]) -> T:
        """Give the options as this type, usually a Struct with `forbid_unknown_fields=True` and `rename="camel"`.

        Raises: InvalidConfig naming the field; the driver refuses to start.
        """
        try:
            return msgspec.convert(self.options, kind)
        except msgspec.ValidationError as error:
            raise InvalidConfig(f"driver {self.driver}: options: {error}") from None

    def path(self, text: str) -> Path:
        """Give a path of the options, relative to the manifest's folder."""
        return Path(self.folder) / text

    def secret(self, text: str) -> str:
        """Give the content of a file that the options name, without the white space around it.

        Raises: InvalidConfig when it can't be read.
        """
        try:
            return self.path(text).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"driver {self.driver}: {text}: {error}") from None


Factory = Callable[[Settings], Sink]
"""Makes a sink and checks its options (InvalidConfig); connects nothing. What `kind: "module:factory"` names."""
