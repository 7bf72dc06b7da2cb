"""Pipelines: a row from one service through Spark to another, many of them, and a driver that is killed.

Services and pipeline are started as a user starts them, by `deathless up`. Times are those that the services log: from
the turn that publishes a row to the turn that its call runs in. Beside them is Spark alone, which reads the same rows
with its own checkpoint in files, and a driver that has no standby.

Guarantees: every row is counted at the end: unless each has come exactly once, the figures are left out with that said.
Needs PySpark and Java (lab/spark.py); without them the group is left out with one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from lab.spark import Missing, ensure

from bench.figures import Figure, Goal, figure, median
from bench.setting import ROOT, Setting
from deathless.shell.client.shard_client import Client
from deathless.shell.operate.agents import DriverView, look_at_drivers
from deathless.shell.process.forked import die_with_parent

SERVICES: Final = ROOT / "bench" / "services"
TIMED: Final = "timed"
WAIT_S: Final = 240.0  # for anything
POLL_S: Final = 0.05
FEED_S: Final = 0.02  # between two rows while drivers are killed
KEYS: Final = 1_000
COLD: Final = "the same without a standby"
ALONE: Final = "Spark alone, its checkpoint in files"

SERVICE: Final = """apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: {name}}}
spec: {{module: "{module}", replicas: {replicas}{more}}}
"""
PIPELINE: Final = """apiVersion: deathless.dev/v1alpha1
kind: SparkPipeline
metadata: {{name: between}}
spec:
  module: "{module}"
  replicas: {replicas}
  drivers: {{replicas: {drivers}, memory: 512m}}
  services: [{{name: source}}, {{name: receiver}}]
  conf: {{spark.sql.shuffle.partitions: "4"}}
