"""The load generator of the figures, in a process of its own: compiled where Go is there, else `bench.load`.

PostgreSQL is loaded by pgbench and etcd by its Go client, both compiled; on a machine whose cores the generator shares
with the replicas, a generator in Python would measure itself. `wire_load/main.go` sends the same bytes as `bench.load`,
which gives them to it. It is built once into the cache that holds the tests' etcd.

Guarantees: `name` says which one runs. Does not: measure.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
from lab.go_programs import GoBuildFailed, built

from bench.load import Load, Messages, hello
from deathless.shell.process.forked import die_with_parent

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "bench" / "wire_load" / "main.go"


class Given(msgspec.Struct):
    """What the compiled generator is told on its standard input."""

    hello: bytes
    messages: list[bytes]


def compiled() -> Path | None:
    """The compiled generator; None: there is no Go, or it can't build it."""
    try:
        return built("wire-load", SOURCE)
    except GoBuildFailed as error:
        print(error, file=sys.stderr)
        return None


def name() -> str:
    """Which generator runs, for the notes."""
    return "`bench/wire_load` (Go)" if compiled() is not None else "`bench.load` (Python; no Go to build the other)"


async def generate(
    address: str,
    *,
    clients: int,
    window: int,
    seconds: float,
    service: str = "bench",
    messages: list[bytes] | None = None,
) -> Load:
    """Run it.

    Args:
        address: client port of a primary.
        clients: sessions, each on a connection of its own.
        window: calls of one on their way.
        seconds: for so long.
        service: whom it greets, or the name of a shard.
        messages: CALLs of one length, which only the compiled one takes; None: those of `bench.load`.

    Raises: RuntimeError with what it wrote.
    """
    binary, given = compiled(), b""
    if binary is None and messages is not None:
        raise RuntimeError("load generator: without Go it sends its own messages alone")
    if binary is None:
        command = [sys.executable, "-m", "bench.load", address]
        command += ["--clients", str(clients), "--window", str(window), "--seconds", str(seconds)]
    else:
        command = [str(binary), address, str(clients), str(window), str(seconds)]
        given = msgspec.json.encode(Given(hello(service), messages or Messages().all))
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    output, errors = await process.communicate(given)
    if process.returncode != 0:
        raise RuntimeError(f"load generator: {errors.decode(errors='replace')[-500:]}")
    return msgspec.json.decode(output, type=Load)
