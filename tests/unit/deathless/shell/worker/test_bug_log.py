"""Bugs of a service in the log: once, with the author's frames, and never with the author's code."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from deathless.base.errors import CallRefused
from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.core.tables.keys import KeyTable
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.execution.values.failure import Bug
from deathless.shell.process.logs import JsonFormatter
from deathless.shell.worker.bug_log import BURST, FRAMES_MAX, PLACES_MAX, BugLog


class Total(msgspec.Struct):
    value: int = 0


class Shy(Exception):
    """Counts how often its author's code runs."""

    asked = 0

    def __str__(self) -> str:
        Shy.asked += 1
        return "shy"

    __repr__ = __str__


service = Service("sums", state=Total)


def part_of(whole: int, parts: int) -> int:
    return whole // parts


@service.handler
def divide(total: Total, ctx: Context, parts: int) -> int:
    return part_of(total.value, parts)


@service.handler
async def divide_later(total: Total, ctx: Context, parts: int) -> int:
    return part_of(total.value, parts)


@service.handler
def refuse(total: Total, ctx: Context) -> None:
    raise CallRefused("not today")


@service.handler
def lie(total: Total, ctx: Context) -> int:
    return "text"  # type: ignore[return-value]  # that is the point


@service.handler
def recurse(total: Total, ctx: Context) -> None:
    again(total, ctx)


def again(total: Total, ctx: Context) -> None:
    recurse(total, ctx)


@service.handler
def wrap(total: Total, ctx: Context) -> None:
    try:
        be_shy()
    except Shy as error:
        try:
            fail_with(error)
        except KeyError:
            raise ValueError("outer")  # noqa: B904  the context is what is shown


def be_shy() -> None:
    raise Shy


def fail_with(cause: Exception) -> None:
    raise KeyError("inner") from cause


@service.query
def look(total: Total, parts: int) -> int:
    return part_of(total.value, parts)


class Site:
    """A service whose bugs are told, and the clock of who tells them."""

    def __init__(self) -> None:
        self.now, self.first, self.lsn = 0.0, True, 0
        self.log = BugLog(service, lambda: self.now)
        self.executor = HandlerExecutor(
            service,
            Limits(),
            bytes(32),
            KeyTable(Limits()),
            Cells(bytearray(PAGE_BYTES)),
            tell=lambda bug: self.log.tell(bug, first=self.first),
        )

    def run(self, method: str, **arguments: object) -> bytes:
        self.lsn += 1
        message = encode(Kind.CALL, method=method.encode(), key=b"a", args=msgspec.msgpack.encode(arguments))
        if method == "look":
            return self.executor.query(message, 1)
        ((reply,), _) = self.executor.execute(1, self.lsn, self.lsn, 1, [message])
        return reply


@pytest.fixture(name="site")
def made(caplog: pytest.LogCaptureFixture) -> Site:
    caplog.set_level(logging.INFO)
    return Site()


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    lines = [json.loads(JsonFormatter("r0", "worker").format(record)) for record in caplog.records]
    caplog.clear()
    return lines


@pytest.mark.parametrize("method", ["divide", "divide_later", "look"])
def test_a_bug_is_told_once_with_the_authors_frames(site: Site, caplog: pytest.LogCaptureFixture, method: str) -> None:
    site.run(method, parts=0)
    (line,) = told(caplog)
    trace = str(line["traceback"])
    assert line["level"] == "error"
    assert str(line["text"]).endswith(f"{method} raised ZeroDivisionError: integer division or modulo by zero")
    assert str(line["handler"]).startswith(f"{method} ({__file__}:")
    assert (line["key"], line["code"], line.get("lsn")) == ("a", "DL3014", None if method == "look" else 1)
    first, last = trace.index(f"in {method}\n"), trace.index("in part_of\n")
    assert first < last
    assert "return whole // parts" in trace
    assert "deathless/execution" not in trace
    assert "<string>" not in trace
    assert trace.endswith("ZeroDivisionError: integer division or modulo by zero")


def test_a_turn_that_ran_before_is_not_told_again(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.first = False
    replies = [site.run("divide", parts=0), site.run("divide_later", parts=0)]
    assert told(caplog) == []
    site.first = True
    assert [site.run("divide", parts=0), site.run("divide_later", parts=0)] == replies
    assert len(told(caplog)) == 2
    site.first = False
    site.run("look", parts=0)
    assert len(told(caplog)) == 1, "a query runs where it is answered alone"


def test_what_the_author_means_or_the_caller_did_is_not_told(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for method in ("refuse", "divide"):
        assert site.run(method)[0] == 1
    site.run("divide", parts="many")
    site.run("nothing")
    assert told(caplog) == []


def test_a_result_of_the_wrong_type_names_its_handler(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.run("lie")
    (line,) = told(caplog)
    assert "ValidationError" in str(line["text"])
    assert str(line["handler"]).startswith("lie (")


def test_what_stands_behind_an_exception_is_shown_without_its_authors_code(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.run("wrap")
    (line,) = told(caplog)
    titles = [each for each in str(line["traceback"]).splitlines() if each and not each.startswith((" ", "Traceback"))]
    assert titles == [
        "Shy",
        "The above exception was the direct cause of the following exception:",
        "KeyError: inner",
        "During handling of the above exception, another exception occurred:",
        "ValueError: outer",
    ]
    assert Shy.asked == 0


def test_a_long_traceback_is_cut_in_its_middle(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.run("recurse")
    (line,) = told(caplog)
    assert str(line["traceback"]).count("  File ") == FRAMES_MAX
    assert " more ..." in str(line["traceback"])


def test_a_place_that_fails_again_and_again_is_told_a_second_apart(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(BURST + 5):
        site.run("divide", parts=0)
    assert len(told(caplog)) == BURST
    site.run("look", parts=0)
    assert len(told(caplog)) == 1, "another place is told"
    site.now += 1
    site.run("divide", parts=0)
    (line,) = told(caplog)
    assert line["left_out"] == 5


def test_of_how_many_places_it_is_remembered_has_a_maximum(caplog: pytest.LogCaptureFixture) -> None:
    log = BugLog(service, lambda: 0.0)
    reply = b"\x01" + msgspec.msgpack.encode(("DL3014", "E", "x"))
    for number in range(2 * PLACES_MAX):
        log.tell(Bug(f"m{number}", b"", 1, ValueError(), reply), first=True)
    assert len(log._places) == PLACES_MAX


def test_what_goes_wrong_in_telling_is_nobodys_matter(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    BugLog(service, lambda: 0.0).tell(Bug("divide", b"", 1, ValueError(), b"no reply"), first=True)
    assert told(caplog) == []
