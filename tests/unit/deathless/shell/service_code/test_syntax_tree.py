"""A source's hash changes with what the interpreter runs and with nothing else, under every version of Python."""

from __future__ import annotations

import ast

import pytest

from deathless.shell.service_code.syntax_tree import bytes_hash, source_hash, tree_hash

SOURCE = '''"""A bank."""
from __future__ import annotations
import json, zlib
from . import rates as _rates

LIMIT: int = 1_000
TEXT = f"{LIMIT!r:>{10}} {LIMIT:}" "and" rf"\\d{LIMIT = }"

class Account(Base, frozen=True):
    """State."""
    balance: int = 0
    """In cents."""

    @property
    def half(self) -> float:
        return self.balance / 2.0  # a comment

async def deposit(state: Account, /, amount: int = -1, *more: str, **names) -> bytes | None:
    if amount <= 0 or not more:
        raise ValueError("too small")
    match names:
        case {"a": [first, *_], **rest} | (first, rest) if first is not None:
            return b"\\x00" + (lambda x: x)(1j)
        case Account(balance=0) | None:
            ...
    async with opened(names) as file, _rates:
        total = [x async for x in file if x]
    global LIMIT
    del total[1:, ...]
    return {**names, "b": {*more}} and await file  # noqa
'''
GOLDEN = "91cb4846200e409db6efc703073f5ac1"


def test_hash_is_the_same_under_every_version_of_python() -> None:
    assert source_hash(SOURCE.encode()) == GOLDEN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A bank."""\n', ""),
        ('    """In cents."""\n', ""),
        ("  # a comment", ""),
        ("1_000", "1000"),
        ("import json, zlib", "import json,zlib  # type: ignore"),
        ('"too small"', "u'too ' 'small'"),
        ("LIMIT: int = 1_000", "LIMIT: int = (\n    1000\n)"),
        ('"""State."""', '"""Another text."""'),
        (" {LIMIT:}", " {LIMIT}"),
        ("\n", "\r\n"),
    ],
)
def test_what_changes_nothing_that_runs_is_left_out(before: str, after: str) -> None:
    assert before in SOURCE
    assert source_hash(SOURCE.replace(before, after).encode()) == GOLDEN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import json, zlib", "import zlib, json"),
        ("import json, zlib", "import json\nimport zlib"),
        ("from . import rates", "from .. import rates"),
        ("from . import rates", "import rates"),
        ("balance: int", "balance: float"),
        ("balance: int = 0", "balance: int"),
        ("1_000", "1_000.0"),
        ("1_000", "True"),
        ("amount <= 0", "amount < 0"),
        ("-1, *more", "1, *more"),
        ("case Account(balance=0) | None", "case Account(balance=0) | False"),
        ('{"a": [first, *_]', '{"a": [first, _]'),
        ("{**names,", "{'': names,"),
        ("@property", "@cached"),
        ("async with", "with"),
        ("[1:, ...]", "[:1, ...]"),
        ("lambda x: x", "lambda y: y"),
        ("!r:", "!s:"),
        ("and await", "or await"),
        ("from __future__ import annotations\n", ""),
        ('"too small"', 'b"too small"'),
        ("async for x", "for x"),
    ],
)
def test_what_runs_otherwise_has_another_hash(before: str, after: str) -> None:
    assert before in SOURCE
    assert source_hash(SOURCE.replace(before, after).encode()) != GOLDEN


def test_fields_that_a_newer_python_adds_with_an_empty_default_change_nothing() -> None:
    class NewerFunction(ast.AsyncFunctionDef):
        _fields = (*ast.AsyncFunctionDef._fields, "type_params", "default_value", "is_lazy", "note")

    NewerFunction.__name__ = "AsyncFunctionDef"
    tree = ast.parse(SOURCE)
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.AsyncFunctionDef):
            newer = NewerFunction(**{name: getattr(node, name) for name in node._fields})
            newer.type_params, newer.default_value, newer.is_lazy = [], None, 0  # type: ignore[attr-defined]
            tree.body[place] = newer
    assert tree_hash(tree) == GOLDEN


def test_long_chains_have_a_hash_and_what_is_no_python_has_that_of_its_bytes() -> None:
    chain = "+".join(["x"] * 3000)
    assert source_hash(f"y = {chain}".encode()) != source_hash(f"y = {chain}+x".encode())
    for data in (b"def", b"\x00", b"\xff\xfe", b"a: 1\n b: 2"):
        assert source_hash(data) == bytes_hash(data)


def test_texts_that_lie_beside_each_other_are_not_taken_for_one() -> None:
    told = {
        source_hash(each.encode())
        for each in ("f('ab', 'c')", "f('a', 'bc')", "f('abc')", "f(('ab', 'c'))", "f(ab, c)")
    }
    assert len(told) == 5
