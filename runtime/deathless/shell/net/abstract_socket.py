"""Where a primary and a driver beside it meet: a Unix socket in Linux's abstract namespace.

Its name is made from the folder of the log, the replica and the driver, so both ends know it without being told. It
needs no port and no file: it is there while its owner lives, and gone with it, however that ends. It is seen from the
same network namespace alone, which of a pod is the pod.

Guarantees: `is_own` says whether the other end runs as the same user; nobody else is talked to. Does not: speak.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
P = TypeVar("P", bound=asyncio.BaseProtocol)


def driver_socket(directory: str, owner: str, driver: str) -> str:
    """Give the socket's name, at most 85 characters.

    Args:
        directory: of the shard.
        owner: the replica, with its instance if it has one.
        driver: its name.
    """
    where = f"{os.path.realpath(directory)}\0{owner}".encode()
    return f"deathless/{hashlib.blake2b(where, digest_size=16).hexdigest()}/{driver}"


async def listen_local(factory: Callable[[], asyncio.Protocol], name: str) -> asyncio.Server:
    """Listen there. Raises: OSError when another process does."""
    return await asyncio.get_running_loop().create_unix_server(factory, f"\0{name}")


async def connect_local(factory: Callable[[], P], name: str) -> P:
    """Connect. Raises: OSError; PermissionError when another user's process listens there."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, f"\0{name}")
        if not is_own(sock):
            raise PermissionError("a process of another user listens there")  # noqa: TRY301  closed as any other
        _, protocol = await loop.create_unix_connection(factory, sock=sock)
    except BaseException:
        sock.close()
        raise
    return protocol


class HasOptions(Protocol):
    """A socket, or what a transport shows of one."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """See socket.socket."""
        ...


def is_own(sock: HasOptions) -> bool:
    """Does the other end run as our user?"""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(found)
    return bool(uid == os.geteuid())
