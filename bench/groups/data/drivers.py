"""Spark pipelines: a row on its way, many rows, a driver that dies, and what a warm standby needs.

Services and pipeline are started by `deathless up`, with what a pipeline has if its manifest says nothing else: a
trigger of 100 ms, and 1 GiB for Java. Times end when the call of a row runs at the receiving service.

Guarantees: every row is counted at the end: unless each has come exactly once, a group's figures are left out with that
said. Needs PySpark and Java (lab/spark.py); without them each group is left out with one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from lab.spark import Missing, ensure

from bench.figures import Figure, Goal, figure, median, percentile
from bench.groups.data.between import POLL_S, SERVICES, WAIT_S, Between
from bench.groups.data.topics import GIB, SCHEMA, delivery, written
from bench.services.spark_alone import Files, Scans
from bench.setting import Setting, module_path
from bench.usage import family, processor_s, resident_bytes
from deathless.pipelines.client import PipelineClient
from deathless.pipelines.ledger import Batch
from deathless.pipelines.rows import blocks_of
from deathless.shell.operate.agents import DriverView
from deathless.shell.process.forked import die_with_parent
from deathless.topics.source import topic_directory

T = TypeVar("T", Files, Scans)
TRIGGER_S: Final = 0.1
FEED_S: Final = 0.02  # between two rows while drivers are killed
PROBE: Final = "probe"  # a query of ours, which no driver runs
KEYS: Final = 250  # of a backlog: as many rows are under way at once
NEW_ROWS: Final = 20  # of a driver, until its first row is behind us for certain
ROUNDS_S: Final = 130.0  # for all kills and handovers of a run: those that are left then are not made
CPU_S: Final = 10.0
SCANS: Final = 3
BLOCK_ROWS: Final = 4096
REMARK: Final = "the aircraft came late from its flight before, " * 20
COLD: Final = "a cold start of a driver"
PLAIN: Final = "Spark alone, from a file to the row in its memory"


def judged(figures: Iterable[Figure], problem: str) -> list[Figure]:
    """Give the figures, or where there is a problem each without its number and with that as its note."""
    if not problem:
        return list(figures)
    return [msgspec.structs.replace(each, value=None, goal_met=None, note=problem) for each in figures]


def without_rows_ms(fault_us: int, called_us: Iterable[int]) -> float:
    """Milliseconds from a fault to the first row of the next driver.

    Rows that were decided before the fault may still be on their way. So the first row of the next driver is the one
    that ends the longest pause.

    Args:
        fault_us: when it was.
        called_us: when rows were applied, before and after it.
    """
    after = [fault_us, *sorted(each for each in called_us if each > fault_us)]
    _, at = max((later - earlier, later) for earlier, later in pairwise(after))
    return (at - fault_us) / 1000


def began_us(pid: int) -> int:
    """When a process began, in microseconds since 1970; to a tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return int((time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot_s) * 1_000_000)


def _now_us() -> int:
    return time.time_ns() // 1000


async def _spark(setting: Setting, name: str, title: str) -> tuple[str, list[Figure]]:
    """Give the module path with PySpark; else why it is left out, as a figure."""
    try:
        spark = await asyncio.to_thread(ensure)
    except Missing as missing:
        setting.say(str(missing))
        return "", [figure(name, title, None, "", note=str(missing))]
    return module_path(spark), []


@contextlib.asynccontextmanager
async def _between(setting: Setting, path: str, drivers: int) -> AsyncIterator[Between]:
    """Start both services, publish a row, which a topic needs to have columns, and start the pipeline."""
    to = Between(setting.new_folder(), path, setting.size(3, 1))
    try:
        await to.up_services()
        async with to.source, to.receiver:
            await to.tick()
            await to.up_drivers(drivers)
            await to.wait_times(0, 1)
            yield to
    finally:
        for name in ("between", "receiver", "source"):
            await to.down(name)


async def _alone(setting: Setting, path: str, kind: type[T], *arguments: str) -> T:
    """Have Spark do something without a pipeline. Raises: RuntimeError with what it said; TimeoutError."""
    said = setting.new_folder() / "said"
    with said.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SERVICES / "spark_alone.py"), *arguments,
            env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE, stderr=errors, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        async with asyncio.timeout(WAIT_S):
            output, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise RuntimeError(f"Spark alone has ended: {said.read_text(errors='replace')[-500:]}")
    return msgspec.json.decode(output.splitlines()[-1], type=kind)


