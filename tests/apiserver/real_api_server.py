"""A real kube-apiserver on a real etcd, without nodes: loopback, free ports, data in a folder, killed by pid.

    with RealApiServer(folder) as server:
        server.kill(); server.start(); server.wait_ready()

Users are tokens: `admin` may do everything; each other one of `TOKENS` only what a test binds to it, which is how the
roles of the chart are tried. Nothing moves here that a controller would move: no StatefulSet gets pods.

Binaries are those of lab/kubernetes.py; where they can't be had the tests are left out with its one line.
"""

from __future__ import annotations

import functools
import http.client
import json
import signal
import ssl
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from etcd_server import READY_WITHIN_S, wait_until
from lab import kubernetes
from lab.ports import free_ports

from deathless_operator.cluster.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {
    "admin": "system:masters",
    "operator": "operators",
    "deathless-lock-users": "lock-users",
    "nobody": "nobodies",
}


@functools.cache
def binaries(*names: str) -> dict[str, Path]:
    """Return binaries, built on first use; skips the test where they can't be had."""
    try:
        return kubernetes.ensure(*names)
    except kubernetes.GoMissing as missing:
        pytest.skip(str(missing))


@functools.cache
def monitoring_kinds() -> Path:
    """Return the folder with the prometheus-operator's CRDs, fetched on first use; skips where they can't be had."""
    try:
        return kubernetes.prometheus_operator_crds()
    except kubernetes.GoMissing as missing:
        pytest.skip(str(missing))


class RealApiServer:
    """One API server and its etcd.

    Args:
        folder: for data, keys and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, etcd_port, peer_port = free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{etcd_port}"
        self._peer_url = f"http://127.0.0.1:{peer_port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._write_keys()
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))

    def __enter__(self) -> Self:
        self.start_etcd()
        self.start()
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)

    def _write_keys(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.crt")
        served = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
        served.private_key_pem.write_to_path(self.folder / "server.key")
        (self.folder / "server.crt").write_bytes(b"".join(part.bytes() for part in served.cert_chain_pems))
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / "accounts.key").write_bytes(pem)
        lines = [f'{user}-token,{user},{user},"{group}"' for user, group in TOKENS.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    # ------------------------------------------------------------ processes

    def start_etcd(self) -> None:
        """Start etcd on its data."""
        self._start(
            "etcd",
            [
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self._etcd_url}",
                f"--advertise-client-urls={self._etcd_url}",
                f"--listen-peer-urls={self._peer_url}",
                f"--initial-advertise-peer-urls={self._peer_url}",
                f"--initial-cluster=default={self._peer_url}",
                "--unsafe-no-fsync",
            ],
        )

    def start(self) -> None:
        """Start the API server; see `wait_ready`."""
        folder = self.folder
        self._start(
            "kube-apiserver",
            [
                f"--etcd-servers={self._etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--tls-cert-file={folder / 'server.crt'}",
                f"--tls-private-key-file={folder / 'server.key'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'accounts.key'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=none",
                "--profiling=false",
            ],
        )

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(binaries("kube-apiserver", "etcd")[name]), *arguments]
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str = "kube-apiserver") -> None:
        """kill -9, and wait until the process is gone; its port refuses from then on."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self, name: str = "kube-apiserver") -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str = "kube-apiserver") -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """kill -9 and start anew, on the same data and port."""
        self.kill()
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the API server serves."""
        wait_until(self._is_ready, f"the API server is ready, see {self.folder}/kube-apiserver.log", poll_s=0.1)

    def _is_ready(self) -> bool:
        try:
            return bool(self.request("GET", "/readyz", raw=True) == b"ok")
        except OSError:
            return False

    # ------------------------------------------------------------ clients

    def connection(self, user: str = "admin") -> Connection:
        """Return the connection of a user."""
        return Connection(
            server=f"https://127.0.0.1:{self.port}",
            ca_pem=(self.folder / "ca.crt").read_text(),
            token_source=lambda: f"{user}-token",
        )

    def kubeconfig(self, user: str = "admin") -> Path:
        """Write and return the kubeconfig of a user."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": "ca.crt"},
                }
            ],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def request(self, method: str, path: str, body: object = None, *, content: str = "", raw: bool = False) -> Any:
        """Send one request as admin, past the client under test. Raises OSError; refusals are AssertionErrors."""
        status, data = self._send("admin", method, path, body, content)
        if raw:
            return data
        assert status < 400, f"{method} {path}: {status} {data[:2000]!r}"
        return json.loads(data)

    def request_as(self, user: str, method: str, path: str) -> bytes:
        """Send one request as another user, and return what is answered, a refusal too."""
        return self._send(user, method, path, None, "")[1]

    def answer_to(self, user: str, method: str, path: str, body: object = None, content: str = "") -> tuple[int, bytes]:
        """Send one request as another user, and return status and body, of a refusal too."""
        return self._send(user, method, path, body, content)

    def _send(self, user: str, method: str, path: str, body: object, content: str) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=READY_WITHIN_S, context=self._context)
        try:
            headers = {"Authorization": f"Bearer {user}-token", "Content-Type": content or "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def install(self, *paths: Path) -> None:
        """Apply the manifests of YAML files, which must be CustomResourceDefinitions, and wait until they serve."""
        for path in paths:
            for manifest in yaml.safe_load_all(path.read_text()):
                self._install_one(manifest)

    def _install_one(self, manifest: dict[str, Any]) -> None:
        name, base = manifest["metadata"]["name"], "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        query = "?fieldManager=test&force=true"
        self.request("PATCH", f"{base}/{name}{query}", manifest, content="application/apply-patch+yaml")
        spec = manifest["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        deadline = time.monotonic() + READY_WITHIN_S
        while b'"items"' not in self.request("GET", served, raw=True):
            assert time.monotonic() < deadline, f"{name} is not served"


class Reached:
    """An API server as pages' commands reach it, see tests/cluster/pages.py."""

    def __init__(self, server: RealApiServer) -> None:
        self.kubeconfig = server.kubeconfig()
        self.binaries = binaries("kubectl")
