"""`deathless peers list | adopt`: the services that this one sends to and hears from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.cli.confirming import confirmed
from deathless.cli.options import ListedGroup, json_option, service_options, shard_of_it, target
from deathless.cli.output import print_json, print_table

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target


class Peer(msgspec.Struct, rename="camel"):
    """One other service."""

    service: str
    shard: int
    connected: bool
    address: str
    sent: int
    lag: int
    received: int
    incarnation: int
    service_id: str
    problem: str
    driver: bool = False  # a replica of an earlier version does not say this and what follows
    idle: bool = False  # nothing is to be sent, so no connection is kept
    last_problem: str = ""  # also when it is over
    errors: int = 0  # attempts that failed since the primary leads
    held_back: str = ""  # why its forks are not taken in; empty: they are
    away_s: float | None = None  # without a connection for so long; None: it has one, is idle, or that is not known


class _Found(msgspec.Struct):
    peers: list[Peer]


@click.group("peers", cls=ListedGroup)
def peers() -> None:
    """Inspect the services that this one exchanges messages with, and adopt one that was created anew.

    Without a subcommand they are listed.
    """


@peers.command("list")
@service_options
@json_option
def list_(manifest: str, directory: str, as_json: bool) -> int:
    """List other services and drivers: whether they are connected, idle (nothing to send), or not and why.

    Also shows the messages sent to them, not confirmed by them (lag) and received from them, and why their forks
    are held back.
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    told = fitted(asyncio.run(ask_primary(found, "peers")), _Found).peers
    if as_json:
        print_json({"peers": told, **_own_shard(found)})
    elif not told:
        print("this service has sent to nobody and heard from nobody")
    else:
        print_table(
            ("service", "connected", "sent", "lag", "received", "held back", "problem"),
            [
                (
                    _named(p, told),
                    _standing(p),
                    p.sent,
                    p.lag,
                    p.received,
                    p.held_back or "-",
                    p.problem or "-",
                )
                for p in told
            ],
        )
    return 0


def _own_shard(found: Target) -> dict[str, int]:
    """Give what --json says of our shard, where there are several; a peer's `shard` is one of its own."""
    said = shard_of_it(found)
    return {"ownShard": said["shard"]} if said else {}


def _standing(peer: Peer) -> str:
    if peer.connected:
        return "yes"
    return "idle" if peer.idle else "no"


def _named(peer: Peer, told: list[Peer]) -> str:
    """Give a peer's name, with its shard where it has several, as far as they are known here."""
    several = peer.shard or any(other.service == peer.service and other.shard for other in told)
    return f"{peer.service}/{peer.shard}" if several else peer.service


@peers.command("adopt")
@click.argument("service")
@click.option("--service-id", default="", metavar="HEX", help="The new service's ID, if its folder can't be read.")
@click.option(
    "--incarnation", default=0, metavar="N", help="The new service's incarnation, if its folder can't be read."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@service_options
@json_option
def adopt(
    service: str, service_id: str, incarnation: int, yes: bool, manifest: str, directory: str, as_json: bool
) -> int:
    """Accept the SERVICE that was created anew under its old name as the peer from now on.

    Messages to the old service that it had not confirmed are dropped, and handlers that wait for it get the error
    PeerReplaced, since the new service has no record of the old one's calls. If it has several shards, adopt each of
    them: SERVICE/0, SERVICE/1.

    \b
    deathless peers adopt stock
    """
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary

    if bool(service_id) != bool(incarnation):
        raise InvalidArgument("--service-id and --incarnation go together")
    name, slash, shard = service.partition("/")
    if slash and not (shard.isascii() and shard.isdecimal()):
        raise InvalidArgument(f"{service!r} is not SERVICE or SERVICE/SHARD")
    if not service_id:
        service_id, incarnation = asyncio.run(_identity(found, name, int(shard or 0)))
    question = f"Drop what waits for the {service} of before, and go on with {service_id[:8]}/{incarnation}?"
    if not (yes or confirmed(question, "adopting", as_json=as_json)):
        raise InvalidArgument("nothing was adopted", remedy="add --yes")
    asked = {"service": name, "service_id": service_id, "incarnation": str(incarnation)}
    if slash:
        asked["shard"] = shard
    asyncio.run(ask_primary(found, "adopt-peer", asked))
    if as_json:
        print_json({"adopted": service, "serviceId": service_id, "incarnation": incarnation, **_own_shard(found)})
    else:
        print(f"{service} is adopted as {service_id[:8]}/{incarnation}")
    return 0


async def _identity(found: Target, service: str, shard: int) -> tuple[str, int]:
    """Read who a service is from its lock store. Raises: InvalidArgument when its folder is not known."""
    from deathless.shell.client.driver import DIRECTORY
    from deathless.shell.disk.filesystem import RealFileSystem
    from deathless.shell.lock_stores.opening import open_lock_to_look
    from deathless.shell.operate.target import find_target
    from deathless.shell.worker.peer_links import where_is

    folders = [address.removeprefix(DIRECTORY) for address in where_is(found.config, service, shard).addresses]
    folders = [folder for folder in folders if "/" in folder]
    if not folders:
        raise InvalidArgument(f"the folder of {service} is not known", remedy="give --service-id and --incarnation")
    config = find_target("", folders[0]).config
    async with open_lock_to_look(config, RealFileSystem(config.directory)) as lock:
        record = (await lock.view()).service
    if record is None:
        raise InvalidArgument(f"{folders[0]} holds no service")
    return record.service_id.hex(), record.incarnation
