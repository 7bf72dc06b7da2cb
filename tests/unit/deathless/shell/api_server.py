"""A small API server for tests: pods that can be read, merged into and watched, over TLS, with a token.

It keeps what the real one keeps here: resource versions, refusal of a patch for another uid or an old version, watches
that begin after a version. It can be silent, refuse, or be gone.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

from deathless.shell.pod.kubernetes_api import Place

NAMESPACE = "rt"
TOKEN = "a token"
Pod = dict[str, Any]


class ApiServer:
    """Pods of one namespace; `address` is where it listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        leaf = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(folder / "ca.crt")
        (folder / "token").write_text(TOKEN + "\n")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(self._context)
        self.pods: dict[str, Pod] = {}
        self.requests: list[tuple[str, str]] = []  # (method, pod)
        self.changed = threading.Condition()
        self.refuse = 0  # status that everything is answered with; 0: as it should be
        self.forbidden: set[str] = set()
        self.conflicts = 0  # so many patches are refused first
        self.watch_ends: bytes | None = None  # what a watch gives before it ends at once; None: it goes on
        self._version = 0
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.connections: list[ssl.SSLSocket] = []

    def start(self) -> None:
        """Listen, at the same address as before."""
        outer = self

        class Handler(_Handler):
            api = outer

        server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        server.daemon_threads = True
        server.socket = self._context.wrap_socket(server.socket, server_side=True)
        self._port = server.server_port
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Be gone, with all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()
        with self.changed:
            self.changed.notify_all()

    @property
    def running(self) -> bool:
        """Does it listen?"""
        return self._server is not None

    @property
    def place(self) -> Place:
        """How a replica finds it."""
        return Place("127.0.0.1", self._port, NAMESPACE, str(self.folder / "token"), str(self.folder / "ca.crt"))

    def put(self, name: str, uid: str = "", **annotations: str) -> None:
        """Make a pod."""
        metadata = {"name": name, "uid": uid or f"uid-{name}", "labels": {}, "annotations": annotations}
        with self.changed:
            self.pods[name] = {"metadata": metadata}
            self._touch(name)

    def merge(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a pod, as somebody else does."""
        with self.changed:
            self.pods[name] = merged(self.pods[name], patch)
            self._touch(name)

    def _touch(self, name: str) -> None:
        self._version += 1
        self.pods[name] = merged(self.pods[name], {"metadata": {"resourceVersion": str(self._version)}})
        self.changed.notify_all()

    def label(self, name: str, label: str = "deathless.dev/role") -> str | None:
        """Give a label of a pod."""
        found: str | None = self.pods[name]["metadata"]["labels"].get(label)
        return found

    def wait(self, wanted: Any) -> None:
        """Wait until something holds of the pods."""
        with self.changed:
            assert self.changed.wait_for(wanted, 20), self.pods


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7386)."""
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = value
    return result


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.api.connections.append(self.connection)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _say(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _name(self) -> str | None:
        """The pod that is asked for; None: the request was answered."""
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        name = urlsplit(self.path).path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/pods").strip("/")
        with self.api.changed:
            self.api.requests.append((self.command, name))
            self.api.changed.notify_all()
        status = self.api.refuse or (403 if name in self.api.forbidden else 0)
        if self.headers.get("Authorization") != f"Bearer {(self.api.folder / 'valid').read_text()}":
            status = 401
        if not status and name and name not in self.api.pods:
            status = 404
        if status:
            self._say(status, {"kind": "Status", "code": status})
            return None
        return name

    def do_GET(self) -> None:
        name = self._name()
        if name is None:
            return
        asked = parse_qs(urlsplit(self.path).query)
        if "watch" in asked:
            self._watch(asked["fieldSelector"][0].removeprefix("metadata.name="))
        else:
            self._say(200, self.api.pods[name])

    def do_PATCH(self) -> None:
        name = self._name()
        if name is None:
            return
        patch = json.loads(self.body)
        api = self.api
        with api.changed:
            now, wanted = api.pods[name]["metadata"], patch["metadata"]
            differs = any(field in wanted and wanted[field] != now[field] for field in ("uid", "resourceVersion"))
            api.conflicts, refused = max(api.conflicts - 1, 0), api.conflicts > 0
            if not (differs or refused):
                api.pods[name] = merged(api.pods[name], patch)
                api._touch(name)
        self._say(409 if differs or refused else 200, api.pods[name])

    def _watch(self, name: str) -> None:
        version, change = 0, "ADDED"  # no version asked for: what is there comes first
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        api = self.api
        if api.watch_ends is not None:
            self.wfile.write(api.watch_ends)
            return
        while api.running:
            with api.changed:
                if seen(api, name) <= version:
                    api.changed.wait(0.5)
                pod = api.pods.get(name)
            if pod is not None and seen(api, name) > version:
                version = seen(api, name)
                try:
                    self.wfile.write(json.dumps({"type": change, "object": pod}).encode() + b"\n")
                except OSError:
                    return
                change = "MODIFIED"


def seen(api: ApiServer, name: str) -> int:
    """The version of a pod."""
    return int(api.pods[name]["metadata"]["resourceVersion"]) if name in api.pods else 0


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """One that runs."""
    api = ApiServer(folder)
    (folder / "valid").write_text(TOKEN)
    api.start()
    try:
        yield api
    finally:
        api.stop()
