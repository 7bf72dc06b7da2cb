"""Options that many commands share: which service, JSON, how long to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from deathless.shell.target import Target

F = TypeVar("F", bound=Callable[..., object])


def service_options(function: F) -> F:
    """Add -f/--file and --dir; the command gets `manifest` and `directory`."""
    function = click.option(
        "--dir",
        "directory",
        default="",
        metavar="FOLDER",
        type=click.Path(),
        help="The folder the service runs in, instead of a manifest.",
    )(function)
    return click.option(
        "-f", "--file", "manifest", default="service.yaml", show_default=True, envvar="DEATHLESS_MANIFEST",
        metavar="MANIFEST", type=click.Path(), help="The service's manifest.",
    )(function)  # fmt: skip


def json_option(function: F) -> F:
    """Add --json; the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def timeout_option(default: float) -> Callable[[F], F]:
    """Add --timeout in seconds; the command gets `timeout`."""
    return click.option(
        "--timeout",
        default=default,
        show_default=True,
        type=click.FloatRange(min=0.05),
        metavar="SECONDS",
        help="How long to wait.",
    )


def target(manifest: str, directory: str) -> Target:
    """Find the service a command is about. Raises: as `find_target`."""
    from deathless.shell.target import find_target

    return find_target(manifest, directory)
