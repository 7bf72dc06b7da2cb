"""Pauses that grow are computed in one place, `deathless.base.backoff`.

A doubling is seen by its form: a time (a name that ends in `_s`, or says pause, wait or delay) is doubled inside a
`min`, is doubled in place, or is multiplied by a power of two. Does not: find a growth by another factor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TREES: Final = ("runtime/deathless", "operator/deathless_operator")
HOME: Final = "runtime/deathless/base/backoff.py"
USE: Final = "use deathless.base.backoff: next_pause(pause_s, ...) or pause_after(failures, ...)"


def is_time(node: ast.AST) -> bool:
    """Does a name in this expression say that it is a length of time?"""
    for each in ast.walk(node):
        name = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        low = name.lower()
        if low.endswith("_s") or any(word in low for word in ("pause", "wait", "delay", "backoff")):
            return True
    return False


def is_two(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (2, 2.0)


def is_power_of_two(node: ast.AST) -> bool:
    """`2 ** n`, or `1 << n` with an n that is no number in the source."""
    if not isinstance(node, ast.BinOp) or isinstance(node.right, ast.Constant):
        return False
    one = isinstance(node.left, ast.Constant) and node.left.value == 1
    return (isinstance(node.op, ast.Pow) and is_two(node.left)) or (isinstance(node.op, ast.LShift) and one)


def doubles(node: ast.AST) -> bool:
    """Is a time doubled in this expression?"""
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Mult)
        and (is_two(each.left) or is_two(each.right))
        and is_time(each)
        for each in ast.walk(node)
    )


def found(tree: ast.AST) -> Iterator[int]:
    """Lines on which a pause grows by hand."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="min")) if doubles(node):
                yield node.lineno
            case ast.AugAssign(op=ast.Mult()) if is_time(node.target):
                yield node.lineno
            case ast.BinOp(op=ast.Mult()) if is_time(node) and any(map(is_power_of_two, ast.walk(node))):
                yield node.lineno


def test_pauses_grow_in_one_place() -> None:
    by_hand: dict[str, list[int]] = {}
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            lines = [] if name == HOME else sorted(set(found(ast.parse(path.read_text()))))
            if lines:
                by_hand[name] = lines
    assert not by_hand, f"{USE}: {by_hand}"


@pytest.mark.parametrize(
    "line",
    [
        "pause = min(2 * pause, MAX)",
        "self._delay_s = min(max(self._delay_s * 2, FIRST_S), MAX_S)",
        "pause = min(FIRST_S * 2.0 ** min(rounds, 16), MAX_S)",
        "pause = min(FIRST_S * (1 << rounds), MAX_S)",
        "return now - at < AGAIN_S * 2 ** (tries - 1)",
        "pause_s *= 2",
    ],
)
def test_doubling_by_hand_is_found(line: str) -> None:
    assert [*found(ast.parse(line.removeprefix("return ")))] != []


@pytest.mark.parametrize(
    "line",
    [
        "size = min(2 * size, BYTES_MAX)",
        "sleep(2 * LOOK_S)",
        "until = now + 1.5 * pause_s",
        "pause_s = next_pause(pause_s, first_s=FIRST_S, most_s=MAX_S)",
        "nanos = round(pause_s * 10**9)",
    ],
)
def test_what_does_not_grow_a_pause_is_left_alone(line: str) -> None:
    assert [*found(ast.parse(line))] == []
