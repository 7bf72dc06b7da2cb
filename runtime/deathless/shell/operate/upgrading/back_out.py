"""Which code a service goes back to: that of the generation before, from the copy that is kept with the log.

A command that was ended itself behind the commit is given once more: then it is the code that serves, and what is left
of the upgrade is seen to.

Guarantees: code of a version that is not later than the one that serves, kept as it was written; or a refusal by name.
Does not: say whether everything can go back (the upgrade does, before anything is changed).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import FormerCodeMissing, LogTruncated, UpgradeRefused
from deathless.codec.frames import Cut, decode_data
from deathless.codec.generations import Upgraded, decode_upgraded
from deathless.codec.messages import decode
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.log_generations import cuts_of
from deathless.shell.operate.replay import frames_between
from deathless.shell.operate.upgrading.local_upgraders import LocalUpgraders
from deathless.shell.service_code.code_record import recorded
from deathless.shell.service_code.kept_code import modules_in


class KeptBefore(NamedTuple):
    """Code to go back to."""

    generation: int  # in which it served
    version: int
    code: str  # name of its folder in code/
    module: str  # as the config named it


async def kept_before(config: ReplicaConfig) -> KeptBefore:
    """Find the code of the generation before head's.

    Args:
        config: of a replica of the shard.

    Raises: UpgradeRefused where there is none, or it is of a later version; FormerCodeMissing; as `inspect`.
    """
    return _kept_before(await inspect(config))


def _kept_before(look: Inspection) -> KeptBefore:
    directory = look.config.directory
    named = "name its source: `deathless upgrade --to PATH:ATTR`"
    if not look.view.head:
        raise UpgradeRefused(f"{directory}: there is no log yet, so there is nothing to go back to", remedy="start it")
    head = look.reader.routes.cut(look.view.head)
    if head.generation == 1:
        raise UpgradeRefused(
            f"{directory}: the service was never upgraded, so there is nothing to go back to",
            remedy="`deathless upgrade --to PATH:ATTR` gives it other code",
        )
    upgraded, before = _record(look, head.upgraded_lsn), head.generation - 1
    if upgraded is None:
        raise UpgradeRefused(
            f"{directory}: the log of generation {before} was collected, and nothing else names its code",
            remedy=named,
        )
    if _goes_on(look, head, upgraded):
        upgraded, before = (
            msgspec.structs.replace(
                upgraded, from_fingerprint=bytes(head.fingerprint), from_version=upgraded.to_version
            ),
            head.generation,
        )
    found = recorded(directory, upgraded.from_fingerprint)
    if found is None or found.folder is None:
        raise FormerCodeMissing(
            f"the code {upgraded.from_fingerprint.hex()[:12]} of generation {before} is not kept any more",
            remedy=named,
        )
    modules_in(found.folder)
    if upgraded.from_version > upgraded.to_version:
        raise UpgradeRefused(
            f"generation {before} was of version {upgraded.from_version}, later than version {upgraded.to_version}, "
            "which serves",
            remedy=named,
        )
    return KeptBefore(before, upgraded.from_version, found.folder.name, found.record.module)


def _goes_on(look: Inspection, head: Cut, upgraded: Upgraded) -> bool:
    """Was this command given before, and ended itself behind the commit? Then what it left is to be seen to."""
    left = LocalUpgraders(look.config.directory, {}, 1)
    left.find_left_by(head)
    if not left.names:
        return False
    if upgraded.from_version != upgraded.to_version:
        return upgraded.from_version > upgraded.to_version
    earlier = (cut for cut in cuts_of(look) if cut.generation == head.generation - 2)
    return any(cut.fingerprint == head.fingerprint for cut in earlier)


def _record(look: Inspection, lsn: int) -> Upgraded | None:
    """Read the record that a generation began with; None: it was collected. Raises: DataCorrupt errors, OSError."""
    try:
        frame = next(frames_between(look, lsn - 1, lsn), None)
    except LogTruncated:
        return None
    return None if frame is None else decode_upgraded(decode(decode_data(frame).blob).args)
