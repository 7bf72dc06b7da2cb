"""What a replica needs: memory idle and per million small keys; bytes of log per call."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from bench.cluster import RECOVERED_S
from bench.figures import Figure, figure, median
from bench.generator import generate
from bench.groups.calls import CLIENTS, WINDOW
from bench.load import ARGUMENTS
from bench.setting import Setting, build_log
from bench.usage import resident_bytes
from deathless.codec.frames import FrameKind, decode_data, parse_segment_name
from deathless.engine.log.segment_scan import SegmentScan
from deathless.shell.disk.filesystem import RealFileSystem

MIB = 1 << 20


async def memory(setting: Setting) -> list[Figure]:
    """Proportional set size of worker and supervisor."""
    keys = setting.size(1_000_000, 10_000)
    async with setting.cluster() as cluster:
        await asyncio.sleep(0.5)
        reports = await cluster.reports()
        workers = [resident_bytes(report.worker_pid) / MIB for report in reports.values()]
        supervisors = [resident_bytes(report.pid) / MIB for report in reports.values()]
    folder = setting.new_folder()
    await build_log(folder, "add", message_bytes=64, log_bytes=keys * 73, keys=keys)
    async with setting.cluster(folder, replicas=1, ready_s=RECOVERED_S) as cluster:
        held = resident_bytes((await cluster.primary()).worker_pid) / MIB
    idle = median(workers)
    return [
        figure(
            "memory_idle_mib", "memory of a replica, idle", idle + median(supervisors), "MiB", samples=len(workers),
            note=f"worker {idle:.0f}, supervisor {median(supervisors):.0f}; a shared page counts by its share",
        ),
        figure(
            "memory_per_million_keys_mib", "memory per million small keys", (held - idle) * 1_000_000 / keys, "MiB",
            samples=1, note=f"{keys:,} keys of 10 bytes, each with a count and an empty value",
        ),
    ]  # fmt: skip


async def log_bytes(setting: Setting) -> list[Figure]:
    """Bytes that the log grows by, per call, padding to 4 KiB blocks included."""
    seconds = setting.size(2, 1)
    figures = []
    for name, title, clients, window in (
        ("log_bytes_per_call_1_client", "bytes of log per call, 1 client", 1, 1),
        ("log_bytes_per_call_64_clients", "the same, 64 clients", CLIENTS, 1),
        ("log_bytes_per_call_pipelined", "the same, window 1,000", 1, WINDOW),
    ):
        async with setting.cluster() as cluster:
            await generate((await cluster.primary()).client, clients=clients, window=window, seconds=seconds)
            directory = cluster.directory
        calls, bare, grown = await asyncio.to_thread(_measure, directory)
        note = f"{bare / calls:.0f} without padding, of which {len(ARGUMENTS)} are arguments; {calls:,} calls"
        figures.append(figure(name, title, grown / calls, "bytes", samples=calls, note=note))
    return figures


def _measure(directory: Path) -> tuple[int, int, int]:
    """(calls, bytes of their frames, the same with padding) of a whole log."""
    fs = RealFileSystem(directory)
    calls = bare = grown = 0
    for name in sorted(fs.listing("log")):
        place = parse_segment_name(name)
        if place is None:
            continue
        with contextlib.closing(SegmentScan(fs, *place)) as scan:
            offset = index = 0
            while (found := scan.frame_at(offset, index)) is not None:
                offset, index = found.end, index + 1
                if found.frame.kind == FrameKind.DATA:
                    calls += sum(run.count for run in decode_data(found.frame).runs if run.session)
                    bare += len(found.raw)
                    grown += found.end - found.offset
    return max(calls, 1), bare, grown
