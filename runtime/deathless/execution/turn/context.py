"""What a handler may know and do beside its state and arguments: its key, logical time, chance, others.

A context shows nothing that differs between the first run and a replay: no epoch, no role, no session, no hint that
a message came again. It lives for one turn; that of an `async def` handler for the turns of its invocation. The
executor hands out the same object again as long as nobody kept it; one that was kept is dead and refuses everything,
so that a handler never acts with another turn's time or chance.

Guarantees: every value is a function of the log; what is sent takes effect when the turn commits, or not at all. Does
not: read a clock. Imports base only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, ParamSpec, TypeVar, cast, overload

from deathless.base.errors import Closed, InvalidUse
from deathless.base.times import Due
from deathless.execution.turn.generator import Random
from deathless.execution.turn.method_address import CALL, SEND, MethodAddress
from deathless.execution.turn.operations import Gather, Operation, Promise, Race, Timer, Waitable
from deathless.execution.turn.topic import Row, Topic
from deathless.execution.turn.turn import Turn, encode_arguments

__all__ = ["Context", "QueryContext", "Turn"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT_MAX_US: Final = 2**62  # the longest timedelta would pass a u64
_MICROSECOND: Final = timedelta(microseconds=1)
_NOTHING: Final[Mapping[str, object]] = {}
_BYTES: Final = cast("type[bytes | None]", bytes | None)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
W = TypeVar("W", bound=Waitable[object])


class QueryContext:
    """What a query may know: its key and logical time. Nothing of it changes anything."""

    __slots__ = ("_turn",)

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def _now(self) -> Turn:
        if not self._turn.alive:
            raise Closed("this context belongs to a turn that has ended; use the one that is passed in")
        return self._turn

    @property
    def key(self) -> str:
        """Key of the address that was called; empty for a service of one object."""
        return self._now().key.decode()

    @property
    def now(self) -> datetime:
        """Logical time, aware (UTC): taken from the log, so a replay sees the same."""
        return _EPOCH + timedelta(microseconds=self._now().now_us)

    @property
    def now_us(self) -> int:
        """Logical time in microseconds since 1970-01-01 UTC."""
        return self._now().now_us


class Context(QueryContext):
    """What a handler may know and use during its turn.

    An address is a service's name, a key in it and a method of it. What gives an Operation is for `async def`
    handlers; a plain one gets InvalidAwait.
    """

    __slots__ = ()

    @property
    def lsn(self) -> int:
        """Ordinal in the log of the message that this turn is of; the same in every replay.

        It is unique among first turns: a later turn of an invocation has that of the message that resumed it.
        """
        return self._now().lsn

    @property
    def begun_in(self) -> int:
        """Version of the service's code in which this handler began; the same in all its turns and in every replay.

            total = await ctx.call("stock", "", "total") if ctx.begun_in >= 2 else 0

        A handler that waits while the service is upgraded is run again by the new code, and has to ask for the same:
        it tells by this which way it went before. Everywhere else it is the version of the code that runs. Behind
        `continue_with`, and where it is carried, a handler begins anew.
        """
        turn = self._now()
        if turn.begun_in:
            return turn.begun_in
        return turn.settings.version if turn.settings is not None else 1

    @property
    def random(self) -> Random:
        """Chance of this turn; the same numbers in every replay."""
        return self._now().chance()

    def uuid(self) -> str:
        """Give a UUID (version 4) as text; the same in every replay."""
        return self.random.uuid()

    @overload
    def fork(self, service: str, key: str, method: str, arguments: Mapping[str, object] = ...) -> None: ...

    @overload
    def fork(self, service: MethodAddress, args: bytes = ..., /) -> None: ...

    def fork(
        self,
        service: str | MethodAddress,
        key: str | bytes = b"",
        method: str = "",
        arguments: Mapping[str, object] = _NOTHING,
    ) -> None:
        """Send a message that nobody waits for: exactly once, when this turn commits.

            ctx.fork("mail", "alice", "confirm", {"left": 3})       to a handler
            ctx.fork(counter[7], b"..")                             to a method by its number, see `peer_bytes`

        Raises: TooLarge, InvalidArgument for a key, InvalidUse.
        """
        address, given = _addressed(service, key, method, arguments, SEND)
        self._now().ask().fork(address, encode_arguments(given))

    def emit(self, topic: Topic[Row], row: Row) -> None:
        """Publish a row of a topic: exactly once, when this turn commits, with the key and the time of this turn.

        Args:
            topic: of this service, as `service.topic` gave it.
            row: of the topic's class. What it holds is taken down at once: to change it afterwards changes nothing.

        Raises: InvalidArgument for a value that does not fit its column, TooLarge, InvalidUse.
        """
        self._now().ask().emit(topic, row)

    @overload
    def call(
        self,
        service: str,
        key: str,
        method: str,
        arguments: Mapping[str, object] = ...,
        *,
        result: type[T],
        deadline: timedelta | datetime | None = None,
    ) -> Operation[T]: ...

    @overload
    def call(
        self,
        service: str,
        key: str,
        method: str,
        arguments: Mapping[str, object] = ...,
        *,
        deadline: timedelta | datetime | None = None,
    ) -> Operation[object]: ...

    @overload
    def call(
        self, service: MethodAddress, args: bytes = ..., /, *, deadline: timedelta | datetime | None = None
    ) -> Operation[bytes | None]: ...

    def call(
        self,
        service: str | MethodAddress,
        key: str | bytes = b"",
        method: str = "",
        arguments: Mapping[str, object] = _NOTHING,
        *,
        result: type[T] | None = None,
        deadline: timedelta | datetime | None = None,
    ) -> Operation[T] | Operation[object] | Operation[bytes | None]:
        """Call a handler of another key; awaiting it gives its reply. It is sent whether it is awaited or not.

            await ctx.call("stock", "apples", "take", {"count": 1}, result=int)     a handler
            await ctx.call(counter[7], b"..")      a method by its number, see `peer_bytes`: its bytes, None for none

        Args:
            service: its name; our own for a key of ours.
            key: of it; empty for a service of one object.
            method: its handler.
            arguments: by name.
            result: type of the reply.
            deadline: how long to wait, by the time that passes, or until which logical time; DeadlineExceeded then.

        Raises: TooLarge, InvalidArgument for a key, InvalidUse. The await: CallFailed, CallCycle, DeadlineExceeded,
        Cancelled, Overloaded, PeerReplaced.
        """
        turn = self._now()
        until = Due() if deadline is None else _due(deadline, turn)
        address, given = _addressed(service, key, method, arguments, CALL)
        encoded = encode_arguments(given)
        if isinstance(service, MethodAddress):
            return turn.ask().call(address, encoded, _BYTES, until)
        return turn.ask().call(address, encoded, object if result is None else result, until)

    def timer(self, *, after: timedelta | None = None, at: datetime | None = None) -> Timer:
        """Awaiting it gives None when so much time has passed, or logical time has come so far.

        Args:
            after: from now, by the time that passes, whatever is done to wall clocks.
            at: by logical time, as `ctx.now` shows it; aware. Exactly one of the two.
        """
        turn = self._now()
        moment = after if at is None else at
        if moment is None or (after is not None and at is not None):
            raise InvalidUse("a timer takes either after= or at=")
        return turn.ask().timer(_due(moment, turn))

    @overload
    def run(self, activity: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> Operation[R]: ...

    @overload
    def run(self, activity: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Operation[R]: ...

    def run(self, activity: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Operation[object]:
        """Run a registered activity beside the primary; awaiting it gives its result.

        Raises: TooLarge, InvalidUse. The await: ActivityFailed, OutcomeUnknown, Cancelled.
        """
        return self._now().ask().run(activity, args, kwargs)

    def promise(self, result: type[T]) -> Promise[T]:
        """Give something that another turn, or an operator, completes by its `id`; awaiting it gives the value."""
        return self._now().ask().promise(result)

    def complete(self, promise: str, value: object = None) -> None:
        """Complete the promise of that id, of whichever invocation; one that nobody waits for is let alone.

        The first completion counts.
        """
        self._now().ask().complete(promise, value)

    def reply_later(self) -> str:
        """Have the reply of this plain handler come when `ctx.complete` is called with the id that this gives.

        What the handler returns is not looked at then. The key is free for others meanwhile.
        """
        return self._now().ask().reply_later()

    def continue_with(self, method: str, arguments: Mapping[str, object] = _NOTHING) -> None:
        """Have another `async def` handler go on for this one when it returns; the caller gets what that gives.

        The key stays held. What was recorded of this invocation is let go: handlers of weeks stay small so.
        """
        self._now().ask().continue_with(method, encode_arguments(arguments))

    @overload
    def gather(self, one: Waitable[T1], /) -> Waitable[tuple[T1]]: ...

    @overload
    def gather(self, one: Waitable[T1], two: Waitable[T2], /) -> Waitable[tuple[T1, T2]]: ...

    @overload
    def gather(self, one: Waitable[T1], two: Waitable[T2], three: Waitable[T3], /) -> Waitable[tuple[T1, T2, T3]]: ...

    @overload
    def gather(self, *operations: Waitable[T]) -> Waitable[tuple[T, ...]]: ...

    def gather(self, *operations: Waitable[object]) -> Waitable[tuple[object, ...]]:
        """Awaiting it gives the results of all, in the order given; the first failure is raised at once.

        Raises: InvalidAwait for what is no operation of this invocation, a coroutine for instance.
        """
        return Gather(self._now(), operations)

    def race(self, *operations: W, cancel_losers: bool = False) -> Waitable[W]:
        """Awaiting it gives the one that is done first; its `result()` gives or raises what it gave.

        Args:
            operations: at least one.
            cancel_losers: the others are cancelled when the race is decided.

        Raises: as `gather`; InvalidUse for none.
        """
        if not operations:
            raise InvalidUse("a race takes at least one operation")
        return Race(self._now(), operations, cancel_losers=cancel_losers)


def _addressed(
    service: str | MethodAddress, key: str | bytes, method: str, arguments: Mapping[str, object], by_number: str
) -> tuple[tuple[str, str, str], Mapping[str, object]]:
    """Give (service, key, method) and named arguments of what is called, by its name or by its number.

    Args:
        service: its name, or the method.
        key: of the service, or the bytes that the method takes.
        method: name of the handler.
        arguments: of the handler.
        by_number: the handler at which a number arrives.

    Raises: InvalidUse.
    """
    if not isinstance(service, MethodAddress):
        if isinstance(key, bytes) or not method:
            raise InvalidUse(f"of {service!r} a key and a handler are called: (service, key, method, arguments)")
        return (service, key, method), arguments
    if not isinstance(key, bytes) or method or arguments:
        raise InvalidUse(f"method {service.method} of {service.service} takes bytes and nothing else")
    return (service.service, service.key, by_number), service.arguments(key)


def _due(moment: timedelta | datetime, turn: Turn) -> Due:
    """Give when a duration from now is over, or a moment has come, each by its counter, [1, 2**62].

    Raises: InvalidUse for a time without zone.
    """
    if isinstance(moment, timedelta):
        return Due(elapsed_us=max(1, min(turn.elapsed_us + moment // _MICROSECOND, MOMENT_MAX_US)))
    if moment.utcoffset() is None:
        raise InvalidUse("a time must have a zone")
    return Due(time_us=max(1, (moment - _EPOCH) // _MICROSECOND))
