"""The Python client for code without an event loop; the same calls, blocking.

    with SyncClient("bank", ["127.0.0.1:4100"]) as bank:
        balance = bank.call("deposit", "alice", amount=5)

One thread of its own runs the loop; any number of threads may call. Calls that threads make at the same time share
packets. Guarantees: those of `Client`; in a process forked from the one that opened it, ClientOfParent at once. Does
not: work there (open one in the child). Imports shell.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from deathless.base.config import TlsConfig
from deathless.base.errors import ClientOfParent, Closed
from deathless.shell.client.shard_client import CALL_S, Args, Client
from deathless.shell.client.waiters import check_process

T = TypeVar("T")
CLOSE_S: Final = 5.0  # hanging up takes milliseconds, unless a function of the caller's keeps the thread
_LOG: Final = logging.getLogger("deathless.client")


class SyncClient:
    """A blocking client of one service; use it as a context manager. Arguments as for `Client`."""

    def __init__(
        self,
        service: str,
        addresses: Sequence[str],
        *,
        token: str | Callable[[], str] | None = None,
        tls: TlsConfig | None = None,
        name: str = "",
        shards: int = 0,
    ) -> None:
        self._client = Client(service, addresses, token=token, tls=tls, name=name, shards=shards)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"deathless-{service}", daemon=True)
        self._started = False
        self._closed = False
        self._process = os.getpid()  # that may use it

    def __enter__(self) -> Self:
        check_process(self._process)
        if not self._started and not self._closed:
            self._started = True
            self._thread.start()
            self._wait(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _start(self) -> None:
        self._client.start()

    def close(self) -> None:
        """End; what has no reply fails in the threads that wait for it.

        Takes CLOSE_S at most: a thread that is in a function of the caller's then (`token`, or one given to `read`) is
        left, and ends when that returns.
        """
        if self._closed:
            return
        if self._process != os.getpid():  # loop, thread and sockets are the parent's: touch none of them
            self._closed = True
            return
        self._closed = True
        if self._started:
            closing = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            closing.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                _LOG.warning(
                    "the client's thread has not ended and is left running", extra={"client": self._thread.name}
                )
                return
            closing.result()
        else:
            self._loop.close()

    def _run(self) -> None:
        """The thread: it lets go of the loop, also where `close` has left it."""
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _end(self) -> None:
        """Hang up, and see all calls to their ends: a thread waits for each."""
        await self._client.close()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*calls, return_exceptions=True)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait as long as the work takes: the client's own calls end it at their `timeout`, or at `close`."""
        try:
            check_process(self._process)
        except ClientOfParent:
            work.close()
            raise
        if self._closed or not self._started:
            work.close()
            raise Closed("the client is closed" if self._closed else "the client was not started: use `with`")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def ready(self, timeout: float | None = None) -> None:
        """Wait until a session with the primary stands.

        Args:
            timeout: seconds; None: without a limit, until `close` is called.

        Raises: PeerUnreachable, NotPrimary, Closed.
        """
        self._wait(self._client.ready(timeout))

    def call(
        self,
        handler: str,
        key: str,
        /,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Call a handler and wait for its result; see `Client.request` for meaning and errors."""
        return self.request(handler, key, args, idempotency_key=idempotency_key, timeout=timeout, result=result)

    def foreign(
        self,
        method: int,
        args: bytes = b"",
        *,
        key: str = "",
        fork: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,
    ) -> bytes | None:
        """Call a method by its number; see `Client.foreign`."""
        client = self._client
        return self._wait(
            client.foreign(method, args, key=key, fork=fork, idempotency_key=idempotency_key, timeout=timeout)
        )

    def request(
        self,
        handler: str,
        key: str,
        args: Args,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,
        result: type[T] | None = None,
    ) -> Any:
        """Call a handler with arguments of any name; see `Client.request`."""
        client = self._client
        return self._wait(
            client.request(handler, key, args, idempotency_key=idempotency_key, timeout=timeout, result=result)
        )

    def submit(self, handler: str, key: str, args: Args, *, idempotency_key: str | None = None) -> Future[Any]:
        """Send a call without waiting; the Future (of `concurrent.futures`) gets its result, however late."""
        check_process(self._process)
        if self._closed or not self._started:
            raise Closed("the client is closed" if self._closed else "the client was not started: use `with`")
        work = self._client.request(handler, key, args, idempotency_key=idempotency_key, timeout=None)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_many(
        self,
        handler: str,
        keys: Sequence[str],
        args: Sequence[Args],
        *,
        return_errors: bool = False,
        timeout: float | None = CALL_S,
    ) -> list[Any]:
        """Call one handler for many keys; see `Client.call_many`."""
        return self._wait(self._client.call_many(handler, keys, args, return_errors=return_errors, timeout=timeout))

    def result(self, invocation: int | str, *, timeout: float | None = None, result: type[T] | None = None) -> Any:
        """Wait for the result of a call whose handler waits; see `Client.result`."""
        return self._wait(self._client.result(invocation, timeout=timeout, result=result))

    def query(
        self,
        query: str,
        key: str,
        /,
        *,
        stale: bool = False,
        timeout: float | None = CALL_S,
        result: type[T] | None = None,
        **args: object,
    ) -> Any:
        """Ask a query; see `Client.query`."""
        return self._wait(self._client.ask(query, key, args, stale=stale, timeout=timeout, result=result))

    def read(self, what: Callable[[Client], T]) -> T:
        """Give what a function reads from the client in its own thread: `client.read(lambda c: c.primary)`."""

        async def ask() -> T:
            return what(self._client)

        return self._wait(ask())
