"""`deathless upgrade rehearse` and `shadow`: would the new code do the same on the service's own log?"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import count, describe_error, print_json, progress

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target
    from deathless.shell.operate.upgrading.live_log import Followed, Following
    from deathless.shell.operate.upgrading.rehearsal import Rehearsed, Window

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
    "--follow",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Go on where the log ends, and follow it as it grows, for so long from when it has caught up.",
)
@click.option(
    "--side-by-side",
    is_flag=True,
    help="Run the former code beside the new one from the start; default: only where what the new code gives is not "
    "what stands in the log, or states are migrated.",
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
def rehearse(  # noqa: PLR0913, PLR0917 - one argument per option
    module: str,
    start: int | None,
    messages: int | None,
    follow: float | None,
    side_by_side: bool,
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

    The shards of a service are rehearsed one after the other; `--shard` chooses one.

    Code that takes all states as they are runs alone at first, against the digests that stand in the log; that is many
    times as fast, and the former code joins where something differs.

    \b
    deathless upgrade rehearse --to v2/service.py:bank
    deathless upgrade rehearse --to v2/service.py:bank --from 100000 --messages 50000
    """
    from deathless.engine.replica.failures import as_ours
    from deathless.shell.operate.pod_outcome import leave_outcome, of_rehearsal
    from deathless.shell.operate.upgrading.rehearsal import Window
    from deathless.shell.supervisor.termination_message import leave_word

    if follow is not None and messages is not None:
        raise InvalidArgument("--messages ends the run and --follow goes on", remedy="leave one of them out")
    try:
        with _following(follow) as following:
            window = Window(start=start, messages=messages, following=following, side_by_side=side_by_side)
            found = target(manifest, directory, every=True, silent=True)
            rehearsed = _rehearse(found, module, window, former, as_json=as_json)
    except Exception as error:
        leave_word(termination_file, str(as_ours(error, "upgrade rehearse")))
        raise
    cut_short = _cut_short(rehearsed)
    if cut_short is None:
        leave_outcome(termination_file, of_rehearsal(rehearsed))
    else:
        leave_word(termination_file, str(cut_short))
    return _tell(rehearsed, cut_short, as_json=as_json)


@click.command("shadow")
@click.option(
    "--to",
    "module",
    required=True,
    metavar="PATH:ATTR",
    help="The new code: package.module:attribute or path/to/file.py:attribute.",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1),
    metavar="N",
    help="How long to follow the log, from when everything is compared that there was.",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    metavar="LSN",
    help="Begin at the newest checkpoint at or below; default: at the newest one.",
)
@service_options
@json_option
def shadow(module: str, seconds: float, start: int | None, manifest: str, directory: str, as_json: bool) -> int:
    """Run the new code beside the service, on its log as it grows, and tell what callers would see otherwise.

    It is a rehearsal that does not end where the log does: it begins at a checkpoint, catches up, and then compares
    what the service does, for some time. Nothing is changed and nobody is sent anything; the service must run if there
    is to be something to compare. Ctrl-C ends it with what was found so far. It tells how much of the log of that time
    was compared. The exit code is 0 if nothing differs that was not declared, and 78 if something does.

    \b
    deathless upgrade shadow --to v2/service.py:bank
    deathless upgrade shadow --to v2/service.py:bank --seconds 600
    """
    from deathless.shell.operate.upgrading.rehearsal import NEWEST, Window

    with _following(seconds) as following:
        window = Window(start=NEWEST if start is None else start, following=following)
        found = target(manifest, directory, every=True, silent=True)
        rehearsed = _rehearse(found, module, window, "", as_json=as_json)
    return _tell(rehearsed, _cut_short(rehearsed), as_json=as_json)


