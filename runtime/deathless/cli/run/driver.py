"""`deathless driver check | run`: the processes that bring a service's effects to the world outside."""

from __future__ import annotations

import click

from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json, print_table


@click.group("driver")
def driver() -> None:
    """Check the drivers of a manifest, or run one. `deathless peers list` shows their state."""


@driver.command()
@service_options
@json_option
def check(manifest: str, directory: str, as_json: bool) -> int:
    """Check the options of each driver of the manifest, without connecting to anything."""
    from deathless.drivers.host import make_sink

    found = target(manifest, directory).config.drivers
    for each in found:
        make_sink(each)
    if as_json:
        print_json(
            {"drivers": [{"name": each.name, "kind": each.kind, "onRefusal": each.on_refusal} for each in found]}
        )
    elif not found:
        print("this service has no drivers")
    else:
        print_table(("driver", "kind", "on refusal"), [(each.name, each.kind, each.on_refusal) for each in found])
    return 0


@driver.command()
@click.argument("name")
@click.option("--config", "path", required=True, metavar="FILE", type=click.Path(), help="Config of the replica.")
@json_option
def run(name: str, path: str, as_json: bool) -> int:  # noqa: ARG001  errors alone are shown
    """Run one driver beside a replica, as its supervisor does; its log goes to standard error."""
    from deathless.drivers.host import main

    return main([path, name])
