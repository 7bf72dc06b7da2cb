"""What upgraders, a rehearsal and a shadow cost the service beside which they run, and their memory.

Clients call at a steady rate, far below what the service can do, so that what is measured is how long a call waits for
a core and not how the cores are shared out.
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

from bench.figures import Figure, Goal, figure, percentile
from bench.groups.upgrades.failed_cut import Tool
from bench.groups.upgrades.live import NOTE, SERVICES, Upgraded
from bench.setting import Setting
from bench.usage import resident_bytes
from deathless.shell.client.shard_client import Client
from deathless.shell.process.forked import die_with_parent

MIB: Final = 1 << 20
CLIENTS: Final = 4
PER_S: Final = 200  # of all clients
SETTLE_S: Final = 1.0
CALL_S: Final = 60.0


async def _p99_ms(service: Upgraded, seconds: float) -> float:
    """The 99th percentile of how long calls take that are sent at a steady rate, from when they were to be sent."""
    took: list[float] = []
    began = time.perf_counter() + 0.1

    async def call(client: Client, number: int) -> None:
        for turn in range(int(seconds * PER_S / CLIENTS)):
            due = began + turn * CLIENTS / PER_S + number / PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await client.call("add", f"caller{number}", amount=1, note=NOTE, timeout=CALL_S)
            took.append(time.perf_counter() - due)

    clients = [Client("bench", [service.address]) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for client in clients:
            await client.ready()
        began = time.perf_counter() + 0.1
        await asyncio.gather(*(call(client, number) for number, client in enumerate(clients)))
    finally:
        for client in clients:
            await client.close()
    return percentile(took, 99) * 1000


@contextlib.asynccontextmanager
async def _again_and_again(service: Upgraded, *arguments: str) -> AsyncIterator[list[int]]:
    """Run a command, and once more where it ends, until the end of the block; gives its exit codes."""
    codes: list[int] = []
    running: list[asyncio.subprocess.Process] = []

    async def repeat() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "deathless.cli.main", *arguments,
                cwd=service.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )  # fmt: skip
            running[:] = [process]
            codes.append(await process.wait())
            if codes[-1]:
                raise RuntimeError(f"deathless {' '.join(arguments)} ended with {codes[-1]}")

    task = asyncio.create_task(repeat())
    try:
        yield codes
        if task.done():
            task.result()
    finally:
        task.cancel()
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(task, return_exceptions=True)


def _with_children(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            found += _with_children(int(child))
    return found


async def beside(setting: Setting) -> list[Figure]:
    """One service: alone, with upgraders, with a rehearsal, with a shadow."""
    keys, seconds = setting.size(1_000_000, 200), float(setting.size(30, 1))
    service = Upgraded(setting.new_folder())
    to = f"{SERVICES / 'accounts_2.py'}:bench"
    await service.run("up", "--detach", "service.yaml")
    try:
        await service.fill(keys, 0)
        await asyncio.sleep(SETTLE_S)
        alone = await _p99_ms(service, seconds)
        async with _again_and_again(service, "upgrade", "rehearse", "--to", to):
            rehearsing = await _p99_ms(service, seconds)
        async with _again_and_again(service, "upgrade", "shadow", "--to", to, "--seconds", str(10 * seconds)):
            shadowing = await _p99_ms(service, seconds)
        standby = sum(map(resident_bytes, _with_children(await service.follower())))
        tool = await Tool.begun(service)
        try:
            await tool.until("ready")
            tool.process.send_signal(signal.SIGSTOP)  # nobody goes on: the upgrader is fed, and that is all
            upgrader = await service.upgraders()
            await asyncio.sleep(SETTLE_S)
            followed = await _p99_ms(service, seconds)
            held = sum(map(resident_bytes, _with_children(upgrader[0])))
        finally:
            await tool.kill()
    finally:
        await service.run("down")
    size = f"{keys:,} keys, {PER_S} calls a second"
    cores = f"p99 alone {alone:.2f} ms; {os.cpu_count()} cores for all processes"
    return [
        _increase("upgrader_p99_increase", f"while an upgrader follows: {size}, p99", alone, followed, 0, cores),
        _increase("rehearsal_p99_increase", "while the log is rehearsed, p99", alone, rehearsing, 5, cores),
        _increase("shadow_p99_increase", "while a shadow follows the log, p99", alone, shadowing, 10, cores),
        figure(
            "upgrader_memory", f"memory of an upgrader with {keys:,} keys, beside a standby's", held / standby, "x",
            samples=1, goal=Goal("at most", 1.3),
            note=f"upgrader {held / MIB:,.0f} MiB with the process that runs the former code, standby "
            f"{standby / MIB:,.0f} MiB; supervisors included, a shared page counts by its share",
        ),
    ]  # fmt: skip


def _increase(name: str, title: str, before: float, beside: float, goal: float, note: str) -> Figure:
    """How much longer the slowest of a hundred calls takes, in percent."""
    return figure(
        name, title, (beside / before - 1) * 100, "%", samples=1, goal=Goal("at most", goal),
        note=f"{beside:.2f} ms; {note}",
    )  # fmt: skip
