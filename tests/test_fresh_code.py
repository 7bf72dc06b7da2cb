"""The code that a test wrote last is the code that runs, in its own process and in those that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

NAME = "written_twice_at_once"


def _imported_here(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # which also forgets what folders held
        patch.delitem(sys.modules, NAME, raising=False)
        said = str(__import__(NAME).SAID)
        del sys.modules[NAME]
        return said


def _imported_elsewhere(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    command = [sys.executable, "-c", f"import {NAME}; print({NAME}.SAID)"]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _written_twice(folder: Path, imported: Callable[[Path], str]) -> list[str]:
    """Give what is imported each time, of two modules with the same size and the same time."""
    said = []
    for number in (1, 2):
        path = folder / f"{NAME}.py"
        path.write_text(f"SAID = {number}\n")
        os.utime(path, (1e9, 1e9))
        said.append(imported(folder))
    return said


@pytest.mark.parametrize("imported", [_imported_here, _imported_elsewhere])
def test_module_written_twice_in_one_second_is_read_twice(imported: Callable[[Path], str], tmp_path: Path) -> None:
    assert _written_twice(tmp_path, imported) == ["1", "2"]


def test_module_whose_byte_code_is_kept_is_read_once(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    assert _written_twice(tmp_path, lambda folder: _imported_elsewhere(folder, kept)) == ["1", "1"]
