"""`deathless check`, the part that reads: names what in a handler's reach would differ in a replay, by file and line.

It finds what can be told from the text: forbidden names (see check_rules), the order of sets, memory outside the
state, finalizers, and exceptions that must not be caught. It errs on the side of telling; a line that is right all
the same carries the comment `# deathless: allow <rule>` and a reason.

Guarantees: the same findings for the same text, ordered by file and line. Does not: prove anything (that is what the
other part, running handlers in different processes, and the digests in the log are for). Imports nothing of ours but
its own parts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from deathless.execution.check.index import EFFECTS, Index, Source, Unit, dotted_name, is_set_annotation
from deathless.execution.check.rules import (
    CAUGHT,
    IMPORT_RULES,
    LOCAL_TIME,
    MUTATORS,
    ORDERED_CALLS,
    ORDERED_METHODS,
    QUERY_RULES,
    SEEDED,
    SET_METHODS,
    UNORDERED_CALLS,
    find_ban,
)

__all__ = ["Finding", "Root", "Source", "check_sources"]


class Root(NamedTuple):
    """Where a handler, or its state's class, begins."""

    handler: str
    kind: str  # handler or query
    path: str
    line: int


class Finding(NamedTuple):
    """One place that would make a replay differ."""

    path: str
    line: int
    rule: str
    handlers: tuple[str, ...]  # who reaches it, sorted; empty: it runs at import
    text: str


def check_sources(
    sources: Sequence[Source], roots: Sequence[Root], activities: Sequence[tuple[str, int]] = ()
) -> list[Finding]:
    """Read a service's source files.

    Args:
        sources: all files of the author.
        roots: where its handlers and queries begin.
        activities: path and line where each of its activities does; what they do is not looked at.

    Raises: SyntaxError when a file is no Python.
    """
    index = Index(sources)
    index.activities = {unit.key for path, line in activities if (unit := index.unit_at(path, line))}
    reached_by: dict[str, set[Root]] = {}
    for root in roots:
        start = index.unit_at(root.path, root.line)
        for key in index.reachable([start]) if start else ():
            reached_by.setdefault(key, set()).add(root)
    findings: dict[tuple[str, int, str, str], set[str]] = {}
    for key, unit in index.units.items():
        who = reached_by.get(key, set())
        if not who and unit.name != EFFECTS:
            continue
        for line, rule, text in _Reader(unit, index).read():
            if rule in unit.module.allowed.get(line, ()):
                continue
            handlers = {root.handler for root in who if root.kind != "query" or rule in QUERY_RULES}
            if handlers or (unit.name == EFFECTS and rule not in IMPORT_RULES):
                findings.setdefault((unit.module.source.path, line, rule, text), set()).update(handlers)
    return sorted(
        Finding(path, line, rule, tuple(sorted(handlers)), text)
        for (path, line, rule, text), handlers in findings.items()
    )


_ORDER: Final = "the order of a set differs between processes; sort it"


