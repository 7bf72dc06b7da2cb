"""What a second shard costs, and what it gives: one shard against two.

What it costs is the processor time of all processes of the service. Both get the same calls, from a client in the
bench's own process, whose time is not counted; every key is asked at the end how often it was called.

What it gives is calls per second of a handler that computes for about 100 us, so that one core is the bound and
neither client nor disk. Each shard has a compiled generator of its own, which checks that each call is answered once
and with OK.

Does not: show more than this machine's cores give. On two cores two workers share them with supervisors and
generators, and with each other the memory and the disk: the ratio stays below 2 there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import timeit
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from bench.cluster import MODULE, SERVICE, Cluster, Program
from bench.figures import Figure, Goal, figure, median
from bench.generator import compiled, generate
from bench.load import NOTE
from bench.services.counter import spin
from bench.setting import Setting
from bench.usage import processor_s
from deathless.base.shards import shard_name, shard_of
from deathless.codec.messages import Kind, encode
from deathless.shell.client.shard_client import Client

KEYS: Final = 1000
WINDOW: Final = 1000
WAIT_S: Final = 300.0
ROUNDS: Final = 1700  # of the handler that computes: about 100 us


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
    return [*await _costs(setting), *await _cores(setting)]


async def _costs(setting: Setting) -> list[Figure]:
    """Processor time."""
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
    each = {count: sum(values) / rounds for count, values in used.items()}  # /proc counts ticks: all rounds together
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


def _messages(shard: int, shards_count: int) -> list[bytes]:
    """Calls of the handler that computes, for keys of one shard."""
    arguments = msgspec.msgpack.encode({"rounds": ROUNDS})
    keys = [b"key%04d" % number for number in range(KEYS)]
    return [
        encode(Kind.CALL, method=b"work", key=key, args=arguments)
        for key in keys
        if shard_of(key, shards_count) == shard
    ]


async def _load(clusters: Sequence[Cluster], seconds: float) -> float:
    """Calls per second of all shards, with a generator for each."""
    count = len(clusters)
    addresses = [(await cluster.primary()).client for cluster in clusters]
    loads = await asyncio.gather(
        *(
            generate(
                address, clients=1, window=WINDOW, seconds=seconds,
                service=shard_name(SERVICE, shard, count), messages=_messages(shard, count),
            )
            for shard, address in enumerate(addresses)
        )
    )  # fmt: skip
    return sum(load.per_second for load in loads)


async def _cores(setting: Setting) -> list[Figure]:
    """Calls per second of a handler that computes."""
    titles = {
        "shards_work_1_per_s": "calls of a handler of 100 us of Python to 1 shard",
        "shards_work_2_per_s": "the same to 2 shards, of one replica each",
        "shards_work_ratio": "calls per second, 2 shards against 1",
    }
    if compiled() is None:
        return [
            figure(name, title, None, "", note="left out: no Go to build the load") for name, title in titles.items()
        ]
    seconds, rounds = setting.size(5_000, 300) / 1000, setting.size(5, 1)
    rates: dict[int, list[float]] = {1: [], 2: []}
    async with _service(setting, 1) as (one, _), _service(setting, 2) as (two, _):
        sets = {1: one, 2: two}
        for clusters in sets.values():
            await _load(clusters, seconds / 5)
        for _ in range(rounds):
            for count, clusters in sets.items():
                rates[count].append(await _load(clusters, seconds))
    each = {count: median(values) for count, values in rates.items()}
    took_us = min(timeit.repeat(lambda: spin(ROUNDS), number=100, repeat=5)) / 100 * 1e6
    cores = len(os.sched_getaffinity(0))
    notes = {
        "shards_work_1_per_s": f"the handler takes {took_us:.0f} us by itself; one generator in Go, window {WINDOW:,}",
        "shards_work_2_per_s": "two such generators, one for each shard",
        "shards_work_ratio": f"{cores} cores for workers, supervisors, generators and all else that runs; one disk",
    }
    values = {
        "shards_work_1_per_s": each[1],
        "shards_work_2_per_s": each[2],
        "shards_work_ratio": each[2] / each[1] if each[1] else None,
    }
    units = {name: "" if name.endswith("ratio") else "calls/s" for name in titles}
    samples = int(sum(map(sum, rates.values())) * seconds)
    return [
        figure(name, title, values[name], units[name], samples=samples, note=notes[name])
        for name, title in titles.items()
    ]
