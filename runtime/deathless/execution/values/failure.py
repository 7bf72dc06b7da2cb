"""An exception of a handler becomes a recorded reply: (code, type, text) (I5).

The reply is the same bytes for every retry and in every replay, so the text is ours: cut to `TEXT_MAX` characters,
with everything that looks like an address in memory (`0x7f3a...`) masked as `0x?`, and encodable. The type is the
exception's bare name. Errors that tell the caller to change something (`Invalid`) are refusals that the author means:
they keep their code, and are CallRefused where they have none of their own. Not meant is what a handler did wrong with
its context (InvalidUse, InvalidAwait, ForbiddenInTurn). Every other exception is HandlerFailed, a bug of the service.
So are those that tell the caller to send again (`RetryLater`): what is recorded stays the same however often it is
asked for, and under their codes it would look like a reply that was lost on its way. So is CallFailed where what was
called, or an activity, has such a bug: nobody's caller erred.

A bug is handed to who logs it, with its traceback, by `Failures`. Whoever runs the same message again hands it on as
well, so who logs must know whether a message runs for the first time.

What is no Exception is a reply like any other: `sys.exit()` in a handler ends its turn and not its process. So is
RecursionError: every turn has the same room on the stack (see depth), so whoever runs it meets the same. Its text is
fixed, because the interpreter's says what was being called at that moment.

Never a reply: MemoryError, also inside an exception group, for what it depends on is the process and not the log, and
`ProcessEnds`. They go up, the process ends, and its supervisor counts (I11).

Guarantees: gives a reply or raises what it was given, whatever the exception's own code does when it is asked for its
text. Does not: log, nor ask an exception a second time for anything. Imports base and codec.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import (
    CallFailed,
    CallRefused,
    DeathlessError,
    ForbiddenInTurn,
    HandlerFailed,
    Invalid,
    InvalidArgument,
    InvalidAwait,
    InvalidUse,
    NotRetryable,
    OutcomeUnknown,
    RetryLater,
)
from deathless.codec.wire import error_reply

TEXT_MAX: Final = 500
NAME_MAX: Final = 100
_PLAIN: Final = (Invalid, RetryLater)
"""Errors whose text is told without code and remedy: those are in the reply, or mean something else here."""

RECURSION: Final = "it recursed too deep; a turn may call 1000 levels deep, and a value must not hold itself"
_UNTELLABLE: Final = "(its text can't be given)"
_NOT_OWN: Final = frozenset({DeathlessError.code, HandlerFailed.code})
"""Codes of what an author raises, or derives from, without a code of its own."""

BUGS: Final = frozenset({HandlerFailed.code, ForbiddenInTurn.code, InvalidAwait.code, InvalidUse.code})
"""Codes under which bugs of a service are recorded."""

_name_of: Final = type.__dict__["__name__"].__get__  # also of a class whose metaclass says otherwise
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")


class ProcessEnds(BaseException):
    """Raised through a turn by what ends its process, not by the turn: it is never a reply."""


FATAL: Final = (MemoryError, ProcessEnds)


def bounded(text: str, characters_max: int = TEXT_MAX) -> str:
    """Give `text` without addresses and lone surrogates, cut to `characters_max`."""
    text = _ADDRESS.sub("0x?", text[: 4 * characters_max])
    if len(text) > characters_max:
        text = text[: characters_max - 3] + "..."
    return text.encode("utf-8", "backslashreplace").decode()


def is_fatal(error: BaseException) -> bool:
    """True when `error` must never become a reply."""
    open_ = [error]
    while open_:
        error = open_.pop()
        if isinstance(error, FATAL):
            return True
        if isinstance(error, BaseExceptionGroup):
            open_.extend(error.exceptions)
    return False


def _text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return RECURSION
    try:
        text: object = error.message if isinstance(error, _PLAIN) else error
        return str.__str__(str(text))  # of a class of its author's, `str` may give what is no plain text
    except FATAL:
        raise
    except BaseException:  # noqa: BLE001  `__str__` is the author's code and may raise anything
        return _UNTELLABLE


def _code(error: BaseException) -> str:
    if not isinstance(error, Invalid):
        return HandlerFailed.code
    code: object = type(error).code
    if not isinstance(code, str):
        return HandlerFailed.code
    code = str.__str__(code)
    if code in _NOT_OWN:
        return CallRefused.code
    if isinstance(error, CallFailed) and error.failure_code in BUGS:
        return HandlerFailed.code
    return bounded(code, NAME_MAX)


def is_bug(error: BaseException) -> bool:
    """True when the author of the handler did not mean it to end in `error`, which no caller can do anything about."""
    return _code(error) in BUGS


def _kind(error: BaseException) -> str:
    return bounded(_name_of(type(error)), NAME_MAX)


def failed(error: BaseException) -> bytes:
    """Give the reply to a turn that ended in `error`.

    Raises: `error` itself when it is fatal; the caller lets it end the process.
    """
    if is_fatal(error):
        raise error
    return error_reply(_code(error), _kind(error), bounded(_text(error)))


def _is_misfit(error: BaseException) -> bool:
    """True for what a decoder raises when bytes do not fit a type."""
    return isinstance(error, msgspec.MsgspecError | UnicodeError)


def bad_arguments(error: BaseException) -> bytes:
    """Give the reply to arguments that do not fit; msgspec's text names the path (`$.amount`).

    Raises: `error` itself when it is fatal.
    """
    if _is_misfit(error):
        return error_reply(InvalidArgument.code, InvalidArgument.__name__, bounded(_text(error)))
    return failed(error)


def query_failed(error: BaseException) -> bytes:
    """Give the answer to a query that ended in `error`, whatever it is: nothing of a query is replayed."""
    if isinstance(error, Exception) and not is_fatal(error):
        return failed(error)
    return error_reply(HandlerFailed.code, _kind(error), "the query could not be finished")


class Bug(NamedTuple):
    """An exception of a handler or query that its author did not mean."""

    method: str
    key: bytes
    lsn: int  # of the turn's message; 0: of a query
    error: BaseException
    reply: bytes  # what the caller gets


Tell = Callable[[Bug], None]


def untold(_bug: Bug) -> None:
    """Tell a bug to nobody."""


class Failures:
    """Makes replies of what turns and queries raise, and tells those that are bugs.

    Args:
        tell: called where the exception was caught, in the turn still; it raises nothing.
    """

    __slots__ = ("_tell",)

    def __init__(self, tell: Tell = untold) -> None:
        self._tell = tell

    def of_turn(self, error: BaseException, method: str, key: bytes, lsn: int) -> bytes:
        """Give the reply to a turn that ended in `error`. Raises: as `failed`."""
        return self._told(failed(error), error, method, key, lsn)

    def of_arguments(self, error: BaseException, method: str, key: bytes, lsn: int) -> bytes:
        """Give the reply to arguments that could not be decoded. Raises: as `bad_arguments`."""
        reply = bad_arguments(error)
        return reply if _is_misfit(error) else self._told(reply, error, method, key, lsn)

    def of_query(self, error: BaseException, method: str, key: bytes) -> bytes:
        """Give the answer to a query that ended in `error`."""
        return self._told(query_failed(error), error, method, key, 0)

    def _told(self, reply: bytes, error: BaseException, method: str, key: bytes, lsn: int) -> bytes:
        if is_bug(error):
            self._tell(Bug(method, key, lsn, error, reply))
        return reply


def not_retryable(kind: str, text: str) -> bytes:
    """Give the reply of an activity that is tried no more; `kind` is what its handler tells it by."""
    return error_reply(NotRetryable.code, kind, bounded(text))


def activity_failed(error: BaseException) -> bytes:
    """Give the reply of an activity that ended in `error`.

    As of a query; but one that raises OutcomeUnknown says that nobody knows whether it was done, and is listed (I7),
    and one that raises NotRetryable is tried no more.
    """
    if isinstance(error, NotRetryable):
        return not_retryable(_kind(error), _text(error))
    if isinstance(error, OutcomeUnknown):
        return error_reply(OutcomeUnknown.code, _kind(error), bounded(_text(error)))
    return query_failed(error)
