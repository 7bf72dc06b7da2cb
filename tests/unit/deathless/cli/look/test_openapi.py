"""`deathless openapi`: the document of a service, found by its manifest or by its module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from deathless.cli.main import main

SERVICE = """
from deathless import Context, Service, Struct

class State(Struct):
    count: int = 0

{name} = Service("{name}", state=State)

@{name}.handler
def add(state: State, ctx: Context, by: int = 1) -> int:
    return by
"""
MANIFEST = """apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: {name}}}
spec: {{module: "{name}.py:{name}"}}
"""


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    told = json.loads(capsys.readouterr().out)
    validate(told)
    return told


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_service_of_a_manifest_is_described(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"tally{len(more)}"
    (tmp_path / f"{name}.py").write_text(SERVICE.format(name=name))
    (tmp_path / "service.yaml").write_text(MANIFEST.format(name=name))
    assert main(["openapi", "-f", str(tmp_path / "service.yaml"), *more]) == 0
    assert f"/{name}/{{key}}/add" in printed(capsys)["paths"]


def test_a_module_is_described_without_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tally3.py").write_text(SERVICE.format(name="tally3"))
    assert main(["openapi", f"{tmp_path}/tally3.py:tally3"]) == 0
    assert printed(capsys)["info"]["title"] == "tally3"


def test_a_module_that_is_none_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["openapi", f"{tmp_path}/nowhere.py:bank"]) == 78
    assert "nowhere.py" in capsys.readouterr().err