# ---- a row on its way ------------------------------------------------------------------------------------------


async def pipeline_batch(setting: Setting) -> list[Figure]:
    """One row after the other, each at any moment between two batches; a batch's calls; and Spark alone."""
    name, title = "pipeline_row_p50_ms", "a row from the reply of its service through Spark to another's handler, p50"
    path, left_out = await _spark(setting, name, title)
    if left_out:
        return left_out
    count = setting.size(100, 5)
    async with _between(setting, path, drivers=1) as to:
        took = await _one_by_one(to, count)
        calls = await asyncio.to_thread(_two_calls, to.directory("between"), count)
        async with asyncio.timeout(WAIT_S):
            while (probes := await to.receiver.query("counted", PROBE)) < count:  # noqa: ASYNC110  others do it
                await asyncio.sleep(POLL_S)
        problem = await to.problem() or ("" if probes == count else f"{probes} calls of {count} batches of one row")
    folder = setting.new_folder()
    plain = await _alone(setting, path, Files, "files", str(folder), str(count))
    batch_ms = median(plain.batch_ms)
    figures = [
        figure(
            name, title, median(took), "ms",
            samples=count, floor=batch_ms, peers={PLAIN: median(plain.row_ms)}, goal=Goal("at most", 80),
            note=f"the trigger is 100 ms, so a row waits 50 ms for a batch on average; mean {sum(took) / count:.0f} "
            "ms; the floor is a batch of a plain query from files to memory with its checkpoint in files, as Spark "
            "tells",
        ),
        figure(
            "pipeline_row_p99_ms", "the same, p99", percentile(took, 99), "ms",
            samples=count, peers={PLAIN: percentile(plain.row_ms, 99)},
        ),
        figure(
            "pipeline_batch_calls_ms", "the two confirmed calls of a batch with one row, p50", median(calls), "ms",
            samples=count, note=f"one stages the row, one decides the batch; p99 {percentile(calls, 99):.1f} ms",
        ),
    ]  # fmt: skip
    return judged(figures, problem)


async def _one_by_one(to: Between, count: int) -> list[float]:
    """Give each row's milliseconds from the reply of the call that publishes it to the turn of its own call."""
    phase = random.Random(1)
    await to.tick()
    await to.wait_times(0, to.sent)
    first, replied = to.sent, dict[int, int]()
    for _ in range(count):
        await asyncio.sleep(phase.random() * TRIGGER_S)
        await to.tick()
        replied[to.sent] = _now_us()
        await to.wait_times(to.sent - 1, 1)
    return [(called - replied[number]) / 1000 for number, _, called in await to.times(first)]


def _two_calls(directory: Path, count: int) -> list[float]:
    """Give the milliseconds in which batches of one row are staged and decided, as a driver does it."""
    [(rows, data)] = blocks_of("receiver", "count", "stop", [(PROBE, {"number": 0})])
    took, start = [], ""
    with PipelineClient("between", [f"dir:{directory}"]) as client:
        number = client.drivers().number
        attempt = client.open(PROBE, number).attempt
        for batch in range(count):
            attempt, end = attempt + 1, f"{batch + 1}"
            began = time.perf_counter()
            client.stage(PROBE, number, attempt, "0", rows, data)
            client.commit(PROBE, Batch(number, attempt, start, end, [("0", rows)], batch, PROBE, end))
            took.append((time.perf_counter() - began) * 1000)
            start = end
    return took


# ---- many rows -------------------------------------------------------------------------------------------------


async def pipeline_rate(setting: Setting) -> list[Figure]:
    """A backlog that a warm driver finds, and scans of a topic."""
    path, left_out = await _spark(setting, "pipeline_backlog", "rows of a backlog through Spark")
    if left_out:
        return left_out
    return [await _backlog(setting, path), *await _scans(setting, path)]


