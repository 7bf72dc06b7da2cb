"""When a primary has a checkpoint taken, which ones count, and below what the log may go.

    own:      RESTING -> WRITING (TakeCheckpoint) -> VERIFYING (VerifyCheckpoint) -> RESTING
                 ^----------- not written -------------------- not readable ----------'
    others':  announced by the checkpointer -> read back by another process (VerifyCheckpoint) -> counts

The checkpointer decides by itself when to take one (core.replica.follower), by the same two maximums; the primary takes
one only with no checkpointer alive (I9), and at once when a follower has computed something else than was logged: then
what the primary holds is what was released, so its checkpoint is logged as REBASED and the others reload it (I6). For
that, only one at or above everything that ran when the difference was reported will do, and one that fails is tried
again.

Collection: below the oldest of the `checkpoints_kept` newest that count, below what every connected follower has
applied, and below what a synced header calls confirmed; carried out only after a proof (core.primary). Those that
stand verified count whoever took them, also before this epoch, if their chain hash is the log's: a checkpoint that a
restore of single files left behind is of another history, and can replace nothing of this one. Nor does one count
that other code took, before an upgrade: until enough of the present code stand, everything of before is kept, should
the first of these not read back any more.

A log without room is what checkpoints are for: the newest one alone then says what may go, a follower that is behind
starts from it, and where none stands above what was collected the primary takes one at once, whoever takes them
otherwise. Nothing is admitted meanwhile, so it costs nobody anything (I9).

Does not: copy, write or read. Imports core, codec and base.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from deathless.base.limits import Limits
from deathless.core.effects import Effect, TakeCheckpoint, VerifyCheckpoint

REBASE_RETRY_S: Final = 1.0  # a rebase whose checkpoint failed takes another after this
SHORT_RETRY_S: Final = 5.0  # likewise one for want of room: each try may write a whole state before it fails


class Own(enum.Enum):
    """What is under way with the primary's own checkpoint."""

    RESTING = "resting"
    WRITING = "writing"
    VERIFYING = "verifying"


class CheckpointPlan:
    """The checkpoints of a shard, as its primary sees them.

    Args:
        generation_lsn: those below are of other code, and don't count; 0: none is.
    """

    def __init__(self, limits: Limits, generation_lsn: int = 0) -> None:
        self.own = Own.RESTING
        self._own_lsn = 0  # of the one that is verified. Meaningful while VERIFYING
        self.listed = False  # those that stood before this epoch are known
        self._limits = limits
        self._generation_lsn = generation_lsn
        self._messages = 0  # logged since the last checkpoint was taken or announced
        self._bytes = 0
        self._verified: list[int] = []  # lsns of those that count. Invariant: ascending, at most `checkpoints_kept`
        self._rebase_above: int | None = None  # a follower differs: log REBASED with a checkpoint at or above this lsn
        self._retry_at = 0.0  # not before this a rebase takes a checkpoint, monotonic seconds
        self._short_retry_at = 0.0  # likewise one for want of room, where the last one failed

    def frame_logged(self, messages: int, size: int) -> None:
        """Count what a replay would have to go through."""
        self._messages += messages
        self._bytes += size

    def maybe_take(self, now: float, *, alone: bool, short_of: int = 0) -> list[Effect]:
        """Take a checkpoint if one is due. It is announced once what it holds is confirmed.

        Args:
            now: monotonic seconds.
            alone: no checkpointer is alive.
            short_of: the log has no room, and a checkpoint of up to this lsn would let some of it go; 0: it has.
        """
        limits = self._limits
        due = self._messages >= limits.checkpoint_every_messages or self._bytes >= limits.checkpoint_every_bytes
        rebase = self._rebase_above is not None and now >= self._retry_at
        short = short_of > self.newest and now >= self._short_retry_at
        if self.own is not Own.RESTING or not ((due and alone) or rebase or short):
            return []
        self.own = Own.WRITING
        self._messages = self._bytes = 0
        return [TakeCheckpoint()]

    def rebase(self, executed_lsn: int) -> None:
        """A follower differs from what was logged up to here."""
        self._rebase_above = executed_lsn
        self._retry_at = 0.0

    def written(self, lsn: int, name: str, now: float) -> list[Effect]:
        """Our own checkpoint stands, or could not be written (no name)."""
        if not name:
            self.own = Own.RESTING
            self._failed(now)
            return []
        self.own = Own.VERIFYING
        self._own_lsn = lsn
        return [VerifyCheckpoint(lsn, name)]

    def announced(self, lsn: int, name: str) -> list[Effect]:
        """The checkpointer wrote one; have another process read it back."""
        self._messages = self._bytes = 0
        return [VerifyCheckpoint(lsn, name)]

    def verified(self, lsn: int, good: bool, now: float) -> bool:
        """A checkpoint was read back; a good one counts. True: log it as REBASED."""
        if self.own is Own.VERIFYING and lsn == self._own_lsn:
            self.own = Own.RESTING
            self._retry_at = now
            if not good:
                self._failed(now)
        if not good or lsn < self._generation_lsn:
            return False
        self._verified = sorted({*self._verified, lsn})[-self._limits.checkpoints_kept :]
        if self._rebase_above is None or lsn < self._rebase_above:
            return False
        self._rebase_above = None
        return True

    def _failed(self, now: float) -> None:
        self._retry_at = now + REBASE_RETRY_S
        self._short_retry_at = now + SHORT_RETRY_S

    def found(self, lsns: Sequence[int]) -> None:
        """Checkpoints of this log that stand verified in the directory: they count like those verified since.

        None at all means that nobody could look: the next checkpoint that is read back has it looked for again.
        """
        self.listed = bool(lsns)
        ours = (lsn for lsn in lsns if lsn >= self._generation_lsn)
        self._verified = sorted({*self._verified, *ours})[-self._limits.checkpoints_kept :]

    @property
    def floor(self) -> int:
        """Lsn up to which the log is in enough checkpoints that count; 0: there are too few."""
        return self._verified[0] if len(self._verified) >= self._limits.checkpoints_kept else 0

    @property
    def newest(self) -> int:
        """Lsn of the newest checkpoint that counts, or of that with which our generation began; 0: there is none.

        The latter was read back before the upgrade. What lies below it nobody of our code can use.
        """
        return self._verified[-1] if self._verified else self._generation_lsn

    def deadline(self) -> float | None:
        """When maybe_take has something to do that it could not do before; None: only frames change that."""
        return self._retry_at if self._rebase_above is not None and self.own is Own.RESTING else None

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        assert self._verified == sorted(set(self._verified))
        assert len(self._verified) <= self._limits.checkpoints_kept
