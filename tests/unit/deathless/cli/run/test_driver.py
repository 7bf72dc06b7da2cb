"""`deathless driver check | run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli.main import main

HEAD = """apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: shop}
spec:
  module: shop.py:shop
"""


def write(folder: Path, drivers: str) -> str:
    (folder / "shop.py").touch()
    path = folder / "service.yaml"
    path.write_text(HEAD + drivers)
    return str(path)


def test_drivers_are_shown_with_their_options_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "  drivers:\n  - {name: book, kind: files, options: {path: book.jsonl}, onRefusal: skip}\n")
    assert main(["driver", "check", "-f", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"drivers": [{"name": "book", "kind": "files", "onRefusal": "skip"}]}
    assert main(["driver", "check", "-f", path]) == 0
    assert "book" in capsys.readouterr().out
    assert main(["driver", "check", "-f", write(tmp_path, "")]) == 0
    assert "no drivers" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["driver", "check"], ["up", "--plain"]])
def test_an_option_that_is_wrong_is_told_before_anything_runs(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "  drivers:\n  - {name: book, kind: files, options: {file: book.jsonl}}\n")
    assert main([*command, *(["-f"] if command[0] == "driver" else []), path]) == 78
    assert "driver book: options" in capsys.readouterr().err
    assert not (tmp_path / ".deathless").exists()


def test_a_driver_that_there_is_not_is_told(tmp_path: Path) -> None:
    config = tmp_path / "replica.json"
    config.write_text(json.dumps({"service": "shop", "module": "m:a", "directory": str(tmp_path), "replica": "r0"}))
    assert main(["driver", "run", "book", "--config", str(config)]) == 78
