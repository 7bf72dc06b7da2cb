"""A checkpoint of 1 GiB of state with one replica: how fast it is written, and how long the primary stands still."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from itertools import pairwise
from pathlib import Path

from bench.cluster import RECOVERED_S, Cluster
from bench.figures import Figure, Goal, figure
from bench.load import NOTE
from bench.setting import Setting, build_log
from deathless.shell.client.shard_client import Client
from deathless.shell.net.admin_call import ask

MIB = 1 << 20
MANY = 1 << 40  # no checkpoint of its own meanwhile
WAIT_S = 300.0


async def checkpoint(setting: Setting) -> list[Figure]:
    """Order one under load, and watch its calls."""
    size = setting.size(1024, 8) * MIB
    keys = size // 1024
    folder = setting.new_folder()
    built = await build_log(folder, "put", message_bytes=1024, log_bytes=size, keys=keys)
    limits: dict[str, float] = {"checkpoint_every_messages": MANY, "checkpoint_every_bytes": MANY}
    async with (
        setting.cluster(folder, replicas=1, limits=limits, ready_s=RECOVERED_S) as cluster,
        Client("bench", [cluster.address]) as client,
    ):
        await client.ready()
        replies: list[float] = []
        load = asyncio.create_task(_call(client, replies))
        await asyncio.sleep(setting.size(10, 1))
        ordered = time.perf_counter()
        before = _longest(replies)
        await ask((await cluster.primary()).client, "checkpoint", cluster.access, answer_s=30.0)
        path = await _announced(cluster)
        took = time.perf_counter() - ordered
        await asyncio.sleep(0.2)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        stall = _longest([at for at in replies if at >= ordered - 0.05])
        written = path.stat().st_size
    return [
        figure(
            "checkpoint_mb_s", f"checkpoint of {size // MIB} MiB of state in 1 KiB values",
            written / took / 1e6, "MB/s",
            samples=1, note=f"{built.keys:,} keys, file of {written / MIB:,.0f} MiB, {took:.1f} s under load",
        ),
        figure(
            "checkpoint_stall_ms", "longest stall of the primary meanwhile, one replica", stall * 1000, "ms",
            samples=1, goal=Goal("at most", 20),
            note=f"longest wait of a client that calls without a pause; without a checkpoint {before * 1000:.1f} ms",
        ),
    ]  # fmt: skip


async def _call(client: Client, replies: list[float]) -> None:
    while True:
        await client.call("add", "counter", amount=1, note=NOTE)
        replies.append(time.perf_counter())


def _longest(replies: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(replies)), default=0.0)


async def _announced(cluster: Cluster) -> Path:
    """The checkpoint's file, once it is announced."""
    folder = cluster.directory / "checkpoints"
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):  # made by the first checkpoint
            for name in os.listdir(folder):
                if name.endswith(".announced"):
                    return folder / name.removesuffix(".announced")
        await asyncio.sleep(0.01)
    raise TimeoutError(f"no checkpoint within {WAIT_S:g} s: {cluster.log_end(cluster.names[0])}")
