"""Source files as units: functions, methods, classes and module-level statements, and who mentions whom.

`deathless check` reports what handlers can reach, not everything a file holds: a helper script beside a service may
read the clock. A unit mentions another by its name, or by the name of a method; every method of that name counts,
since types are not known. Guarantees: what a handler calls by name is found. Does not: see through `getattr`, nor
through containers of functions. Imports nothing of ours.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deathless.execution.check.rules import SETS

_ALLOW: Final = re.compile(r"#\s*deathless:\s*allow\s+([a-z-]+(?:\s*,\s*[a-z-]+)*)")
EFFECTS: Final = "<import>"


class Source(NamedTuple):
    """A source file."""

    module: str  # dotted name
    path: str
    text: str


@dataclass(slots=True)
class Unit:
    """A piece of code that is reached or not."""

    module: Module
    name: str  # "function", "Class", "Class.method", name of a module-level value, or EFFECTS
    nodes: list[ast.stmt]
    mentions: set[str] = field(default_factory=set)  # keys of `Index.units`

    @property
    def key(self) -> str:
        """Name that is unique among all files."""
        return f"{self.module.source.module}:{self.name}"


@dataclass(slots=True)
class Module:
    """One source file taken apart."""

    source: Source
    aliases: dict[str, str] = field(default_factory=dict)  # imported name to dotted origin
    units: dict[str, Unit] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)  # names assigned at module level
    set_values: set[str] = field(default_factory=set)  # those that hold a set
    allowed: dict[int, frozenset[str]] = field(default_factory=dict)  # rules allowed by a comment, by line

    def unit(self, name: str, node: ast.stmt) -> None:
        """Add a statement to a unit."""
        self.units.setdefault(name, Unit(self, name, [])).nodes.append(node)


def is_set_annotation(annotation: ast.expr | None) -> bool:
    """True when an annotation says "a set"."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return False
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SETS
    return isinstance(annotation, ast.Name) and annotation.id in SETS


class Index:
    """All files of a service.

    Raises: SyntaxError when one is no Python.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.modules = [self._module(source) for source in sources]
        self.units = {unit.key: unit for module in self.modules for unit in module.units.values()}
        self.activities: set[str] = set()  # units that run beside the primary, where anything is allowed
        self.set_attributes: set[str] = set()  # attributes that some class declares as a set
        self.set_functions: set[str] = set()  # functions and methods that say they give a set
        methods: dict[str, set[str]] = {}
        for unit in self.units.values():
            owner, _, method = unit.name.rpartition(".")
            if owner:
                methods.setdefault(method, set()).add(unit.key)
            for node in unit.nodes:
                self._note_sets(node)
        for unit in self.units.values():
            unit.mentions = set(self._mentions(unit, methods))

    def _module(self, source: Source) -> Module:
        tree = ast.parse(source.text, source.path)
        module = Module(source)
        for number, line in enumerate(source.text.splitlines(), 1):
            if allow := _ALLOW.search(line):
                module.allowed[number] = frozenset(rule.strip() for rule in allow[1].split(","))
        for node in ast.walk(tree):
            _note_import(node, module)
        for statement in tree.body:
            _place(statement, module)
        return module

    def _note_sets(self, node: ast.stmt) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.ClassDef):
                for statement in inner.body:
                    if isinstance(statement, ast.AnnAssign) and is_set_annotation(statement.annotation):
                        self.set_attributes.add(getattr(statement.target, "id", ""))
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and is_set_annotation(inner.returns):
                self.set_functions.add(inner.name)

    def _mentions(self, unit: Unit, methods: dict[str, set[str]]) -> Iterator[str]:
        module = unit.module
        if unit.nodes and isinstance(unit.nodes[0], ast.ClassDef):
            prefix = f"{unit.name}."
            yield from (other.key for name, other in module.units.items() if name.startswith(prefix))
        for node in _inside(unit):
            if isinstance(node, ast.Name):
                if node.id in module.units:
                    yield module.units[node.id].key
                elif node.id in module.aliases:
                    yield from self._imported(module.aliases[node.id])
            elif isinstance(node, ast.Attribute):
                yield from methods.get(node.attr, ())
                dotted = dotted_name(node, module)
                if dotted is not None:
                    yield from self._imported(dotted)

    def _imported(self, dotted: str) -> Iterator[str]:
        module, _, name = dotted.rpartition(".")
        if f"{module}:{name}" in self.units:
            yield f"{module}:{name}"

    def unit_at(self, path: str, line: int) -> Unit | None:
        """Give the smallest unit that holds a line; None: no file we know."""
        best: tuple[int, Unit] | None = None
        for unit in self.units.values():
            if unit.module.source.path != path:
                continue
            for node in unit.nodes:
                first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
                last = node.end_lineno or first
                if first <= line <= last and (best is None or last - first < best[0]):
                    best = (last - first, unit)
        return best[1] if best else None

    def named_by(self, function: ast.expr, module: Module) -> set[str]:
        """Give the keys of the units that a name or attribute chain stands for."""
        if isinstance(function, ast.Name) and function.id in module.units:
            return {module.units[function.id].key}
        dotted = dotted_name(function, module)
        return set() if dotted is None else set(self._imported(dotted))

    def reachable(self, starts: Sequence[Unit]) -> set[str]:
        """Give the keys of all units that `starts` reach, themselves included, activities left out."""
        reached: set[str] = set()
        open_ = [unit.key for unit in starts]
        while open_:
            key = open_.pop()
            if key not in reached and key not in self.activities:
                reached.add(key)
                open_.extend(self.units[key].mentions)
        return reached


def dotted_name(node: ast.expr, module: Module) -> str | None:
    """Give the dotted origin of a name or attribute chain; None where its root is no imported name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in module.aliases:
        return None
    return ".".join([module.aliases[node.id], *reversed(parts)])


