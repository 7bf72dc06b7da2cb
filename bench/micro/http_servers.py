"""What a HTTP server costs before a handler does anything: ours beside those one could embed instead.

Each runs in a process of its own, in an event loop of uvloop that it is embedded in, and answers the same: it reads a
JSON body of 64 bytes and gives a small JSON object. `wrk -c 64 -t 2` asks them in turns, several rounds of a few
seconds, so that all share what the machine does besides. Given are the medians: requests per second, the latency that
half and 99 of 100 requests stayed below, and the server's processor time per request, with all its threads. With
`--http2` it is `h2load -c 8 -m 8 -t 2`, in clear text by prior knowledge, which gives the mean latency instead.

    python -m bench.micro.http_servers [--http2] [--rounds 5] [--seconds 4] [--only NAME ...]

Needs wrk or h2load on the path. Servers that are not installed are left out by name. The decision that it was made
for stands in docs/design/0024-http-server.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from deathless.shell.web.http2 import Http2Connection
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request

BODY: Final = b'{"amount":5,"currency":"EUR","note":"%s"}' % (b"x" * 25)
ANSWER_HEADERS: Final = [(b"content-type", b"application/json")]
UNITS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
assert len(BODY) == 64


def answer(body: bytes) -> bytes:
    """What every handler does."""
    return msgspec.json.encode({"result": msgspec.json.decode(body)["amount"]})


# ---- the servers: each listens on a port and serves until the process is killed --------------------------------


async def deathless(port: int) -> None:
    """Ours."""

    class Handler:
        def handle(self, request: Request) -> None:
            request.respond(200, answer(request.body))

    server = HttpServer(Handler(), HttpLimits(), now=time.monotonic, wall=time.time, http2=Http2Connection)
    await server.start(f"127.0.0.1:{port}")
    await asyncio.Event().wait()


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """The handler for servers that speak ASGI."""
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":
            return
        body += part.get("body", b"")
        more = part.get("more_body", False)
    told = answer(body)
    headers = [*ANSWER_HEADERS, (b"content-length", b"%d" % len(told))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


async def uvicorn(port: int, **how: Any) -> None:
    """It parses with httptools, as we do."""
    served = import_module("uvicorn")
    common = {"port": port, "loop": "none", "lifespan": "off", "access_log": False, "log_level": "error", "ws": "none"}
    await served.Server(served.Config(asgi, **common, **(how or {"http": "httptools"}))).serve()


async def zttp(port: int) -> None:
    """Uvicorn again, with the parser (in Zig) with which it also speaks HTTP/2."""
    await uvicorn(port, http="zttp", http2=True)


async def granian(port: int) -> None:
    """Its threads, written in Rust, do the HTTP; the handler runs in our loop by RSGI."""
    embed, constants = import_module("granian.server.embed"), import_module("granian.constants")

    async def rsgi(_: Any, protocol: Any) -> None:
        protocol.response_bytes(200, [("content-type", "application/json")], answer(await protocol()))

    await embed.Server(
        rsgi, port=port, interface=constants.Interfaces.RSGI, websockets=False, log_enabled=False, backpressure=4096
    ).serve()


async def hypercorn(port: int) -> None:
    """It parses with h11, in Python."""
    served, settings = import_module("hypercorn.asyncio"), import_module("hypercorn.config")
    config = settings.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    await served.serve(asgi, config, shutdown_trigger=asyncio.Event().wait)


async def aiohttp(port: int) -> None:
    """Its lower level, without routes; it parses with llhttp, as httptools does."""
    web = import_module("aiohttp.web")

    async def handler(request: Any) -> Any:
        return web.Response(body=answer(await request.read()), content_type="application/json")

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


SERVERS: Final[dict[str, Callable[[int], Awaitable[None]]]] = {
    each.__name__: each for each in (deathless, uvicorn, zttp, granian, hypercorn, aiohttp)
}


HTTP1_ONLY: Final = ("uvicorn", "aiohttp")
Asked = Callable[[int, Path, int], dict[str, float]]


def run(name: str, pipe: Connection) -> None:
    """Run one of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipe.send(port)

    async def serve() -> None:
        await SERVERS[name](port)

    (asyncio if find_spec("uvloop") is None else import_module("uvloop")).run(serve())


