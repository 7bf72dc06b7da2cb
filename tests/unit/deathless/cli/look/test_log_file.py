"""`deathless log export | import`: where they write, and what they refuse. `tests/process` runs them on real logs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.operate.test_log_export import CONFIG, driver_in

from deathless.cli.main import main


@pytest.fixture(name="data")
def log_of_a_bank(tmp_path: Path) -> Path:
    driver_in(tmp_path / "data")
    config = tmp_path / "data" / "replicas" / "r1" / "config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_bytes(msgspec.json.encode(CONFIG))
    return tmp_path / "data"


def test_file_is_its_users_alone_and_both_commands_tell_the_same(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "bank.dlog", tmp_path / "made"
    assert main(["log", "export", str(file), "--dir", str(data), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert file.stat().st_mode & 0o777 == 0o600
    assert (told["name"], told["code"], told["file"]) == ("bank", False, str(file))
    assert not {"seed", "hashSeed"} & told.keys(), "what draws chance is told to nobody"
    assert main(["log", "import", str(file), str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in again if name != "folder"} == {
        name: again[name] for name in again if name != "folder"
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank.dlog", "data", "made"]


def test_code_that_was_not_kept_is_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "export", str(tmp_path / "a"), "--dir", str(data)]) == 0
    assert "is not in it, because it was not kept" in capsys.readouterr().out


def test_file_that_exists_or_can_not_be_written_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").write_text("mine")
    assert main(["log", "export", str(tmp_path / "there"), "--dir", str(data)]) == 64
    assert main(["log", "export", str(tmp_path / "no" / "folder"), "--dir", str(data)]) == 64
    said = capsys.readouterr().err
    assert "there exists" in said
    assert "can't be written: No such file or directory" in said
    assert (tmp_path / "there").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "there"]


def test_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "import", str(tmp_path / "no"), str(tmp_path / "made")]) == 64
    assert "No such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
