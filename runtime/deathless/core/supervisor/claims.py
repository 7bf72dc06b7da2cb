"""What other replicas say of themselves, as far as it may be believed.

A report is hearsay. Two things in it could stop a replica for good if they were kept: a confirmed lsn that no log
reaches, and an epoch that nobody was ever given.

    applied lsn   one per sender, replaced by the same worker's next word, also by a lower one; a later worker that
                  finds less takes nothing back. Gone with the sender's process, and once that was unheard for CLAIM_S
    epoch         above the lock's: asked of the lock, once for a pair of sender and epoch, again after ASK_LOCK_AGAIN_S
                  DOUBTED --answer: not above any more, and held by the sender--> believed
                     |  '--answer: still above, or another's--> DENIED, until the lock says otherwise
                     '--no answer for UNANSWERED_S--> believed until there is one

Guarantees: nothing here outlives who said it, and nothing grows beyond one entry per sender. Does not: make anything
safe (the lock and the fence do); ask the lock itself. Imports base only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards

CLAIM_S: Final = 5.0  # a claim counts for so long after its sender was last heard
ASK_LOCK_AGAIN_S: Final = 1.0  # the lock is asked about the same sender and epoch no sooner
UNANSWERED_S: Final = 1.0  # without an answer of the lock a claim is believed after this


@dataclass(slots=True)
class _Applied:
    """What one replica says that it has applied."""

    lsn: int
    process: tuple[int, int]  # who said it: process id and generation of the supervisor
    at: float  # when the sender was last heard, monotonic seconds
    ended: bool = False  # the worker that said it has ended: only its process can take it back now


@dataclass(slots=True)
class _Question:
    """About one sender's epoch."""

    epoch: int
    since: float  # when it was first said
    asked_at: float | None = None
    denied: bool = False


class Claims:
    """What is claimed, by the name of who claims it.

    Args:
        replica: ours, whose worker is believed.
    """

    def __init__(self, replica: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.lock_epoch: int | None = None  # the last that the lock gave, when it was last asked; None: never
        self._lock_holder = ""  # whose it is; empty: nobody's any more
        self._replica = replica
        self._safeguards = safeguards
        self._applied: dict[str, _Applied] = {}
        self._confirmed = 0  # the highest ever said: only without the safeguard
        self._questions: dict[str, _Question] = {}
        self._asked_at: float | None = None  # an answer is awaited since then

    # ---- applied lsn -----------------------------------------------------------------------------------------

    def heard(self, replica: str, process: tuple[int, int], lsn: int | None, now: float, *, works: bool = True) -> None:
        """A replica reports.

        Args:
            replica: which one.
            process: who says it, process id and generation of its supervisor.
            lsn: what it says that it has applied; None: nothing.
            now: monotonic seconds.
            works: False: its worker has ended, or only starts; what the next one finds takes nothing back.
        """
        before = self._applied.get(replica)
        if before is not None and before.process != process:
            before = None
            del self._applied[replica]
        if before is not None:
            before.at = now
            before.ended = before.ended or not works
        if lsn is not None and (before is None or lsn >= before.lsn or not before.ended):
            self._applied[replica] = _Applied(lsn, process, now)
            self._confirmed = max(self._confirmed, lsn)

    def confirmed(self, now: float) -> int:
        """Give the highest lsn that a replica which is still heard says it has applied."""
        if not self._safeguards.claims_expire:
            return self._confirmed
        return max((each.lsn for each in self._applied.values() if now - each.at <= CLAIM_S), default=0)

    def forget(self, replica: str) -> None:
        """A replica was removed."""
        self._applied.pop(replica, None)
        self._questions.pop(replica, None)

    # ---- epochs ----------------------------------------------------------------------------------------------

    def believed(self, replica: str, epoch: int, now: float, *, leads: bool = False) -> bool:
        """May this epoch, said by this replica, be true? Notes what the lock is to be asked.

        Args:
            replica: who says it.
            epoch: what it says.
            now: monotonic seconds.
            leads: the replica says that it is primary in it, so that the lock must be, or have been, its own.
        """
        if self.lock_epoch is None or replica == self._replica or not self._safeguards.claims_bounded:
            return True
        if epoch < self.lock_epoch or (epoch == self.lock_epoch and not (leads and self._is_anothers(replica))):
            self._questions.pop(replica, None)
            return True
        question = self._questions.get(replica)
        if question is None or question.epoch != epoch:
            question = self._questions[replica] = _Question(epoch, now)
        return not question.denied and now - question.since > UNANSWERED_S

    def doubted(self, now: float) -> bool:
        """Does an answer of the lock decide soon whether somebody leads?"""
        return any(not each.denied and now - each.since <= UNANSWERED_S for each in self._questions.values())

    def question_due(self, now: float) -> bool:
        """Is the lock to be asked now? True once for each time; `lock_answered` brings what it says."""
        if not self._safeguards.claims_bounded:
            return False
        if self._asked_at is not None and now - self._asked_at < ASK_LOCK_AGAIN_S:
            return False  # the answer to the one before is awaited
        due = [q for q in self._questions.values() if q.asked_at is None or now - q.asked_at >= ASK_LOCK_AGAIN_S]
        for question in due:
            question.asked_at = now
        if due or self.lock_epoch is None:
            self._asked_at = now
            return True
        return False

    def lock_answered(self, epoch: int, holder: str) -> None:
        """The lock says which epoch it gave last, and whose it is (empty: nobody's any more)."""
        self._asked_at = None
        self.lock_epoch, self._lock_holder = epoch, holder
        for replica, question in list(self._questions.items()):
            if question.asked_at is None:
                continue  # said after the lock was asked
            if question.epoch > epoch or (question.epoch == epoch and self._is_anothers(replica)):
                question.denied = True
            else:
                del self._questions[replica]

    def _is_anothers(self, replica: str) -> bool:
        return self._lock_holder not in ("", replica)
