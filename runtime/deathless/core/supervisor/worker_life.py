"""One life of a worker, from its start until it is dead and everything it said was told.

    none --begin--> runs --exited--> dead, last words awaited --line ended, or LAST_WORDS_S--> none

Guarantees: what one life was told, or said, is never taken for the next one's. Does not: decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deathless.base.errors import Deposed
from deathless.core.supervisor.records import Stopping

LAST_WORDS_S: Final = 0.25
"""After a worker's death the end of its line is waited for so long."""
NEVER: Final = float("inf")


@dataclass(slots=True, kw_only=True)
class WorkerLife:
    """See the module; times are monotonic seconds."""

    has_line: bool = False  # it was started, and is not done with
    line_open: bool = False  # it hears what it is told
    line_ended: bool = False  # everything it said was told
    told_to_stop: bool = False
    end_ordered: bool = False  # we end it: its death is no message's doing
    killed: bool = False  # it will be dead as soon as the kernel is done with it
    ends_by: float = NEVER  # it was told, or said, to end, and is killed then
    exit_code: int | None = None  # it is dead
    died_at: float = 0.0
    last_words: Stopping | None = None
    code_is_gone: bool = False  # that of the log, which it was not: it is not kept

    @property
    def dead(self) -> bool:
        """Is it dead, and its last words awaited?"""
        return self.exit_code is not None

    @property
    def hears(self) -> bool:
        """May it be told something?"""
        return self.has_line and not self.dead

    @property
    def ended_in_order(self) -> bool:
        """Did it say that it ends for nothing that went wrong with it?"""
        return self.last_words is not None and self.last_words.code in ("", Deposed.code)

    def last_words_overdue(self, now: float) -> bool:
        """Was the end of its line waited for long enough?"""
        return self.dead and now - self.died_at > LAST_WORDS_S
