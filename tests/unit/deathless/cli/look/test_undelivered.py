"""`deathless undelivered`: what is shown of messages that drivers gave up, and what is ordered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.deathless.cli.look.test_invocations import MANIFEST

from deathless.cli import primary
from deathless.cli.main import main
from deathless.shell.operate.target import Target

Run = Callable[..., tuple[int, list[tuple[str, str]]]]


def message(number: int, driver: str = "mail") -> dict[str, object]:
    return {
        "id": number, "driver": driver, "position": number, "atUs": 1_600_000_000_000_000, "method": "paid",
        "key": "alice", "why": "503", "bytes": 12, "arguments": {"cents": 5},
    }  # fmt: skip


class Primary:
    """Lists two messages at a time of those it has."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        self.messages = messages
        self.ordered: list[tuple[str, str]] = []

    async def __call__(self, found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        arguments = arguments or {}
        if command == "order":
            self.ordered.append((arguments["command"], arguments["invocation"]))
            return {}
        page = [each for each in self.messages if int(str(each["id"])) >= int(arguments["from"])]
        return {"undelivered": page[:2], "count": len(self.messages)}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command; gives its exit code and what was ordered."""

    def run(messages: list[dict[str, object]], *arguments: str) -> tuple[int, list[tuple[str, str]]]:
        manifest = tmp_path / "service.yaml"
        manifest.write_text(MANIFEST)
        fake = Primary(messages)
        monkeypatch.setattr(primary, "ask_primary", fake)
        return main(["undelivered", *arguments, "-f", str(manifest)]), fake.ordered

    return run


def test_messages_are_a_table_and_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run([message(n) for n in (3, 4, 9)], "list")
    head, row, *_, more = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["ID", "DRIVER", "METHOD", "KEY"]
    assert row.split()[:5] == ["3", "mail", "paid", "alice", "12"]
    assert more == "2 of 3; go on with --from 5"
    run([message(3)], "list", "--json")
    assert json.loads(capsys.readouterr().out) == {"undelivered": [message(3)], "count": 1}
    run([], "list")
    assert capsys.readouterr().out == "no message was given up\n"


@pytest.mark.parametrize(("command", "order"), [("retry", "redeliver"), ("discard", "discard")])
def test_messages_are_seen_to_by_id_or_all_or_all_of_a_driver(run: Run, command: str, order: str) -> None:
    messages = [message(3), message(4, "sms"), message(9)]
    assert run(messages, command, "4") == (0, [(order, "4")])
    assert run(messages, command, "--all")[1] == [(order, "3"), (order, "4"), (order, "9")]
    assert run(messages, command, "--all", "--driver", "mail")[1] == [(order, "3"), (order, "9")]


@pytest.mark.parametrize("arguments", [["retry"], ["retry", "3", "--all"], ["discard", "3", "--driver", "mail"]])
def test_what_is_meant_has_to_be_said(run: Run, arguments: list[str]) -> None:
    code, ordered = run([message(3)], *arguments)
    assert (code != 0, ordered) == (True, [])


def test_what_was_done_is_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run([message(3)], "retry", "3")
    assert capsys.readouterr().out == "message 3 is sent again\n"
    run([message(3), message(4)], "discard", "--all", "--json")
    assert json.loads(capsys.readouterr().out) == {"messages": [3, 4], "done": "discarded"}
