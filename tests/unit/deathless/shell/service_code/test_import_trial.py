"""A tool imports a service's code after another process has: the tool outlives whatever that code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.errors import CodeEndedProcess, ImportNotEnded, InvalidService
from deathless.shell.service_code import separate_process
from deathless.shell.service_code.import_trial import load_tried

TEXT = """
from deathless import Service, Struct
class Purse(Struct):
    total: int = 0
purse = Service("purse", state=Purse)
"""


def written(tmp_path: Path, more: str = "") -> str:
    path = tmp_path / "tried_purse.py"
    path.write_text(TEXT + more)
    return f"{path}:purse"


def test_service_whose_import_ends_is_here(tmp_path: Path) -> None:
    assert load_tried(written(tmp_path), name="other").name == "other"


def test_module_that_ends_its_process_does_not_end_the_tool(tmp_path: Path) -> None:
    with pytest.raises(CodeEndedProcess, match=r"tried_purse\.py:purse ended with status 0"):
        load_tried(written(tmp_path, "import os\nos._exit(0)\n"))


def test_module_whose_import_never_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.1)
    with pytest.raises(ImportNotEnded, match=r"tried_purse\.py:purse"):
        load_tried(written(tmp_path, "import time\ntime.sleep(3600)\n"))


def test_what_loading_raises_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(InvalidService, match="broken"):
        load_tried(written(tmp_path, "raise ValueError('broken')\n"))
