"""Calls of methods by their numbers, as they are typed: the number, the bytes, and what comes back.

    deathless call 7 --bytes hello      --hex 68656c6c6f      --bytes-from PATH, or - for standard input

A handler's name is an identifier, so a whole number in its place is a method's. Its argument is bytes, and so is what
it gives, where it gives something. For people these bytes are printed in hexadecimal, for programs (`--json`) as Base64
as well, and `--output` writes them as they are.

Guarantees: at most ARGUMENT_BYTES_MAX bytes are read. Does not: send anything (`calls` does).
"""

from __future__ import annotations

import base64
import re
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.output import print_json
from deathless.execution.author.foreign_methods import METHOD_MAX, METHOD_MIN
from deathless.shell.disk.small_files import read_small

ARGUMENT_BYTES_MAX: Final = 64 << 20
"""Of an argument that is read; a service takes what its `limits.messageBytesMax` says, which is less."""
STREAM: Final = "-"
"""Stands for standard input or output in the place of a path."""
ARG_HELP: Final = "A named argument; VALUE is JSON, or taken as a string if it is not. Repeat for each argument."
_OPTIONS: Final = (
    click.option("-a", "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=ARG_HELP),
    click.option("--bytes", "text", default=None, metavar="TEXT", help="Bytes of a method: this text in UTF-8."),
    click.option("--hex", "hexadecimal", default=None, metavar="HEX", help="Bytes of a method: two digits for each."),
    click.option(
        "--bytes-from", "path", default=None, metavar="PATH", help="Bytes of a method: this file's; -: stdin."
    ),
    click.option("--fork", is_flag=True, help="Of a method: wait for nothing but that the call is logged."),
    click.option(
        "--output", default="", metavar="PATH", help="Write the bytes that a method gives to this file; -: stdout."
    ),
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class Typed(NamedTuple):
    """What a handler or a method is called with, as it was typed; None: not this way."""

    pairs: tuple[str, ...] = ()  # NAME=VALUE, which a handler takes and a method does not
    text: str | None = None
    hexadecimal: str | None = None
    path: str | None = None
    fork: bool = False  # nothing is waited for but that the call is logged
    output: str = ""  # path of the file that the method's bytes are written to; empty: they are printed

    @property
    def ways(self) -> list[str]:
        """Options by which bytes were given."""
        named = {"--bytes": self.text, "--hex": self.hexadecimal, "--bytes-from": self.path}
        return [name for name, value in named.items() if value is not None]

    @property
    def options(self) -> list[str]:
        """Options for methods that were given."""
        return [*self.ways, *["--fork"][: self.fork], *["--output"][: bool(self.output)]]

    def read(self) -> bytes:
        """Give the bytes; empty where nothing was typed.

        Raises: InvalidArgument for two ways at once, for what is not hexadecimal, and for a file that can't be read.
        """
        if len(self.ways) > 1:
            raise InvalidArgument(f"{' and '.join(self.ways)} are given at once", remedy="keep one of them")
        if self.text is not None:
            return self.text.encode(errors="surrogateescape")
        if self.hexadecimal is not None:
            return _unhex(self.hexadecimal)
        return _read(self.path) if self.path is not None else b""


def method_of(handler: str) -> int | None:
    """Give the number that stands in the place of a handler's name; None: it is a name.

    Raises: InvalidArgument for a number that has more than 32 bits.
    """
    if not _NUMBER.fullmatch(handler):
        return None
    method = int(handler)
    if not METHOD_MIN <= method <= METHOD_MAX:
        raise InvalidArgument(
            f"{handler} is no method's number, which has 32 bits", remedy=f"give one from {METHOD_MIN} to {METHOD_MAX}"
        )
    return method


def check_ways(method: int | None, typed: Typed, *, as_json: bool) -> None:
    """Look whether what was typed fits together.

    Args:
        method: that is called; None: a handler is, by its name.
        typed: what it is called with.
        as_json: standard output is for programs.

    Raises: InvalidArgument for named arguments of a number, bytes of a name, and two writers of standard output.
    """
    if method is not None and typed.pairs:
        raise InvalidArgument(
            f"--arg is given, and {method} is a method's number, which takes bytes",
            remedy="give --bytes, --hex or --bytes-from, or the name of a handler",
        )
    if method is None and typed.options:
        raise InvalidArgument(
            f"{typed.options[0]} is for methods, and no number was given",
            remedy="give the method's number in the place of the handler's name, or --arg NAME=VALUE",
        )
    if typed.output == STREAM and as_json:
        raise InvalidArgument("--output - and --json both write to standard output", remedy="leave one of them out")


def argument_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options for what is called with, as its argument `typed`."""

    @wraps(command)
    def bundled(
        *,
        pairs: tuple[str, ...],
        text: str | None,
        hexadecimal: str | None,
        path: str | None,
        fork: bool,
        output: str,
        **others: object,
    ) -> int:
        return command(typed=Typed(pairs, text, hexadecimal, path, fork, output), **others)

    for option in reversed(_OPTIONS):
        bundled = option(bundled)
    return bundled


def show_bytes(result: bytes | None, output: str, *, as_json: bool, idempotency_key: str) -> None:
    """Print what a method gave; None is nothing.

    Args:
        result: its bytes.
        output: path of the file that they are written to; empty: none, they are printed.
        as_json: for programs.
        idempotency_key: under which the call was made.

    Raises: InvalidArgument for a file that can't be written: the call has been made nevertheless.
    """
    if output == STREAM:
        sys.stdout.buffer.write(result or b"")
        sys.stdout.buffer.flush()
        return
    if output:
        _write(output, result or b"", idempotency_key)
    if as_json:
        found = None if result is None else base64.b64encode(result).decode()
        print_json(
            {"result": found, "hex": None if result is None else result.hex(), "idempotencyKey": idempotency_key}
        )
    elif result is not None and not output:
        click.echo(result.hex())


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidArgument(
            f"--hex {text!r} is not hexadecimal", remedy="give two digits for each byte, for instance --hex 00ff"
        ) from None


def _read(path: str) -> bytes:
    try:
        if path != STREAM:
            return read_small(path, ARGUMENT_BYTES_MAX)
        data = sys.stdin.buffer.read(ARGUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(
            f"--bytes-from {path}: {error.strerror or error}", remedy="name a file that can be read"
        ) from None
    if len(data) > ARGUMENT_BYTES_MAX:
        raise InvalidArgument(f"--bytes-from {path}: more than {ARGUMENT_BYTES_MAX} bytes", remedy="give fewer")
    return data


def _write(path: str, data: bytes, idempotency_key: str) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        again = shlex.quote(idempotency_key)
        raise InvalidArgument(
            f"--output {path}: {error.strerror or error}; the call was made",
            remedy=f"name another file: the same command with --idempotency-key {again} gives the answer",
        ) from None
