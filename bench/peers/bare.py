"""The least that two services in Python can be, as a peer of calls between services: what stays when all is left out.

Two processes with the event loop of ours. For each call the callee syncs one block and answers, the caller syncs one
and sends the next request: the two syncs and two ways that calls one after the other can't do without, since nothing
leaves before it is durable. Nothing is parsed, checked, run, deduplicated or proved, and nobody takes over. What ours
takes above this is what the protocol and the handlers cost; what this takes above the floor, Python's event loop.

Guarantees: blocks of the floor's size, in a file whose space comes in the floor's steps. Does not: promise anything.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from bench.figures import median
from bench.floor import ALLOCATE, BLOCK
from bench.peers.table import Missing, end, start_module, tail
from deathless.shell.process import event_loop

NAME: Final = "two Python processes that sync and answer, no more"
SIZE: Final = 64


class _Half(asyncio.Protocol):
    """Answers each message with one of its own, once a block is durable."""

    def __init__(self, file: Path, answered: Callable[[asyncio.Transport], None] | None = None) -> None:
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._offset = 0
        self._transport: asyncio.Transport
        self._answered = answered or (lambda transport: transport.write(bytes(SIZE)))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._offset % ALLOCATE == 0:
            os.posix_fallocate(self._descriptor, self._offset, ALLOCATE)
        os.pwrite(self._descriptor, bytes(BLOCK), self._offset)
        os.fdatasync(self._descriptor)
        self._offset += BLOCK
        self._answered(self._transport)


async def _serve(folder: Path) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Half(folder / "callee"), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _ask(folder: Path, port: int, calls: int) -> None:
    took: list[float] = []
    done = asyncio.Event()
    began = time.perf_counter()

    def answered(transport: asyncio.Transport) -> None:
        nonlocal began
        now = time.perf_counter()
        took.append((now - began) * 1e6)
        began = now
        if len(took) < calls:
            transport.write(bytes(SIZE))
        else:
            done.set()

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: _Half(folder / "caller", answered), "127.0.0.1", port)
    began = time.perf_counter()
    transport.write(bytes(SIZE))
    await done.wait()
    print(median(took[len(took) // 10 :]), flush=True)


async def calls_us(folder: Path, *, calls: int) -> float:
    """The median of one call, microseconds. Raises: Missing: a process did not start."""
    home = folder / f"bare-{time.monotonic_ns()}"
    home.mkdir()
    log = home / "log"
    server, port = await start_module("bench.peers.bare", str(home), log=log)
    try:
        client, value = await start_module("bench.peers.bare", str(home), port, str(calls), log=log)
        if await client.wait():
            raise Missing(tail(log))
        return float(value)
    finally:
        await end(server)


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    event_loop.run(_ask(Path(where), *map(int, rest)) if rest else _serve(Path(where)))
