"""Every reason that the operator tells has an entry in the runbooks, and the runbooks tell of no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless_operator.plan.service.conditions import ORDER

ROOT = Path(__file__).resolve().parents[3]
PLAN = ROOT / "operator" / "deathless_operator" / "plan"
RUNBOOKS = ROOT / "docs" / "runbooks"
REASON = re.compile(r"^[A-Z][A-Za-z]+$")
# What is told while all goes well, and needs no entry: names of phases and of good news.
QUIET = {
    "AllReplicasReady", "Done", "DrillFault", "DrillSkipped", "DrillStarted", "Inconclusive", "Judged", "KeysErased",
    "NotDegraded", "NotPaused", "NothingLost", "Once", "Owned", "Pending", "PrimaryServes", "Running", "SameCode",
    "Scheduled", "SpecAccepted", "Started",
}  # fmt: skip


def literals(node: ast.expr | None) -> Iterator[str]:
    """Yield the texts that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from literals(value)


def assigned(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """Yield what is assigned to `reason`, alone or beside others."""
    if isinstance(target, ast.Name) and target.id == "reason":
        yield from literals(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from assigned(one, its)


def told(tree: ast.AST) -> Iterator[str]:
    """Yield every reason of a module: where it is given by name, by place, or assigned to `reason`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from assigned(target, node.value)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            # A reason and a message, for somebody else to tell.
            yield from literals(node.value.elts[0])
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        place = {"tell": 2, "Meaning": 1, "Refusal": 0, "ended": 2, "_failed": 1, "_end": 3, "_waits": 1}.get(name)
        if place is not None and len(node.args) > place:
            yield from literals(node.args[place])
        if name in {"Text", "Meta"}:
            continue
        for keyword in node.keywords:
            if keyword.arg in {"reason", "progressing"}:
                yield from literals(keyword.value)


def judged() -> Iterator[str]:
    """Yield the reasons of the judge of drills, which gives verdict, reason and message."""
    for node in ast.walk(ast.parse((PLAN.parent / "drill" / "judge.py").read_text())):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3:
            yield from literals(node.value.elts[1])
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from assigned(target, node.value)


def reasons() -> dict[str, str]:
    """Return every reason with the module that tells it."""
    found = {reason: "judge.py" for reason in judged() if REASON.match(reason) and reason not in QUIET}
    for path in sorted(PLAN.rglob("*.py")):
        for reason in told(ast.parse(path.read_text())):
            if REASON.match(reason) and reason not in QUIET:
                found[reason] = path.name
    return found


def entries() -> set[str]:
    """Return every heading that is a reason."""
    texts = [path.read_text() for path in (RUNBOOKS / "conditions.md", RUNBOOKS / "drills.md")]
    return {found for text in texts for found in re.findall(r"^### ([A-Z][A-Za-z]+)$", text, re.MULTILINE)}


def test_the_modules_are_read() -> None:
    assert {
        "OtherFingerprint",
        "QuotaExceeded",
        "ObjectRefused",
        "HalfCopy",
        "BudgetSpent",
        "SecretMissing",
        "Rolling",
        "IssuerMissing",
        "NotRecovered",
        "LostAndDoubled",
    } <= set(reasons())


@pytest.mark.parametrize(("reason", "module"), reasons().items())
def test_reason_has_an_entry_in_the_runbooks(reason: str, module: str) -> None:
    assert reason in entries(), f"{module} tells {reason}: describe it in docs/runbooks"


def test_runbooks_tell_of_no_reason_that_is_gone() -> None:
    sources = [path.read_text() for path in (*PLAN.rglob("*.py"), PLAN.parent / "drill" / "judge.py")]
    gone = {reason for reason in entries() if not any(reason in text for text in sources)}
    assert gone == set()


@pytest.mark.parametrize("kind", ORDER)
def test_condition_is_in_the_table_that_says_what_each_means(kind: str) -> None:
    rows = [line for line in (RUNBOOKS / "conditions.md").read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{kind}`" in row.split("|")[1] for row in rows)


def test_conditions_of_a_drill_are_told_in_its_runbook() -> None:
    text = (RUNBOOKS / "drills.md").read_text()
    told = {
        found
        for path in (PLAN / "drill").glob("*.py")
        for found in re.findall(r'Condition\(\s*type="(\w+)"', path.read_text())
    }
    assert {kind for kind in told if f"`{kind}`" not in text} == set()
