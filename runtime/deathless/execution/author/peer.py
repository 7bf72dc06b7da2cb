"""Calls of another service with types: `deathless.peer`.

From a service whose module can be imported, by its handlers:

    stock = peer(stock_service)
    left = await stock.call(ctx, "apples", take, 2)             # as `take(state, ctx, count)` says: an int

From a protocol, where only its shape is known:

    class Stock(Protocol):
        def take(self, count: int) -> Operation[int]: ...

    stock = peer(Stock, "stock")
    left = await stock.call(ctx, "apples").take(2)

Guarantees: what a type checker accepts has arguments that the other side knows by these names. Does not: look at the
other service; it may run other code. Imports base.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints, overload

import msgspec

from deathless.base.errors import InvalidService, InvalidUse
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import Operation, Waitable
from deathless.execution.values.function import Function, place

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Peer:
    """A service whose handlers are at hand.

    Args:
        service: as its author wrote it.
        deadline: of calls: how long to wait, or until when; None: for ever.
        name: that its manifest gives it; empty: the name that its author gave it.
    """

    __slots__ = ("_deadline", "_handlers", "_name", "_service")

    def __init__(self, service: Service, deadline: timedelta | datetime | None = None, name: str = "") -> None:
        self._service = service
        self._name = name
        self._deadline = deadline
        self._handlers = {spec.function: spec for spec in service.specs.values() if spec.kind == "handler"}

    def within(self, deadline: timedelta | datetime) -> Peer:
        """Give the same with a deadline of its calls."""
        return Peer(self._service, deadline, self._name)

    @overload
    def call(
        self,
        ctx: Context,
        key: str,
        handler: Callable[Concatenate[S, Context, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Operation[R]: ...

    @overload
    def call(
        self,
        ctx: Context,
        key: str,
        handler: Callable[Concatenate[S, Context, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Operation[R]: ...

    def call(
        self,
        ctx: Context,
        key: str,
        handler: Callable[Concatenate[S, Context, P], object],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Operation[object]:
        """Call a handler of a key, see Context.call.

        Raises: InvalidUse when the handler is none of the service, or its arguments do not fit.
        """
        spec = self._spec(handler)
        arguments = named_arguments(spec, args, kwargs)
        result = cast("type[object]", spec.result_type)
        return ctx.call(self._target, key, spec.name, arguments, result=result, deadline=self._deadline)

    def fork(
        self,
        ctx: Context,
        key: str,
        handler: Callable[Concatenate[S, Context, P], object],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send to a handler of a key, see Context.fork.

        Raises: as `call`.
        """
        spec = self._spec(handler)
        ctx.fork(self._target, key, spec.name, named_arguments(spec, args, kwargs))

    @property
    def _target(self) -> str:
        """Name of the service that is called; read late, since a manifest may rename the one that runs."""
        return self._name or self._service.name

    def _spec(self, handler: object) -> HandlerSpec:
        spec = self._handlers.get(cast("Function", handler))
        if spec is None:
            raise InvalidUse(f"{place(cast('Function', handler))} is no handler of {self._service.name}")
        return spec


def named_arguments(spec: HandlerSpec, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Give the arguments of a handler by name, if they fit.

    Args:
        spec: the handler.
        args: the first ones, in its order.
        kwargs: the others, by name.

    Raises: InvalidUse.
    """
    fields = spec.args_type.__struct_fields__
    if len(args) > len(fields):
        raise InvalidUse(f"{spec.name} takes {len(fields)} arguments, not {len(args)}")
    named = {**dict(zip(fields, args, strict=False)), **kwargs}
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(named), type=spec.args_type)
    except msgspec.MsgspecError as error:
        raise InvalidUse(f"{spec.name}: {error}") from None
    return named


class Stubs(Generic[T]):
    """A service of which a protocol says what it takes and gives.

    Args:
        protocol: a class; each method that does not begin with an underscore is a handler. It is an `async def`, or
            gives an Operation; the types of its arguments and of what it gives are those of the handler.
        name: of the service.

    Raises: InvalidService for a method that is neither.
    """

    __slots__ = ("_methods", "_name")

    def __init__(self, protocol: Callable[[], T], name: str) -> None:
        self._name = name
        self._methods = {
            method: _Method(method, function)
            for method, function in inspect.getmembers(protocol, inspect.isfunction)
            if not method.startswith("_")
        }

    def call(self, ctx: Context, key: str, deadline: timedelta | datetime | None = None) -> T:
        """Give what calls handlers of a key, see Context.call."""
        return cast("T", _Calls(self._name, self._methods, ctx, key, deadline, waits=True))

    def fork(self, ctx: Context, key: str) -> T:
        """Give what sends to handlers of a key; what its methods give is not to be awaited, see Context.fork."""
        return cast("T", _Calls(self._name, self._methods, ctx, key, None, waits=False))


class _Method:
    """One method of a protocol."""

    __slots__ = ("result", "signature")

    def __init__(self, name: str, function: Function) -> None:
        where = place(function)
        self.signature = inspect.signature(function)
        try:
            result: object = get_type_hints(function)["return"]
        except Exception as error:  # noqa: BLE001  an annotation is the author's code and may raise anything
            raise InvalidService(f"{where}: what {name} gives can't be told: {error}") from None
        origin = get_origin(result)
        if isinstance(origin, type) and issubclass(origin, Waitable):
            [result] = get_args(result)
        elif not inspect.iscoroutinefunction(function):
            raise InvalidService(f"{where}: a method of a peer is an `async def`, or gives an Operation")
        self.result = cast("type[object]", result)

    def arguments(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """Give arguments by name.

        Raises: TypeError.
        """
        bound = self.signature.bind(None, *args, **kwargs)
        return dict(list(bound.arguments.items())[1:])


class _Calls:
    """Stands for one key of a service; what its attributes give calls or sends."""

    __slots__ = ("_ctx", "_deadline", "_key", "_methods", "_name", "_waits")

    def __init__(
        self,
        name: str,
        methods: Mapping[str, _Method],
        ctx: Context,
        key: str,
        deadline: timedelta | datetime | None,
        *,
        waits: bool,
    ) -> None:
        self._name = name
        self._methods = methods
        self._ctx = ctx
        self._key = key
        self._deadline = deadline
        self._waits = waits

    def __getattr__(self, name: str) -> Function:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(f"the protocol of {self._name} has no {name!r}")

        def send(*args: object, **kwargs: object) -> Operation[object] | None:
            arguments = method.arguments(args, kwargs)
            if not self._waits:
                self._ctx.fork(self._name, self._key, name, arguments)
                return None
            return self._ctx.call(self._name, self._key, name, arguments, result=method.result, deadline=self._deadline)

        return send


@overload
def peer(service: Service, name: str = "", /) -> Peer: ...


@overload
def peer(protocol: Callable[[], T], name: str, /) -> Stubs[T]: ...


def peer(service: Service | Callable[[], T], name: str = "", /) -> Peer | Stubs[T]:
    """Give typed calls of another service: of its handlers, or of a protocol that says what they are.

    Args:
        service: the other service as its author wrote it, or the protocol.
        name: that its manifest gives it; of a Service it may be left out where that is the author's name.

    Raises: InvalidService.
    """
    if isinstance(service, Service):
        return Peer(service, None, name)
    return Stubs(service, name)
