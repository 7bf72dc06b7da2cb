"""A client of a service with several shards: one link to each, made when first needed; keys say which (base.shards).

    Client(...) --several shards--> ShardedClient --key--> Client of shard k --> that shard's primary

`Client(...)` gives one by itself where the service's directory says that there are several, or `shards=` does. What
has no key names its shard: `client.shard(k)` is an ordinary client of that one, and ids of invocations are `k-512`.

Guarantees: calls of one ShardedClient reach the log of a shard in the order of submission; between shards there is no
order. Does not: ask anybody where a key lives. Imports core, codec and base.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from deathless.base.config import TlsConfig
from deathless.base.errors import Closed, DeathlessError, InvalidArgument
from deathless.base.shards import checked_shard, read_invocation, shard_of
from deathless.codec.messages import decode
from deathless.core.client.link import WINDOW_MAX, State
from deathless.shell.client.driver import count_shards, resolve
from deathless.shell.client.shard_client import CALL_S, QUEUE_MAX, Args, Client
from deathless.shell.client.waiters import Receiver, Waiter, check_process

T = TypeVar("T")
_NAME_IT = "name the shard: client.shard(k)"


class ShardedClient(Client):
    """See the module; arguments as for `Client`, of each link."""

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
        assert shard is None, "one shard has an ordinary client"
        resolve(addresses)
        self._service = service
        self._count = shards or count_shards(addresses)
        self._links: dict[int, Client] = {}
        self._open = self._ended = False
        self._prefixes = {}
        self._process = os.getpid()

        def make(shard: int) -> Client:
            return Client(
                service, addresses, token=token, tls=tls, name=name, window_max=window_max, queue_max=queue_max,
                shards=self._count, shard=shard,
            )  # fmt: skip

        self._make = make

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Links may be made from now on."""
        check_process(self._process)
        self._open = True
        for link in self._links.values():
            link.start()

    async def close(self) -> None:
        """End every link."""
        if self._process != os.getpid():
            return
        self._ended = True
        await asyncio.gather(*(link.close() for link in self._links.values()))

    @property
    def shards(self) -> int:
        """How many shards the service has."""
        return self._count

    def shard(self, shard: int) -> Client:
        """Give the client of one shard. Raises: InvalidArgument when there is no such one; Closed."""
        check_process(self._process)
        link = self._links.get(shard)
        if link is None:
            checked_shard(shard, self._count)
            if self._ended:
                raise Closed("the client is closed")
            link = self._links[shard] = self._make(shard)
            if self._open:
                link.start()
        return link

    def _of(self, key: str) -> Client:
        if not key:
            raise InvalidArgument("an empty key belongs to no shard", remedy=_NAME_IT)
        return self.shard(shard_of(key.encode(), self._count))

    @property
    def state(self) -> State:
        """The state of the first link that is not ready; ready when each that was made is, and one was."""
        if self._ended:
            return State.CLOSED
        states = [link.state for link in self._links.values()] or [State.SEEKING]
        return next((state for state in states if state is not State.READY), State.READY)

    @property
    def service(self) -> str:
        """Name of the service."""
        return self._service

    @property
    def session(self) -> int:
        """None of its own: each link has one."""
        return 0

    @property
    def primary(self) -> str:
        """Addresses of the replicas that serve us, by shard."""
        return ", ".join(link.primary for _, link in sorted(self._links.items()) if link.primary)

    def refusal(self) -> DeathlessError | None:
        """What calls to one of the shards would be refused with now; None: all admit them."""
        return next(filter(None, (link.refusal() for link in self._links.values())), None)

    async def ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as for one shard
        """Make every link, and wait until all stand. Raises: as for one shard."""
        await asyncio.gather(*(self.shard(shard).ready(timeout) for shard in range(self._count)))

    # ---- calls -----------------------------------------------------------------------------------------------

    async def request(
        self,
        handler: str,
        key: str,
        args: Args,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as for one shard
        result: type[T] | None = None,
    ) -> Any:
        """See Client. A handler of several keys is called by one of them; all must live on one shard."""
        link = self._of(key)
        return await link.request(handler, key, args, idempotency_key=idempotency_key, timeout=timeout, result=result)

    def submit(self, handler: str, key: str, args: Args, *, idempotency_key: str | None = None) -> asyncio.Future[Any]:
        """See Client."""
        return self._of(key).submit(handler, key, args, idempotency_key=idempotency_key)

    def submit_message(self, message: bytes, receiver: Receiver) -> None:
        """See Client."""
        self._of(decode(message).key.decode()).submit_message(message, receiver)

    async def call_many(
        self,
        handler: str,
        keys: Sequence[str],
        args: Sequence[Args],
        *,
        return_errors: bool = False,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as for one shard
    ) -> list[Any]:
        """See Client; the shards work at the same time."""
        if len(keys) != len(args):
            raise InvalidArgument(f"{len(keys)} keys but {len(args)} arguments")
        places: dict[Client, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(self._of(key), []).append(place)

        async def column(link: Client, of_it: list[int]) -> list[Any]:
            some = [keys[place] for place in of_it]
            of_link = [args[place] for place in of_it]
            return await link.call_many(handler, some, of_link, return_errors=True, timeout=timeout)

        results: list[Any] = [None] * len(keys)
        columns = await asyncio.gather(*(column(link, of_it) for link, of_it in places.items()))
        for of_it, found in zip(places.values(), columns, strict=True):
            for place, result in zip(of_it, found, strict=True):
                results[place] = result
        if not return_errors:
            for result in results:
                if isinstance(result, DeathlessError):
                    raise result
        return results

    async def result(
        self,
        invocation: int | str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  as for one shard
        result: type[T] | None = None,
    ) -> Any:
        """See Client; the id is `k-512`."""
        shard, number = read_invocation(str(invocation), self._count)
        return await self.shard(shard).result(number, timeout=timeout, result=result)

    def attach_to(self, invocation: int, waiter: Waiter) -> None:
        """Only a link knows whose invocation this is. Raises: InvalidArgument."""
        raise InvalidArgument(f"invocation {invocation} may belong to any shard", remedy=_NAME_IT)

    async def ask(
        self,
        query: str,
        key: str,
        args: Args,
        *,
        stale: bool = False,
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as for one shard
        result: type[T] | None = None,
    ) -> Any:
        """See Client."""
        return await self._of(key).ask(query, key, args, stale=stale, timeout=timeout, result=result)

    def ask_message(self, message: bytes, receiver: Waiter, *, stale: bool) -> None:
        """See Client."""
        self._of(decode(message).key.decode()).ask_message(message, receiver, stale=stale)

    def give_up(self, waiter: Waiter, waited_s: float) -> DeathlessError:
        """Only a link knows who waits. Raises: InvalidArgument."""
        raise InvalidArgument("it waits for one of the shards", remedy=_NAME_IT)
