"""`deathless invocations`: what is shown of handlers that wait, and what is ordered."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deathless.base.errors import DeathlessError, HandlerFailed, InvocationUnknown, OutcomeUnknown
from deathless.cli import primary
from deathless.cli.look import invocations
from deathless.cli.main import main
from deathless.shell.operate.target import Target

MANIFEST = (
    "apiVersion: deathless.dev/v1alpha1\nkind: DeathlessService\nmetadata: {name: bank}\nspec: {module: 'pkg.m:a'}\n"
)
ONE = {
    "invocation": 12, "handler": "place", "key": "order-1", "since_us": 1_000_000, "turns": 2,
    "waits_for": ["promise 12.2", "timer until 9 us"], "origin": "client", "misfit": "",
}  # fmt: skip


class Primary:
    """Answers with what it is given; remembers what it was asked."""

    def __init__(self, answer: dict[str, object]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def __call__(self, found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        assert found.config.service == "bank"
        self.asked.append((command, arguments or {}))
        return self.answer


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], *arguments: str
) -> list[tuple[str, dict[str, str]]]:
    """Run a command against such a primary; gives what that was asked."""
    manifest = folder / "service.yaml"
    manifest.write_text(MANIFEST)
    fake = Primary(answer)
    monkeypatch.setattr(primary, "ask_primary", fake)
    assert main([*arguments, "-f", str(manifest)]) == 0
    return fake.asked


def test_handlers_that_wait_are_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"count": 5, "invocations": [ONE], "nowUs": 4_500_000}
    asked = run(tmp_path, monkeypatch, answer, "invocations", "list", "--from", "3")
    assert asked == [("invocations", {"from": "3"})]
    head, row, _, more = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["ID", "HANDLER", "KEY", "FOR"]
    assert row.split()[:5] == ["12", "place", "order-1", "3.5", "s"]
    assert row.endswith("promise 12.2; timer until 9 us")
    assert more == "5 in all; the next: --from 13"


def test_moments_are_shown_as_people_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ONE | {"waits_for": ["promise 12.2, since 1795349665495711 us"]}
    run(tmp_path, monkeypatch, {"count": 1, "invocations": [one], "nowUs": 0}, "invocations", "list")
    assert "promise 12.2, since 2026-11-22 12:14:25.495" in capsys.readouterr().out


def test_handlers_that_wait_are_json_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, {"count": 1, "invocations": [ONE], "nowUs": 0}, "invocations", "list", "--json")
    assert json.loads(capsys.readouterr().out) == {"count": 1, "invocations": [ONE]}


def test_that_none_waits_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, {"count": 0, "invocations": [], "nowUs": 0}, "invocations", "list")
    assert capsys.readouterr().out == "no handler waits\n"


def test_one_handler_that_waits_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(tmp_path, monkeypatch, {"invocation": ONE, "nowUs": 0}, "invocations", "show", "12")
    assert asked == [("invocation", {"invocation": "12"})]
    told = capsys.readouterr().out
    assert "order-1" in told
    assert "timer until 9 us" in told
    run(tmp_path, monkeypatch, {"invocation": ONE, "nowUs": 0}, "invocations", "show", "12", "--json")
    assert json.loads(capsys.readouterr().out) == {**ONE, "arguments": None, "given": [], "givenCount": 0}


def test_the_history_of_one_is_a_table_in_the_order_of_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        {"operation": 1, "what": "stock/0/a hold", "asked_us": 1_000_000, "lsn": 14, "at_us": 2_500_000, "bytes": 2,
         "value": {"left": 4}},
        {"operation": 2, "what": "timer until 9000000000000000 us", "asked_us": 1, "lsn": 15, "at_us": 1, "bytes": 1},
        {"operation": 3, "what": "bank/0/a pay", "asked_us": 1, "lsn": 16, "at_us": 1, "bytes": 30,
         "code": "DL3014", "type": "Poor", "error": "no"},
        {"operation": 4, "what": "stock/0/a all", "asked_us": 1, "lsn": 17, "at_us": 1, "bytes": 70_000, "value": None},
        {"operation": 5, "what": "stock/0/a some", "asked_us": 1, "lsn": 18, "at_us": 1, "bytes": 1500,
         "value": "x" * 1490},
        {"operation": 0, "what": "cancelled", "asked_us": 0, "lsn": 19, "at_us": 1, "bytes": 3, "error": "cancelled"},
    ]  # fmt: skip
    shown = {"invocation": ONE, "nowUs": 0, "arguments": {"article": "apple"}, "given": given, "givenCount": 1006}
    run(tmp_path, monkeypatch, shown, "invocations", "show", "12")
    told = capsys.readouterr().out
    assert 'arguments {"article":"apple"}' in told
    head, hold, timer, pay, long, some, cancelled, _, count = told.splitlines()[-9:]
    assert head.split() == ["LSN", "AT", "OPERATION", "WHAT", "AFTER", "GIVEN"]
    assert hold.endswith('1.5 s  {"left":4}')
    assert (timer.endswith("null"), "us" in timer) == (True, False)
    assert pay.endswith("DL3014 Poor: no")
    assert long.endswith("70000 bytes")
    assert some.endswith("x...")
    assert cancelled.split()[-2:] == [":", "cancelled"]
    assert count == "the last 6 of 1006"


def test_what_was_parked_is_run_again_and_its_new_id_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(tmp_path, monkeypatch, {"done": True, "invocation": 90}, "invocations", "retry-parked", "40")
    assert asked == [("order", {"command": "retry", "invocation": "40"})]
    assert capsys.readouterr().out == "what was parked at lsn 40 is invocation 90\n"
    run(tmp_path, monkeypatch, {"done": True, "invocation": 90}, "invocations", "retry-parked", "40", "--json")
    assert json.loads(capsys.readouterr().out) == {"parked": 40, "invocation": 90, "done": "retried"}


CASE = {
    "invocation": 12, "operation": 1, "handler": "place", "key": "order-1", "activity": "charge",
    "activityKey": "0f3a", "lsn": 90, "atUs": 1_795_349_665_495_711,
}  # fmt: skip


def test_activities_of_unknown_outcome_are_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(tmp_path, monkeypatch, {"unknown": [CASE], "count": 3}, "invocations", "unknown")
    assert asked == [("unknown", {})]
    head, row, _, count = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["ID", "OPERATION", "HANDLER", "KEY", "ACTIVITY"]
    assert row.split() == ["12", "1", "place", "order-1", "charge", "0f3a", "90", "2026-11-22", "12:14:25.495"]
    assert count == "the last 1 of 3"
    run(tmp_path, monkeypatch, {"unknown": [CASE], "count": 3}, "invocations", "unknown", "--json")
    assert json.loads(capsys.readouterr().out) == {"unknown": [CASE], "count": 3}
    run(tmp_path, monkeypatch, {"unknown": [], "count": 0}, "invocations", "unknown")
    assert capsys.readouterr().out == "no outcome is unknown\n"


def test_an_activity_is_settled_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(tmp_path, monkeypatch, {"done": True}, "invocations", "settle", "12", "1")
    assert asked == [("order", {"command": "settle", "invocation": "12", "operation": "1"})]
    assert capsys.readouterr().out == "operation 1 of invocation 12 is settled\n"
    run(tmp_path, monkeypatch, {"done": True}, "invocations", "settle", "12", "1", "--json")
    assert json.loads(capsys.readouterr().out) == {"invocation": 12, "operation": 1, "done": "settled"}


class Waited:
    """Gives the result of an invocation, or what stands for it, after having been asked in the right way."""

    def __init__(self, gives: object) -> None:
        self.gives = gives
        self.asked: list[tuple[int | str, float | None]] = []

    async def result(self, invocation: int | str, *, timeout: float | None = None) -> object:  # noqa: ASYNC109  as Client
        self.asked.append((invocation, timeout))
        if isinstance(self.gives, DeathlessError):
            raise self.gives
        return self.gives


def wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gives: object, *arguments: str, text: str = MANIFEST
) -> tuple[int, Waited]:
    """Run `invocations wait` on a service of this manifest; gives its exit code, and what was asked."""
    manifest = folder / "service.yaml"
    manifest.write_text(text)
    client = Waited(gives)

    async def with_client(found: Target, work: Callable[[Any], Awaitable[object]]) -> object:
        assert found.config.service == "bank"
        return await work(client)

    monkeypatch.setattr(invocations, "with_client", with_client)
    return main(["invocations", "wait", *arguments, "-f", str(manifest)]), client


def test_a_result_is_waited_for_by_its_id_and_printed_as_that_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, client = wait(tmp_path, monkeypatch, {"sent": 2}, "12", "--timeout", "60")
    assert (code, client.asked) == (0, [(12, 60.0)])
    assert json.loads(capsys.readouterr().out) == {"sent": 2}
    assert wait(tmp_path, monkeypatch, {"sent": 2}, "12", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == {"result": {"sent": 2}, "invocation": 12}


def test_a_result_is_waited_for_at_the_shard_that_its_id_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MANIFEST.replace("{module", "{shards: 2, module")
    code, client = wait(tmp_path, monkeypatch, 7, "1-12", "--json", text=text)
    assert (code, client.asked) == (0, [(12, 10.0)])
    assert json.loads(capsys.readouterr().out) == {"result": 7, "invocation": 12, "shard": 1}
    assert wait(tmp_path, monkeypatch, 7, "12", text=text)[0] in (2, 64), "of which shard?"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutcomeUnknown("no reply within 10 s"), "the same command waits again"),
        (InvocationUnknown("12"), "DL3017"),
        (HandlerFailed("ValueError: no"), "ValueError: no"),
    ],
)
def test_a_wait_without_a_result_ends_as_a_call_does(
    error: DeathlessError,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert wait(tmp_path, monkeypatch, error, "12")[0] == error.exit_code
    told = capsys.readouterr()
    assert told.out == ""
    assert words in " ".join(told.err.split())


@pytest.mark.parametrize(("command", "done"), [("cancel", "cancelled"), ("kill", "killed"), ("resume", "resumed")])
def test_an_order_is_sent_and_told(
    command: str, done: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (asked,) = run(tmp_path, monkeypatch, {"done": True}, "invocations", command, "12")
    more = {"operation": "0", "value": "null"} if command == "resume" else {}
    assert asked == ("order", {"command": command, "invocation": "12", **more})
    assert capsys.readouterr().out == f"invocation 12 is {done}\n"
    run(tmp_path, monkeypatch, {"done": True}, "invocations", command, "12", "--json")
    assert json.loads(capsys.readouterr().out) == {"invocation": 12, "done": done}


def test_an_id_names_its_shard_where_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST.replace("{module", "{shards: 2, module"))
    shards: list[int] = []

    async def answer(found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        shards.append(found.config.shard)
        if command == "order":
            return {"done": True, "invocation": 12}
        return {"count": 1, "invocations": [ONE], "invocation": ONE, "nowUs": 1}

    monkeypatch.setattr(primary, "ask_primary", answer)
    where = ["-f", str(tmp_path / "service.yaml")]
    assert main(["invocations", "kill", "1-12", *where]) == 0
    assert capsys.readouterr().out == "invocation 1-12 is killed\n"
    assert main(["invocations", "cancel", "0-12", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"invocation": 12, "done": "cancelled", "shard": 0}
    assert main(["invocations", "list", "--shard", "1", *where]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "1-12"
    assert main(["invocations", "show", "1-12", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **ONE, "arguments": None, "given": [], "givenCount": 0, "shard": 1,
    }  # fmt: skip
    assert main(["invocations", "retry-parked", "1-40", *where]) == 0
    assert capsys.readouterr().out == "what was parked at lsn 40 is invocation 1-12\n"
    assert main(["invocations", "retry-parked", "40", "--shard", "0", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"parked": 40, "invocation": 12, "done": "retried", "shard": 0}
    assert shards == [1, 0, 1, 1, 1, 0]
    for wrong in (["12"], ["2-12"], ["1-12", "--shard", "0"], ["1-x"]):
        assert main(["invocations", "kill", *wrong, *where]) in (2, 64), wrong
    assert shards == [1, 0, 1, 1, 1, 0]
