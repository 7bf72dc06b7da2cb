"""Kubeconfigs: files that are merged as kubectl merges them, one of their contexts, and its login command.

Several files (KUBECONFIG, separated as PATH is): the first that names a cluster, user, context or the current context
counts, a file that is not there is passed over, and a relative path in a file begins at that file's folder. That is
how kubectl does it; the official Python client takes the last file's current context, goes on without credentials
where a login command fails, and waits for the command without end (design 0021).

A login command (`exec`, client.authentication.k8s.io) is run again once what it gave has expired. It may ask a person
at a terminal; without a terminal it has EXEC_TIMEOUT_S.

Guarantees: whatever is wrong with a file or a command is a NoCluster that names it. Does not: know
`auth-provider`, or a user name with a password.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from deathless_operator.cluster.connection import SERVICE_ACCOUNT, Connection, TokenFile, from_service_account
from deathless_operator.cluster.errors import NoCluster

EXEC_TIMEOUT_S = 30.0
ASKING_TIMEOUT_S = 300.0  # where a person is asked: for a second factor, or in a browser
EXPIRES_EARLY_S = 30.0  # a token is not used any more when it expires so soon: the way to the server takes time
VERSION = "client.authentication.k8s.io/v1"
WRONG = (
    OSError, yaml.YAMLError, KeyError, ValueError, TypeError, AttributeError, RecursionError,
    subprocess.SubprocessError,
)  # fmt: skip
"""What files and answers that make no sense raise."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cluster, user or context, and the folder where its relative paths begin."""

    fields: dict[str, Any]
    folder: Path


def connect(
    kubeconfig: str | None = None, context: str = "", *, environment: Mapping[str, str] | None = None
) -> Connection:
    """Return how to reach the API server.

    A named kubeconfig or context comes first, then the pod's service account, then KUBECONFIG, then ~/.kube/config.

    Args:
        kubeconfig: the file.
        context: of a kubeconfig; empty: its current one.
        environment: of this process, when not given.

    Raises:
        NoCluster: none of them is there, or the file makes no sense.
    """
    environment = os.environ if environment is None else environment
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context)
    if not context and "KUBERNETES_SERVICE_HOST" in environment and (SERVICE_ACCOUNT / "token").exists():
        return from_service_account(environment)
    named = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    files = [path for path in named or [Path.home() / ".kube" / "config"] if path.exists()]
    if not files:
        raise NoCluster("no service account is mounted, and there is no kubeconfig")
    return from_kubeconfig(files, context)


