"""`deathless ambrosia ...`: programs in any language that speak the AMBROSIA client protocol.

check     does a program do what the protocol wants of it?
install   launchers with the names and arguments of AMBROSIA's own tools
replay    does a program emit again what a service's log has of it, or would another one?
status    how those of a service are
upgrade   another program in the place of the one that a stopped service ran (`change.program`)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from deathless.base.listings.texts import show_time
from deathless.cli.ambrosia.comparison import show_replay
from deathless.cli.change.program import upgrade as upgrade_command
from deathless.cli.change.skip import skip
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import count, print_json, print_table, progress

if TYPE_CHECKING:
    from deathless.shell.foreign.check.report import Finding, Report

EXIT_FOUND = 1
PROBLEM_MAX = 100  # characters in a table
CALLS_BYTES_MAX = 16 << 20


@click.group()
def ambrosia() -> None:
    """Programs in any language that speak the AMBROSIA client protocol."""


@ambrosia.command()
@service_options
@json_option
def status(manifest: str, directory: str, as_json: bool) -> int:
    """Show the programs of a service, one beside each replica: which leads, how far each is, and what is wrong.

    It reads what the processes beside the replicas wrote, at most a second ago.
    """
    from deathless.shell.link.application_status import read_statuses

    found = read_statuses(target(manifest, directory, silent=True).config.directory)
    if as_json:
        print_json({"programs": found})
    elif not found:
        print("no program has run yet")
    else:
        columns = ("replica", "state", "process", "position", "differences", "starts", "as of", "problem")
        print_table(
            columns,
            [
                (each.replica, each.state, each.pid or "", each.position, each.differences, each.starts,
                 show_time(each.at_us), each.problem[:PROBLEM_MAX])
                for each in found
            ],
        )  # fmt: skip
    return 0


@ambrosia.command()
@json_option
@click.argument("folder", type=click.Path(file_okay=False))
def install(folder: str, as_json: bool) -> int:
    """Write the launchers `Ambrosia` and `ImmortalCoordinator` into FOLDER.

    They take the arguments of AMBROSIA's own tools, so that a program and its scripts start unchanged, without an
    account in a cloud: its log is one of ours. What is registered is kept in FOLDER, too.

    \b
    deathless ambrosia install bin
    bin/Ambrosia RegisterInstance -i=counter -rp=1000 -sp=1001 -l=logs/
    bin/ImmortalCoordinator -i=counter -p=1500
    """
    from pathlib import Path

    from deathless.cli.ambrosia.launchers import install as write

    written = write(Path(folder))
    if as_json:
        print_json({"launchers": [str(path) for path in written]})
    else:
        for path in written:
            print(path)
    return 0


@ambrosia.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--method",
    "methods",
    type=click.IntRange(-(1 << 31), (1 << 31) - 1),
    multiple=True,
    metavar="ID",
    help="A method that takes any bytes; may be repeated.",
)
@click.option(
    "--calls",
    "calls_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help='Calls that the program understands, one in a line: {"method": 1, "text": "..."}, with "hex" in place of '
    '"text" for bytes, and "kind": "async" for one that wants an answer.',
)
@click.option("--name", default="checked", show_default=True, help="Name of the service, as the program is told it.")
@click.option("--states", is_flag=True, help="Compare the states in checkpoints too, byte by byte.")
@click.option("--no-upgrade", is_flag=True, help="Leave out what an upgrade does (10 and 12).")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=10.0,
    show_default=True,
    help="How long the program may stand still, or take for a checkpoint.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draw other calls and records.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def check(
    methods: tuple[int, ...],
    calls_file: str | None,
    name: str,
    states: bool,
    no_upgrade: bool,
    seconds: float,
    seed: int,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Start a program several times, as a coordinator does, and say what it does wrong.

    COMMAND is the program with its arguments. It is told its two ports by DEATHLESS_RECEIVE_PORT and
    DEATHLESS_SEND_PORT, or by {receivePort} and {sendPort} in its arguments. It gets calls, is killed, is started again
    from a checkpoint and the log, and has to send the same messages again. The exit code is 1 if something was found.

    \b
    deathless ambrosia check --method 1 ./counter
    deathless ambrosia check --calls calls.jsonl node app.js --recv={receivePort} --send={sendPort}
    """
    import asyncio
    import random

    from deathless.protocols.ambrosia.patience import Patience
    from deathless.shell.disk.small_files import read_small
    from deathless.shell.foreign.application import ApplicationSettings
    from deathless.shell.foreign.check.plan import any_calls, read_calls
    from deathless.shell.foreign.check.scenarios import Plan
    from deathless.shell.foreign.check.scenarios import check as check_program

    if calls_file is not None:
        calls = read_calls(read_small(calls_file, CALLS_BYTES_MAX))
    elif methods:
        calls = any_calls(methods, random.Random(seed))  # noqa: S311  a seed gives it again
    else:
        raise click.UsageError(
            "name a method that takes any bytes (--method 1), or give a file of calls (--calls FILE)"
        )
    settings = ApplicationSettings(
        command=command,
        instance=name,
        replica="0",
        environment=os.environ,
        patience=Patience(connect_s=seconds, load_s=seconds, snapshot_s=seconds, handler_s=seconds),
    )
    plan = Plan(
        settings=settings, calls=tuple(calls), seed=seed, states=states, upgrades=not no_upgrade, end_s=seconds / 2
    )
    report = asyncio.run(check_program(plan, progress()))
    if as_json:
        print_json({"clean": report.clean, "report": report})
    else:
        _show(report)
    return 0 if report.clean else EXIT_FOUND


