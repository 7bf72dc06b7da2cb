"""`deathless ambrosia skip`: a message by which a program ends, each time, is never given to it again.

Does not: decide what a skip does (`foreign.skips`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Final

import click

from deathless.base.listings.texts import show_time
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deathless.foreign.replay import ReplayOrder
    from deathless.foreign.skips import Skip
    from deathless.shell.link.application_status import ApplicationStatus

LOOK_S: Final = 3.0  # between two looks: a program that ends by the message does not live so long behind it
ALIVE: Final = frozenset({"following", "leading", "snapshot", "leading_snapshot"})


@click.command()
@click.argument("position", type=click.IntRange(min=1), required=False)
@click.option(
    "--item", type=click.IntRange(min=0), metavar="K", help="One message of the row, counted from 0 on; default: all."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@service_options
@json_option
def skip(position: int | None, item: int | None, yes: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Have a service's program never get the messages of the row at POSITION, since it ends by them each time.

    Each process of the program leaves them out from its next start on, a replay as well. A caller that waits for one
    gets an error. First the program is run over all rows before that one, in a process of its own from its newest
    checkpoint, and over that row too: it has to go on behind the former, and to end by the latter. It is refused as
    well where a process that lives is past the row. Without POSITION: list what is skipped.

    \b
    deathless ambrosia replay --to 41        ends well
    deathless ambrosia replay --to 42        ends the program: it is row 42
    deathless ambrosia skip 42
    """
    from pathlib import Path

    from deathless.base.errors import InvalidArgument
    from deathless.foreign.checkpoints import Checkpoints
    from deathless.foreign.replay import ReplayOrder, feed_of, find
    from deathless.foreign.rows import decode_given
    from deathless.foreign.settings import settings_of
    from deathless.foreign.skips import Skips, skip_of
    from deathless.shell.disk.filesystem import RealFileSystem
    from deathless.shell.foreign.check.comparing import show

    config = target(manifest, directory, silent=True).config
    binding = config.binding
    if binding is None:
        raise InvalidArgument(
            f"the code of service {config.service} is no program", remedy="see `deathless parked` for its own messages"
        )
    files = RealFileSystem(Path(config.directory))
    skips = Skips(files)
    if position is None:
        _list(list(skips.read().values()), as_json)
        return 0
    newest = find(Checkpoints(files, ""))
    if newest.head.position >= position:
        raise InvalidArgument(
            f"the program ran the row at position {position}: a checkpoint of it stands at {newest.head.position}",
            remedy="what it got before a checkpoint can't be taken back",
        )
    rows = dict(feed_of(config.directory, newest).read(position))
    if position not in rows:
        raise InvalidArgument(f"there is no row at position {position}", remedy="see `deathless ambrosia status`")
    settings = settings_of(binding, config.make_limits(), config.replica, purpose="replay")
    order = ReplayOrder(directory=config.directory, settings=settings, start=newest.head.position)
    found = skip_of(position, rows[position], item)
    _nobody_is_past(config.directory, position)
    _ends_by(order, position)
    if not as_json:
        for at, each in enumerate(decode_given(rows[position].items)):
            print(f"{at}: {show(each)}" + ("" if found.items and at not in found.items else "   will be skipped"))
    if not yes and not click.confirm("Skip?", default=False):
        return 1
    skips.add(found)
    if as_json:
        print_json(found)
    else:
        print(f"the program leaves it out from its next start on; callers that get an error: {len(found.waiting)}")
    return 0


def _list(found: Sequence[Skip], as_json: bool) -> None:
    if as_json:
        print_json({"skips": found})
    elif not found:
        print("nothing is skipped")
    else:
        print_table(
            ("position", "items", "callers answered", "decided"),
            [
                (each.position, ", ".join(map(str, each.items)) or "all", len(each.waiting), show_time(each.at_us))
                for each in found
            ],
        )


def _nobody_is_past(directory: str, position: int) -> None:
    """Look twice whether a process lives that has got the row. Raises: InvalidArgument."""
    from deathless.base.errors import InvalidArgument

    first = _past(directory, position)
    if not first:
        return
    time.sleep(LOOK_S)
    for replica, pid in _past(directory, position).items():
        if first.get(replica) == pid:
            raise InvalidArgument(
                f"the program of {replica} (process {pid}) got the row at position {position}, and lives",
                remedy="a program that does not end by a message has run it, and its state holds it",
            )


def _ends_by(order: ReplayOrder, position: int) -> None:
    """Run the program up to a row, and with it. Raises: InvalidArgument: it does not end by that row, or before it."""
    from deathless.base.errors import DeathlessError, InvalidArgument
    from deathless.cli.output import progress
    from deathless.foreign import replay

    def run(end: int) -> None:
        asyncio.run(replay.replay(dataclasses.replace(order, end=end), progress()))

    try:
        run(position - 1)
    except DeathlessError as error:
        raise InvalidArgument(
            f"the program does not get as far as the row at position {position}: {error}",
            remedy="find the first row that it ends by, with `deathless ambrosia replay --to POSITION`",
        ) from error
    try:
        run(position)
    except DeathlessError:
        return
    raise InvalidArgument(
        f"the program runs the row at position {position}, and goes on",
        remedy="find the first row that it ends by, with `deathless ambrosia replay --to POSITION`",
    )


def _past(directory: str, position: int) -> dict[str, int]:
    """Give the processes that are at a position or behind it, by replica."""
    from deathless.shell.link.application_status import read_statuses

    def is_past(status: ApplicationStatus) -> bool:
        return status.state in ALIVE and status.position >= position

    return {each.replica: each.pid for each in read_statuses(directory) if is_past(each)}
