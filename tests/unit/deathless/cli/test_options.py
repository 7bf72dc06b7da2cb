"""How a command finds its service."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli.main import main
from deathless.cli.options import target

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec: {module: "pkg.bank:bank"}
"""


def test_manifest_is_found_here_or_by_option_or_by_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "service.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path / "a")
    assert target("service.yaml", "").config.service == "bank"
    assert main(["status"]) == 69
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 78
    assert main(["status", "-f", "a/service.yaml"]) == 69
    monkeypatch.setenv("DEATHLESS_MANIFEST", "a/service.yaml")
    assert main(["status"]) == 69
    assert main(["status", "--dir", str(tmp_path)]) == 64
    assert "no service was started here" in " ".join(capsys.readouterr().err.split())
