"""What `make quick` leaves out is there, and `make test` runs it."""

from __future__ import annotations

from pathlib import Path

from tests.long import FOLDERS, MODULES, is_long

TESTS = Path(__file__).resolve().parent


def test_what_is_left_out_is_there() -> None:
    assert [path for path in MODULES if not (TESTS / path).is_file()] == []
    assert [folder for folder in FOLDERS if not (TESTS / folder).is_dir()] == []
    assert sorted(set(MODULES)) == list(MODULES)


def test_listed_modules_and_folders_are_long_and_others_are_not() -> None:
    assert all(map(is_long, MODULES))
    assert is_long("sim/test_seeds.py")
    assert not is_long("test_tidy.py")
    assert not is_long("simulated.py")


def test_make_test_leaves_nothing_out() -> None:
    makefile = (TESTS.parent / "Makefile").read_text()
    (goals,) = (line for line in makefile.splitlines() if line.startswith("test: "))
    assert {"single", "processes"} <= set(goals.partition("##")[0].split())
    assert "quick" not in goals.partition("##")[0].split()
    (single,) = (line for line in makefile.splitlines() if line.startswith("SINGLE := "))
    assert "--quick" not in single
