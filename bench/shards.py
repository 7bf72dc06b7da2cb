"""What a second shard costs: the processor time of all processes of a service, with one shard and with two.

Guarantees: both get the same calls, from a client in the bench's own process, whose time is not counted; every key is
asked at the end how often it was called. Does not: show what shards are for, which is a second machine's cores.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bench.cluster import MODULE, SERVICE, Cluster, Program
from bench.figures import Figure, Goal, figure, median
from bench.load import NOTE
from bench.setting import Setting
from bench.usage import processor_s
from deathless.shell.client import Client

KEYS: Final = 1000
WINDOW: Final = 1000
WAIT_S: Final = 300.0


@contextlib.asynccontextmanager
async def _service(setting: Setting, shards: int) -> AsyncIterator[tuple[list[Cluster], Client]]:
    """All shards, of one replica each, and a client of all."""
    folder = setting.new_folder()
    async with contextlib.AsyncExitStack() as stack:
        clusters = [
            await stack.enter_async_context(
                setting.cluster(folder, replicas=1, program=Program(SERVICE, MODULE, "service", shard, shards))
            )
            for shard in range(shards)
        ]
        address = f"dir:{folder / 'service'}"
        client = await stack.enter_async_context(Client(SERVICE, [address], window_max=WINDOW, shards=shards))
        await client.ready()
        yield clusters, client


async def _round(clusters: Sequence[Cluster], client: Client, calls: int) -> tuple[float, float]:
    """Processor seconds of all processes of the service for so many calls, and calls per second."""
    keys = [f"key{number % KEYS:04d}" for number in range(calls)]
    arguments: list[dict[str, object]] = [{"amount": 1, "note": NOTE}] * calls
    pids = [pid for cluster in clusters for name in cluster.names for pid in (cluster.supervisor(name),)]
    pids += [pid for cluster in clusters for pid in (await cluster.workers()).values()]
    before, began = sum(map(processor_s, pids)), time.perf_counter()
    replies = await client.call_many("add", keys, arguments)
    took = time.perf_counter() - began
    if len(replies) != calls:
        raise ValueError("replies are missing")
    return sum(map(processor_s, pids)) - before, calls / took


async def shards(setting: Setting) -> list[Figure]:
    """Two shards against one."""
    calls, rounds = setting.size(100_000, 2_000), setting.size(5, 2)
    used: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    async with _service(setting, 1) as one, _service(setting, 2) as two:
        sets = {1: one, 2: two}
        for clusters, client in sets.values():
            await _round(clusters, client, calls // 10)
        for _ in range(rounds):  # in turns, so that what else goes on meets both
            for count, (clusters, client) in sets.items():
                seconds, rate = await _round(clusters, client, calls)
                used[count].append(seconds)
                rates[count].append(rate)
        for count, (_, client) in sets.items():
            last = await client.call_many(
                "add", [f"key{n:04d}" for n in range(KEYS)], [{"amount": 0, "note": ""}] * KEYS
            )
            if sum(last) != calls // 10 + rounds * calls:
                raise ValueError(f"with {count} shards calls were lost or doubled")
    each = {count: median(values) for count, values in used.items()}
    ratio = each[2] / each[1] if each[1] else None
    per_call = {count: seconds / calls * 1e6 for count, seconds in each.items()}
    return [
        figure(
            "shards_processor_ratio", f"processor time of {calls:,} calls, 2 shards against 1, one replica each", ratio,
            "", samples=rounds * calls, goal=Goal("at most", 1.1),
            note=f"all processes of the service: {each[2]:.2f} s against {each[1]:.2f} s, "
            f"{per_call[2]:.1f} us against {per_call[1]:.1f} us per call",
        ),
        figure(
            "shards_1_per_s", "calls to a service of 1 shard, window 1,000", median(rates[1]), "calls/s",
            samples=rounds * calls, note="one Python client in one process calls, and shares the cores",
        ),
        figure(
            "shards_2_per_s", "calls to a service of 2 shards, window 1,000", median(rates[2]), "calls/s",
            samples=rounds * calls, note="the client is the bound: it has one core, and each shard another",
        ),
    ]  # fmt: skip
