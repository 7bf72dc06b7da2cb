"""`deathless invocations ...`: handlers that have begun and wait, and activities of which nobody knows the outcome."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import click
import msgspec

from deathless.base.errors import OutcomeUnknown
from deathless.base.listings.texts import show_time
from deathless.base.shards import show_invocation
from deathless.cli.change.calls import show_result, with_client
from deathless.cli.options import (
    InvocationId,
    ListedGroup,
    json_option,
    service_options,
    shard_of_it,
    target,
    timeout_option,
)
from deathless.cli.output import json_of, print_json, print_table

TEXT_MAX: Final = 200  # characters of a value in a table
if TYPE_CHECKING:
    from deathless.shell.client.shard_client import Client
    from deathless.shell.operate.target import Target

_MOMENT: Final = re.compile(r"\b([0-9]{13,}) us\b")


class Invocation(msgspec.Struct):
    """One handler that waits; fields as `codec.peer_messages.InvocationView`."""

    invocation: int
    handler: str
    key: str
    since_us: int
    turns: int
    waits_for: tuple[str, ...]
    origin: str
    misfit: str = ""


class _Found(msgspec.Struct, rename="camel"):
    count: int
    invocations: list[Invocation]
    now_us: int


class Given(msgspec.Struct, omit_defaults=True):
    """One thing that it was given: a value, or an error."""

    operation: int
    what: str
    asked_us: int
    lsn: int
    at_us: int
    bytes: int
    value: object = None
    code: str = ""
    type: str = ""
    error: str = ""


class _Shown(msgspec.Struct, rename="camel"):
    invocation: Invocation
    now_us: int
    arguments: object = None
    given: list[Given] = []
    given_count: int = 0


class UnknownOutcome(msgspec.Struct, rename="camel"):
    """One activity that may have been done."""

    invocation: int
    operation: int
    handler: str
    key: str
    activity: str
    activity_key: str
    lsn: int
    at_us: int


class _Unknown(msgspec.Struct):
    unknown: list[UnknownOutcome]
    count: int


@click.group("invocations", cls=ListedGroup)
def invocations() -> None:
    """Inspect and control handlers that wait for another service, a timer, an activity or a promise.

    Without a subcommand they are listed.
    """


@invocations.command("list")
@click.option("--from", "first", default=0, metavar="ID", type=click.IntRange(min=0), help="Start at this ID.")
@service_options
@json_option
def list_(first: int, manifest: str, directory: str, as_json: bool) -> int:
    """List handlers that have started and not ended, the oldest first."""
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    answer = asyncio.run(ask_primary(found, "invocations", {"from": str(first)}))
    told = fitted(answer, _Found)
    if as_json:
        print_json({"count": told.count, "invocations": told.invocations, **shard_of_it(found)})
    elif not told.invocations:
        print("no handler waits")
    else:
        print_table(
            ("id", "handler", "key", "for", "turns", "origin", "waits for"),
            [
                (
                    _shown(found, one.invocation), one.handler, one.key, _age(one, told.now_us), one.turns, one.origin,
                    f"held, {one.misfit}" if one.misfit else "; ".join(map(_readable, one.waits_for)) or "its turn",
                )
                for one in told.invocations
            ],
        )  # fmt: skip
        if told.count > len(told.invocations):
            print(f"\n{told.count} in all; the next: --from {told.invocations[-1].invocation + 1}")
    return 0


def _readable(waits_for: str) -> str:
    """Give moments of logical time as people read them; replicas tell them in microseconds, the same everywhere."""
    return _MOMENT.sub(lambda found: show_time(int(found[1])), waits_for)


def _age(one: Invocation, now_us: int) -> str:
    return f"{max(now_us - one.since_us, 0) / 1e6:.1f} s"


@invocations.command("show")
@click.argument("invocation", metavar="ID", type=InvocationId())
@service_options
@json_option
def show(invocation: int, manifest: str, directory: str, as_json: bool) -> int:
    """Show the handler with this invocation ID (the LSN of the message that started it), and its history.

    The history is the results it was given, in order; what it waits for now is shown above it.
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    answer = asyncio.run(ask_primary(found, "invocation", {"invocation": str(invocation)}))
    told = fitted(answer, _Shown)
    one = told.invocation
    if as_json:
        history = {"arguments": told.arguments, "given": told.given, "givenCount": told.given_count}
        print_json({**msgspec.to_builtins(one), **history, **shard_of_it(found)})
        return 0
    waits_for = "\n          ".join(map(_readable, one.waits_for)) or "its turn"
    for name, value in (
        ("id", _shown(found, one.invocation)), ("handler", one.handler), ("key", one.key),
        ("began", show_time(one.since_us)), ("turns", one.turns), ("origin", one.origin), ("waits for", waits_for),
        ("held", one.misfit),
    ):  # fmt: skip
        if name != "held" or value:
            print(f"{name:<9} {value}")
    print(f"{'arguments':<9} {_json(told.arguments)}")
    if told.given:
        print()
        print_table(
            ("lsn", "at", "operation", "what", "after", "given"),
            [
                (
                    each.lsn, show_time(each.at_us), each.operation or "-", _readable(each.what),
                    f"{max(each.at_us - each.asked_us, 0) / 1e6:.1f} s" if each.asked_us else "-", _outcome(each),
                )
                for each in told.given
            ],
        )  # fmt: skip
    if told.given_count > len(told.given):
        print(f"\nthe last {len(told.given)} of {told.given_count}")
    return 0


