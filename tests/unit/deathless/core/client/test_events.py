"""Errors that come over the wire become the errors of our tree."""

from __future__ import annotations

import importlib.util

import pytest

from deathless.base.errors import (
    CallRefused,
    DeathlessError,
    HandlerFailed,
    Internal,
    Invalid,
    Overloaded,
    SessionExpired,
)
from deathless.core.client.events import CompleteCalls, LinkId, Send, error_of


def test_code_gives_its_class() -> None:
    error = error_of("DL3009", "gone")
    assert type(error) is SessionExpired
    assert error.message == "gone"


def test_failed_handler_carries_type_and_text() -> None:
    error = error_of("DL3014", "not enough", kind="InsufficientFunds")
    assert isinstance(error, HandlerFailed)
    assert (error.kind, error.message) == ("InsufficientFunds", "not enough")


def test_refusal_carries_the_time_to_wait() -> None:
    error = error_of("DL1002", "busy", retry_after_s=0.5)
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == 0.5


@pytest.mark.parametrize("code", ["DL7777", ""])
def test_code_of_a_newer_version_is_internal_and_named(code: str) -> None:
    error = error_of(code, "what", kind="New")
    assert type(error) is Internal
    assert code in error.message
    assert "newer" in error.advice


def test_every_error_of_the_tree_is_found_by_its_code() -> None:
    def below(root: type[DeathlessError]) -> list[type[DeathlessError]]:
        return [root, *(found for child in root.__subclasses__() for found in below(child))]

    leaves = [
        cls for cls in below(DeathlessError) if not cls.__subclasses__() and cls.__module__.startswith("deathless.base")
    ]
    assert len(leaves) > 30
    for cls in leaves:
        assert type(error_of(cls.code, "")) is cls


def test_records_are_frozen() -> None:
    send = Send(link=LinkId(1), data=b"")
    with pytest.raises(AttributeError):
        send.data = b"x"  # type: ignore[misc]  # that is the point
    assert CompleteCalls(waiters=["a"], replies=[b""]) == CompleteCalls(waiters=["a"], replies=[b""])


def test_errors_that_a_service_defined_before_the_import_are_none_of_ours() -> None:
    class Overdrawn(Invalid):
        code = "BANK02"

    class Locked(SessionExpired):
        """Has its parent's code."""

    module = importlib.util.find_spec("deathless.core.client.events")
    assert module is not None and module.loader is not None
    again = importlib.util.module_from_spec(module)
    module.loader.exec_module(again)
    assert isinstance(again.error_of(Overdrawn.code, "too little"), HandlerFailed)
    assert type(again.error_of(Locked.code, "gone")) is SessionExpired


def test_code_of_the_services_own_comes_as_a_refused_call_that_names_it() -> None:
    error = error_of("BANK01", "too little", kind="Overdrawn")
    assert isinstance(error, CallRefused)
    assert (error.kind, error.message) == ("Overdrawn", "BANK01 too little")
    assert (error.code, error.http_status, error.exit_code) == ("DL3048", 409, 64)
