"""Messages from program to program by size, a program's calls to itself, and calls with answers between programs.

Guarantees: a rate counts what the receiving program has run, and what came is counted at the end: unless that is what
was sent, the figure is left out. Does not: measure takeovers and checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from bench.figures import Figure, Goal, figure, median
from bench.floor import Floor
from bench.groups.foreign.services import Loaded, Used, language, loaded
from bench.groups.messaging import KEYS, fork_rate, keys_of, spread, two
from bench.setting import Setting

ORIGINAL: Final = "AMBROSIA as recorded elsewhere"
PYTHON: Final = "the same between Python services"
ORIGINAL_PER_S: Final = {16: 2_100_000.0, 64: 1_050_000.0, 1024: 73_000.0, 65536: 1_163.0}
"""Messages per second by size, as AMBROSIA's own repository records them from runs on a machine it does not name."""
GOALS: Final = {16: 0.15, 64: 0.4, 1024: 1.0, 65536: 1.0}
"""Parts of these that are to be reached."""
MESSAGES: Final = {16: 1_000_000, 64: 1_000_000, 1024: 200_000, 65536: 4_000}
BURST_BYTES: Final = 1 << 20  # of the messages of one call, as each counts with 64 bytes more
WORK_BYTES: Final = 1 << 20
MIB: Final = 1 << 20


@contextlib.asynccontextmanager
async def programs(setting: Setting) -> AsyncIterator[tuple[Loaded, Loaded]]:
    """Two services of the program that find each other."""
    folder = setting.new_folder()
    async with loaded(setting, "taker", folder=folder) as taker, loaded(setting, "sender", folder=folder) as sender:
        yield sender, taker


async def _sent(sender: Loaded, taker: Loaded, to: str, messages: int, size: int) -> tuple[float, Used, Used]:
    """Give messages per second, and what sender and taker used; so many messages go, or a few less."""
    burst = max(1, min(messages, BURST_BYTES // (size + 64)))
    rounds = messages // burst
    before = (await taker.call(3)).messages
    used = await sender.cluster.used(), await taker.cluster.used()
    began = time.perf_counter()
    await asyncio.gather(*(sender.start(to, burst, size) for _ in range(rounds)))
    took = await taker.wait(messages=before + rounds * burst) - began
    return (
        rounds * burst / took,
        (await sender.cluster.used()).since(used[0]),
        (await taker.cluster.used()).since(used[1]),
    )


async def _of_size(setting: Setting, size: int) -> Figure:
    messages, rounds = setting.size(MESSAGES[size], max(4, (MIB // 4) // (size + 64))), setting.size(3, 1)
    rates, beside, floors = [], [], []
    used = [Used(0, 0, 0, 0), Used(0, 0, 0, 0)]
    async with programs(setting) as (sender, taker), two(setting, 1) as pair:
        await _sent(sender, taker, "taker", max(4, messages // 20), size)
        for _ in range(rounds):
            rate, at_sender, at_taker = await _sent(sender, taker, "taker", messages, size)
            rates.append(rate)
            used = [used[0].plus(at_sender), used[1].plus(at_taker)]
            beside.append(await fork_rate(pair, max(KEYS, messages // 4), size))
            floors.append(await asyncio.to_thread(written_per_s, setting.folder / "floor", messages * size // 4) / size)
    rate, original = median(rates), ORIGINAL_PER_S[size]
    total = rounds * messages
    return figure(
        f"foreign_fork_{size}_b_per_s", f"messages from program to program, {size:,} B", rate, "messages/s",
        samples=total, floor=median(floors), goal=Goal("at least", GOALS[size] * original),
        peers={PYTHON: median(beside), ORIGINAL: original},
        note=f"{language()}; {rate * size / MIB:,.1f} MiB/s; {rate / original:.3f} of the original's; {spread(rates)}; "
        f"microseconds of processor time of each message at the sender: {used[0].told(total)}; at the other: "
        f"{used[1].told(total)}; the floor writes the bytes twice and syncs each MiB",
    )  # fmt: skip


def written_per_s(path: Path, size: int) -> float:
    """Bytes per second that are written twice, as two logs would, each MiB of them synced."""
    blocks = max(1, size // WORK_BYTES)
    data = os.urandom(min(size, WORK_BYTES))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    began = time.perf_counter()
    for _ in range(2 * blocks):
        os.write(descriptor, data)
        os.fdatasync(descriptor)
    took = time.perf_counter() - began
    os.close(descriptor)
    path.unlink()
    return blocks * len(data) / took


async def foreign_forks(setting: Setting) -> list[Figure]:
    """From one program to another, by size; Python services of the same size in turns."""
    return [await _of_size(setting, size) for size in ORIGINAL_PER_S]


async def foreign_self_calls(setting: Setting) -> list[Figure]:
    """A program that forks to itself."""
    messages, size = setting.size(1_000_000, 1000), 64
    rates, total = [], Used(0, 0, 0, 0)
    rounds = setting.size(3, 1)
    async with loaded(setting, "sender") as one:
        await _sent(one, one, "", max(4, messages // 20), size)
        for _ in range(rounds):
            rate, used, _ = await _sent(one, one, "", messages, size)
            rates.append(rate)
            total = total.plus(used)
    return [
        figure(
            "foreign_self_calls_per_s", f"messages of a program to itself, {size} B", median(rates), "messages/s",
            samples=rounds * messages,
            note=f"{language()}; {spread(rates)}; microseconds of processor time of each: "
            f"{total.told(rounds * messages)}",
        )
    ]  # fmt: skip


async def foreign_calls(setting: Setting) -> list[Figure]:
    """Calls with answers from program to program: one outstanding, then 256; Python services in turns."""
    turns, count = setting.size(20, 2), setting.size(25, 5)
    many, keys = setting.size(20_000, 256), keys_of(256)
    took, beside, floors, rates, beside_rates = [], [], [], [], []
    answers = 0
    async with programs(setting) as (sender, _), two(setting, 1) as pair:

        async def asked(calls: int, outstanding: int) -> float:
            nonlocal answers
            answers += calls
            began = time.perf_counter()
            await sender.ask("taker", calls, outstanding)
            return await sender.wait(answers=answers) - began

        async def chatted(calls: int, of: list[str]) -> float:
            began = time.perf_counter()
            await asyncio.gather(*(pair.ask.call("chat", key, calls=calls, size=64, timeout=300.0) for key in of))
            return time.perf_counter() - began

        await asked(count, 1)
        await chatted(count, keys[:1])
        with Floor(setting.folder) as floor:
            for _ in range(turns):
                floors += floor.measure(count)
                took.append(await asked(count, 1) / count * 1e6)
                beside.append(await chatted(count, keys[:1]) / count * 1e6)
        await chatted(1, keys)
        for _ in range(setting.size(3, 1)):
            rates.append(many / await asked(many, 256))
            beside_rates.append(many / await chatted(max(1, many // len(keys)), keys))
    return [
        figure(
            "foreign_call_p50_us", "call and answer between programs, 1 outstanding, p50", median(took), "us",
            samples=turns * count, floor=median(floors), peers={PYTHON: median(beside)},
            note=f"{language()}; each of {turns} turns is the mean of {count} calls one after the other, looked for "
            "every 20 ms",
        ),
        figure(
            "foreign_calls_256_per_s", "call and answer between programs, 256 outstanding", median(rates), "calls/s",
            samples=len(rates) * many, peers={PYTHON: median(beside_rates)}, note=spread(rates),
        ),
    ]  # fmt: skip
