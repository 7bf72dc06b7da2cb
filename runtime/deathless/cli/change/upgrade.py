"""`deathless upgrade`: other code for a service that runs; `upgrade check`: may it go on with what is stored?"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypedDict

import click

from deathless.base.errors import InvalidArgument, UpgradeCalledOff
from deathless.cli.change.rehearse import rehearse, shadow
from deathless.cli.options import F, json_option, pod_settings, service_options, target
from deathless.cli.output import count, describe_error, json_of, print_json, prints_aside, progress

if TYPE_CHECKING:
    from deathless.execution.interface.misfit import Misfit
    from deathless.shell.operate.target import Target
    from deathless.shell.operate.upgrading.live_upgrade import Outcome, Told
    from deathless.shell.operate.upgrading.upgrade_check import Checked
    from deathless.shell.operate.upgrading.upgrade_drive import Driven, Prepared

EXIT_REFUSED: Final = 78


upgraders_option = click.option(
    "--upgraders",
    default=2,
    show_default=True,
    type=click.IntRange(1, 8),
    metavar="N",
    help="Replicas that are prepared beside the others; a single one is alone right behind the cut.",
)


def timeout_option(told: str) -> Callable[[F], F]:
    """Give the option that bounds how long something is waited for.

    Args:
        told: what, as its help says.
    """
    return click.option(
        "--timeout", default=600.0, show_default=True, type=click.FloatRange(min=1), metavar="SECONDS", help=told
    )


@click.group("upgrade", invoke_without_command=True)
@click.option(
    "--to",
    "module",
    default="",
    metavar="PATH:ATTR",
    help="The new code: package.module:attribute or path/to/file.py:attribute; default: the manifest's, as it is now.",
)
@upgraders_option
@timeout_option("How long the upgraders may take to catch up.")
@click.option("--offline", is_flag=True, help="Upgrade a service of which every replica is stopped.")
@click.option("--dry-run", is_flag=True, help="With --offline: only check, and say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="With --offline: do not ask for confirmation.")
@service_options
@json_option
@click.pass_context
def upgrade(  # noqa: PLR0913 - one argument per option
    context: click.Context,
    module: str,
    upgraders: int,
    timeout: float,
    manifest: str,
    directory: str,
    *,
    offline: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Give a service other code, while it serves.

    Replicas of the new code are started beside the others, and run the log by the former code. Then the primary hands
    over: the new code migrates the state, and serves within moments. Until then everything can be called off, and is,
    where something does not fit. The other replicas follow by themselves. If this command is interrupted, the service
    goes on, and the same command continues where it was.

    With --offline every replica is stopped, and the state is migrated from the checkpoint at the log's end, which an
    orderly stop leaves. What does not fit is refused in the same way, and nothing has changed then.

    \b
    deathless upgrade                                  the files were edited in place
    deathless upgrade --to v2/service.py:bank
    deathless upgrade check --to v2/service.py:bank    only looks
    deathless upgrade rehearse --to v2/service.py:bank runs the log by both codes
    deathless upgrade shadow --to v2/service.py:bank   runs it by both as it grows
    deathless upgrade back-out                         back to the code of before
    deathless upgrade --offline --yes                  all replicas are stopped
    """
    if context.invoked_subcommand is not None:
        return 0
    found = target(manifest, directory, every=True)
    if offline:
        from deathless.cli.change.offline import upgrade_stopped

        return upgrade_stopped(found, module, yes=yes, dry_run=dry_run, as_json=as_json)
    if dry_run or yes:
        raise InvalidArgument(
            "--dry-run and --yes are for --offline",
            remedy="`deathless upgrade check` only looks; an upgrade of a service that runs asks nobody",
        )
    return _upgrade_shards(found, module, upgraders, timeout, back=False, as_json=as_json)


def _upgrade_shards(found: Target, module: str, upgraders: int, timeout_s: float, *, back: bool, as_json: bool) -> int:
    """Upgrade all shards, and print what came of each, also where one fails; gives the exit code."""
    outcomes: list[Outcome] = []
    try:
        asyncio.run(_upgrade_all(found, module, upgraders, timeout_s, outcomes, back=back, as_json=as_json))
    except (Exception, KeyboardInterrupt) as error:
        if as_json and len(found.shards) > 1:
            print_json({"shards": _outcomes_until(error, [each.shard for each in found.shards], outcomes)})
        raise
    if as_json:
        print_json({"shards": outcomes})
    return 0


