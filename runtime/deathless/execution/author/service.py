"""The registry a service author fills: `Service`, `@service.handler`, `@service.query`.

    class Account(Struct):
        balance: int = 0

    bank = Service("bank", state=Account)

    @bank.handler
    def deposit(account: Account, ctx: Context, amount: int) -> int:
        account.balance += amount
        return account.balance

A handler is a function of (state, context, arguments). It changes the state in place; what it returns is the reply.
A turn is whole or not at all: an exception leaves the state as it was and becomes the recorded reply. A handler with
`keys=("source", "target")` gets a read-only mapping from key to state instead of one state, and changes all of them
in one turn. An `async def` handler may wait, with a turn between any two awaits (see invocations). A query gets a state
it may look at; what it changes is lost. `birth` runs before a key's first handler, in the same turn. An activity is
work that is not deterministic, run beside the primary for a handler that waits. A topic is rows that handlers publish.
An input takes rows that a source brings from outside, each exactly once. A foreign method is what programs in other
languages call by its number.

Guarantees: what is registered can be run; everything else raises InvalidService at import. Decorators give the
function back unchanged. Does not: run handlers (see executor). Imports base only.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, ParamSpec, TypeVar, cast, overload

import msgspec

from deathless.base.errors import ForeignMethodRefused, InvalidService
from deathless.codec.peer_messages import is_service_name
from deathless.codec.streams.rows import method_of
from deathless.execution.author.changes import Changes, Versioned
from deathless.execution.author.foreign_methods import (
    BY_NUMBER,
    Codec,
    ForeignSpec,
    Methods,
    NumberArguments,
    read_method,
)
from deathless.execution.author.inputs import INPUT, read_input
from deathless.execution.author.schedule import Missed, ScheduleSpec, make_schedule
from deathless.execution.author.signature import MAPPING, Function, check_state, place, read_activity, read_signature
from deathless.execution.turn.activity import ActivitySpec, Policy
from deathless.execution.turn.context import Context
from deathless.execution.turn.method_address import CALL
from deathless.execution.turn.topic import Row, Topic

Kind = Literal["handler", "query", "input"]
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B", bound=bytes | Awaitable[bytes | None] | None)
"""What a method without a codec gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """One handler, query or input, as everything around it needs to know it."""

    name: str  # of the method in messages and addresses; of an input with `input:` before its name
    kind: Kind
    args_type: type[msgspec.Struct]  # named arguments; travels as a msgpack map
    result_type: object  # annotation of the result
    keys: tuple[str, ...]  # arguments that name the keys it works on; empty: the key of the address
    function: Function
    takes_context: bool  # False: a query of its state alone
    keywords: tuple[str, ...]  # arguments passed by keyword, the last fields of `args_type`
    doc: str  # its docstring, empty if it has none
    waits: bool = False  # an `async def`: it runs as an invocation (see invocations)
    shared: bool = False  # it runs between the turns of an invocation that holds the key
    made: bool = False  # it calls methods of the author's by their numbers (see foreign_methods)