def from_kubeconfig(paths: Path | Sequence[Path], context: str = "") -> Connection:
    """Return the connection of a context.

    Args:
        paths: one file, or several to be merged.
        context: its name; empty: the current one.

    Raises:
        NoCluster: a file cannot be read, none of them is there, or the context, its cluster or its user is missing.
    """
    files = [paths] if isinstance(paths, Path) else [path for path in paths if path.exists()]
    if not files:
        raise NoCluster("there is no kubeconfig")
    merged: dict[str, dict[str, _Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = context
    for path in files:
        try:
            config = yaml.safe_load(path.read_text()) or {}
            current = current or str(config.get("current-context") or "")
            for group, inner in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
                for each in config.get(group) or ():
                    merged[group].setdefault(str(each["name"]), _Entry(dict(each.get(inner) or {}), path.parent))
        except WRONG as error:
            raise NoCluster(f"kubeconfig {path}: {type(error).__name__}: {error}") from error
    try:
        return _connection(merged, current)
    except WRONG as error:
        raise NoCluster(f"kubeconfig {files[0]}, context {current!r}: {type(error).__name__}: {error}") from error


def _connection(merged: dict[str, dict[str, _Entry]], current: str) -> Connection:
    context = _named(merged, "contexts", current).fields
    cluster = _named(merged, "clusters", str(context.get("cluster", "")))
    user = _named(merged, "users", str(context["user"])) if context.get("user") else _Entry({}, Path())
    login = Login(user.fields["exec"], user.folder) if "exec" in user.fields else None
    shown = login.certificate() if login is not None else ("", "")
    return Connection(
        server=str(cluster.fields["server"]).rstrip("/"),
        namespace=str(context.get("namespace") or "default"),
        ca_pem=_pem(cluster, "certificate-authority"),
        certificate_pem=shown[0] or _pem(user, "client-certificate"),
        key_pem=shown[1] or _pem(user, "client-key"),
        insecure=bool(cluster.fields.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.fields.get("tls-server-name") or ""),
        proxy_url=str(cluster.fields.get("proxy-url") or ""),
        token_source=_token_source(user) or login,
    )


def _named(merged: dict[str, dict[str, _Entry]], group: str, name: str) -> _Entry:
    if name not in merged[group]:
        raise KeyError(f"{group} has no {name!r}, only {', '.join(sorted(merged[group])) or 'nothing'}")
    return merged[group][name]


def _pem(entry: _Entry, key: str) -> str:
    """Return the PEM text that `key` names as a file or `key-data` holds in base64; empty when neither."""
    if entry.fields.get(f"{key}-data"):
        return base64.b64decode(str(entry.fields[f"{key}-data"])).decode()
    return (entry.folder / str(entry.fields[key])).read_text() if entry.fields.get(key) else ""


def _token_source(user: _Entry) -> Callable[[], str] | None:
    if user.fields.get("token"):
        token = str(user.fields["token"])
        return lambda: token
    return TokenFile(user.folder / str(user.fields["tokenFile"])) if user.fields.get("tokenFile") else None


@dataclass(slots=True)
class Login:
    """A kubeconfig's login command, and what it gave until that expires.

    Args:
        spec: the `exec` of the user.
        folder: where its command begins, if that is a relative path.
        wall: wall seconds; a credential expires at a moment.
    """

    spec: dict[str, Any]
    folder: Path
    wall: Callable[[], float] = time.time
    _status: dict[str, Any] = field(default_factory=dict, init=False)
    _expires_at: float = field(default=float("-inf"), init=False)

    def __call__(self) -> str:
        """Return the token to send now; empty: the command gives none. Raises: NoCluster."""
        self._log_in()
        return str(self._status.get("token") or "")

    def certificate(self) -> tuple[str, str]:
        """Return the client certificate and its key as PEM; empty: the command gives none. Raises: NoCluster."""
        self._log_in()
        found = self._status
        return str(found.get("clientCertificateData") or ""), str(found.get("clientKeyData") or "")

    def _log_in(self) -> None:
        if self.wall() < self._expires_at - EXPIRES_EARLY_S:
            return
        command = str(self.spec.get("command"))
        try:
            self._status = self._run()
            expires = self._status.get("expirationTimestamp")
            self._expires_at = datetime.fromisoformat(str(expires)).timestamp() if expires else float("inf")
        except subprocess.CalledProcessError as error:
            told = str(error.stderr or "").strip()
            hint = f" ({self.spec['installHint']})" if self.spec.get("installHint") else ""
            raise NoCluster(f"login command {command!r} ended with {error.returncode}: {told[-500:]}{hint}") from error
        except WRONG as error:
            raise NoCluster(f"login command {command!r}: {type(error).__name__}: {error}") from error

    def _run(self) -> dict[str, Any]:
        """Run the command and return the status of the ExecCredential that it prints.

        It is killed when it takes too long, and waited for. A kernel that keeps it even then keeps the person who
        called, who may interrupt that: a pod has no such command.
        """
        asks = self.spec.get("interactiveMode") != "Never" and sys.stdin.isatty() and sys.stderr.isatty()
        version = str(self.spec.get("apiVersion") or VERSION)
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": asks}}
        environment = {str(each["name"]): str(each["value"]) for each in self.spec.get("env") or ()}
        command = str(self.spec["command"])
        done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names the command
            [str(self.folder / command) if "/" in command else command, *map(str, self.spec.get("args") or ())],
            env=dict(os.environ) | environment | {"KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=None if asks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if asks else subprocess.PIPE,  # a person reads there what to do
            text=True,
            timeout=ASKING_TIMEOUT_S if asks else EXEC_TIMEOUT_S,
            check=True,
        )
        return dict(json.loads(done.stdout)["status"])
