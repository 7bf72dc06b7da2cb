"""What a handler can await: calls, timers, activities, promises, and several of them together.

An operation is asked for at once when a context's method is called, and awaited when the handler wants it; two that
are to run side by side are asked for first and awaited then. Whatever it gives came through the log, so the order in
which operations are resolved is the same in every process; `gather` and `race` go by that order alone.

    reply = await ctx.call("stock", "apples", "take", {"count": 2}, result=int)
    winner = await ctx.race(call, ctx.timer(after=timedelta(seconds=5)), cancel_losers=True)

Guarantees: awaiting what is resolved does not end the turn; each `result` decodes anew, so nothing is shared. Does
not: send anything (the turn's `Asked` holds what is to be sent). Imports base and codec.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from deathless.base.errors import (
    ActivityFailed,
    CallCycle,
    CallFailed,
    Cancelled,
    DeadlineExceeded,
    DeathlessError,
    InvalidArgument,
    InvalidAwait,
    OutcomeUnknown,
    Overloaded,
    PeerReplaced,
)
from deathless.base.times import Due
from deathless.codec.peer_messages import ActivityStart, Target
from deathless.codec.untrusted import MsgpackReader
from deathless.codec.wire import ReplyError, Status, error_reply
from deathless.execution.declared.type_shapes import shallow_decoder

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CANCELLED: Final = error_reply(Cancelled.code, Cancelled.__name__, "the operation was cancelled")
_CALL_ERRORS: Final = {kind.code: kind for kind in (ActivityFailed, CallCycle, DeadlineExceeded)}
_PLAIN_ERRORS: Final[dict[str, type[DeathlessError]]] = {
    kind.code: kind for kind in (Cancelled, OutcomeUnknown, Overloaded, PeerReplaced)
}
_decode_error: Final = MsgpackReader(ReplyError).decode


class Owner(Protocol):
    """Whose operations these are: the side of the context that the executor holds."""

    def cancel(self, operation: Operation[object]) -> None:
        """Take back what was asked for.

        Raises: Closed outside the turns of the invocation.
        """
        ...


def decoder(stated: type[T]) -> Callable[[bytes], T]:
    """Give what makes a value of an annotation out of its bytes."""
    try:
        return cast("Callable[[bytes], T]", _decoder_of(cast("Hashable", stated)))
    except TypeError:  # an annotation without a hash, or none at all
        return shallow_decoder(stated, msgspec.msgpack.Decoder(stated).decode)


@functools.lru_cache(maxsize=1024)  # asked for with every call
def _decoder_of(stated: Hashable) -> Callable[[bytes], object]:
    return shallow_decoder(stated, msgspec.msgpack.Decoder(cast("type[object]", stated)).decode)


def error_of(reply: bytes) -> DeathlessError:
    """Give the exception that an ERROR reply stands for, as the handler that waits gets it."""
    try:
        code, kind, text = _fields(_decode_error(reply[1:]))
    except msgspec.MsgspecError:
        return CallFailed("the reply can't be read")
    if (plain := _PLAIN_ERRORS.get(code)) is not None:
        return plain(text)
    return _CALL_ERRORS.get(code, CallFailed)(text, failure_code=code, kind=kind)


def _fields(error: ReplyError) -> tuple[str, str, str]:
    return error.code, error.type, error.text


class Waitable(Generic[T_co]):
    """Something a handler may await.

    It is no ABC: `isinstance` calls a function of Python's for a class that has such a base, and it is asked of each
    operation of each handler that waits while an upgrade serves nobody. Checkers of types hold subclasses to it.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    @property
    @abstractmethod
    def done(self) -> bool:
        """True when awaiting it would not wait."""
        ...

    @abstractmethod
    def result(self) -> T_co:
        """Give what it gave.

        Raises: what went wrong (CallFailed, Cancelled, ...); InvalidAwait while it is not done.
        """
        ...

    @abstractmethod
    def leaves(self) -> Iterator[Operation[object]]:
        """Give the operations it consists of."""
        ...

    @abstractmethod
    def resolved_at(self) -> int:
        """Where it stands in the order of what was resolved; only when it is done."""
        ...

    @abstractmethod
    def failed(self) -> bool:
        """True when it is done and `result` would raise."""
        ...

    def __await__(self) -> Generator[Waitable[object], None, T_co]:
        """Wait until it is done; gives what `result` gives."""
        if not self.done:
            yield self
        return self.result()


