"""`deathless parked`: messages that were set aside because they kill their handler's process (I11)."""

from __future__ import annotations

import asyncio

import click
import msgspec

from deathless.cli.options import json_option, service_options, shard_of_it, target
from deathless.cli.output import print_json, print_table


class ParkedMessage(msgspec.Struct):
    """One message set aside."""

    lsn: int
    session: int
    seq: int
    bytes: int = 0
    handler: str = ""
    key: str = ""


class _Parked(msgspec.Struct):
    parked: list[ParkedMessage]
    count: int = 0  # more than are listed: the last ones are


@click.command()
@service_options
@json_option
def parked(manifest: str, directory: str, as_json: bool) -> int:
    """List parked messages: each killed its handler's process too often and was logged without being run.

    Their callers got the error DL3015. Fix the handler, then let the caller send the message again, or run it with
    `deathless invocations retry-parked LSN`.
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    told = fitted(asyncio.run(ask_primary(found, "parked")), _Parked)
    messages = told.parked
    if as_json:
        print_json({"parked": messages, "count": max(told.count, len(messages)), **shard_of_it(found)})
    elif not messages:
        print("nothing is parked")
    else:
        print_table(
            ("lsn", "session", "seq", "handler", "key", "bytes"),
            [(m.lsn, m.session, m.seq, m.handler, m.key, m.bytes) for m in messages],
        )
        if told.count > len(messages):
            print(f"the last {len(messages)} of {told.count}")
    return 0
