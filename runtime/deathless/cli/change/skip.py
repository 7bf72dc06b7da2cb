"""`deathless ambrosia skip`: a message by which a program ends, each time, is never given to it again.

Does not: decide what may be skipped (`foreign.skipping`), or what a skip does (`foreign.skips`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deathless.base.listings.texts import show_time
from deathless.cli.confirming import confirmed
from deathless.cli.options import json_option, service_options, target, words_of
from deathless.cli.output import print_json, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deathless.foreign.skipping import Killer
    from deathless.foreign.skips import Skip


@click.command()
@click.argument("position", type=click.IntRange(min=1), required=False)
@click.option(
    "--item", type=click.IntRange(min=0), metavar="K", help="One message of the row, counted from 0 on; default: all."
)
@click.option(
    "--program",
    default="",
    metavar="COMMAND",
    help="The program, quoted as for a shell; default: the manifest's. One that others start has to be named.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@service_options
@json_option
def skip(
    position: int | None,
    item: int | None,
    program: str,
    yes: bool,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
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
    import asyncio
    from pathlib import Path

    from deathless.base.errors import InvalidArgument
    from deathless.foreign.settings import settings_of
    from deathless.foreign.skipping import SkipOrder, examine
    from deathless.foreign.skips import Skips
    from deathless.shell.disk.filesystem import RealFileSystem

    config = target(manifest, directory, silent=True).config
    binding = config.binding
    if binding is None:
        raise InvalidArgument(
            f"the code of service {config.service} is no program", remedy="see `deathless parked` for its own messages"
        )
    skips = Skips(RealFileSystem(Path(config.directory)))
    if position is None:
        _list(list(skips.read().values()), as_json)
        return 0
    command = words_of("--program", program)
    if not (command or binding.command):
        raise InvalidArgument("somebody else starts the program", remedy="name it: --program 'COMMAND'")
    settings = settings_of(binding, config.make_limits(), config.replica, purpose="replay", command=command)
    order = SkipOrder(directory=config.directory, settings=settings, position=position, item=item)
    killer = asyncio.run(examine(order, progress()))
    if not as_json:
        _show(killer)
    if not (yes or confirmed("Skip?", "skipping", as_json=as_json)):
        raise InvalidArgument("nothing was skipped", remedy="add --yes")
    skips.add(killer.skip)
    if as_json:
        print_json(killer.skip)
    else:
        waiting = len(killer.skip.waiting)
        print(f"the program leaves it out from its next start on; callers that get an error: {waiting}")
    return 0


def _show(killer: Killer) -> None:
    from deathless.shell.foreign.check.comparing import show

    skipped = killer.skip.items
    for at, each in enumerate(killer.items):
        print(f"{at}: {show(each)}" + ("" if skipped and at not in skipped else "   will be skipped"))


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
