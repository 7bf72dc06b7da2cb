"""Seconds without service as clients see them: last good reply to first good reply, of the client that waited longest.

A few clients call without a pause; a third party kills, freezes or switches the primary, again and again, each time
with all replicas back and in step. At the end every acknowledged call must have been applied once: else the figure
is worth nothing, and it is left out with that said.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import pairwise
from types import TracebackType
from typing import Final, Protocol, Self

from bench.cluster import SERVICE, Cluster
from bench.figures import Figure, Goal, figure, median
from bench.load import NOTE
from bench.setting import Setting
from deathless.base.errors import DeathlessError
from deathless.shell.client.shard_client import Client
from deathless.shell.net.admin_call import ask

CALLERS: Final = 4
BACK_S: Final = 20.0  # a takeover that takes longer is an error
SETTLE_S: Final = 0.3  # calls in peace before each fault
KILLS_OF_A_SET: Final = 10
SILENT_STEALS: Final = 2  # of one set of replicas
REIGN_S: Final = 1.0  # the second such steal leaves the holder at least this
CONTINUE_S: Final = 0.5  # a frozen process goes on so long after its successor serves


class Called(Protocol):
    """A service that clients find."""

    @property
    def address(self) -> str:
        """What they are given."""
        ...


class Callers:
    """Clients that call without a pause and remember when each reply came."""

    def __init__(self, cluster: Called, service: str = SERVICE) -> None:
        self.clients = [Client(service, [cluster.address]) for _ in range(CALLERS)]
        self._tasks: list[asyncio.Task[None]] = []
        self._replies: list[list[float]] = [[] for _ in self.clients]
        self._stopping = False
        self.failed: list[DeathlessError] = []

    async def __aenter__(self) -> Self:
        for client in self.clients:
            client.start()
        for client in self.clients:
            await client.ready()
        for number, client in enumerate(self.clients):
            self._tasks.append(asyncio.create_task(self._call(client, number)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.clients:
            await client.close()

    async def _call(self, client: Client, number: int) -> None:
        while not self._stopping:
            try:
                await self.add(client, number)
            except DeathlessError as error:
                self.failed.append(error)
            else:
                self._replies[number].append(time.perf_counter())

    async def add(self, client: Client, number: int) -> None:
        """Have one call applied."""
        await client.call("add", f"caller{number}", amount=1, note=NOTE)

    async def difference(self) -> int:
        """Calls that were acknowledged and not applied, or applied and not acknowledged."""
        found = 0
        for number, client in enumerate(self.clients):
            found += abs(await client.query("read", f"caller{number}", timeout=BACK_S) - len(self._replies[number]))
        return found

    async def gap_ms(self, since: float) -> float:
        """Wait until every client has had a reply after `since`; gives the longest wait of them, in milliseconds."""
        deadline = time.perf_counter() + BACK_S
        while any(not replies or replies[-1] <= since for replies in self._replies):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"no reply within {BACK_S:g} s")
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        return max(_longest(replies, since) for replies in self._replies) * 1000

    async def finish(self) -> str:
        """Stop and compare what was acknowledged with what was applied; empty: they are the same."""
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), BACK_S)
        wrong = await self.difference()
        if self.failed:
            return f"{len(self.failed)} calls failed, first: {self.failed[0]}"
        return f"{wrong} calls lost or doubled" if wrong else ""

    @property
    def count(self) -> int:
        """Replies so far."""
        return sum(map(len, self._replies))


def _longest(replies: list[float], since: float) -> float:
    """The longest time between two replies of which the later came after `since`."""
    at = len(replies)
    while at > 0 and replies[at - 1] > since:
        at -= 1
    around = replies[max(at - 1, 0) :]
    return max((later - earlier for earlier, later in pairwise(around)), default=0.0)


async def _next_round(cluster: Cluster) -> None:
    await cluster.wait_ready()
    await asyncio.sleep(SETTLE_S)


async def killed(setting: Setting) -> list[Figure]:
    """End the primary's worker by kill -9; in sets of a few rounds, since a worker that dies often waits to start."""
    rounds = setting.size(50, 2)
    gaps: list[float] = []
    problem, calls = "", 0
    for start in range(0, rounds, KILLS_OF_A_SET):
        async with setting.cluster() as cluster, Callers(cluster) as callers:
            for _ in range(min(KILLS_OF_A_SET, rounds - start)):
                await _next_round(cluster)
                victim = (await cluster.primary()).worker_pid
                since = time.perf_counter()
                os.kill(victim, signal.SIGKILL)
                gaps.append(await callers.gap_ms(since))
            problem = problem or await callers.finish()
            calls += callers.count
    peers: dict[str, float | None] = {"etcd key, lease of 1 s": None}
    etcd = setting.etcd()
    note = f"{calls} calls, none lost, none doubled"
    worst_peer: float | None = None
    if etcd is not None:
        told = await asyncio.to_thread(etcd.takeover, setting.size(15, 1))
        peers["etcd key, lease of 1 s"], worst_peer = told["p50_ms"], told["worst_ms"]
        note += f"; etcd grants a lease of {told['granted_ttl_s']:g} s at least when 1 s is asked for"
    note = "; ".join(part for part in (problem or note, setting.missing("etcd")) if part)
    return [
        figure(
            "takeover_kill_p50_ms", "takeover after kill -9 of the primary under load, p50",
            None if problem else median(gaps), "ms",
            samples=rounds, peers=peers, goal=Goal("at most", 150), note=note,
        ),
        figure(
            "takeover_kill_worst_ms", f"the same, worst of {rounds}", None if problem else max(gaps), "ms",
            samples=rounds, peers={"etcd key, lease of 1 s": worst_peer}, goal=Goal("at most", 500),
        ),
    ]  # fmt: skip


