"""`deathless ambrosia check`: what it prints; programs are checked in tests/process/test_ambrosia_check.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli.look import ambrosia
from deathless.cli.main import main
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
    assert main(["ambrosia", "check", "right"]) == 2
    assert "--method" in capsys.readouterr().err
    assert not plans


def test_launchers_are_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "bin"
    assert main(["ambrosia", "install", str(folder)]) == 0
    told = capsys.readouterr().out.split()
    assert told == [str(folder / "Ambrosia"), str(folder / "ImmortalCoordinator")]
    assert all(Path(path).stat().st_mode & 0o111 for path in told)
    (folder / "Ambrosia").write_text("#!/bin/sh\n")
    assert main(["ambrosia", "install", str(folder)]) != 0
    assert "no launcher of ours" in capsys.readouterr().err
