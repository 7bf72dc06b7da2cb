"""`deathless erase`: take what a lock store knows of a service that is gone, and with it the name, out of the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from deathless.base.errors import DeathlessError, InvalidArgument
from deathless.cli.confirming import confirmed
from deathless.cli.options import json_option, named_shard, service_options, target
from deathless.cli.output import print_json

if TYPE_CHECKING:
    from deathless.shell.lock_stores.erasing import EraseOrder, Found


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show which keys exist.")
@click.option("--service-id", default="", metavar="HEX", help="Only erase the keys of the service with this ID.")
@click.option(
    "--wait",
    "wait_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="How long to wait for a holder to release the lock, and for the store to answer.",
)
@click.option(
    "--order", default="", metavar="JSON", help="Whose keys to erase, as passed by the operator; no manifest is read."
)
@click.option(
    "--termination-file", default="", metavar="FILE", type=click.Path(), help="Also write an error to this file."
)
@service_options
@json_option
def erase(
    yes: bool,
    dry_run: bool,
    service_id: str,
    wait_s: float,
    order: str,
    termination_file: str,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Erase the keys of a deleted service from its etcd.

    All replicas must be stopped: while one holds the lock, or if one takes it meanwhile, nothing is erased. The
    log is not changed; without these keys it can be started only after `deathless adopt`.

    \b
    deathless erase --dry-run
    deathless erase --yes
    """
    from deathless.shell.supervisor.termination_message import leave_word

    try:
        found = _run(_order(order, manifest, directory, service_id), wait_s, ask=not yes, dry_run=dry_run, json=as_json)
    except DeathlessError as error:
        leave_word(termination_file, str(error))
        raise
    done, stood = found
    if as_json:
        print_json({"erased": done, "keys": stood.keys, "serviceId": stood.service_id, "epoch": stood.epoch})
    elif not stood.keys:
        print("nothing is there: nothing to erase")
    elif done:
        print(f"erased {len(stood.keys)} keys of service {stood.service_id or '(never begun)'}")
    elif dry_run:
        _show(stood)
    return 0


def _order(text: str, manifest: str, directory: str, service_id: str) -> EraseOrder:
    from deathless.base.lock_stores import lock_store
    from deathless.base.lock_stores.etcd import EtcdConfig
    from deathless.shell.lock_stores.erasing import EraseOrder, read_order

    if text:
        return read_order(text)
    if named_shard() is not None:
        raise InvalidArgument("a service is erased as a whole", remedy="omit --shard")
    config = target(manifest, directory, every=True).config
    if config.shards > 1 and service_id:
        raise InvalidArgument("--service-id belongs to one shard, and this service has several", remedy="omit it")
    if lock_store(config.lock).in_directory:
        raise InvalidArgument(
            f"the lock of {config.service!r} is its directory: no store knows anything of it",
            remedy=f"delete {config.directory}, which contains everything",
        )
    if config.lock != "etcd":
        raise InvalidArgument(
            f"lock {config.lock} is not erased by this command, which knows the keys of etcd alone",
            remedy="erase what it keeps of the service with its own tools",
        )
    etcd = config.lock_settings(EtcdConfig)
    return EraseOrder(service=config.service, etcd=etcd, service_id=service_id, shards=config.shards)


def _run(order: EraseOrder, wait_s: float, *, ask: bool, dry_run: bool, json: bool) -> tuple[bool, Found]:
    """Look, ask, erase; gives whether it was done and what is, or was, there."""
    from deathless.shell.lock_stores.erasing import erase as carry_out
    from deathless.shell.lock_stores.erasing import look

    if dry_run or ask:
        stands = asyncio.run(look(order))
        if dry_run or not stands.keys or not _ask(stands, json=json):
            return False, stands
    return True, asyncio.run(carry_out(order, wait_s=wait_s))


def _show(stands: Found) -> None:
    for key in stands.keys:
        print(key)
    holder = f", held by {stands.holder}" if stands.holder else ""
    print(f"  service {stands.service_id or '(never begun)'}, epoch {stands.epoch}{holder}")


def _ask(stands: Found, *, json: bool) -> bool:
    return confirmed(
        "Erase these keys?", "erasing", as_json=json, show=lambda: _show(stands),
        remedy="check with --dry-run, then add --yes",
    )  # fmt: skip
