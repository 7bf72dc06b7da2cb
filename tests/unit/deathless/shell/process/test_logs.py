"""Logs: one JSON object a line, whoever writes it is a field; an unknown level is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from deathless.base.errors import InvalidConfig
from deathless.shell.process.logs import LEVELS, configure


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """Give the root logger back as it was: `configure` takes it over."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    for handler in handlers:
        root.removeHandler(handler)  # taken off first: `configure` closes those that it finds
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = captured.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_a_record_is_one_line_with_its_own_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "r1", "worker")
    logging.getLogger("deathless.x").info("two\nlines of %s", "text", extra={"lsn": 7, "path": object})
    (line,) = lines(capsys)
    assert str(line.pop("time"))[10] == "T"
    assert line == {
        "level": "info",
        "logger": "deathless.x",
        "replica": "r1",
        "process": "worker",
        "text": "two\nlines of text",
        "lsn": 7,
        "path": str(object),
    }


def test_an_error_brings_its_traceback_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("error", "r1", "worker")
    nothing: dict[str, int] = {}
    try:
        nothing["gone"]
    except KeyError:
        logging.getLogger("deathless.x").exception("failed")
    (line,) = lines(capsys)
    assert "KeyError: 'gone'" in str(line["traceback"])


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_left_out(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(level, "r1", "worker")
    for each in LEVELS:
        logging.getLogger("deathless.x").log(logging.getLevelNamesMapping()[each.upper()], each)
    assert [line["text"] for line in lines(capsys)] == list(LEVELS[LEVELS.index(level) :])


@pytest.mark.parametrize("level", ["loud", "INFO", ""])
def test_an_unknown_level_is_refused_and_changes_nothing(level: str, root_logger: logging.Logger) -> None:
    before = root_logger.handlers[:]
    with pytest.raises(InvalidConfig, match="is not one of debug, info, warning, error"):
        configure(level, "r1", "worker")
    assert root_logger.handlers == before
