"""A caller of a service in an environment: the client's own machine over connections in memory, and typed calls.

    env.service(bank).call("deposit", "alice", amount=5)          as `SyncClient` has it
    env.service(bank)["alice"].deposit(5)                         the same, by key; results as the handler declares them
    env.service(bank)["alice"].call(deposit, 5)                   the same, for a type checker
    pending = env.service(shop)["o1"].start(place, ...)           a call that is not waited for

It finds the primary, sends again what has no reply, and is told a recorded reply, as every client: `core.client`
decides. While a test waits for a result, logical time is skipped to what is due next.

Guarantees: each call is applied exactly once, or raises. Does not: wait for a real clock. Imports the shell's client,
for what a caller's errors and arguments are.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, cast, overload

import msgspec

from deathless.base.errors import DeathlessError, InvalidArgument, InvalidUse, UnknownHandler
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import RETRY_INPUT, RUN_INPUT, SKIP_INPUT, Order
from deathless.codec.streams.records import OnRefusal
from deathless.codec.wire import accepted_invocation
from deathless.core import events as ev
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CompleteCalls,
    Dial,
    Effect,
    Event,
    FailCalls,
    HangUp,
    LinkId,
    LinkLost,
    LinkOpened,
    QueriesSubmitted,
    Resolve,
    ResultsWanted,
    Send,
    TellRefusal,
    TimerFired,
    error_of,
)
from deathless.core.client.link import State
from deathless.core.client.machine import ClientMachine
from deathless.execution.author.peer import named_arguments
from deathless.execution.author.service import HandlerSpec
from deathless.execution.turn.context import Context, QueryContext
from deathless.execution.turn.method_address import CALL, SEND
from deathless.shell.client.waiters import decode_result, reply_error
from deathless.testing.feeding import Feeder, KeyOf, RefusedRow, check_key, refused_rows
from deathless.testing.links import End

if TYPE_CHECKING:
    from deathless.testing.environment import Environment
    from deathless.testing.served import Served

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
NOBODY: Final = ev.Conn(0)  # who an order is answered to; no connection has this number
Decode = Callable[[bytes], Any]


class Pending(Generic[R]):
    """A call that is under way, or over."""

    def __init__(self, service: ServiceCaller, what: str, key: str, decode: Decode) -> None:
        self.what = what
        self.key = key
        self.invocation: int | None = None  # its id where its handler waits; None: it does not, or no reply came yet
        self._service = service
        self._decode = decode
        self._reply: bytes | None = None
        self._error: DeathlessError | None = None

    def __repr__(self) -> str:
        return f"Pending({self.what}({self.key!r}), {'done' if self.done() else 'waiting'})"

    def done(self) -> bool:
        """Is it over? What is due now has happened already; no time is skipped to find out."""
        return self._reply is not None or self._error is not None

    def result(self, timeout: float | None = None) -> R:
        """Give its result; time is skipped until it is there.

        Args:
            timeout: logical seconds; None: as long as an environment waits (`patience`).

        Raises: as a call does; OutcomeUnknown when there is none by then, or when nothing can happen any more.
        """
        if not self.done():
            self._service.env.wait(self, timeout)
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._reply is not None
        if self._reply[:1] == b"\0":
            return cast("R", self._decode(self._reply[1:]))
        raise self._service.served.noted(reply_error(self._reply))

    def cancel(self) -> None:
        """Cancel its handler, as `deathless invocations cancel` does: it sees Cancelled at its await.

        Raises: InvalidUse when its handler does not wait.
        """
        if self.invocation is None or self.done():
            raise InvalidUse(f"{self.what}({self.key!r}) does not wait: there is nothing to cancel")
        self._service.order("cancel", self.invocation)

    def take(self, reply: bytes) -> int | None:
        """A reply came; gives the invocation whose result is still to come."""
        self.invocation = accepted_invocation(reply) or self.invocation
        if accepted_invocation(reply) is None:
            self._reply = reply
            return None
        return self.invocation

    def fail(self, error: DeathlessError) -> None:
        """There will be no reply."""
        self._error = error


class Caller:
    """One client of one service: the machine, and what carries its effects out."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._loop = served.loop
        self._machine: ClientMachine[Pending[Any]] = ClientMachine(
            service=served.name,
            name="test",
            jitter=lambda: 0.5,
            secret=lambda: served.draw(16),
        )
        self._ends: dict[LinkId, End | None] = {}  # None: it is being made
        self._wanted: list[tuple[int, Pending[Any]]] = []
        self._do(AddressesFound(addresses=(served.name,)))

    def submit(self, message: bytes, waiter: Pending[Any]) -> None:
        """Send a call."""
        self._do(CallsSubmitted(messages=[message], waiters=[waiter]))

    def ask(self, message: bytes, waiter: Pending[Any], *, stale: bool) -> None:
        """Send a query."""
        self._do(QueriesSubmitted(messages=[message], waiters=[waiter], stale=stale))

    def attach(self, invocation: int, waiter: Pending[Any]) -> None:
        """Wait for the result of an invocation."""
        if not self._wanted:
            self._loop.post(self._ask_results)
        self._wanted.append((invocation, waiter))

    def now_leads(self) -> None:
        """Somebody leads: whoever looks for a primary need not wait any longer."""
        if self._machine.state is State.SEEKING:
            self._do(AddressesFound(addresses=(self._served.name,)))

    def wakes_us(self) -> int | None:
        """When the machine has something to do; None: nothing but what somebody else does.

        It waits for results alone, which a service sends by itself; or nobody leads.
        """
        machine = self._machine
        deadline = machine.deadline
        if deadline is None or not self._served.led:  # `now_leads` ends that
            return None
        window = machine.window
        quiet = machine.state is State.READY and not window.in_flight and not window.unsent and not len(machine.queries)
        return None if quiet else math.ceil(deadline * 1e6)

    def fire(self) -> None:
        """Time has passed: do what is due."""
        at = self.wakes_us()
        if at is not None and at <= self._loop.now_us:
            self._loop.post(lambda: self._do(TimerFired()))

    def _ask_results(self) -> None:
        wanted, self._wanted = self._wanted, []
        self._do(ResultsWanted(invocations=[one for one, _ in wanted], waiters=[waiter for _, waiter in wanted]))

    def _do(self, event: Event[Pending[Any]]) -> None:
        for effect in self._machine.handle(event, self._loop.seconds()):
            self._perform(effect)

    def _perform(self, effect: Effect[Pending[Any]]) -> None:
        match effect:
            case Send(link=link, data=data):
                end = self._ends.get(link)
                if end is not None:
                    end.send(data)
            case CompleteCalls(waiters=waiters, replies=replies):
                for waiter, reply in zip(waiters, replies, strict=True):
                    invocation = waiter.take(reply)
                    if invocation is not None:
                        self.attach(invocation, waiter)
            case Dial(link=link, address=address):
                self._ends[link] = None
                self._served.links.dial(
                    address, None, lambda end: self._made(link, end), lambda: self._lost(link, "nobody serves it")
                )
            case HangUp(link=link):
                ended = self._ends.pop(link, None)
                if ended is not None:
                    ended.close()
            case Resolve():
                self._loop.post(lambda: self._do(AddressesFound(addresses=(self._served.name,))))
            case FailCalls(waiters=waiters, code=code, text=text):
                for waiter in waiters:
                    waiter.fail(error_of(code, text))
            case TellRefusal():
                pass  # the call stays, and is sent again

    def _made(self, link: LinkId, end: End) -> None:
        if link not in self._ends:
            end.close()
        elif not end.open:
            self._lost(link, "closed at once")
        else:
            self._ends[link] = end
            end.data = lambda data: self._do(BytesReceived(link=link, data=data))
            end.closed = lambda: self._lost(link, "closed by the service")
            self._do(LinkOpened(link=link))

    def _lost(self, link: LinkId, reason: str) -> None:
        if link in self._ends:
            del self._ends[link]
            self._do(LinkLost(link=link, reason=reason))


