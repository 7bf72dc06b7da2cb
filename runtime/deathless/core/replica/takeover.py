"""The takeover, step by step (design 0003, "Takeover"): the order is the safety argument.

    LOOKING -> TAKING -> SEALING -> READING -> CUTTING -> SETTING_HEAD -> OPENING -> PROVING -> APPLYING -> DONE
       |          |                    |  ^                    |                                |
       '-> LOST <-'             MIGRATING-'                    '----------> LOST <--------------'
                        (of an upgrade) '--failed--> LOST
    (TAKING --refused--> LOOKING, at most REFUSALS_MAX times)

1 take or steal the lock and raise epoch in one transaction; 2 seal every epoch from head to ours - 1; 3 only now read,
through fresh descriptors, from head, never from a higher epoch found in the directory; 4 write cut and copies, sync
file and folder; 5 set head, guarded by the lock; 6 sync an opening frame; 7 prove; 8 serve. Dying before 5 leaves a
file that nobody reads, and so does dying before anything is confirmed, once a successor's cut continues from where
this one's did: who has proved that head is its own removes such files. A take is refused when the lock changed since
the look. Often nobody was faster: a primary that hands over lets go of the lock while its heir takes it, so the heir
looks again; a successor shows there by its higher epoch. LOST is no failure: somebody else took over; the replica
begins again as a follower, in a new process once it had taken the lock, since its epoch is then spent.

Of an upgrade (design 0026), step 4 is to make of the state what other code goes on with, and to write its checkpoint
and the record UPGRADED, which is the one frame behind the cut; it is done only where the log, read under the lock, ends
at the place that the hand-over named, with nothing unconfirmed. Step 5 is then what commits the upgrade. Where anything
before it fails, or takes too long, the lock is let go of, and a replica of the code of before goes on. Once the request
to set head may have left, there are two ways only: head is ours, or the lock is another's.

Does not: decide when to try (detection does). Imports core, codec, base.
"""

from __future__ import annotations

import enum
from typing import assert_never

import msgspec

from deathless.base.errors import DeathlessError, Deposed, UpgradeCalledOff
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import FrameKind, Opening
from deathless.core.effects import (
    ApplyCopies,
    Effect,
    LinkSeals,
    Migrate,
    Prove,
    ReadLock,
    ReadTail,
    ReleaseLock,
    RemoveUnread,
    SetHead,
    StopReplica,
    TakeLock,
    WriteControl,
    WriteCut,
)
from deathless.core.events import (
    ControlSynced,
    CopiesApplied,
    CutWritten,
    HeadSet,
    LockRefused,
    LockSeen,
    LockTaken,
    Migrated,
    ProofAnswered,
    SealsLinked,
    TailRead,
    TailSummary,
    UpgradeFailed,
)


class Step(enum.Enum):
    """Where a takeover stands; the picture is in the module's docstring."""

    LOOKING = "looking"
    TAKING = "taking"
    SEALING = "sealing"
    READING = "reading"
    MIGRATING = "migrating"
    CUTTING = "cutting"
    SETTING_HEAD = "setting head"
    OPENING = "opening"
    PROVING = "proving"
    APPLYING = "applying"
    DONE = "done"
    LOST = "lost"


REFUSALS_MAX = 3  # of the take in one attempt; then the detector decides again
OPENING_PROOF = 0
"""Number of the proof of step 7; a primary's own proofs count from 1."""

TakeoverEvent = (
    LockSeen
    | LockTaken
    | LockRefused
    | SealsLinked
    | TailRead
    | Migrated
    | UpgradeFailed
    | CutWritten
    | HeadSet
    | ControlSynced
    | ProofAnswered
    | CopiesApplied
)


