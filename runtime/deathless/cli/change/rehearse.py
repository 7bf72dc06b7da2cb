"""`deathless upgrade rehearse`: would the new code have done the same on the service's own log?"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import count, print_json, progress

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target
    from deathless.shell.operate.upgrading.rehearsal import Rehearsed

EXIT_DIFFERS: Final = 78


@click.command("rehearse")
@click.option(
    "--to",
    "module",
    default="",
    metavar="PATH:ATTR",
    help="The new code: package.module:attribute or path/to/file.py:attribute; with --former it may be left out: it "
    "then has the name of the former one.",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    metavar="LSN",
    help="Begin at the newest checkpoint at or below; default: as early as the log of this code allows.",
)
@click.option(
    "--messages",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run about so many messages, to the end of their frame; default: all.",
)
@click.option(
    "--former",
    default="",
    metavar="SOCKET",
    type=click.Path(),
    help="Where `deathless former` of the image that wrote the log serves its code; default: the copy that is kept "
    "with the log.",
)
@click.option(
    "--termination-file",
    default="",
    metavar="FILE",
    type=click.Path(),
    help="Also write the verdict, or the error, to this file.",
)
@service_options
@json_option
def rehearse(
    module: str,
    start: int | None,
    messages: int | None,
    former: str,
    termination_file: str,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Run the service's log by its code and by the new one, and tell what callers would see otherwise.

    Nothing is changed and nobody is sent anything; the service may run. Replies, messages sent, activities, timers and
    states are compared, by handler. What the new code declares as changed is counted, and no reason to refuse it. The
    exit code is 0 if nothing else differs, and 78 if something does.

    \b
    deathless upgrade rehearse --to v2/service.py:bank
    deathless upgrade rehearse --to v2/service.py:bank --from 100000 --messages 50000
    """
    from deathless.engine.replica.failures import as_ours
    from deathless.shell.operate.pod_outcome import leave_outcome, of_rehearsal
    from deathless.shell.supervisor.termination_message import leave_word

    try:
        rehearsed = _rehearse(target(manifest, directory, every=True, silent=True), module, start, messages, former)
    except Exception as error:
        leave_word(termination_file, str(as_ours(error, "upgrade rehearse")))
        raise
    leave_outcome(termination_file, of_rehearsal(rehearsed))
    if as_json:
        print_json(_as_json(rehearsed))
    else:
        _show(rehearsed)
    return 0 if rehearsed.passed else EXIT_DIFFERS


def _rehearse(found: Target, module: str, start: int | None, messages: int | None, former: str) -> Rehearsed:
    from deathless.shell.lock_stores.inspection import inspect
    from deathless.shell.operate.upgrading import rehearsal
    from deathless.shell.operate.upgrading.live_upgrade import absolute_module

    if not (module or former):
        raise InvalidArgument("the new code is not named", remedy="add --to PATH:ATTR")
    folder = found.loaded.folder if found.loaded is not None else Path()
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return rehearsal.rehearse(
        [asyncio.run(inspect(config)) for config in found.shards or (found.config,)],
        absolute_module(module or found.config.module, Path()),
        {**os.environ, "PYTHONPATH": path},
        rehearsal.Window(start=start, messages=messages),
        progress(),
        former,
    )


def _as_json(rehearsed: Rehearsed) -> dict[str, object]:
    return {
        "passed": rehearsed.passed,
        "sameCode": rehearsed.same_code,
        "fromVersion": rehearsed.from_version,
        "toVersion": rehearsed.to_version,
        "startedAt": rehearsed.started_at,
        "lsn": rehearsed.lsn,
        "messages": rehearsed.messages,
        "seconds": round(rehearsed.seconds, 3),
        "perSecond": rehearsed.per_second,
        "differences": msgspec.to_builtins(rehearsed.differences),
        "misfits": [msgspec.to_builtins(each) for each in rehearsed.misfits],
        "notes": [msgspec.to_builtins(each) for each in rehearsed.notes],
        "coverage": msgspec.to_builtins(rehearsed.coverage),
        "notCovered": rehearsed.not_covered,
    }


def _show(rehearsed: Rehearsed) -> None:
    for misfit in rehearsed.misfits:
        print(misfit.text)
    for each in rehearsed.undeclared:
        print(each.text)
    for each in rehearsed.differences:
        if each.declared:
            print(f"declared ({each.declared}): {each.text}")
    for misfit in rehearsed.notes:
        print(f"note: {misfit.text}")
    if rehearsed.same_code:
        print("note: this is the code that serves")
    left = [f"{each.handler} ({count(each.left_out, 'turn')})" for each in rehearsed.coverage if each.left_out]
    if left:
        print(f"note: not compared, because what came before them differs: {', '.join(left)}")
    if rehearsed.coverage:
        met = [f"{each.handler} {each.turns:,}" for each in rehearsed.coverage if each.turns]
        print(f"turns compared: {', '.join(met) or 'none'}")
    if rehearsed.not_covered:
        print(f"not covered: {', '.join(rehearsed.not_covered)}")
    begin = f"the checkpoint at lsn {rehearsed.started_at:,}" if rehearsed.started_at else "the beginning"
    ran = (
        f"{count(rehearsed.messages, 'message')} from {begin} to lsn {rehearsed.lsn:,} in {rehearsed.seconds:.1f} s, "
        f"{rehearsed.per_second:,} per second"
    )
    things = len(rehearsed.undeclared) + len(rehearsed.misfits)
    verdict = "passed" if rehearsed.passed else f"differs: {count(things, 'thing')} to see to"
    print(f"{verdict} ({ran})")
