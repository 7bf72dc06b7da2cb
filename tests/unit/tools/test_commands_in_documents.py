"""What the documents tell people to type is there: commands, options, values of the chart, targets of make."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest
from tests.unit.tools.commands import ROOT, Line, commands

from deathless.cli.main import cli as deathless
from deathless_operator.cli.plugin import cli as plugin

# As `kind ... --help` of version 0.33 has them.
KIND: dict[tuple[str, ...], set[str]] = {
    ("create", "cluster"): {"--name", "--config", "--image", "--wait"},
    ("load", "docker-image"): {"--name", "--nodes"},
    ("load", "image-archive"): {"--name", "--nodes"},
    ("delete", "cluster"): {"--name"},
}


def check(line: Line, group: click.Command) -> None:
    """Follow a command line through its commands, and look for its options."""
    words = [word for word in line.words if not word.startswith("-")]
    command = group
    while isinstance(command, click.Group):
        assert words, f"{line}: a command is missing"
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"{line}: there is no command {words[0]}"
        command, words = found, words[1:]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help", "--debug"}
    assert set(line.options) <= known, f"{line}: {set(line.options) - known}"


@pytest.mark.parametrize("line", commands("kubectl deathless"), ids=str)
def test_command_of_the_plugin_is_there(line: Line) -> None:
    check(line, plugin)


def of_deathless() -> list[Line]:
    """Return lines of `deathless`, and none of kubectl, helm and kind that name something so."""
    known = set(deathless.list_commands(click.Context(deathless)))
    others = {line.words for line in commands("kubectl deathless")}
    return [
        line for line in commands("deathless") if line.words and line.words[0] in known and line.words not in others
    ]


@pytest.mark.parametrize("line", of_deathless(), ids=str)
def test_command_of_the_program_is_there(line: Line) -> None:
    check(line, deathless)


def test_lines_are_found() -> None:
    assert {line.words[0] for line in commands("kubectl deathless")} >= {
        "status",
        "switchover",
        "drill",
        "logs",
        "call",
    }
    assert {line.words[0] for line in of_deathless()} >= {"up", "call", "query", "adopt", "parked", "check"}
    with pytest.raises(AssertionError, match="no command stats"):
        check(Line("page", ("stats",)), plugin)
    with pytest.raises(AssertionError, match="--jason"):
        check(Line("page", ("status", "--jason")), plugin)


@pytest.mark.parametrize("line", commands("kind"), ids=str)
def test_command_of_kind_is_one_that_it_documents(line: Line) -> None:
    assert line.words[:2] in KIND, str(line)
    assert set(line.options) <= KIND[line.words[:2]], str(line)


def values_of(line: Line) -> list[str]:
    """Return the paths of values that a line sets."""
    following = zip(line.words, line.words[1:], strict=False)
    given = [after for word, after in following if word in ("--set", "--set-string")]
    return [re.sub(r"\[\d+\]", "", each.partition("=")[0]) for each in given]


@pytest.mark.parametrize("line", [line for line in commands("helm") if values_of(line)], ids=str)
def test_value_that_is_set_is_one_of_the_chart(line: Line) -> None:
    schema: Any = json.loads((ROOT / "charts/deathless/values.schema.json").read_text())
    for path in values_of(line):
        here = schema
        for step in path.split("."):
            here = here.get("items", here) if "properties" not in here else here
            assert step in here["properties"], f"{line}: {path}"
            here = here["properties"][step]


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for line in commands("make") if line.words and line.words[0].islower()]
    assert lines
    for line in lines:
        assert "=" in line.words[0] or line.words[0] in targets, str(line)
