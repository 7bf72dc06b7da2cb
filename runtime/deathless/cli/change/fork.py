"""`deathless fork`: services that talk to each other, forked at one cut, as services of their own in another folder."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.options import json_option, target
from deathless.cli.output import count, print_json, progress

if TYPE_CHECKING:
    from deathless.shell.operate.forking.fork import ForkPlan, Source

_PLACE: Final = re.compile(r"([a-z][-a-z0-9]*):(0|[1-9][0-9]{0,18})")


@click.command()
@click.option(
    "-f",
    "--file",
    "manifests",
    multiple=True,
    required=True,
    metavar="MANIFEST",
    type=click.Path(),
    help="The manifest of a service that is forked; give it once for each service.",
)
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder that is made for the forked services.",
)
@click.option(
    "--at",
    "places",
    multiple=True,
    metavar="SERVICE:LSN",
    help="Cut this service at or before a message; default: the end of its log. Give it once for each service.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="SERVICE:FOLDER",
    help="Read this service's log in the folder of an imported one (`deathless log import`).",
)
@click.option("--dry-run", is_flag=True, help="Only show where the services would be cut.")
@json_option
def fork(
    manifests: tuple[str, ...],
    folder: Path,
    places: tuple[str, ...],
    logs: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Fork services that talk to each other, as services of their own with the state of one consistent cut.

    The originals may run, and are only read. No message between the forked services is lost or received twice. What
    goes to others, and activities, is held until `deathless resume-outside`.

    \b
    deathless fork -f shop.yaml -f stock.yaml --to sandbox --dry-run
    deathless fork -f shop.yaml -f stock.yaml --to sandbox
    deathless fork -f shop.yaml -f stock.yaml --to sandbox --log stock:imported-stock
    deathless up --detach sandbox/shop.yaml
    """
    from deathless.shell.operate.forking.fork import carry_out, check_folder, plan_fork

    check_folder(folder)
    tell = progress()
    plan = asyncio.run(plan_fork(_sources(manifests, logs), _through(places), tell))
    if not dry_run:
        asyncio.run(carry_out(plan, folder, tell))
    if as_json:
        print_json(_told(plan, folder, forked=not dry_run))
        return 0
    for each in plan.services:
        print(f"{each.original.name}: cut at lsn {each.place.lsn}")
    for (sender, receiver), waiting in plan.between().items():
        if waiting:
            print(f"{sender} sends {count(waiting, 'message')} to {receiver} again, which it had not received")
    if not dry_run:
        print(f"start each: deathless up --detach {folder}/{plan.services[0].original.name}.yaml")
    return 0


def _sources(manifests: tuple[str, ...], logs: tuple[str, ...]) -> list[Source]:
    from deathless.shell.operate.forking.fork import Source

    elsewhere = dict(_named(each) for each in logs)
    found = []
    for manifest in manifests:
        named = target(manifest, "", every=True)
        if named.loaded is None:
            raise InvalidArgument(f"{manifest} is no manifest", remedy="a service in a cluster is not forked")
        config, folder = named.config, elsewhere.pop(named.config.service, "")
        if folder:
            config = target("", folder, every=True).config
            if config.service != named.config.service:
                raise InvalidArgument(f"{folder} holds the log of {config.service}, not of {named.config.service}")
        found.append(Source(config, named.loaded))
    if elsewhere:
        raise InvalidArgument(
            f"--log names {next(iter(elsewhere))}, which is not forked", remedy="give its manifest: -f"
        )
    return found


def _named(log: str) -> tuple[str, str]:
    service, found, folder = log.partition(":")
    if not (service and found and folder):
        raise InvalidArgument(f"--log {log} names no log", remedy="write SERVICE:FOLDER, for instance shop:shop-log")
    return service, folder


def _through(places: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for place in places:
        match = _PLACE.fullmatch(place)
        if match is None:
            raise InvalidArgument(f"--at {place} names no place", remedy="write SERVICE:LSN, for instance shop:1200")
        found[match[1]] = int(match[2])
    return found


def _told(plan: ForkPlan, folder: Path, *, forked: bool) -> dict[str, object]:
    waiting = plan.between()
    return {
        "folder": str(folder),
        "forked": forked,
        "services": [
            {"service": each.original.name, "lsn": each.place.lsn, "chain": each.place.chain.hex()}
            for each in plan.services
        ],
        "messagesBetween": [
            {"from": sender, "to": receiver, "count": number} for (sender, receiver), number in waiting.items()
        ],
    }
