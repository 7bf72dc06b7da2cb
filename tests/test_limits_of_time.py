"""No limit that compares times without a clock that was chosen, and a test that drives it through steps of clocks.

Does not: drive them itself; the tests that `limits_of_time.LIMITS` names do.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from tests.limits_of_time import (
    CONTEXT,
    COUNTS,
    FILES,
    LIMITS,
    POLICY,
    SETTINGS,
    UNITS,
    WALL_READS,
    Clock,
    Limit,
)

from deathless.base.limits import Limits
from deathless.base.manifest_parts import LimitsSpec
from deathless.execution.turn.activity import Policy

ROOT = Path(__file__).resolve().parent.parent
TREES = ("runtime/deathless", "operator/deathless_operator")
WALL_CLOCKS = ("time.time", "time.time_ns", "time.CLOCK_REALTIME", "datetime.now", "datetime.utcnow", ".st_mtime")


@cache
def modules() -> dict[str, ast.Module]:
    """All of the product, by path; the simulation has no clocks but its own."""
    files = [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))]
    names = {str(path.relative_to(ROOT)): path for path in files}
    return {
        name: ast.parse(path.read_text(encoding="utf-8")) for name, path in names.items() if "/simulation/" not in name
    }


def constants(module: ast.Module) -> Iterator[str]:
    """Names of the module's constants that are measured in time."""
    for statement in module.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Name) and each.id.isupper() and each.id.lower().endswith(UNITS):
                    yield each.id


def settings(module: ast.Module) -> Iterator[str]:
    """Class.field of the settings that are measured in time."""
    for found in ast.walk(module):
        if isinstance(found, ast.ClassDef) and found.name != LimitsSpec.__name__:
            for field in found.body:
                if isinstance(field, ast.AnnAssign) and ast.unparse(field.target).endswith(UNITS):
                    yield f"{found.name}.{ast.unparse(field.target)}"


def waits(module: ast.Module) -> Iterator[str]:
    """method.argument of what handlers say as a duration."""
    for found in ast.walk(module):
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) and not found.name.startswith("_"):
            for each in [*found.args.args, *found.args.kwonlyargs]:
                if each.annotation is not None and "timedelta" in ast.unparse(each.annotation):
                    yield f"{found.name}.{each.arg}"


def wall_reads(module: ast.Module) -> int:
    """How often a module reads a wall clock, or hands one on."""
    read = [ast.unparse(found) for found in ast.walk(module) if isinstance(found, ast.Attribute)]
    return sum(each.endswith(WALL_CLOCKS) for each in read)


def found_limits() -> set[tuple[str, str]]:
    found = {(path, name) for path, module in modules().items() for name in constants(module)}
    for pattern in SETTINGS:
        for file in ROOT.glob(pattern):
            path = str(file.relative_to(ROOT))
            found |= {(path, name) for name in settings(modules()[path])}
    found |= {(POLICY, f"Policy.{field.name}") for field in fields(Policy) if field.name not in COUNTS}
    return found | {(CONTEXT, name) for name in waits(modules()[CONTEXT])}


def test_every_limit_that_is_measured_in_time_is_in_the_table_once() -> None:
    named = Counter((limit.path, name) for limit in LIMITS for name in limit.names)
    assert [each for each, count in named.items() if count > 1] == []
    missing, gone = found_limits() - set(named), set(named) - found_limits()
    assert not missing, f"which clock do these go by, and what drives them: {sorted(missing)}"
    assert not gone


def test_the_limits_of_a_manifest_are_those_of_the_table() -> None:
    told = {name for name in LimitsSpec.__struct_fields__ if name.endswith(UNITS)}
    assert told <= {field.name for field in fields(Limits)}


def test_what_goes_by_a_steady_clock_stands_where_no_wall_clock_is_read() -> None:
    """So no step reaches it; where one is read for something else, it is said what for and how often."""
    read = {path: count for path, module in modules().items() if (count := wall_reads(module))}
    assert read == {path: count for path, (count, _) in WALL_READS.items()}


@pytest.mark.parametrize("limit", LIMITS, ids=[f"{limit.path}: {limit.names[0]}" for limit in LIMITS])
def test_a_limit_has_its_reason_and_a_test_that_drives_it(limit: Limit) -> None:
    assert limit.why or limit.clock in {Clock.STEADY, Clock.NONE}
    assert limit.driven or limit.clock in {Clock.ANOTHER, Clock.NONE}
    for each in limit.driven:
        file, _, name = each.partition(":")
        tree = ast.parse((ROOT / FILES[file]).read_text(encoding="utf-8"))
        assert name in {getattr(found, "name", "") for found in tree.body}, each
