"""`deathless resume-outside`: a service made of a copy may reach peers, drivers and activities from now on."""

from __future__ import annotations

import asyncio

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.confirming import confirmed
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json


@click.command("resume-outside")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@service_options
@json_option
def resume_outside(yes: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Release the messages and activities that a copied or restored service holds back.

    `deathless adopt --as-new` holds them back because the original sends the same, and `--restored` because
    messages from after the backup have already been sent. First look at what waits: `deathless peers`, `deathless
    invocations`.
    """
    from deathless.shell.directory.adopted import let_outside_go
    from deathless.shell.net.admin_call import ask
    from deathless.shell.operate.status import look

    async def tell() -> bool:
        view = await look(found.directory, found.access)
        primary = view.of(view.primary)
        if primary is None or primary.state != "running" or not primary.client:
            return False
        await ask(primary.client, "resume-outside", found.access)
        return True

    found = target(manifest, directory)
    if not (yes or confirmed("What waits in it leaves for good. Go on?", "letting go", as_json=as_json)):
        raise InvalidArgument("nothing was let go", remedy="add --yes")
    was_held = let_outside_go(str(found.directory))
    told = asyncio.run(tell())  # also where it was not held: an earlier try may have reached nobody
    if as_json:
        print_json({"held": was_held, "told": told})
    elif told:
        print("let go" if was_held else "nothing was held")
    else:
        print("let go; the next primary begins")
    return 0
