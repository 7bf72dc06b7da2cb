"""Handlers that wait: a million timers, 100,000 handlers, and one durable step outside, end to end.

Does not: measure messages between services (bench.groups.messaging does).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import msgspec

from bench.cluster import POLL_S, RECOVERED_S, Cluster, NotReady
from bench.figures import Figure, figure, median, percentile
from bench.groups.messaging import MIB, WAIT_S, two
from bench.peers import dbos as dbos_peer
from bench.peers import restate as restate_peer
from bench.peers.table import Missing, Peer, Turns
from bench.setting import Setting
from bench.usage import processor_s, resident_bytes
from deathless.base.errors import DeathlessError
from deathless.shell.directory.members import read_members
from deathless.shell.net.admin_call import ask

SOME: Final = 5000  # timers that fall due one after the other while the others wait
SOME_APART_US: Final = 1000
TIMERS_DUE_S: Final = 90  # from the first call: all must be set, and the service be up again, by then
PUBLISHED: Final = {
    restate_peer.NAME: ("Restate, elsewhere", 2.8, "1,300 to 1,800/s"),
    dbos_peer.NAME: ("DBOS, elsewhere", 4.0, "240/s"),
}
"""Milliseconds with one client and rates, as others measured them on machines we do not know; for want of our own."""


async def timers(setting: Setting) -> list[Figure]:
    """A million timers: memory, start-up with them, and how late they fire."""
    each = 1000
    handlers = setting.size(1000, 10)
    count = handlers * each
    figures = []
    limits: dict[str, float] = {"turn_max_s": 60.0}
    async with two(setting, 1, limits=limits) as pair:
        idle = resident_bytes((await pair.asker.primary()).worker_pid)
        apart_us = 20  # of two timers of one handler
        due_us = int((time.time() + setting.size(TIMERS_DUE_S, 10)) * 1e6)
        naps = [
            asyncio.create_task(
                pair.ask.call("nap", f"n{number}", timers=each, until_us=due_us, apart_us=apart_us, timeout=900)
            )
            for number in range(handlers)
        ]
        await _wait_invocations(pair.asker, handlers)
        held = resident_bytes((await pair.asker.primary()).worker_pid)
        some = setting.size(SOME, 100)
        soon_us = int((time.time() + 1) * 1e6)
        steady = sorted(
            await pair.ask.call("nap", "steady", timers=some, until_us=soon_us, apart_us=SOME_APART_US, timeout=900)
        )
        took = await _restart(pair.asker, handlers)
        early_s = due_us / 1e6 - time.time()
        late = sorted(number for answer in await asyncio.gather(*naps) for number in answer)
    figures.append(
        figure(
            "timers_late_p99_ms", f"{1e6 / SOME_APART_US:,.0f} timers due each second beside {count:,} pending: "
            "lateness, p99", percentile(steady, 99) / 1000, "ms", samples=some,
            note=f"p50 {median(steady) / 1000:,.1f} ms; each gives a handler its turn, in the log",
        )
    )  # fmt: skip
    figures.append(
        figure(
            "timers_at_once_p99_ms", f"{count:,} timers due in one moment: lateness, p99", percentile(late, 99) / 1000,
            "ms", samples=count, note=f"all due within {each * apart_us / 1000:g} ms, p50 {median(late) / 1000:,.0f} "
            f"ms: {count / (late[-1] / 1e6):,.0f} handlers get their turn each second",
        )
    )  # fmt: skip
    figures.append(
        figure(
            "timers_memory_mib", f"memory of {count:,} pending timers", (held - idle) / MIB, "MiB", samples=1,
            note=f"in {handlers:,} handlers that wait for {each:,} each",
        )
    )  # fmt: skip
    figures.append(
        figure(
            "timers_startup_s", f"start to serving with {count:,} timers pending", took, "s", samples=1,
            note="after an orderly stop, "
            f"{early_s:,.0f} s before the first one was due",
        )
    )  # fmt: skip
    return figures


async def _restart(cluster: Cluster, count: int) -> float:
    """Stop the only replica in order, behind a checkpoint, and start it; gives how long until it served, seconds."""
    primary = await cluster.primary()
    await ask(primary.client, "checkpoint", cluster.access, answer_s=WAIT_S)
    name = cluster.names[0]
    await cluster.stop(name)
    began = time.perf_counter()
    cluster.start(name)
    await cluster.wait_ready()
    took = time.perf_counter() - began
    await _wait_invocations(cluster, count)
    return took


async def _killed(cluster: Cluster, count: int) -> float:
    """Kill the only replica wherever its last checkpoint stands; gives how long until it served, seconds."""
    name = cluster.names[0]
    worker = (await cluster.primary()).worker_pid
    began = time.perf_counter()
    cluster.kill(name, worker)
    cluster.start(name)
    await cluster.wait_ready()
    took = time.perf_counter() - began
    await _wait_invocations(cluster, count)
    return took


async def suspended(setting: Setting) -> list[Figure]:
    """Handlers that each wait for one timer: memory, and the time until a restarted service serves."""
    count = setting.size(100_000, 1_000)
    limits: dict[str, float] = {"turn_max_s": 60.0}
    async with two(setting, 1, limits=limits) as pair:
        primary = await pair.asker.primary()
        idle = resident_bytes(primary.worker_pid)
        until_us = int((time.time() + 86_400) * 1e6)
        calls = [
            asyncio.create_task(
                pair.ask.call("nap", f"n{number}", timers=1, until_us=until_us, apart_us=0, timeout=86_400)
            )
            for number in range(count)
        ]
        await _wait_invocations(pair.asker, count)
        held = resident_bytes(primary.worker_pid)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        killed = await _killed(pair.asker, count)
        took = await _restart(pair.asker, count)
    return [
        figure(
            "suspended_memory_mib", f"memory of {count:,} handlers that wait", (held - idle) / MIB, "MiB", samples=1,
            note=f"{(held - idle) / count:,.0f} bytes each, with a state, a message and a timer",
        ),
        figure(
            "suspended_recovery_s", f"start to serving with {count:,} handlers that wait", took, "s", samples=1,
            note="after an orderly stop; each ran again to where it waits",
        ),
        figure(
            "suspended_killed_s", f"kill -9 of the only replica to serving with {count:,} handlers that wait", killed,
            "s", samples=1, note="worker and supervisor; what was logged since the last checkpoint is read and run too",
        ),
    ]  # fmt: skip


async def _wait_invocations(cluster: Cluster, count: int) -> None:
    async with asyncio.timeout(RECOVERED_S):
        while True:
            with contextlib.suppress(DeathlessError, NotReady):  # asked too late, while calls in their thousands begin
                told = await ask((await cluster.primary()).client, "status", cluster.access, answer_s=30.0)
                messaging = told.get("messaging")
                if isinstance(messaging, dict) and messaging["invocations"] == count:
                    return
            await asyncio.sleep(0.1)


# ---- one durable step --------------------------------------------------------------------------------------------


async def one_step(setting: Setting) -> list[Figure]:
    """A handler that runs one activity, called over HTTP: 1 client, then 64."""
    figures = []
    async with two(setting, 1, ingress="127.0.0.1:0") as pair:
        async with asyncio.timeout(WAIT_S):
            while not (listen := _ingress(pair.asker)):  # noqa: ASYNC110  a file says it
                await asyncio.sleep(POLL_S)
        worker = (await pair.asker.primary()).worker_pid
        for clients in (1, 64):
            turns = Turns(setting, _step_peers(setting, clients))
            await _steps(listen, clients, 1.0)
            took: list[float] = []
            elapsed = used = 0.0
            for _ in range(setting.size(3, 1)):
                before = processor_s(worker)
                some, seconds = await _steps(listen, clients, float(setting.size(3, 1)))
                took, elapsed, used = took + some, elapsed + seconds, used + processor_s(worker) - before
                await turns.take()
            each_us = used / len(took) * 1e6
            peers = turns.values()
            elsewhere = [PUBLISHED[name] for name, value in peers.items() if value is None]
            told = "".join(f"; {name}: {rate}, measured by others" for name, _, rate in elsewhere)
            figures.append(
                figure(
                    f"one_step_{clients}_p50_ms",
                    f"one durable step (HTTP, activity, reply), {clients} client{'s' * (clients > 1)}, p50",
                    median(took) * 1000,
                    "ms",
                    samples=len(took),
                    peers=peers | ({name: value for name, value, _ in elsewhere} if clients == 1 else {}),
                    note=f"{len(took) / elapsed:,.0f}/s, p99 {percentile(took, 99) * 1000:.1f} ms; the primary's "
                    f"worker took {each_us:,.0f} us of processor time for each{turns.note()}{told}",
                )
            )
    return figures


def _step_peers(setting: Setting, clients: int) -> dict[str, Peer]:
    seconds = float(setting.size(3, 1))

    async def restate() -> float:
        async with restate_peer.serving(setting.folder) as served:
            await _steps(served.ingress, clients, 1.0)
            took, _ = await _steps(served.ingress, clients, seconds)
            return median(took) * 1000

    async def dbos() -> float:
        database = setting.postgres()
        if database is None:
            raise Missing(setting.missing("postgres"))
        return await dbos_peer.steps_ms(database.host, setting.folder, clients=clients, seconds=seconds)

    return {restate_peer.NAME: Peer(restate, restate_peer.server_binary), dbos_peer.NAME: Peer(dbos)}


def _ingress(cluster: Cluster) -> str:
    """Where it listens; empty: it has not said so, or only that any port will do."""
    known = [member.ingress for member in read_members(str(cluster.directory)).values()]
    return next((each for each in known if each and not each.endswith(":0")), "")


async def _steps(listen: str, clients: int, seconds: float) -> tuple[list[float], float]:
    """Latencies, and how long all of it took."""
    host, _, port = listen.rpartition(":")
    took: list[float] = []
    began = time.perf_counter()
    end = began + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        body = msgspec.json.encode({"number": number})
        head = (
            f"POST /asker/step{number}/step HTTP/1.1\r\nHost: {listen}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        while time.perf_counter() < end:
            asked = time.perf_counter()
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise ValueError(answer.decode(errors="replace"))
            length = next(
                int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            took.append(time.perf_counter() - asked)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return took, time.perf_counter() - began
