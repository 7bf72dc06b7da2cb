"""Rows that come in: by the connector protocol and from Kafka, each durable and confirmed.

Guarantees: a rate counts rows that were acknowledged, and the service's own sums are compared at the end: unless each
row was taken in once, the figure is left out. Does not: measure files, which nobody waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from lab import kafka as lab_kafka

from bench.cluster import POLL_S, Cluster, Program
from bench.connector_load import SENSORS, Sent, total
from bench.figures import Figure, Goal, figure, median, percentile
from bench.groups.messaging import spread
from bench.load import NOTE
from bench.setting import ROOT, Setting, module_path
from bench.usage import children, processor_s
from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.shell.client.shard_client import Client
from deathless.shell.process.forked import die_with_parent

MODULE: Final = Path(__file__).resolve().parents[2] / "services" / "intake.py"
INTAKE: Final = Program("intake", f"{MODULE}:intake", "intake")
GATE: Final = SourceConfig(
    name="rows", kind="connector", input="rows", key="value.sensor", options={"listen": "127.0.0.1:0"}
)
WINDOW: Final = 10_000  # rows under way, as many as a source's credits are by default
WAIT_S: Final = 300.0  # for anything
SETTLE_S: Final = 1.0
BACK_S: Final = 20.0
KILLS_OF_A_SET: Final = 8


class Intake(Cluster):
    """Replicas of the service that takes rows in, with a gate beside each."""

    source = GATE

    def config(self, name: str) -> ReplicaConfig:
        """See Cluster."""
        return msgspec.structs.replace(super().config(name), sources=(self.source,))

    async def cost(self) -> float:
        """Processor time so far, seconds, of the workers and of all that runs beside them."""
        workers = list((await self.workers()).values())
        beside = [pid for name in self.names for pid in children(self.supervisor(name))]
        return sum(processor_s(pid) for pid in {*workers, *beside})


@contextlib.asynccontextmanager
async def taking(
    setting: Setting, kind: type[Intake], replicas: int, modules: Path | None = None
) -> AsyncIterator[tuple[Intake, Client]]:
    """The service with its sources, and a client."""
    made = setting.made(kind, setting.new_folder(), replicas=replicas, program=INTAKE, modules=modules)
    async with made as cluster, Client("intake", [cluster.address]) as client:
        await client.ready()
        yield cluster, client


async def taken_in(client: Client) -> tuple[int, int]:
    """How many rows were taken in, and their sum."""
    found = await asyncio.gather(
        *(client.query("look", f"s{n:02d}", timeout=WAIT_S, result=tuple[int, int]) for n in range(SENSORS))
    )
    return sum(count for count, _ in found), sum(added for _, added in found)


async def wrong(client: Client, count: int) -> str:
    """Say what is wrong with the rows up to a count; empty: each was taken in once."""
    wanted, found = (count, total(count)), await taken_in(client)
    return "" if found == wanted else f"{found} rows and their sum were taken in, instead of {wanted}"


# ---- connector ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def sender(cluster: Intake, stream: int, count: int, window: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that sends rows; it is gone at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.connector_load", str(cluster.directory), GATE.name, str(stream), str(count),
        str(window), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
        env={**os.environ, "PYTHONPATH": module_path()},
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def result_of(process: asyncio.subprocess.Process) -> Sent:
    """Wait until it has sent all. Raises: RuntimeError when it broke."""
    output, _ = await asyncio.wait_for(process.communicate(b""), WAIT_S)  # the end of its input
    if process.returncode != 0:
        raise RuntimeError(f"the sender ended with {process.returncode}")
    return msgspec.json.decode(output, type=Sent)


async def send(cluster: Intake, stream: int, count: int, window: int) -> Sent:
    """Send so many rows as one stream, and give what came of it."""
    async with sender(cluster, stream, count, window) as process:
        return await result_of(process)


async def stream_in(setting: Setting) -> list[Figure]:
    """Rows per second of one client with 10,000 credits, with one replica and with three."""
    figures = []
    rows, rounds = setting.size(400_000, 4_000), setting.size(3, 1)
    for replicas, goal in ((1, Goal("at least", 100_000)), (3, Goal("at least", 60_000))):
        async with taking(setting, Intake, replicas) as (cluster, client):
            await send(cluster, 1, max(100, rows // 20), WINDOW)
            problem, rates, used, cost = "", [], 0.0, 0.0
            warm = (await taken_in(client))[0]
            async with setting.profiled(cluster, f"stream-in-{replicas}"):
                for stream in range(2, 2 + rounds):
                    before = await cluster.cost()
                    sent = await send(cluster, stream, rows, WINDOW)
                    cost += await cluster.cost() - before
                    used += sent.processor_s
                    rates.append(sent.acknowledged / sent.seconds)
            found = await taken_in(client)
            wanted = (warm + rounds * rows, total(warm) + rounds * total(rows))
            problem = "" if found == wanted else f"{found} taken in, {wanted} sent"
        figures.append(
            figure(
                f"stream_in_{replicas}_per_s",
                f"rows of a connector taken in, 100 B, {replicas} replica{'s' * (replicas > 1)}",
                None if problem else median(rates), "rows/s", samples=rounds * rows, goal=goal,
                note=problem or f"durable and confirmed; {spread(rates)}; processor time of a row: the service with "
                f"its gate {cost / rounds / rows * 1e6:.1f} us, the sender {used / rounds / rows * 1e6:.1f} us",
            )
        )  # fmt: skip
    return figures


async def acknowledgements(setting: Setting) -> list[Figure]:
    """From a row to its acknowledgement, one at a time; the floor is a client's call of the same service, in turns."""
    each, rounds = setting.size(1_000, 50), setting.size(5, 1)
    async with taking(setting, Intake, 3) as (cluster, client):
        waits: list[float] = []
        calls: list[float] = []
        for stream in range(1, rounds + 1):
            waits += (await send(cluster, stream, each, 1)).waits_us
            for number in range(each):
                began = time.perf_counter()
                await client.call("add", "caller", value=number, note=NOTE)
                calls.append((time.perf_counter() - began) * 1e6)
        found = await taken_in(client)
    wanted = (rounds * each, rounds * total(each))
    problem = "" if found == wanted else f"{found} taken in, {wanted} sent"
    note = problem or f"p99 {percentile(waits, 99):,.0f} us; a call's {percentile(calls, 99):,.0f}"
    return [
        figure(
            "stream_ack_p50_us", "from a row to its acknowledgement, one at a time, p50",
            None if problem else median(waits), "us", samples=len(waits), floor=median(calls),
            goal=Goal("at most", 1.5, floors=True), note=f"three replicas; the floor is a durable call; {note}",
        )
    ]  # fmt: skip


