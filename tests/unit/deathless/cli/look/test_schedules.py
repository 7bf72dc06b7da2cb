"""`deathless schedules`: what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli import primary
from deathless.cli.main import main
from deathless.shell.operate.target import Target

MANIFEST = (
    "apiVersion: deathless.dev/v1alpha1\nkind: DeathlessService\nmetadata: {name: bank}\nspec: {module: 'pkg.m:a'}\n"
)
ONE = {
    "name": "nightly", "handler": "run", "key": "a", "expression": "0 3 * * *", "zone": "UTC", "missed": "one",
    "last_us": 0, "next_us": 1_795_349_665_495_711, "new": False, "invocations": [], "problem": "",
}  # fmt: skip


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, schedules: list[dict[str, object]], *more: str) -> None:
    async def answer(found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        assert (found.config.service, command) == ("bank", "schedules")
        return {"schedules": schedules, "nowUs": 5}

    manifest = folder / "service.yaml"
    manifest.write_text(MANIFEST)
    monkeypatch.setattr(primary, "ask_primary", answer)
    assert main(["schedules", "list", "-f", str(manifest), *more]) == 0


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "waits"),
        ({"new": True}, "new: its times count from the next time record on"),
        ({"invocations": [7, 9]}, "invocation 7, 9"),
        ({"problem": "DL3014 ValueError: no"}, "waits; the last failed: DL3014 ValueError: no"),
    ],
)
def test_schedules_are_a_table_and_json_for_programs(
    changed: dict[str, object],
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(tmp_path, monkeypatch, [ONE | changed])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "TIMES", "ZONE", "MISSED", "LAST", "NEXT", "STATE"]
    assert row.split()[:9] == ["nightly", "0", "3", "*", "*", "*", "UTC", "one", "-"]
    assert row.endswith(f"2026-11-22 12:14:25.495  {state}")
    run(tmp_path, monkeypatch, [ONE | changed], "--json")
    assert json.loads(capsys.readouterr().out) == {"schedules": [ONE | changed | {"state": state}]}


def test_that_there_are_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, [])
    assert capsys.readouterr().out == "this service has no schedules\n"
