"""`deathless adopt`: an operator's explicit word that a service may go on although something changed under it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from deathless.base.errors import InvalidArgument
from deathless.cli.confirming import confirmed
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deathless.base.config import ReplicaConfig
    from deathless.shell.operate.adoption import Difference


@click.command()
@click.option("--code", is_flag=True, hidden=True)
@click.option("--restored", is_flag=True, help="Give up what was confirmed after the end of this log.")
@click.option("--cut-at-end", is_flag=True, help="Cut off a damaged last frame that was never confirmed to anybody.")
@click.option("--as-new", is_flag=True, help="Turn a copied directory into a service of its own.")
@click.option("--moved", is_flag=True, help="Declare that this directory was moved here, and the original is gone.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show what differs.")
@service_options
@json_option
def adopt(  # noqa: PLR0913, PLR0917 - one argument per option
    code: bool,
    restored: bool,
    cut_at_end: bool,
    as_new: bool,
    moved: bool,
    yes: bool,
    dry_run: bool,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Accept a service that refuses to start: another lock store or fence, a store older than the log, a lost end.

    All replicas must be stopped. It lists what differs and the effect of accepting it, and asks for
    confirmation. What was accepted is recorded in adopted.json beside the log.

    \b
    deathless adopt --dry-run
    deathless adopt                   the lock store was moved or restored, or the fence changed
    deathless adopt --restored        the log was restored to an earlier time, and the newer files are lost
    deathless adopt --cut-at-end      the last frame is damaged, and nothing in it was confirmed
    deathless adopt --as-new          the directory is a copy, and becomes a service of its own
    deathless adopt --moved           the directory was moved here file by file, and the other is gone
    """
    if code:
        raise InvalidArgument(
            "adopting takes no code: it is upgraded to, also where every replica is stopped",
            remedy="`deathless upgrade --offline`, which takes --yes, --dry-run and --json as well",
        )
    named = {"restored": restored, "cut-at-end": cut_at_end, "as-new": as_new, "moved": moved}
    kinds = [name for name, given in named.items() if given]
    if len(kinds) > 1:
        raise InvalidArgument(f"--{' and --'.join(kinds)} are separate decisions", remedy="use one at a time")
    shorter = restored or cut_at_end
    configs = _configs(manifest, directory, every=shorter or as_new or moved)
    if as_new or moved:
        differences, accept = _copied(configs, as_new=as_new)
    elif shorter:
        differences, accept = _restoring(configs, cut_only=cut_at_end)
    else:
        differences, accept = _adopting(configs)
    done = bool(differences) and not dry_run and (yes or _ask(configs[0], differences, as_json=as_json))
    if done:
        accept()
    if as_json:
        print_json({"differences": differences, "adopted": done})
    elif not differences:
        print("nothing differs: there is nothing to adopt")
    elif done:
        print("adopted; `deathless up` goes on")
    elif yes or dry_run:
        _list(configs[0], differences)
    return 0


def _configs(manifest: str, directory: str, *, every: bool) -> Sequence[ReplicaConfig]:
    """Give a config of each shard that is meant."""
    found = target(manifest, directory, every=every)
    return found.shards if every and found.shards else [found.config]


def _adopting(configs: Sequence[ReplicaConfig]) -> tuple[Sequence[Difference], Callable[[], None]]:
    from deathless.shell.operate.adoption import carry_out, look

    plan = asyncio.run(look(configs[0]))
    return plan.differences, lambda: asyncio.run(carry_out(plan))


def _restoring(configs: Sequence[ReplicaConfig], *, cut_only: bool) -> tuple[Sequence[Difference], Callable[[], None]]:
    from deathless.shell.operate.adoption_restored import accept_restored, look_restored

    plans = [asyncio.run(look_restored(each, cut_only=cut_only)) for each in configs]

    def accept() -> None:
        for plan in plans:
            asyncio.run(accept_restored(plan))

    return [each for plan in plans for each in plan.differences], accept


def _copied(configs: Sequence[ReplicaConfig], *, as_new: bool) -> tuple[Sequence[Difference], Callable[[], None]]:
    from deathless.shell.operate import adoption_new

    found = [each for config in configs for each in asyncio.run(adoption_new.look_copy(config, as_new=as_new))]

    def accept() -> None:
        for config in configs:
            asyncio.run(adoption_new.accept(config, as_new=as_new))

    return found, accept


def _list(config: ReplicaConfig, differences: Sequence[Difference]) -> None:
    print(f"{config.service} in {config.directory}:")
    for each in differences:
        print(f"  {each.what}\n    -> {each.effect}")


def _ask(config: ReplicaConfig, differences: Sequence[Difference], *, as_json: bool) -> bool:
    return confirmed(
        "Go on with that?", "adopting", as_json=as_json, show=lambda: _list(config, differences),
        remedy="check with --dry-run, then add --yes",
    )  # fmt: skip
