"""Connections that a server has accepted, or that were closed, end with their loop, as those of a process end with it.

Three things leave a connection to nobody. It stays open until the garbage collector finds it, and then fails whatever
test runs at that moment:

- asyncio accepts a connection in one turn of its loop and makes the transport in a later one; if the server is closed
  between the two, nobody closes the connection (CPython's issue 109564, Python 3.11 to 3.13). Our own ports wait before
  they close (`deathless.shell.net.listening.stop_listening`); servers of tests that stand for a killed process do not.
- A client closes its end as a test ends, and the loop ends before the server's end hears of it. On a busy machine the
  kernel takes longer to say so.
- A client has closed its end, and the loop ends before the other one has taken its last bytes or, with TLS, has said
  that it closes as well.

Guarantees: clients' connections that were not closed are left as they are, so a client that forgets to close its own
still fails its test.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, cast


def end_accepted_connections() -> None:
    """Have every selector loop end what was closed, and what its servers accepted, with it or with the server."""
    loops = cast("Any", asyncio.SelectorEventLoop)
    loops._accept_connection2 = _ending_late_ones(loops._accept_connection2)
    loops.close = _ending_accepted_ones(loops.close)


def _ending_late_ones(accept: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(accept)
    async def accepted(
        loop: object, make: object, connection: socket.socket, extra: object, tls: object = None,
        server: asyncio.Server | None = None, *more: object, **named: object,
    ) -> None:  # fmt: skip
        if server is not None and not server.sockets:
            connection.close()
        else:
            await accept(loop, make, connection, extra, tls, server, *more, **named)

    return accepted


def _ending_accepted_ones(close: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(close)
    def closed(loop: Any) -> None:
        for transport in [] if loop.is_running() or loop.is_closed() else list(loop._transports.values()):
            secured = getattr(transport._protocol, "_app_transport", None)
            closed_before = transport._closing or (secured is not None and secured._closed)
            if transport._sock is not None and (closed_before or transport._server is not None):
                transport._sock.close()
                transport._sock, transport._closing = None, True
                if secured is not None:
                    secured._closed = True
        close(loop)

    return closed
