"""Options of commands that ask a service's HTTP ports in the place of its files: `--url` and what is shown there.

Does not: ask. Imports click.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar

import click

R = TypeVar("R")


class Site(NamedTuple):
    """Whom to ask over HTTP, and what to show."""

    urls: tuple[str, ...]  # empty: nobody, files are read
    token_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """All but the URLs, by name."""
        return {name: value for name, value in self._asdict().items() if name != "urls"}


def http_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add --url and what goes with it; the command gets `site`, a Site."""

    @click.option(
        "--url",
        "urls",
        metavar="URL",
        multiple=True,
        help="Ask the HTTP port of a replica, not files; may be repeated for several replicas.",
    )
    @_file("--token-file", "Holds the token to show, with --url.")
    @_file("--ca-file", "Authorities that are trusted, with --url; else this machine's.")
    @_file("--certificate-file", "A client certificate to show, with --url.")
    @_file("--key-file", "Its key.")
    @wraps(function)
    def command(
        *args: object,
        urls: tuple[str, ...],
        token_file: str,
        ca_file: str,
        certificate_file: str,
        key_file: str,
        **named: object,
    ) -> R:
        site = Site(urls, token_file, ca_file, certificate_file, key_file)
        if not urls and any(site.settings.values()):
            raise click.UsageError("--token-file, --ca-file, --certificate-file and --key-file go with --url")
        return function(*args, site=site, **named)

    return command


def _file(name: str, text: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    return click.option(name, default="", metavar="FILE", type=click.Path(dir_okay=False), help=text)
