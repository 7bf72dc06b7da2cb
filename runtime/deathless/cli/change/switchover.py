"""`deathless switchover`: hand the primary's role to another replica, without a failed call."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import click

from deathless.base.errors import InvalidArgument, NotPrimary, PeerUnreachable
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json

if TYPE_CHECKING:
    from deathless.shell.operate.status import ServiceView
    from deathless.shell.operate.target import Target

POLL_S = 0.02
SWITCH_S: Final = 30.0  # how long a switchover may take, without the primary's wait for activities


@click.command()
@click.option(
    "--to",
    "to",
    default="",
    metavar="REPLICA",
    help="The replica to become primary; default: the one furthest ahead.",
)
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(min=0.05),
    metavar="SECONDS",
    help=f"How long to wait.  [default: {SWITCH_S:g} plus limits.handoverWaitS]",
)
@service_options
@json_option
def switchover(to: str, timeout: float | None, manifest: str, directory: str, as_json: bool) -> int:
    """Hand over the primary's role to another replica, for maintenance. No call fails because of it.

    The primary first waits up to limits.handoverWaitS for at-most-once activities to end; it serves meanwhile.

    \b
    deathless switchover
    deathless switchover --to r2
    """
    found = target(manifest, directory)
    before, after, seconds = asyncio.run(switch(found, to, switch_s(found) if timeout is None else timeout))
    if as_json:
        print_json({"from": before.primary, "to": after.primary, "epoch": after.epoch, "seconds": round(seconds, 4)})
    else:
        print(f"{after.primary} is primary, epoch {after.epoch}; was {before.primary}; {seconds * 1000:.0f} ms")
    return 0


def switch_s(found: Target) -> float:
    """Give how long a switchover of a service may take, with the wait that its settings allow the primary."""
    return SWITCH_S + found.config.make_limits().handover_wait_s


async def switch(found: Target, to: str, wait_s: float) -> tuple[ServiceView, ServiceView, float]:
    """Order a switchover and wait until the new primary serves; gives the views before and after, and seconds.

    Raises: NotPrimary, PeerUnreachable, InvalidArgument; what the primary refuses with.
    """
    from deathless.shell.net.admin_call import ask
    from deathless.shell.operate.down import why_down
    from deathless.shell.operate.status import look

    before = await look(found.directory, found.access)
    primary = before.of(before.primary)
    if primary is None or not primary.client:
        if (down := await why_down(found)) is not None:
            raise down
        raise NotPrimary(f"{before.service} has no primary to hand its role over", remedy="see `deathless status`")
    if to and (to == primary.replica or before.of(to) is None):
        others = ", ".join(view.replica for view in before.replicas if view.replica != primary.replica)
        what = "is primary already" if to == primary.replica else "is no replica of this service"
        raise InvalidArgument(f"{to} {what}", remedy=f"name one of {others}")
    started = time.monotonic()
    await ask(primary.client, "switchover", found.access, {"target": to}, answer_s=wait_s)
    while time.monotonic() - started < wait_s:
        after = await look(found.directory, found.access)
        if after.serving and after.epoch > before.epoch:
            return before, after, time.monotonic() - started
        await asyncio.sleep(POLL_S)
    raise PeerUnreachable(
        f"{primary.replica} let go, but nobody serves after {wait_s:g} s", remedy="see `deathless status`"
    )
