"""A request and its one answer."""

from __future__ import annotations

import json

from deathless.base.errors import HandlerFailed, Overloaded
from deathless.shell.web.request import Request, problem


class Line:
    date_line = b"date: now\r\n"
    transport = None

    def __init__(self) -> None:
        self.told = 0

    def answered(self) -> None:
        self.told += 1


def test_answer_has_length_type_date_and_the_headers_given() -> None:
    line = Line()
    request = Request(line)
    assert not request.answered
    request.respond(200, b"{}", headers=[(b"a", b"b")])
    assert request.taken() == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ndate: now\r\na: b\r\n\r\n{}"
    )
    assert line.told == 1


def test_first_answer_counts() -> None:
    line = Line()
    request = Request(line)
    request.respond(200, b"1")
    request.respond(500, b"2")
    assert line.told == 1
    assert b"200 OK" in (request.taken() or b"")


def test_nobody_is_told_after_the_client_left() -> None:
    line = Line()
    request = Request(line)
    request.forget()
    request.respond(200, b"")
    assert request.answered
    assert line.told == 0


def test_connection_header_follows_version_and_end() -> None:
    for version, close, header in (("1.1", False, b""), ("1.1", True, b"close"), ("1.0", False, b"keep-alive")):
        request = Request(Line())
        request.version, request.close = version, close
        request.respond(204, b"")
        raw = request.taken() or b""
        assert (b"connection: " + header in raw) if header else (b"connection" not in raw)


def test_problem_tells_code_text_remedy_and_page() -> None:
    assert json.loads(problem(Overloaded("busy"), field="$.a", kind="K")) == {
        "code": "DL1002",
        "error": "busy",
        "remedy": "send the same request again, with the same Idempotency-Key, after the seconds in Retry-After",
        "docs": "docs/errors/DL1002.md",
        "field": "$.a",
        "type": "K",
    }
    assert set(json.loads(problem(HandlerFailed("no")))) == {"code", "error", "remedy", "docs"}
