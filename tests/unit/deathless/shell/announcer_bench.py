"""An announcer as a process of its own, beside whatever API server a test has, and our end of its line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.shell.link.standing import Fenced, Standing
from deathless.shell.pod.kubernetes_api import Place

WAIT_S = 20.0


class Announcing:
    """A process that announces replica r0 on pod `bank-0`."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket, uid: str) -> None:
        self.process = process
        self.line = line
        self._words = line.makefile("rb")
        self._standing = Standing(
            service="bank", replica="r0", instance=uid, state="running", others=("r1", "r2", "odd")
        )

    def tell(self, role: str, epoch: int = 1, **changes: object) -> None:
        """Say how the replica stands, as its supervisor does."""
        standing = msgspec.structs.replace(self._standing, role=role, epoch=epoch, **changes)
        self.line.sendall(msgspec.json.encode(standing) + b"\n")

    def hear(self) -> bool:
        """Wait for its next word: is the replica fenced?"""
        return msgspec.json.decode(self._words.readline(), type=Fenced).fenced

    def end(self) -> None:
        """End it."""
        self._words.close()
        self.line.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def announcing_at(place: Place, uid: str, folder: Path) -> Iterator[Announcing]:
    """Run an announcer for the pod with this uid."""
    fields = {"service": "bank", "module": "m:a", "directory": "d", "replica": "r0", "instance": uid}
    path = folder / "replica.json"
    path.write_bytes(msgspec.json.encode(msgspec.convert(fields, ReplicaConfig)))
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_S)
    environment = {
        "KUBERNETES_SERVICE_HOST": place.host,
        "KUBERNETES_SERVICE_PORT": str(place.port),
        "DEATHLESS_TOKEN_FILE": place.token_file,
        "DEATHLESS_CA_FILE": place.ca_file,
        "POD_NAME": "bank-0",
        "POD_NAMESPACE": place.namespace,
    }
    command = [sys.executable, "-m", "deathless.shell.pod.announcer", str(path), str(theirs.fileno()), str(os.getpid())]
    with theirs, (folder / "announcer.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), env={**os.environ, **environment}, stderr=log)
    running = Announcing(process, ours, uid)
    try:
        yield running
    finally:
        running.end()