async def _backlog(setting: Setting, path: str) -> Figure:
    """Publish rows while nobody drives, and let a warm driver begin."""
    count = setting.size(40_000, 500)
    keys = [f"k{number % KEYS}" for number in range(count)]
    async with _between(setting, path, drivers=1) as to:
        driver = await to.wait_drivers(0)
        await to.ask(lambda client: client.suspend(suspended=True))
        await to.wait_warm(driver.driver_pid)
        await to.source.call_many("tick", keys, [{"number": number} for number in range(count)], timeout=WAIT_S)
        first_s, took_s = await asyncio.to_thread(_applied_s, to.directory("between"), count)
        calls = await asyncio.gather(*(to.receiver.query("counted", key) for key in set(keys)))
        problem = await to.problem() or ("" if sum(calls) == count else f"{sum(calls)} calls of {count} rows")
    one = figure(
        "pipeline_backlog", "rows of a backlog through Spark to another service's handlers", count / took_s, "/s",
        samples=count,
        note=f"{KEYS} keys; all in {took_s:.1f} s from when the driver is allowed to begin, of which {first_s:.1f} s "
        "were over when the first row was seen; each came once",
    )  # fmt: skip
    return judged([one], problem)[0]


def _applied_s(directory: Path, count: int) -> tuple[float, float]:
    """Let the driver begin; gives the seconds until a row of the backlog is applied, and until all are."""
    with PipelineClient("between", [f"dir:{directory}"]) as client:
        began, first = time.perf_counter(), 0.0
        client.suspend(suspended=False)
        while (applied := client.show("many").applied) < count:
            now = time.perf_counter()
            first = first or (now if applied else 0.0)
            if now - began > WAIT_S:
                raise TimeoutError(f"{applied} of {count} rows within {WAIT_S:g} s")
            time.sleep(POLL_S)
        ended = time.perf_counter()
    return (first or ended) - began, ended - began


async def _scans(setting: Setting, path: str) -> list[Figure]:
    """Have Spark read all columns of a topic, and count its rows."""
    count = setting.size(250, 3) * BLOCK_ROWS
    folder = setting.new_folder()
    topic = Path(topic_directory(str(folder), "flights"))
    await asyncio.to_thread(topic.mkdir, parents=True)
    await written(topic, (delivery(at, f"{SCHEMA},remark:utf8", [REMARK]) for at in range(1, count + 1)), BLOCK_ROWS)
    size = await asyncio.to_thread(_size_of, topic)
    found = await _alone(setting, path, Scans, "scan", str(folder), "flights", str(SCANS))
    took_s = median(found.took_s)
    problem = "" if found.rows == count else f"{found.rows} rows were read of {count}"
    figures = [
        figure("pipeline_scan_rows", "rows of a topic that Spark reads", count / took_s, "/s", samples=SCANS),
        figure(
            "pipeline_scan_bytes", "the same in bytes of its files", size / took_s / GIB, "GiB/s", samples=SCANS,
            goal=Goal("at least", 0.6),
            note=f"{count:,} rows of {size / count:.0f} bytes, of two tasks at most; {took_s:.2f} s each",
        ),
    ]  # fmt: skip
    return judged(figures, problem)


def _size_of(topic: Path) -> int:
    """Bytes of a topic's rows."""
    return sum(file.stat().st_size for file in topic.glob("*/*.rows"))


# ---- a driver that dies ----------------------------------------------------------------------------------------


async def driver_takeover(setting: Setting) -> list[Figure]:
    """Kill the driver, and hand over on purpose, again and again while rows flow; and a driver that starts cold."""
    name, title = "driver_takeover_p50_ms", "kill -9 of a pipeline's driver to the first row of the next one, p50"
    path, left_out = await _spark(setting, name, title)
    if left_out:
        return left_out
    async with _between(setting, path, drivers=1) as to:
        first = await to.wait_drivers(0)
        cold_ms = (min(called for *_, called in await to.times()) - began_us(first.driver_pid)) / 1000
        await to.down("between")
        await to.up_drivers(2)
        ends_at = time.monotonic() + ROUNDS_S
        handovers = await _rounds(to, _hand_over, setting.size(3, 1), ends_at)
        kills = await _rounds(to, _kill, setting.size(20, 2), ends_at)
        problem = await to.problem()
        rows = to.sent
    note = f"{rows} rows, {FEED_S * 1000:g} ms between two, none lost, none doubled"
    figures = [
        figure(
            name, title, median(kills), "ms",
            samples=len(kills), peers={COLD: cold_ms}, goal=Goal("at most", 2000), note=note,
        ),
        figure(
            "driver_takeover_worst_ms", f"the same, worst of {len(kills)}", max(kills), "ms",
            samples=len(kills), peers={COLD: cold_ms}, goal=Goal("at most", 4000),
        ),
        figure(
            "driver_switchover_p50_ms", "planned switchover of a driver to the first row of the next one, p50",
            median(handovers), "ms",
            samples=len(handovers), goal=Goal("at most", 2500), note=f"worst {max(handovers):.0f} ms",
        ),
    ]  # fmt: skip
    return judged(figures, problem)


