"""Ports that this process listens on: addresses as texts, how many connections fit, and how they are accepted.

Guarantees: a port that is taken, or an address that is none, is an error that names it. Does not: know a protocol.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, PortTaken
from deathless.base.limits import FIRST_WORD_MAX_S

ACCEPTING_TURNS: Final = 4
"""Turns of the loop after which a connection that it accepted has come to its protocol; asyncio takes three."""
NOT_ACCEPTED_MAX: Final = 512  # connections of a port that the kernel keeps until we accept them
DESCRIPTORS_KEPT: Final = 256  # for files, other ports and helpers, beside the connections


def descriptors_for(connections_max: int) -> int:
    """Raise this process's limit of descriptors; gives how many connections fit, at most `connections_max`."""
    wanted = connections_max + DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    fit = wanted if soft == resource.RLIM_INFINITY else soft
    return min(connections_max, max(fit - DESCRIPTORS_KEPT, 1))


def split_address(address: str) -> tuple[str, int]:
    """Take host:port apart. Raises: InvalidConfig."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfig(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)


def announced(address: str, host: str) -> str:
    """Give the address to announce for one that is listened on: at `host`, if there is one."""
    if not host:
        return address
    return f"[{host}]:{split_address(address)[1]}" if ":" in host else f"{host}:{split_address(address)[1]}"


async def listen(
    factory: Callable[[], asyncio.Protocol], address: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.Server, str]:
    """Listen; gives the server and the address with its real port. Raises: PortTaken, InvalidConfig."""
    host, port = split_address(address)
    try:
        handshake_s = None if tls is None else FIRST_WORD_MAX_S
        # asyncio's `backlog` is also how many it accepts before anything else runs: protocols could not make room
        # meanwhile, and without a descriptor it tries as many times, and again as often for each after a second.
        server = await asyncio.get_running_loop().create_server(
            factory, host, port, ssl=tls, backlog=1, ssl_handshake_timeout=handshake_s
        )
        for each in server.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as ours:
                ours.listen(NOT_ACCEPTED_MAX)
    except OSError as error:
        raise PortTaken(f"{address}: {error.strerror or error}") from None
    bound = server.sockets[0].getsockname()[1]
    return server, f"{host}:{bound}"


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server once every connection that it has accepted has come to its protocol.

    A connection whose server is closed between the two is lost by asyncio (selector loop, seen in Python 3.11): no
    protocol hears of it, so nobody ever ends it.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    for _ in range(ACCEPTING_TURNS):
        await asyncio.sleep(0)
    server.close()


def refuse_taken_port(config: ReplicaConfig) -> None:
    """Try the port of a replica's ingress before anything is started. Raises: PortTaken, InvalidConfig."""
    if not config.ingress_listen or config.ingress_listen.endswith(":0"):
        return
    host, port = split_address(config.ingress_listen)
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return
    except OSError as error:
        raise PortTaken(
            f"spec.ingress: replica {config.replica} can't listen on {config.ingress_listen}: {error.strerror}",
            remedy="choose another spec.ingress.port (replica k takes port + k), or 0 for any",
        ) from None
