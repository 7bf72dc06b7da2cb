"""Imports an author's modules from their text, never from byte code: what runs is what the fingerprint reads.

Python takes the byte code beside a file (`__pycache__`) for the file's own if the file has the size and the time of
change, in whole seconds, that are noted in it, and asks nothing at all of what is marked as unchecked. So a file that
was edited twice within a second, or whose times are all set to one, would run as it was, while its new text is
fingerprinted.

    import bank.rates --> found by whoever finds it, as ever; if it is an author's (`sources.is_authors`), its loader
                          tells no time of change: Python then neither reads nor writes byte code for it

It stays for as long as the process, for what a handler imports while it runs. Only Python's own loader gives way: a
tool's that brings another text (a rewriting of assertions, a kept copy, an archive) loads as it did.

A package of handlers is an author's where it is installed as well. That of the module which is loaded is known before;
that another one holds handlers is known once it has been imported, so what the fingerprint reads of it is compared with
its byte code (`check_imported`), as is what had been imported before `install`. To import all that is installed
from its text would cost each start the seconds that byte code saves.

Guarantees: of the modules that a fingerprint reads none was run from byte code of another text that still stands there.
Does not: notice a file that is edited behind its import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from deathless.base.errors import InvalidService
from deathless.shell.service_code.sources import is_authors


class TextLoader(SourceFileLoader):
    """Loads a module from its text."""

    def path_stats(self, path: str) -> NoReturn:
        """Raises: OSError, by which importlib knows that there is nothing to hold byte code to."""
        raise OSError(f"{path} is imported from its text")


class TextModules(MetaPathFinder):
    """Has the finders behind it on `sys.meta_path` find a module, and an author's loaded from its text."""

    def __init__(self) -> None:
        self.packages: set[str] = set()  # of handlers: an author's wherever they are installed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib."""
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is None:
                continue
            plain = type(spec.loader) is SourceFileLoader
            if plain and spec.origin and is_authors(fullname, Path(spec.origin), self.packages):
                spec.loader = TextLoader(fullname, spec.origin)
            return spec
        return None


def install(*packages: str) -> None:
    """Import an author's modules from their text from now on, in this process.

    Args:
        packages: top-level names of packages that hold handlers, beside those of earlier calls.
    """
    found = next((each for each in sys.meta_path if isinstance(each, TextModules)), None)
    if found is None:
        found = TextModules()
        sys.meta_path.insert(0, found)
    found.packages.update(packages)


def remove() -> None:
    """Import as ever again; what was imported stays."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, TextModules)]


def check_imported(names: Iterable[str]) -> None:
    """Compare the byte code of modules that Python had imported by itself with their text.

    Args:
        names: of the modules that a service is made of.

    Raises: InvalidService when a module's byte code is not that of its text.
    """
    for name in names:
        loader = getattr(sys.modules.get(name), "__loader__", None)
        if type(loader) is not SourceFileLoader:
            continue
        text = loader.get_data(loader.path)
        if loader.get_code(name) != loader.source_to_code(text, loader.path):
            cached = cache_from_source(loader.path)
            raise InvalidService(f"{name} was imported from {cached}, which is not {loader.path}: remove it")
