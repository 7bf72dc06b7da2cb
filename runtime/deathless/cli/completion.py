"""`deathless completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

VARIABLE = "_DEATHLESS_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script for SHELL.

    \b
    deathless completion bash > ~/.local/share/bash-completion/completions/deathless
    deathless completion zsh  > "${fpath[1]}/_deathless"
    deathless completion fish > ~/.config/fish/completions/deathless.fish
    """
    from click.shell_completion import get_completion_class

    from deathless.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    print(script(kind(cli, {}, "deathless", VARIABLE)))
    return 0


def script(complete: ShellComplete) -> str:
    """Give the script. Unlike click's own `source` it does not start the shell to ask its version."""
    return complete.source_template % complete.source_vars()
