"""`deathless ambrosia check` against the examples, which are right, and programs that are wrong in one way each.

They run in this process, one after the other: what is checked is a process of its own anyway.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path

import pytest
from go_program import go_counter

from deathless.base.errors import ApplicationNotStarted
from deathless.cli.main import main
from deathless.protocols.ambrosia.patience import Patience
from deathless.shell.foreign.application import ApplicationSettings
from deathless.shell.foreign.check.plan import CallSpec, any_calls
from deathless.shell.foreign.check.report import Report
from deathless.shell.foreign.check.scenarios import Plan, check

ROOT = Path(__file__).resolve().parents[2]
COUNTER = ROOT / "examples" / "foreign" / "counter.py"
WRONG = Path(__file__).with_name("foreign_programs.py")
LONG_S = 120.0  # for a machine on which much else runs; what is right takes a few seconds


def checked(
    *command: str,
    folder: Path,
    patience_s: float = LONG_S,
    end_s: float = LONG_S,
    calls: int = 0,
    states: bool = False,
    upgrades: bool = True,
) -> Report:
    """Check a program; `calls` of method 1 are given again and again, in place of drawn ones."""
    settings = ApplicationSettings(
        command=command,
        instance="checked",
        folder=str(folder),
        environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        patience=Patience(connect_s=LONG_S, load_s=LONG_S, snapshot_s=patience_s, handler_s=patience_s),
    )
    named = [CallSpec(method=1, text=str(number)) for number in range(calls)] or any_calls([1], random.Random(3))
    plan = Plan(settings=settings, calls=tuple(named), seed=3, states=states, upgrades=upgrades, end_s=end_s)
    return asyncio.run(check(plan))


def wrong(name: str, folder: Path, **options: float) -> Report:
    return checked(sys.executable, str(WRONG), name, folder=folder, **options)  # type: ignore[arg-type]  # as named


def test_the_example_in_python_is_clean_also_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ambrosia", "check", "--method", "1", "--states", "--json", "--seconds", str(LONG_S)]
    assert main([*command, sys.executable, str(COUNTER)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clean"], told["report"]["findings"], told["report"]["notes"]) == (True, [], [])
    assert told["report"]["scenarios"][-1] == "disconnected"
    assert told["report"]["outputs"] > 50


def test_the_example_in_go_is_clean(tmp_path: Path) -> None:
    report = checked(str(go_counter()), folder=tmp_path, states=True)
    assert (report.findings, report.notes) == ([], [])
    assert report.calls > 500
    assert len(report.scenarios) == 7


def test_a_message_that_is_missing_on_replay_is_named(tmp_path: Path) -> None:
    found = wrong("fewer", tmp_path, calls=20).findings[0]
    assert (found.target, found.position, found.method) == ("", 20, 2)
    assert found.expected == "a fork of method 2 with 3 bytes: 313030"


def test_a_clock_in_a_message_is_found_with_the_byte_at_which_it_differs(tmp_path: Path) -> None:
    found = wrong("clock", tmp_path).findings[0]
    assert (found.rule, found.scenario, found.method) == ("replay", "killed", 2)
    assert "it differs from byte" in found.got
    assert "a clock" in found.remedy


def test_state_outside_the_checkpoint_is_found_from_a_checkpoint_in_the_middle(tmp_path: Path) -> None:
    found = wrong("outside", tmp_path).findings[0]
    assert (found.rule, found.scenario, found.method) == ("checkpoint", "checkpoint", 2)
    assert "`save`" in found.remedy


@pytest.mark.parametrize("name", ["early", "ahead"])
def test_a_checkpoint_that_is_one_message_early_or_late_is_found_when_it_is_loaded(name: str, tmp_path: Path) -> None:
    """Where the program sends something that depends on it."""
    found = wrong(name, tmp_path, upgrades=False).findings
    assert {each.rule for each in found} <= {"checkpoint", "replay"}
    assert found


def test_a_message_that_comes_behind_the_checkpoint_is_found_at_once(tmp_path: Path) -> None:
    found = wrong("late", tmp_path).findings[0]
    assert (found.rule, found.scenario, found.method) == ("flush", "first run", 2)


def test_a_message_that_is_kept_back_over_a_checkpoint_is_found_when_that_is_loaded(tmp_path: Path) -> None:
    assert "checkpoint" in [found.rule for found in wrong("forgets", tmp_path).findings]


def test_an_impulse_before_it_leads_is_found(tmp_path: Path) -> None:
    found = wrong("impulse", tmp_path).findings[0]
    assert (found.rule, found.scenario) == ("protocol", "killed")
    assert "an impulse in state FOLLOWING" in found.what
    assert "a handler forks" in found.remedy


def test_a_call_that_is_answered_twice_is_found(tmp_path: Path) -> None:
    assert wrong("answers-twice", tmp_path).findings[0].rule == "answer"


def test_a_state_whose_order_is_chance_is_found_where_states_are_compared(tmp_path: Path) -> None:
    assert wrong("unordered", tmp_path, calls=20, states=True).findings[0].rule == "state"


def test_a_program_that_never_reads_is_found_by_what_waits_for_it(tmp_path: Path) -> None:
    found = wrong("deaf", tmp_path, patience_s=1).findings
    assert [(each.rule, each.scenario) for each in found] == [("still", "first run")]
    assert "26 bytes wait for it" in found[0].what


def test_a_program_that_stays_when_its_connections_end_is_found(tmp_path: Path) -> None:
    assert [found.rule for found in wrong("lingers", tmp_path, end_s=1, upgrades=False).findings] == ["disconnected"]


def test_a_program_that_cannot_be_run_is_an_error_and_no_finding(tmp_path: Path) -> None:
    with pytest.raises(ApplicationNotStarted, match="no-such-program"):
        checked("no-such-program", folder=tmp_path)
