"""What `deathless upgrade --offline` shows, asks and does, for all shards of a service that is stopped.

Guarantees: nothing is changed before every shard was looked at and a person, or --yes, said so. Does not: decide what
fits (shell.operate.upgrading.offline_upgrade).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from deathless.cli.confirming import confirmed
from deathless.cli.output import count, print_json, prints_aside, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deathless.shell.operate.target import Target
    from deathless.shell.operate.upgrading.offline_upgrade import OfflineOutcome


def upgrade_stopped(found: Target, module: str, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Upgrade a service of which every replica is stopped; gives the exit code.

    Args:
        found: the service.
        module: the new code; empty: the manifest's, as it is now.
        yes: nobody is asked.
        dry_run: nothing is changed.
        as_json: print JSON, and ask nobody.

    Raises: as `look_at_all` and `make_offline`; InvalidArgument where somebody has to be asked and nobody is there.
    """
    from deathless.shell.operate.upgrading.live_upgrade import absolute_module
    from deathless.shell.operate.upgrading.offline_upgrade import look_at_all, make_offline, outcome_of

    configs = found.shards or (found.config,)
    told = progress()
    to = absolute_module(module, Path()) if module else ""
    with prints_aside():
        plans = asyncio.run(look_at_all(configs, to, told))
    outcomes = [outcome_of(plan) for plan in plans]
    done = not dry_run and (yes or _ask(outcomes, as_json=as_json))
    if done:
        with prints_aside():
            for plan in plans:
                asyncio.run(make_offline(plan))
    if as_json:
        print_json({"shards": outcomes, "upgraded": done})
        return 0
    if yes or dry_run:
        _show(outcomes)
    if done:
        generations = ", ".join(str(number) for number in sorted({each.generation for each in outcomes}))
        print(f"upgraded; `deathless up` goes on with generation {generations}")
        if to and to != configs[0].module:
            print(f"note: the manifest names {configs[0].module}; `deathless up` needs the new place in spec.module")
    elif dry_run:
        print("it fits; nothing was changed")
    return 0


def _show(outcomes: Sequence[OfflineOutcome]) -> None:
    for each in outcomes:
        where = f"shard {each.shard}: " if len(outcomes) > 1 else ""
        how = "stay as they are" if each.compatible else "are migrated"
        print(
            f"{where}generation {each.generation} begins behind lsn {each.lsn:,}: version {each.from_version} to "
            f"{each.to_version}, {count(each.keys, 'key')} {how}"
        )
        for note in each.notes:
            print(f"  note: {note}")


def _ask(outcomes: Sequence[OfflineOutcome], *, as_json: bool) -> bool:
    return confirmed(
        "Go on with that?", "an upgrade of a service that is stopped", as_json=as_json, show=lambda: _show(outcomes),
        remedy="check with --dry-run, then add --yes",
    )  # fmt: skip
