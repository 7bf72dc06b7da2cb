"""`deathless ambrosia`: what it prints; programs are checked in tests/process/test_ambrosia_check.py."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from deathless.cli.look import ambrosia
from deathless.cli.main import main
from deathless.foreign import replay as replaying
from deathless.foreign.replay import Differing, ReplayOrder, ReplayReport
from deathless.shell.foreign.check import scenarios
from deathless.shell.foreign.check.report import Finding, Report
from deathless.shell.foreign.check.scenarios import Plan

FOUND = Finding(
    rule="replay",
    scenario="killed",
    what="it sent another message to itself at position 4",
    remedy="look for a clock",
    position=4,
    method=2,
    expected="a fork of method 2 with 1 bytes: 61",
    got="a fork of method 2 with 1 bytes: 62; it differs from byte 0 on",
    output=("one", "two"),
)


@pytest.fixture(name="plans")
def plans_that_are_checked(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans that came to the check, which finds FOUND in programs called wrong."""
    plans: list[Plan] = []

    async def check(plan: Plan, told: object) -> Report:
        plans.append(plan)
        found = [FOUND] if plan.settings.command == ("wrong",) else []
        return Report(seed=plan.seed, scenarios=["first run"], calls=2, outputs=1, findings=found, notes=["a note"])

    monkeypatch.setattr(scenarios, "check", check)
    return plans


def test_a_finding_says_where_it_is_what_was_right_and_what_to_do(
    plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ambrosia", "check", "--method", "1", "wrong"]) == ambrosia.EXIT_FOUND
    assert capsys.readouterr().out == (
        "replay: it sent another message to itself at position 4 (in: killed)\n"
        "  where     to itself, position 4, method 2\n"
        "  expected  a fork of method 2 with 1 bytes: 61\n"
        "  got       a fork of method 2 with 1 bytes: 62; it differs from byte 0 on\n"
        "  printed   one\n"
        "  printed   two\n"
        "  remedy    look for a clock\n"
        "note: a note\n"
        "1 thing to mend (seed 0): first run; 2 calls, 1 message sent\n"
    )


def test_options_of_the_program_are_its_own(plans: list[Plan], tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    calls.write_text('{"method": 7, "text": "x"}\n')
    options = ["--calls", str(calls), "--no-upgrade", "--seconds", "4", "--seed", "9", "--states", "--name", "pti"]
    assert main(["ambrosia", "check", *options, "right", "--json", "--seed=1"]) == 0
    plan = plans[0]
    assert plan.settings.command == ("right", "--json", "--seed=1")
    assert (plan.settings.instance, plan.settings.patience.handler_s) == ("pti", 4)
    assert (plan.seed, plan.upgrades, plan.states) == (9, False, True)
    assert [call.method for call in plan.calls] == [7]


def test_a_program_is_not_checked_with_calls_that_it_may_not_know(
    plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--method", str(1 << 31)], ["--method", str(-(1 << 31) - 1)]):
        assert main(["ambrosia", "check", *options, "right"]) == 2
        assert "--method" in capsys.readouterr().err
    assert not plans


def test_launchers_are_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "bin"
    assert main(["ambrosia", "install", str(folder)]) == 0
    told = capsys.readouterr().out.split()
    assert told == [str(folder / name) for name in ("Ambrosia", "ImmortalCoordinator", "UnsafeDeregisterInstance")]
    assert main(["ambrosia", "install", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"launchers": told}
    assert all(Path(path).stat().st_mode & 0o111 for path in told)
    (folder / "Ambrosia").write_text("#!/bin/sh\n")
    assert main(["ambrosia", "install", str(folder)]) != 0
    assert "no launcher of ours" in capsys.readouterr().err


SERVICE = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: counter}
spec: {binding: {command: [./counter]}}
"""
EQUAL = ReplayReport(
    checkpoint=20, end=34, rows=14, messages=13, outputs=2, beyond=1, refused=0, upgraded=False, differs=None
)
DIFFERS = Differing(
    target="", first=2, last=2, row=23, fewer=False, expected=("a fork of method 2",), got=("a fork of method 3",)
)


@pytest.fixture(name="orders")
def orders_that_are_replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ReplayOrder]:
    """Orders that came to the replay, which finds DIFFERS with programs called wrong."""
    orders: list[ReplayOrder] = []

    async def replay(order: ReplayOrder, told: object) -> ReplayReport:
        orders.append(order)
        wrong = order.settings.command == ("wrong",)
        return msgspec.structs.replace(EQUAL, differs=DIFFERS, beyond=0) if wrong else EQUAL

    monkeypatch.setattr(replaying, "replay", replay)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.yaml").write_text(SERVICE)
    return orders


def test_a_program_that_repeats_itself_is_equal(orders: list[ReplayOrder], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ambrosia", "replay", "--from", "oldest", "--to", "34"]) == 0
    assert capsys.readouterr().out == (
        "note: 1 message behind the last one that was logged: compared with nothing\n"
        "equal: 14 rows behind the checkpoint at position 20; 13 messages got, 2 messages sent\n"
    )
    (order,) = orders
    assert (order.settings.command, order.settings.purpose) == (("./counter",), "replay")
    assert (order.oldest, order.start, order.end, order.upgraded) == (True, None, 34, False)


def test_another_program_is_named_behind_the_options(
    orders: list[ReplayOrder], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ambrosia", "replay", "--from", "7", "--upgrade", "wrong"]) == ambrosia.EXIT_FOUND
    assert capsys.readouterr().out == (
        "to itself, position 2: it sent something else than what was logged\n"
        "  where     row 23 of what it got\n"
        "  expected  a fork of method 2\n"
        "  got       a fork of method 3\n"
        "differs: 14 rows behind the checkpoint at position 20; 13 messages got, 2 messages sent\n"
    )
    (order,) = orders
    assert (order.settings.purpose, order.start, order.oldest, order.upgraded) == ("rehearsal", 7, False, True)
    assert main(["ambrosia", "replay", "--json", "wrong"]) == ambrosia.EXIT_FOUND
    assert json.loads(capsys.readouterr().out)["differs"]["row"] == 23


def test_what_is_no_place_or_no_program_is_refused(
    orders: list[ReplayOrder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ambrosia", "replay", "--from", "now"]) == 64
    assert "newest, oldest, or a checkpoint's position" in capsys.readouterr().err
    (tmp_path / "a.py").write_text("")
    (tmp_path / "service.yaml").write_text(SERVICE.replace("binding: {command: [./counter]}", "module: a.py:b"))
    assert main(["ambrosia", "replay"]) == 64
    assert "is no program" in capsys.readouterr().err
    assert not orders
