"""The few requests a replica makes of its cluster's API server: get, patch and watch single pods.

By the standard library alone, with one kept connection per user: a patch on an open connection takes milliseconds.
Token and authority are files that Kubernetes renews, so they are read again for each request and each connection.

Guarantees: every request ends within its time; no answer above ANSWER_BYTES_MAX is held or decoded; a kept connection
that has gone stale costs one more attempt, not an error. Does not: retry beyond that, list (the Role of a replica names
its pods). Imports msgspec only.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from deathless.codec.untrusted import read_json

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_S: Final = 3.0  # of one request
WATCH_S: Final = 30  # the server ends a watch after this; a new one begins
WATCH_SILENCE_S: Final = 40.0  # a watch that is silent for longer has lost its server
ANSWER_BYTES_MAX: Final = 4 << 20  # a pod, or one event of a watch; etcd keeps objects of at most 1.5 MiB
MERGE: Final = "application/merge-patch+json"


class ApiError(Exception):
    """The server refused.

    Args:
        status: of HTTP.
        text: what it said.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server is and how it knows us."""

    host: str
    port: int
    namespace: str
    token_file: str = f"{ACCOUNT}/token"
    ca_file: str = f"{ACCOUNT}/ca.crt"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Place:
        """As every pod is told. Raises: KeyError naming the variable that is missing."""
        return cls(
            environment["KUBERNETES_SERVICE_HOST"],
            int(environment.get("KUBERNETES_SERVICE_PORT_HTTPS") or environment["KUBERNETES_SERVICE_PORT"]),
            environment["POD_NAMESPACE"],
            environment.get("DEATHLESS_TOKEN_FILE", f"{ACCOUNT}/token"),
            environment.get("DEATHLESS_CA_FILE", f"{ACCOUNT}/ca.crt"),
        )


class Api:
    """One user's connection; not shared between threads.

    Args:
        place: where the server is.
        timeout_s: of one request.
    """

    def __init__(self, place: Place, timeout_s: float = TIMEOUT_S) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._kept: http.client.HTTPSConnection | None = None

    def get_pod(self, name: str) -> dict[str, object]:
        """Give a pod. Raises: ApiError, OSError, http.client.HTTPException."""
        return self._request("GET", name)

    def patch_pod(self, name: str, patch: Mapping[str, object]) -> dict[str, object]:
        """Merge a patch into a pod; gives the pod. Raises: as `get_pod`."""
        return self._request("PATCH", name, msgspec.json.encode(patch))

    def watch_pod(self, name: str) -> Iterator[dict[str, object]]:
        """Give one pod as it is, then its changes, until the server ends the watch.

        It starts at no version of ours: a pod's own version may be older than what the server keeps (410, for ever).

        Raises: as `get_pod`; TimeoutError when the server is silent for longer than it may be.
        """
        asked = {
            "watch": "1",
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": str(WATCH_S),
        }
        connection = self._connect(WATCH_SILENCE_S)
        try:
            connection.request("GET", f"{self._path('')}?{urlencode(asked)}", headers=self._headers())
            with connection.getresponse() as response:
                if response.status >= 400:
                    raise ApiError(response.status, _whole(response).decode(errors="replace"))
                while line := response.readline(ANSWER_BYTES_MAX + 1):
                    if len(line) > ANSWER_BYTES_MAX:
                        raise _too_long(response)
                    if line.strip():
                        yield read_json(line, dict[str, object])
        finally:
            connection.close()

    def close(self) -> None:
        """Drop the kept connection."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _request(self, method: str, name: str, body: bytes | None = None) -> dict[str, object]:
        fresh = self._kept is None
        try:
            return self._exchange(method, name, body)
        except (OSError, http.client.HTTPException):
            self.close()
            if fresh:
                raise
        return self._exchange(method, name, body)

    def _exchange(self, method: str, name: str, body: bytes | None) -> dict[str, object]:
        connection = self._kept = self._kept or self._connect(self._timeout_s)
        headers = self._headers() if body is None else {**self._headers(), "Content-Type": MERGE}
        connection.request(method, self._path(name), body=body, headers=headers)
        response = connection.getresponse()
        try:
            content = _whole(response)
        except ApiError:
            self.close()  # the rest of it would be the next answer
            raise
        if response.status >= 400:
            raise ApiError(response.status, content.decode(errors="replace"))
        return read_json(content, dict[str, object])

    def _path(self, name: str) -> str:
        tail = f"/{name}" if name else ""
        return f"/api/v1/namespaces/{self._place.namespace}/pods{tail}"

    def _headers(self) -> dict[str, str]:
        token = Path(self._place.token_file).read_text().strip()
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._place.ca_file)
        connection = http.client.HTTPSConnection(
            self._place.host.strip("[]"), self._place.port, timeout=timeout_s, context=context
        )
        connection.connect()
        assert connection.sock is not None, "connect gives a socket or raises"
        # A server that is gone without a word is noticed in seconds, not when the watch would have ended.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _whole(response: http.client.HTTPResponse) -> bytes:
    """Give the body of an answer. Raises: ApiError for one above ANSWER_BYTES_MAX."""
    content = response.read(ANSWER_BYTES_MAX + 1)
    if len(content) > ANSWER_BYTES_MAX:
        raise _too_long(response)
    return content


def _too_long(response: http.client.HTTPResponse) -> ApiError:
    return ApiError(
        response.status,
        f"the answer has more than {ANSWER_BYTES_MAX} bytes; see who answers at KUBERNETES_SERVICE_HOST",
    )
