"""Lines of the log."""

from __future__ import annotations

import json
import logging
import sys

from deathless_operator.handlers.log_format import CONDENSED_S, Condense, JsonFormatter


def record(message: str, *, name: str = "deathless_operator", **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": name, "levelname": "INFO", "levelno": 20, "msg": message} | extra)


def test_line_is_one_json_object_with_what_was_given() -> None:
    line = JsonFormatter().format(record('two\n"lines"', namespace="shop", actions=["Apply: new"], odd=object()))
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == 'two\n"lines"' and found["actions"] == ["Apply: new"] and found["namespace"] == "shop"
    assert set(found) == {"time", "level", "logger", "message", "namespace", "actions", "odd"}


def test_trace_of_an_error_is_one_field() -> None:
    line = ""
    try:
        int("broken")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    assert "ValueError: invalid literal" in json.loads(line)["trace"]


def test_broken_watches_are_told_once_and_shortly() -> None:
    now = 0.0
    condense = Condense(clock=lambda: now)
    records = [
        record(f"Request #{index} failed; will retry: GET x -> Refused()", name="kopf.api") for index in range(9)
    ]
    assert [condense.filter(each) for each in records] == [True] + [False] * 8
    assert records[0].getMessage() == "watches are broken and tried again: Refused()"
    assert records[0].levelname == "WARNING"
    now = CONDENSED_S
    assert condense.filter(record("will retry -> Refused()", name="kopf.api"))
    closed = record("Request attempt #2 failed; TCP closed; will re-authenticate: GET x", name="kopf.api")
    assert condense.filter(closed) is False, "the end of the operator closes its connections under requests"
    assert condense.filter(record("will retry")) is True and condense.filter(record("x", name="kopf.api")) is True