async def frozen(setting: Setting) -> list[Figure]:
    """SIGSTOP of the primary's worker; of worker and supervisor.

    Steals from a primary that is only silent, not known dead, back off: each doubles the reign that the next holder is
    granted, until one has served for `reign_max_s`. So a set of replicas is frozen whole a few times only, then a new
    one is taken: the figure is that of a first failure, not of a twentieth in a minute.
    """
    rounds = setting.size(20, 1)
    worker, both = Freezes(), Freezes()
    await worker.collect(setting, rounds, supervisor_too=False)
    for start in range(0, rounds, SILENT_STEALS):
        await both.collect(setting, min(SILENT_STEALS, rounds - start), supervisor_too=True)
    return [
        figure(
            "takeover_frozen_worker_p50_ms", "frozen primary: SIGSTOP of its worker, p50", worker.p50, "ms",
            samples=rounds, goal=Goal("at most", 200), note=worker.note,
        ),
        figure(
            "takeover_frozen_both_p50_ms", "SIGSTOP of worker and supervisor, p50", both.p50, "ms",
            samples=rounds, goal=Goal("at most", 700), note=both.note,
        ),
    ]  # fmt: skip


class Freezes:
    """What freezing the primary again and again gave."""

    def __init__(self) -> None:
        self._gaps: list[float] = []
        self._calls = 0
        self._problem = ""

    async def collect(self, setting: Setting, rounds: int, *, supervisor_too: bool) -> None:
        """Freeze the primary of a new set of replicas `rounds` times."""
        async with setting.cluster() as cluster, Callers(cluster) as callers:
            for _ in range(rounds):
                await _next_round(cluster)
                if supervisor_too:
                    await asyncio.sleep(REIGN_S)
                primary = await cluster.primary()
                victims = [primary.pid, primary.worker_pid] if supervisor_too else [primary.worker_pid]
                self._gaps.append(await _freeze(callers, victims))
            self._problem = self._problem or await callers.finish()
            self._calls += callers.count

    @property
    def p50(self) -> float | None:
        """The median gap; None when a call was lost or doubled."""
        return None if self._problem else median(self._gaps)

    @property
    def note(self) -> str:
        """The worst gap, and what became of the calls."""
        return self._problem or f"worst {max(self._gaps):.0f} ms; {self._calls} calls, none lost, none doubled"


async def _freeze(callers: Callers, victims: list[int]) -> float:
    since = time.perf_counter()
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    try:
        gap = await callers.gap_ms(since)
        await asyncio.sleep(CONTINUE_S)
    finally:
        for pid in victims:
            os.kill(pid, signal.SIGCONT)
    return gap


async def switchover(setting: Setting) -> list[Figure]:
    """A planned switchover, ordered at the primary."""
    rounds = setting.size(30, 2)
    gaps: list[float] = []
    async with setting.cluster() as cluster, Callers(cluster) as callers:
        for _ in range(rounds):
            await _next_round(cluster)
            address = (await cluster.primary()).client
            since = time.perf_counter()
            await ask(address, "switchover", cluster.access, answer_s=10.0)
            gaps.append(await callers.gap_ms(since))
        problem = await callers.finish()
    note = problem or f"{callers.count} calls, none failed, lost or doubled"
    return [
        figure(
            "switchover_p50_ms", "planned switchover, no failed call, p50", None if problem else median(gaps), "ms",
            samples=rounds, goal=Goal("at most", 50), note=f"worst {max(gaps):.0f} ms; {note}",
        )
    ]  # fmt: skip
