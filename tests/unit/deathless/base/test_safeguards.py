"""Every safeguard is on, and nothing but a test can switch one off."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import deathless
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards

PACKAGE = Path(deathless.__file__).parent


def test_every_safeguard_is_on() -> None:
    assert all(getattr(ALL_SAFEGUARDS, field.name) is True for field in fields(Safeguards))
    assert Safeguards() == ALL_SAFEGUARDS


def test_nothing_outside_the_tests_makes_safeguards_with_arguments() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Safeguards":
                assert not node.args, path
                assert not node.keywords, path