async def stream_takeover(setting: Setting) -> list[Figure]:
    """The longest wait between two acknowledgements when the primary's worker is killed."""
    rounds = setting.size(24, 2)
    gaps: list[float] = []
    problem, rows = "", 0
    for start in range(0, rounds, KILLS_OF_A_SET):
        async with taking(setting, Intake, 3) as (cluster, client), sender(cluster, 1, 0, 500) as process:
            killed = []
            for _ in range(min(KILLS_OF_A_SET, rounds - start)):
                await cluster.wait_ready()
                await asyncio.sleep(SETTLE_S)
                killed.append(time.perf_counter())
                os.kill((await cluster.primary()).worker_pid, signal.SIGKILL)
            await cluster.wait_ready()
            await asyncio.sleep(SETTLE_S)
            sent = await result_of(process)
            problem = problem or await wrong(client, sent.acknowledged)
            rows += sent.acknowledged
            gaps += [gap_ms(sent.gaps, at) for at in killed]
    return [
        figure(
            "stream_takeover_p50_ms", "longest wait between acknowledgements at kill -9 of the primary, p50",
            None if problem else median(gaps), "ms", samples=rounds, goal=Goal("at most", 150),
            note=problem or f"worst {max(gaps):.0f} ms; {rows:,} rows, none lost, none doubled",
        )
    ]  # fmt: skip


def gap_ms(gaps: list[tuple[float, float]], since: float) -> float:
    """The longest of the waits that ended after a moment, and began within BACK_S behind it, in milliseconds."""
    return max((end - begin for begin, end in gaps if end > since and begin < since + BACK_S), default=0.0) * 1000


# ---- Kafka -------------------------------------------------------------------------------------------------------


async def kafka_in(setting: Setting) -> list[Figure]:
    """Records of a topic of Kafka that was written before; a consumer that keeps nothing beside it."""
    title, rows = "records of Kafka taken in, 100 B, one replica", setting.size(400_000, 2_000)
    modules = lab_kafka.find()
    if modules is None:
        missing = "Kafka is not installed: make kafka"
        return [figure("kafka_in_per_s", title, None, "records/s", note=f"left out: {missing}")]
    with lab_kafka.Broker() as broker:
        consumed = await asyncio.to_thread(_kafka_load, modules, broker.address, rows)

        class Reads(Intake):
            source = SourceConfig(
                name="rows", kind="kafka", input="rows", key="value.sensor",
                options={"bootstrapServers": broker.address, "topic": "rows"},
            )  # fmt: skip

        async with taking(setting, Reads, 1, modules) as (_, client):
            first = began = 0.0
            count = 0
            async with asyncio.timeout(WAIT_S):
                while count < rows:
                    count, now = (await taken_in(client))[0], time.perf_counter()
                    if count and not began:
                        first, began = count, now
                    await asyncio.sleep(POLL_S)
            took = time.perf_counter() - began
            problem = await wrong(client, rows)
    rate = (rows - first) / took
    return [
        figure(
            "kafka_in_per_s", title, None if problem else rate, "records/s", samples=rows,
            peers={"a consumer that keeps nothing": consumed}, goal=Goal("at least", 100_000),
            note=problem or "one partition, durable and confirmed; counted from the first rows that were seen on",
        )
    ]  # fmt: skip


def _kafka_load(modules: Path, address: str, rows: int) -> float:
    """Write the topic, and read it once in a process that keeps nothing; gives records per second of that."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.kafka_load", address, "rows", str(rows)],
        cwd=ROOT, stdout=subprocess.PIPE, check=True, preexec_fn=die_with_parent,
        env={**os.environ, "PYTHONPATH": module_path(modules)},
    )  # fmt: skip
    return float(done.stdout)
