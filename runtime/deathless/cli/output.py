"""How commands print: a table or lines for people, one JSON document for programs, one block for an error.

Guarantees: with --json standard output holds JSON alone, and an error is JSON on standard error; a command that runs an
author's code in its own process does so within `prints_aside`. What is not a terminal gets neither colours nor boxes.
Does not: import rich unless a terminal is there.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from deathless.base.errors import DeathlessError, HandlerFailed, Internal, InvalidConfig, PermissionRefused

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_MAX = 110
QUIET_S: Final = 2.0
"""What takes longer says how far it is."""


def print_json(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(json_of(value).encode(), indent=2).decode() + "\n")
    sys.stdout.flush()


def print_json_line(value: object) -> None:
    """Print one JSON document in one line: one of a stream of them."""
    sys.stdout.write(json_of(value) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def prints_aside() -> Iterator[None]:
    """Have what an author's code prints meanwhile go to standard error: standard output is the command's."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def json_of(value: object) -> str:
    """Give the JSON of a value to be looked at: what JSON has no form for is told as text.

    Those are NaN and the infinities, and keys that are neither texts nor numbers, as a state may have them.
    """
    return msgspec.json.encode(_shown(value), enc_hook=_plain).decode()


def _shown(value: object) -> object:
    if isinstance(value, dict):
        shown: dict[str, object] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else _text_of(json_of(key))
            shown[text if text not in shown else json_of(key)] = _shown(item)
        return shown
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _text_of(text: str) -> str:
    value: object = msgspec.json.decode(text)
    return value if isinstance(value, str) else text


def _plain(value: object) -> object:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def is_terminal() -> bool:
    """True when a person looks at what we print."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def console() -> Console:
    """A console on standard output; without a terminal it prints plain text of any width."""
    from rich.console import Console

    return Console(highlight=False) if is_terminal() else Console(highlight=False, width=WIDTH_MAX, no_color=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings, aligned, without boxes: it reads the same on a terminal and in a file."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [_is_column_of_numbers([row[i] for row in cells]) for i in range(len(columns))]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    for row in ([name.upper() for name in columns], *cells):
        line = "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def _is_column_of_numbers(cells: list[str]) -> bool:
    found = [cell.replace(",", "") for cell in cells if cell != "-"]
    return bool(found) and all(cell.isdecimal() for cell in found)


def count(number: int, word: str) -> str:
    """Give "1 key", "2 keys"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def progress() -> Callable[[str], None]:
    """Give what says on standard error how far something is, every QUIET_S."""
    spoken = time.monotonic()

    def told(how_far: str) -> None:
        nonlocal spoken
        if time.monotonic() > spoken + QUIET_S:
            spoken = time.monotonic()
            print(how_far, file=sys.stderr, flush=True)

    return told


class ErrorReport(msgspec.Struct, rename="camel"):
    """An error as programs read it."""

    code: str
    kind: str
    what: str
    remedy: str
    page: str
    exit_code: int


def describe_error(error: BaseException) -> ErrorReport:
    """Give an error's parts; what is none of ours becomes one of ours."""
    if isinstance(error, click.ClickException):
        return ErrorReport("", "UsageError", error.format_message(), "see --help", "", error.exit_code)
    ours = as_ours(error)
    kind = next(c.__name__ for c in type(ours).__mro__ if "code" in vars(c))
    what = ours.message
    if isinstance(ours, HandlerFailed) and ours.kind:
        what = f"{ours.kind}: {what}"  # the type that the handler raised, as recorded
    page = f"docs/errors/{ours.code}.md" if ours.code.startswith("DL") else ""  # a service's own code has none of ours
    return ErrorReport(ours.code, kind, what, ours.advice, page, ours.exit_code)


def as_ours(error: BaseException) -> DeathlessError:
    """Give the error of ours that says what this one means to a user."""
    if isinstance(error, DeathlessError):
        return error
    if isinstance(error, PermissionError):
        return PermissionRefused(f"{error.filename or 'a file'}: {error.strerror}")
    if isinstance(error, OSError):
        return InvalidConfig(f"{error.filename + ': ' if error.filename else ''}{error.strerror or error}")
    text = str(error).splitlines()[0] if str(error) else ""
    return Internal(f"{type(error).__name__}: {text}", remedy="run it again with --debug and report what it shows")


def show_error(error: BaseException, *, as_json: bool = False) -> int:
    """Print an error as one block, wrapped on a terminal alone; gives the exit code of its class."""
    told = describe_error(error)
    if as_json:
        sys.stderr.write(msgspec.json.encode({"error": told}).decode() + "\n")
        return told.exit_code
    seen = sys.stderr.isatty()
    red, bold, plain = ("\x1b[31m", "\x1b[1m", "\x1b[0m") if seen else ("", "", "")
    sys.stderr.write(f"{red}{bold}error {told.code} {told.kind}{plain}\n")
    for name, text in (("what", told.what), ("remedy", told.remedy), ("page", told.page)):
        for line in text.splitlines():
            sys.stderr.write(f"{_wrapped(name, line) if seen else f'  {name:<8}{line}'}\n")
            name = ""  # noqa: PLW2901 - the name stands before the first line alone
    return told.exit_code


def _wrapped(name: str, text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH_MAX,
        initial_indent=f"  {name:<8}",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )


def new_table(*columns: str) -> Table:
    """A table for a live view."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in ("epoch", "lsn", "lag", "pid") else "left", no_wrap=True)
    return table
