"""A function of an author, as everything of ours knows it.

Guarantees: nothing; its own signature says what it takes. Does not: call it. Imports nothing of ours.
"""

from __future__ import annotations

import inspect
from typing import Protocol


class Function(Protocol):
    """A handler, query or activity as its author wrote it; its own signature says what it takes."""

    def __call__(self, *values: object, **named: object) -> object:
        """Run it."""
        ...


def place(function: Function) -> str:
    """Give "name (file:line)" of a function, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__name__", repr(type(function)))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)