def _inside(unit: Unit) -> Iterator[ast.AST]:
    """All nodes of a unit: without its decorators (they run at import), and of a class without its methods."""
    for statement in unit.nodes:
        parts: list[ast.AST] = [statement]
        if isinstance(statement, ast.ClassDef):
            functions = ast.FunctionDef | ast.AsyncFunctionDef
            parts = [*statement.bases, *(inner for inner in statement.body if not isinstance(inner, functions))]
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [statement.args, *statement.body]
        for part in parts:
            yield from ast.walk(part)


def _note_import(node: ast.AST, module: Module) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                module.aliases[alias.asname] = alias.name
            else:
                top = alias.name.partition(".")[0]
                module.aliases[top] = top
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.source.module.split(".")
            package = parts if module.source.path.endswith("__init__.py") else parts[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            module.aliases[alias.asname or alias.name] = f"{base}.{alias.name}"


def _place(statement: ast.stmt, module: Module) -> None:
    """Put a module-level statement into the unit it belongs to."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        module.unit(statement.name, statement)
    elif isinstance(statement, ast.ClassDef):
        module.unit(statement.name, statement)
        for inner in statement.body:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                module.unit(f"{statement.name}.{inner.name}", inner)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for name in {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}:
            module.unit(name, statement)
            module.values.add(name)
            declared = isinstance(statement, ast.AnnAssign) and is_set_annotation(statement.annotation)
            if declared or isinstance(statement.value, ast.Set | ast.SetComp) or _calls_set(statement.value):
                module.set_values.add(name)
    elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
        if isinstance(statement, ast.If) and _runs_elsewhere(statement.test):
            return
        for body in ("body", "orelse", "finalbody"):
            for inner in getattr(statement, body, ()):
                _place(inner, module)
    elif not isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        module.unit(EFFECTS, statement)


def _calls_set(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("set", "frozenset")


def _runs_elsewhere(test: ast.expr) -> bool:
    """True for `if __name__ == "__main__"` and `if TYPE_CHECKING`: no replica runs them."""
    return any(isinstance(node, ast.Name) and node.id in ("__name__", "TYPE_CHECKING") for node in ast.walk(test))