"""


class Line:
    """Two services and the pipeline between them, each with a folder below one."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": path}
        self.source = Client("source", [f"dir:{self.directory('source')}"])
        self.receiver = Client("receiver", [f"dir:{self.directory('receiver')}"])
        self.sent = 0  # timed rows

    def directory(self, name: str) -> Path:
        """Of a service."""
        return self.folder / ".deathless" / name

    async def run(self, *arguments: str) -> None:
        """Run a command of ours. Raises: RuntimeError with what it said."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "deathless.cli.main", *arguments,
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"deathless {' '.join(arguments)}: {output.decode(errors='replace')[-500:]}")

    def drivers(self) -> list[DriverView]:
        """How the drivers are."""
        return look_at_drivers(self.directory("between"))

    async def wait_drivers(self, warm: int) -> DriverView:
        """Wait for one that drives and so many that are warm; gives the first. Raises: TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            while True:
                views = self.drivers()
                roles = {each.role: each for each in views}
                if "driver" in roles and sum(each.role == "warm" for each in views) >= warm:
                    return roles["driver"]
                await asyncio.sleep(POLL_S)

    async def tick(self) -> None:
        """Publish one row that is timed."""
        self.sent += 1
        await self.source.call("tick", TIMED, number=self.sent, timeout=WAIT_S)

    async def times(self, above: int = 0) -> list[tuple[int, int, int]]:
        """Give (number, published, called) of timed rows above a number."""
        found: list[tuple[int, int, int]] = []
        while page := await self.receiver.query("times", TIMED, above=found[-1][0] if found else above):
            found += msgspec.convert(page, list[tuple[int, int, int]])
        return found

    async def wait_times(self, above: int, count: int) -> list[tuple[int, int, int]]:
        """Wait until so many timed rows above a number have come. Raises: TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            while len(found := await self.times(above)) < count:  # noqa: ASYNC110  other processes do it
                await asyncio.sleep(POLL_S)
        return found


@contextlib.asynccontextmanager
async def line(setting: Setting, path: str, drivers: int) -> AsyncIterator[Line]:
    """Start services and pipeline; all end with the block."""
    folder = setting.new_folder()
    replicas = setting.size(3, 1)
    ticks = SERVICES / "ticks.py"
    more = ", topics: [{name: ticks, keepBytes: 1Gi}]"
    files = {
        "source": SERVICE.format(name="source", module=f"{ticks}:source", replicas=replicas, more=more),
        "receiver": SERVICE.format(name="receiver", module=f"{ticks}:receiver", replicas=replicas, more=""),
        "between": PIPELINE.format(module=f"{SERVICES / 'tick_queries.py'}:build", replicas=replicas, drivers=drivers),
    }
    one = Line(folder, path)
    try:
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            await one.run("up", f"{name}.yaml", "--detach")
        async with one.source, one.receiver:
            yield one
    finally:
        for name in reversed(files):
            with contextlib.suppress(RuntimeError):
                await one.run("down", "-f", f"{name}.yaml")


async def pipelines(setting: Setting) -> list[Figure]:
    """Rows one by one, many rows, drivers that are killed."""
    try:
        spark = await asyncio.to_thread(ensure)
    except Missing as missing:
        setting.say(str(missing))
        return [figure("pipeline_row_p50_ms", "a row through a pipeline, p50", None, "ms", note=str(missing))]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""), str(spark))))
    async with line(setting, path, drivers=2) as warm:
        await warm.tick()  # a topic without any row has no schema yet, and no driver is warm
        await warm.wait_drivers(1)
        figures = [*await _rows(setting, warm), await _many(setting, warm)]
        gaps = await _kills(setting, warm, standbys=1)
        problem = await _problem(warm)
    async with line(setting, path, drivers=1) as cold:
        await cold.tick()
        await cold.wait_drivers(0)
        without = await _kills(setting, cold, standbys=0)
        problem = problem or await _problem(cold)
    rounds = len(gaps)
    note = problem or f"every row came once; {rounds} kills, {FEED_S * 1000:g} ms between two rows"
    figures += [
        figure(
            "pipeline_driver_p50_ms", "driver killed with -9: time without a row's call, p50", median(gaps), "ms",
            samples=rounds, peers={COLD: median(without)}, goal=Goal("at most", 2000), note=note,
        ),
        figure(
            "pipeline_driver_worst_ms", f"the same, worst of {rounds}", max(gaps), "ms",
            samples=rounds, peers={COLD: max(without)}, goal=Goal("at most", 4000),
        ),
    ]  # fmt: skip
    return [msgspec.structs.replace(each, value=None) for each in figures] if problem else figures


async def _rows(setting: Setting, to: Line) -> list[Figure]:
    """One row after the other, each published once the one before has come."""
    count = setting.size(200, 5)
    await to.tick()
    await to.wait_times(0, 1)
    first = to.sent
    for _ in range(count):
        await to.tick()
        await to.wait_times(to.sent - 1, 1)
    took = [(called - published) / 1000 for _, published, called in await to.times(first)]
    alone = await _alone(setting, to, count)
    peers: dict[str, float | None] = {ALONE: median(alone)}
    return [
        figure(
            "pipeline_row_p50_ms", "a row from one service through Spark to another's handler, p50", median(took), "ms",
            samples=count, peers=peers, goal=Goal("at most", 80),
            note="trigger 100 ms; Spark alone ends where the row is in the driver's memory",
        ),
        figure("pipeline_row_p90_ms", "the same, p90", statistics.quantiles(took, n=10)[-1], "ms", samples=count),
    ]  # fmt: skip


async def _alone(setting: Setting, to: Line, count: int) -> list[float]:
    """Give the milliseconds of rows that Spark reads with its own checkpoint."""
    folder = setting.new_folder()
    checkpoint, said = folder / "checkpoint", folder / "said"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVICES / "tick_queries.py"), str(to.directory("source")), str(checkpoint), str(count),
        env=to.environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE, stderr=said.open("wb"), preexec_fn=die_with_parent,
    )  # fmt: skip
    assert process.stdout is not None
    took: list[float] = []
    try:
        async with asyncio.timeout(WAIT_S + count):
            while (line := await process.stdout.readline()).strip() != b"ready":
                if not line:
                    raise RuntimeError(f"Spark alone has ended: {said.read_text(errors='replace')[-500:]}")
            while len(took) < count:
                await to.tick()
                with contextlib.suppress(TimeoutError):  # the first rows come before it looks
                    took.append(float(await asyncio.wait_for(process.stdout.readline(), 2.0)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return took


async def _many(setting: Setting, to: Line) -> Figure:
    """As many rows as there are at once."""
    count = setting.size(50_000, 500)
    keys = [f"k{number % KEYS}" for number in range(count)]
    began = time.perf_counter()
    await to.source.call_many("tick", keys, [{"number": number} for number in range(count)], timeout=WAIT_S)
    published = time.perf_counter()
    async with asyncio.timeout(WAIT_S):
        while sum(await asyncio.gather(*(to.receiver.query("counted", key) for key in set(keys)))) < count:  # noqa: ASYNC110  other processes do it
            await asyncio.sleep(POLL_S)
    took = time.perf_counter() - began
    return figure(
        "pipeline_rows", "rows from one service through Spark to another's handlers, many at once", count / took, "/s",
        samples=count, note=f"of {took:.1f} s, {published - began:.1f} s until all were published",
    )  # fmt: skip


async def _kills(setting: Setting, to: Line, *, standbys: int) -> list[float]:
    """Kill the driver again and again while rows are published; gives the milliseconds without a call of each time."""
    gaps = []
    stop = asyncio.Event()

    async def feed() -> None:
        while not stop.is_set():
            await to.tick()
            await asyncio.sleep(FEED_S)

    feeding = asyncio.create_task(feed())
    try:
        for _ in range(setting.size(10, 1) if standbys else setting.size(3, 1)):
            driver = await to.wait_drivers(standbys)
            await to.wait_times(to.sent, 20)
            before = to.sent
            os.kill(driver.driver_pid, signal.SIGKILL)
            async with asyncio.timeout(WAIT_S):
                while (await to.wait_drivers(0)).number == driver.number:  # noqa: ASYNC110  other processes do it
                    await asyncio.sleep(POLL_S)
            await to.wait_times(to.sent, 20)
            # From a row shortly before the kill on: the pauses between what was measured before are none of a driver.
            called = sorted(each[2] for each in await to.times(before - 10))
            gaps.append(max((later - earlier) / 1000 for earlier, later in pairwise(called)))
    finally:
        stop.set()
        await feeding
    return gaps


async def _problem(to: Line) -> str:
    """Say what is wrong with the rows that came; empty: each came once."""
    async with asyncio.timeout(WAIT_S):
        while len(found := await to.times()) < to.sent:  # noqa: ASYNC110  other processes do it
            await asyncio.sleep(POLL_S)
    wrong = [number for number, *_ in found] != list(range(1, to.sent + 1))
    wrong = wrong or await to.receiver.query("counted", TIMED) != to.sent
    return "rows were lost or doubled" if wrong else ""
