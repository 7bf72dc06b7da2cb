"""Services that talk: forks, calls with replies, sizes, and takeovers as the end client sees them.

Guarantees: a rate counts what the receiver has run, and every message is counted at the end: unless what was sent has
come exactly once, the run ends with that said. Does not: measure single calls of clients (bench.groups.calls does).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster import POLL_S, Cluster, Program
from bench.figures import Figure, Goal, figure, median
from bench.floor import Floor
from bench.peers import bare as bare_peer
from bench.peers import grpc_python as grpc_peer
from bench.peers import nats as nats_peer
from bench.peers import restate as restate_peer
from bench.peers.table import Missing, Peer, Turns
from bench.setting import Setting
from bench.usage import processor_s
from deathless.shell.client.shard_client import Client

MODULES: Final = Path(__file__).resolve().parents[1] / "services" / "exchange.py"
KEYS: Final = 64
BURST: Final = 1000  # forks of one turn
WAIT_S: Final = 300.0  # for anything
CALLERS: Final = 4
SETTLE_S: Final = 0.3
PEERS_EACH: Final = 10  # sagas of ours between two turns of the peers
SIZES: Final = (16, 256, 4096, 65536)
MIB: Final = 1 << 20
GRPC: Final = "gRPC Python, nothing durable"
AMBROSIA: Final = "AMBROSIA as recorded elsewhere"
AMBROSIA_GIB_PER_S: Final = {16: 0.01687, 256: 0.04164, 4096: 0.04138, 65536: 0.03831}
"""GiB of arguments per second by their size, as AMBROSIA's own repository records them from a run on a machine that it
does not name: github.com/microsoft/AMBROSIA, AmbrosiaTest/AmbrosiaTest/Cmp/activeactivekillprimary_ClientJob.cmp."""


class Two(NamedTuple):
    """Both services, and a client of each."""

    asker: Cluster
    answerer: Cluster
    ask: Client
    answer: Client

    async def taken(self, keys: list[str]) -> int:
        """Messages that have come, of all keys."""
        return sum(await asyncio.gather(*(self.answer.query("taken", key, timeout=WAIT_S) for key in keys)))

    async def wait_taken(self, keys: list[str], count: int) -> float:
        """Wait until so many have come; gives when. Raises: TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            while await self.taken(keys) < count:  # noqa: ASYNC110  another process counts
                await asyncio.sleep(POLL_S)
        return time.perf_counter()


@contextlib.asynccontextmanager
async def two(
    setting: Setting, replicas: int, *, limits: dict[str, float] | None = None, ingress: str = ""
) -> AsyncIterator[Two]:
    """Asker and answerer, which find each other because their logs lie in one folder."""
    folder = setting.new_folder()

    def cluster(service: str, listen: str) -> Cluster:
        program = Program(service, f"{MODULES}:{service}", service)
        return setting.cluster(folder, replicas=replicas, limits=limits, program=program, ingress=listen)

    async with (
        cluster("answerer", "") as answerer,
        cluster("asker", ingress) as asker,
        Client("asker", [asker.address]) as ask,
        Client("answerer", [answerer.address]) as answer,
    ):
        await ask.ready()
        await answer.ready()
        yield Two(asker, answerer, ask, answer)


def keys_of(count: int) -> list[str]:
    """Names of keys."""
    return [f"key{number:04d}" for number in range(count)]


# ---- rates -------------------------------------------------------------------------------------------------------


