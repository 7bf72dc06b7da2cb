"""`deathless init`: a new project that runs, with a test."""

from __future__ import annotations

from pathlib import Path

import click

from deathless.cli.options import json_option
from deathless.cli.output import print_json


@click.command()
@click.argument("name")
@click.option(
    "--folder",
    default="",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Where to write it; default: a folder called NAME.",
)
@json_option
def init(name: str, folder: str, as_json: bool) -> int:
    """Write a project for a service called NAME: its code, its manifest, and a test that kills it.

    \b
    deathless init bank
    cd bank && pytest
    deathless up
    """
    from deathless.cli.run.new_project import write_project

    target = Path(folder or name)
    written = write_project(name, target)
    if as_json:
        print_json({"service": name, "folder": str(target), "files": written})
        return 0
    print(f"wrote {target}: {', '.join(written)}")
    print(f"\n  cd {target}\n  pytest                                          its tests, in one process")
    print("  deathless up                                    three replicas, a live view")
    print("  deathless call add --key main --arg amount=5    in a second terminal")
    return 0
