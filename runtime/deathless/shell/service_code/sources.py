"""Which source files and installed packages a service's code is made of.

Found by reading import statements, from the modules of its handlers on: the answer does not depend on what else the
process has imported, so a worker, a checker and a tool agree. A module is the author's when it belongs to the package
of a handler, installed or not (an image may hold other code under the same version), or lies neither in the standard
library nor among installed packages; its own imports are followed. Other packages count as what they are distributed
as, together with what they require.

A module that this process imports from a kept copy (`kept_import`) is named by the file it was copied from, and read
from the copy.

Guarantees: same files, same answer. Does not: find modules imported under computed names.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from deathless.base.errors import InvalidService
from deathless.execution.author.service import Service
from deathless.shell.service_code.kept_import import installed

_INSTALLED = tuple(
    {
        str(Path(path).resolve())
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
)
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OURS = "deathless"
ZONE_MODULES = frozenset({"zoneinfo", "dateutil", "pytz", "tzlocal", "tzdata", "pendulum", "arrow", "babel"})
"""Who imports one of these may ask for the rules of a time zone."""
ZONE_LIBRARIES = frozenset({"tzdata", "python-dateutil", "pytz", "tzlocal", "pendulum", "arrow", "babel"})
"""A library that is one of these, or requires one, may ask for them on the author's behalf."""
OWN_NAMES = frozenset({OURS, "msgspec", "cronsim"})
"""Packages that are distributed under their own names: there is no need to read what is installed to find that out."""
UTC = frozenset({"UTC", "Etc/UTC"})


@dataclass(slots=True)
class Code:
    """What a service is made of."""

    files: dict[str, Path] = field(default_factory=dict)  # source file by module name
    versions: dict[str, str] = field(default_factory=dict)  # version by distribution, lower-case names
    zones: bool = False  # the rules of time zones other than UTC may be asked for
    accepts: bool = False  # handlers take arguments that older versions send

    def source(self, name: str) -> bytes:
        """Read a module's source: from its copy, where this process imports it from there. Raises: OSError."""
        return installed().copy_of(self.files[name]).read_bytes()


def code_of(service: Service) -> Code:
    """Give the source files and distributions of a service.

    Raises: InvalidService when a file of its can't be read.
    """
    code = Code(accepts=bool(service.declared.accepted))
    packages: set[str] = set()
    roots = _roots_of(service)
    authors = packages_of(service)
    waiting = sorted(roots)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        top = name.partition(".")[0]
        if _is_standard(top):
            continue
        path = roots.get(name) or _file_of(name)
        if path is None or path.suffix != ".py" or not (name in roots or is_authors(name, path, authors)):
            packages.add(top)
        else:
            code.files[name] = path
            tree = _parsed(path)
            code.zones = code.zones or _names_zones(tree)
            waiting += _imports(name, path, tree)
            parent = name.rpartition(".")[0]
            waiting += [parent] if parent else []
    packages.add(OURS)
    packages.add("msgspec")
    if service.schedules:
        packages.add("cronsim")
    code.files = dict(sorted(code.files.items()))
    versions, required = _versions(packages)
    code.versions = dict(sorted(versions.items()))
    code.zones = (
        code.zones
        or any(schedule.zone not in UTC for schedule in service.schedules.values())
        or not ZONE_LIBRARIES.isdisjoint(required)
    )
    return code


def packages_of(service: Service) -> set[str]:
    """Give the top-level names of the packages of a service's handlers and state, without ours."""
    return {name.partition(".")[0] for name in _roots_of(service)} - {OURS}


def _roots_of(service: Service) -> dict[str, Path | None]:
    """Modules of a service's handlers and state; with the file, where a function tells it."""
    functions = service.functions
    if service.birth_function is not None:
        functions.append(service.birth_function)
    roots: dict[str, Path | None] = {service.state.__module__: None}
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        roots[function.__module__] = Path(code.co_filename).resolve() if code is not None else None
    return roots


def _file_of(name: str) -> Path | None:
    """Source file of a module; None: it has none, or there is no such module."""
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None)
    if origin is None:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
        origin = spec.origin if spec is not None and spec.has_location else None
    return Path(origin).resolve() if isinstance(origin, str) else None


def is_authors(name: str, path: Path, packages: Collection[str]) -> bool:
    """Is this module the author's?

    Args:
        name: the module's.
        path: its file.
        packages: top-level names of the packages that hold handlers; ours is never among them.
    """
    top = name.partition(".")[0]
    return not _is_standard(top) and (top in packages or (top != OURS and not _is_installed(path.resolve())))


def _is_standard(top: str) -> bool:
    return top in sys.stdlib_module_names or top in sys.builtin_module_names


def _is_installed(path: Path) -> bool:
    return "site-packages" in path.parts or str(path).startswith(_INSTALLED)


def _parsed(path: Path) -> ast.Module:
    """Raises: InvalidService."""
    try:
        return ast.parse(installed().copy_of(path).read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidService(f"{path} can't be read: {error}") from None


def _names_zones(tree: ast.Module) -> bool:
    """Does a file import what knows time zones, or name it as text, as who imports by a computed name would?"""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                named = [alias.name for alias in node.names]
            case ast.ImportFrom():
                named = [node.module or ""]
            case ast.Constant(value=str(text)):
                named = [text]
            case _:
                continue
        if any(name.partition(".")[0] in ZONE_MODULES for name in named):
            return True
    return False


def _imports(name: str, path: Path, tree: ast.Module) -> Iterator[str]:
    """Names of modules that a file may import, anywhere in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            yield base
            # `from package import module` names a module as often as an attribute.
            yield from (f"{base}.{alias.name}" for alias in node.names if _file_of(f"{base}.{alias.name}") is not None)


def _owners_of(package: str) -> Sequence[str]:
    """Give the distributions that hold a package; itself where nobody knows any."""
    if package in OWN_NAMES:
        return (package,)
    return _owners(tuple(sys.path)).get(package, (package,))


@cache
def _owners(_path: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Give the distributions of all packages. It reads the files of every distribution, so once for each `sys.path`."""
    return metadata.packages_distributions()


def _versions(packages: set[str]) -> tuple[dict[str, str], set[str]]:
    """Versions of the distributions that hold these packages, and of what those require, installed or not.

    Gives the versions, and the names of all that were asked for.
    """
    waiting = [owner for package in packages for owner in _owners_of(package)]
    found: dict[str, str] = {}
    asked: set[str] = set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in asked:
            continue
        asked.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version
        if name == OURS:  # what our command line needs is no part of what a handler computes
            continue
        needed = [text for text in distribution.requires or [] if "extra ==" not in text]
        waiting += [wanted[0] for text in needed if (wanted := _REQUIREMENT.match(text))]
    return found, asked
