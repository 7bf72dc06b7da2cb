"""Arguments of a call as they are typed."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from deathless.base.errors import (
    DeathlessError,
    InvalidArgument,
    NotYourSession,
    OutcomeUnknown,
    ResultUnreadable,
    SessionExpired,
)
from deathless.cli.change.calls import parse_arguments, show_result
from deathless.cli.main import main
from deathless.shell.client.shard_client import Client
from deathless.shell.operate import down

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec: {module: "m:bank"}
"""


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("a=5", 5), ("a=-1.5", -1.5), ("a=true", True), ("a=null", None), ('a="5"', "5"), ("a=alice", "alice"),
        ("a=[1,2]", [1, 2]), ('a={"b":1}', {"b": 1}), ("a=", ""), ("a=x=y", "x=y"), ("a=1 2", "1 2"), ("a=ü", "ü"),
        ("a=12345678901234567890", 12345678901234567890),
    ],
)  # fmt: skip
def test_value_is_json_or_else_a_text(pair: str, value: object) -> None:
    assert parse_arguments((pair,)) == {"a": value}


@pytest.mark.parametrize("pairs", [("a",), ("=1",), ("a b=1",), ("1a=1",), ("a=1", "a=2"), ("a=" + "[" * 200_000,)])
def test_what_is_no_named_value_is_refused(pairs: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument):
        parse_arguments(pairs)


def test_several_arguments_keep_their_names() -> None:
    assert parse_arguments(("source=a", "target=b", "amount=3")) == {"source": "a", "target": "b", "amount": 3}


@pytest.mark.parametrize("result", [float("nan"), {"rates": [1.0, float("inf")]}, {(1, 2): 3}])
def test_result_that_json_can_not_carry_is_named_and_not_changed(result: object) -> None:
    with pytest.raises(ResultUnreadable, match=r"at `\$"):
        show_result(result, as_json=True)


@pytest.fixture(name="end_with")
def service_whose_calls_end_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What calls end with, the first first; their keys are `key-1` where none is given."""
    ends: list[BaseException] = []

    async def nothing_is_down(_found: object) -> None:
        return None

    async def request(*_: object, **__: object) -> None:
        raise ends.pop(0)

    (tmp_path / "service.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(down, "why_down", nothing_is_down)
    monkeypatch.setattr(Client, "request", request)
    monkeypatch.setattr(uuid, "uuid4", lambda: "key-1")
    return ends


@pytest.mark.parametrize("error", [OutcomeUnknown("late"), SessionExpired("idle"), NotYourSession("not yours")])
def test_call_of_unknown_outcome_shows_the_key_under_which_it_is_asked_again(
    end_with: list[BaseException], error: DeathlessError, capsys: pytest.CaptureFixture[str]
) -> None:
    end_with += [error, error]
    assert main(["call", "deposit", "-k", "a"]) == error.exit_code
    assert "--idempotency-key key-1 gives the answer" in " ".join(capsys.readouterr().err.split())
    assert main(["call", "deposit", "-k", "a", "--idempotency-key", "my own"]) == error.exit_code
    assert "--idempotency-key 'my own' gives the answer" in " ".join(capsys.readouterr().err.split())


def test_call_that_is_interrupted_shows_it_too(
    end_with: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    end_with.append(KeyboardInterrupt())
    assert main(["call", "deposit", "-k", "a"]) == 130
    assert "--idempotency-key key-1 gives the answer" in " ".join(capsys.readouterr().err.split())


def test_call_that_was_refused_needs_no_key(end_with: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    end_with.append(InvalidArgument("no"))
    assert main(["call", "deposit", "-k", "a"]) == InvalidArgument.exit_code
    assert "key-1" not in capsys.readouterr().err
