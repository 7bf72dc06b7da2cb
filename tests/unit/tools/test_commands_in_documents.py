"""What the documents tell people to type is there: commands, options, values of the chart, targets of make."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest
from tests.unit.tools.commands import ROOT, Line, commands

from deathless.cli.main import cli as deathless
from deathless.cli.options import ListedGroup
from deathless_operator.cli.plugin import cli as plugin

# As `kind ... --help` of version 0.33 has them.
KIND: dict[tuple[str, ...], set[str]] = {
    ("create", "cluster"): {"--name", "--config", "--image", "--wait"},
    ("load", "docker-image"): {"--name", "--nodes"},
    ("load", "image-archive"): {"--name", "--nodes"},
    ("delete", "cluster"): {"--name"},
}


STANDS_FOR = re.compile(r".*\.\.\.|[A-Z][A-Z_]*([-=/][A-Z_]+)?")  # such as SERVICE, ID, 0f3a...


def check(line: Line, group: click.Command) -> None:
    """Follow a command line through its commands, as click does: options, choices, numbers, and how many words."""
    # With its settings: a command keeps the names of its help option from the first context that it is seen in.
    command, context, words = group, click.Context(group, **group.context_settings), list(line.words)
    while isinstance(command, click.Group):
        words = parse(line, command, context, words)
        if not words and (command.invoke_without_command or not line.whole):
            return  # it does something by itself, or a family of commands is spoken of
        assert words, f"{line}: a command is missing"
        found = command.get_command(context, words[0])
        assert found is not None, f"{line}: there is no command {words[0]}"
        command, context, words = found, click.Context(found, context), words[1:]
    left = parse(line, command, context, words)
    assert not left, f"{line}: {left} is too much"


def parse(line: Line, command: click.Command, context: click.Context, words: list[str]) -> list[str]:
    """Parse what a command takes of these words; gives those that are left."""
    if isinstance(command, ListedGroup) and (not words or words[0].startswith("-")):
        return ["list", *words]
    try:
        values, left, _ = command.make_parser(context).parse_args(words)
        for param in command.params:
            value = values.get(param.name)
            given = [each for each in (value if isinstance(value, tuple | list) else [value]) if isinstance(each, str)]
            assert given or not (param.required and line.whole), f"{line}: {param.human_readable_name} is missing"
            for each in given:
                if not STANDS_FOR.fullmatch(each) and not isinstance(param.type, click.Path):
                    param.type.convert(each, param, context)
    except click.UsageError as error:
        raise AssertionError(f"{line}: {error.format_message()}") from None
    return left


@pytest.mark.parametrize("line", commands("kubectl deathless"), ids=str)
def test_command_of_the_plugin_is_there(line: Line) -> None:
    check(line, plugin)


def of_deathless() -> list[Line]:
    """Return lines of `deathless`, and none of kubectl, helm and kind that name something so."""
    known = set(deathless.list_commands(click.Context(deathless)))
    others = {line.words for line in commands("kubectl deathless")}
    found = [line for line in commands("deathless") if line.words]
    return [line for line in found if line.begins or (line.words[0] in known and line.words not in others)]


@pytest.mark.parametrize("line", of_deathless(), ids=str)
def test_command_of_the_program_is_there(line: Line) -> None:
    check(line, deathless)


CLUSTER = ("docs/kubernetes/", "docs/runbooks/")
WITHOUT_THE_SERVICE = {
    ("docs/kubernetes/storage.md", "check"): "it looks at a manifest and the folder that it names",
    ("docs/kubernetes/uninstall.md", "erase"): "it reaches the lock store alone",
    ("docs/runbooks/conditions.md", "check"): "it looks at code",
    ("docs/runbooks/conditions.md", "fingerprint"): "it looks at code",
}
"""Commands of `deathless` on pages about clusters that need neither a replica nor its log."""


def test_page_about_clusters_names_the_plugins_command_beside_the_programs() -> None:
    typed = {(line.page, line.words[0]) for line in commands("kubectl deathless")}
    named = {(line.page, line.words[0]) for line in of_deathless() if line.begins and line.page.startswith(CLUSTER)}
    assert named >= set(WITHOUT_THE_SERVICE)
    assert named - typed - set(WITHOUT_THE_SERVICE) == set(), "who has a cluster has `kubectl deathless` alone"


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
    for words, wrong in (
        (("status", "--jason"), "--jason"),
        (("fence", "-n"), "-n"),
        (("order", "bank", "512", "explode"), "explode"),
        (("settle", "bank", "512", "one"), "'one' is not a valid integer"),
        (("peers", "bank", "stock"), "stock"),
    ):
        check(Line("page", words[:-1]), plugin)
        with pytest.raises(AssertionError, match=wrong):
            check(Line("page", words), plugin)
    check(Line("page", ("settle", "SERVICE", "ID", "OPERATION", "-n", "NS"), whole=True), plugin)
    with pytest.raises(AssertionError, match="OPERATION is missing"):
        check(Line("page", ("settle", "SERVICE", "ID"), whole=True), plugin)


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
