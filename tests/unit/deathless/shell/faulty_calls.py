"""The calls that a process makes on the files of one folder, of which one fails with a number of a test's choice."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deathless.base.errors import DeathlessError

_readlink = os.readlink


class FaultyCalls:
    """Replaces functions of `os` by ones that may fail.

    Args:
        patch: takes them back.
        names: of the functions.
        files: the file objects of the standard library fail as well when they are opened.
    """

    def __init__(self, patch: pytest.MonkeyPatch, names: Sequence[str], *, files: bool = False) -> None:
        self._directory = ""
        self.count = 0
        self.failing, self.number = 0, 0  # which call, counted from 1, and with what
        self.failed = ""
        for name in names:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        for module in (io, builtins) if files else ():
            patch.setattr(module, "open", self._wrapped("open", io.open))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any = ".", *others: Any, **named: Any) -> Any:
            by_descriptor = isinstance(first, int)
            if not self._counts(first):
                return real(first, *others, **named)
            self.count += 1
            if self.count == self.failing:
                self.failed = f"{name} {first}"
                said = os.strerror(self.number)
                raise OSError(self.number, said) if by_descriptor else OSError(self.number, said, os.fspath(first))
            return real(first, *others, **named)

        return call

    def _counts(self, first: Any) -> bool:
        if not self._directory:
            return False
        if isinstance(first, int):
            try:
                return _readlink(f"/proc/self/fd/{first}").startswith(self._directory)
            except OSError:
                return False
        return str(os.fspath(first)).startswith(self._directory)

    def run(self, directory: Path, work: Callable[[], object], failing: int = 0, number: int = 0) -> object:
        """Do something once, of whose calls below `directory` one may fail; gives what it gave or raised."""
        self._directory = str(directory)
        self.count, self.failing, self.number, self.failed = 0, failing, number, ""
        try:
            return work()
        except (DeathlessError, OSError) as error:
            return error
        finally:
            self._directory, self.failing = "", 0
