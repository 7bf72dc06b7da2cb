"""`deathless explain`: the page of an error, from a source tree and from a wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from deathless.cli.look import explain
from deathless.cli.main import cli, main

ROOT = Path(__file__).resolve().parents[5]


@pytest.mark.parametrize("word", ["DL4009", "dl4009", "4009", "UpgradeRequired", "upgraderequired"])
def test_a_page_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "errors" / "DL4009.md").read_text()


def test_a_page_is_given_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "DL4008", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["code"], told["error"]) == ("DL4008", "Diverged")
    assert told["page"].startswith("# DL4008 Diverged")


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    pages = sorted(path.stem for path in (ROOT / "docs" / "errors").glob("DL*.md"))
    assert main(["explain", "--json"]) == 0
    assert [each["code"] for each in json.loads(capsys.readouterr().out)] == pages
    assert main(["explain"]) == 0
    assert "UpgradeRequired" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "near"), [("DL4099", "DL4009"), ("Divergd", "DL4008 Diverged"), ("what", "lists all")]
)
def test_an_unknown_code_names_the_nearest(word: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 64
    told = capsys.readouterr().err
    assert f"there is no error {word!r}" in told
    assert near in told


def test_codes_are_completed() -> None:
    done = CliRunner().invoke(
        cli, env={"_DEATHLESS_COMPLETE": "bash_complete", "COMP_WORDS": "deathless explain dl400", "COMP_CWORD": "2"},
        prog_name="deathless",
    )  # fmt: skip
    assert "plain,DL4009" in done.output
    assert "plain,DL3001" not in done.output


def test_a_wheel_holds_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    pages = {path.name for path in (tmp_path / "site" / "deathless" / explain.INSTALLED).glob("DL*.md")}
    assert pages == {path.name for path in (ROOT / "docs" / "errors").glob("DL*.md")}
    done = subprocess.run(
        [sys.executable, "-c", "from deathless.cli.main import main; main(['explain', 'DL4009'])"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("# DL4009 UpgradeRequired")
