"""`deathless-operator`: the commands of the image's second program, loaded one at a time.

    run            the operator
    certificates   the lock store's authority and certificates
    lock-users     a user for each service at the lock store
    drill-run      calls a service while it is drilled, and judges
    drill-agent    breaks what a drill names, on the node where it is

Guarantees: an error is one line with its code on standard error and an exit code of its class; a trace is shown with
--debug alone. `--help` imports no command. Does not: do anything else.
"""

from __future__ import annotations

import importlib
import sys
from importlib import metadata

import click

COMMANDS = {
    "run": ("run", "command", "Run the operator"),
    "certificates": ("certificates", "command", "Create or renew the lock store's certificates"),
    "lock-users": ("lock_users", "command", "Give each service a user of its own at the lock store"),
    "drill-run": ("drill_run", "command", "Call a service during a drill, and judge the result"),
    "drill-agent": ("drill_agent", "command", "Cause a drill's fault on its node"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are named."""

    def list_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
    ) -> list[str]:
        """See click."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """See click."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"deathless_operator.cli.{module}"), attribute)
        assert isinstance(command, click.Command), "each command's module has one"
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    """Print the version and end, where --version was given."""
    if not value:
        return
    try:
        found = metadata.version("deathless")
    except metadata.PackageNotFoundError:
        found = "not installed, run from its sources"
    click.echo(f"deathless-operator {found}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def cli(debug: bool) -> None:
    """Runs replicated services in a Kubernetes cluster."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result = cli.main(args=arguments, prog_name="deathless-operator", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("stopped\n")
        return 130
    except Exception as error:
        if "--debug" in arguments:
            raise
        sys.stderr.write(f"error: {error}\n" if str(error) else f"error: {type(error).__name__}\n")
        return int(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    sys.exit(main())
