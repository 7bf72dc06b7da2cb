"""`deathless replay --pdb`: Python's debugger stops where a handler begins, in the fresh process that runs the log.

    --break deposit        each time that the handler begins
    --break 1234           the handler that the message at this lsn calls
    neither                every handler
    --if 'amount > 100'    only where this is true of the handler's arguments

What pdb can do can be done there: step, look, set further breakpoints. A state that is changed there is no longer what
the log says, and the replay ends with the difference.

Guarantees: the replay runs the same messages with it and without. Does not: find a handler's later turns by itself
(break behind its `await`).
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pdb  # noqa: T100  it is what is offered here
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument

LEFT: Final = 3
"""Exit status of a process whose debugger was left: there is no result."""

Function = Callable[..., object]


class Stops(msgspec.Struct, frozen=True):
    """Where a replay stops; without handlers and lsns at every handler."""

    handlers: tuple[str, ...] = ()
    lsns: tuple[int, ...] = ()
    condition: str = ""  # a Python expression over a handler's arguments; empty: always


def stops_of(places: Iterable[str], condition: str) -> Stops:
    """Read what a user gave.

    Args:
        places: names of handlers, and lsns.
        condition: a Python expression; empty: none.

    Raises: InvalidArgument when the expression is none.
    """
    try:
        compile(condition or "True", "--if", "eval")
    except (SyntaxError, ValueError) as error:
        raise InvalidArgument(f"--if {condition!r} is no expression: {error}") from None
    given = list(places)
    lsns = tuple(sorted({int(each) for each in given if each.isdecimal()}))
    return Stops(tuple(each for each in given if not each.isdecimal()), lsns, condition)


class Debugger(pdb.Pdb):
    """Stops at handlers of one service.

    Args:
        functions: of the service's handlers and queries, by name.
        stops: where.

    Raises: InvalidArgument when a handler is not there, or its source is not.
    """

    def __init__(self, functions: Mapping[str, Function], stops: Stops) -> None:
        super().__init__(nosigint=False)
        self._functions = functions
        self._condition = stops.condition or None
        unknown = [name for name in stops.handlers if name not in functions]
        if unknown:
            raise InvalidArgument(
                f"--break {unknown[0]}: the service has no such handler",
                remedy=f"it has {', '.join(sorted(functions))}",
            )
        self._lsns = frozenset(stops.lsns)
        self._always = stops.handlers or (() if stops.lsns else tuple(sorted(functions)))
        for name in self._always:
            self._stop_at(name)

    @property
    def looks(self) -> frozenset[int]:
        """Lsns behind which a piece of the log has to end, so that messages that are stopped at are run alone."""
        return frozenset({lsn - 1 for lsn in self._lsns} | self._lsns)

    def whole(self) -> contextlib.AbstractContextManager[None]:
        """Stop meanwhile at the handlers that were named; nothing is slowed down where none was."""
        return self._watching() if self._always else contextlib.nullcontext()

    def _stop_at(self, name: str) -> None:
        code = inspect.unwrap(self._functions[name]).__code__
        problem = self.set_break(code.co_filename, first_line(code), cond=self._condition)
        if problem:
            raise InvalidArgument(f"--break {name}: {code.co_filename}: {problem}")

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Stop at breakpoints in what this thread runs meanwhile."""
        self.reset()
        self.botframe = sys._getframe()  # noqa: SLF001  bdb takes a frame, and Python has no other way to one
        self.set_continue()  # where there is none, everything would be stopped at
        before = signal.signal(signal.SIGINT, self._interrupted)  # Ctrl-C stops right there
        sys.settrace(self.trace_dispatch)
        try:
            yield
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def at_lsn(self, lsn: int) -> Iterator[None]:
        """Stop as well at whatever handler begins meanwhile, with the message at `lsn`, if that was asked for."""
        if lsn not in self._lsns:
            yield
            return
        self.message(f"lsn {lsn}")
        for name in sorted(self._functions):
            self._stop_at(name)
        with contextlib.ExitStack() as stack:
            if not self._always:
                stack.enter_context(self._watching())
            yield
        self.clear_all_breaks()
        for name in self._always:
            self._stop_at(name)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if frame is not None:
            self.sigint_handler(signal.Signals(number), frame)

    def do_quit(self, arg: str) -> bool:
        """Leave the replay: there is nothing to be told of one that was left."""
        del arg
        sys.stdout.flush()
        os._exit(LEFT)

    # To go through the handler, as pdb does, would make its error the handler's answer.
    do_q = do_exit = do_run = do_restart = do_quit
    do_EOF = do_quit  # noqa: N815  as pdb calls it


def first_line(code: CodeType) -> int:
    """Give the line of a function's first statement."""
    lines = {line for _, _, line in code.co_lines() if line}
    return min(lines - {code.co_firstlineno}, default=code.co_firstlineno)
