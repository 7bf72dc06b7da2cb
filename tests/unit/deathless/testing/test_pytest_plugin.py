"""The fixture, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import itertools
from deathless import Context, Service, Struct

class State(Struct):
    count: int = 0

steady = Service("steady", state=State)
numbers = itertools.count()

@steady.handler
def add(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count

@steady.handler
def draw(state: State, ctx: Context) -> int:
    return next(numbers)

def test_fine(deathless_env):
    assert deathless_env(steady).service(steady)["a"].add() == 1

def test_not_deterministic(deathless_env):
    deathless_env(steady, seed=2).service(steady)["a"].draw()

def test_fails_by_itself(deathless_env):
    deathless_env(steady).service(steady)["a"].draw()
    assert False
"""


def test_an_environment_is_looked_at_behind_a_test_that_passed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" not in done.stdout.replace("2 passed, 1 error", "")
    assert "1 failed, 2 passed, 1 error" in done.stdout, done.stdout
    assert "handler 'draw' for key 'a' gave another state or reply" in done.stdout
    assert "ERROR test_it.py::test_not_deterministic" in done.stdout
    assert "FAILED test_it.py::test_fails_by_itself" in done.stdout
