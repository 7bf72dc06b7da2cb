"""An exception of a handler becomes a recorded reply: (code, type, text) (I5).

The reply is the same bytes for every retry and in every replay, so the text is ours: cut to `TEXT_MAX` characters,
with everything that looks like an address in memory (`0x7f3a...`) masked as `0x?`, and encodable. The type is the
exception's bare name. Errors of ours that tell the caller to change something (`Invalid`) keep their code; every
other exception is HandlerFailed. So are those that tell it to send again (`RetryLater`): what is recorded stays the
same however often it is asked for, and under their codes it would look like a reply that was lost on its way.

Never a reply: RecursionError and MemoryError (what they say depends on the process, not on the log), also inside an
exception group, and whatever is no Exception (SystemExit, KeyboardInterrupt). They go up, the process ends, and its
supervisor counts (I11).

Guarantees: gives a reply or raises what it was given. Does not: log. Imports base and codec.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from deathless.base.errors import HandlerFailed, Invalid, InvalidArgument, OutcomeUnknown, RetryLater
from deathless.codec.wire import error_reply

TEXT_MAX: Final = 500
NAME_MAX: Final = 100
_PLAIN: Final = (Invalid, RetryLater)
"""Errors whose text is told without code and remedy: those are in the reply, or mean something else here."""

FATAL: Final = (RecursionError, MemoryError)
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")


def bounded(text: str, characters_max: int = TEXT_MAX) -> str:
    """Give `text` without addresses and lone surrogates, cut to `characters_max`."""
    text = _ADDRESS.sub("0x?", text)
    if len(text) > characters_max:
        text = text[: characters_max - 3] + "..."
    return text.encode("utf-8", "backslashreplace").decode()


def is_fatal(error: BaseException) -> bool:
    """True when `error` must never become a reply."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_fatal(inner) for inner in error.exceptions)
    return isinstance(error, FATAL)


def _text(error: Exception) -> str:
    try:
        return error.message if isinstance(error, _PLAIN) else str(error)
    except FATAL:
        raise
    except Exception:  # noqa: BLE001  `__str__` is the author's code and may raise anything
        return "(its text can't be given)"


def failed(error: Exception) -> bytes:
    """Give the reply to a turn that ended in `error`.

    Raises: `error` itself when it is fatal; the caller lets it end the process.
    """
    if is_fatal(error):
        raise error
    code: object = error.code if isinstance(error, Invalid) else HandlerFailed.code
    return error_reply(
        bounded(code if isinstance(code, str) else HandlerFailed.code, NAME_MAX),
        bounded(type(error).__name__, NAME_MAX),
        bounded(_text(error)),
    )


def bad_arguments(error: Exception) -> bytes:
    """Give the reply to arguments that do not fit; msgspec's text names the path (`$.amount`).

    Raises: `error` itself when it is fatal.
    """
    if isinstance(error, msgspec.MsgspecError | UnicodeError):
        return error_reply(InvalidArgument.code, InvalidArgument.__name__, bounded(str(error)))
    return failed(error)


def query_failed(error: BaseException) -> bytes:
    """Give the answer to a query that ended in `error`, whatever it is: nothing of a query is replayed."""
    if isinstance(error, Exception) and not is_fatal(error):
        return failed(error)
    return error_reply(HandlerFailed.code, bounded(type(error).__name__, NAME_MAX), "the query could not be finished")


def activity_failed(error: BaseException) -> bytes:
    """Give the reply of an activity that ended in `error`.

    As of a query; but one that raises OutcomeUnknown says that nobody knows whether it was done, and is listed (I7).
    """
    if isinstance(error, OutcomeUnknown):
        return error_reply(OutcomeUnknown.code, bounded(type(error).__name__, NAME_MAX), bounded(_text(error)))
    return query_failed(error)
