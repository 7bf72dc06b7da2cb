"""`deathless adopt`: an operator's explicit word that a service may go on although something changed under it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json

if TYPE_CHECKING:
    from deathless.shell.adoption import Plan


@click.command()
@click.option(
    "--code", is_flag=True, help="Accept that other code goes on where a checkpoint stands at the end of the log."
)
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Only say what differs.")
@service_options
@json_option
def adopt(code: bool, yes: bool, dry_run: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Accept what otherwise refuses to start: another lock store or fence, a store older than the log, other code.

    All replicas must be stopped. It lists what differs and what accepting it does, and asks. What was accepted is
    written to adopted.json beside the log.

    \b
    deathless adopt --dry-run
    deathless adopt                   the lock store was moved or restored, or the fence changed
    deathless adopt --code            the service's code changed; the old one took a checkpoint when it stopped
    """
    from deathless.shell.adoption import carry_out, look

    found = target(manifest, directory)
    plan = asyncio.run(look(found.config, code=code))
    done = bool(plan.differences) and not dry_run and (yes or _ask(plan, as_json=as_json))
    if done:
        asyncio.run(carry_out(plan))
    if as_json:
        print_json({"differences": plan.differences, "adopted": done})
    elif not plan.differences:
        print("nothing differs: there is nothing to adopt")
    elif done:
        print("adopted; `deathless up` goes on")
    elif yes or dry_run:
        _list(plan)
    return 0


def _list(plan: Plan) -> None:
    print(f"{plan.config.service} in {plan.config.directory}:")
    for each in plan.differences:
        print(f"  {each.what}\n    -> {each.effect}")


def _ask(plan: Plan, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise InvalidArgument(
            "adopting needs a word: there is nobody to ask", remedy="look with --dry-run, then add --yes"
        )
    _list(plan)
    return click.confirm("Go on with that?", default=False)
