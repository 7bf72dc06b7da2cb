"""`deathless erase` asks before it does anything, and says what it can't be asked; the rest is tests/process."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument, InvalidConfig
from deathless.cli.main import main

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec:
  module: service.py:bank
"""


def test_lock_of_a_directory_goes_with_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "service.yaml"
    manifest.write_text(MANIFEST)
    (tmp_path / "service.py").touch()
    assert main(["erase", "-f", str(manifest)]) == InvalidArgument.exit_code
    assert "delete" in capsys.readouterr().err


@pytest.mark.parametrize("order", ["{}", "no", '{"service": "bank", "etcd": {"endpoint": "http://e:1"}}'])
def test_order_that_cannot_be_read_is_refused(order: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["erase", "--yes", "--order", order]) == InvalidArgument.exit_code
    assert "--order" in capsys.readouterr().err


def test_prefix_that_could_be_anybodys_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    order = '{"service": "bank", "etcd": {"endpoints": ["http://127.0.0.1:1"], "prefix": "/deathless"}}'
    assert main(["erase", "--yes", "--order", order]) == InvalidConfig.exit_code
    assert "slash" in capsys.readouterr().err
