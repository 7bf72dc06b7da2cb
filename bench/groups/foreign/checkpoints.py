"""Checkpoints of programs by the size of their state: how fast they come through the socket, and the memory that takes.

The time is that of the checkpoint's file: from when it is begun, behind the first bytes of the checkpoint, to when it
is durable and has its name. So it has the program's own time to write, the socket, the checksum and the disk in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Final

from bench.figures import Figure, Goal, figure
from bench.groups.foreign.services import FILL, READ, Loaded, language, loaded
from bench.setting import Setting
from deathless.foreign.checkpoints import PREFIX

MIB: Final = 1 << 20
SIZES: Final = (16, 256, 2048)  # MiB
PIECE_BYTES: Final = 1 << 20
LOOK_S: Final = 0.002
SETTLE_S: Final = 0.5
WAIT_S: Final = 300.0
EVERY_ROWS: Final = 2
ROWS_UNTIL_DUE: Final = 4 * EVERY_ROWS + 2


async def foreign_checkpoints(setting: Setting) -> list[Figure]:
    """One service with one replica for each size; the floor does the same work without anything else."""
    found: list[Figure] = []
    for full in SIZES:
        size = setting.size(full, max(1, full // 256)) * MIB
        async with loaded(setting, "program", checkpoint_rows=EVERY_ROWS) as one:
            for _ in range(ROWS_UNTIL_DUE):  # until one of nothing was taken, all is loaded that is ever needed
                await one.call(READ)
            await asyncio.sleep(SETTLE_S)
            base = one.cluster.host_peak_bytes()
            rate = await _rate(one, size)
            more = one.cluster.host_peak_bytes() - base
        floor = await asyncio.to_thread(_floor, setting.folder / "floor", size)
        written = f"{size // MIB:,} MiB of state"
        found += [
            figure(
                f"foreign_checkpoint_{full}_mib_s", f"checkpoint of a program with {written}", rate / MIB, "MiB/s",
                samples=1, floor=floor / MIB, goal=Goal("at least", 500.0),
                note=f"{language()}; the floor sends the bytes over loopback, hashes them and writes and syncs a file",
            ),
            figure(
                f"foreign_checkpoint_{full}_memory", f"memory of the process beside the replica for {written}: most",
                more / MIB, "MiB", samples=1, goal=Goal("at most", 100.0),
                note=f"above {base / MIB:.0f} MiB before the first of these checkpoints",
            ),
        ]  # fmt: skip
    return found


async def _rate(one: Loaded, size: int) -> float:
    """Bytes per second of a checkpoint of this size."""
    folder = one.cluster.directory / "application"
    looking = asyncio.create_task(asyncio.to_thread(_watched, folder, size))
    await one.call(FILL, size.to_bytes(8, "little"))
    for _ in range(ROWS_UNTIL_DUE):
        await one.call(READ)
    return await looking


def _watched(folder: Path, size: int) -> float:
    """Bytes per second of the first file of so many bytes: from its begin to its name."""
    deadline = time.monotonic() + WAIT_S
    began: float | None = None
    while time.monotonic() < deadline:
        for path in list(folder.iterdir()):
            try:
                whole = path.stat().st_size >= size
            except FileNotFoundError:
                continue
            if whole and path.name.startswith(PREFIX):
                if began is None:
                    raise ValueError("a checkpoint was written before it was looked for")
                return size / (time.perf_counter() - began)
            if whole and began is None:
                began = time.perf_counter()
        time.sleep(LOOK_S)
    raise TimeoutError(f"no checkpoint of {size} bytes within {WAIT_S:g} s: {os.listdir(folder)}")


def _floor(path: Path, size: int) -> float:
    """Bytes per second through a socket of the loopback, a checksum and a file that is synced."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname()[1], size))
        sender.start()
        connection, _ = server.accept()
        digest, piece = hashlib.blake2b(), bytearray(PIECE_BYTES)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.posix_fallocate(descriptor, 0, size)
        began = time.perf_counter()
        with connection:
            while count := connection.recv_into(piece):
                part = memoryview(piece)[:count]
                os.write(descriptor, part)
                digest.update(part)
        os.fsync(descriptor)
        took = time.perf_counter() - began
        os.close(descriptor)
        sender.join()
        path.unlink()
    return size / took


def _send(port: int, size: int) -> None:
    piece = bytes(PIECE_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(size // PIECE_BYTES):
            connection.sendall(piece)
