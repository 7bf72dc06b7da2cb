"""A shard of seeds: whole clusters under faults that chance draws, judged by every checker.

`DEATHLESS_SIM_SEEDS` and `DEATHLESS_SIM_FROM` choose how many and which; `make sim` runs many more.
"""

import os

import pytest

from deathless.simulation.__main__ import main
from deathless.simulation.run import run_seed

FIRST = int(os.environ.get("DEATHLESS_SIM_FROM", "0"))
COUNT = int(os.environ.get("DEATHLESS_SIM_SEEDS", "40"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_cluster_under_faults_loses_and_doubles_nothing(seed: int) -> None:
    result = run_seed(seed)
    assert result.good, "\n".join(
        map(str, [*result.violations[:5], f"see: python -m deathless.simulation --trace {seed}"])
    )


def test_the_command_tells_how_many_were_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--jobs", "1", "--json"]) == 0
    told = capsys.readouterr().out
    assert '"good": true' in told
    assert '"seeds": 3' in told


def test_the_command_shows_what_happens_in_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", "3", "--kinds"]) == 0
    told = capsys.readouterr().out
    assert "took over" in told
    assert told.endswith("good\n")
