"""Two services and a pipeline of Spark between them, started as a user starts them, by `deathless up`.

A row is timed by the receiving service, which logs when it was published and when its call ran.

Guarantees: `problem` says so unless every timed row has come once. Does not: measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.setting import ROOT
from deathless.pipelines.client import PipelineClient
from deathless.shell.client.shard_client import Client
from deathless.shell.operate.agents import DriverView, look_at_drivers

SERVICES: Final = ROOT / "bench" / "services"
TIMED: Final = "timed"  # the key of rows that are timed
WAIT_S: Final = 240.0  # for anything
POLL_S: Final = 0.05
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
  drivers: {{replicas: {drivers}}}
  services: [{{name: source}}, {{name: receiver}}]
"""


class Between:
    """Two services and the pipeline between them, each with a folder below one, and started by itself.

    Args:
        folder: empty, on the storage to be measured.
        path: module path with PySpark.
        replicas: of each service.
    """

    def __init__(self, folder: Path, path: str, replicas: int) -> None:
        self.folder = folder
        self._replicas = replicas
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

    async def up(self, name: str, text: str) -> None:
        """Start what a manifest says."""
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        await self.run("up", f"{name}.yaml", "--detach")

    async def up_services(self) -> None:
        """Start both services."""
        ticks = SERVICES / "ticks.py"
        more = ", topics: [{name: ticks, keepBytes: 1Gi}]"
        for name, also in (("source", more), ("receiver", "")):
            await self.up(name, SERVICE.format(name=name, module=f"{ticks}:{name}", replicas=self._replicas, more=also))

    async def up_drivers(self, drivers: int) -> None:
        """Start the pipeline with so many drivers."""
        module = f"{SERVICES / 'tick_queries.py'}:build"
        await self.up("between", PIPELINE.format(module=module, replicas=self._replicas, drivers=drivers))

    async def down(self, name: str) -> None:
        """Stop one of them, if it runs."""
        with contextlib.suppress(RuntimeError):
            await self.run("down", "-f", f"{name}.yaml")

    async def ask(self, what: Callable[[PipelineClient], object]) -> None:
        """Have the pipeline's service do something."""

        def asked() -> None:
            with PipelineClient("between", [f"dir:{self.directory('between')}"]) as client:
                what(client)

        await asyncio.to_thread(asked)

    async def wait_warm(self, *others: int) -> DriverView:
        """Wait until there is a warm driver whose process is none of these; gives it. Raises: TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for each in self.drivers():
                    if each.role == "warm" and each.driver_pid not in others:
                        return each
                await asyncio.sleep(POLL_S)

    async def problem(self) -> str:
        """Say what is wrong with the timed rows that came; empty: each came once."""
        async with asyncio.timeout(WAIT_S):
            while len(found := await self.times()) < self.sent:  # noqa: ASYNC110  other processes do it
                await asyncio.sleep(POLL_S)
        numbers = [number for number, *_ in found]
        return wrong_rows(numbers, self.sent, await self.receiver.query("counted", TIMED))


def wrong_rows(numbers: Sequence[int], sent: int, calls: int) -> str:
    """Say what is wrong with rows 1 to `sent`, of which these came, in so many calls; empty: each came once."""
    lost = sent - len(set(numbers) & set(range(1, sent + 1)))
    if lost or calls != sent:
        return f"{lost} of {sent} rows were lost, and there were {calls} calls"
    return ""
