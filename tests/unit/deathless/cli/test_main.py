"""The program's face: commands, help, errors as one block, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from deathless.base.errors import DeathlessError, InvalidManifest
from deathless.cli import main as module
from deathless.cli.main import COMMANDS, GROUPS, cli, main


def test_every_command_is_in_one_group_of_the_help() -> None:
    assert sorted(name for _, names in GROUPS for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_speaks_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text) > 80
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    inner = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for each in inner:
        options = {option for parameter in each.params for option in parameter.opts}
        # A script for a shell has no JSON; pid 1 of a pod logs nothing else.
        assert "--json" in options or name in {"completion", "former", "replica"}
        assert each.help


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from deathless.cli.main import main; main(['--help']);"
        "heavy = {'rich', 'asyncio', 'yaml', 'deathless.cli.run.up', 'deathless.engine.shard.shard'};"
        "heavy &= set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    assert "did you mean status?" in capsys.readouterr().err


def test_error_is_one_block_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-f", str(tmp_path / "nope.yaml")]) == InvalidManifest.exit_code
    told = capsys.readouterr()
    assert told.out == ""
    first, *rest = told.err.splitlines()
    assert first == "error DL3002 InvalidManifest"
    assert [line.split()[0] for line in rest if not line.startswith(" " * 10)] == ["what", "remedy", "page"]
    assert "Traceback" not in told.err


def test_error_with_json_is_json_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "-f", str(tmp_path / "nope.yaml")]) == 78
    told = capsys.readouterr()
    error = json.loads(told.err)["error"]
    assert told.out == ""
    assert (error["code"], error["exitCode"], error["page"]) == ("DL3002", 78, "docs/errors/DL3002.md")


def test_misuse_with_json_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "UsageError"


def raise_in(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make every command raise."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module.cli, "main", fail)


def test_bug_of_ours_is_told_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_in(monkeypatch, ZeroDivisionError("oops"))
    assert main(["version"]) == 70
    assert "error DL9001 Internal" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "version"])


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (click.Abort(), 130)])
def test_interruption_is_no_error(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    raise_in(monkeypatch, error)
    assert main(["version"]) == code


def test_reader_that_went_away_is_no_error() -> None:
    command = f"{sys.executable} -m deathless.cli.main --help | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 141)


def test_all_exit_codes_of_errors_are_told_apart_from_success() -> None:
    waiting = [DeathlessError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        assert kind.exit_code > 0
