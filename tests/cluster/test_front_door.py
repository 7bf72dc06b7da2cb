"""Callers of the end-to-end tests tell what was refused from what was slow; needs no cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from tests.cluster import front_door
from tests.cluster.front_door import PATIENT_S, Callers, Door, was_slow

from deathless.shell.ingress.ingress import REQUEST_TIMEOUT_S, STOP_GRACE_S

KEY = ConnectionKey("bank", 80, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)


@pytest.mark.parametrize(
    ("outcome", "limit_s"),
    [
        (503, REQUEST_TIMEOUT_S),
        (504, REQUEST_TIMEOUT_S),
        (aiohttp.ServerDisconnectedError(), STOP_GRACE_S),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), STOP_GRACE_S),
        (aiohttp.ClientPayloadError("not complete"), STOP_GRACE_S),
    ],
    ids=lambda each: each if isinstance(each, int) else type(each).__name__,
)
def test_what_a_front_door_gives_up_in_its_time_was_slow_and_what_ends_before_failed(
    outcome: int | Exception, limit_s: float
) -> None:
    assert was_slow(outcome, limit_s)
    assert not was_slow(outcome, limit_s - 0.01)


@pytest.mark.parametrize(
    "outcome",
    [429, 502, 507, TimeoutError(), aiohttp.ClientConnectorError(KEY, OSError(111, "Connection refused"))],
    ids=lambda each: each if isinstance(each, int) else type(each).__name__,
)
def test_other_failures_are_never_slowness(outcome: int | Exception) -> None:
    assert not was_slow(outcome, PATIENT_S)


class Reluctant(BaseHTTPRequestHandler):
    """Answers 503 to each call once, and 200 when it is sent again."""

    protocol_version = "HTTP/1.1"
    seen: set[str] = set()  # noqa: RUF012 - one server at a time

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        self.send_response(200 if key in self.seen else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.seen.add(key)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Say nothing."""


@pytest.fixture
def door() -> Iterator[Door]:
    """A service that answers each call the second time."""
    Reluctant.seen = set()
    with ThreadingHTTPServer(("127.0.0.1", 0), Reluctant) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Door(f"127.0.0.1:{server.server_port}", "bank")
        server.shutdown()
        thread.join(60)


def test_early_503_is_a_failure_of_a_patient_caller_until_it_is_forgotten(door: Door) -> None:
    with Callers(door, patient=True, callers=1) as callers:
        callers.wait_more(3)
        assert callers.failures
    callers.forget_failures()
    assert (callers.failures, callers.slow) == ([], [])


@pytest.mark.parametrize("patient", [True, False])
def test_late_503_is_sent_again_and_counts_for_the_impatient_alone(
    door: Door, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_door, "REQUEST_TIMEOUT_S", 0.0)
    with Callers(door, patient=patient, callers=1) as callers:
        callers.wait_more(3)
    assert bool(callers.slow) == patient
    assert bool(callers.failures) != patient
    assert len(callers.answered) >= 3
