"""Topics: rows per second through the driver that writes them, and through the reader; beside the bare bytes."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figures import Figure, figure
from bench.setting import Setting
from deathless.drivers.port import Delivery, Source
from deathless.drivers.topic import Options, TopicSink
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics import TopicReader

SCHEMA = "flight:utf8,origin:utf8,minutes:int64,seats:int64?,delay:float64"
BATCHES = (1, 256, 4096)
GIB = 1 << 30


def delivery(position: int, schema: str = SCHEMA, more: Sequence[object] = ()) -> Delivery:
    """A row as its service hands it over; `more`: what a schema has behind SCHEMA."""
    row = [f"LH{position % 9999}", "FRA", position % 600, None if position % 7 else 3, position / 2, *more]
    arguments: dict[str, object] = {"schema": schema, "time_us": position, "row": row}
    return Delivery(position, "emit", f"key-{position % 1000}", arguments, None, 0, "")


async def topics(setting: Setting) -> list[Figure]:
    """Each batch is a block that is synced; the floor writes as many bytes with as many syncs."""
    batches = setting.size(200, 5)
    return [each for size in BATCHES for each in await _of_batches(setting, size, batches)]


async def _of_batches(setting: Setting, size: int, batches: int) -> list[Figure]:
    folder = setting.new_folder()
    folder.mkdir(exist_ok=True)
    count = size * batches
    written_s = await written(folder, (delivery(at) for at in range(1, count + 1)), size)
    files = sorted(folder.glob("*/*.rows"))
    whole = sum(file.stat().st_size for file in files)
    floor_s = await asyncio.to_thread(_bare, folder / "floor", whole // batches, batches)
    read_s, raw_s = await asyncio.to_thread(_read, folder, files)
    return [
        figure(
            f"topic_rows_written_{size}", f"rows of a topic written, batches of {size:,}", count / written_s, "/s",
            samples=count, floor=count / floor_s,
            note=f"{whole / count:.0f} bytes a row; the floor writes and syncs the bytes alone",
        ),
        figure(f"topic_rows_read_{size}", "the same read", count / read_s, "/s", samples=count),
        figure(
            f"topic_bytes_read_{size}", "the same in bytes", whole / read_s / GIB, "GiB/s", samples=count,
            floor=whole / raw_s / GIB, note="the floor reads the same files and looks at nothing",
        ),
    ]  # fmt: skip


async def written(folder: Path, deliveries: Iterable[Delivery], size: int) -> float:
    """Write a topic's files as its driver does, so many rows in a block; gives the seconds of that alone."""
    sink = TopicSink(lambda: RealFileSystem(folder), Options(str(folder)))
    await sink.open(Source("airports", 0, bytes(16), 1, 1), 1)
    rows, took = iter(deliveries), 0.0
    while block := list(itertools.islice(rows, size)):
        began = time.perf_counter()
        await sink.deliver(block)
        took += time.perf_counter() - began
    await sink.close()
    return took


def _bare(path: Path, size: int, times: int) -> float:
    """Give the seconds in which so many bytes are written and synced so often."""
    data = os.urandom(size)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    began = time.perf_counter()
    for _ in range(times):
        os.write(descriptor, data)
        os.fdatasync(descriptor)
    took = time.perf_counter() - began
    os.close(descriptor)
    return took


def _read(folder: Path, files: list[Path]) -> tuple[float, float]:
    """Give the seconds of all rows through the reader, and of the bare bytes."""
    reader = TopicReader(folder)
    bounds = reader.bounds()
    began = time.perf_counter()
    for batch in reader.read(bounds.first, bounds.next):
        assert batch.num_rows
    between = time.perf_counter()
    for file in files:
        file.read_bytes()
    return between - began, time.perf_counter() - between