async def fork_rate(pair: Two, messages: int, size: int) -> float:
    """Messages per second, from the first call to the last message run at the receiver."""
    keys, burst = keys_of(KEYS), min(BURST, max(1, (1 << 20) // (size + 64)))
    rounds = max(1, messages // (burst * KEYS))
    before = await pair.taken(keys)
    began = time.perf_counter()
    calls = [pair.ask.call("burst", key, messages=burst, size=size) for _ in range(rounds) for key in keys]
    await asyncio.gather(*calls)
    expected = before + rounds * burst * KEYS
    took = await pair.wait_taken(keys, expected) - began
    if await pair.taken(keys) != expected:
        raise ValueError("more messages came than were sent")
    return rounds * burst * KEYS / took


async def forks(setting: Setting) -> list[Figure]:
    """Fire and forget, durable at both ends; one replica each, then three."""
    figures = []
    messages, rounds = setting.size(1_000_000, 20_000), setting.size(3, 1)
    for replicas, goal in ((1, Goal("at least", 200_000)), (3, None)):
        async with two(setting, replicas) as pair:
            await fork_rate(pair, messages // 10, 64)
            peers = Turns(setting, _fork_peers(setting.folder, messages) if replicas == 1 else {})
            rates, cost = [], 0.0
            async with setting.profiled(pair.answerer, f"forks-{replicas}-answerer"):
                for _ in range(rounds):
                    before = await _used(pair)
                    rates.append(await fork_rate(pair, messages, 64))
                    cost += await _used(pair) - before
                    await peers.take()
        figures.append(
            figure(
                f"fork_{replicas}_per_s",
                f"fork service to service, 64 B, {replicas} replica{'s' * (replicas > 1)} each",
                median(rates),
                "messages/s",
                samples=rounds * messages,
                peers=peers.values(),
                goal=goal,
                note=f"workers of both: {cost / rounds / messages * 1e6:.1f} us of processor time per message; "
                f"{spread(rates)}{peers.note()}",
            )
        )
    return figures


def _fork_peers(folder: Path, messages: int) -> dict[str, Peer]:
    """What each sends one way: as many messages as it takes a few seconds for."""
    nats = {
        name: Peer(
            partial(nats_peer.stream, folder, nats_peer.SYNC[name], messages=messages // part, size=64),
            nats_peer.server_binary,
        )
        for name, part in ((nats_peer.ALWAYS, 50), (nats_peer.DEFAULT, 10))
    }
    restate = partial(restate_peer.sends, folder, messages=messages // 150, size=64)
    return {
        GRPC: Peer(partial(_grpc_stream, messages // 10, 64)),
        **nats,
        restate_peer.NAME: Peer(restate, restate_peer.server_binary),
    }


async def _grpc_stream(messages: int, size: int) -> float:
    async with grpc_peer.server() as address:
        if address is None:
            raise Missing("grpcio is not installed")
        return await grpc_peer.stream(address, messages=messages, size=size)


async def _grpc_unary(outstanding: int, calls: int, *, rate: bool) -> float:
    """The median of a call in microseconds, or calls per second."""
    async with grpc_peer.server() as address:
        if address is None:
            raise Missing("grpcio is not installed")
        each = max(1, calls // outstanding)
        took, per_s = await grpc_peer.unary(address, outstanding=outstanding, calls=each, size=64)
        return per_s if rate else median(took)


async def _used(pair: Two) -> float:
    workers = [*(await pair.asker.workers()).values(), *(await pair.answerer.workers()).values()]
    return sum(map(processor_s, workers))


async def payloads(setting: Setting) -> list[Figure]:
    """Forks of several sizes."""
    figures = []
    for size in SIZES:
        messages = max(KEYS, min(setting.size(200_000, 2_000), setting.size(256 << 20, 4 << 20) // size))
        async with two(setting, 1) as pair:
            await fork_rate(pair, messages // 5, size)
            rates = [await fork_rate(pair, messages, size) for _ in range(setting.size(3, 1))]
        rate = median(rates)
        figures.append(
            figure(
                f"fork_{size}_b_per_s", f"fork, {size:,} B, one replica each", rate, "messages/s",
                samples=len(rates) * messages, peers={AMBROSIA: AMBROSIA_GIB_PER_S[size] * 1024 * MIB / size},
                note=f"{rate * size / MIB:,.1f} MiB/s of arguments; AMBROSIA's {AMBROSIA_GIB_PER_S[size] * 1024:,.1f}",
            )
        )  # fmt: skip
    return figures


def spread(rates: list[float]) -> str:
    """Say how far apart the rounds of one rate were."""
    return f"rounds from {min(rates):,.0f} to {max(rates):,.0f}"


async def service_calls(setting: Setting) -> list[Figure]:
    """Call and reply between services: one outstanding, then 256."""
    turns, count = setting.size(40, 3), setting.size(25, 5)
    took, floors = [], []
    unary = Peer(partial(_grpc_unary, 1, turns * count, rate=False))
    restate = partial(restate_peer.calls_us, setting.folder, calls=5 * count, size=64)
    bare = Peer(partial(bare_peer.calls_us, setting.folder, calls=10 * count))
    singly = Turns(
        setting, {bare_peer.NAME: bare, GRPC: unary, restate_peer.NAME: Peer(restate, restate_peer.server_binary)}
    )
    chats_of_restate = partial(
        restate_peer.calls_per_s, setting.folder, outstanding=256, calls=setting.size(10, 2), size=64
    )
    at_once = Turns(
        setting,
        {
            GRPC: Peer(partial(_grpc_unary, 256, turns * count, rate=True)),
            restate_peer.NAME: Peer(chats_of_restate, restate_peer.server_binary),
        },
    )
    async with two(setting, 1) as pair:
        with Floor(setting.folder) as floor:
            await pair.ask.call("chat", "warm", calls=10 * count, size=64, timeout=WAIT_S)
            used = 0.0
            for number in range(turns):
                floors += floor.measure(count)
                before, began = await _used(pair), time.perf_counter()
                await pair.ask.call("chat", "one", calls=count, size=64, timeout=WAIT_S)
                took.append((time.perf_counter() - began) * 1e6 / count)
                used += await _used(pair) - before
                if number % PEERS_EACH == PEERS_EACH - 1 or number == turns - 1:
                    await singly.take()
            base = median(floors)
            cost_one = used / turns / count
        keys, calls = keys_of(256), setting.size(200, 10)

        async def chats(calls: int) -> float:
            began = time.perf_counter()
            await asyncio.gather(*(pair.ask.call("chat", key, calls=calls, size=64, timeout=WAIT_S) for key in keys))
            return len(keys) * calls / (time.perf_counter() - began)

        await chats(calls // 10)  # keys are born, and frames find their size
        rates, used = [], 0.0
        for _ in range(setting.size(5, 1)):
            before = await _used(pair)
            rates.append(await chats(calls))
            used += await _used(pair) - before
            await at_once.take()
        cost = used / len(rates) / len(keys) / calls
        expected = (calls // 10 + len(rates) * calls) * len(keys)
        if await pair.taken(keys) != expected:
            raise ValueError("calls were lost or doubled")
    value = median(took)
    return [
        figure(
            "service_call_p50_us", "call and reply between services, 1 outstanding, p50", value, "us",
            samples=turns * count, floor=base, goal=Goal("at most", 3.0, floors=True),
            peers=singly.values(),
            note=f"{value / base:.2f} x floor; median over {turns} sagas, of each the mean of {count} calls one after "
            f"the other; workers of both: {cost_one * 1e6:.0f} us of processor time per call{singly.note()}",
        ),
        figure(
            "service_calls_256_per_s", "call and reply between services, 256 outstanding", median(rates), "calls/s",
            samples=expected, goal=Goal("at least", 15_000), peers=at_once.values(),
            note=f"workers of both: {cost * 1e6:.0f} us of processor time per call; {spread(rates)}{at_once.note()}",
        ),
    ]  # fmt: skip


# ---- takeovers ---------------------------------------------------------------------------------------------------


class Callers:
    """Clients of the asker, each of whose calls waits for the answerer."""

    def __init__(self, pair: Two) -> None:
        self._pair = pair
        self.replies: list[list[float]] = [[] for _ in range(CALLERS)]
        self._stop = False

    async def run(self, number: int) -> None:
        """Call until told to stop."""
        while not self._stop:
            await self._pair.ask.call("chat", f"caller{number}", calls=1, size=64, timeout=WAIT_S)
            self.replies[number].append(time.perf_counter())

    async def gap_ms(self, since: float) -> float:
        """The longest wait of a caller around what happened at `since`."""
        async with asyncio.timeout(WAIT_S):
            while any(not each or each[-1] <= since for each in self.replies):  # noqa: ASYNC110  it polls gently, beside the calls
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        longest = 0.0
        for each in self.replies:
            at = len(each)
            while at > 0 and each[at - 1] > since:
                at -= 1
            around = each[max(at - 1, 0) :]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(around)), 0.0)
        return longest * 1000

    def stop(self) -> None:
        """No further calls."""
        self._stop = True


async def service_takeover(setting: Setting) -> list[Figure]:
    """A kill -9 of the callee's primary, of the caller's, and of both at once, under load."""
    rounds = setting.size(20, 1)
    figures = []
    for who, title in (("callee", "of the callee"), ("caller", "of the caller"), ("both", "of both at once")):
        gaps: list[float] = []
        for start in range(0, rounds, 10):
            async with two(setting, 3) as pair:
                callers = Callers(pair)
                async with asyncio.TaskGroup() as group:
                    for number in range(CALLERS):
                        group.create_task(callers.run(number))
                    for _ in range(min(10, rounds - start)):
                        await pair.asker.wait_ready()
                        await pair.answerer.wait_ready()
                        await asyncio.sleep(SETTLE_S)
                        clusters = {
                            "callee": [pair.answerer],
                            "caller": [pair.asker],
                            "both": [pair.asker, pair.answerer],
                        }
                        victims = [(await cluster.primary()).worker_pid for cluster in clusters[who]]
                        since = time.perf_counter()
                        for pid in victims:
                            os.kill(pid, signal.SIGKILL)
                        gaps.append(await callers.gap_ms(since))
                    callers.stop()
                keys = [f"caller{number}" for number in range(CALLERS)]
                if await pair.taken(keys) != sum(map(len, callers.replies)):
                    raise ValueError("calls were lost or doubled")
        figures.append(
            figure(
                f"service_takeover_{who}_p50_ms",
                f"takeover {title} under calls between services, as the end client sees it, p50",
                median(gaps),
                "ms",
                samples=rounds,
                goal=Goal("at most", 300),
                note=f"worst {max(gaps):.0f} ms; every call counted once",
            )
        )
    return figures
