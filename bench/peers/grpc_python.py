"""gRPC for Python as a peer of calls between services: a server process that keeps nothing, and a client of it.

What it does is less than ours: nothing is durable, nothing is deduplicated, a death loses what was under way. So it
marks what two Python processes can exchange, not what they can promise. Messages are bytes, without protobuf.

Guarantees: same sizes and same numbers outstanding as ours. Does not: measure ours (bench.groups.messaging does).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from deathless.shell.process.forked import die_with_parent

MISSING: Final = "gRPC left out: grpcio is not installed"
UNARY: Final = "/bench/take"
STREAM: Final = "/bench/takeAll"


async def _serve() -> None:
    import grpc  # noqa: PLC0415  a peer may be missing

    async def take(request: bytes, _: object) -> bytes:
        return request[:8]

    async def take_all(requests: AsyncIterator[bytes], _: object) -> bytes:
        count = 0
        async for _message in requests:
            count += 1
        return b"%d" % count

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "take": grpc.unary_unary_rpc_method_handler(take),
        "takeAll": grpc.stream_unary_rpc_method_handler(take_all),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[str | None]:
    """A server of its own; gives its address, or None where gRPC is missing."""
    try:
        import grpc  # noqa: F401, PLC0415  a peer may be missing
    except ImportError:
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.peers.grpc_python",
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


async def unary(address: str, *, outstanding: int, calls: int, size: int) -> tuple[list[float], float]:
    """Call and reply; gives each call's microseconds, and calls per second of all."""
    import grpc  # noqa: PLC0415  a peer may be missing

    took: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(UNARY)
        await call(bytes(size))

        async def one() -> None:
            for _ in range(calls):
                began = time.perf_counter()
                await call(bytes(size))
                took.append((time.perf_counter() - began) * 1e6)

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(outstanding)))
        return took, len(took) / (time.perf_counter() - began)


async def stream(address: str, *, messages: int, size: int) -> float:
    """One stream of messages, none answered by itself; gives messages per second."""
    import grpc  # noqa: PLC0415  a peer may be missing

    async with grpc.aio.insecure_channel(address) as channel:
        message = bytes(size)
        began = time.perf_counter()
        take_all: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(STREAM)
        call = take_all()
        for _ in range(messages):
            await call.write(message)
        await call.done_writing()
        if int(await call) != messages:
            raise ValueError("gRPC lost messages")
        return messages / (time.perf_counter() - began)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    asyncio.run(_serve())
