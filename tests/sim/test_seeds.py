"""A shard of seeds: whole clusters under faults that chance draws, judged by every checker.

`DEATHLESS_SIM_SEEDS` and `DEATHLESS_SIM_FROM` choose how many and which; `make sim` runs many more.
"""

import json
import os
import subprocess
import sys

import pytest

from deathless.simulation.__main__ import main
from deathless.simulation.runs.run import run_seed

FIRST = int(os.environ.get("DEATHLESS_SIM_FROM", "0"))
COUNT = int(os.environ.get("DEATHLESS_SIM_SEEDS", "40"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_cluster_under_faults_loses_and_doubles_nothing(seed: int) -> None:
    result = run_seed(seed)
    assert result.good, "\n".join(
        map(str, [*result.violations[:5], f"see: python -m deathless.simulation --services 1 --trace {seed}"])
    )


def test_the_command_tells_how_many_were_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--from", "8", "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["good"] is True
    assert (told["seeds"], told["runs_of_services"], told["services"]) == (3, 1, 2)
    assert main(["--seeds", "2", "--from", "8", "--jobs", "1"]) == 0
    assert "1 clusters and 1 runs of 2 services that call each other (seeds 8 to 9)" in capsys.readouterr().out


def test_the_command_shows_what_happens_in_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", "3", "--kinds"]) == 0
    told = capsys.readouterr().out
    assert "took over" in told
    assert told.endswith("good\n")


def test_command_as_it_is_typed_runs_seeds_of_both_kinds_in_several_processes() -> None:
    command = [sys.executable, "-m", "deathless.simulation", "--seeds", "2", "--from", "8", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["seeds"] == 2
