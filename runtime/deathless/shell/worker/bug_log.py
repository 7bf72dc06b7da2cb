"""Bugs of a service in its replica's log: what a handler or query raised and did not mean to, with the traceback.

A turn runs in every replica, and again after a restart. Its bug is told where it ran first: by the primary, before its
frame is logged. A query's is told by the replica that answered. One place in the code may fail thousands of times a
second, so each is told `BURST` times, and then once in `SECONDS_EACH`; how many were left out stands in the next line.

It is called while a turn is open, and nothing that a turn can see may depend on whether somebody logs. So an exception
is asked for nothing that may be its author's code: its type and text are those of the reply, its frames are the
interpreter's, and of what it was raised from the text is left out unless it is plain.

Guarantees: raises nothing. Does not: show values of variables. Imports execution.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from deathless import execution
from deathless.codec.wire import ReplyError
from deathless.execution.author.service import Service
from deathless.execution.values.failure import Bug, bounded
from deathless.execution.values.function import place

_LOG: Final = logging.getLogger("deathless.handlers")
BURST: Final = 20  # times that one place is told at once
SECONDS_EACH: Final = 1.0  # from then on
PLACES_MAX: Final = 256  # of which it is remembered how often they were told; the oldest goes first
FRAMES_MAX: Final = 30  # of one exception; those in the middle are left out
CAUSES_MAX: Final = 5  # exceptions behind the one that was raised
_OURS: Final = (*(str(Path(folder)) + "/" for folder in execution.__path__), "<string>")  # the last: plan's adapters
_PLAIN: Final = (str, int, float, bool, bytes, type(None))
_decode_error: Final = msgspec.msgpack.Decoder(ReplyError).decode
_base: Final = BaseException.__dict__  # a class of its author's may say otherwise
_name_of: Final = type.__dict__["__name__"].__get__  # likewise


class BugLog:
    """Tells bugs to the log.

    Args:
        service: whose handlers run.
        now: seconds that only grow.
    """

    def __init__(self, service: Service, now: Callable[[], float]) -> None:
        self._service = service
        self._now = now
        self._places: dict[tuple[str, str, int], _Place] = {}  # by method, file and line

    def tell(self, bug: Bug, *, first: bool) -> None:
        """Log a bug, unless its turn ran before (`first` is False), or its place was told too often."""
        if bug.lsn and not first:
            return
        with contextlib.suppress(Exception):  # what goes wrong in telling must not become part of the turn
            self._tell(bug)

    def _tell(self, bug: Bug) -> None:
        left_out = self._left_out(bug)
        if left_out is None:
            return
        told = _decode_error(bug.reply[1:])
        what = f"{told.type}: {told.text}"
        inputs = {each.name: each for each in self._service.inputs.values()}
        spec = self._service.specs.get(bug.method) or inputs.get(bug.method)
        extra: dict[str, object] = {
            "handler": place(spec.function) if spec is not None else bug.method,
            "key": bug.key.decode(errors="backslashreplace"),
            "code": told.code,
            "traceback": "\n".join(_lines(bug.error, what)),
        }
        if bug.lsn:
            extra["lsn"] = bug.lsn
        if left_out:
            extra["left_out"] = left_out
        kind = spec.kind if spec is not None else "handler"
        _LOG.error("the %s %s raised %s", kind, bug.method, what, extra=extra)

    def _left_out(self, bug: Bug) -> int | None:
        """Give how many of the same place were left out since it was told; None: leave this one out too."""
        name = (bug.method, "", 0)
        for frame, line in traceback.walk_tb(_traceback_of(bug.error)):
            name = (bug.method, frame.f_code.co_filename, line)
        now = self._now()
        found = self._places.get(name)
        if found is None:
            while len(self._places) >= PLACES_MAX:
                del self._places[next(iter(self._places))]
            found = self._places[name] = _Place(now)
        return found.take(now)


class _Place:
    """How often one place in the code may still be told."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._at = now
        self._left_out = 0

    def take(self, now: float) -> int | None:
        self._left = min(BURST, self._left + (now - self._at) / SECONDS_EACH)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return None
        self._left -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def _traceback_of(error: BaseException) -> TracebackType | None:
    found: TracebackType | None = _base["__traceback__"].__get__(error)
    return found


def _lines(error: BaseException, what: str) -> Iterator[str]:
    """Give a traceback as the interpreter shows it, from the author's first frame on, causes first."""
    chain = _chain(error)
    for index, (cause, link) in enumerate(reversed(chain)):
        yield "Traceback (most recent call last):"
        yield from _frames(cause)
        yield what if cause is error else _title(cause)
        if index < len(chain) - 1:
            yield from ("", link, "")


def _chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """Give an exception and what stands behind it, each with what leads from it to the one before."""
    chain = [(error, "")]
    while len(chain) <= CAUSES_MAX:
        error = chain[-1][0]
        cause = _base["__cause__"].__get__(error)
        link = "The above exception was the direct cause of the following exception:"
        if cause is None and not _base["__suppress_context__"].__get__(error):
            cause = _base["__context__"].__get__(error)
            link = "During handling of the above exception, another exception occurred:"
        if cause is None or any(cause is seen for seen, _ in chain):
            break
        chain.append((cause, link))
    return chain


def _frames(error: BaseException) -> Iterator[str]:
    frames = traceback.extract_tb(_traceback_of(error))
    first = next((index for index, frame in enumerate(frames) if not frame.filename.startswith(_OURS)), len(frames))
    shown = frames[first:]
    if len(shown) > FRAMES_MAX:
        half = FRAMES_MAX // 2
        middle = f"  ... {len(shown) - 2 * half} more ...\n"
        texts = [*traceback.format_list(shown[:half]), middle, *traceback.format_list(shown[-half:])]
    else:
        texts = traceback.format_list(shown)
    yield from "".join(texts).splitlines()


def _title(error: BaseException) -> str:
    kind = type(error)
    name = bounded(_name_of(kind))
    arguments: tuple[object, ...] = _base["args"].__get__(error)
    if getattr(builtins, name, None) is not kind or not all(type(each) in _PLAIN for each in arguments):
        return name
    return f"{name}: {bounded(BaseException.__str__(error))}"
