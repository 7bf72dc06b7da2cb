"""How many calls the Python client alone can make: against a server in another process that answers each at once.

Two figures per way of calling: calls per second of wall time, and per second of the client's own processor time (what
one core could do were it never kept waiting). Prints JSON. Run it as `python bench/micro/client.py [--profile]`.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from deathless.codec.wire import (
    PacketReader,
    Registered,
    Type,
    Welcome,
    decode_batch,
    encode_replies,
    ok_reply,
    struct_packet,
)
from deathless.shell.client.shard_client import Client

CALLS = 50_000
RUNS = 7
GOAL_PER_S = 250_000
REPLY = ok_reply(b"\x2a")


class Echo(asyncio.Protocol):
    """Admits everything, answers 42."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.reader = PacketReader(64 << 20)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for kind, body in self.reader.feed(data):
            if kind == Type.HELLO:
                welcome = Welcome(1, "bank", "r0", "primary", 1, 1, "", 0, 1 << 20, 65536)
                self.transport.write(struct_packet(Type.WELCOME, welcome))
            elif kind == Type.REGISTER:
                self.transport.write(struct_packet(Type.REGISTERED, Registered(body, 7)))
            elif kind == Type.BATCH:
                session, first, _, count = decode_batch(body).run
                if count:
                    self.transport.write(encode_replies(session, range(first, first + count), [REPLY] * count))


def serve(pipe: Connection) -> None:
    """Run the server in a process of its own."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def one_by_one(client: Client) -> int:
    """Await each call."""
    for _ in range(CALLS // 10):
        await client.call("deposit", "alice", amount=5)
    return CALLS // 10


async def submitted(client: Client) -> int:
    """A Future per call, 1,000 on their way."""
    keys = [f"account-{i}" for i in range(1000)]
    args = {"amount": 5}
    for _ in range(CALLS // 1000):
        pending = [client.submit("deposit", key, args) for key in keys]
        for future in pending:
            await future
    return CALLS


async def columns(client: Client) -> int:
    """Columns in, columns out."""
    keys = [f"account-{i}" for i in range(1000)] * (CALLS // 1000)
    await client.call_many("deposit", keys, [{"amount": 5}] * CALLS)
    return CALLS


async def sixty_four(client: Client) -> int:
    """64 tasks, one call each at a time."""

    async def loop() -> None:
        for _ in range(CALLS // 640):
            await client.call("deposit", "alice", amount=5)

    await asyncio.gather(*(loop() for _ in range(64)))
    return CALLS // 640 * 64


async def measure(port: int) -> dict[str, dict[str, float]]:
    """Run each way several times; medians."""
    figures = {}
    ways: list[Callable[[Client], Awaitable[int]]] = [one_by_one, sixty_four, submitted, columns]
    async with Client("bank", [f"127.0.0.1:{port}"]) as client:
        await client.ready()
        for way in ways:
            wall, own = [], []
            for _ in range(RUNS):
                began, used = time.perf_counter(), time.process_time()
                count = await way(client)
                wall.append(count / (time.perf_counter() - began))
                own.append(count / (time.process_time() - used))
            figures[way.__name__] = {
                "per_second": round(statistics.median(wall), 0),
                "per_processor_second": round(statistics.median(own), 0),
            }
    return figures


def main() -> None:
    """Start the server, measure, print."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    port = ours.recv()
    profile = cProfile.Profile()
    if "--profile" in sys.argv:
        profile.enable()
    figures = asyncio.run(measure(port))
    profile.disable()
    process.terminate()
    print(json.dumps({"goal_per_second": GOAL_PER_S, **figures}, indent=2))
    if "--profile" in sys.argv:
        profile.print_stats("tottime")


if __name__ == "__main__":
    main()