class _Reader(ast.NodeVisitor):
    """Reads one unit."""

    def __init__(self, unit: Unit, index: Index) -> None:
        self._unit = unit
        self._module = unit.module
        self._index = index
        self._found: list[tuple[int, str, str]] = []
        self._sets: set[str] = set()  # local names that hold a set
        self._locals: set[str] = set()
        self._globals: set[str] = set()
        self._shared: set[str] = set()  # parameters whose default is one object for all calls
        self._excused: set[ast.AST] = set()  # generators whose order does not matter

    def read(self) -> list[tuple[int, str, str]]:
        """Give (line, rule, text) of everything found."""
        for node in self._unit.nodes:
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        self.visit(inner)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._read_function(node)
            else:
                self.visit(node)
        return self._found

    def _tell(self, node: ast.AST, rule: str, text: str) -> None:
        self._found.append((getattr(node, "lineno", 0), rule, text))

    def _read_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._check_finalizer(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                self._globals.update(node.names)
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                self._locals.add(node.arg)
                if is_set_annotation(node.annotation):
                    self._sets.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in self._globals:
                self._locals.add(node.id)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                self._locals.add(node.name)
        positional = [*function.args.posonlyargs, *function.args.args]
        pairs = [*zip(reversed(positional), reversed(function.args.defaults), strict=False)]
        pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d]
        self._shared = {a.arg for a, d in pairs if isinstance(d, ast.List | ast.Dict | ast.Set | ast.Call)}
        for default in (d for _, d in pairs):
            self.visit(default)
        for statement in function.body:
            self.visit(statement)

    # Names.

    def _dotted(self, node: ast.expr) -> str | None:
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self._locals:
            return None
        if root.id in self._module.aliases:
            return dotted_name(node, self._module)
        if isinstance(node, ast.Name) and node.id not in self._module.units:
            return f"builtins.{node.id}"
        return None

    def _check_name(self, node: ast.expr) -> None:
        dotted = self._dotted(node)
        ban = find_ban(dotted) if dotted else None
        if dotted is not None and ban is not None:
            self._tell(node, ban.rule, f"{dotted.removeprefix('builtins.')}: {ban.why}")

    def visit_Name(self, node: ast.Name) -> None:
        """Check a bare name."""
        if isinstance(node.ctx, ast.Load):
            self._check_name(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Check a dotted name; where it is none, what it is an attribute of."""
        if self._dotted(node) is None:
            self.visit(node.value)
        elif isinstance(node.ctx, ast.Load):
            self._check_name(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function inside the unit."""
        self._check_finalizer(node)
        self.generic_visit(node)

    def _check_finalizer(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__del__":
            self._tell(node, "finalizer", "__del__ runs when the object goes, which differs between processes")

    # Sets.

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self._sets or (name not in self._locals and name in self._module.set_values)
            case ast.Attribute(attr=name):
                return name in self._index.set_attributes
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in (*SET_METHODS, "copy"):
                return self._is_set(value)
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in self._index.set_functions
            case ast.Call(func=ast.Name(id=name) as function):
                builtin = self._dotted(function)
                return builtin in ("builtins.set", "builtins.frozenset") or name in self._index.set_functions
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return any(self._is_set(side) or self._is_keys(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body) or self._is_set(orelse)
            case ast.NamedExpr(value=value):
                return self._is_set(value)
            case _:
                return False

    def _is_keys(self, node: ast.expr) -> bool:
        """True for `x.keys()`: an operation on it gives a set."""
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"

    def _over_set(self, node: ast.expr) -> bool:
        """True for a set, and for a generator or list made from one."""
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return any(self._over_set(generator.iter) for generator in node.generators)
        return self._is_set(node)

    def visit_For(self, node: ast.For) -> None:
        """A loop over a set."""
        if self._is_set(node.iter):
            self._tell(node.iter, "set-order", _ORDER)
        self.generic_visit(node)

    def _visit_generators(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if node not in self._excused:
            for generator in node.generators:
                if self._is_set(generator.iter):
                    self._tell(generator.iter, "set-order", _ORDER)
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp = visit_DictComp = _visit_generators  # noqa: N815  as above

    def visit_Starred(self, node: ast.Starred) -> None:
        """A set taken apart."""
        if self._is_set(node.value):
            self._tell(node, "set-order", _ORDER)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        """A set given item by item."""
        if self._is_set(node.value):
            self._tell(node, "set-order", _ORDER)
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        """A set, or a number in the locale's form, made text."""
        if self._is_set(node.value):
            self._tell(node, "set-order", _ORDER)
        if node.format_spec is not None and ast.unparse(node.format_spec).rstrip("'\"").endswith("n"):
            self._tell(node, "locale", "format 'n' depends on the locale")
        self.generic_visit(node)

    # Calls.

    def visit_Call(self, node: ast.Call) -> None:
        """What a call is given, and what it changes."""
        dotted = self._dotted(node.func) or ""
        if self._index.named_by(node.func, self._module) & self._index.activities:
            self._tell(node, "activity", f"{ast.unparse(node.func)} is an activity; ask for it with ctx.run")
        if dotted in UNORDERED_CALLS:
            self._excused.update(
                argument for argument in node.args if isinstance(argument, ast.GeneratorExp | ast.ListComp)
            )
            if any(keyword.arg == "key" for keyword in node.keywords) and any(map(self._over_set, node.args)):
                self._tell(node, "set-order", "equal keys stay in the order of the set; " + _ORDER)
        elif dotted == "builtins.sum" and any(map(self._over_set, node.args[:1])):
            self._excused.update(node.args)
            self._tell(node, "float-sum", "floats add up differently in another order; sort the set or use math.fsum")
        elif dotted in ORDERED_CALLS and any(map(self._is_set, node.args)):
            self._tell(node, "set-order", _ORDER)
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, node.func)
        if dotted == "builtins.next" and node.args and self._is_outside(node.args[0]):
            self._tell(node, "global", f"next({ast.unparse(node.args[0])}) changes what outlives the turn")
        if dotted in SEEDED and node.args:
            for part in (*node.args, *node.keywords):
                self.visit(part)
            return
        if dotted in LOCAL_TIME and len(node.args) < 2 and not any(keyword.arg == "tz" for keyword in node.keywords):
            self._tell(node, "zone", "fromtimestamp without a zone takes the machine's; give one")
        self.generic_visit(node)

    def _check_method(self, node: ast.Call, function: ast.Attribute) -> None:
        method = function.attr
        if method in ORDERED_METHODS and any(map(self._is_set, node.args)):
            self._tell(node, "set-order", _ORDER)
        if method == "pop" and not node.args and self._is_set(function.value):
            self._tell(node, "set-order", "which item a set pops differs between processes")
        if method == "astimezone" and not node.args and not node.keywords:
            self._tell(node, "zone", "astimezone without a zone takes the machine's; give one")
        if method in MUTATORS and self._is_outside(function.value):
            self._tell(node, "global", f"{ast.unparse(function)} changes what outlives the turn; keep it in the state")

    # Memory outside the state.

    def _is_outside(self, node: ast.expr) -> bool:
        """True when what `node` names outlives the turn: it hangs on a module-level name, a class, a shared default."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name) or self._unit.name == EFFECTS:
            return False
        if node.id in self._shared or (node.id == "cls" and "." in self._unit.name):
            return True
        return node.id not in self._locals and (node.id in self._module.units or node.id in self._module.aliases)

    def _check_target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for inner in target.elts:
                self._check_target(inner)
        elif isinstance(target, ast.Name) and target.id in self._globals:
            self._tell(target, "global", f"{target.id} outlives the turn; keep it in the state")
        elif isinstance(target, ast.Attribute | ast.Subscript) and self._is_outside(target):
            self._tell(target, "global", f"{ast.unparse(target)} outlives the turn; keep it in the state")

    def visit_Assign(self, node: ast.Assign) -> None:
        """What is assigned to, and whether it now is a set."""
        for target in node.targets:
            self._check_target(target)
            if isinstance(target, ast.Tuple | ast.List) and self._is_set(node.value):
                self._tell(node, "set-order", _ORDER)
            self._note(target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """What is changed in place."""
        self._check_target(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As an assignment; the annotation may say it is a set."""
        self._check_target(node.target)
        if isinstance(node.target, ast.Name) and is_set_annotation(node.annotation):
            self._sets.add(node.target.id)
        if node.value is not None:
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        """What is taken away."""
        for target in node.targets:
            self._check_target(target)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """An assignment inside an expression."""
        self._check_target(node.target)
        self._note(node.target, node.value)
        self.generic_visit(node)

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            change: Callable[[str], None] = self._sets.add if self._is_set(value) else self._sets.discard
            change(target.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """What is caught."""
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        for kind in kinds:
            name = "everything" if kind is None else ast.unparse(kind).rpartition(".")[2]
            if kind is None or name in CAUGHT:
                self._tell(
                    node, "catch", f"catches {name}, which depends on the process or must end it; name what you expect"
                )
        self.generic_visit(node)
