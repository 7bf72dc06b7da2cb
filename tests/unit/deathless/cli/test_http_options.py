"""Options of commands that ask over HTTP."""

from __future__ import annotations

import click
from click.testing import CliRunner

from deathless.cli.http_options import Site, http_options


@click.command()
@http_options
@click.option("--other", default="x")
def command(site: Site, other: str) -> None:
    """Say what it got."""
    click.echo(f"{site.urls} {site.settings} {other}")


def test_a_command_gets_whom_to_ask_and_what_to_show() -> None:
    got = CliRunner().invoke(command, ["--url", "http://a", "--url", "http://b", "--token-file", "t", "--ca-file", "c"])
    assert got.output.startswith("('http://a', 'http://b') {'token_file': 't', 'ca_file': 'c', 'certificate_file': '',")
    assert CliRunner().invoke(command, []).output.endswith("'key_file': ''} x\n")


def test_what_is_shown_is_shown_to_somebody() -> None:
    assert CliRunner().invoke(command, ["--key-file", "k"]).exit_code == 2
