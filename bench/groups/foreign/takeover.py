"""Seconds without service when the primary dies: of a service whose code is a program, beside a Python service.

Both have three replicas and the same clients, and lose their primary's worker in turns.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from bench.cluster import SERVICE, Cluster
from bench.figures import Figure, Goal, figure, median, rounded
from bench.groups.foreign.services import READ, ForeignCluster, language, loaded
from bench.groups.takeover import BACK_S, KILLS_OF_A_SET, SETTLE_S, Callers
from bench.setting import Setting
from deathless.shell.client.shard_client import Client

NAME = "program"
ADDED = b"x" * 64


class ProgramCallers(Callers):
    """Clients that have the program count, and wait for its answer."""

    def __init__(self, cluster: ForeignCluster) -> None:
        super().__init__(cluster, NAME)

    async def add(self, client: Client, number: int) -> None:
        """See Callers."""
        await client.call("call", "", method=2, args=ADDED, timeout=BACK_S)

    async def difference(self) -> int:
        """See Callers."""
        told = await self.clients[0].call("call", "", method=READ, args=b"", timeout=BACK_S, result=bytes)
        return abs(int.from_bytes(told[:8], "little") - self.count)


async def _gap_ms(cluster: Cluster, callers: Callers) -> float:
    await cluster.wait_ready()
    await asyncio.sleep(SETTLE_S)
    victim = (await cluster.primary()).worker_pid
    since = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    return await callers.gap_ms(since)


async def foreign_takeover(setting: Setting) -> list[Figure]:
    """End the primary's worker by kill -9, in turns; in sets of a few rounds, since one that dies often waits."""
    rounds = setting.size(30, 2)
    gaps: list[float] = []
    beside: list[float] = []
    problem, calls = "", 0
    for start in range(0, rounds, KILLS_OF_A_SET):
        async with (
            loaded(setting, NAME, replicas=3) as one,
            setting.cluster() as other,
            ProgramCallers(one.cluster) as callers,
            Callers(other, SERVICE) as others,
        ):
            for _ in range(min(KILLS_OF_A_SET, rounds - start)):
                await one.cluster.begun()
                gaps.append(await _gap_ms(one.cluster, callers))
                beside.append(await _gap_ms(other, others))
            problem = problem or await callers.finish() or await others.finish()
            calls += callers.count
    goal = Goal("at most", rounded(median(beside)) or 0.0)
    return [
        figure(
            "foreign_takeover_p50_ms", "takeover of a program's service after kill -9 of the primary, p50",
            None if problem else median(gaps), "ms", samples=rounds, goal=goal,
            peers={"a Python service in turns": median(beside)},
            note=problem or f"{language()}; worst {max(gaps):.0f} ms against {max(beside):.0f} ms; {calls} calls, none "
            "lost, none doubled",
        )
    ]  # fmt: skip
