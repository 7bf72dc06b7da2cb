"""The same seed gives the same trace, in any process and under any hash seed: a failing seed can be run again."""

import os
import subprocess
import sys
from pathlib import Path

RUNTIME = Path(__file__).parents[2] / "runtime"
SEEDS = (3, 21, 24, 42)
PROGRAM = """
import sys
from deathless.simulation.runs.run import run_seed
print(*(run_seed(int(seed)).trace_hash for seed in sys.argv[1:]))
"""


def hashes_under(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(RUNTIME)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_two_processes_with_different_hash_seeds_see_the_same_traces() -> None:
    first = hashes_under("1")
    assert first == hashes_under("271828")
    assert len(set(first)) == len(SEEDS), "different seeds give different traces"
