"""Addresses of etcd's members, also while the name server says nothing.

Why: the lock store's names are answered by a name server of the cluster, and one of its pods may be on the node that is
lost together with the primary. A look-up then hangs for five seconds and more, in the middle of a takeover. So every
name is looked up before it is needed and again each REFRESH_S, and a look-up that is slow or fails is answered with
what was found last: a member that meanwhile has another address costs an attempt, which goes to the next member.

Guarantees: a name that was found once is answered within PATIENCE_S; hanging look-ups hold no thread that others use.
Does not: check that whoever has the address is the member (TLS does). Imports aiohttp.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

PATIENCE_S: Final = 0.1  # for a look-up whose last answer is known
REFRESH_S: Final = 30.0
LOOKUPS_MAX: Final = 4  # at once; further ones wait for a thread

Found = list[tuple[socket.AddressFamily, str]]
Lookup = Callable[[str, socket.AddressFamily], Found]


def look_up(host: str, family: socket.AddressFamily) -> Found:
    """Ask the system for the addresses of a host. Raises: OSError."""
    infos = socket.getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(kind, str(address[0])) for kind, _, _, _, address in infos]


class RememberingResolver(AbstractResolver):
    """Looks names up and keeps what was found last.

    Args:
        lookup: blocks until it has an answer.
    """

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(LOOKUPS_MAX, thread_name_prefix="etcd-names")
        self._known: dict[tuple[str, int], Found] = {}
        self._under_way: dict[tuple[str, int], asyncio.Future[Found]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See AbstractResolver. Raises: OSError for a name that was never found."""
        key = (host, int(family))
        asked = self._under_way.get(key) or self._ask(key, host, family)
        known = self._known.get(key)
        if known is None:
            found = await asyncio.shield(asked)
        else:
            await asyncio.wait({asked}, timeout=PATIENCE_S)
            found = self._known[key]  # the new ones, where they came in time
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in found
        ]

    def _ask(self, key: tuple[str, int], host: str, family: socket.AddressFamily) -> asyncio.Future[Found]:
        """Begin a look-up; several who want the same name wait for one."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host, family)
        self._under_way[key] = asked
        asked.add_done_callback(lambda done: self._answered(key, done))
        return asked

    def _answered(self, key: tuple[str, int], done: asyncio.Future[Found]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled() and done.exception() is None and done.result():
            self._known[key] = done.result()

    async def learn(self, hosts: Iterable[str]) -> None:
        """Look all names up, again and again, until cancelled; one that fails is tried again with the others."""
        names = tuple(dict.fromkeys(hosts))
        while True:
            looks = (self.resolve(host, family=socket.AF_UNSPEC) for host in names)
            await asyncio.gather(*looks, return_exceptions=True)
            await asyncio.sleep(REFRESH_S)

    async def close(self) -> None:
        """Forget what is under way; a thread that hangs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