def _outcome(given: Given) -> str:
    """Say what it was given, in one line."""
    if given.code or given.error:
        return f"{given.code} {given.type}: {given.error}".strip()
    return _json(given.value) if given.value is not None or given.bytes <= 1 else f"{given.bytes} bytes"


def _json(value: object) -> str:
    text = json_of(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."


def _shown(found: Target, invocation: int) -> str | int:
    """Give an id as it is named again: `1-512` of shard 1 where there are several."""
    config = found.config
    return invocation if config.shards == 1 else show_invocation(invocation, config.shard, config.shards)


def _order(command: str, invocation: int, manifest: str, directory: str, **more: str) -> Target:
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary

    asyncio.run(ask_primary(found, "order", {"command": command, "invocation": str(invocation), **more}))
    return found


@invocations.command("wait")
@click.argument("invocation", metavar="ID", type=InvocationId())
@timeout_option(10.0)
@service_options
@json_option
def wait(invocation: int, timeout: float, manifest: str, directory: str, as_json: bool) -> int:
    """Wait until the handler with this invocation ID has ended, and print its result.

    If it has ended, its stored result is printed at once. Waiting does not affect the handler: it continues after the
    timeout, and you may wait again.

    \b
    deathless invocations wait 512 --timeout 60
    """
    found = target(manifest, directory)

    async def work(client: Client) -> object:
        try:
            return await client.result(invocation, timeout=timeout)
        except OutcomeUnknown as error:
            remedy = "it goes on; the same command waits again, and `deathless invocations show` says what for"
            raise OutcomeUnknown(error.message, remedy=remedy) from None

    result = asyncio.run(with_client(found, work))
    show_result(result, as_json=as_json, invocation=invocation, **shard_of_it(found))
    return 0


@invocations.command("cancel")
@click.argument("invocation", metavar="ID", type=InvocationId())
@service_options
@json_option
def cancel(invocation: int, manifest: str, directory: str, as_json: bool) -> int:
    """Cancel what a handler waits for: it gets Cancelled at its await, may clean up, and then ends."""
    found = _order("cancel", invocation, manifest, directory)
    return _done(found, "cancelled", invocation, as_json=as_json)


@invocations.command("kill")
@click.argument("invocation", metavar="ID", type=InvocationId())
@service_options
@json_option
def kill(invocation: int, manifest: str, directory: str, as_json: bool) -> int:
    """End a handler at once, with a recorded error. The effects of its turns remain."""
    found = _order("kill", invocation, manifest, directory)
    return _done(found, "killed", invocation, as_json=as_json)


@invocations.command("resume")
@click.argument("invocation", metavar="ID", type=InvocationId())
@click.option("--operation", default=0, metavar="N", help="Which of its operations; 0: the one it waits for.")
@click.option("--value", default="null", metavar="JSON", help="The promise's value.", show_default=True)
@service_options
@json_option
def resume(invocation: int, operation: int, value: str, manifest: str, directory: str, as_json: bool) -> int:
    """Complete the promise that a handler waits for.

    \b
    deathless invocations resume 512 --value '{"approved": true}'
    """
    found = _order("resume", invocation, manifest, directory, operation=str(operation), value=value)
    return _done(found, "resumed", invocation, as_json=as_json)


@invocations.command("retry-parked")
@click.argument("lsn", metavar="LSN", type=InvocationId())
@service_options
@json_option
def retry_parked(lsn: int, manifest: str, directory: str, as_json: bool) -> int:
    """Run a message that was parked at LSN (see `deathless parked`) again, after its handler was fixed.

    It becomes a new invocation, whose ID is printed; its result is stored under that ID. This works only once: a
    message that was run again leaves the list, and one whose idempotency key was used again since is refused. The
    sender of the message has got the error Parked and gets no other answer: do this only if nobody will send it
    again under another key.

    \b
    deathless invocations retry-parked 512
    deathless invocations retry-parked 1-512
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.codec.peer_messages import RETRY
    from deathless.shell.net.admin_call import fitted

    told = asyncio.run(ask_primary(found, "order", {"command": RETRY, "invocation": str(lsn)}))
    again = fitted(told.get("invocation"), int)
    if as_json:
        print_json({"parked": lsn, "invocation": again, "done": "retried", **shard_of_it(found)})
    else:
        print(f"what was parked at lsn {lsn} is invocation {_shown(found, again)}")
    return 0


@invocations.command("unknown")
@service_options
@json_option
def unknown(manifest: str, directory: str, as_json: bool) -> int:
    """List activities whose outcome is unknown, the oldest first.

    An at-most-once activity may have started before its primary was deposed, or before its own process died or was
    ended by a time limit. Or the activity itself raised OutcomeUnknown. Look for the activity's key in the outside
    system; then do it again or undo it, and settle it with `deathless invocations settle ID OPERATION`.
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    told = fitted(asyncio.run(ask_primary(found, "unknown")), _Unknown)
    if as_json:
        print_json({"unknown": told.unknown, "count": told.count, **shard_of_it(found)})
    elif not told.unknown:
        print("no outcome is unknown")
    else:
        print_table(
            ("id", "operation", "handler", "key", "activity", "activity key", "lsn", "at"),
            [
                (
                    _shown(found, one.invocation), one.operation, one.handler, one.key, one.activity,
                    one.activity_key, one.lsn, show_time(one.at_us),
                )
                for one in told.unknown
            ],
        )  # fmt: skip
        if told.count > len(told.unknown):
            print(f"\nthe last {len(told.unknown)} of {told.count}")
    return 0


@invocations.command("settle")
@click.argument("invocation", metavar="ID", type=InvocationId())
@click.argument("operation", metavar="OPERATION", type=click.IntRange(min=1))
@service_options
@json_option
def settle(invocation: int, operation: int, manifest: str, directory: str, as_json: bool) -> int:
    """Remove an activity from the list of unknown outcomes once it has been checked. Nothing else changes.

    \b
    deathless invocations settle 512 1
    """
    found = _order("settle", invocation, manifest, directory, operation=str(operation))
    if as_json:
        print_json({"invocation": invocation, "operation": operation, "done": "settled", **shard_of_it(found)})
    else:
        print(f"operation {operation} of invocation {_shown(found, invocation)} is settled")
    return 0


def _done(found: Target, what: str, invocation: int, *, as_json: bool) -> int:
    if as_json:
        print_json({"invocation": invocation, "done": what, **shard_of_it(found)})
    else:
        print(f"invocation {_shown(found, invocation)} is {what}")
    return 0
