"""`deathless ambrosia upgrade`: another program in the place of the one that a stopped service ran.

Does not: decide what may go on (`foreign.upgrade`).
"""

from __future__ import annotations

import click

from deathless.cli.options import json_option, service_options, target, words_of
from deathless.cli.output import count, print_json, progress


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--former",
    default="",
    metavar="COMMAND",
    help="The program that ran last, quoted as for a shell; default: as the replicas were started last.",
)
@click.option("--dry-run", is_flag=True, help="Do all of it but the last step, which makes it count.")
@service_options
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def upgrade(former: str, dry_run: bool, manifest: str, directory: str, as_json: bool, command: tuple[str, ...]) -> int:
    """Put another program in the place of the one that a service ran; all its replicas must be stopped.

    The former program runs what is behind its newest checkpoint, and gives another one. The next program begins from
    that, is told to go over to its version (12), and gives a checkpoint of its own, from which the replicas go on. If
    that fails, nothing is changed, and the service goes on with the former program.

    COMMAND is the next program; default: as the manifest says. Write it into the manifest before `deathless up`.

    \b
    deathless down
    deathless ambrosia upgrade                               the manifest names another program already
    deathless ambrosia upgrade --former './counter-1 -v'     its file was replaced, and the former one stands elsewhere
    deathless up
    """
    import asyncio

    from deathless.base.errors import InvalidArgument
    from deathless.foreign.settings import settings_of
    from deathless.foreign.upgrade import UpgradeOrder
    from deathless.foreign.upgrade import upgrade as run

    config = target(manifest, directory, silent=True).config
    binding = config.binding
    ran = target("", config.directory, silent=True).config.binding
    if binding is None or ran is None:
        raise InvalidArgument(
            f"the code of service {config.service} is no program", remedy="see `deathless upgrade` for its own code"
        )
    limits = config.make_limits()
    order = UpgradeOrder(
        directory=config.directory,
        former=settings_of(ran, limits, config.replica, purpose="replay", command=words_of("--former", former)),
        next=settings_of(binding, limits, config.replica, purpose="upgrade", command=command),
        dry=dry_run,
    )
    report = asyncio.run(run(order, progress()))
    if as_json:
        print_json(report)
        return 0
    print(f"the former program ran {count(report.rows, 'row')}, up to position {report.position}")
    done = "goes on from there" if report.upgraded else "would go on from there; nothing was changed"
    print(f"the next one {done}: its checkpoint has {count(report.next_bytes, 'byte')}")
    return 0
