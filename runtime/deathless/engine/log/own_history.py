"""Which checkpoints are of the log beside them, and which of another history.

Why it exists: a checkpoint lets the log below it go. A restore that put back some files and not others, or a log that
was put back and grew again, leaves checkpoints whose messages this log never had. Counted, one of them would let the
only copy of this log's messages be collected, and the checkpoints that could replace it be pruned.

    the log's chain hash at a checkpoint's lsn is      the checkpoint
    the one in its name                                counts
    another, or the log ends before it                 is foreign: counts for nothing, and a start from it is refused
    not known: the log was collected above that lsn    counts for nothing; it can't be joined to the log any more

Guarantees: nothing is written. Does not: read the checkpoints themselves. May import codec and base.
"""

from __future__ import annotations

from collections.abc import Iterable

from deathless.engine.log.checkpoint_store import CheckpointName, CheckpointStore
from deathless.engine.log.reader import LogReader
from deathless.engine.ports import FileSystem
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards


def counted_on_log(
    filesystem: FileSystem, store: CheckpointStore, head: int, safeguards: Safeguards = ALL_SAFEGUARDS
) -> list[int]:
    """Give the lsns of the verified checkpoints that the log of this head passes through, ascending.

    Raises: LogTruncated, CorruptFrame, NewerFormat, OSError where the log can't be read.
    """
    counted = store.counted()
    if safeguards.checkpoints_of_this_log:
        # A reader that meets the same unfinished frame twice calls it damaged; each of these looks once.
        counted = [each for each in counted if LogReader(filesystem).chain_at(head, each.lsn) == each.chain]
    return sorted(each.lsn for each in counted)


def foreign(filesystem: FileSystem, head: int, end: int, names: Iterable[CheckpointName]) -> list[CheckpointName]:
    """Give the checkpoints that are of another history than the log of this head, which ends well at lsn `end`.

    Raises: as `counted_on_log`.
    """
    reader = LogReader(filesystem)
    return [each for each in names if each.lsn > end or reader.chain_at(head, each.lsn) not in (None, each.chain)]
