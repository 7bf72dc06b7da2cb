"""A primary in a thread of its own, for clients that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from replica_fake import FakeShard, ReplicaServer


@contextmanager
def served() -> Iterator[str]:
    """A replica in a thread of its own; gives its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> ReplicaServer:
        server = ReplicaServer(FakeShard())
        await server.start()
        server.replica.become("primary", 1, server.address)
        return server

    async def end() -> None:
        server.kill()
        for _ in range(5):
            await asyncio.sleep(0)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server.address
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