class Operation(Waitable[T_co]):
    """One thing that was asked for.

    Attributes:
        number: from 1, in the order in which the handler asked.
        since_us: logical time when it was asked for.
    """

    __slots__ = ("_decode", "_watchers", "number", "order", "reply", "since_us", "what")

    def __init__(self, owner: Owner, number: int, since_us: int, what: str, decode: Callable[[bytes], T_co]) -> None:
        super().__init__(owner)
        self.number = number
        self.since_us = since_us
        self.what = what  # for operators
        self.reply: bytes | None = None  # status byte and body; None: not resolved
        self.order = 0  # among what was resolved
        self._decode = decode
        self._watchers: list[tuple[Gather[object], int]] = []  # what counts on it, and as which of its items

    @property
    def done(self) -> bool:
        """See Waitable."""
        return self.reply is not None

    def result(self) -> T_co:
        """See Waitable."""
        reply = self.reply
        if reply is None:
            raise InvalidAwait(f"{self.what} is not done yet; await it")
        if reply[0] != Status.OK:
            raise error_of(reply)
        try:
            return self._decode(reply[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            kind = type(self).__name__.lower()
            raise CallFailed(
                f"what the {kind} gave does not fit the type it was asked for with: {error}",
                failure_code=InvalidArgument.code,
                kind=InvalidArgument.__name__,
            ) from None

    def leaves(self) -> Iterator[Operation[object]]:
        """See Waitable."""
        yield self

    def resolved_at(self) -> int:
        """See Waitable."""
        return self.order

    def failed(self) -> bool:
        """See Waitable."""
        return self.reply is not None and self.reply[0] != Status.OK

    def cancel(self) -> None:
        """Say that nobody wants it any more: it is done then, with Cancelled. Nothing happens when it is done."""
        if self.reply is None:
            self.owner.cancel(self)

    def resolve(self, reply: bytes, order: int) -> None:
        """Take the reply in; the first one stands."""
        assert self.reply is None
        self.reply = reply
        self.order = order
        watchers, self._watchers = self._watchers, []
        for gather, index in watchers:  # inner ones were made first, so they are told first
            gather.note(index)

    def watch(self, gather: Gather[object], index: int) -> None:
        """Have `gather` told when it is resolved."""
        if self.reply is None:
            self._watchers.append((gather, index))


class Call(Operation[T_co]):
    """A call of another key, of this service or another."""

    __slots__ = ("due", "stated", "target")

    def __init__(
        self,
        owner: Owner,
        number: int,
        since_us: int,
        what: str,
        decode: Callable[[bytes], T_co],
        target: Target,
        due: Due,
        stated: object = object,
    ) -> None:
        super().__init__(owner, number, since_us, what, decode)
        self.stated = stated  # annotation of what it gives
        self.target = target
        self.due = due  # its deadline


class Timer(Operation[None]):
    """A moment of logical time, or the end of a duration, that is waited for."""

    __slots__ = ("due",)

    def __init__(self, owner: Owner, number: int, since_us: int, until_us: int, due: Due) -> None:
        super().__init__(owner, number, since_us, f"timer until {until_us} us", decoder(type(None)))
        self.due = due


class Activity(Operation[T_co]):
    """A run of a registered activity."""

    __slots__ = ("start", "stated")

    def __init__(
        self,
        owner: Owner,
        number: int,
        since_us: int,
        start: ActivityStart,
        decode: Callable[[bytes], T_co],
        stated: object = object,
    ) -> None:
        super().__init__(owner, number, since_us, f"activity {start.name}", decode)
        self.start = start  # as it stands: of the current attempt
        self.stated = stated  # annotation of what it gives


class Promise(Operation[T_co]):
    """Something that another turn, or an operator, completes."""

    __slots__ = ("id",)

    def __init__(self, owner: Owner, number: int, since_us: int, promise: str, decode: Callable[[bytes], T_co]) -> None:
        super().__init__(owner, number, since_us, f"promise {promise}", decode)
        self.id = promise  # what `ctx.complete` names


def _check_items(owner: Owner, items: Sequence[object]) -> None:
    """Refuse what would never be done here. Raises: InvalidAwait."""
    for item in items:
        if not isinstance(item, Waitable) or item.owner is not owner:
            raise InvalidAwait(f"only operations of this invocation are waited for together, no {type(item).__name__}")


def _when(item: Waitable[object]) -> int:
    return item.resolved_at()


class Gather(Waitable[T_co]):
    """Several things, all of which are waited for; done when all are, or the first one failed.

    It is asked whether it is done behind everything that is resolved. So it counts, by what its operations tell it.
    """

    __slots__ = ("_failure", "_items", "_pending")

    def __init__(self, owner: Owner, items: tuple[Waitable[object], ...]) -> None:
        super().__init__(owner)
        _check_items(owner, items)
        self._items = items
        # The first that failed; nothing that is resolved later comes before it.
        self._failure = min((item for item in items if item.failed()), key=_when, default=None)
        self._pending = {index for index, item in enumerate(items) if not item.done}  # indices of those not done
        for index in sorted(self._pending):
            for leaf in items[index].leaves():
                leaf.watch(self, index)

    def note(self, index: int) -> None:
        """An operation of an item was resolved."""
        item = self._items[index]
        if index in self._pending and item.done:
            self._pending.discard(index)
            if self._failure is None and item.failed():
                self._failure = item

    @property
    def done(self) -> bool:
        """See Waitable."""
        return self._failure is not None or not self._pending

    def result(self) -> T_co:
        """See Waitable."""
        if not self.done:
            raise InvalidAwait("not all of what was gathered is done yet; await it")
        if self._failure is not None:
            self._failure.result()
        return cast("T_co", tuple(item.result() for item in self._items))

    def leaves(self) -> Iterator[Operation[object]]:
        """See Waitable."""
        for item in self._items:
            yield from item.leaves()

    def resolved_at(self) -> int:
        """See Waitable."""
        if self._failure is not None:
            return self._failure.resolved_at()
        return max((item.resolved_at() for item in self._items), default=0)

    def failed(self) -> bool:
        """See Waitable."""
        return self._failure is not None


W = TypeVar("W", bound=Waitable[object])


class Race(Waitable[W]):
    """Several things, one of which is waited for; gives the one that was done first, whose `result` tells more."""

    __slots__ = ("_cancel_losers", "_items")

    def __init__(self, owner: Owner, items: tuple[W, ...], *, cancel_losers: bool) -> None:
        super().__init__(owner)
        _check_items(owner, items)
        self._items = items
        self._cancel_losers = cancel_losers

    def _first(self) -> W | None:
        return min((item for item in self._items if item.done), key=_when, default=None)

    @property
    def done(self) -> bool:
        """See Waitable."""
        return self._first() is not None

    def result(self) -> W:
        """See Waitable."""
        first = self._first()
        if first is None:
            raise InvalidAwait("none of what races is done yet; await it")
        if self._cancel_losers:
            for item in self._items:
                if item is not first:
                    for leaf in item.leaves():
                        leaf.cancel()
        return first

    def leaves(self) -> Iterator[Operation[object]]:
        """See Waitable."""
        for item in self._items:
            yield from item.leaves()

    def resolved_at(self) -> int:
        """See Waitable."""
        first = self._first()
        return 0 if first is None else first.resolved_at()

    def failed(self) -> bool:
        """See Waitable."""
        return False
