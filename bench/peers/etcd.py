"""etcd as a peer: one member with its default durability, loaded through its own Go client.

The server is the one that the tests use (lab/etcd.py builds it); the load is `etcd_load/main.go`, built once into the
same cache. Guarantees: the server ends with `close`. Does not: tune it. Where Go is missing one line says so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final, Self

from lab.ports import free_ports

from deathless.shell.process.forked import die_with_parent

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "bench" / "etcd_load" / "main.go"
READY_S: Final = 60.0
BUILD_S: Final = 600.0


class Missing(Exception):
    """There is no etcd here; the message is the line to print."""


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("etcd_tool", ROOT / "lab" / "etcd.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def server_binary() -> Path:
    """The server, built where it is missing. Raises: Missing."""
    tool = _tool()
    try:
        found: Path = tool.ensure()
    except (tool.GoMissing, tool.BuildFailed) as error:
        raise Missing(f"etcd left out: {str(error).splitlines()[0]}") from None
    return found


def load_binary() -> Path:
    """The load generator, built where it is missing or its source changed. Raises: Missing."""
    name = hashlib.blake2b(SOURCE.read_bytes(), digest_size=6).hexdigest()
    tool = _tool()
    target: Path = tool.binary_path().parent / f"load-{name}"
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise Missing("etcd left out: no Go compiler (`go`) on the search path to build its load generator with")
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath -buildvcs=false", "GOWORK": "off"}
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as scratch:
        shutil.copy(SOURCE, scratch)
        for arguments in (
            ("mod", "init", "deathless.invalid/load"),
            ("get", f"go.etcd.io/etcd/client/v3@v{tool.VERSION}"),
            ("build", "-ldflags", "-s -w", "-o", "load", "."),
        ):
            done = subprocess.run(
                [go, *arguments],
                cwd=scratch, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise Missing(f"etcd left out: go {arguments[0]} failed: {done.stderr.strip()[-300:]}")
        Path(scratch, "load").replace(target)
    return target


class Etcd:
    """One member.

    Args:
        folder: on the storage to be measured.

    Raises: Missing.
    """

    def __init__(self, folder: Path) -> None:
        self._server, self._load = server_binary(), load_binary()
        self._folder = folder / "etcd"
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self._url = client
        arguments = [str(self._server), "--name", "m0", "--data-dir", str(self._folder), "--log-level", "error"]
        arguments += ["--listen-client-urls", client, "--advertise-client-urls", client]
        arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        arguments += ["--initial-cluster", f"m0={peer}"]
        with (self._folder.parent / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,  # noqa: PLW1509  it calls the kernel alone
            )
        deadline = time.monotonic() + READY_S
        while not self._healthy():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.__exit__(None, None, None)
                raise Missing("etcd left out: it did not come to serve")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=1) as answer:
                return bool(json.load(answer).get("health") == "true")
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def _run(self, *arguments: str) -> dict[str, float]:
        done = subprocess.run([str(self._load), self._url, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(f"etcd left out: {done.stderr.strip()[-300:]}")
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def put(self, clients: int, seconds: float) -> dict[str, float]:
        """Puts of 64 bytes: per_second, p50_us, p99_us."""
        return self._run("put", str(clients), str(seconds))

    def takeover(self, count: int) -> dict[str, float]:
        """A key under a lease of 1 s changes its holder `count` times: p50_ms, worst_ms, granted_ttl_s."""
        return self._run("takeover", str(count))