@contextlib.contextmanager
def _following(seconds: float | None) -> Iterator[Following | None]:
    """Give how long the log is followed; the first Ctrl-C ends that, and the next one this process. None: it is not."""
    from deathless.shell.operate.upgrading.live_log import Following

    if seconds is None:
        yield None
        return
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        del frame
        stopped = True
        signal.signal(number, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield Following(seconds=seconds, stopped=lambda: stopped)
    finally:
        signal.signal(signal.SIGINT, before)


def _cut_short(rehearsed: Rehearsed) -> InvalidArgument | None:
    """Give why there is no verdict although nothing differs: the log could not be followed for that time."""
    if not (rehearsed.passed and rehearsed.cut_short):
        return None
    return InvalidArgument(
        f"{rehearsed.cut_short}; nothing differs up to lsn {rehearsed.lsn}, and the log was not followed for the time "
        "that was asked for",
        remedy="begin again, at a later checkpoint where it was too slow",
    )


def _tell(rehearsed: Rehearsed, cut_short: InvalidArgument | None, *, as_json: bool) -> int:
    """Print what came of it; gives the exit code. Raises: `cut_short`."""
    if as_json:
        print_json(_as_json(rehearsed))
    else:
        _show(rehearsed)
    if cut_short is not None:
        raise cut_short
    return 0 if rehearsed.passed else EXIT_DIFFERS


def _rehearse(found: Target, module: str, window: Window, former: str, *, as_json: bool) -> Rehearsed:
    """Do it; with JSON, what came of each of several shards is printed also where one fails."""
    from deathless.shell.lock_stores.inspection import inspect
    from deathless.shell.operate.upgrading import rehearsal
    from deathless.shell.operate.upgrading.live_upgrade import absolute_module

    if not (module or former):
        raise InvalidArgument("the new code is not named", remedy="add --to PATH:ATTR")
    folder = found.loaded.folder if found.loaded is not None else Path()
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    configs = found.shards or (found.config,)
    done: list[Rehearsed] = []
    try:
        return rehearsal.rehearse(
            [asyncio.run(inspect(config)) for config in configs],
            absolute_module(module or found.config.module, Path()),
            {**os.environ, "PYTHONPATH": path},
            window,
            progress(),
            former,
            done,
        )
    except Exception as error:
        if as_json and done:
            failed, *left = (config.shard for config in configs[len(done) :])
            told = [*map(_as_json, done), {"shard": failed, "error": describe_error(error)}]
            print_json({"shards": [*told, *({"shard": each, "error": None, "begun": False} for each in left)]})
        raise


def _as_json(rehearsed: Rehearsed) -> dict[str, object]:
    told: dict[str, object] = {
        "passed": rehearsed.passed,
        "sameCode": rehearsed.same_code,
        "fingerprint": rehearsed.fingerprint,
        "byDigests": rehearsed.by_digests,
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
    if rehearsed.followed is not None:
        told["followed"] = _followed_as_json(rehearsed.followed)
    if rehearsed.shards:
        told |= {"of": rehearsed.of, "shards": [_as_json(each) for each in rehearsed.shards]}
    elif rehearsed.of > 1:
        told |= {"of": rehearsed.of, "shard": rehearsed.shard}
    return told


def _followed_as_json(followed: Followed) -> dict[str, object]:
    return {
        "complete": followed.complete,
        "caughtUp": followed.caught_up,
        "seconds": round(followed.seconds, 3),
        "fromLsn": followed.from_lsn,
        "messages": followed.messages,
        "compared": followed.compared,
        "behind": followed.behind,
        "behindMax": followed.behind_max,
        "interrupted": followed.interrupted,
        "ended": followed.ended,
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
    cut_off = [f"{each.handler} ({count(each.left_out, 'turn')})" for each in rehearsed.coverage if each.left_out]
    if cut_off:
        print(f"note: not compared, because what came before them differs: {', '.join(cut_off)}")
    if rehearsed.coverage:
        met = [f"{each.handler} {each.turns:,}" for each in rehearsed.coverage if each.turns]
        print(f"{'messages' if rehearsed.by_digests else 'turns'} compared: {', '.join(met) or 'none'}")
    if rehearsed.not_covered:
        print(f"not covered: {', '.join(rehearsed.not_covered)}")
    if rehearsed.followed is not None:
        print(_followed_text(rehearsed.followed))
    for part in rehearsed.shards:
        print(f"shard {part.shard}: {_verdict(part)}")
    if rehearsed.of > max(len(rehearsed.shards), 1):
        known = {each.shard for each in rehearsed.shards} or {rehearsed.shard}
        left = [str(each) for each in range(rehearsed.of) if each not in known]
        print(f"not rehearsed: shard {', '.join(left)} of {rehearsed.of}")
    print(_verdict(rehearsed))


def _verdict(rehearsed: Rehearsed) -> str:
    """Say what came of it."""
    begin = f"the checkpoint at lsn {rehearsed.started_at:,}" if rehearsed.started_at else "the beginning"
    how = ", against the log's own digests" if rehearsed.by_digests else ""
    ran = (
        f"{count(rehearsed.messages, 'message')} from {begin} to lsn {rehearsed.lsn:,} in {rehearsed.seconds:.1f} s, "
        f"{rehearsed.per_second:,} per second{how}"
    )
    things = len(rehearsed.undeclared) + len(rehearsed.misfits)
    verdict = "passed" if rehearsed.passed else f"differs: {count(things, 'thing')} to see to"
    return f"{verdict} ({ran})"


def _followed_text(followed: Followed) -> str:
    """Say how much of a growing log was compared."""
    ended = f"; {followed.ended}" if followed.ended else ""
    if not followed.caught_up:
        return f"followed: it had not caught up with the log{ended}"
    share = 100 * followed.compared / followed.messages if followed.messages else 100.0
    behind = f"; at most {count(followed.behind_max, 'message')} behind" if followed.behind_max else ""
    return (
        f"followed: {followed.seconds:.1f} s, {followed.compared:,} of {count(followed.messages, 'message')} compared "
        f"({int(share)} %){behind}{ended}"
    )
