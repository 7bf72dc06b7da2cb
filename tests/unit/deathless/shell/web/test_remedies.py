"""What to do about an error is told in the words of the door its caller came through."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from deathless.base import errors
from deathless.base.errors import DeathlessError, Invalid, InvalidArgument, KeyReused, RetryLater
from deathless.shell.web.remedies import COMMAND, HTTP, remedy

KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DeathlessError)]
KNOWN = {each.code: each for each in KINDS if "code" in vars(each)}
OF_PYTHON = re.compile(r"idempotency_key|idempotency key|timeout=|client\.|a new client")
OF_COMMANDS = re.compile(r"(?<!operators see )`deathless |--[a-z]")
OF_OPERATORS = {  # no caller of a handler or query gets these: of starting, drivers, topics, sources, what is outside
    "DL1020", "DL1021", "DL1026", "DL3025", "DL3040", "DL3041", "DL3044", "DL3045", "DL3065", "DL3066", "DL3067",
    "DL3070", "DL3072", "DL3073", "DL3074", "DL3075", "DL3083", "DL3084", "DL3087", "DL3088", "DL3089",
    "DL3077", "DL3078", "DL3090", "DL3091", "DL3092", "DL3093", "DL3096", "DL3097", "DL3110", "DL3111",
}  # fmt: skip


@pytest.mark.parametrize("door", [HTTP, COMMAND])
def test_each_is_about_an_error_and_says_something_of_its_own(door: Mapping[str, str]) -> None:
    assert {code: text for code, text in door.items() if KNOWN[code].remedy == text} == {}


@pytest.mark.parametrize("code", sorted(KNOWN))
def test_who_calls_over_http_is_told_of_headers_and_addresses(code: str) -> None:
    kind = KNOWN[code]
    if not issubclass(kind, Invalid | RetryLater) or kind.exit_code == 78 or code in OF_OPERATORS:
        return
    told = remedy(kind(""), HTTP)
    assert not OF_PYTHON.search(told), told
    assert not OF_COMMANDS.search(told), told


def test_what_is_said_where_an_error_is_raised_fits_already() -> None:
    assert remedy(InvalidArgument("no", remedy="add ?shard=0"), HTTP) == "add ?shard=0"
    assert remedy(InvalidArgument("no"), HTTP) == HTTP["DL3003"]
    assert remedy(InvalidArgument("no"), {}) == ""


def test_who_types_a_command_is_told_of_options() -> None:
    assert "--idempotency-key" in remedy(KeyReused("no"), COMMAND)
    assert "--arg" in remedy(InvalidArgument("no"), COMMAND)
