"""A front door of a service for the plugin's tests, which the test answers for, without a kubectl before it.

Guarantees: what is asked is noted in `seen`, in order. Does not: check tokens.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, ApiServer, api_server

from deathless_operator.cli import plugin_cluster, plugin_operators

Answer = Callable[[str, str, Any], Any]
"""Gives the value of an answer for a method, a path and a body."""


class Served:
    """An API server with one service, and that service's front door."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.seen: list[tuple[str, str, Any]] = []
        self.status = 200
        self.answer: Answer = lambda _method, _path, _body: None

    def put(self, service: str, **spec: Any) -> None:
        """Store a service with the token of its operators."""
        whole = {"module": "m:m", "image": "i:1", "logStorage": {"claimName": "log"}, "tls": {"issuer": "Off"}, **spec}
        self.server.put(f"{SERVICES}/{service}", spec=whole)
        token = base64.b64encode(b"operators-0123456789").decode()
        self.server.put(f"/api/v1/namespaces/ns/secrets/{service}-operator-token", data={"token": token})


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve both while the block runs."""
    with api_server(folder) as (server, kubeconfig):
        found = Served(server)

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                asked = self.command, self.path, json.loads(body) if body else None
                found.seen.append(asked)
                answer = json.dumps(found.answer(*asked)).encode()
                self.send_response(found.status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = _serve  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Say nothing."""

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        port = http.server_address[1]

        @asynccontextmanager
        async def forwarded(namespace: str, _service: str, _timeout_s: float) -> AsyncIterator[int]:
            assert namespace == "ns"
            yield port

        for module in (plugin_cluster, plugin_operators):
            monkeypatch.setattr(module, "forwarded", forwarded)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        try:
            yield found
        finally:
            http.shutdown()
            thread.join()
            http.server_close()
