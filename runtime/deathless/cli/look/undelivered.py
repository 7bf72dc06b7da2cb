"""`deathless undelivered ...`: messages that drivers gave up, to be sent again or discarded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click
import msgspec

from deathless.base.listings.texts import show_time
from deathless.cli.options import ListedGroup, json_option, service_options, shard_of_it, target
from deathless.cli.output import print_json, print_table

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target

WHY_MAX: Final = 80  # characters of the reason in a table


class Message(msgspec.Struct, rename="camel"):
    """One message that a driver gave up; fields as `shell.worker.messaging.describe_undelivered`."""

    id: int
    driver: str
    position: int
    at_us: int
    method: str
    key: str
    why: str
    bytes: int
    arguments: object = None


class _Listed(msgspec.Struct):
    undelivered: list[Message]
    count: int


@click.group(cls=ListedGroup)
def undelivered() -> None:
    """Messages that drivers gave up: tried too often, too old, permanently refused, or blocking others.

    They stay on this list until they are sent again or discarded, and count toward the size of the outbox.
    """


@undelivered.command("list")
@service_options
@json_option
@click.option("--from", "first", metavar="ID", type=click.IntRange(min=0), default=0, help="Start at this ID.")
def list_them(manifest: str, directory: str, as_json: bool, first: int) -> int:
    """List the undelivered messages, the oldest first."""
    found = target(manifest, directory)
    told = _ask(found, first)
    if as_json:
        print_json({"undelivered": told.undelivered, "count": told.count, **shard_of_it(found)})
    elif not told.undelivered:
        print("no message was given up")
    else:
        print_table(
            ("id", "driver", "method", "key", "bytes", "given up at", "why"),
            [(m.id, m.driver, m.method, m.key, m.bytes, show_time(m.at_us), m.why[:WHY_MAX]) for m in told.undelivered],
        )
        if told.count > len(told.undelivered):
            print(f"\n{len(told.undelivered)} of {told.count}; go on with --from {told.undelivered[-1].id + 1}")
    return 0


@undelivered.command("retry")
@click.argument("numbers", metavar="ID...", type=click.IntRange(min=1), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All messages that are listed now.")
@click.option("--driver", "driver", default="", help="With --all: only messages of this driver.")
@service_options
@json_option
def retry(numbers: tuple[int, ...], everything: bool, driver: str, manifest: str, directory: str, as_json: bool) -> int:
    """Send messages again, after those that their driver already has to deliver.

    The receiver gets the same Idempotency-Key as with the first attempt.

    \b
    deathless undelivered retry 4711
    deathless undelivered retry --all --driver mail
    """
    return _see_to("redeliver", "sent again", numbers, everything, driver, target(manifest, directory), as_json)


@undelivered.command("discard")
@click.argument("numbers", metavar="ID...", type=click.IntRange(min=1), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All messages that are listed now.")
@click.option("--driver", "driver", default="", help="With --all: only messages of this driver.")
@service_options
@json_option
def discard(
    numbers: tuple[int, ...], everything: bool, driver: str, manifest: str, directory: str, as_json: bool
) -> int:
    """Drop messages permanently, without delivering them.

    \b
    deathless undelivered discard 4711
    """
    return _see_to("discard", "discarded", numbers, everything, driver, target(manifest, directory), as_json)


def _see_to(
    command: str, done: str, numbers: tuple[int, ...], everything: bool, driver: str, found: Target, as_json: bool
) -> int:
    if bool(numbers) == everything:
        raise click.UsageError("give ids, or --all")
    if driver and not everything:
        raise click.UsageError("--driver goes with --all")
    seen_to: list[int] = []
    first = 0
    while everything:
        page = _ask(found, first).undelivered
        if not page:
            break
        numbers += tuple(message.id for message in page if driver in ("", message.driver))
        first = page[-1].id + 1
    from deathless.cli.primary import ask_primary

    for number in numbers:
        asyncio.run(ask_primary(found, "order", {"command": command, "invocation": str(number)}))
        seen_to.append(number)
    if as_json:
        print_json({"messages": seen_to, "done": done, **shard_of_it(found)})
    else:
        print(f"{len(seen_to)} messages are {done}" if len(seen_to) != 1 else f"message {seen_to[0]} is {done}")
    return 0


def _ask(found: Target, first: int) -> _Listed:
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    return fitted(asyncio.run(ask_primary(found, "undelivered", {"from": str(first)})), _Listed)
