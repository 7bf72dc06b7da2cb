"""`deathless openapi`: an OpenAPI document of a service's HTTP interface."""

from __future__ import annotations

import click

from deathless.cli.options import service_options
from deathless.cli.output import print_json, prints_aside


@click.command()
@click.argument("module", required=False)
@service_options
@click.option("--json", "_as_json", is_flag=True, help="Accepted for consistency: the output is always JSON.")
def openapi(module: str | None, manifest: str, directory: str, _as_json: bool) -> int:
    """Print an OpenAPI 3.1 document of a service: its handlers and queries with arguments, results and errors.

    MODULE is package.module:attribute or path/to/file.py:attribute; default: the one that the manifest names.
    A running ingress returns the same document at /SERVICE/-/openapi.json.

    \b
    deathless openapi -f service.yaml > shop.json
    deathless openapi shop.py:shop
    """
    from deathless.cli.options import target
    from deathless.shell.ingress.openapi import document
    from deathless.shell.service_code.import_trial import load_tried

    config = None if module else target(manifest, directory).config
    with prints_aside():
        service = load_tried(module or "") if config is None else load_tried(config.module, name=config.service)
    print_json(document(service))
    return 0
