"""`deathless resume-outside`: what a copy holds is let go in its file first, so that every later primary knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.deathless.cli.look.test_invocations import MANIFEST

from deathless.cli.main import main
from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption


@pytest.fixture(name="manifest")
def held(tmp_path: Path) -> Path:
    """The manifest of a service that was made of a copy, and does not run."""
    path = tmp_path / "service.yaml"
    path.write_text(MANIFEST)
    folder = tmp_path / ".deathless" / "bank"
    folder.mkdir(parents=True)
    write_adoption(str(folder), Adoption(hold_outside=True, through_epoch=3))
    return path


def adoption_beside(manifest: Path) -> Adoption:
    return read_adoption(str(manifest.parent / ".deathless" / "bank"))


def test_what_is_held_is_let_go_for_the_next_primary(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume-outside", "-f", str(manifest), "--json"]) == 64, "nobody is asked, so nobody agreed"
    assert "nobody to ask" in capsys.readouterr().err
    assert adoption_beside(manifest).hold_outside
    assert main(["resume-outside", "-f", str(manifest), "--json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out) == {"held": True, "told": False}
    assert adoption_beside(manifest) == Adoption(through_epoch=3)
    assert main(["resume-outside", "-f", str(manifest), "--yes"]) == 0
    assert "next primary" in capsys.readouterr().out


def test_nothing_is_let_go_without_a_word(
    manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_args, **_kwargs: False)
    assert main(["resume-outside", "-f", str(manifest)]) != 0
    assert adoption_beside(manifest).hold_outside
