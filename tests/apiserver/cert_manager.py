"""A real cert-manager as a process: its controllers and its issuers CA and SelfSigned, without webhook and solvers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from lab import kubernetes
from real_api_server import RealApiServer, binaries


class CertManager:
    """One cert-manager, killed by pid.

    Args:
        server: where it works; gets its CRDs.
        folder: for its log.
    """

    def __init__(self, server: RealApiServer, folder: Path) -> None:
        self._server = server
        self.log = folder / "cert-manager.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = binaries("cert-manager")["cert-manager"]
        self._server.install(*sorted(kubernetes.cert_manager_crds().glob("*.yaml")))
        with self.log.open("ab") as log:
            command = [str(program), f"--kubeconfig={self._server.kubeconfig()}"]
            # It takes the kubeconfig's paths from where it runs.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._server.folder
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        ended = self._process.poll()
        self._process.kill()
        self._process.wait()
        assert ended is None, f"cert-manager ended by itself, see {self.log}"
