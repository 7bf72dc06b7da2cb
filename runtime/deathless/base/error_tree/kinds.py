"""What the caller of something that failed must do: the root of the tree of errors, and its first branches.

Why apart: the errors themselves stand in several modules (`errors`, `topics`), and all of them derive from
these. Everybody but those modules imports `errors`, which has all of them.

Does not: know any code. Imports nothing of ours.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar, cast

_T = TypeVar("_T")


class DeathlessError(Exception):
    """Root of all our errors.

    Args:
        message: what happened, with field and value.
        remedy: what to do about it; None uses the class's own.
    """

    code: ClassVar[str] = "DL0000"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    remedy: ClassVar[str] = ""

    def __init__(self, message: str = "", *, remedy: str | None = None) -> None:
        message = _written(message)
        super().__init__(message)
        self.message = message
        self.advice = self.remedy if remedy is None else _written(remedy)

    def __str__(self) -> str:
        tail = f" ({self.advice})" if self.advice else ""
        return f"{self.code} {self.message}{tail}"


def _written(text: _T) -> _T:
    """Give text as it can be written down: a file's name may have bytes that are no text (lone surrogates).

    An author may raise an error with something else in place of a text: that stays what it is.
    """
    if isinstance(text, str) and not text.isascii():
        return cast("_T", text.encode(errors="backslashreplace").decode())
    return text


class RetryLater(DeathlessError):
    """Nothing was done, or a retry returns what was done; the caller sends the same request again."""

    http_status = 503
    exit_code = 75
    retry_after_s: float = 0.0  # when to send it again, seconds from now; 0: at once


class Fenced(DeathlessError):
    """This process must stop: another process owns its role."""

    exit_code = 76


class Invalid(DeathlessError):
    """The caller must change what it sent or configured; nothing was done."""

    http_status = 400
    exit_code = 64


class DataCorrupt(DeathlessError):
    """Stored bytes are damaged, or do not belong here; the replica stops and an operator decides."""

    exit_code = 65
