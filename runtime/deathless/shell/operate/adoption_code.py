"""What of a log's state and messages other code has no place for: what `deathless adopt --code` refuses, or tells.

    a stored field, map or limit has no place, or can't be read     refused by name, with counts: it would be lost
    the code is of another version                                  refused: nothing is migrated by adopting
    what waits for a handler, activity or schedule does not fit     told: each is held, or fails alone, in its turn
    no interface is recorded for the code that serves               told: types can't be compared

Guarantees: nothing is changed. Does not: see what came behind the newest checkpoint (adopting code needs one at the
log's end). May import execution, engine, codec and base.
"""

from __future__ import annotations

from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import UpgradeRefused
from deathless.shell.operate.upgrading.upgrade_check import check_upgrade

LOSES: Final = frozenset({
    "DefaultChanged",
    "FieldDropped",
    "FieldRequired",
    "FieldTypeChanged",
    "KeyingChanged",
    "LimitLowered",
    "MapGone",
    "MigrationMissing",
    "MigrationUnfit",
    "TopicChanged",
})  # fmt: skip
"""Words of misfits that lose or change what is stored; any other one is about what waits."""
REMEDY: Final = (
    "go on with the code that wrote the log (`deathless up --kept-code`) and upgrade from it, with migrations: "
    "`deathless upgrade`; or give what is stored a place in the new code"
)


def fit_code(config: ReplicaConfig) -> list[str]:
    """Compare the code that a config names with what the log holds; gives what waits and does not fit it.

    Raises: UpgradeRefused for what would be lost; InvalidService.
    """
    try:
        found = check_upgrade([config], config.module)
    except UpgradeRefused as error:  # no interface is recorded: the log is of an older release
        return [error.message]
    if found.from_version != found.to_version:
        raise UpgradeRefused(
            f"the state is of version {found.from_version}, and the code of version {found.to_version}: nothing is "
            "migrated by adopting",
            remedy=REMEDY,
        )
    lost = [each.text for each in found.misfits if each.word in LOSES]
    if lost:
        raise UpgradeRefused("; ".join(lost), remedy=REMEDY)
    return [each.text for each in found.misfits]
