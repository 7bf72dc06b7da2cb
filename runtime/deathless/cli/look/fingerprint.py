"""`deathless fingerprint`: what this installation's code would be known by in a service's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deathless.base.errors import DeathlessError
from deathless.base.shards import SHARDS_MAX
from deathless.cli.options import json_option
from deathless.cli.output import print_json, prints_aside

if TYPE_CHECKING:
    from deathless.shell.service_code.fingerprint_report import CodeCheck


@click.command()
@click.argument("module", required=False)
@click.option(
    "--config",
    "path",
    default="/etc/deathless/replica.json",
    show_default=True,
    metavar="FILE",
    type=click.Path(),
    help="The replica's config, which gives the limits, and the module if no MODULE is given.",
)
@click.option(
    "--termination-file",
    default="",
    metavar="FILE",
    type=click.Path(),
    help="Also write the answer, or the error, to this file.",
)
@click.option("--limits", default="", metavar="JSON", help="Limits instead of those in the config.")
@click.option(
    "--dir",
    "directory",
    default="",
    metavar="FOLDER",
    type=click.Path(),
    help="The service's folder, or that of one of its shards: also tell whether this code is kept there.",
)
@click.option("--parts", is_flag=True, help="Also print what the fingerprint is made of, a line for each part.")
@click.option("--shards", type=click.IntRange(1, SHARDS_MAX), help="Number of shards instead of that in the config.")
@click.option(
    "--peers",
    default="",
    metavar="JSON",
    help='Shards of other services, as {"stock": 4}, instead of those in the config.',
)
@json_option
def fingerprint(
    module: str | None,
    path: str,
    termination_file: str,
    limits: str,
    directory: str,
    shards: int | None,
    peers: str,
    *,
    parts: bool,
    as_json: bool,
) -> int:
    """Print the fingerprint of a service's code, which the cuts and checkpoints of its log contain.

    MODULE is package.module:attribute or path/to/file.py:attribute. Code with the same
    fingerprint as the code that wrote a log may continue that log. Comments, docstrings and
    formatting are no part of it.

    \b
    deathless fingerprint bank.service:bank
    deathless fingerprint bank.service:bank --parts --dir .deathless/bank
    deathless fingerprint --json
    """
    from deathless.shell.service_code.fingerprint_report import check_code
    from deathless.shell.supervisor.termination_message import leave_word

    try:
        with prints_aside():
            found = check_code(module, path, limits, shards=shards, peers=peers, directory=directory)
    except DeathlessError as error:
        leave_word(termination_file, str(error))
        raise
    leave_word(termination_file, found.message)
    _show(found, parts=parts, as_json=as_json)
    return 0


def _show(found: CodeCheck, *, parts: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "service": found.service,
                "module": found.module,
                "fingerprint": found.fingerprint,
                "spellings": list(found.spellings),
                "parts": dict(found.parts),
                "kept": found.kept,
            }
        )
        return
    print(found.fingerprint)
    for name, value in found.parts.items() if parts else ():
        print(f"{name}: {value}")
    if parts and found.kept is not None:
        print("kept with the log" if found.kept else "not kept with the log")
