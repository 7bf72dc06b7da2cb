"""NATS JetStream as a peer of forks: one server with a stream in files, a publisher and a consumer that acks.

The publisher has up to 4,000 messages unacknowledged, as its client does by itself; the consumer, a process of its
own, fetches up to 1,000 and acks each. `sync_interval` is when the server syncs its files: `always` behind each
message, which is what ours promises, or every two minutes, which is its default and loses what a power cut takes.

Guarantees: every message is acked by the server to the publisher, and by the consumer, once. Does not: replicate.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Final

from bench.peers.table import Missing, cached, end, run, start, start_module, tail

VERSION: Final = "2.15.2"
MODULE: Final = f"github.com/nats-io/nats-server/v2@v{VERSION}"
ALWAYS: Final = "NATS JetStream, sync always"
DEFAULT: Final = "NATS JetStream, its default of a sync every 2 min"
SYNC: Final = {ALWAYS: "always", DEFAULT: "2m"}
READY_S: Final = 60.0
FETCHED: Final = 1000


def server_binary() -> Path:
    """The server, built where it is missing. Raises: Missing."""

    def build(folder: Path) -> None:
        flags = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath -buildvcs=false", "GOWORK": "off"}
        run("go", "install", "-ldflags", "-s -w", MODULE, GOBIN=str(folder), **flags)

    return cached("nats-server", VERSION, "nats-server", build)


async def stream(folder: Path, sync: str, *, messages: int, size: int) -> float:
    """Messages per second, from the first one published to the last one acked. Raises: Missing.

    Args:
        folder: on the storage to be measured; the stream lies below it.
        sync: when the server syncs, as its configuration says it.
        messages: how many.
        size: bytes of each.
    """
    if importlib.util.find_spec("nats") is None:
        raise Missing("nats-py is not installed")
    binary = server_binary()
    home = folder / f"nats-{time.monotonic_ns()}"
    home.mkdir()
    (home / "server.conf").write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{home}"\n'
        f'jetstream {{ store_dir: "{home}/store", sync_interval: {sync} }}\n'
    )
    server = await start(str(binary), "-c", str(home / "server.conf"), log=home / "log")
    try:
        return await _publish(await _address(home, server), home, messages, size)
    finally:
        await end(server)


async def _address(home: Path, server: asyncio.subprocess.Process) -> str:
    deadline = time.monotonic() + READY_S
    while True:
        if told := _told(home):
            return told
        if time.monotonic() > deadline or server.returncode is not None:
            raise Missing(f"its server did not come to serve: {tail(home / 'log')}")
        await asyncio.sleep(0.02)


def _told(home: Path) -> str:
    """The address that the server wrote into its folder; empty: it has not, or not all of it."""
    texts = [path.read_text() for path in home.glob("*.ports")]
    return next((str(json.loads(text)["nats"][0]) for text in texts if text.rstrip().endswith("}")), "")


async def _publish(address: str, home: Path, messages: int, size: int) -> float:
    import nats  # noqa: PLC0415  a peer may be missing

    connection = await nats.connect(address)
    try:
        stream = connection.jetstream()
        await stream.add_stream(name="bench", subjects=["take"])
        consumer, _ = await start_module("bench.peers.nats", address, str(messages), log=home / "log")
        try:
            payload = bytes(size)
            began = time.perf_counter()
            for _ in range(messages):
                await stream.publish_async("take", payload)
            await stream.publish_async_completed()
            assert consumer.stdout is not None
            took = int(await consumer.stdout.readline() or b"0")
            elapsed = time.perf_counter() - began
        finally:
            await end(consumer)
        kept = (await stream.stream_info("bench")).state.messages
        if (took, kept) != (messages, messages):
            raise ValueError(f"of {messages} messages the stream has {kept}, and {took} came")
        return messages / elapsed
    finally:
        await connection.close()


async def _consume(address: str, messages: int) -> None:
    """Say that it is there; fetch and ack so many; say how many came."""
    import nats  # noqa: PLC0415  a peer may be missing

    connection = await nats.connect(address)
    subscription = await connection.jetstream().pull_subscribe("take", durable="consumer", stream="bench")
    print("ready", flush=True)
    took = 0
    while took < messages:
        for message in await subscription.fetch(min(FETCHED, messages - took), timeout=READY_S):
            await message.ack()
            took += 1
    await connection.flush()
    print(took, flush=True)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_consume(sys.argv[1], int(sys.argv[2])))
