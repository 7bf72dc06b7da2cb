"""Durable exactly-once calls: one client's latency, 64 clients, a window of 1,000; beside floor and peers, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Final

from bench.cluster import Cluster
from bench.figures import Figure, Goal, figure, median, percentile
from bench.floor import Floor
from bench.generator import generate, name
from bench.load import NOTE, Load
from bench.setting import Setting
from bench.usage import processor_s
from deathless.shell.client.shard_client import Client

WINDOW: Final = 1000
CLIENTS: Final = 64
FILLED_AFTER: Final = 6000  # frames of a block after which the log's files are filled ahead of time


class Costs:
    """Processor time per call, of each process that takes part: what the cores of this machine can give at most."""

    def __init__(self) -> None:
        self._primary: list[float] = []
        self._follower: list[float] = []
        self._generator: list[float] = []
        self._used: dict[str, float] = {}

    @contextlib.asynccontextmanager
    async def measured(self, cluster: Cluster) -> AsyncIterator[None]:
        """Look at the workers before and after."""
        primary = (await cluster.primary()).replica
        workers = await cluster.workers()
        before = {name: processor_s(pid) for name, pid in workers.items()}
        yield
        self._used = {
            "primary" if name == primary else name: processor_s(pid) - before[name] for name, pid in workers.items()
        }

    def add(self, load: Load) -> None:
        """Note what the calls of this run cost."""
        per_call = {name: used / max(load.calls, 1) * 1e6 for name, used in self._used.items()}
        self._primary.append(per_call.pop("primary"))
        self._follower.append(sum(per_call.values()) / max(len(per_call), 1))
        self._generator.append(load.processor_us)

    def told(self) -> str:
        """One sentence."""
        primary, follower, generator = median(self._primary), median(self._follower), median(self._generator)
        whole = primary + 2 * follower + generator
        cores = len(os.sched_getaffinity(0))
        return (
            f"processor time per call: primary {primary:.1f} us, each follower {follower:.1f}, "
            f"generator {generator:.1f}, so {cores} cores give {cores / whole * 1e6:,.0f}/s at most"
        )


async def one_client(setting: Setting) -> list[Figure]:
    """One client, one call at a time, through the Python client; in short turns with floor and peers."""
    turns, count = setting.size(90, 6), setting.size(40, 20)
    floors, ours, postgres_took, etcd_took = [], [], [], []
    async with setting.cluster() as cluster:
        postgres, etcd = setting.postgres(), setting.etcd()
        with Floor(setting.folder) as floor:
            async with Client("bench", [cluster.address]) as client:
                await client.ready()
                # Warms caches and the processor's clock up, and lets the log come to files that were filled.
                await _call_us(client, setting.size(FILLED_AFTER, count))
                async with setting.profiled(cluster, "one-client"):
                    for turn in range(turns):
                        floors += floor.measure(count)
                        ours += await _call_us(client, count)
                        if postgres is not None:
                            postgres_took += postgres.update_us(count)
                        if etcd is not None and turn % 10 == 5:
                            etcd_took.append((await asyncio.to_thread(etcd.put, 1, count / 200))["p50_us"])
            sync, trip, grows = median(floor.syncs), median(floor.trips), median(floor.growing)
    value, base = median(ours), median(floors)
    return [
        figure(
            "call_1_client_p50_us",
            "durable exactly-once call, 1 client, p50",
            value,
            "us",
            samples=len(ours),
            floor=base,
            peers={
                "PostgreSQL UPDATE": median(postgres_took) if postgres_took else None,
                "etcd put": median(etcd_took) if etcd_took else None,
            },
            goal=Goal("at most", 1.5, floors=True),
            note=_notes(
                f"{value / base:.2f} x floor: fdatasync of 4 KiB {sync:.0f} us in a file filled with zeros, round trip "
                f"{trip:.0f} us; {value / (grows + trip):.2f} x that of a file that grows, {grows:.0f} us",
                setting.missing("postgres", "etcd"),
            ),
        ),
        figure(
            "call_1_client_p99_us",
            "the same, p99",
            percentile(ours, 99),
            "us",
            samples=len(ours),
            floor=percentile(floors, 99),
            goal=Goal("at most", 2.0, floors=True),
        ),
    ]


async def _call_us(client: Client, count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await client.call("add", "key0001", amount=1, note=NOTE)
        took.append((time.perf_counter() - began) * 1e6)
    return took


async def clients_64(setting: Setting) -> list[Figure]:
    """64 sessions, each with one call at a time."""
    rounds, seconds = setting.size(5, 1), setting.size(3, 1)
    rates, tails, postgres_rates, postgres_tails, etcd_rates, etcd_tails = [], [], [], [], [], []
    python_rates = []
    calls, costs = 0, Costs()
    async with setting.cluster() as cluster:
        postgres, etcd = setting.postgres(), setting.etcd()
        address = (await cluster.primary()).client
        await generate(address, clients=CLIENTS, window=1, seconds=0.5)
        for _ in range(rounds):
            async with setting.profiled(cluster, "64-clients"), costs.measured(cluster):
                load = await generate(address, clients=CLIENTS, window=1, seconds=seconds)
            costs.add(load)
            calls += load.calls
            rates.append(load.per_second)
            tails.append(load.p99_us / 1000)
            python_rates.append(await _python_clients(cluster.address, seconds / 2))
            if postgres is not None:
                rate, tail = await asyncio.to_thread(postgres.clients_per_s, CLIENTS, seconds)
                postgres_rates.append(rate)
                postgres_tails.append(tail)
            if etcd is not None:
                told = await asyncio.to_thread(etcd.put, CLIENTS, seconds)
                etcd_rates.append(told["per_second"])
                etcd_tails.append(told["p99_us"] / 1000)
    return [
        figure(
            "calls_64_clients_per_s",
            "the same, 64 clients",
            median(rates),
            "calls/s",
            samples=calls,
            peers={
                "PostgreSQL UPDATE": median(postgres_rates) if postgres_rates else None,
                "etcd put": median(etcd_rates) if etcd_rates else None,
            },
            goal=Goal("at least", 40_000),
            note=_notes(
                f"load: {name()}, 64 sessions in one process; PostgreSQL's: pgbench; etcd's: its Go client",
                costs.told(),
                f"64 Python clients in one process: {median(python_rates):,.0f}/s",
                setting.missing("postgres", "etcd"),
            ),
        ),
        figure(
            "calls_64_clients_p99_ms",
            "the same, p99",
            median(tails),
            "ms",
            samples=calls,
            peers={
                "PostgreSQL UPDATE": median(postgres_tails) if postgres_tails else None,
                "etcd put": median(etcd_tails) if etcd_tails else None,
            },
        ),
    ]


async def _python_clients(address: str, seconds: float) -> float:
    """Calls per second of 64 Python clients in this process."""
    clients = [Client("bench", [address]) for _ in range(CLIENTS)]
    calls = 0
    for client in clients:
        client.start()
    for client in clients:
        await client.ready()
    began = time.perf_counter()

    async def one(client: Client, key: str) -> None:
        nonlocal calls
        while time.perf_counter() - began < seconds:
            await client.call("add", key, amount=1, note=NOTE)
            calls += 1

    await asyncio.gather(*(one(client, f"key{n:04d}") for n, client in enumerate(clients)))
    rate = calls / (time.perf_counter() - began)
    for client in clients:
        await client.close()
    return rate


async def pipelined(setting: Setting) -> list[Figure]:
    """One session with 1,000 calls on their way."""
    rounds, seconds = setting.size(7, 1), setting.size(3, 1)
    rates, tails, python_rates, postgres_rates = [], [], [], []
    calls, costs = 0, Costs()
    async with setting.cluster() as cluster:
        postgres = setting.postgres()
        address = (await cluster.primary()).client
        await generate(address, clients=1, window=WINDOW, seconds=0.5)
        for _ in range(rounds):
            async with setting.profiled(cluster, "pipelined"), costs.measured(cluster):
                load = await generate(address, clients=1, window=WINDOW, seconds=seconds)
            costs.add(load)
            calls += load.calls
            rates.append(load.per_second)
            tails.append(load.p99_us / 1000)
            python_rates.append(await _python_columns(cluster.address, seconds / 2))
            if postgres is not None:
                postgres_rates.append(await asyncio.to_thread(postgres.pipelined_per_s, seconds / 2, WINDOW))
    return [
        figure(
            "calls_pipelined_per_s",
            "pipelined, window 1,000",
            median(rates),
            "calls/s",
            samples=calls,
            peers={"PostgreSQL pipeline": median(postgres_rates) if postgres_rates else None},
            goal=Goal("at least", 350_000),
            note=_notes(
                f"load: {name()}, one session; p99 of a batch {median(tails):.1f} ms",
                costs.told(),
                f"the Python client's `call_many` with that window: {median(python_rates):,.0f}/s",
                "PostgreSQL: psycopg, one commit per 1,000 UPDATEs",
                setting.missing("postgres"),
            ),
        )
    ]


async def _python_columns(address: str, seconds: float) -> float:
    keys = [f"key{n:04d}" for n in range(1000)] * 10
    arguments = [{"amount": 1, "note": NOTE}] * len(keys)
    calls = 0
    async with Client("bench", [address], window_max=WINDOW) as client:
        await client.ready()
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            await client.call_many("add", keys, arguments)
            calls += len(keys)
        return calls / (time.perf_counter() - began)


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
