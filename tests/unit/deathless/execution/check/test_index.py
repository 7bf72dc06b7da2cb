"""Source files as units, and who reaches whom."""

import ast

import pytest

from deathless.execution.check.index import EFFECTS, Index, Source, dotted_name, is_set_annotation

MAIN = """
import os.path
import numpy as np
from bank import helpers
from .rules import limit as cap
from typing import TYPE_CHECKING

RATE = helpers.rate()
FIRST, *REST = [1, 2]
WORDS: set[str] = set()
register("x")

if TYPE_CHECKING:
    HIDDEN = 1
if RATE:
    LATE = 1
else:
    OTHER = 2
try:
    TRIED = 1
finally:
    LAST = 1

class State:
    tags: frozenset[str]
    def method(self): return cap(self)

def unused(): return unheard()

@register
def handler(state: State):
    return inner(RATE) + state.total()

def inner(x): return x

class Other:
    def total(self): return LATE

if __name__ == "__main__":
    SCRIPT = unused()
"""
RULES = "def limit(x): return deeper(x)\ndef deeper(x) -> 'set[int]': return x\n"
HELPERS = "def rate(): return 1\n"


def index() -> Index:
    return Index(
        [
            Source("bank.main", "main.py", MAIN),
            Source("bank.rules", "rules.py", RULES),
            Source("bank.helpers", "helpers.py", HELPERS),
        ]
    )


def reached_from(name: str) -> set[str]:
    found = index()
    return found.reachable([found.units[f"bank.main:{name}"]])


def test_handler_reaches_what_it_names_and_what_that_names() -> None:
    assert reached_from("handler") == {
        "bank.main:handler", "bank.main:inner", "bank.main:RATE", "bank.helpers:rate", "bank.main:State",
        "bank.main:State.method", "bank.rules:limit", "bank.rules:deeper", "bank.main:Other.total", "bank.main:LATE",
    }  # fmt: skip


def test_what_nobody_names_is_not_reached() -> None:
    assert "bank.main:unused" not in reached_from("handler")
    assert reached_from("inner") == {"bank.main:inner"}


def test_units_of_a_module() -> None:
    names = {unit.name for unit in index().modules[0].units.values()}
    assert {"FIRST", "REST", "WORDS", "LATE", "OTHER", "TRIED", "LAST", EFFECTS} <= names
    assert not {"HIDDEN", "SCRIPT"} & names


def test_line_belongs_to_its_smallest_unit() -> None:
    found = index()
    for text, name in (("@register", "handler"), ("return cap", "State.method"), ("tags:", "State")):
        line = next(n for n, row in enumerate(MAIN.splitlines(), 1) if text in row)
        unit = found.unit_at("main.py", line)
        assert unit is not None
        assert unit.name == name
    assert found.unit_at("elsewhere.py", 1) is None
    assert found.unit_at("main.py", 1000) is None


def test_sets_are_noted_where_they_are_declared() -> None:
    found = index()
    assert found.set_attributes == {"tags"}
    assert found.set_functions == {"deeper"}
    assert found.modules[0].set_values == {"WORDS"}


def test_imported_names_are_traced_to_their_origin() -> None:
    module = index().modules[0]
    assert module.aliases == {
        "os": "os", "np": "numpy", "helpers": "bank.helpers", "cap": "bank.rules.limit",
        "TYPE_CHECKING": "typing.TYPE_CHECKING",
    }  # fmt: skip

    def dotted(text: str) -> str | None:
        return dotted_name(ast.parse(text, mode="eval").body, module)

    assert dotted("np.random.rand") == "numpy.random.rand"
    assert dotted("unknown.thing") is None
    assert dotted("call().thing") is None


def test_imports_of_a_package_are_relative_to_it() -> None:
    found = Index([Source("bank", "bank/__init__.py", "from . import rules\nfrom .. import other\n")])
    assert found.modules[0].aliases == {"rules": "bank.rules", "other": ".other"}


@pytest.mark.parametrize("text", ["set", "set[int]", "typing.AbstractSet[str]", "'frozenset[str]'"])
def test_annotation_of_a_set_is_known(text: str) -> None:
    assert is_set_annotation(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", ["list[set[int]]", "int", "'not python['", "f()", "3"])
def test_other_annotations_are_no_sets(text: str) -> None:
    assert not is_set_annotation(ast.parse(text, mode="eval").body)
    assert not is_set_annotation(None)


def test_comment_allows_rules_on_its_line() -> None:
    found = Index([Source("m", "m.py", "x = 1  # deathless: allow clock, set-order  it is only shown\n")])
    assert found.modules[0].allowed == {1: frozenset({"clock", "set-order"})}
