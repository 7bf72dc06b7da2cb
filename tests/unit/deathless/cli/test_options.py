"""How a command finds its service."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli import primary
from deathless.cli.main import main
from deathless.cli.options import target
from deathless.shell.operate.target import Target

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


def test_a_command_for_one_shard_asks_which_where_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.yaml").write_text(MANIFEST.replace("{module", "{shards: 2, module"))
    assert main(["parked"]) == 64
    assert "add --shard 0 to 1" in " ".join(capsys.readouterr().err.split())
    assert main(["parked", "--shard", "1"]) == 69, "nothing runs"
    assert main(["parked", "--shard", "2"]) == 64
    assert main(["status"]) == 69
    assert capsys.readouterr().out.startswith("bank: no replica is announced in")
    assert main(["status", "--shard", "1"]) == 69
    assert capsys.readouterr().out.startswith("bank/1/2: no replica is announced in")
    assert main(["down", "--shard", "1"]) == 64
    assert main(["erase", "--shard", "1"]) == 64
    assert "a service is erased as a whole" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("group", "empty"),
    [
        ("peers", {"peers": []}),
        ("invocations", {"invocations": [], "count": 0, "nowUs": 5}),
        ("schedules", {"schedules": [], "nowUs": 5}),
    ],
)
def test_a_group_that_lists_does_so_where_no_command_of_it_is_named(
    group: str,
    empty: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def answer(found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        assert (found.config.service, command) == ("bank", group)
        return empty

    monkeypatch.setattr(primary, "ask_primary", answer)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.yaml").write_text(MANIFEST)
    for options in ([], ["--json"], ["-f", "service.yaml"], ["--shard", "0"]):
        assert main([group, "list", *options]) == 0
        listed = capsys.readouterr().out
        assert main([group, *options]) == 0
        assert capsys.readouterr().out == listed != ""
    for asked in ("-h", "--help"):
        assert main([group, asked]) == 0
        assert "Usage: deathless " + group in capsys.readouterr().out
    assert main([group, "lsit"]) == 2
