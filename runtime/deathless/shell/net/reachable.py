"""Whether somebody listens at an address, found out by connecting to it.

Guarantees: an answer within CONNECT_S; "nobody does" is certain, and an address that gives no sign is told apart.
Does not: say a word to whoever listens. May import base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.directory.members import ingress_address
from deathless.shell.net.listening import split_address

CONNECT_S: Final = 1.0


async def listens(address: str) -> bool | None:
    """Does an address accept connections? None: it gives no sign, as one that is frozen or cut off."""
    try:
        host, port = split_address(address)
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return None
    except (OSError, DeathlessError):
        return False
    writer.close()
    return True


async def any_may_listen(addresses: Iterable[str]) -> bool:
    """Does one of these accept a connection, or give no sign? An empty address is none."""
    tries = [asyncio.ensure_future(listens(address)) for address in addresses if address]
    try:
        for each in asyncio.as_completed(tries):
            if await each is not False:
                return True
        return False
    finally:
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)


async def closed_doors(configs: Iterable[ReplicaConfig]) -> list[str]:
    """Give the HTTP addresses of these replicas at which nothing listens yet."""
    doors = [config for config in configs if config.ingress_listen]
    found = await asyncio.gather(*(listens(_door(config)) for config in doors))
    return [door.ingress_listen for door, listening in zip(doors, found, strict=True) if not listening]


def _door(config: ReplicaConfig) -> str:
    """Give where a replica's ingress listens; empty: any port, and it has not said which."""
    if config.ingress_listen.endswith(":0"):
        return ingress_address(config.directory, config.replica, config.instance)
    return config.ingress_listen
