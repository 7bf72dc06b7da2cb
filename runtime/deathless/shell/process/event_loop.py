"""Runs a process's coroutine on the fastest event loop there is: uvloop with the extra `[fast]`, else asyncio's own.

Guarantees: the same behaviour on both; tests run on either. Does not: hide which (`name` tells).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")
_HANDLER_CLOSED = "the handler is closed"

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


def is_broken_link(context: dict[str, object]) -> bool:
    """Tell whether what the event loop reports is a peer's broken connection, which is nobody's bug.

    Args:
        context: as `call_exception_handler` gives it. uvloop's TLS says of a connection that is closed while data of it
            are still handed over that "the handler is closed", as RuntimeError.
    """
    error = context.get("exception")
    closed = isinstance(error, RuntimeError) and _HANDLER_CLOSED in str(error)
    return (closed or isinstance(error, OSError)) and not context.keys().isdisjoint(("transport", "protocol", "socket"))
