"""`deathless call` and `deathless query`: one call, one answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless.cli.options import json_option, named_shard, service_options, target, timeout_option
from deathless.cli.output import print_json

if TYPE_CHECKING:
    from deathless.shell.client import Client
    from deathless.shell.target import Target

ARG_HELP = "A named argument; VALUE is JSON, or a text where it is none. Repeat it for each argument."


@click.command()
@click.argument("handler")
@click.option("-k", "--key", default="", help="Key of the entity; empty for a service of one object.")
@click.option("-a", "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=ARG_HELP)
@click.option(
    "--idempotency-key",
    default="",
    metavar="KEY",
    help="The same key with the same arguments runs once; one is drawn if none is given.",
)
@timeout_option(10.0)
@service_options
@json_option
def call(
    handler: str,
    key: str,
    pairs: tuple[str, ...],
    idempotency_key: str,
    timeout: float,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Call HANDLER and print its result as JSON.

    The call is applied exactly once, whatever dies meanwhile. If no answer comes in time, the error shows the
    idempotency key: the same command with --idempotency-key gives the answer, and applies nothing twice.

    \b
    deathless call deposit --key alice --arg amount=5
    deathless call transfer --arg source=alice --arg target=bob --arg amount=3
    deathless call rename --key alice --arg 'name="5"'        a text that looks like a number
    """
    found = target(manifest, directory, every=True)
    arguments = parse_arguments(pairs)
    drawn = idempotency_key or str(uuid.uuid4())

    async def work(client: Client) -> object:
        try:
            return await client.request(handler, key, arguments, idempotency_key=drawn, timeout=timeout)
        except OutcomeUnknown as error:
            remedy = f"the same command with --idempotency-key {drawn} gives the answer, and applies nothing twice"
            raise OutcomeUnknown(error.message, remedy=remedy) from None

    result = asyncio.run(with_client(found, work))
    show_result(result, as_json=as_json, idempotencyKey=drawn)
    return 0


@click.command()
@click.argument("query")
@click.option("-k", "--key", default="", help="Key of the entity; empty for a service of one object.")
@click.option("-a", "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=ARG_HELP)
@click.option("--stale", is_flag=True, help="Any replica may answer, from what it has applied.")
@timeout_option(10.0)
@service_options
@json_option
def query(
    query: str,
    key: str,
    pairs: tuple[str, ...],
    stale: bool,
    timeout: float,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Ask QUERY and print its answer as JSON. It is linearizable: it sees every call that was answered before it.

    \b
    deathless query balance --key alice
    """
    found = target(manifest, directory, every=True)
    arguments = parse_arguments(pairs)

    async def work(client: Client) -> object:
        return await client.ask(query, key, arguments, stale=stale, timeout=timeout)

    show_result(asyncio.run(with_client(found, work)), as_json=as_json)
    return 0


def show_result(result: object, *, as_json: bool, **more: str | int) -> None:
    """Print what a handler or a query gave, as JSON; `more` stands beside it for programs."""
    if as_json:
        print_json({"result": result, **more})
    else:
        print_json(result)


async def with_client(found: Target, work: Callable[[Client], Awaitable[object]]) -> object:
    """Do something with a client of a service."""
    from deathless.shell.client import Client

    config, access, shard = found.config, found.access, named_shard()
    folder = f"dir:{config.service_directory}"
    async with Client(
        config.service, [folder], token=access.token, tls=access.tls, name="deathless call", shards=config.shards
    ) as client:
        return await work(client if shard is None else client.shard(shard))


def parse_arguments(pairs: tuple[str, ...]) -> dict[str, object]:
    """Give the named arguments. Raises: InvalidArgument for what is not NAME=VALUE, or given twice."""
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgument(f"--arg {pair!r} is not NAME=VALUE", remedy="for instance: --arg amount=5")
        if name in arguments:
            raise InvalidArgument(f"--arg {name} is given twice", remedy="keep one of them")
        try:
            arguments[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            arguments[name] = text
    return arguments
