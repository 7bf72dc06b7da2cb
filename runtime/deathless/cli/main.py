"""`deathless`: the group of commands, loaded one at a time, and the one place where errors are shown.

Every command's module is imported only when it is named, so that `deathless --help` and shell completion stay fast:
nothing here or in `cli.output` may import rich, asyncio or the engine at module level.

Guarantees: an error is one block (code, what, where, remedy, page) and an exit code of its class; a traceback is
shown with --debug alone. Does not: do anything else.
"""

from __future__ import annotations

import importlib
import sys

import click

from deathless.cli.output import show_error

COMMANDS = {
    "init": ("run.init", "Write a new project that runs, with a test"),
    "up": ("run.up", "Run a service from its manifest"),
    "dev": ("run.dev", "Run a service while its code is written"),
    "down": ("run.up", "Stop a service that runs in the background"),
    "demo": ("demo.demo", "Run a replicated bank whose processes you can kill and freeze"),
    "status": ("look.status", "Show role, epoch, lsn and lag of each replica"),
    "logs": ("look.logs", "Show what the replicas have logged"),
    "call": ("change.calls", "Call a handler"),
    "query": ("change.calls", "Ask a query"),
    "switchover": ("change.switchover", "Hand over the primary's role to another replica"),
    "log": ("look.log", "Inspect and verify the log"),
    "checkpoint": ("look.checkpoint", "Inspect checkpoints, or take one"),
    "check": ("look.check", "Find non-deterministic code in a service"),
    "ambrosia": ("look.ambrosia", "Check, watch and replay programs that speak the AMBROSIA client protocol"),
    "replay": ("look.replay", "Replay the log in a new process, and print or compare state"),
    "parked": ("look.parked", "List parked messages"),
    "invocations": ("look.invocations", "Inspect and control handlers that wait"),
    "undelivered": ("look.undelivered", "Inspect messages that drivers gave up, retry or discard them"),
    "schedules": ("look.schedules", "Inspect the schedules of a service"),
    "topics": ("look.topics", "Inspect and read the topics that a service publishes"),
    "pipelines": ("change.pipelines", "Run and operate pipelines of Spark"),
    "sinks": ("look.sinks", "Inspect the sinks that store rows of topics, and decide about them"),
    "sources": ("look.sources", "Inspect the sources that bring rows to inputs, and decide about refused ones"),
    "openapi": ("look.openapi", "Print an OpenAPI document of a service"),
    "peers": ("change.peers", "Inspect peers, and adopt one that was created anew"),
    "driver": ("run.driver", "Check the drivers of a service, or run one"),
    "upgrade": ("change.upgrade", "Check whether other code may go on with a service"),
    "adopt": ("change.adopt", "Accept a changed or restored store, fence, log or code"),
    "fork": ("change.fork", "Fork services that talk, as services of their own"),
    "resume-outside": ("change.resume_outside", "Release what a copied or restored service holds back"),
    "erase": ("change.erase", "Erase the keys of a deleted service from its etcd"),
    "explain": ("look.explain", "Print the page of an error code"),
    "fingerprint": ("look.fingerprint", "Print the fingerprint of a service's code"),
    "replica": ("run.replica", "Run one replica in a pod"),
    "former": ("run.former", "Serve the code of before to replicas of another image"),
    "completion": ("completion", "Print the completion script of a shell"),
    "version": ("version", "Print versions"),
}
GROUPS = (
    ("Run", ("init", "dev", "up", "down", "demo")),
    ("Use", ("status", "logs", "call", "query", "switchover")),
    (
        "Look inside",
        (
            "log",
            "checkpoint",
            "replay",
            "check",
            "ambrosia",
            "parked",
            "invocations",
            "undelivered",
            "schedules",
            "topics",
            "sinks",
            "sources",
            "openapi",
            "fingerprint",
        ),
    ),
    (
        "Operate",
        ("peers", "driver", "pipelines", "upgrade", "adopt", "fork", "resume-outside", "erase", "replica", "former"),
    ),
    ("This program", ("explain", "completion", "version")),
)


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
        module = importlib.import_module(f"deathless.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        for title, names in GROUPS:
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names], col_max=14)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name what was meant when a command is unknown."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Ordinary Python services that survive the death of any process.

    \b
    deathless demo                            see a primary die and its service go on
    deathless up service.yaml                 run your own
    deathless call deposit --key alice --arg amount=5

    Commands find their service by a manifest (-f, default ./service.yaml, or DEATHLESS_MANIFEST) or by the folder that
    it runs in (--dir).
    """


def main(arguments: list[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        result = cli.main(args=arguments, prog_name="deathless", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        if as_json:
            return show_error(error, as_json=True)
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("stopped\n")
        return 130
    except BrokenPipeError:
        _mute_output()
        return 141
    except Exception as error:  # this is where every error of every command is shown
        if debug:
            raise
        return show_error(error, as_json=as_json)


def _mute_output() -> None:
    """Nobody reads any more: keep the interpreter from complaining about it at its end."""
    import os

    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
