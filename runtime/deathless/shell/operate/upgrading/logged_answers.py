"""Has new code run what was logged lately, and compares the digests: who is answered otherwise is found before the cut.

It is for code that leaves the interface and all states as they are, and that nobody gave a word for: a fixed bug, a new
handler, another library. The log holds a digest of each state and reply, so the former code is not needed, and one
process with one state is. The first difference ends the run. One that the code declares (`changes(changed=...)`) is
meant; any other is refused with lsn, handler, key, and what the new code gives. So is code whose process ends in it,
and code whose turn does not end. A log that takes longer than there is time is compared as far as that goes.

Guarantees: nothing is written; a log that can't be run again now holds nothing back, and a difference that was met
always does. Does not: look for what a query gives, for how long a handler waits (it is told that it waits), or for what
comes behind the first difference (`deathless upgrade rehearse` does). Source: design 0027, "What was logged is run
again".
"""

from __future__ import annotations

import asyncio
from typing import Final

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import DeathlessError, Diverged, UpgradeRefused
from deathless.shell.operate.replay import NOT_COMPARED, ReplayEnded, ReplayOrder, replay

RECENT: Final = 20_000  # messages that are run at least, where the log has them behind a checkpoint
RUN_S: Final = 60.0  # what has not been run by then is not compared
TURNS_S: Final = 30
"""The turns of one frame end within this; a worker would be ended after a turn of `turnMaxS`, 10 s."""
WAIT_S: Final = 3 * RUN_S
"""All of it has ended by then, where the code can be loaded: the run, and the run up to a difference to explain it."""
TOLD: Final = ("the run ends", NOT_COMPARED)
"""How notes of a run begin that are told."""


async def compare_with_log(config: ReplicaConfig, upgrade: UpgradeConfig) -> str:
    """Run what was logged lately; gives what came of it, for people.

    Args:
        config: of a replica of the new code.
        upgrade: that is to be made.

    Raises: UpgradeRefused with the first difference that is not declared, or where the code ends its process.
    """
    order = ReplayOrder(
        written_by=bytes.fromhex(upgrade.from_fingerprint),
        recent=RECENT,
        seconds=RUN_S,
        turns_s=TURNS_S,
        any_code=True,
        declared_from=upgrade.from_version,
    )
    try:
        found = await asyncio.wait_for(replay(config, order), WAIT_S)
    except TimeoutError:
        return f"what was logged lately was not run again within {WAIT_S:g} s, and is not compared"
    except Diverged as error:
        raise UpgradeRefused(
            f"AnswerDiffers: what was logged gives something else now: {error.message}",
            remedy="declare it with changes(changed=...), or say that it is meant: `kubectl deathless upgrade "
            f"{config.service} --go`",
        ) from None
    except ReplayEnded as error:
        raise UpgradeRefused(
            f"ProcessEnds: what was logged ends a process with the new code: {error.message}",
            remedy="its last words are in the log of this pod; see which message it is with `deathless log export` and "
            "`deathless replay --any-code`",
        ) from None
    except DeathlessError as error:
        return f"what was logged lately can't be run again now, and is not compared: {error.message}"
    told = f"{found.messages:,} messages of the log give the same states and replies"
    return "; ".join((told, *(note for note in found.notes if note.startswith(TOLD))))
