"""The Python client: `await client.call("deposit", "alice", amount=5)`.

    async with Client("bank", ["127.0.0.1:4100", "127.0.0.1:4101"]) as bank:
        balance = await bank.call("deposit", "alice", amount=5)
        pending = bank.submit("deposit", "bob", {"amount": 1})      # pipelined: many calls on their way at once
        results = await bank.call_many("deposit", ["alice", "bob"], [{"amount": 1}, {"amount": 2}])
        seen = await bank.query("balance", "alice")

It follows the primary through every takeover and sends again what has no reply; each call is applied exactly once
(its session deduplicates). A call or query waits CALL_S seconds, or `timeout=` seconds, or with `timeout=None` for as
long as it takes. Then the caller gets OutcomeUnknown when the call was sent and PeerUnreachable, NotPrimary or
Overloaded when it never was; a call that was sent stays in the session and may still be applied. The same holds for a
call whose task is cancelled.

A call whose handler waits (for another service, a timer, an activity) gives its result the same way, later; where that
takes longer than the limit, the error names the invocation, and `result` waits for it again.

All calls of one turn of the event loop go out as one packet; all replies of one buffer come back in one step. A
handler that raised gives HandlerFailed with `kind` (type of its exception) and `message`.

Guarantees: calls of one Client reach the log in the order of submission. Does not: share a session between processes
(each Client has its own), decide anything (`core.client.machine` does). Imports core, codec and base.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from deathless.base.config import TlsConfig
from deathless.base.errors import (
    Closed,
    DeathlessError,
    InvalidArgument,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    PeerUnreachable,
    TooLarge,
)
from deathless.base.limits import NESTING_MAX
from deathless.base.shards import checked_shard, shard_name
from deathless.codec.messages import HEADER, Kind
from deathless.codec.nesting import is_too_deep
from deathless.core.client.events import CallsSubmitted, QueriesSubmitted, error_of
from deathless.core.client.link import WINDOW_BYTES_MAX, WINDOW_MAX, State
from deathless.core.client.machine import ClientMachine
from deathless.execution.turn.method_address import CALL, SEND
from deathless.shell.client.active_trace import active as active_trace
from deathless.shell.client.active_trace import with_trace
from deathless.shell.client.driver import Driver, addresses_of_shard, count_shards, resolve
from deathless.shell.client.waiters import (
    Accepted,
    Column,
    Receiver,
    Typed,
    Waiter,
    check_key,
    check_process,
    check_texts,
    fail,
    results_of,
    wake,
)

_CALL: Final = int(Kind.CALL)
QUEUE_MAX: Final = 65536  # calls that wait for the window; beyond, `submit` raises and the others wait
QUEUE_BYTES_MAX: Final = 64 << 20
PREFIXES_MAX: Final = 8192  # encoded (handler, key) pairs kept per handler
CHUNK: Final = 8192  # calls of `call_many` under way at once
CALL_S: Final = 60.0  # how long an answer is waited for where the caller says nothing

_encode: Final = msgspec.msgpack.Encoder().encode
_BYTES: Final = cast("type[bytes | None]", bytes | None)
T = TypeVar("T")
Args = Mapping[str, object] | msgspec.Struct
"""Named arguments of a handler: a mapping, or a Struct with the same fields."""


class Client:
    """A client of one service; use it as an async context manager.

    Args:
        service: its name.
        addresses: replicas as `host:port`, or `dir:/path` of the service's directory; some may be down.
        token: where the service wants one; a callable is asked at each connection, so that it may give a newer one.
        tls: certificates, where the service wants TLS.
        name: ours, shown to operators; host and process when empty.
        window_max: calls on their way without a reply, at most.
        queue_max: calls that wait for the window, and calls whose handlers wait, at most.
        shards: how many the service has; 0: as its directory says, else one. Calls go to the shard of their key.
        shard: the only one to talk to; None: all of them.

    Raises: InvalidConfig for an address that is not host:port.
    """

    def __new__(
        cls,
        service: str,  # noqa: ARG004  as for `__init__`
        addresses: Sequence[str],
        *,
        shards: int = 0,
        shard: int | None = None,
        **_: Any,
    ) -> Self:
        """Give a ShardedClient where there are several shards and none is named."""
        if cls is Client and shard is None and (shards or count_shards(addresses)) > 1:
            from deathless.shell.client.sharded_client import ShardedClient  # noqa: PLC0415  it is made of clients

            return cast("Self", object.__new__(ShardedClient))
        return object.__new__(cls)

    def __init__(
        self,
        service: str,
        addresses: Sequence[str],
        *,
        token: str | Callable[[], str] | None = None,
        tls: TlsConfig | None = None,
        name: str = "",
        window_max: int = WINDOW_MAX,
        queue_max: int = QUEUE_MAX,
        shards: int = 0,
        shard: int | None = None,
    ) -> None:
        shard, shards = shard or 0, shards or 1
        self._label = f"{shard}-" if shards > 1 else ""  # of our invocations' ids
        self._addresses = addresses_of_shard(addresses, checked_shard(shard, shards), shards)
        resolve(self._addresses)
        self._tls = tls
        self._queue_max = queue_max
        chance = random.SystemRandom()
        self._machine: ClientMachine[Waiter] = ClientMachine(
            service=shard_name(service, shard, shards),
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            token=token if callable(token) else partial(str, token or ""),
            jitter=chance.random,
            secret=lambda: os.urandom(16),
            window_max=window_max,
            window_bytes_max=WINDOW_BYTES_MAX,
        )
        self._results = self._machine.results
        self._driver: Driver | None = None  # None: not started
        self._prefixes: dict[str, dict[str, bytes]] = {}  # handler -> key -> header, handler and key of its messages
        self._messages: list[bytes] = []  # submitted in this turn of the loop
        self._waiters: list[Waiter] = []
        self._queries: dict[bool, tuple[list[bytes], list[Waiter]]] = {False: ([], []), True: ([], [])}
        self._scheduled = False  # a flush is due at the end of this turn of the loop
        self._room: deque[asyncio.Future[None]] = deque()  # callers that wait for the queue
        self._woken = 0  # of these, those there is room for now, which did not go on yet
        self._ready: deque[asyncio.Future[None]] = deque()  # callers of `ready`
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._process = os.getpid()  # that may use it

    # ---- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to look for the primary; `async with` does it."""
        check_process(self._process)
        if self._loop is None and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._driver = Driver(self._machine, self._addresses, tls=self._tls, changed=self._changed)

    async def close(self) -> None:
        """End: calls that were sent and have no reply fail with OutcomeUnknown, the others with Closed."""
        if self._closed or self._process != os.getpid():  # what a parent opened is the parent's to close
            return
        if self._driver is not None:
            self._flush()
            self._closed = True
            await self._driver.close()
        self._closed = True
        for waiting in (*self._room, *self._ready):
            if not waiting.done():
                waiting.set_exception(Closed("the client is closed"))

    @property
    def state(self) -> State:
        """Where the client stands: seeking, registering, ready or closed."""
        return self._machine.state

    @property
    def service(self) -> str:
        """Name of the service."""
        return self._machine.service

    @property
    def shards(self) -> int:
        """How many shards this client chooses from."""
        return 1

    def shard(self, shard: int) -> Client:
        """Give the client of one shard: this one. Raises: InvalidArgument when there is no such one."""
        checked_shard(shard, self.shards)
        return self

    def time_us(self) -> int | None:
        """Give the service's logical time, microseconds since 1970, by our own clock since a primary told it.

        None: none did yet.
        """
        return None if self._loop is None else self._machine.time_us(self._loop.time())

    @property
    def session(self) -> int:
        """Our session's id; 0: none yet."""
        return self._machine.session

    @property
    def incarnation(self) -> int:
        """What tells the service that our session is with from any other, and from a restored one; 0: not known yet."""
        return self._machine.incarnation

    @property
    def primary(self) -> str:
        """Address of the replica that serves us; empty: none."""
        return self._machine.connected

    def refusal(self) -> DeathlessError | None:
        """What calls would be refused with now (429, 507), with the time to wait; None: they are admitted."""
        if self._loop is None:
            return None
        told = self._machine.refusal(self._loop.time())
        return None if told is None else error_of(told[0], told[1], retry_after_s=told[2])

    async def ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  ours raises a typed error
        """Wait until a session with the primary stands.

        Raises: PeerUnreachable, NotPrimary after `timeout` seconds; Closed.
        """
        loop = self._running()
        if self._machine.state is State.READY:
            return
        waiting: asyncio.Future[None] = loop.create_future()
        self._ready.append(waiting)
        handle = None
        if timeout is not None:
            handle = loop.call_later(timeout, self._time_out_ready, waiting, timeout)
        try:
            await waiting
        finally:
            if handle is not None:
                handle.cancel()

    def _time_out_ready(self, waiting: asyncio.Future[None], timeout: float) -> None:
        if not waiting.done():
            waiting.set_exception(self._unserved(timeout))

    # ---- calls -----------------------------------------------------------------------------------------------

    async def call(
        self,
        handler: str,
        key: str,
        /,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  ours raises a typed error and leaves the call in the session
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Call a handler and wait for its result; see `request`, which also takes arguments of any name."""
        return await self.request(handler, key, args, idempotency_key=idempotency_key, timeout=timeout, result=result)

    async def foreign(
        self,
        method: int,
        args: bytes = b"",
        *,
        key: str = "",
        fork: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as above
    ) -> bytes | None:
        """Call a method by its number, of a program in another language or of a service; gives its bytes or None.

        Args:
            method: its number, [-2**31, 2**31).
            args: its bytes.
            key: of the entity; empty for a service of one object.
            fork: wait for nothing but that it is logged; None is given.
            idempotency_key: as of `request`, as all that follows.
            timeout: likewise.

        Raises: UnknownMethod; as `request`.
        """
        handler = SEND if fork else CALL
        arguments = {"method": method, "args": args}
        found: bytes | None = await self.request(
            handler, key, arguments, idempotency_key=idempotency_key, timeout=timeout, result=_BYTES
        )
        return found

    async def request(
        self,
        handler: str,
        key: str,
        args: Args,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as above
        result: type[T] | None = None,
    ) -> Any:
        """Call a handler and wait for its result.

        Args:
            handler: its name.
            key: of the entity.
            args: named arguments.
            idempotency_key: the same key with the same arguments runs once, whoever sends it.
            timeout: seconds until the caller gives up waiting; None: never.
            result: type to decode the result to; None: plain values.

        Raises: HandlerFailed and other Invalid errors as recorded; OutcomeUnknown, PeerUnreachable, NotPrimary,
        Overloaded after `timeout`; SessionExpired; TooLarge; Closed.
        """
        message = self._traced(self.encode(handler, key, args, idempotency_key))
        loop = self._running()
        ends = None if timeout is None else loop.time() + timeout
        if self._full:
            await self._wait_room(timeout)
        future: asyncio.Future[Any] = loop.create_future()
        waiter = self._waiter(future, result)
        if self._scheduled or self._machine.window.in_flight:
            self._enqueue(message, waiter)
        elif self._messages or self._driver is None or not self._driver.call_alone(message, waiter):
            # Nothing in flight could travel with it, so it need not wait for the end of this turn of the loop.
            self._messages.append(message)
            self._waiters.append(waiter)
            self._flush()
        return await self._wait(future, waiter, timeout, ends)

    def submit(self, handler: str, key: str, args: Args, *, idempotency_key: str | None = None) -> asyncio.Future[Any]:
        """Send a call without waiting; the Future gets its result.

        Raises: Overloaded when `queue_max` calls wait already (nothing was done); TooLarge; Closed.
        """
        message = self._traced(self.encode(handler, key, args, idempotency_key))
        loop = self._running()
        if self._full:
            raise Overloaded(f"{self._queue_max} calls are already waiting", remedy="wait for earlier calls")
        future: asyncio.Future[Any] = loop.create_future()
        self._enqueue(message, future)
        return future

    def submit_message(self, message: bytes, receiver: Receiver) -> None:
        """Send an encoded call; `receiver` gets the reply as bytes. Raises: as `submit`."""
        self._running()
        if self._full:
            raise Overloaded(f"{self._queue_max} calls are already waiting")
        self._enqueue(message, receiver)

    async def call_many(
        self,
        handler: str,
        keys: Sequence[str],
        args: Sequence[Args],
        *,
        return_errors: bool = False,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as above
    ) -> list[Any]:
        """Call one handler for many keys: columns in, columns out, in the order given.

        Args:
            handler: its name.
            keys: of the entities, one per call.
            args: named arguments, one per call.
            return_errors: give errors as values; otherwise the first one is raised, when all have their reply.
            timeout: seconds without any reply until the caller gives up those that have none; None: never.
        """
        if len(keys) != len(args):
            raise InvalidArgument(f"{len(keys)} keys but {len(args)} arguments")
        loop = self._running()
        results: list[object] = []
        late: list[Accepted] = []  # of handlers that wait
        for start in range(0, len(keys), CHUNK):
            if self._full:
                await self._wait_room(timeout)
            some = keys[start : start + CHUNK]
            messages = [self.encode(handler, k, a) for k, a in zip(some, args[start : start + CHUNK], strict=True)]
            if active_trace():
                messages = [self._traced(message) for message in messages]
            column = Column(len(messages), loop.create_future())
            places = list(zip(repeat(column), range(len(messages))))
            self._messages.extend(messages)
            self._waiters.extend(places)
            self._schedule()
            await self._wait_column(column, places, timeout)
            results += results_of(column.replies, late)
        if late:
            await self._late_results(results, timeout)
        if not return_errors:
            for result in results:
                if isinstance(result, DeathlessError):
                    raise result
        return results

    async def _wait_column(self, column: Column, places: list[tuple[Column, int]], limit_s: float | None) -> None:
        """Wait for the replies of a column; those that are missing when none came for `limit_s` become errors."""
        left = column.left + 1
        while column.left < left and not column.done.done():
            left = column.left
            try:
                await asyncio.wait((column.done,), timeout=limit_s)
            except asyncio.CancelledError:
                self._withdraw_many(places)
                raise
        if not column.done.done() and limit_s is not None:
            missing = [place for place in places if not column.replies[place[1]]]
            unsent = self._unserved(limit_s)
            given_up = set(map(id, self._withdraw_many(missing)))
            for place in missing:
                fail(place, unsent if id(place) in given_up else self._unanswered(limit_s))

    async def _late_results(self, results: list[object], limit_s: float | None) -> None:
        """Put the results of handlers that wait in their places."""
        places = [place for place, found in enumerate(results) if type(found) is Accepted]
        wanted = [self.result(cast("Accepted", results[place]).invocation, timeout=limit_s) for place in places]
        for place, found in zip(places, await asyncio.gather(*wanted, return_exceptions=True), strict=True):
            if isinstance(found, BaseException) and not isinstance(found, DeathlessError):
                raise found
            results[place] = found

    async def result(
        self,
        invocation: int | str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        result: type[T] | None = None,
    ) -> Any:
        """Wait for the result of a call whose handler waits, whoever called it.

        Args:
            invocation: its id, which `deathless invocations list` and the HTTP answer 202 name; `k-512` of shard k
                where there are several.
            timeout: as for `request`; None, which is for ever, where nothing is said: a handler may take days.
            result: as for `request`.

        Raises: as `request`; InvocationUnknown when it is not known (any more).
        """
        future: asyncio.Future[Any] = self._running().create_future()
        if len(self._results) >= self._queue_max:
            raise Overloaded(f"{self._queue_max} results are already being waited for")
        waiter = self._waiter(future, result)
        self.attach_to(int(invocation), waiter)
        return await self._wait(future, waiter, timeout)

    def attach_to(self, invocation: int, waiter: Waiter) -> None:
        """Have someone wait for the result of an invocation. Raises: Closed."""
        self._running()
        assert self._driver is not None
        self._driver.attach(invocation, waiter)

    async def query(
        self,
        query: str,
        key: str,
        /,
        *,
        stale: bool = False,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as above
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Ask a query; linearizable, or with `stale` what any replica has applied. Raises: as `request`."""
        return await self.ask(query, key, args, stale=stale, timeout=timeout, result=result)

    async def ask(
        self,
        query: str,
        key: str,
        args: Args,
        *,
        stale: bool = False,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as above
        result: type[T] | None = None,
    ) -> Any:
        """Ask a query; arguments as for `request`."""
        message = self.encode(query, key, args)
        future: asyncio.Future[Any] = self._running().create_future()
        waiter = self._waiter(future, result)
        self.ask_message(message, waiter, stale=stale)
        return await self._wait(future, waiter, timeout)

    def ask_message(self, message: bytes, receiver: Waiter, *, stale: bool) -> None:
        """Ask an encoded query. Raises: Overloaded, Closed."""
        self._running()
        if len(self._machine.queries) >= self._queue_max:
            raise Overloaded(f"{self._queue_max} queries are already waiting")
        messages, waiters = self._queries[stale]
        messages.append(message)
        waiters.append(receiver)
        self._schedule()

    def give_up(self, waiter: Waiter, waited_s: float) -> DeathlessError:
        """Stop waiting for a call. Gives the error that says what is known; the call may stay in the session."""
        invocation = self._results.invocation_of(waiter)
        if self._withdraw(waiter):
            return self._unserved(waited_s)
        if invocation:
            return OutcomeUnknown(
                f"its handler waits: no result within {waited_s:g} s, invocation {self._label}{invocation}",
                remedy="`result` of the client waits for the invocation again; with timeout=None as long as it takes",
            )
        return self._unanswered(waited_s)

    def _unanswered(self, waited_s: float) -> OutcomeUnknown:
        """Give the error for a call that was sent and has no reply."""
        problem = self._machine.last_problem
        why = f"; last problem: {problem}" if problem and self._machine.state is not State.READY else ""
        return OutcomeUnknown(f"no reply within {waited_s:g} s{why}")

    def _withdraw(self, waiter: Waiter) -> bool:
        """Forget one who waits. True: what it waited for was never sent, and will not be."""
        self._flush()
        unsent = self._machine.withdraw(waiter)
        self._changed()
        return unsent

    def _withdraw_many(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """Forget those whose call was never sent, and will not be; gives them."""
        self._flush()
        unsent = self._machine.withdraw_many(waiters)
        self._changed()
        return unsent

    def _traced(self, message: bytes) -> bytes:
        """Give a call as a part of the trace that is active where this is called, if one is."""
        return with_trace(message, active_trace(), self._machine.message_bytes_max)

    def encode(self, handler: str, key: str, args: Args, idempotency_key: str | None = None) -> bytes:
        """Give the bytes of a call or query. Raises: TooLarge, InvalidArgument."""
        if type(handler) is not str or type(key) is not str or idempotency_key is not None:
            check_texts(handler=handler, key=key, idempotency_key="" if idempotency_key is None else idempotency_key)
        encoded = _encode_args(handler, args)
        try:
            if idempotency_key is None:
                return self._prefix(handler, key) + encoded
            method, entity, idem = handler.encode(), key.encode(), idempotency_key.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"{handler!a}: handler, key and idempotency key must be Unicode text: {error}"
            ) from None
        check_key(entity)
        if max(len(method), len(idem)) > 0xFFFF:
            raise TooLarge("handler and idempotency key have at most 65535 bytes each")
        return HEADER.pack(_CALL, 0, len(method), len(entity), len(idem)) + method + entity + idem + encoded

    def _prefix(self, handler: str, key: str) -> bytes:
        known = self._prefixes.get(handler)
        if known is None:
            if len(self._prefixes) >= PREFIXES_MAX:
                self._prefixes.clear()
            known = self._prefixes[handler] = {}
        prefix = known.get(key)
        if prefix is None:
            method, entity = handler.encode(), key.encode()
            check_key(entity)
            if len(method) > 0xFFFF:
                raise TooLarge("a handler's name has at most 65535 bytes")
            if len(known) >= PREFIXES_MAX:
                known.clear()
            prefix = known[key] = HEADER.pack(_CALL, 0, len(method), len(entity), 0) + method + entity
        return prefix

    # ---- waiting ---------------------------------------------------------------------------------------------

    def _running(self) -> asyncio.AbstractEventLoop:
        check_process(self._process)
        if self._loop is None or self._closed:
            raise Closed("the client is closed" if self._closed else "the client was not started: use `async with`")
        return self._loop

    @property
    def _full(self) -> bool:
        return self._left <= 0

    @property
    def _left(self) -> int:
        """How many calls there is room for."""
        window = self._machine.window
        if window.queued_bytes > QUEUE_BYTES_MAX:
            return 0
        return self._queue_max - max(window.queued + len(self._messages), len(self._results))

    async def _wait_room(self, limit_s: float | None) -> None:
        """Wait until the queue has room. Raises: Overloaded, PeerUnreachable, NotPrimary after `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                await self._room_made()
        except TimeoutError:
            if self._machine.state is not State.READY:
                raise self._unserved(limit_s or 0.0) from None
            raise Overloaded(
                f"{self._queue_max} calls are waiting, and there was no room within {limit_s:g} s",
                remedy="wait for earlier calls",
            ) from None

    async def _room_made(self) -> None:
        enter = self._room.append
        while self._full:
            waiting: asyncio.Future[None] = self._running().create_future()
            enter(waiting)
            try:
                await waiting
            finally:
                if not waiting.cancelled():  # it was woken; where it needs no room after all, that is for the next
                    self._woken -= 1
                    asyncio.get_running_loop().call_soon(self._make_way)
            enter = self._room.appendleft  # who came later and found the room took it

    def _make_way(self) -> None:
        self._woken += wake(self._room, self._left - self._woken)

    def _waiter(self, future: asyncio.Future[Any], result: type[T] | None) -> Waiter:
        return future if result is None else Typed(future, msgspec.msgpack.Decoder(result).decode, self.attach_to)

    async def _wait(
        self, future: asyncio.Future[Any], waiter: Waiter, limit_s: float | None, ends: float | None = None
    ) -> Any:
        """Wait for an answer, `limit_s` from now, or until `ends` of the loop's clock where it was waited before."""
        handle = None
        if limit_s is not None:
            loop = self._running()
            ends = loop.time() + limit_s if ends is None else ends
            handle = loop.call_at(ends, self._time_out, future, waiter, limit_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        finally:
            if handle is not None:
                handle.cancel()

    def _time_out(self, future: asyncio.Future[Any], waiter: Waiter, timeout: float) -> None:
        if not future.done():
            error = self.give_up(waiter, timeout)
            if not future.done():
                future.set_exception(error)

    def _unserved(self, waited_s: float) -> DeathlessError:
        """Give the error for a call that was never sent, or for a query, which changes nothing."""
        machine = self._machine
        problem = f"; {machine.last_problem}" if machine.last_problem else ""
        if not machine.connected:
            return PeerUnreachable(f"no replica of {machine.service} answered within {waited_s:g} s{problem}")
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        if machine.unregistered is not None:
            return error_of(*machine.unregistered)
        if machine.state is State.REGISTERING:
            text = f"{machine.connected} leads, and registered no session within {waited_s:g} s{problem}"
            return PeerUnreachable(text)
        if machine.state is State.READY:
            return PeerUnreachable(f"{machine.connected} leads, but did not answer within {waited_s:g} s{problem}")
        return NotPrimary(f"{machine.connected} knew no primary within {waited_s:g} s{problem}")

    def _enqueue(self, message: bytes, waiter: Waiter) -> None:
        self._messages.append(message)
        self._waiters.append(waiter)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._running().call_soon(self._flush)

    def _flush(self) -> None:
        """Hand over what was submitted in this turn of the loop."""
        self._scheduled = False
        driver = self._driver
        if driver is None or self._closed:
            return
        if self._messages:
            messages, self._messages = self._messages, []
            waiters, self._waiters = self._waiters, []
            driver.handle(CallsSubmitted(messages=messages, waiters=waiters))
        for stale, (messages, waiters) in self._queries.items():
            if messages:
                self._queries[stale] = ([], [])
                driver.handle(QueriesSubmitted(messages=messages, waiters=waiters, stale=stale))

    def _changed(self) -> None:
        """The machine took an event in: wake those who wait for it."""
        if self._room:
            self._make_way()
        if self._ready and self._machine.state is State.READY:
            wake(self._ready, len(self._ready))


def _encode_args(handler: str, args: Args) -> bytes:
    """Give arguments as msgpack. Raises: InvalidArgument, whatever their types raise."""
    try:
        encoded = _encode(args)
    except RecursionError:
        raise InvalidArgument(f"{handler}: the arguments are nested too deeply, or contain themselves") from None
    except Exception as error:
        raise InvalidArgument(f"{handler}: {type(error).__name__}: {error}") from error
    if len(encoded) > NESTING_MAX and is_too_deep(encoded):
        raise InvalidArgument(f"{handler}: the arguments are nested more than {NESTING_MAX} levels")
    return encoded
