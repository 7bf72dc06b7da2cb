"""`deathless replay`: run the log again in a fresh process, and print or compare state."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_time
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import count, json_of, print_json

if TYPE_CHECKING:
    from deathless.shell.operate.debugger import Stops
    from deathless.shell.operate.replay import ReplayOrder, ReplayResult
    from deathless.shell.operate.target import Target


def _debugger_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options of a command that say where it stops; it gets them as `stops`."""

    @click.option("--pdb", "debug", is_flag=True, help="Stop in Python's debugger where a handler begins.")
    @click.option(
        "--break",
        "places",
        multiple=True,
        metavar="HANDLER|LSN",
        help="With --pdb: stop at this handler, or at the message with this LSN; default: at every handler.",
    )
    @click.option(
        "--if",
        "condition",
        default="",
        metavar="EXPRESSION",
        help="With --pdb: stop only where this is true of the handler's arguments.",
    )
    @functools.wraps(command)
    def with_stops(*, debug: bool, places: tuple[str, ...], condition: str, **others: object) -> int:
        from deathless.shell.operate.debugger import stops_of

        if (places or condition) and not debug:
            raise InvalidArgument("--break and --if are of the debugger", remedy="add --pdb")
        return command(stops=stops_of(places, condition) if debug else None, **others)

    return with_stops


@click.command()
@click.option(
    "--from",
    "start",
    default="checkpoint",
    show_default=True,
    metavar="checkpoint|oldest|LSN",
    help="Start from the newest usable checkpoint, as early as the log of this code allows, from 0 (the log's "
    "beginning), or from the LSN to --diff with.",
)
@click.option(
    "--to",
    type=click.IntRange(min=0),
    metavar="LSN",
    help="Last message to run; default: the last confirmed one.",
)
@click.option("--print", "tell", flag_value="state", default="state", help="Print the state at the end (the default).")
@click.option("--diff", "tell", flag_value="diff", help="Print the keys that changed since the start.")
@click.option("--quiet", "tell", flag_value="nothing", help="Print no state, only whether the replay succeeded.")
@click.option("-k", "--key", default=None, help="Only show this key.")
@click.option("--any-code", is_flag=True, help="Run code that did not write the log, to see what it would have done.")
@click.option(
    "--termination-file",
    default="",
    metavar="FILE",
    type=click.Path(),
    help="Also write what came of it, without states, or the error, to this file.",
)
@_debugger_options
@service_options
@json_option
def replay(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    start: str,
    to: int | None,
    tell: str,
    key: str | None,
    any_code: bool,
    termination_file: str,
    stops: Stops | None,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Replay the log with the service's code in a new process, whether the service runs or not. Nothing is written.

    Every message is compared with the digest that was logged when it first ran; a difference is reported with LSN,
    handler and key, and the exit code is then 65.

    \b
    deathless replay                                the state now
    deathless replay --from oldest --quiet          does all of the log give what it gave?
    deathless replay --from 0 --to 1000 --key alice the state of alice at lsn 1000
    deathless replay --from 990 --to 1000 --diff    what those ten messages changed
    deathless replay --pdb --break 998              step through what message 998 did
    deathless replay --pdb --break deposit --if 'amount > 100'
    """
    from deathless.engine.replica.failures import as_ours
    from deathless.shell.operate import pod_outcome
    from deathless.shell.operate import replay as shell
    from deathless.shell.supervisor.termination_message import leave_word

    try:
        found = target(manifest, directory, silent=True)
        order = _order(found, start, stops)
        order = msgspec.structs.replace(order, to=to, tell=tell, key=key, any_code=any_code)
        result = asyncio.run(_interruptible(shell.replay(found.config, order), alone=stops is None))
    except shell.ReplayLeft:
        return 0
    except shell.LogDiffers as error:
        pod_outcome.leave_outcome(termination_file, pod_outcome.of_difference(error))
        raise
    except Exception as error:
        leave_word(termination_file, str(as_ours(error, "replay")))
        raise
    pod_outcome.leave_outcome(termination_file, pod_outcome.of_replay(result))
    if as_json:
        print_json(result)
    else:
        _show(result, tell)
    return 0


async def _interruptible(work: Coroutine[object, object, ReplayResult], *, alone: bool) -> ReplayResult:
    """Wait for a replay; Ctrl-C ends it, unless it is the debugger's, in whose process group we are."""
    if not alone:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    return await work


def _order(found: Target, text: str, stops: Stops | None) -> ReplayOrder:
    """Give where a replay begins, and where it stops. Raises: InvalidArgument."""
    from deathless.shell.operate.replay import ReplayOrder

    folder = str(found.loaded.folder) if found.loaded is not None else "."
    order = ReplayOrder(folder=folder, stops=stops)
    if text == "oldest":
        return msgspec.structs.replace(order, oldest=True)
    if text.isdecimal():
        return msgspec.structs.replace(order, start=int(text))
    if text != "checkpoint":
        raise InvalidArgument(
            f"--from {text!r} is neither checkpoint nor oldest nor an lsn", remedy="write checkpoint, 0, or an lsn"
        )
    return msgspec.structs.replace(order, start=stops.lsns[0] - 1) if stops is not None and stops.lsns else order


def _show(result: ReplayResult, tell: str) -> None:
    start = f"the checkpoint at lsn {result.started_at}" if result.started_at else "the beginning"
    print(
        f"ran {count(result.messages, 'message')} from {start} to lsn {result.lsn} in {result.seconds:.2f} s; "
        "no difference"
    )
    print(f"{count(result.keys, 'key')}, logical time {show_time(result.time_us)}, state digest {result.digest}")
    for note in result.notes:
        print(f"note: {note}")
    if tell == "state":
        print()
        for key, state in result.state.items():
            print(f"{key}  {_json(state)}")
    if tell == "diff":
        print(f"\n{count(len(result.changes), 'key')} changed between lsn {result.base} and {result.lsn}")
        for change in result.changes:
            print(f"\n{change.key}\n  - {_json(change.before)}\n  + {_json(change.after)}")


def _json(value: object) -> str:
    return "(not there)" if value is None else json_of(value)
