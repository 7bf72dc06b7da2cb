"""Which code wrote what of a log, and from which checkpoints it may be run: for tools.

The cuts say it, followed back from head: each names the code of its epoch, and where the generation of that code began.
The checkpoint that a generation begins with bears no mark, for head announced it (design 0026). Only that of the very
place that a cut names counts: an attempt that was let go leaves one at the same lsn.

Guarantees: cuts alone are read, one for each epoch that the log still holds. Does not: judge the log. May import
engine, codec and base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deathless.base.errors import CorruptCheckpoint, LogTruncated
from deathless.codec.frames import ORIGIN, Cut
from deathless.codec.snapshot import Snapshot
from deathless.engine.log.checkpoint_store import CheckpointName
from deathless.shell.lock_stores.inspection import Inspection


def cuts_of(look: Inspection) -> Iterator[Cut]:
    """Give the cuts that the log still holds, head's first. Raises: DataCorrupt errors, OSError."""
    epoch = look.view.head
    while epoch != ORIGIN.epoch:
        try:
            cut = look.reader.routes.cut(epoch)
        except LogTruncated:
            if epoch == look.view.head:
                raise
            return  # collected
        yield cut
        epoch = cut.base.epoch


def loadable(look: Inspection) -> list[CheckpointName]:
    """Give the checkpoints from which the log may be run, newest first. Raises: as `cuts_of`."""
    firsts = {(cut.upgraded_lsn, cut.upgraded_chain) for cut in cuts_of(look)}
    names = look.checkpoints.names(announced_only=False)
    return [each for each in names if (each.lsn, each.chain) in firsts or look.checkpoints.announced(each.name)]


def newest_of_head(look: Inspection) -> Snapshot | None:
    """Read the newest checkpoint of the code that head names; None: none of it reads back well. Raises: as `cuts_of`.

    Right behind an upgrade the newest one that bears a mark is of the former code.
    """
    head = next(cuts_of(look), None)
    for each in loadable(look):
        if head is not None and each.lsn < head.upgraded_lsn:
            return None
        with contextlib.suppress(CorruptCheckpoint, FileNotFoundError):
            return look.checkpoints.load(each.name)
    return None


def cut_at(look: Inspection, lsn: int) -> Cut | None:
    """Give the cut of the epoch that a message is of; None: it is not in the log any more. Raises: as `cuts_of`."""
    return next((cut for cut in cuts_of(look) if cut.base.lsn < lsn), None)
