"""What the kernel knows of a TCP connection of this machine: how much waits at either end, and whose it is.

Why it exists: over loopback the kernel acknowledges what the other process has not read, so the sender's own queue is
empty however long that process sleeps; /proc/net/tcp shows the reader's. What its window has no room for was not sent
yet, which the sender's socket tells; what is sent and not acknowledged counts there already, and not here. The table
shows the user of each end as well, who must be ours: anybody on the machine can connect a port of 127.0.0.1.

Guarantees: a connection that is not in the table, or was reset and has no other end any more, is not found, which the
caller takes for nobody's. Does not: know IPv6. Imports nothing of ours.
"""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

PATH: Final = "/proc/net/tcp"
SIOCOUTQNSD: Final = 0x894B  # linux/sockios.h: bytes that were not sent yet
Address = tuple[str, int]


class End(NamedTuple):
    """One end of a connection.

    Attributes:
        uid: user of its process.
        unread: bytes that its process has not read.
    """

    uid: int
    unread: int


def find_end(lines: Iterable[str], own: Address, other: Address) -> End | None:
    """Find the end at `own` of the connection to `other`; None: there is none.

    Args:
        lines: of the table, with its heading.
        own: address of this end.
        other: of the other.
    """
    wanted = _hex(own), _hex(other)
    for line in lines:
        fields = line.split()
        if tuple(fields[1:3]) == wanted:
            return End(uid=int(fields[7]), unread=int(fields[4].partition(":")[2], 16))
    return None


def _hex(address: Address) -> str:
    """Write an address as the table has it: the four bytes in the machine's order, and the port."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


def end_of_peer(connection: socket.socket) -> End | None:
    """Look up the other end of a connection of ours; None: there is none, or none any more."""
    try:
        own, other = connection.getpeername(), connection.getsockname()
    except OSError:  # it was reset, as by a process that dies with something unread
        return None
    return _look(own, other)


def waiting_for_peer(connection: socket.socket) -> int:
    """Give how many bytes lie in the kernel that we gave it and the other process has not read."""
    kept = fcntl.ioctl(connection, SIOCOUTQNSD, bytes(4))
    peer = end_of_peer(connection)
    return int.from_bytes(kept, sys.byteorder) + (peer.unread if peer else 0)


def _look(own: Address, other: Address) -> End | None:
    with open(PATH, encoding="ascii") as table:
        return find_end(table, own, other)