class Takeover:
    """One attempt. `handle` gives the next effects; read `step` afterwards.

    Args:
        suspected_epoch: the epoch whose primary is thought gone; a higher one in the lock ends the attempt.
        confirmed_lsn: the highest lsn that this or any reachable replica knows confirmed.
        upgrade_at: lsn at which the primary handed over to an upgrade; None: this is none.
    """

    def __init__(
        self, *, suspected_epoch: int, confirmed_lsn: int, safeguards: Safeguards, upgrade_at: int | None = None
    ) -> None:
        self.step = Step.LOOKING
        self.epoch = 0
        self.head = 0
        self.last_lsn = 0
        self.seen_epoch = 0  # highest epoch the lock showed
        self.gap_us = 0  # what has passed since the last time record, as far as it is known; set by the last step
        self.confirmed_lsn = confirmed_lsn
        self._refusals = 0
        self._revision = 0  # of the lock store, when it set our head
        self._suspected_epoch = suspected_epoch
        self._upgrade_at = upgrade_at
        self._safeguards = safeguards

    def begin(self) -> list[Effect]:
        """Look at the lock."""
        return [ReadLock()]

    @property
    def holds_epoch(self) -> bool:
        """The lock was taken: this process has spent an epoch and can't go back to following."""
        return self.epoch > 0

    def handle(self, event: TakeoverEvent) -> list[Effect]:
        """Take the answer to the step before, give the next step."""
        match event:
            case LockSeen(lock):
                return self._lock_seen(lock.holder_epoch, lock.epoch)
            case LockTaken(epoch, head):
                return self._lock_taken(epoch, head)
            case LockRefused():
                return self._lock_refused()
            case SealsLinked():
                self._expect(Step.SEALING)
                self.step = Step.READING
                return [ReadTail(self.head, self.confirmed_lsn)]
            case TailRead(tail):
                self._expect(Step.READING)
                self.last_lsn = tail.last_lsn
                if self._upgrade_at is not None:
                    return self._migrate(tail, self._upgrade_at)
                return self._cut() if self._safeguards.cut_before_head else self._set_head()
            case Migrated(lsn):
                self._expect(Step.MIGRATING)
                self.last_lsn = lsn
                return self._cut()
            case UpgradeFailed(error):
                self._expect(Step.MIGRATING)
                return self._let_go(error)
            case CutWritten():
                self._expect(Step.CUTTING)
                if not self._safeguards.unread_after_proof:
                    return [RemoveUnread(), *self._set_head()]
                return self._set_head() if self._safeguards.cut_before_head else self._open()
            case HeadSet(revision):
                return self._head_set(revision)
            case ControlSynced():
                self._expect(Step.OPENING)
                self.step = Step.PROVING
                return [Prove(OPENING_PROOF)]
            case ProofAnswered(_, owned):
                return self._proved(owned)
            case CopiesApplied(_, gap_us):
                self.gap_us = gap_us
                self._expect(Step.APPLYING)
                self.step = Step.DONE
                return []
            case _:
                assert_never(event)

    def _expect(self, step: Step) -> None:
        assert self.step is step, f"takeover in {self.step}, expected {step}"

    def _lock_seen(self, holder_epoch: int, epoch: int) -> list[Effect]:
        self._expect(Step.LOOKING)
        self.seen_epoch = max(holder_epoch, epoch)
        if holder_epoch > self._suspected_epoch:
            self.step = Step.LOST  # a newer primary than the one suspected: follow it
            return []
        self.step = Step.TAKING
        return [TakeLock()]

    def _lock_refused(self) -> list[Effect]:
        self._expect(Step.TAKING)
        self._refusals += 1
        if self._refusals > REFUSALS_MAX:
            self.step = Step.LOST
            return []
        self.step = Step.LOOKING
        return [ReadLock()]

    def _lock_taken(self, epoch: int, head: int) -> list[Effect]:
        self._expect(Step.TAKING)
        assert epoch > head
        self.epoch = epoch
        self.head = head
        if not self._safeguards.seal_before_read:
            self.step = Step.READING
            return [ReadTail(head, self.confirmed_lsn)]
        self.step = Step.SEALING
        first = max(head, 1) if self._safeguards.seal_every_epoch else max(epoch - 1, 1)
        return [LinkSeals(first, epoch - 1)]

    def _migrate(self, tail: TailSummary, upgrade_at: int) -> list[Effect]:
        """Go on only where everything is confirmed, and the log ends where the hand-over said.

        Else somebody led meanwhile, or the primary went on: the former code has to run what it wrote.
        """
        if (tail.copies or tail.last_lsn != upgrade_at) and self._safeguards.upgrade_confirmed_only:
            return self._let_go(
                UpgradeCalledOff(
                    f"the log ends at lsn {tail.last_lsn}, with {tail.copies} frames that are not confirmed; "
                    f"the primary handed over at lsn {upgrade_at}"
                )
            )
        self.step = Step.MIGRATING
        return [Migrate(self.epoch)]

    def _let_go(self, error: DeathlessError) -> list[Effect]:
        self.step = Step.LOST
        return [ReleaseLock(), StopReplica(error)]

    def _cut(self) -> list[Effect]:
        self.step = Step.CUTTING
        return [WriteCut(self.epoch)]

    def _set_head(self) -> list[Effect]:
        self.step = Step.SETTING_HEAD
        return [SetHead()]

    def _head_set(self, revision: int | None) -> list[Effect]:
        self._expect(Step.SETTING_HEAD)
        if revision is None:
            return self._deposed("head")
        self._revision = revision
        return self._open() if self._safeguards.cut_before_head else self._cut()

    def _open(self) -> list[Effect]:
        if not self._safeguards.opening_frame:
            self.step = Step.PROVING
            return [Prove(OPENING_PROOF)]
        self.step = Step.OPENING
        payload = msgspec.msgpack.encode(Opening(self.last_lsn, self._revision, self.head))
        return [WriteControl(FrameKind.OPENING, payload, self.last_lsn)]

    def _proved(self, owned: bool) -> list[Effect]:
        self._expect(Step.PROVING)
        if not owned:
            return self._deposed("proof")
        self.step = Step.APPLYING
        # Before the copies: a primary that dies of them, or of the first call, has given back what others like it left.
        return [RemoveUnread(), ApplyCopies()] if self._safeguards.remove_unread else [ApplyCopies()]

    def _deposed(self, where: str) -> list[Effect]:
        self.step = Step.LOST
        return [StopReplica(Deposed(f"epoch {self.epoch}: a successor was faster at the {where}"))]
