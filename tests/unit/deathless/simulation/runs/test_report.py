"""What is told of a run of many seeds: its page has every count, every judge, and every seed that failed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

import deathless.simulation
from deathless.simulation import __main__ as command
from deathless.simulation.__main__ import main
from deathless.simulation.checkers import Violation
from deathless.simulation.runs.report import (
    FAILED_SHOWN_MAX,
    JUDGES,
    JUDGES_OF_ONE,
    JUDGES_OF_SEVERAL,
    JUDGES_OF_STREAMS,
    Record,
    commit_of_tree,
    describe_machine,
    judges,
    page,
)
from deathless.simulation.runs.run import Options, Result
from deathless.simulation.runs.seeds import run

RECORD = Record(
    seeds=2_000, runs_of_services=200, services=700, first=50, good=True, failed={}, faults=30_000, takeovers=4_000,
    operations=90_000, virtual_s=6_000.0, cpu_s=1_000.0, slowest_s=2.5, seconds=610.4,
)  # fmt: skip


def told(record: Record) -> str:
    return page(record, command="python -m it", date="2026-11-25", commit="abc123", machine="8 cores of X", jobs=2)


def test_page_has_verdict_command_date_commit_machine_and_each_count() -> None:
    text = told(RECORD)
    assert "**PASSED**, 2026-11-25, commit abc123\n\n    python -m it\n\nOn 8 cores of X.\n" in text
    for row in (
        "runs | 2,000", "seeds | 50 to 2049", "call each other | 200, with 700 services", "of one cluster | 1,800",
        "with its replicas | 2,500", "faults | 30,000", "first primaries | 4,000", "operations of clients | 90,000",
        "minutes of simulated time | 100.0", "seconds that the runs took | 610", "processes that shared the runs | 2",
        "mean | 500 ms", "maximum | 2,500 ms", "something was wrong | 0",
    ):  # fmt: skip
        assert f"{row} |" in text, row
    assert "What was wrong" not in text


def test_page_of_a_failed_run_names_each_seed_and_what_was_wrong() -> None:
    failed = {str(seed): [f"pairs: message {at} of {seed}\n`twice`" for at in range(5)] for seed in range(60)}
    text = told(msgspec.structs.replace(RECORD, good=False, failed=failed))
    assert "**FAILED**, 2026-11-25" in text
    assert "something was wrong | 60 |" in text
    assert f"Seeds {', '.join(failed)}." in text
    assert '- seed 7, 5 in all\n    - `pairs: message 0 of 7 "twice"`\n' in text
    assert text.count("in all\n") == FAILED_SHOWN_MAX


def test_page_names_the_judges_that_its_runs_had() -> None:
    assert set(judges(RECORD)) == {*JUDGES, *JUDGES_OF_ONE, *JUDGES_OF_SEVERAL}
    alone = msgspec.structs.replace(RECORD, runs_of_services=0, services=0)
    assert set(judges(alone)) == {*JUDGES, *JUDGES_OF_ONE}
    several = msgspec.structs.replace(RECORD, runs_of_services=2_000)
    assert set(judges(several)) == {*JUDGES, *JUDGES_OF_SEVERAL}
    of_streams = msgspec.structs.replace(alone, runs_of_streams=5)
    assert set(judges(of_streams)) == {*JUDGES, *JUDGES_OF_ONE, *JUDGES_OF_STREAMS}
    assert "| linearizability |" in told(alone)
    assert "| linearizability |" not in told(several)


def test_every_judge_of_the_code_can_be_named() -> None:
    folder = Path(deathless.simulation.__file__).parent
    found = {name for path in folder.rglob("*.py") for name in re.findall(r'checker="(\w+)"', path.read_text())}
    assert found == {*JUDGES, *JUDGES_OF_ONE, *JUDGES_OF_SEVERAL, *JUDGES_OF_STREAMS}


def test_command_writes_the_page_and_tells_how_to_run_it_again(tmp_path: Path) -> None:
    record = tmp_path / "page.md"
    assert main(["--seeds", "1", "--from", "9", "--jobs", "1", "--record", str(record), "--json"]) == 0
    text = record.read_text()
    assert "    python -m deathless.simulation --seeds 1 --from 9 --jobs 1 --json\n" in text
    assert "seeds | 9 to 9 |" in text
    assert commit_of_tree() in text
    assert describe_machine() in text


def test_failed_run_is_recorded_and_ends_with_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(work: tuple[int, int, Options]) -> Result:
        result = run(work)
        wrong = (Violation(checker="pairs", text="one too many"),) if result.seed == 1 else ()
        return dataclasses.replace(result, violations=wrong)

    monkeypatch.setattr(command, "run", spoiled)
    record = tmp_path / "page.md"
    assert main(["--seeds", "2", "--jobs", "1", f"--record={record}", "--json"]) == 1
    assert "**FAILED**" in record.read_text()
    assert "Seeds 1.\n\n- seed 1, 1 in all\n    - `pairs: one too many`" in record.read_text()


@pytest.mark.parametrize("wrong", [["--trace", "3", "--record", "page.md"], ["--record", "no-such-folder/page.md"]])
def test_page_that_cannot_be_written_is_refused_before_anything_runs(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
