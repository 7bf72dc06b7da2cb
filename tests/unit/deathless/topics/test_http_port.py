"""Requests are repeated until one of the replicas answers; errors are those that the answers name."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument, InvalidConfig, Overloaded, PeerUnreachable, TopicGap
from deathless.topics.http_port import AGAIN_MAX_S, HttpPort

NOBODY = "http://127.0.0.1:1"


class Replica(ThreadingHTTPServer):
    """Gives the answers that it was told to, and then the last one again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes, dict[str, str]]] = [(200, b"yes", {})]
        self.asked: list[tuple[str, str, str]] = []  # method, target, token
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def do_GET(self) -> None:
        asked = self.server.asked
        asked.append((self.command, self.path, self.headers.get("authorization", "")))
        answers = self.server.answers
        status, body, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        if not status:  # no answer
            self.rfile.read(1)
            return
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(name="replica")
def running_replica() -> Iterator[Replica]:
    with Replica() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Time:
    """A clock that pauses move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


def port(*urls: str, **settings: object) -> tuple[HttpPort, Time]:
    time = Time()
    return HttpPort(urls, sleep=time.sleep, clock=lambda: time.now, **settings), time  # type: ignore[arg-type]


def test_a_request_has_path_query_and_token_and_connections_are_kept(replica: Replica, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    asks, _ = port(f"{replica.url}/behind/", token_file=str(token))
    assert asks.ask("GET", ["topics", "a/b"], {"from": 1, "columns": "a,b"}) == b"yes"
    token.write_text("two")
    assert asks.ask("PUT", ["x"], {}) == b"yes"
    assert replica.asked == [
        ("GET", "/behind/topics/a%2Fb?from=1&columns=a%2Cb", "Bearer one"), ("PUT", "/behind/x", "Bearer two"),
    ]  # fmt: skip
    assert replica.connections == 1
    token.write_bytes(b"\xff")
    with pytest.raises(InvalidConfig, match="holds no token"):
        asks.ask("GET", ["x"], {})
    asks.close()


def test_the_next_replica_is_asked_where_one_does_not_answer(replica: Replica) -> None:
    asks, time = port(NOBODY, replica.url)
    assert asks.ask("GET", ["x"], {}) == b"yes"
    assert not time.pauses
    assert asks.ask("GET", ["x"], {}) == b"yes", "the one that answers is kept"
    assert replica.connections == 1


def test_a_replica_that_hangs_is_left_for_the_next_one_long_before_one_that_is_slow(replica: Replica) -> None:
    """The kernel of a machine that hangs takes its connections."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        port = HttpPort([url, replica.url], first_s=0.01, timeout_s=3600.0)
        assert port.ask("GET", ["topics"], {}) == b"yes"
        port.close()
        [connection], _, _ = select.select([hangs], [], [], 0.0)
        assert connection is hangs, "it was asked first"


def test_each_further_try_is_given_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what is slow is answered in the end."""
    given: list[float] = []

    def begin(_: object, _method: str, _path: object, _query: object, answer_s: float, _wait_s: float) -> None:
        given.append(answer_s)
        raise TimeoutError

    monkeypatch.setattr(HttpPort, "_begin", begin)
    asks, _ = port(NOBODY, first_s=2.0, timeout_s=30.0, patience_s=60.0)
    with pytest.raises(PeerUnreachable):
        asks.ask("GET", ["x"], {})
    assert given[:5] == [2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(given[5:]) == {30.0}


def test_a_connection_that_hangs_when_it_is_used_again_is_left_as_soon(replica: Replica) -> None:
    port = HttpPort([replica.url], first_s=0.05, timeout_s=3600.0)
    assert port.ask("GET", ["topics"], {}) == b"yes"
    replica.answers = [(0, b"", {}), (200, b"again", {})]
    assert port.ask("GET", ["topics"], {}) == b"again"
    port.close()


def test_nobody_is_asked_for_ever() -> None:
    asks, time = port(NOBODY, NOBODY, patience_s=9.0)
    with pytest.raises(PeerUnreachable, match=r"127\.0\.0\.1:1"):
        asks.ask("GET", ["x"], {})
    assert time.now <= 9
    assert all(AGAIN_MAX_S >= later > 0 for later in time.pauses)
    assert time.pauses[0] < 0.1 < time.pauses[-1]


def test_what_can_be_sent_again_is_and_as_late_as_the_answer_says(replica: Replica) -> None:
    busy = (429, b'{"code":"DL1002","error":"busy","remedy":"later"}', {"retry-after": "7"})
    replica.answers = [busy, (503, b"<html>", {}), (200, b"yes", {})]
    asks, time = port(replica.url)
    assert asks.ask("GET", ["x"], {}) == b"yes"
    assert time.pauses[0] == 7.0
    replica.answers = [busy]
    with pytest.raises(Overloaded, match="busy"):
        asks.ask("GET", ["x"], {})


def test_other_errors_are_those_that_the_answers_name(replica: Replica) -> None:
    replica.answers = [(404, b'{"code":"DL3066","error":"gone","remedy":"look"}', {}), (404, b"<html>", {})]
    asks, time = port(replica.url)
    with pytest.raises(TopicGap, match="gone") as raised:
        asks.ask("GET", ["x"], {})
    assert raised.value.advice == "look"
    with pytest.raises(InvalidArgument, match="HTTP 404"), asks.open(["x"], {}):
        pass
    assert not time.pauses
    assert replica.connections == 1


def test_a_connection_is_kept_once_its_answer_was_read_to_its_end(replica: Replica) -> None:
    asks, _ = port(replica.url)
    for _ in range(2):
        with asks.open(["x"], {}) as answer:
            assert answer.read(2) == b"ye"
    assert replica.connections == 1
    with pytest.raises(RuntimeError), asks.open(["x"], {}):
        raise RuntimeError
    assert asks.ask("GET", ["x"], {}) == b"yes"
    assert replica.connections == 2


def test_a_connection_that_ended_while_it_was_idle_is_no_failure(replica: Replica) -> None:
    replica.answers = [(200, b"yes", {}), (200, b"yes", {"connection": "close"}), (200, b"yes", {})]
    asks, time = port(replica.url)
    for _ in range(3):
        assert asks.ask("GET", ["x"], {}) == b"yes"
    assert asks._idle is not None
    asks._idle.sock.close()
    assert asks.ask("GET", ["x"], {}) == b"yes"
    assert not time.pauses


def test_pauses_grow_with_failures(replica: Replica) -> None:
    asks, time = port(replica.url)
    for failures in (1, 2, 3, 99):
        asks.pause(failures)
    assert time.pauses == [0.05, 0.1, 0.2, AGAIN_MAX_S]


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x:y", "http://x?a=b"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="is no URL"):
        HttpPort([url])


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no URL of a replica"):
        HttpPort([])
    for settings in ({"ca_file": str(tmp_path / "no")}, {"certificate_file": str(tmp_path / "no")}):
        with pytest.raises(InvalidConfig, match="no: "):
            HttpPort(["https://x"], **settings)  # type: ignore[arg-type]
