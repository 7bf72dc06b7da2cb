"""An upgrade that fails in the middle of its cut: how long until the former code answers again.

The only upgrader is killed with its supervisor, by turns when the primary is told to hand over and as soon as it has
taken the lock. Where it came to its commit before it died, nothing failed, and the round does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Final

from bench.figures import Figure, Goal, figure, median, percentile
from bench.groups.takeover import Callers
from bench.groups.upgrades.live import COMMAND_S, SERVICES, SETTLE_S, Upgraded
from bench.setting import Setting
from deathless.shell.process.forked import die_with_parent

TRIES_OF_ONE: Final = 2  # rounds for each that is to count
LOOK_S: Final = 0.001
SHOWN_LINES: Final = 5


class Tool:
    """`deathless upgrade` with one upgrader, on its way."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._said: list[str] = []

    @property
    def said(self) -> str:
        """Its last lines, for why it ended."""
        return " / ".join(self._said[-SHOWN_LINES:])

    @classmethod
    async def begun(cls, service: Upgraded) -> Tool:
        """Start it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "deathless.cli.main", "upgrade",
            "--to", f"{SERVICES / 'accounts_2.py'}:bench", "--upgraders", "1",
            cwd=service.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        return cls(process)

    async def until(self, phase: str) -> bool:
        """Read its lines up to a phase; False: it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(COMMAND_S):
            while line := await self.process.stdout.readline():
                self._said.append(line.decode(errors="replace").strip())
                if line.startswith(phase.encode()):
                    return True
        return False

    async def end(self) -> None:
        """Wait for its end."""
        async with asyncio.timeout(COMMAND_S):
            await self.process.communicate()

    async def kill(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def _ordered(service: Upgraded) -> None:
    """As the primary is told to hand over: it is told before the line is written."""


async def _taken(service: Upgraded) -> None:
    """Once the lock is taken anew."""
    before = await service.epoch()
    async with asyncio.timeout(COMMAND_S):
        while await service.epoch() == before:  # noqa: ASYNC110  a file says it
            await asyncio.sleep(LOOK_S)


async def _fail(
    service: Upgraded, callers: Callers, moment: Callable[[Upgraded], Coroutine[object, object, None]]
) -> float:
    """Have an upgrade fail; gives the longest wait of a client, milliseconds."""
    tool = await Tool.begun(service)
    try:
        if not await tool.until("checking"):
            raise RuntimeError(f"the upgrade ended before its cut: {tool.said}")
        victims = await service.upgraders()
        waiting = asyncio.create_task(moment(service))
        if not await tool.until("cutting"):
            waiting.cancel()
            raise RuntimeError(f"the upgrade ended before its cut: {tool.said}")
        await waiting
        since = time.perf_counter()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        gap = await callers.gap_ms(since)
        await tool.end()
        return gap
    finally:
        await tool.kill()


async def _rounds(setting: Setting, keys: int, suspended: int, gaps: list[float], wanted: int, first: int) -> str:
    """Fail upgrades of one service until one is made, or enough have failed; gives what went wrong with calls."""
    service = Upgraded(setting.new_folder())
    await service.run("up", "--detach", "service.yaml")
    try:
        await service.fill(keys, suspended)
        async with Callers(service) as callers:
            for number in range(wanted):
                await asyncio.sleep(SETTLE_S)
                gap = await _fail(service, callers, (_ordered, _taken)[(first + number) % 2])
                if await service.generation() > 1:
                    break
                gaps.append(gap)
            return await callers.finish()
    finally:
        await service.run("down")


async def failed_cut(setting: Setting) -> list[Figure]:
    """Upgrades whose upgrader dies, until enough have failed."""
    wanted, keys, suspended = setting.size(20, 1), setting.size(100_000, 200), setting.size(1000, 10)
    gaps: list[float] = []
    problem, services = "", 0
    while len(gaps) < wanted and services < TRIES_OF_ONE * wanted:
        found = await _rounds(setting, keys, suspended, gaps, wanted - len(gaps), len(gaps) + services)
        problem, services = problem or found, services + 1
    made = f"; {services - 1} times the upgrader had come to its commit before it died" if services > 1 else ""
    note = (
        problem or f"p50 {median(gaps):,.0f} ms, worst {max(gaps):,.0f} ms; no call failed, none lost or doubled{made}"
    )
    return [
        figure(
            "failed_cut_p99_ms", f"upgrade of {keys:,} keys, {suspended:,} handlers waiting, its upgrader killed in "
            "the cut: longest wait of a client until the former code answers, p99",
            None if problem or not gaps else percentile(gaps, 99), "ms",
            samples=len(gaps), goal=Goal("at most", 1500), note=note,
        )
    ]  # fmt: skip
