"""Restate as a peer of forks, calls and durable steps: its server, and the same two services in Python.

One server with its defaults: a log on this disk, synced before anything counts. The services run in a process each, as
ours do, and Restate calls them over HTTP/2; clients call its ingress.

Guarantees: every message is counted at the end, exactly once. Does not: replicate, or tune anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import platform
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from lab.ports import free_ports

from bench.peers.table import Missing, cached, end, run, start, start_module, tail

VERSION: Final = "1.7.12"
MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}
NAME: Final = "Restate, one server, its default durability"
READY_S: Final = 120.0
ANSWER_S: Final = 120.0
KEYS: Final = 64
BURST: Final = 100  # sends of one handler


def server_binary() -> Path:
    """The server, fetched where it is missing. Raises: Missing."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise Missing(f"its package is for {', '.join(MACHINES)} alone")
    package = f"@restatedev/restate-server-linux-{machine}"

    def fetch(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=error")
        run("npm", "install", *options, "--prefix", str(folder), f"{package}@{VERSION}")

    return cached("restate-server", VERSION, f"node_modules/{package}/bin/restate-server", fetch)


class Restate:
    """A server with both services, reached at `ingress` (host:port)."""

    def __init__(self, ingress: str) -> None:
        self.ingress = ingress
        self._chats = 0  # of `call_rate`, with each key

    async def call(self, path: str, **arguments: int) -> Any:
        """Call a handler and wait for its reply."""
        return await asyncio.to_thread(post, f"http://{self.ingress}/{path}", arguments or None)

    async def taken(self, keys: list[str]) -> int:
        """Messages that have come, of all keys."""
        return sum(await asyncio.gather(*(self.call(f"answerer/{key}/taken") for key in keys)))

    async def send_rate(self, messages: int, size: int) -> float:
        """Messages per second, from the first call to the last message run at the receiver."""
        keys = [f"key{number}" for number in range(KEYS)]
        each = min(BURST, max(1, messages // KEYS))
        rounds = max(1, messages // KEYS // each)
        before, ran = await self.taken(keys), await self.call("watch/ran")
        expected = rounds * each * KEYS
        began = time.perf_counter()
        for _ in range(rounds):
            await asyncio.gather(*(self.call(f"asker/{key}/burst", messages=each, size=size) for key in keys))
        while await self.call("watch/ran") < ran + expected:  # noqa: ASYNC110  another process counts
            await asyncio.sleep(0.02)
        took = time.perf_counter() - began
        if await self.taken(keys) != before + expected:
            raise ValueError("messages were lost or doubled")
        return expected / took

    async def call_us(self, calls: int, size: int) -> float:
        """Microseconds of a call from service to service, one after the other."""
        await self.call("asker/one/chat", calls=calls, size=size)
        began = time.perf_counter()
        last = await self.call("asker/one/chat", calls=calls, size=size)
        if last != 2 * calls:
            raise ValueError("calls were lost or doubled")
        return (time.perf_counter() - began) * 1e6 / calls

    async def call_rate(self, outstanding: int, calls: int, size: int) -> float:
        """Calls per second from service to service, so many sagas of so many calls at once."""
        loop = asyncio.get_running_loop()
        arguments = {"calls": calls, "size": size}

        async def chats() -> None:
            urls = [f"http://{self.ingress}/asker/at{number}/chat" for number in range(outstanding)]
            told = await asyncio.gather(*(loop.run_in_executor(pool, post, url, arguments) for url in urls))
            self._chats += 1
            if told != [self._chats * calls] * outstanding:
                raise ValueError("calls were lost or doubled")

        with ThreadPoolExecutor(outstanding) as pool:
            await chats()
            began = time.perf_counter()
            await chats()
            return outstanding * calls / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Restate]:
    """A server with both services. Raises: Missing."""
    if any(importlib.util.find_spec(name) is None for name in ("restate", "hypercorn")):
        raise Missing("restate-sdk or hypercorn is not installed")
    binary = server_binary()
    home = folder / f"restate-{time.monotonic_ns()}"
    home.mkdir()
    log = home / "log"
    ingress, admin, fabric = free_ports(3)
    async with contextlib.AsyncExitStack() as stack:
        server = await start(
            str(binary), "--node-name", "bench", "--base-dir", str(home / "data"), "--no-logo", log=log,
            RESTATE_LISTEN_MODE="tcp", RESTATE_BIND_IP="127.0.0.1", RESTATE_BIND_PORT=str(fabric),
            RESTATE_INGRESS__BIND_PORT=str(ingress), RESTATE_ADMIN__BIND_PORT=str(admin),
            RESTATE_DISABLE_TELEMETRY="true", RESTATE_LOG_FILTER="warn",
        )  # fmt: skip
        stack.push_async_callback(end, server)
        for name in ("answerer", "asker"):
            process, port = await start_module("bench.peers.restate_services", name, log=log)
            stack.push_async_callback(end, process)
            await _register(f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{port}", log, server)
        restate = Restate(f"127.0.0.1:{ingress}")
        await _answered(restate, log, server)
        yield restate


async def sends(folder: Path, *, messages: int, size: int) -> float:
    """One-way sends per second, from service to service. Raises: Missing."""
    async with serving(folder) as restate:
        await restate.send_rate(KEYS, size)
        return await restate.send_rate(messages, size)


async def calls_us(folder: Path, *, calls: int, size: int) -> float:
    """Microseconds of a call from service to service, one outstanding. Raises: Missing."""
    async with serving(folder) as restate:
        return await restate.call_us(calls, size)


async def calls_per_s(folder: Path, *, outstanding: int, calls: int, size: int) -> float:
    """Calls per second from service to service, many outstanding. Raises: Missing."""
    async with serving(folder) as restate:
        return await restate.call_rate(outstanding, calls, size)


async def _register(admin: str, service: str, log: Path, server: asyncio.subprocess.Process) -> None:
    """Make a service known; the server may not have come up yet, nor the service."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            await asyncio.to_thread(post, admin, {"uri": service})
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline or server.returncode is not None:
                raise Missing(f"no service could be registered: {error}; {tail(log)}") from None
            await asyncio.sleep(0.1)
        else:
            return


async def _answered(restate: Restate, log: Path, server: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            await restate.call("asker/warm/step", number=1)
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline or server.returncode is not None:
                raise Missing(f"it does not answer: {error}; {tail(log)}") from None
            await asyncio.sleep(0.1)
        else:
            return


def post(url: str, body: Any) -> Any:
    """Send JSON, and give the JSON of the answer. Raises: OSError; ValueError with what an error says."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            told = answer.read()
    except urllib.error.HTTPError as refused:
        raise ValueError(f"{url}: {refused.code} {refused.read()[:200]!r}") from None
    return json.loads(told) if told else None