class ServiceCaller:
    """What a test calls a service with; the methods of `SyncClient` with the same meaning, and keys."""

    def __init__(self, env: Environment, served: Served, caller: Caller) -> None:
        self.env = env
        self.served = served
        self._caller = caller
        self._feeders: dict[str, Feeder] = {}

    def __getitem__(self, key: str) -> Entity:
        """Give one key of the service."""
        return Entity(self, key)

    def call(
        self,
        handler: str,
        key: str,
        /,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Call a handler and wait for its result; see `SyncClient.call`. Time is skipped while it waits.

        Args:
            handler: which one.
            key: of what.
            idempotency_key: a second call with the same gets the reply of the first.
            timeout: logical seconds; None: as long as an environment waits (`patience`).
            result: the type that the result is to have; None: plain values.
            args: by name.

        Raises: what the handler raised, as a client hears it; OutcomeUnknown after `timeout`, or when nothing can
            happen any more; what ended the service.
        """
        return self.request(handler, key, args, idempotency_key=idempotency_key, timeout=timeout, result=result)

    def request(
        self,
        handler: str,
        key: str,
        args: Mapping[str, object],
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        result: type[T] | None = None,
    ) -> Any:
        """Call a handler with arguments of any name; see `call`."""
        return self._submit(handler, key, args, idempotency_key, _decoder(result)).result(timeout)

    def submit(
        self, handler: str, key: str, args: Mapping[str, object], *, idempotency_key: str | None = None
    ) -> Pending[Any]:
        """Send a call without waiting for its result; what is due now has happened when this returns."""
        pending = self._submit(handler, key, args, idempotency_key, _decoder(None))
        self.env.settle()
        return pending

    def query(
        self,
        query: str,
        key: str,
        /,
        *,
        stale: bool = False,
        timeout: float | None = None,
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Ask a query; see `SyncClient.query`. Raises: as `call`."""
        pending: Pending[Any] = Pending(self, query, key, _decoder(result))
        self._caller.ask(_message(query, key, args), pending, stale=stale)
        return pending.result(timeout)

    def result(self, invocation: int | str, *, timeout: float | None = None, result: type[T] | None = None) -> Any:
        """Wait for the result of a call whose handler waits, whoever called it; see `SyncClient.result`."""
        pending: Pending[Any] = Pending(self, f"invocation {invocation}", "", _decoder(result))
        pending.invocation = int(invocation)
        self._caller.attach(int(invocation), pending)
        return pending.result(timeout)

    def order(self, command: str, invocation: int, operation: int = 0) -> None:
        """Give an operator's order for an invocation: "cancel", "kill"."""
        primary = self.served.leader()
        primary.loop.post(
            lambda: primary.post(ev.OrderReceived(NOBODY, 0, Order(command, invocation, operation))), primary.life
        )
        self.env.settle()

    def feed(
        self,
        name: str,
        rows: Iterable[object],
        *,
        key: KeyOf | None = None,
        on_refusal: Literal["stop", "deadLetter", "skip"] = "stop",
        timeout: float | None = None,
    ) -> None:
        """Bring rows to an input, as a source does, and wait until they are taken in; time is skipped meanwhile.

        Args:
            name: of the input.
            rows: Structs, dicts, or JSON as text or bytes; they follow those of former calls.
            key: whose each row is: the name of a field, or a function of the row. Of a single object: left out.
            on_refusal: what becomes of rows that are refused; of one input always the same.
            timeout: logical seconds; None: as long as an environment waits (`patience`).

        Raises: InputRefused when a row is refused with `stop`, at which the input stands from now on: see `go_on`.
            InvalidUse for an input that is not there.
        """
        feeder = self._feeder(name, OnRefusal(on_refusal))
        feeder.add(rows, check_key(self.served.service.single, key))
        self._fed(feeder, timeout)

    def go_on(self, name: str, *, skip: bool = False) -> None:
        """Have an input that stands go on with the row that it refused, or behind it, as an operator does.

        Raises: InputRefused when it stands again; InvalidUse when it does not stand.
        """
        feeder = self._feeders.get(name)
        stream = self.served.leader().engine.shard.sessions.streams.get(feeder.session) if feeder is not None else None
        if feeder is None or stream is None or stream.stopped is None:
            raise InvalidUse(f"input {name!r} of {self.served.name} does not stand")
        self.order(SKIP_INPUT if skip else RETRY_INPUT, stream.session, stream.stopped.seq if skip else 0)
        feeder.go_on()
        self._fed(feeder, None)

    def replay(self, name: str) -> list[RefusedRow]:
        """Run the rows again that an input refused and that are kept, as an operator does; gives what stays listed.

        Raises: InvalidUse when the input was never fed.
        """
        if name not in self._feeders:
            raise InvalidUse(f"input {name!r} of {self.served.name} was never fed")
        session = self._feeders[name].session
        refused = self.served.leader().engine.shard.sessions.streams.refused()
        for record in [each for each in refused if each.session == session and each.message]:
            self.order(RUN_INPUT, record.lsn)
        return self.refused(name)

    def refused(self, name: str) -> list[RefusedRow]:
        """Give the rows that an input refused, the oldest first."""
        self.env.settle()
        return refused_rows(self.served, name)

    def _feeder(self, name: str, on_refusal: OnRefusal) -> Feeder:
        feeder = self._feeders.get(name)
        if feeder is None:
            feeder = self._feeders[name] = Feeder(self.served, name, on_refusal)
            self.env.works_with(self.served, feeder)
        if feeder.on_refusal is not on_refusal:
            raise InvalidUse(f"input {name!r} was fed with on_refusal={feeder.on_refusal.value!r}")
        return feeder

    def _fed(self, feeder: Feeder, timeout: float | None) -> None:
        self.env.settle()
        if not feeder.done():
            self.env.wait(feeder, timeout)
        if feeder.refusal is not None:
            raise feeder.refusal

    def spec(self, name: str, kind: str) -> HandlerSpec:
        """Give a handler or query. Raises: UnknownHandler."""
        spec = self.served.service.specs.get(name)
        if spec is None or spec.kind != kind:
            known = ", ".join(each.name for each in self.served.service.specs.values() if each.kind == kind)
            raise UnknownHandler(f"{self.served.name} has no {kind} {name!r}", remedy=f"it has {known or 'none'}")
        return spec

    def spec_of(self, function: object) -> HandlerSpec:
        """Give what a function was registered as. Raises: InvalidUse."""
        found = next((each for each in self.served.service.specs.values() if each.function is function), None)
        if found is None:
            name = getattr(function, "__name__", repr(function))
            raise InvalidUse(f"{name} is no handler or query of {self.served.name}")
        return found

    def call_spec(self, spec: HandlerSpec, key: str, args: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Call what was registered, and give its result as it declares it."""
        return self._of_spec(spec, key, args, named).result()

    def start_spec(
        self, spec: HandlerSpec, key: str, args: tuple[object, ...], named: Mapping[str, object]
    ) -> Pending[Any]:
        """Send a call of what was registered."""
        pending = self._of_spec(spec, key, args, named)
        self.env.settle()
        return pending

    def _of_spec(
        self, spec: HandlerSpec, key: str, args: tuple[object, ...], named: Mapping[str, object]
    ) -> Pending[Any]:
        arguments = named_arguments(spec, args, named)
        decode = msgspec.msgpack.Decoder(cast("type[Any]", spec.result_type)).decode
        if spec.kind == "handler":
            return self._submit(spec.name, key, arguments, None, decode)
        pending: Pending[Any] = Pending(self, spec.name, key, decode)
        self._caller.ask(_message(spec.name, key, arguments), pending, stale=False)
        return pending

    def _submit(
        self, handler: str, key: str, args: Mapping[str, object], idempotency_key: str | None, decode: Decode
    ) -> Pending[Any]:
        pending: Pending[Any] = Pending(self, handler, key, decode)
        self._caller.submit(_message(handler, key, args, idempotency_key or ""), pending)
        return pending


class Entity:
    """One key of a service. What it has no method for is a handler or query of that name: `alice.deposit(5)`."""

    __slots__ = ("_key", "_service")

    def __init__(self, service: ServiceCaller, key: str) -> None:
        self._service = service
        self._key = key

    def __repr__(self) -> str:
        return f"Entity({self._service.served.name!r}, {self._key!r})"

    @overload
    def call(
        self, handler: Callable[Concatenate[S, Context, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    def call(self, handler: Callable[Concatenate[S, Context, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def call(self, handler: Callable[..., object], /, *args: object, **kwargs: object) -> object:
        """Call a handler, a function of the service's module, and wait for its result.

        Raises: as `ServiceCaller.call`; InvalidUse when the arguments do not fit.
        """
        return self._service.call_spec(self._service.spec_of(handler), self._key, args, kwargs)

    @overload
    def start(
        self, handler: Callable[Concatenate[S, Context, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[R]: ...

    @overload
    def start(
        self, handler: Callable[Concatenate[S, Context, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[R]: ...

    def start(self, handler: Callable[..., object], /, *args: object, **kwargs: object) -> Pending[Any]:
        """Call a handler, and do not wait for its result."""
        return self._service.start_spec(self._service.spec_of(handler), self._key, args, kwargs)

    @overload
    def query(self, query: Callable[Concatenate[S, QueryContext, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def query(self, query: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def query(self, query: Callable[..., object], /, *args: object, **kwargs: object) -> object:
        """Ask a query, a function of the service's module."""
        return self._service.call_spec(self._service.spec_of(query), self._key, args, kwargs)

    def foreign(self, method: int, args: bytes = b"", *, fork: bool = False) -> bytes | None:
        """Call a method by its number, as a program in another language does, and give what it returns.

        Args:
            method: registered with `@service.foreign`, or of a service whose code is such a program.
            args: bytes, whatever its codec is.
            fork: as one that waits for no answer; None is given then.

        Raises: as `ServiceCaller.call`.
        """
        spec = self._service.spec(SEND if fork else CALL, "handler")
        found: bytes | None = self._service.call_spec(spec, self._key, (), {"method": method, "args": args})
        return found

    @property
    def state(self) -> Any:
        """The key's state, as it is now; what is changed of it is lost."""
        return self._service.served.state_of(self._key)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        service, key = self._service, self._key
        spec = service.served.service.specs.get(name)
        if spec is None:
            raise AttributeError(f"{service.served.name} has no handler or query {name!r}")

        def call(*args: object, **kwargs: object) -> Any:
            return service.call_spec(spec, key, args, kwargs)

        return call


def _decoder(result: type[T] | None) -> Decode:
    return decode_result if result is None else msgspec.msgpack.Decoder(result).decode


def _message(handler: str, key: str, args: Mapping[str, object], idempotency_key: str = "") -> bytes:
    """Give the bytes of a call or query. Raises: InvalidArgument."""
    try:
        encoded = msgspec.msgpack.encode(args)
    except Exception as error:
        raise InvalidArgument(f"{handler}: {type(error).__name__}: {error}") from error
    return encode(
        Kind.CALL,
        method=handler.encode(),
        key=key.encode(),
        idempotency_key=idempotency_key.encode(),
        args=encoded,
    )