@ambrosia.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--from",
    "start",
    default="newest",
    show_default=True,
    metavar="newest|oldest|POSITION",
    help="The checkpoint of the program to begin from.",
)
@click.option(
    "--to", "end", type=click.IntRange(min=0), metavar="POSITION", help="Last row to run; default: the last there is."
)
@click.option("--upgrade", is_flag=True, help="Tell the program to go over to its next version first (12).")
@service_options
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def replay(
    start: str,
    end: int | None,
    upgrade: bool,
    manifest: str,
    directory: str,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Run a service's program again over what it got, and compare what it emits with what was logged.

    The program starts in a process of its own, from one of its checkpoints. Nothing of it leaves, and nothing is
    written, whether the service runs or not. The first message that differs is named; the exit code is 1 then.

    COMMAND is another program, such as the next version, in the place of the manifest's: what would it have emitted?

    \b
    deathless ambrosia replay                        does the program repeat itself?
    deathless ambrosia replay --from oldest ./counter-2
    deathless ambrosia replay --upgrade              a program that has its next version in it
    """
    import asyncio

    from deathless.base.errors import InvalidArgument
    from deathless.foreign.replay import ReplayOrder
    from deathless.foreign.replay import replay as run
    from deathless.foreign.settings import settings_of

    config = target(manifest, directory, silent=True).config
    binding = config.binding
    if binding is None:
        raise InvalidArgument(
            f"the code of service {config.service} is no program", remedy="see `deathless replay` for its own log"
        )
    newest, oldest = start == "newest", start == "oldest"
    if not (newest or oldest or (start.isascii() and start.isdecimal())):
        raise InvalidArgument(f"--from {start} is no place", remedy="give newest, oldest, or a checkpoint's position")
    purpose = "rehearsal" if upgrade or command else "replay"
    order = ReplayOrder(
        directory=config.directory,
        settings=settings_of(binding, config.make_limits(), config.replica, purpose=purpose, command=command),
        start=None if newest or oldest else int(start),
        oldest=oldest,
        end=end,
        upgraded=upgrade,
    )
    report = asyncio.run(run(order, progress()))
    if as_json:
        print_json(report)
    else:
        show_replay(report)
    return 0 if report.differs is None else EXIT_FOUND


ambrosia.add_command(upgrade_command)
ambrosia.add_command(skip)


def _show(report: Report) -> None:
    for found in report.findings:
        _show_finding(found)
    for note in report.notes:
        print(f"note: {note}")
    ran = f"{', '.join(report.scenarios)}; {count(report.calls, 'call')}, {count(report.outputs, 'message')} sent"
    verdict = "clean" if report.clean else f"{count(len(report.findings), 'thing')} to mend"
    print(f"{verdict} (seed {report.seed}): {ran}")


def _show_finding(found: Finding) -> None:
    print(f"{found.rule}: {found.what} (in: {found.scenario})")
    if found.expected or found.got:
        where = f"to {found.target or 'itself'}, position {found.position}, method {found.method}"
        print(f"  where     {where}\n  expected  {found.expected}\n  got       {found.got}")
    for line in found.output[-5:]:
        print(f"  printed   {line}")
    print(f"  remedy    {found.remedy}")
