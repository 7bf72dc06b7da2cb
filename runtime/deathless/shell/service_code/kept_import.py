"""Imports a service's modules from the copies that were kept of them, under the names and paths that they had.

    import bank.rates --> is there a copy of bank.rates? its text from there; __file__ as it was when the copy was made
                          else from the module path, as ever

The path stays, so that a data file beside a module is found, a package finds modules that it imports under computed
names, and a traceback names the file that the author knows (its lines are those of the copy). No byte code is read or
written.

Guarantees: a module of which there is a copy never comes from the file that was copied. Does not: choose a copy, judge
it (`kept_code`), nor copy data.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class KeptModule:
    """One module of which there is a copy."""

    origin: Path  # where it was imported from, absolute
    copy: Path


class KeptModules(MetaPathFinder):
    """Finds modules among copies; goes first on `sys.meta_path`.

    Args:
        modules: by their names.
    """

    def __init__(self, modules: Mapping[str, KeptModule]) -> None:
        self._modules = dict(modules)
        self._by_origin = {str(each.origin): each for each in modules.values()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib."""
        kept = self._modules.get(fullname)
        if kept is None:
            return self._namespace(fullname, path)
        return spec_from_file_location(
            fullname,
            str(kept.origin),
            loader=_CopyLoader(kept),
            submodule_search_locations=[str(kept.origin.parent)] if kept.origin.name == "__init__.py" else None,
        )

    def _namespace(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Give a package without a file of its own, if it holds kept modules: its folder may be gone."""
        if not any(name.startswith(f"{fullname}.") for name in self._modules):
            return None
        return PathFinder.find_spec(fullname, path) or ModuleSpec(fullname, None, is_package=True)

    def stands_for(self, path: Path) -> str:
        """Give the name of the module that a file was imported as; empty: no copy stands for it.

        A project that has moved keeps its copies: they count by the file's name where their own path is gone.
        """
        for name, kept in self._modules.items():
            moved = kept.origin.name == path.name and name == path.stem and not kept.origin.exists()
            if kept.origin == path or moved:
                return name
        return ""

    def copy_of(self, path: Path) -> Path:
        """Give the copy of a file; the file itself where there is none."""
        kept = self._by_origin.get(str(path))
        return path if kept is None else kept.copy


class _CopyLoader(SourceLoader):
    """Loads one module's text from its copy.

    It tells no time of change, so that no byte code is looked for beside the file that was copied.
    """

    def __init__(self, kept: KeptModule) -> None:
        self._kept = kept

    def get_filename(self, fullname: str) -> str:
        return str(self._kept.origin)

    def get_data(self, path: str | bytes) -> bytes:
        data = self._kept.copy.read_bytes()
        origin = str(self._kept.origin)
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        linecache.cache[origin] = (len(data), None, lines, origin)  # what a traceback shows
        return data


_NONE = KeptModules({})


def install(modules: Mapping[str, KeptModule]) -> None:
    """Import from these copies from now on, in this process; those of an earlier call are let go of."""
    remove()
    sys.meta_path.insert(0, KeptModules(modules))


def remove() -> None:
    """Import as ever again; what was imported stays."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, KeptModules)]


def installed() -> KeptModules:
    """Give the copies that this process imports from; it may be none."""
    return next((each for each in sys.meta_path if isinstance(each, KeptModules)), _NONE)
