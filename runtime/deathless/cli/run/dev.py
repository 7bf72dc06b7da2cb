"""`deathless dev`: run a service while its code is written; each save becomes the code that runs.

The set is that of `deathless up`, the change an upgrade as `deathless upgrade` makes it, with its checks and refusals.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from deathless.base.errors import UpgradeRequired
from deathless.cli.options import json_option
from deathless.cli.output import is_terminal
from deathless.cli.run.up import (
    Voice,
    check_drivers,
    check_volume,
    environment_of,
    run_set,
    view_options,
    wait_for_no_reader,
)

if TYPE_CHECKING:
    from deathless.shell.operate.manifest_file import LoadedManifest


@click.command()
@click.argument("manifest", default="service.yaml", envvar="DEATHLESS_MANIFEST", type=click.Path())
@view_options
@json_option
def dev(manifest: str, level: str, plain: bool, as_json: bool) -> int:
    """Run a service from its MANIFEST as `up` does, and upgrade it to what its files hold whenever one is saved.

    State, timers and handlers that wait go on in the new code, as they will where the service matters. What does not
    fit is refused and told here, and the code of before serves on; save again, and that is tried. A file that can't be
    loaded changes nothing. Comments are no code.

    \b
    deathless init bank && cd bank
    deathless dev
    """
    from deathless.shell.operate.manifest_file import read_manifest

    loaded = read_manifest(manifest)
    check_drivers(loaded)
    wait_for_no_reader(as_json=as_json)
    voice = Voice(level, live=is_terminal() and not (plain or as_json), as_json=as_json)
    for note in loaded.notes:
        voice.say("note", note)
    check_volume(loaded, voice)
    return asyncio.run(_run(loaded, voice))


async def _run(loaded: LoadedManifest, voice: Voice) -> int:
    from deathless.shell.operate.upgrading.reload import Reload

    one_of_each = {config.directory: config for config in loaded.replica_configs()}

    async def reload() -> None:
        await Reload(list(one_of_each.values()), environment_of(loaded), lambda text: voice.say("reload", text)).run()

    try:
        return await run_set(loaded, voice, None, beside=reload)
    except UpgradeRequired:
        voice.say("note", "the log is of other code than the files: it begins with that, and is upgraded")
    return await run_set(loaded, voice, None, kept_code=True, beside=reload)
