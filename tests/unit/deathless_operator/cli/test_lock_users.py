"""The command `lock-users`: what it is told, and that it goes on whatever fails."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from deathless.base.errors import LockUnavailable
from deathless_operator.cli import lock_users
from deathless_operator.model.settings import OperatorSettings


class Opened:
    """Something that is opened by `async with`."""

    def __init__(self, *given: object, **named: object) -> None:
        self.given = (given, named)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Ended(Exception):
    """The test has seen enough."""


class Looks:
    """`LockUsers`, with what each look comes to."""

    made: list[tuple[OperatorSettings, Any]]
    withdraws: list[bool]
    outcomes: list[str | Exception]

    def __init__(self, api: object, store: object, settings: OperatorSettings, **more: Any) -> None:
        self.made.append((settings, more["namespaces"]))

    async def look(self, *, withdraw: bool) -> str:
        self.withdraws.append(withdraw)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def run(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[str | Exception], *arguments: str
) -> tuple[Result, type[Looks]]:
    """Run the command."""
    kind = type("Seen", (Looks,), {"made": [], "withdraws": [], "outcomes": outcomes})
    monkeypatch.setattr(lock_users, "LockUsers", kind)
    monkeypatch.setattr(lock_users, "Api", Opened)
    monkeypatch.setattr(lock_users, "LockStore", Opened)
    monkeypatch.setattr(lock_users, "connect", lambda _: None)
    given = ["--namespace=ops", "--endpoints=https://e0:2379, https://e1:2379", *arguments]
    return CliRunner().invoke(lock_users.command, given), kind


def test_one_look_with_what_the_chart_says(monkeypatch: pytest.MonkeyPatch) -> None:
    done, seen = run(monkeypatch, ["all well"], "--every=0", "--withdraw", "--watch-namespaces=shop,web")
    assert (done.exit_code, done.output, seen.withdraws) == (0, "all well\n", [True])
    ((settings, namespaces),) = seen.made
    assert (settings.namespace, settings.lock_endpoints) == ("ops", ("https://e0:2379", "https://e1:2379"))
    assert settings.lock_users and namespaces == ("shop", "web")


def test_it_goes_on_whatever_fails_and_says_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    away = LockUnavailable("nobody answers")
    done, seen = run(monkeypatch, ["a", "a", away, away, "b", Ended()], "--every=0.001")
    assert isinstance(done.exception, Ended)
    assert done.output == f"a\nerror: {away}\nb\n"
    assert len(seen.made) == 3, "after each failure everything is looked at anew"


def test_pause_grows_from_failure_to_failure_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    away = LockUnavailable("nobody answers")
    run(monkeypatch, ["a", *[away] * 6, "b", Ended()], "--every=5")
    assert pauses == [5, 5, 10, 20, 40, 60, 60, 5]
    pauses.clear()
    run(monkeypatch, [away, away, away, Ended()], "--every=300")
    assert pauses == [300, 300, 300]


def test_one_look_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, [LockUnavailable("nobody answers")], "--every=0")
    assert isinstance(done.exception, LockUnavailable)
