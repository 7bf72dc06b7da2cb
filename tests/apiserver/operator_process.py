"""The operator under test: in this process on a thread's own loop, or as a process of its own that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from etcd_server import READY_WITHIN_S, wait_until
from lab.ports import free_ports
from real_api_server import ROOT, RealApiServer


class OperatorProcess:
    """`deathless-operator run` as a process.

    Args:
        server: where it works.
        folder: for its log.
        namespace: where it lives.
        arguments: further options.
        user: whose token it has.
    """

    def __init__(
        self, server: RealApiServer, folder: Path, namespace: str, *arguments: str, user: str = "admin"
    ) -> None:
        health, metrics = free_ports(2)
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        self._health_url = f"http://127.0.0.1:{health}"
        self.log = folder / f"operator-{health}.log"
        command = [sys.executable, "-m", "deathless_operator.cli.main", "run", f"--namespace={namespace}"]
        command += [f"--kubeconfig={server.kubeconfig(user)}", f"--health-port={health}", f"--metrics-port={metrics}"]
        command += ["--retry-seconds=0.2", "--log-level=info", *arguments]
        path = os.pathsep.join(str(ROOT / part) for part in ("operator", "runtime"))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ) | {"PYTHONPATH": path}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels; 0 while the process answers nothing."""
        try:
            with urllib.request.urlopen(self.metrics_url, timeout=READY_WITHIN_S) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        found = [line.rpartition(" ")[2] for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(map(float, found))

    def get(self, path: str) -> int:
        """Return the status of a health path; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self._health_url + path, timeout=READY_WITHIN_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_leading(self) -> None:
        """Wait until this process leads."""
        wait_until(lambda: self.metric("deathless_operator_leader") == 1, f"the operator leads, see {self.log}")

    def end(self) -> int:
        """Tell it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
