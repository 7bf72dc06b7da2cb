"""The load generator of the figures, in a process of its own: compiled where Go is there, else `bench.load`.

PostgreSQL is loaded by pgbench and etcd by its Go client, both compiled; on a machine whose cores the generator shares
with the replicas, a generator in Python would measure itself. `wire_load/main.go` sends the same bytes as `bench.load`,
which gives them to it. It is built once into the cache that holds the tests' etcd.

Guarantees: `name` says which one runs. Does not: measure.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from bench.load import Load, Messages, hello
from deathless.shell.process.forked import die_with_parent

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "bench" / "wire_load" / "main.go"
BUILD_S: Final = 300.0


class Given(msgspec.Struct):
    """What the compiled generator is told on its standard input."""

    hello: bytes
    messages: list[bytes]


@functools.cache
def compiled() -> Path | None:
    """The compiled generator, built where it is missing or its source changed; None: no Go, or it can't build it."""
    digest = hashlib.blake2b(SOURCE.read_bytes(), digest_size=6).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deathless"
    target = cache / f"wire-load-{digest}"
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-trimpath -buildvcs=false"}
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as scratch:
        built = Path(scratch, "load")
        done = subprocess.run(
            [go, "build", "-ldflags", "-s -w", "-o", str(built), str(SOURCE)],
            cwd=scratch, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            print(f"bench/wire_load: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
        built.replace(target)
    return target


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
