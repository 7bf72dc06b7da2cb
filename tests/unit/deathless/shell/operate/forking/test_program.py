"""What a program's service is forked with stays readable while the original replaces it."""

from pathlib import Path

import pytest

from deathless.base.errors import ForkRefused
from deathless.shell.operate.forking.program import ProgramFiles

ROWS = "topics/inputs/abab.7"


def original(path: Path, *positions: int) -> Path:
    """One with checkpoints at these positions, and rows."""
    (path / "application").mkdir(parents=True)
    (path / ROWS / "floors").mkdir(parents=True)
    for position in positions:
        (path / "application" / f"checkpoint-{position:020}").write_text(f"state at {position}")
    (path / "application" / "partial-r0").write_text("half")
    (path / ROWS / "1.rows").write_text("rows from 1 on")
    (path / ROWS / "floors" / "00000000000000000001.begins").touch()
    return path


def copied(fork: Path) -> dict[str, str]:
    return {str(each.relative_to(fork)): each.read_text() for each in sorted(fork.rglob("*")) if each.is_file()}


def test_what_was_there_is_copied_though_it_is_gone_and_rows_that_came_since(tmp_path: Path) -> None:
    path = original(tmp_path / "original", 20, 40, 60)
    files = ProgramFiles(str(path))
    (path / "application" / f"checkpoint-{20:020}").unlink()
    (path / ROWS / "1.rows").unlink()
    (path / ROWS / "50.rows").write_text("rows from 50 on")
    files.copy(tmp_path / "fork", 50)
    assert copied(tmp_path / "fork") == {
        f"application/checkpoint-{20:020}": "state at 20",
        f"application/checkpoint-{40:020}": "state at 40",
        f"{ROWS}/1.rows": "rows from 1 on",
        f"{ROWS}/50.rows": "rows from 50 on",
        f"{ROWS}/floors/00000000000000000001.begins": "",
    }


def test_cut_before_every_checkpoint_is_refused(tmp_path: Path) -> None:
    files = ProgramFiles(str(original(tmp_path / "original", 20, 40)))
    with pytest.raises(ForkRefused, match=r"got 19 rows.* behind 20"):
        files.copy(tmp_path / "fork", 19)


def test_program_that_never_began_has_nothing_to_copy(tmp_path: Path) -> None:
    ProgramFiles(str(tmp_path / "original")).copy(tmp_path / "fork", 0)
    assert not (tmp_path / "fork").exists()
