"""Where the API server is and who we are to it: a pod's service account, or a kubeconfig.

Both are read by this one module, so that our own requests and kopf's watches can never speak to two clusters.

Guarantees: a projected service account token is read again once a minute, as it is replaced about hourly; the
server's certificate is always verified unless the kubeconfig itself says not to. Does not: speak to the server,
or know the login helpers of a kubeconfig other than `exec` (which all cloud providers use today).
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deathless_operator.cluster.errors import NoCluster

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FRESH_S = 60.0
EXEC_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server and one identity."""

    server: str  # https://host:port, no slash at the end
    namespace: str = "default"  # where this process lives, or the context's namespace
    ca_pem: str = ""  # empty: the machine's own authorities
    certificate_pem: str = ""  # client certificate and
    key_pem: str = ""  # its key; both or neither
    insecure: bool = False  # the kubeconfig says not to verify
    token_source: Callable[[], str] | None = None  # asked before each request; None: no token

    def token(self) -> str:
        """Return the bearer token to send now; empty when there is none."""
        return self.token_source() if self.token_source is not None else ""

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return what aiohttp takes for `ssl`.

        A client's key must be a file for Python's ssl; it lies in a private folder for as long as it takes to read.
        """
        if not self.server.startswith("https:"):
            return False
        context = ssl.create_default_context(cadata=self.ca_pem or None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_pem:
            with tempfile.TemporaryDirectory(prefix="deathless-") as folder:
                both = Path(folder) / "client.pem"
                both.touch(mode=0o600)
                both.write_text(self.certificate_pem.rstrip() + "\n" + self.key_pem)
                context.load_cert_chain(both)
        return context


@dataclass(slots=True)
class TokenFile:
    """A token in a file that somebody else renews."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False)
    _read_at: float = field(default=float("-inf"), init=False)

    def __call__(self) -> str:
        """Return the token, at most a minute old; the last one while the file cannot be read."""
        now = self.clock()
        if now - self._read_at >= TOKEN_FRESH_S:
            try:
                self._token = self.path.read_text().strip()
                self._read_at = now
            except OSError:
                if not self._token:
                    raise
        return self._token


def connect(kubeconfig: str | None = None, *, environment: Mapping[str, str] | None = None) -> Connection:
    """Return how to reach the API server.

    A named kubeconfig comes first, then the pod's service account, then KUBECONFIG, then ~/.kube/config.

    Raises:
        NoCluster: none of them is there, or the file makes no sense.
    """
    environment = os.environ if environment is None else environment
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig))
    if "KUBERNETES_SERVICE_HOST" in environment and (SERVICE_ACCOUNT / "token").exists():
        return from_service_account(environment)
    for path in [*environment.get("KUBECONFIG", "").split(os.pathsep), str(Path.home() / ".kube" / "config")]:
        if path and Path(path).exists():
            return from_kubeconfig(Path(path))
    raise NoCluster("no service account is mounted, and there is no kubeconfig")


def from_service_account(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of a pod."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        return Connection(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            namespace=(folder / "namespace").read_text().strip(),
            ca_pem=(folder / "ca.crt").read_text(),
            token_source=TokenFile(folder / "token"),
        )
    except OSError as error:
        raise NoCluster(f"the service account's files cannot be read: {error}") from error


def from_kubeconfig(path: Path) -> Connection:
    """Return the connection of a kubeconfig's current context.

    Raises:
        NoCluster: the file cannot be read, or its context, cluster or user is missing.
    """
    try:
        config = yaml.safe_load(path.read_text()) or {}
        context = _named(config, "contexts", str(config.get("current-context", "")), "context")
        cluster = _named(config, "clusters", str(context.get("cluster", "")), "cluster")
        user = _named(config, "users", str(context["user"]), "user") if context.get("user") else {}
        server = str(cluster["server"]).rstrip("/")
        user = user | _from_command(user["exec"], path.parent) if "exec" in user else user
        return Connection(
            server=server,
            namespace=str(context.get("namespace") or "default"),
            ca_pem=_pem(cluster, "certificate-authority", path.parent),
            certificate_pem=_pem(user, "client-certificate", path.parent),
            key_pem=_pem(user, "client-key", path.parent),
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
            token_source=_token_source(user, path.parent),
        )
    except (
        OSError,
        yaml.YAMLError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        subprocess.SubprocessError,
    ) as error:
        raise NoCluster(f"kubeconfig {path}: {type(error).__name__}: {error}") from error


def _named(config: Mapping[str, Any], group: str, name: str, inner: str) -> dict[str, Any]:
    for entry in config.get(group) or ():
        if entry.get("name") == name:
            return dict(entry.get(inner) or {})
    raise KeyError(f"{group} has no {name!r}")


def _pem(entry: Mapping[str, Any], key: str, folder: Path) -> str:
    """Return the PEM text that `key` names as a file or `key-data` holds in base64; empty when neither."""
    if entry.get(f"{key}-data"):
        return base64.b64decode(str(entry[f"{key}-data"])).decode()
    return (folder / str(entry[key])).read_text() if entry.get(key) else ""


def _token_source(user: Mapping[str, Any], folder: Path) -> Callable[[], str] | None:
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    return TokenFile(folder / str(user["tokenFile"])) if user.get("tokenFile") else None


def _from_command(spec: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run a kubeconfig's login command and return what it prints as user fields (client.authentication.k8s.io).

    It is killed after EXEC_TIMEOUT_S and waited for. A kernel that keeps it even then keeps the person who called, who
    may interrupt that: a pod has no such command.
    """
    version = str(spec.get("apiVersion") or "client.authentication.k8s.io/v1")
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {str(each["name"]): str(each["value"]) for each in spec.get("env") or ()}
    done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names the command
        [str(spec["command"]), *map(str, spec.get("args") or ())],
        cwd=folder,
        env=dict(os.environ) | environment | {"KUBERNETES_EXEC_INFO": json.dumps(asked)},
        capture_output=True,
        text=True,
        timeout=EXEC_TIMEOUT_S,
        check=True,
    )
    status = json.loads(done.stdout)["status"]
    found: dict[str, Any] = {}
    if status.get("token"):
        found["token"] = status["token"]
    for theirs, ours in (("clientCertificateData", "client-certificate"), ("clientKeyData", "client-key")):
        if status.get(theirs):
            found[f"{ours}-data"] = base64.b64encode(status[theirs].encode()).decode()
    return found