class Service(Versioned):
    """A named kind of entity with typed state, and what can be asked of it.

    Args:
        name: a DNS label of at most 40 characters.
        state: a Struct or dataclass whose constructor needs no arguments; what it gives is the state of a key that
            was never used.
        single: the service is one object; whatever key an address names is not looked at.
        version: the author's number of this code, from 1; a higher one where what stands has to be changed for it
            (see `migrate` and `changes`).

    Raises: InvalidService, as all methods do.
    """

    __slots__ = (
        "_activities", "_birth", "_inputs", "_methods", "_schedules", "_specs", "_topics", "name", "single", "state",
    )  # fmt: skip

    def __init__(self, name: str, *, state: type, single: bool = False, version: int = 1) -> None:
        if not is_service_name(name):
            raise InvalidService(
                f"service name {name!r} must be lower-case letters, digits and inner dashes, at most 40"
            )
        check_state(state, f"service {name}")
        self.name = name
        self.state = state
        self.single = single
        self._specs: dict[str, HandlerSpec] = {}
        self._activities: dict[str, ActivitySpec] = {}
        self._schedules: dict[str, ScheduleSpec] = {}
        self._topics: dict[str, Topic[msgspec.Struct]] = {}
        self._inputs: dict[str, HandlerSpec] = {}
        self._methods = Methods(lambda: self.name)
        self._birth: Function | None = None
        self.declared = Changes(self, version)

    def __repr__(self) -> str:
        return f"Service({self.name!r}, state={self.state.__name__})"

    @property
    def specs(self) -> Mapping[str, HandlerSpec]:
        """All handlers and queries by name, in the order they were registered; read-only."""
        return MappingProxyType(self._specs)

    @property
    def activities(self) -> Mapping[str, ActivitySpec]:
        """All activities by name; read-only."""
        return MappingProxyType(self._activities)

    @property
    def schedules(self) -> Mapping[str, ScheduleSpec]:
        """All schedules by name; read-only."""
        return MappingProxyType(self._schedules)

    @property
    def topics(self) -> Mapping[str, Topic[msgspec.Struct]]:
        """All topics by name; read-only."""
        return MappingProxyType(self._topics)

    @property
    def inputs(self) -> Mapping[str, HandlerSpec]:
        """All inputs by name; read-only. The name of a spec is that of its method."""
        return MappingProxyType(self._inputs)

    @property
    def methods(self) -> Mapping[int, ForeignSpec]:
        """All methods that programs in other languages call, by number; read-only."""
        return MappingProxyType(self._methods.specs)

    @property
    def written(self) -> list[HandlerSpec | ForeignSpec]:
        """Handlers, queries, inputs and methods that the author wrote: what runs in turns."""
        handlers = [spec for spec in (*self._specs.values(), *self._inputs.values()) if not spec.made]
        return [*handlers, *self._methods.specs.values()]

    @property
    def functions(self) -> list[Function]:
        """The functions of the author that run in turns, without the birth's."""
        return [spec.function for spec in self.written]

    @property
    def birth_function(self) -> Function | None:
        """What runs before a key's first handler; None: nothing."""
        return self._birth

    @overload
    def handler(self, function: Callable[P, R]) -> Callable[P, R]: ...

    @overload
    def handler(
        self, *, keys: tuple[str, ...] = (), name: str = "", shared: bool = False
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def handler(
        self,
        function: Callable[P, R] | None = None,
        *,
        keys: tuple[str, ...] = (),
        name: str = "",
        shared: bool = False,
    ) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
        """Register a function that may change state. Every call of it is in the log.

        Args:
            function: takes state, context and typed arguments. An `async def` may await operations of its context;
                it holds its key from its first turn to its end, so that what comes for the key meanwhile waits.
            keys: arguments (of type str) that name the keys it changes in one turn; its first parameter is then a
                mapping from key to state, the same object where two arguments name the same key. Such a handler
                can't wait.
            name: of the method; the function's own when empty.
            shared: it neither waits for the invocation that holds its key nor holds it itself. The state of an
                invocation is changed in place, between its turns, by what ran in the meantime; so what was read from
                it before an await may be old behind it (`state.count += await x` reads first).
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  annotations may name classes that are local to the caller
        return self._decorate("handler", function, keys, name, scope, shared=shared)

    @overload
    def query(self, function: Callable[P, R]) -> Callable[P, R]: ...

    @overload
    def query(self, *, keys: tuple[str, ...] = (), name: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def query(
        self, function: Callable[P, R] | None = None, *, keys: tuple[str, ...] = (), name: str = ""
    ) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
        """Register a function that only looks. It is never in the log; what it changes is lost.

        Args: as for `handler`; the context may be left out.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above
        return self._decorate("query", function, keys, name, scope)

    @overload
    def activity(self, function: Callable[P, R]) -> Callable[P, R]: ...

    @overload
    def activity(
        self,
        *,
        name: str = "",
        attempts_max: int = 0,
        first_delay: float = 1.0,
        factor: float = 2.0,
        delay_max: float = 60.0,
        timeout: float = 0.0,
        heartbeat: float = 0.0,
        at_most_once: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def activity(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str = "",
        attempts_max: int = 0,
        first_delay: float = 1.0,
        factor: float = 2.0,
        delay_max: float = 60.0,
        timeout: float = 0.0,
        heartbeat: float = 0.0,
        at_most_once: bool = False,
    ) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
        """Register work that is not deterministic; a handler asks for it with `await ctx.run(function, ...)`.

        It runs in a process beside the primary, once the turn that asked is confirmed: at least once, with an
        idempotency key that is the same for every attempt.

        Args:
            function: `def` or `async def`, of typed arguments alone.
            name: its own when empty.
            attempts_max: then the handler gets ActivityFailed; 0: no maximum. One that raises NotRetryable, or gives
                what can't be its result, is tried no more in any case.
            first_delay: seconds from the first failure to the next attempt.
            factor: the delay grows by this with each failure, at least 1.
            delay_max: seconds, the longest delay.
            timeout: seconds that one attempt may take; 0: no limit.
            heartbeat: seconds after which an attempt that gives no sign of life is ended; 0: none is expected.
            at_most_once: it is begun once and never again; the handler gets OutcomeUnknown when it may have begun and
                its process is gone.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above

        def register(function: Callable[P, R]) -> Callable[P, R]:
            policy = Policy(
                attempts_max=attempts_max,
                first_delay=first_delay,
                factor=factor,
                delay_max=delay_max,
                timeout=timeout,
                heartbeat=heartbeat,
                at_most_once=at_most_once,
            )
            spec = _activity_spec(cast("Function", function), name, policy, scope)
            if spec.name in self._activities:
                raise InvalidService(
                    f"{place(spec.function)}: service {self.name} has an activity {spec.name!r} already"
                )
            self._activities[spec.name] = spec
            return function

        return register if function is None else register(function)

    def schedule(
        self, expression: str, *, key: str = "", zone: str = "UTC", missed: Missed = "one", name: str = ""
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Have a handler run at given times, each exactly once; a function that is no handler yet becomes one.

        It goes above `@handler(...)` where both are there. Its first time is the first one after logical time when
        the code with it begins. Where it has an argument `tick: datetime`, that is the time it runs for (UTC).

        Args:
            expression: a cron expression: minute, hour, day of month, month, day of week. In a zone that changes its
                clocks, a time with fixed minute and hour that is left out is moved to the end of the gap, and one
                that comes twice counts the first time.
            key: for which it runs; left out for a service of one object.
            zone: an IANA name.
            missed: what becomes of times that passed while nobody ran: "one" (the last of them), "all" (the last
                1000), or "skip" (none that is a minute late or more).
            name: for operators, and where it stands in checkpoints; the handler's name and the key when empty.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above

        def register(function: Callable[P, R]) -> Callable[P, R]:
            if not any(spec.function is function for spec in self._specs.values()):
                self._decorate("handler", function, (), "", scope)
            handler = next(spec for spec in self._specs.values() if spec.function is function)
            where = place(handler.function)
            if handler.kind != "handler" or handler.keys:
                raise InvalidService(f"{where}: only a handler of one key can have a schedule")
            spec = make_schedule(
                expression,
                name=name,
                method=handler.name,
                key=key,
                zone=zone,
                missed=missed,
                single=self.single,
                arguments=handler.args_type,
                where=where,
            )
            if spec.name in self._schedules:
                raise InvalidService(f"{where}: service {self.name} has a schedule {spec.name!r}; give one a name=")
            self._schedules[spec.name] = spec
            return function

        return register

    def topic(self, name: str, row_type: type[Row]) -> Topic[Row]:
        """Declare rows that handlers publish with `ctx.emit`; `spec.topics` of the manifest says what is kept of them.

        Args:
            name: a DNS label of at most 40 characters. Services, drivers and topics share one namespace.
            row_type: a Struct, each field of which is a column.
        """
        where = f"service {self.name}: topic {name!r}"
        if not is_service_name(name):
            raise InvalidService(f"{where} must be named by lower-case letters, digits and inner dashes, at most 40")
        if name == self.name:
            raise InvalidService(f"{where} has the name of the service, and what is sent there reaches the service")
        if name in self._topics:
            raise InvalidService(f"{where} is declared twice")
        made = Topic(name, row_type, where)
        self._topics[name] = cast("Topic[msgspec.Struct]", made)
        return made

    def input(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register a function that takes rows from outside, each exactly once: `(state, ctx, row) -> None`.

        The manifest's `spec.sources` says where the rows come from, and which key each one is for. A row is JSON, and
        is decoded strictly as the Struct that annotates `row`. One that does not fit, or for which the function
        raises, is refused: by `onRefusal` of its source the source stands at it, or it is kept as a dead letter, or
        passed over. An `async def` may await, as a handler may.

        Args:
            name: a DNS label of at most 40 characters. Handlers may have the same name.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above

        def register(function: Callable[P, R]) -> Callable[P, R]:
            taken = cast("Function", function)
            signature = read_input(taken, name, scope, self.state)
            if name in self._inputs:
                raise InvalidService(f"{place(taken)}: service {self.name} has an input {name!r} already")
            self._inputs[name] = HandlerSpec(
                name=method_of(name),
                kind=INPUT,
                args_type=signature.arguments,
                result_type=signature.result,
                keys=(),
                function=taken,
                takes_context=True,
                keywords=signature.keywords,
                doc=(getattr(function, "__doc__", None) or "").strip(),
                waits=signature.waits,
            )
            return function

        return register

    @overload
    def foreign(
        self, *, method: int, shared: bool = False
    ) -> Callable[[Callable[[S, Context, bytes], B]], Callable[[S, Context, bytes], B]]: ...

    @overload
    def foreign(
        self, *, method: int, codec: Literal["json", "msgpack"], shared: bool = False
    ) -> Callable[[Callable[[S, Context, A], R]], Callable[[S, Context, A], R]]: ...

    def foreign(self, *, method: int, codec: Codec = "", shared: bool = False) -> object:
        """Register what programs in other languages, and others, call by a number: `(state, ctx, args) -> result`.

        A call gets its result; of a fork or an impulse nobody does. A call of a number that the service has not gets
        UnknownMethod; a fork of one changes nothing, and is counted (`deathless.unknown.read`). A service with methods
        has handlers `call` and `send`, which these arrive at, so it can't have its own of these names.

        Args:
            method: its number, -2**31 to 2**31 - 1.
            codec: empty: `args` is bytes, and it returns bytes or nothing. "json" or "msgpack": bytes become a value
                of the type that annotates `args`, and the result becomes bytes; one annotated with None is nothing.
            shared: as of a handler; the same for all methods of a service.

        Raises: ForeignMethodRefused, InvalidService.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above

        def register(function: Callable[P, R]) -> Callable[P, R]:
            taken = cast("Function", function)
            spec = read_method(taken, method=method, codec=codec, shared=shared, scope=scope, state=self.state)
            for name in BY_NUMBER:
                own = self._specs.get(name)
                if own is not None and not own.made:
                    raise self._taken(name, place(own.function), spec)
            self._methods.add(spec)
            for name in BY_NUMBER:
                self._specs[name] = self._by_number(name)
            return function

        return register

    def _taken(self, name: str, where: str, spec: ForeignSpec) -> ForeignMethodRefused:
        """Give the refusal of a handler that has the name of one that is made from methods."""
        return ForeignMethodRefused(
            f"{where}: {name!r} of service {self.name} is the author's own, and what calls method {spec.method}, "
            f"{place(spec.function)}, arrives at a handler of this name",
            remedy="give it another name, or make it a method with @service.foreign(method=...)",
        )

    def _by_number(self, name: str) -> HandlerSpec:
        """Give the handler that calls methods by their numbers."""
        called = name == CALL
        first = next(iter(self._methods.specs.values()))
        numbers = ", ".join(str(number) for number in sorted(self._methods.specs))
        doc = f"Call a method by its number: {numbers}." if called else f"Send to a method by its number: {numbers}."
        return HandlerSpec(
            name=name,
            kind="handler",
            args_type=NumberArguments,
            result_type=bytes | None if called else None,
            keys=(),
            function=self._methods.function(name),
            takes_context=True,
            keywords=(),
            doc=doc,
            waits=self._methods.waits,
            shared=first.shared,
            made=True,
        )

    def birth(self, function: Callable[P, R]) -> Callable[P, R]:
        """Register what runs before the first handler of each key, in the same turn: a function of state and context.

        Its `ctx.key` is the key that is born. A query on a key that was never used sees the bare default.
        """
        scope = sys._getframe(1).f_locals  # noqa: SLF001  as above
        born = cast("Function", function)
        signature = read_signature(born, kind="birth", scope=scope, shape=self.state)
        if signature.arguments.__struct_fields__:
            raise InvalidService(f"{place(born)}: birth takes state and context, nothing else")
        if self._birth is not None:
            raise InvalidService(f"{place(born)}: service {self.name} has a birth already")
        self._birth = born
        return function

    def _decorate(
        self,
        kind: Kind,
        function: Callable[P, R] | None,
        keys: tuple[str, ...],
        name: str,
        scope: Mapping[str, object],
        *,
        shared: bool = False,
    ) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
        def register(function: Callable[P, R]) -> Callable[P, R]:
            spec = self._spec(kind, cast("Function", function), keys, name, scope)
            if shared:
                spec = replace(spec, shared=True)
            if self._methods.specs and spec.name in BY_NUMBER:
                raise self._taken(spec.name, place(spec.function), next(iter(self._methods.specs.values())))
            if spec.name in self._specs:
                raise InvalidService(f"{place(spec.function)}: service {self.name} has a {spec.name!r} already")
            self._specs[spec.name] = spec
            return function

        return register if function is None else register(function)

    def _spec(
        self, kind: Kind, function: Function, keys: tuple[str, ...], name: str, scope: Mapping[str, object]
    ) -> HandlerSpec:
        if not callable(function):
            raise InvalidService(f"service {self.name}: a {kind} must be a function, not {function!r}")
        name = name or getattr(function, "__name__", "")
        where = place(function)
        if not name.isidentifier() or name.startswith("_"):
            raise InvalidService(f"{where}: {name!r} can't name a {kind}; give one with name=")
        signature = read_signature(function, kind=kind, scope=scope, shape=MAPPING if keys else self.state)
        self._check_keys(keys, signature.arguments, where)
        if keys and signature.waits:
            raise InvalidService(f"{where}: a handler of several keys is a plain `def`: it can't await")
        return HandlerSpec(
            name=name,
            kind=kind,
            args_type=signature.arguments,
            result_type=signature.result,
            keys=tuple(keys),
            function=function,
            takes_context=signature.takes_context,
            keywords=signature.keywords,
            doc=(getattr(function, "__doc__", None) or "").strip(),
            waits=signature.waits,
        )

    def _check_keys(self, keys: Sequence[str], arguments: type[msgspec.Struct], where: str) -> None:
        if isinstance(keys, str):
            raise InvalidService(f"{where}: keys must be a tuple of argument names, not a text")
        if keys and self.single:
            raise InvalidService(f"{where}: a service of one object has no keys to name")
        fields = {field.name: field.type for field in msgspec.structs.fields(arguments)}
        for key in keys:
            if fields.get(key) is not str:
                raise InvalidService(f"{where}: keys names {key!r}, which is no argument of type str")


def _activity_spec(function: Function, name: str, policy: Policy, scope: Mapping[str, object]) -> ActivitySpec:
    """Give the record of an author's function.

    Raises: InvalidService naming function, file and line.
    """
    if not callable(function):
        raise InvalidService(f"an activity must be a function, not {function!r}")
    name = name or getattr(function, "__name__", "")
    where = place(function)
    if not name.isidentifier() or name.startswith("_"):
        raise InvalidService(f"{where}: {name!r} can't name an activity; give one with name=")
    policy.check(where)
    signature = read_activity(function, scope)
    return ActivitySpec(
        name=name, function=function, args_type=signature.arguments, result_type=signature.result, policy=policy
    )
