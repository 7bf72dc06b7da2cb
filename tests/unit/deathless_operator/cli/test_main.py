"""The group of commands."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import click
import pytest

from deathless_operator.cli.main import COMMANDS, main


def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    script = "import sys; from deathless_operator.cli.main import main; main(['--help']); print('kopf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "deathless-operator" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, attribute, _ = COMMANDS[name]
    assert isinstance(getattr(import_module(f"deathless_operator.cli.{module}"), attribute), click.Command)
    assert main([name, "--help"]) == 0
    assert "Usage: deathless-operator" in capsys.readouterr().out


def test_unknown_command_and_our_own_errors_have_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["none"]) == 2
    assert main(["run", "--kubeconfig=/nowhere/config"]) == 64
    assert "DL6003" in capsys.readouterr().err
