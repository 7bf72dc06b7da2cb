"""Ports of loopback for servers that must know their own before they start, and keep it when they start again.

The kernel gives ports of one range to whoever asks for any and to every outgoing connection. A server that is ended and
started again on such a port may find it taken by then. These ports are below that range, so that only somebody who
names one can take it.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
BELOW: Final = 12_000  # ports that are tried, below the kernel's range
LOWEST: Final = 10_000  # services of the system have ports below it
_chosen = random.SystemRandom()


def free_ports(count: int, given_by_kernel: Path = RANGE) -> list[int]:
    """Give ports that nobody listens on, all different.

    Args:
        count: how many, at least 1.
        given_by_kernel: a file that begins with the lowest port of the kernel's range.

    Raises: OSError where the kernel's range leaves none.
    """
    top = int(given_by_kernel.read_text().split()[0])
    candidates = range(max(top - BELOW, LOWEST), top)
    found: list[int] = []
    for port in _chosen.sample(candidates, len(candidates)):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"{given_by_kernel}: the kernel gives ports from {top} on: too few are left for {count} servers")
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
