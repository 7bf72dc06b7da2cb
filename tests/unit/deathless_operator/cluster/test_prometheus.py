"""What is asked of Prometheus, what counts as a number, and that nothing else does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

import pytest

from deathless_operator.cluster import prometheus
from deathless_operator.cluster.prometheus import Prometheus, read_answer
from deathless_operator.plan.snapshot import Measured


def vector(*values: object) -> bytes:
    """An answer with so many series."""
    found = [{"metric": {}, "value": [1.0, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()


@contextmanager
def serving(status: int, said: bytes, **headers: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that gives one answer; yields its address, and paths and expressions that it was asked for."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            asked.append((self.path, form["query"][0]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}", asked
        finally:
            http.shutdown()
            thread.join()


def test_an_expression_is_sent_as_it_stands_and_its_number_is_given() -> None:
    query = 'sum(rate(deathless_ingress_requests_total{status=~"5.."}[5m])) & more'
    with serving(200, vector("0.25")) as (url, asked):
        assert asyncio.run(Prometheus(f"{url}/prom").measure(query)) == Measured(value=0.25)
    assert asked == [("/prom/api/v1/query", query)]


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (200, vector(), "there is no data"),
        (200, vector("1", "2"), "gives 2 series, not one number"),
        (200, vector("NaN"), "no number"),
        (200, vector("many"), "no number"),
        (200, vector(None), "no number"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":[7]}}', "no number"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "gives a matrix"),
        (200, b'{"status":"success","data":null}', "not one number"),
        (200, b'{"status":"error"}', "refuses the expression: HTTP 200"),
        (400, b'{"status":"error","error":"parse error"}', "refuses the expression: parse error"),
        (503, b"Service Unavailable", "HTTP 503 and no JSON"),
        (200, b"[]", "no JSON object"),
    ],
)
def test_whatever_is_not_one_number_is_none_and_says_why(status: int, said: bytes, problem: str) -> None:
    found = read_answer(status, said)
    assert found.value is None
    assert problem in found.problem


def test_a_scalar_and_an_infinite_one_are_numbers() -> None:
    scalar = b'{"status":"success","data":{"resultType":"scalar","result":[1,"%s"]}}'
    assert read_answer(200, scalar % b"3").value == 3
    assert read_answer(200, scalar % b"+Inf").value == float("inf")


def test_nobody_there_nobody_named_and_one_that_sends_elsewhere_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "operator.prometheusUrl" in asyncio.run(Prometheus("").measure("up")).problem
    with serving(302, b"", Location="http://127.0.0.1:9/elsewhere") as (url, asked):
        assert "HTTP 302" in asyncio.run(Prometheus(url).measure("up")).problem
    assert len(asked) == 1
    assert "does not answer" in asyncio.run(Prometheus(url).measure("up")).problem
    monkeypatch.setattr(prometheus, "ANSWER_BYTES_MAX", 10)
    with serving(200, vector("1")) as (url, _):
        assert "more than 10 bytes" in asyncio.run(Prometheus(url).measure("up")).problem
