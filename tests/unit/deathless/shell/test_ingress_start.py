"""An ingress that can't start says why and exits with the code of the error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.shell.ingress.ingress import main


@pytest.mark.parametrize(
    ("changes", "exit_code", "text"),
    [
        ({"module": "nowhere.py:bank"}, 78, "DL3013"),
        ({"ingress_listen": "nowhere"}, 78, "DL3001"),
        ({"limits": {"colour": 1}}, 78, "DL3001"),
    ],
)
def test_process_that_can_not_start_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], exit_code: int, text: str
) -> None:
    folder = tmp_path / "members"
    folder.mkdir()
    (tmp_path / "replicas" / "r0").mkdir(parents=True)
    module = str(Path(__file__).parents[3] / "process" / "bank_fake.py") + ":bank"
    fields = {
        "service": "bank",
        "module": module,
        "directory": str(tmp_path),
        "replica": "r0",
        "ingress_listen": "127.0.0.1:0",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | changes))
    assert main([str(path)]) == exit_code
    assert text in capsys.readouterr().err
