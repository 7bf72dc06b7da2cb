"""`deathless version`: what is installed, and which formats it reads and writes."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from deathless.cli.options import json_option
from deathless.cli.output import print_json

PACKAGES = (
    "deathless",
    "click",
    "h2",
    "httptools",
    "msgspec",
    "prometheus-client",
    "PyYAML",
    "rich",
    "aiohttp",
    "uvloop",
)


@click.command()
@json_option
def version(as_json: bool) -> int:
    """Print the versions of this program, its formats, the interpreter and the packages it uses."""
    from deathless.codec.frames import FORMAT_VERSION
    from deathless.codec.generations import NEWEST
    from deathless.codec.versions import spoken

    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    own = installed.pop("deathless", "not installed as a package")
    if as_json:
        print_json(
            {
                "deathless": own, "logFormat": FORMAT_VERSION, "formatLevel": int(NEWEST),
                "protocol": spoken().newest, "oldestProtocol": spoken().oldest,
                "python": platform.python_version(), "packages": installed,
            }
        )  # fmt: skip
        return 0
    print(f"deathless {own}; log format {FORMAT_VERSION}, format level {NEWEST}, protocol {spoken()}")
    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(", ".join(f"{name} {number}" for name, number in installed.items()))
    return 0
