"""Command lines of AMBROSIA's tools, in all the ways in which they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import OriginalArgumentRefused
from deathless.cli.ambrosia.arguments import (
    COORDINATOR,
    INSTANCE,
    REGISTER,
    SEND,
    WrongArguments,
    number,
    parse,
    required,
    usage,
)


@pytest.mark.parametrize(
    "words",
    [
        ["-i=pti"], ["-i:pti"], ["-i", "pti"], ["--i=pti"], ["--instanceName=pti"], ["/instanceName:pti"],
        ["/INSTANCENAME", "pti"], ["--instancename", "pti"],
    ],
)  # fmt: skip
def test_option_is_read_however_it_is_written(words: list[str]) -> None:
    assert parse(words, REGISTER) == {"instanceName": "pti"}


def test_value_may_begin_as_an_option_does() -> None:
    assert parse(["-l", "/tmp/logs", "--lts", "-1"], REGISTER) == {"log": "/tmp/logs", "logTriggerSize": "-1"}
    assert parse(["-l=C:/x=y"], REGISTER) == {"log": "C:/x=y"}


def test_switch_is_on_when_it_is_there_and_off_when_it_says_so() -> None:
    assert parse(["-aa"], REGISTER) == parse(["--activeActive=true"], REGISTER) == {"activeActive": "true"}
    assert parse(["-aa=False"], REGISTER) == {}


@pytest.mark.parametrize("words", [["-q=1"], ["i=pti"], ["-i"], ["-aa=perhaps"], ["pti"]])
def test_what_can_not_be_read_is_an_error(words: list[str]) -> None:
    with pytest.raises(WrongArguments):
        parse(words, REGISTER)


@pytest.mark.parametrize(("words", "name"), [(["-npl"], "noPersistLogs"), (["--npl=true"], "noPersistLogs")])
def test_argument_that_can_not_be_honoured_is_refused_by_name(words: list[str], name: str) -> None:
    with pytest.raises(OriginalArgumentRefused, match=name):
        parse(words, REGISTER)


def test_plug_ins_for_connections_are_refused_by_name() -> None:
    for word, name in (("-an=x", "assemblyName"), ("-ac=x", "assemblyClass")):
        with pytest.raises(OriginalArgumentRefused, match=name):
            parse([word], COORDINATOR)


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    for options in (REGISTER, COORDINATOR):
        try:
            found = parse(words, options)
        except (WrongArguments, OriginalArgumentRefused):
            continue
        assert found.keys() <= {option.long for option in options}


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "--1", "1.5", "\u0661"])
def test_number_out_of_its_range_is_an_error_that_names_the_option(text: str) -> None:
    with pytest.raises(WrongArguments, match="--port"):
        number({"port": text}, "port", least=1, most=65_535)


def test_number_is_read() -> None:
    assert number({"port": "65535"}, "port", least=1, most=65_535) == 65_535
    assert number({}, "port", least=1, most=65_535) is None


def test_every_argument_that_is_missing_is_named() -> None:
    with pytest.raises(WrongArguments, match=r"instanceName is required. sendPort is required."):
        required({}, INSTANCE, SEND)
    required({"instanceName": "x"}, INSTANCE)


def test_help_shows_what_is_honoured_alone() -> None:
    text = usage("Ambrosia RegisterInstance", REGISTER)
    assert text.startswith("Usage: Ambrosia RegisterInstance [OPTIONS]\nOptions:\n")
    assert "-lts, --logTriggerSize=VALUE" in text
    assert "noPersistLogs" not in text