def _outcomes_until(error: BaseException, shards: Sequence[int], done: Sequence[Outcome]) -> list[object]:
    """Give what came of each shard where an error ended the upgrade: behind those that are done, the first one has it.

    Args:
        error: what ended it.
        shards: numbers of all of them, in the order of the upgrade.
        done: what came of the first of them.
    """
    if isinstance(error, KeyboardInterrupt):
        error = UpgradeCalledOff("it was told to stop", remedy="the same command goes on where this one was")
    left = shards[len(done) :]
    return [
        *done,
        *({"shard": shard, "error": describe_error(error)} for shard in left[:1]),
        *({"shard": shard, "error": None, "begun": False} for shard in left[1:]),
    ]


async def _upgrade_all(
    found: Target,
    module: str,
    upgraders: int,
    timeout_s: float,
    outcomes: list[Outcome],
    *,
    back: bool,
    as_json: bool,
) -> None:
    """One shard after the other: each serves by the one code or by the other. What came of each is appended."""
    from deathless.shell.operate.upgrading.back_out import kept_before
    from deathless.shell.operate.upgrading.live_upgrade import LiveUpgrade, Told, Waits, absolute_module

    configs = found.shards or (found.config,)
    folder = found.loaded.folder if found.loaded is not None else Path()
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    for config in configs:

        def tell(told: Told, shard: int = config.shard) -> None:
            where = f"shard {shard}: " if len(configs) > 1 else ""
            print(f"{told.phase:<9}  {where}{told.text}", file=sys.stderr if as_json else sys.stdout, flush=True)

        to, code = absolute_module(module, Path()) if module else config.module, ""
        if back:
            kept = await kept_before(config)
            to, code = kept.module, kept.code
            where = f"version {kept.version}, as generation {kept.generation} was"
            tell(Told(phase="preparing", text=f"back to {code[:12]}, {where}"))
        work = LiveUpgrade(
            config,
            to,
            {**os.environ, "PYTHONPATH": path},
            tell,
            upgraders=upgraders,
            waits=Waits(ready=timeout_s),
            code=code,
        )
        outcome = await work.run()
        outcomes.append(outcome)
        if not as_json:
            late = f"; {', '.join(outcome.missing)} do not follow yet" if outcome.missing else ""
            print(f"generation {outcome.generation} serves after {outcome.unavailable_s * 1000:.0f} ms{late}")
    if back and not as_json:
        print("note: `deathless up` needs the code of before in the place that spec.module names")
    if module and not as_json and absolute_module(module, Path()) != configs[0].module:
        print(f"note: the manifest names {configs[0].module}; `deathless up` needs the new place in spec.module")


upgrade.add_command(rehearse)
upgrade.add_command(shadow)


@upgrade.command("back-out")
@upgraders_option
@timeout_option("How long the upgraders may take to catch up.")
@service_options
@json_option
def back_out(upgraders: int, timeout: float, manifest: str, directory: str, as_json: bool) -> int:
    """Go back to the code of the generation before, while the service serves.

    The code that serves makes the older state of its own, by what it declares (`@migrate(from_=2, to=1)`), so that
    everything that was done since is kept. It is an upgrade like others, to the next generation: what can't go back is
    refused by name, with counts, and nothing has changed then. The code is the copy that is kept with the log; the same
    is done for other code of a lower version by `deathless upgrade --to`.

    \b
    deathless upgrade back-out
    """
    found = target(manifest, directory, every=True)
    return _upgrade_shards(found, "", upgraders, timeout, back=True, as_json=as_json)


@upgrade.command("check")
@click.option(
    "--to",
    "module",
    required=True,
    metavar="PATH:ATTR",
    help="The new code: package.module:attribute or path/to/file.py:attribute.",
)
@service_options
@json_option
def check(module: str, manifest: str, directory: str, as_json: bool) -> int:
    """Check whether the new code may go on with the service. Nothing is changed, and the service may run.

    Compares the types, handlers, activities, schedules and limits of both codes, then migrates the state of the newest
    checkpoint to see what types can't tell. The exit code is 0 if the new code fits, and 78 if it does not.

    \b
    deathless upgrade check --to v2/service.py:bank
    """
    from deathless.shell.operate.upgrading.upgrade_check import check_upgrade

    found = target(manifest, directory, every=True)
    with prints_aside():
        checked = check_upgrade(found.shards or (found.config,), module, told=progress())
    if as_json:
        print_json(
            {
                "fits": checked.fits,
                "compatible": checked.compatible,
                "sameCode": checked.same_code,
                "fromVersion": checked.from_version,
                "toVersion": checked.to_version,
                "checkpoint": checked.lsn or None,
                "keys": checked.keys,
                "carried": checked.carried,
                "wayBack": checked.way_back,
                "misfits": [_as_json(each) for each in checked.misfits],
                "notes": [_as_json(each) for each in checked.notes],
            }
        )
    else:
        _show(checked)
    return 0 if checked.fits else EXIT_REFUSED


