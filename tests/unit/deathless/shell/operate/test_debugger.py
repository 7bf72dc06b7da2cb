"""Where a replay stops is read from what a user gave; that it stops there shows tests/process/test_cli_log.py."""

import functools
import os

import pytest

from deathless.base.errors import InvalidArgument
from deathless.shell.operate.debugger import LEFT, Debugger, Stops, first_line, stops_of


def deposit(amount: int) -> int:
    """Docstrings are no statements."""
    return amount


def one_line(amount: int) -> int: return amount  # fmt: skip


@functools.cache
def decorated(amount: int) -> int:
    return amount


def test_places_are_handlers_and_lsns() -> None:
    assert stops_of(["deposit", "12", "7", "12"], "amount > 2") == Stops(("deposit",), (7, 12), "amount > 2")
    assert stops_of([], "") == Stops()


@pytest.mark.parametrize("condition", ["amount >", "x = 1", "a\0"])
def test_a_condition_is_an_expression(condition: str) -> None:
    with pytest.raises(InvalidArgument, match="no expression"):
        stops_of([], condition)


def test_a_function_is_stopped_at_its_first_statement() -> None:
    begins = deposit.__code__.co_firstlineno
    assert first_line(deposit.__code__) == begins + 2
    assert first_line(one_line.__code__) == one_line.__code__.co_firstlineno


def test_messages_that_are_stopped_at_are_run_alone() -> None:
    debugger = Debugger({"deposit": deposit}, Stops(lsns=(5, 9)))
    assert debugger.looks == {4, 5, 8, 9}


def test_a_handler_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidArgument, match=r"--break deposi: .* \(it has decorated, deposit\)"):
        Debugger({"deposit": deposit, "decorated": decorated}, Stops(("deposi",)))


@pytest.mark.parametrize("command", ["quit", "q", "exit", "EOF", "run", "restart"])
def test_whoever_leaves_ends_the_process_and_no_handler(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    getattr(Debugger({"deposit": deposit}, Stops()), f"do_{command}")("")
    assert left == [LEFT]
