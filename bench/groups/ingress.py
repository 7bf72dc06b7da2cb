"""The HTTP ingress under `wrk`: 64 keep-alive connections, POSTs with JSON arguments of 64 bytes."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Final

from bench.figures import Figure, Goal, figure, median
from bench.setting import Setting

CONNECTIONS: Final = 64
READY_S: Final = 20.0
MISSING: Final = "left out: wrk is not installed (Debian: apt-get install wrk)"
# {"amount": 1, "note": "..."} of 64 bytes; one of 1,000 keys per request; no Idempotency-Key, so the ingress mints one.
SCRIPT: Final = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"amount": 1, "note": "' .. string.rep("x", 39) .. '"}'
local number = 0
request = function()
  number = (number * 1103515245 + 12345) % 2147483648
  return wrk.format(nil, string.format("/bench/key%04d/add", math.floor(number / 65536) % 1000))
end
"""


async def http(setting: Setting) -> list[Figure]:
    """Requests per second and their p99."""
    goals = (Goal("at least", 5000), Goal("at most", 20))
    wrk = shutil.which("wrk")
    if wrk is None:
        setting.say(f"http {MISSING}")
        return [
            figure("http_64_per_s", "HTTP ingress, 64 connections", None, "requests/s", goal=goals[0], note=MISSING)
        ]
    script = setting.folder / "post.lua"
    script.write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    rounds, seconds = setting.size(5, 1), setting.size(4, 1)
    rates, tails, errors, requests = [], [], 0, 0
    async with setting.cluster(ingress=f"127.0.0.1:{port}") as cluster:
        await _wait_ready(port)
        await _run(wrk, script, port, 1)
        for _ in range(rounds):
            async with setting.profiled(cluster, "http"):
                output = await _run(wrk, script, port, seconds)
            rates.append(float(_find(r"Requests/sec:\s+([\d.]+)", output)))
            tails.append(_milliseconds(_find(r"99%\s+([\d.]+\w+)", output)))
            requests += int(_find(r"(\d+) requests in", output))
            bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
            errors += int(bad[1]) if bad else 0
    note = f"{errors} answers were no 200" if errors else "all answers 200"
    return [
        figure(
            "http_64_per_s", "HTTP ingress, 64 keep-alive connections", median(rates), "requests/s",
            samples=requests, goal=goals[0], note=f"load: wrk; {note}",
        ),
        figure("http_64_p99_ms", "the same, p99", median(tails), "ms", samples=requests, goal=goals[1]),
    ]  # fmt: skip


async def _wait_ready(port: int) -> None:
    def look() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    deadline = time.monotonic() + READY_S
    while not await asyncio.to_thread(look):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ingress was not ready within {READY_S:g} s")
        await asyncio.sleep(0.05)


async def _run(wrk: str, script: Path, port: int, seconds: int) -> str:
    process = await asyncio.create_subprocess_exec(
        wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script), f"http://127.0.0.1:{port}",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return output.decode()


def _find(pattern: str, output: str) -> str:
    found = re.search(pattern, output)
    if found is None:
        raise ValueError(f"wrk said nothing of {pattern!r}: {output[-500:]}")
    return found[1]


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()  # type: ignore[union-attr]  # wrk's own format
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}[unit]