@upgrade.command("drive")
@pod_settings("The settings that the replicas of the new code share.")
@click.option(
    "--upgraders",
    required=True,
    metavar="NAMES",
    help="The replicas that are to make the upgrade, as r3,r4; the first of them leads behind it.",
)
@click.option(
    "--fingerprint",
    default="",
    metavar="HEX",
    help="Refuse if this image's code has another fingerprint, as `deathless fingerprint` tells it.",
)
@click.option("--only-compatible", is_flag=True, help="Refuse what changes the interface, or migrates states.")
@click.option("--prepare-only", is_flag=True, help="Try everything, and have nothing handed over.")
@timeout_option("How long to wait for the service and the upgraders.")
@click.option(
    "--termination-file",
    default="",
    metavar="FILE",
    type=click.Path(),
    help="Also write the outcome, or the error, to this file.",
)
@json_option
def drive(
    path: str,
    upgraders: str,
    timeout: float,
    termination_file: str,
    *,
    fingerprint: str,
    only_compatible: bool,
    prepare_only: bool,
    as_json: bool,
) -> int:
    """Lead through an upgrade in a cluster, to this image's code, whose replicas somebody else starts.

    Runs in a pod of its own, as the operator starts it. It waits for the replicas that are to make the upgrade, checks
    that what is stored fits, and has the primary hand over. It starts and stops no replica. If it is interrupted, the
    service goes on, and the same command continues where it was. The exit code is 0 once the new code serves, or once
    everything was tried with --prepare-only; 78 if it was refused (DL1023), and 75 if it was called off (DL1022) and
    may be tried again.

    \b
    deathless upgrade drive --upgraders r3,r4
    """
    from deathless.engine.replica.failures import as_ours
    from deathless.shell.supervisor.termination_message import leave_word

    try:
        tell = partial(_tell_line, file=sys.stderr if as_json else sys.stdout)
        how: _How = {"timeout_s": timeout, "only_compatible": only_compatible, "fingerprint": fingerprint}
        driven = asyncio.run(_drive(path, upgraders, tell, how, prepare_only=prepare_only))
    except Exception as error:
        leave_word(termination_file, str(as_ours(error, "upgrade drive")))
        raise
    leave_word(termination_file, json_of(driven))
    if as_json:
        print_json(driven)
    return 0


class _How(TypedDict):
    """How it is led, see Drive."""

    timeout_s: float
    only_compatible: bool
    fingerprint: str


async def _drive(
    path: str, upgraders: str, tell: Callable[[Told], None], how: _How, *, prepare_only: bool
) -> Driven | Prepared:
    from deathless.shell.operate.upgrading.upgrade_drive import Drive
    from deathless.shell.pod.pod_config import read_shared_config

    names = [name for name in upgraders.split(",") if name]
    if not names:
        raise InvalidArgument("--upgraders names no replica", remedy="write --upgraders r3,r4")
    config = read_shared_config(path)
    work = Drive(config, names, os.environ, tell, **how)
    task = asyncio.ensure_future(work.prepare() if prepare_only else work.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise UpgradeCalledOff("it was told to stop", remedy="the same command goes on where this one was") from None


def _tell_line(told: Told, file: TextIO) -> None:
    print(f"{told.phase:<9}  {told.text}", file=file, flush=True)


def _as_json(misfit: Misfit) -> dict[str, object]:
    told: dict[str, object] = {"word": misfit.word, "subject": misfit.subject, "text": misfit.text}
    if misfit.count:
        told |= {"count": misfit.count, "unit": misfit.unit}
    if misfit.first:
        told["first"] = misfit.first
    if misfit.remedy:
        told["remedy"] = misfit.remedy
    return told


def _show(checked: Checked) -> None:
    if checked.same_code:
        print("this is the code that serves")
        return
    for each in checked.misfits:
        print(each.text)
    for each in checked.notes:
        print(f"note: {each.text}")
    if checked.lsn:
        seen = f"{count(checked.keys, 'key')} of the checkpoint at lsn {checked.lsn:,} looked at"
    else:
        seen = "there is no checkpoint yet, so only types were compared; `deathless checkpoint take` takes one"
    if checked.carried:
        seen += f"; {count(checked.carried, 'suspended handler')} carried"
    versions = f"version {checked.from_version} to {checked.to_version}"
    if not checked.fits:
        verdict = f"refused: {count(len(checked.misfits), 'thing')} to see to"
    elif checked.compatible:
        verdict = "fits: everything stands in the new code unchanged"
    else:
        verdict = "fits"
    print(f"{verdict} ({versions}; {seen})")