# ---- the measurement -------------------------------------------------------------------------------------------


def processor_s(pid: int) -> float:
    """Processor time of a process so far, user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port: int, folder: Path, seconds: int) -> dict[str, float]:
    """Ask in HTTP/1.1; gives requests per second and latencies, and how many requests were answered."""
    script = folder / "post.lua"
    headers = 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
    script.write_text(f"{headers}wrk.body = '{BODY.decode()}'\n")
    command = ["wrk", "-c", "64", "-t", "2", "-d", f"{seconds}s", "--latency", "-s", str(script)]
    told = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise SystemExit(f"answers are missing or bad:\n{told}")
    done = re.search(r"(\d+) requests in ([\d.]+)s", told)
    p50, p99 = (re.search(rf"{share}%\s+([\d.]+)(us|ms|s)\b", told) for share in (50, 99))
    assert done and p50 and p99, told
    latencies = {"p50_ms": float(p50[1]) * UNITS[p50[2]], "p99_ms": float(p99[1]) * UNITS[p99[2]]}
    return {"requests": int(done[1]), "per_second": int(done[1]) / float(done[2]), **latencies}


def ask_http2(port: int, folder: Path, seconds: int) -> dict[str, float]:
    """Ask in HTTP/2; gives the mean latency only."""
    (folder / "body").write_bytes(BODY)
    command = ["h2load", "-c", "8", "-m", "8", "-t", "2", "-D", str(seconds), "-d", str(folder / "body")]
    command += ["-H", "content-type: application/json", f"http://127.0.0.1:{port}/"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done, mean = re.search(r"(\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", told), re.search(r"request:(.*)", told)
    assert done and mean, told
    number, unit = re.findall(r"([\d.]+)(us|ms|s)\b", mean[1])[2]
    count = int(done[1])
    return {"requests": count, "per_second": count / seconds, "mean_ms": float(number) * UNITS[unit]}


def wait_for(port: int) -> None:
    """Return once somebody listens."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nobody listens on port {port}")


def measure(names: list[str], rounds: int, seconds: int, how: Asked) -> dict[str, list[dict[str, float]]]:
    """All of them in turns; the figures of each round, and one before them that is thrown away."""
    context = multiprocessing.get_context("spawn")
    processes, found = {}, {name: list[dict[str, float]]() for name in names}
    try:
        for name in names:
            ours, theirs = context.Pipe()
            process = context.Process(target=run, args=(name, theirs), daemon=True)
            process.start()
            processes[name] = process, ours.recv()
            wait_for(processes[name][1])
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds + 1):
                for name, (process, port) in processes.items():
                    assert process.pid is not None, "it was started"
                    before = processor_s(process.pid)
                    told = how(port, Path(folder), seconds if number else 1)
                    told["processor_us"] = (processor_s(process.pid) - before) / told.pop("requests") * 1e6
                    if number:
                        found[name].append(told)
    finally:
        for process, _ in processes.values():
            process.kill()
    return found


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", nargs="*", choices=list(SERVERS), default=list(SERVERS))
    options = parser.parse_args()
    present = [name for name in options.only if find_spec(name) is not None]
    for name in options.only:
        if name not in present:
            print(f"left out, not installed: {name}", file=sys.stderr)
    if options.http2:
        present = [name for name in present if name not in HTTP1_ONLY]
    found = measure(present, options.rounds, options.seconds, ask_http2 if options.http2 else ask)
    figures = {
        name: {"version": version(name) if name != "deathless" else "this tree"}
        | {key: round(statistics.median(each[key] for each in rounds), 2) for key in rounds[0]}
        | {"per_second_of_rounds": [round(each["per_second"]) for each in rounds]}
        for name, rounds in found.items()
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
