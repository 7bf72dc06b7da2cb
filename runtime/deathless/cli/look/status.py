"""`deathless status`: what each replica is now."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import console, is_terminal, print_json, print_json_line, print_table
from deathless.cli.views import (
    COLUMNS,
    DRIVER_COLUMNS,
    driver_rows,
    handing_over,
    live_drivers,
    live_table,
    programs,
    replica_row,
    summary,
    unreached,
)

if TYPE_CHECKING:
    from deathless.shell.operate.status import ServiceView
    from deathless.shell.operate.target import Target

EXIT_DOWN = 69


@click.command()
@service_options
@json_option
@click.option("-w", "--watch", is_flag=True, help="Keep watching until Ctrl-C.")
@click.option(
    "--interval",
    default=0.5,
    show_default=True,
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Refresh interval of --watch.",
)
def status(manifest: str, directory: str, as_json: bool, watch: bool, interval: float) -> int:
    """Show role, epoch, lsn and lag of each replica. The exit code is 69 while there is no primary, or its program does
    not serve.

    Below the replicas it shows what is wrong with programs, what a primary waits for before it hands over, and which
    other services and drivers the primary can't reach, since when and why. Of a pipeline it shows the drivers on this
    machine: who drives, under which number, and where Spark's pages are.

    \b
    deathless status
    deathless status --dir .deathless/bank --json
    deathless status --watch
    """
    from deathless.shell.operate.status import look_now

    found = target(manifest, directory, every=True)
    if watch:
        asyncio.run(_watch(found, interval, as_json=as_json))
        return 0
    view = look_now(found.parts, with_peers=True)
    if as_json:
        print_json(view)
    else:
        show(view)
    return 0 if view.serving and not view.without_program else EXIT_DOWN


def show(view: ServiceView) -> None:
    """Print a view for people."""
    print(summary(view))
    if view.replicas:
        print()
        print_table(COLUMNS, [replica_row(one) for one in view.replicas])
    if drivers := driver_rows(view):
        print()
        print_table(DRIVER_COLUMNS, drivers)
    for line in _below(view):
        print(line)


def _below(view: ServiceView) -> list[str]:
    """Give the lines below the tables."""
    return [*programs(view), *handing_over(view, time.time()), *unreached(view)]


async def _watch(found: Target, interval: float, *, as_json: bool) -> None:
    from deathless.shell.operate.status import look_at_all

    if as_json or not is_terminal():
        while True:
            view = await look_at_all(found.parts, with_peers=True)
            if as_json:
                print_json_line(view)
            else:
                show(view)
            await asyncio.sleep(interval)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            view = await look_at_all(found.parts, with_peers=True)
            below = [Text(line, style="bold yellow") for line in _below(view)]
            tables = [live_table(view), *live_drivers(view)]
            live.update(Group(Text(summary(view)), Text(), *tables, *below), refresh=True)
            await asyncio.sleep(interval)
