"""Runs a process's coroutine on the fastest event loop there is: uvloop with the extra `[fast]`, else asyncio's own.

Guarantees: the same behaviour on both; tests run on either. Does not: hide which (`name` tells).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

try:
    import uvloop
except ModuleNotFoundError:  # the extra [fast] is not installed
    _FACTORY = asyncio.new_event_loop
    name = "asyncio"
else:
    _FACTORY = uvloop.new_event_loop
    name = "uvloop"


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=_FACTORY) as runner:
        return runner.run(main)
