"""Completion scripts, and what they ask the program for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deathless.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_asks_the_program_in_its_shells_way(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_DEATHLESS_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_bash_takes_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    subprocess.run(["bash", "-n"], input=capsys.readouterr().out, text=True, check=True, timeout=30)


def complete(words: str) -> list[str]:
    """What a bash would be offered."""
    environment = {
        **os.environ, "_DEATHLESS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
    }  # fmt: skip
    code = "import sys; from deathless.cli.main import cli; cli(prog_name='deathless')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return [line.split(",")[1] for line in done.stdout.splitlines()]


def test_commands_and_options_are_offered() -> None:
    assert complete("deathless sw") == ["switchover"]
    assert "--json" in complete("deathless status --j")
    assert complete("deathless log ve") == ["verify"]
    assert complete("deathless peers ") == ["adopt", "list"], "though it lists without a command"
