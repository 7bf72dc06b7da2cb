"""One request, with the activity's key, to a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deathless.base.errors import InvalidArgument
from deathless.drivers.activity import HttpAnswer, http_request
from deathless.execution.turn import activity_call
from deathless.execution.turn.activity_call import ActivityCall
from deathless.sdk import Service, Struct

GOT: list[tuple[str, str, bytes, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    """Keeps what came; a redirect for the path /moved."""

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        GOT.append((self.command, self.path, body, dict(self.headers)))
        self.send_response(302 if self.path == "/moved" else 409)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write("nö".encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Quiet."""


@contextmanager
def serving() -> Iterator[str]:
    GOT.clear()
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    activity_call.begin(ActivityCall("http_request", "the-key", 1, lambda: None))
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        activity_call.end()
        server.shutdown()
        server.server_close()
        thread.join()


def test_one_request_is_sent_and_its_answer_given_whatever_it_is() -> None:
    with serving() as url:
        assert http_request(f"{url}/a?b=c", "PATCH", '{"x": 1}', {"X-Who": "shop"}) == HttpAnswer(409, "nö")
        ((command, path, body, headers),) = GOT
        assert (command, path, body) == ("PATCH", "/a?b=c", b'{"x": 1}')
        assert (headers["Idempotency-Key"], headers["X-Who"]) == ("the-key", "shop")
        assert headers["Content-Type"] == "application/json"
        assert http_request(f"{url}/moved", "PATCH", "").status == 302
        assert len(GOT) == 2, "a redirect is not followed"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http:///x", "nothing"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        http_request(url, "GET", "")


def test_a_service_registers_it_as_it_is() -> None:
    shop = Service("shop", state=Struct)
    assert shop.activity(at_most_once=True, timeout=30)(http_request) is http_request