async def _kill(_to: Between, driver: DriverView) -> None:
    os.kill(driver.driver_pid, signal.SIGKILL)


async def _hand_over(to: Between, _driver: DriverView) -> None:
    await to.ask(lambda client: client.hand_over())


async def _rounds(
    to: Between, fault: Callable[[Between, DriverView], Awaitable[None]], most: int, ends_at: float
) -> list[float]:
    """Give the milliseconds without a row of each fault while rows flow, each with a warm standby; one at least."""
    found: list[float] = []
    while len(found) < most and (not found or time.monotonic() < ends_at):
        driver = await to.wait_drivers(1)
        enough = asyncio.Event()
        feeding = asyncio.create_task(_feed(to, enough))
        try:
            await to.wait_times(to.sent, NEW_ROWS)
            before, fault_us = to.sent, _now_us()
            await fault(to, driver)
            async with asyncio.timeout(WAIT_S):
                while (await to.wait_drivers(0)).number == driver.number:  # noqa: ASYNC110  other processes do it
                    await asyncio.sleep(POLL_S)
            await to.wait_times(to.sent, NEW_ROWS)
        finally:
            enough.set()
            await feeding
        found.append(without_rows_ms(fault_us, (called for *_, called in await to.times(max(0, before - NEW_ROWS)))))
    return found


async def _feed(to: Between, enough: asyncio.Event) -> None:
    """Publish rows; none is left half way, or it would count as lost."""
    while not enough.is_set():
        await to.tick()
        await asyncio.sleep(FEED_S)


# ---- what a warm standby needs ---------------------------------------------------------------------------------


async def driver_memory(setting: Setting) -> list[Figure]:
    """Memory and processor time of a warm standby while nothing happens, and how long it took to be warm."""
    name, title = "driver_standby_gb", "memory of a warm standby, Java and Python"
    path, left_out = await _spark(setting, name, title)
    if left_out:
        return left_out
    rounds = setting.size(2, 1)
    async with _between(setting, path, drivers=2) as to:
        standby, warm_s = await to.wait_warm(), list[float]()
        for _ in range(rounds):
            os.kill(standby.driver_pid, signal.SIGKILL)
            standby = await to.wait_warm(standby.driver_pid)
            warm_s.append((_now_us() - began_us(standby.driver_pid)) / 1_000_000)
        processes = family(standby.driver_pid)
        before, agent_before = _processor_s(processes), processor_s(standby.agent_pid)
        await asyncio.sleep(CPU_S)
        used, agent_used = _processor_s(processes) - before, processor_s(standby.agent_pid) - agent_before
        held = _resident_bytes(processes)
        problem = await to.problem()
    figures = [
        figure(
            name, title, sum(held) / 1e9, "GB",
            samples=1, goal=Goal("at most", 1.3),
            note=f"{len(held)} processes, the largest {max(held) / 1e9:.2f} GB; shared pages count by their share",
        ),
        figure(
            "driver_standby_cpu", "processor time of a warm standby", used / CPU_S * 100, "% of a core",
            samples=1, goal=Goal("at most", 5),
            note=f"over {CPU_S:g} s; its agent beside it used {agent_used / CPU_S * 100:.1f} %",
        ),
        figure(
            "driver_warm_s", "a standby from its start until it is warm", median(warm_s), "s",
            samples=rounds, goal=Goal("at most", 40), note=f"beside a driver that waits; longest {max(warm_s):.1f} s",
        ),
    ]  # fmt: skip
    return judged(figures, problem)


def _processor_s(pids: Iterable[int]) -> float:
    """Seconds of processor time of those that still run."""
    return sum(processor_s(pid) for pid in pids if Path(f"/proc/{pid}").exists())


def _resident_bytes(pids: Iterable[int]) -> list[int]:
    """Memory of each of those that still run."""
    return [resident_bytes(pid) for pid in pids if Path(f"/proc/{pid}").exists()]
