"""`deathless call` and `deathless query`: one call, one answer."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import (
    DeathlessError,
    InvalidArgument,
    NotYourSession,
    OutcomeUnknown,
    ResultUnreadable,
    SessionExpired,
)
from deathless.base.limits import NESTING_MAX
from deathless.cli.change.by_number import ARG_HELP, Typed, argument_options, check_ways, method_of, show_bytes
from deathless.cli.options import json_option, named_shard, service_options, target, timeout_option
from deathless.cli.output import print_json
from deathless.codec.nesting import is_json_too_deep

if TYPE_CHECKING:
    from deathless.shell.client.shard_client import Client
    from deathless.shell.operate.target import Target

token_option = click.option(
    "--token-file",
    envvar="DEATHLESS_CALLER_TOKEN_FILE",
    default="",
    metavar="PATH",
    help="File with your token as a caller; default: the service's own, which a tool beside it may read.",
)
UNKNOWN = (OutcomeUnknown, SessionExpired, NotYourSession)  # whoever gets one of these does not know what was done


@click.command()
@click.argument("handler")
@click.option("-k", "--key", default="", help="Key of the state; empty for a service of one object.")
@argument_options
@click.option(
    "--idempotency-key",
    default="",
    metavar="KEY",
    help="The same key with the same arguments runs once; default: a generated key.",
)
@timeout_option(10.0)
@token_option
@service_options
@json_option
def call(
    handler: str,
    key: str,
    typed: Typed,
    idempotency_key: str,
    timeout: float,
    token_file: str,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Call HANDLER and print its result as JSON.

    A number in the place of HANDLER calls a method by its number, of a program in another language or of a service that
    has such methods: with bytes, and its result is printed in hexadecimal, with --json as Base64 as well. Nothing is
    printed where it returns nothing.

    The call is applied exactly once, whichever process dies meanwhile. If the command ends before the answer, also by
    Ctrl-C, it shows the idempotency key: the same command with --idempotency-key returns the answer, and applies
    nothing twice.

    \b
    deathless call deposit --key alice --arg amount=5
    deathless call transfer --arg source=alice --arg target=bob --arg amount=3
    deathless call rename --key alice --arg 'name="5"'        a string that looks like a number
    deathless call 7 --bytes hello                            a method by its number
    deathless call 7 --bytes-from order.bin --output answer.bin
    deathless call --hex 00ff -- -2                           a number below 0
    """
    method = method_of(handler)
    check_ways(method, typed, as_json=as_json)
    found = target(manifest, directory, every=True)
    arguments = parse_arguments(typed.pairs)
    drawn = idempotency_key or str(uuid.uuid4())
    again = f"the same command with --idempotency-key {shlex.quote(drawn)} gives the answer, and applies nothing twice"
    data = typed.read()

    async def work(client: Client) -> object:
        try:
            if method is not None:
                return await client.foreign(
                    method, data, key=key, fork=typed.fork, idempotency_key=drawn, timeout=timeout
                )
            return await client.request(handler, key, arguments, idempotency_key=drawn, timeout=timeout)
        except UNKNOWN as error:
            raise type(error)(error.message, remedy=again) from None

    try:
        result = asyncio.run(with_client(found, work, token_file))
    except KeyboardInterrupt:
        click.echo(f"nobody knows yet whether it was applied: {again}", err=True)
        raise
    if method is None:
        show_result(result, as_json=as_json, idempotencyKey=drawn)
    else:
        assert result is None or isinstance(result, bytes)
        show_bytes(result, typed.output, as_json=as_json, idempotency_key=drawn)
    return 0


@click.command()
@click.argument("query")
@click.option("-k", "--key", default="", help="Key of the state; empty for a service of one object.")
@click.option("-a", "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=ARG_HELP)
@click.option("--stale", is_flag=True, help="Let any replica answer, from what it has applied.")
@timeout_option(10.0)
@token_option
@service_options
@json_option
def query(
    query: str,
    key: str,
    pairs: tuple[str, ...],
    stale: bool,
    timeout: float,
    token_file: str,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Run QUERY and print its answer as JSON. It is linearizable: it sees every call that was answered before.

    \b
    deathless query balance --key alice
    """
    found = target(manifest, directory, every=True)
    arguments = parse_arguments(pairs)

    async def work(client: Client) -> object:
        return await client.ask(query, key, arguments, stale=stale, timeout=timeout)

    show_result(asyncio.run(with_client(found, work, token_file)), as_json=as_json)
    return 0


def show_result(result: object, *, as_json: bool, **more: str | int) -> None:
    """Print what a handler or a query gave, as JSON; `more` stands beside it for programs.

    Raises: ResultUnreadable for what JSON can't carry: a number that is none would be printed as null.
    """
    from deathless.shell.web.json_results import first_misfit

    if misfit := first_misfit(result):
        raise ResultUnreadable(misfit)
    if as_json:
        print_json({"result": result, **more})
    else:
        print_json(result)


async def with_client(found: Target, work: Callable[[Client], Awaitable[object]], token_file: str = "") -> object:
    """Do something with a client of a service.

    Args:
        found: the service.
        work: what to do.
        token_file: holds a token to show instead of the service's own; empty: none.

    Raises: InvalidArgument when the file can't be read; PeerUnreachable at once where nothing of the service runs.
    """
    from deathless.shell.client.shard_client import Client
    from deathless.shell.operate.down import why_down
    from deathless.shell.web.remedies import COMMAND, remedy

    if (down := await why_down(found)) is not None:
        raise down
    config, access, shard = found.config, found.access, named_shard()
    folder = f"dir:{config.service_directory}"
    async with Client(
        config.service,
        [folder],
        token=read_token(token_file) if token_file else access.token,
        tls=access.tls,
        name="deathless call",
        shards=config.shards,
    ) as client:
        try:
            return await work(client if shard is None else client.shard(shard))
        except DeathlessError as error:
            error.advice = remedy(error, COMMAND)
            raise


def read_token(path: str) -> str:
    """Give the first line of a file. Raises: InvalidArgument."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"--token-file {path}: {why}", remedy="name a file that holds your token") from None
    if not lines:
        raise InvalidArgument(f"--token-file {path} is empty", remedy="name a file that holds your token")
    return lines[0]


def parse_arguments(pairs: tuple[str, ...]) -> dict[str, object]:
    """Give the named arguments. Raises: InvalidArgument for what is not NAME=VALUE, or given twice."""
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgument(f"--arg {pair!r} is not NAME=VALUE", remedy="for instance: --arg amount=5")
        if name in arguments:
            raise InvalidArgument(f"--arg {name} is given twice", remedy="keep one of them")
        if is_json_too_deep(text.encode(errors="surrogateescape")):
            raise InvalidArgument(
                f"--arg {name} is nested more than {NESTING_MAX} levels", remedy="give a flatter value"
            )
        try:
            arguments[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            arguments[name] = text
    return arguments
