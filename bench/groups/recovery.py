"""Recovery: how fast a fresh replica applies a long log, without a checkpoint and without the page cache."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

import msgspec

from bench.build_log import Built
from bench.cluster import RECOVERED_S, Cluster
from bench.figures import Figure, Goal, figure
from bench.setting import Setting, build_log

MIB = 1 << 20


async def recovery(setting: Setting) -> list[Figure]:
    """1 GiB in messages of 1 KiB; in messages of 64 B."""
    size = setting.size(1024, 4) * MIB
    large, built = await _recover(setting, "put", 1024, size, 10_000)
    small, many = await _recover(setting, "add", 64, size, 10_000)
    return [
        figure(
            "recovery_1k_mb_s", f"recovery of {size // MIB} MiB of log in 1 KiB messages",
            built.log_bytes / large / 1e6, "MB/s", samples=1, goal=Goal("at least", 100),
            note=f"{built.messages:,} messages in {large:.1f} s, file cache dropped",
        ),
        figure(
            "recovery_64b_mb_s", f"recovery of {size // MIB} MiB of log in 64 B messages", many.log_bytes / small / 1e6,
            "MB/s", samples=1,
            note=f"{many.messages:,} messages in {small:.1f} s: {small / many.messages * 1e6:.1f} us each",
        ),
    ]  # fmt: skip


async def _recover(setting: Setting, handler: str, message_bytes: int, size: int, keys: int) -> tuple[float, Built]:
    folder = setting.new_folder()
    built = await build_log(folder, handler, message_bytes=message_bytes, log_bytes=size, keys=keys)
    forget_cached(folder / "shard" / "log")
    async with setting.cluster(folder, replicas=1, log_level="info", ready_s=RECOVERED_S) as cluster:
        took = recovery_s(cluster)
    shutil.rmtree(folder)
    return took, built


def forget_cached(folder: Path) -> None:
    """Drop what the kernel holds of these files in memory."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def recovery_s(cluster: Cluster) -> float:
    """Seconds between the roles `recovering` and `standby`, by the first replica's log."""
    at: dict[str, datetime] = {}
    for line in cluster.log(cluster.names[0]).read_bytes().splitlines():
        record = msgspec.json.decode(line, type=dict[str, object])
        if record.get("text") == "role":
            at.setdefault(str(record["role"]), datetime.fromisoformat(str(record["time"])))
    return max((at["standby"] - at["recovering"]).total_seconds(), 0.001)
