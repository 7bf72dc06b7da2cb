"""What a replica applies: everything confirmed, from a checkpoint on, by one code and of one generation of it.

Why it exists: the same rules hold wherever frames come from (the log at start, the log read live, the stream, the tail
of a takeover), and they are about whose code may run what (I6, design 0026). Head's cut says of which code and of which
generation the log is. A checkpoint counts if it is of just that code and generation; every other one is passed over,
also a newer one, for an upgrade that was let go leaves one behind.

    head's cut is of        and our state is of      then
    our code                its generation           we go on
    our code                another generation       GenerationEnded: the process starts again with its checkpoint
    other code              whichever                UpgradeRequired: an operator starts the code that the log is of
    a later generation than an upgrader is made of   GenerationEnded: whether its code is the log's now, the start says

Guarantees: no frame of the log is applied before head's cut was compared with our code; no checkpoint of another
generation is ever restored, and no frame behind an upgrade is ever run on a state of before it. Does not: decide when
to read. May import core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from deathless.base.errors import CorruptFrame, DeathlessError, GenerationEnded, LogTruncated, UpgradeRequired
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Cut, Frame
from deathless.codec.generations import FIRST, NEWEST, Generation
from deathless.codec.snapshot import Head, Snapshot
from deathless.core.replica.replica import ShardPlace
from deathless.engine.ports import LockView, LogStore
from deathless.engine.replica.outside import Checkpoints
from deathless.engine.replica.witness_keeper import WitnessKeeper

READ_BYTES: Final = 32 << 20  # of log applied between two looks at the rest of the world


class Code(NamedTuple):
    """The code that runs here.

    Attributes:
        adopted: (fingerprint of other code, lsn) pairs from which an operator lets this code go on.
        fingerprint: as a log that begins now carries it.
        what_differs: says how the code with a fingerprint differs from ours; empty: nobody knows.
        spellings: other fingerprints that mean our code; the one that head's cut has is the one that we write.
        level: newest format level that is known here (codec.generations); a log that begins has it.
    """

    fingerprint: bytes
    adopted: frozenset[tuple[bytes, int]] = frozenset()
    what_differs: Callable[[bytes], str] = lambda _: ""
    spellings: frozenset[bytes] = frozenset()
    level: int = NEWEST

    def means(self, fingerprint: bytes) -> bool:
        """Does a fingerprint mean this code?"""
        return fingerprint == self.fingerprint or fingerprint in self.spellings

    def spelled(self, fingerprint: bytes) -> Code:
        """Give this code under another of its fingerprints."""
        return self._replace(fingerprint=fingerprint, spellings=self.spellings | {self.fingerprint})


class Runner(Protocol):
    """What runs confirmed frames, and knows where it stands then: a shard."""

    def restore(self, snapshot: Snapshot, *, same_code: bool) -> None:
        """Replace everything by a checkpoint's content; of other code, what does not fit ours is held."""
        ...

    def apply(self, frame: Frame) -> object:
        """Run a confirmed frame and compare. Raises: Diverged, CorruptFrame, UpgradeRequired at an upgrade's record."""
        ...


class Applying:
    """One replica's.

    Args:
        place: where the shard stands.
        runner: runs what is confirmed: the shard itself.
        code: what runs here.
        upgrades_from: generation of the log that we are here to upgrade; None: none.
    """

    def __init__(
        self,
        *,
        place: ShardPlace,
        runner: Runner,
        log: LogStore,
        checkpoints: Checkpoints,
        witness: WitnessKeeper,
        replica: str,
        code: Code,
        safeguards: Safeguards,
        upgrades_from: int | None = None,
    ) -> None:
        self.code = code
        self._upgrades_from = upgrades_from  # None as well once the upgrade is made
        self.log_epoch = 0  # epoch of the last frame applied
        self._place = place
        self._runner = runner
        self._log = log
        self._checkpoints = checkpoints
        self._witness = witness
        self._replica = replica
        self._safeguards = safeguards

    # ---- whose code --------------------------------------------------------------------------------------------

    def check_head(self, view: LockView) -> None:
        """Compare our code with the log's, before the lock is taken: who can't lead deposes nobody.

        Raises: UpgradeRequired, GenerationEnded; NewerFormat, ForeignDirectory, OSError. A log that looks broken is
            judged once the lock is ours.
        """
        if not view.head or not self._safeguards.compare_before_take:
            return
        try:
            cut = self._log.check_head(view.head)
        except (LogTruncated, CorruptFrame):  # a successor opened since the lock was looked at; or a cache is filling
            return
        self.check_code(cut)

    def check_code(self, cut: Cut | None) -> None:
        """Other code never replays; it upgrades (I6). Nor does ours run across an upgrade.

        A log that knows our code by another of its fingerprints goes on under that one: an older release beside us,
        which may lead next, knows no other.

        Raises: UpgradeRequired, GenerationEnded.
        """
        if cut is None:
            return
        self._place.begin_with(cut)
        if self.code.means(cut.fingerprint):
            self.code = self.code.spelled(cut.fingerprint)
        place, generation = self._place, cut.of_generation()
        if self.of_other_code(cut) and not self._adopts(cut.fingerprint, place.lsn):
            raise self._other_code(cut)
        if generation != place.generation and self._safeguards.compare_generation:
            raise _ended(generation, place.generation.number)

    def begin_log(self) -> None:
        """We write the first epoch of all: its level is the newest that we know."""
        self._place.generation = FIRST._replace(level=self.code.level)

    def of_other_code(self, cut: Cut) -> bool:
        """Does the cut name other code than ours?"""
        return not self.code.means(cut.fingerprint) and self._safeguards.check_fingerprint

    def _other_code(self, cut: Cut) -> DeathlessError:
        if self._upgrades_from not in (None, cut.generation):
            return _ended(cut.of_generation(), self._place.generation.number)  # another made it, or another upgrade
        return UpgradeRequired(
            f"the log of epoch {self.log_epoch} was written by other code, interpreter or libraries, or with other "
            f"limits of what is replicated{_numbered(cut.of_generation())}{self._told(cut.fingerprint)}"
        )

    def _adopts(self, fingerprint: bytes, lsn: int) -> bool:
        """Did an operator accept our code for state that other code made, at just this lsn?"""
        return (fingerprint, lsn) in self.code.adopted

    def _told(self, theirs: bytes) -> str:
        told = self.code.what_differs(theirs)
        return f": {told}" if told else ""

    def refused(self, text: str) -> DeathlessError:
        """The primary refuses us for our code; whether an upgrader's is the right one now, its next start finds out."""
        return UpgradeRequired(text) if self._upgrades_from is None else GenerationEnded(text)

    def follower_refusal(self, fingerprint: bytes) -> UpgradeRequired | None:
        """Why a follower with this fingerprint may not have our stream; None: it may."""
        if self.code.means(fingerprint) or not self._safeguards.check_fingerprint:
            return None
        return UpgradeRequired(
            f"primary {self._replica} runs other code, interpreter or libraries, or other limits of what is "
            f"replicated{_numbered(self._place.generation)}{self._told(fingerprint)}"
        )

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def load(self, cut: Cut | None, lsn: int = -1) -> bool:
        """Load the newest checkpoint of our code and generation if it stands above `lsn`. False: there is none.

        Args:
            cut: of head; None: the log has no epoch yet.
            lsn: where we stand; -1: nowhere yet.

        Raises: UpgradeRequired, GenerationEnded where the log is of other code; LogTruncated where a generation's first
            checkpoint is not there.
        """
        place, generation = self._place, cut.of_generation() if cut is not None else FIRST
        if self._upgrades_from not in (None, generation.number):
            raise _ended(generation, place.generation.number)  # though its code may be the former one again
        adopted = cut is not None and any(fingerprint == cut.fingerprint for fingerprint, _ in self.code.adopted)
        if cut is not None and self.of_other_code(cut) and not adopted:
            raise self._other_code(cut)
        snapshot = self._checkpoints.load_newest(lambda head: self._fits(head, generation))
        if cut is not None:
            self._place.begin_with(cut)
        if snapshot is None and place.generation != generation and generation.lsn:
            snapshot = self._checkpoints.load_at(generation.lsn, generation.chain)
            if snapshot is None or not self._fits(snapshot.head(), generation):
                raise LogTruncated(
                    f"the checkpoint at lsn {generation.lsn}, with which generation {generation.number} of the code "
                    "begins, is missing, damaged, or not of this code",
                    remedy="restore it from a copy of the directory",
                )
        if snapshot is None or snapshot.lsn <= lsn:
            return False
        self._runner.restore(snapshot, same_code=self.code.means(snapshot.fingerprint))
        self._witness.restored(place.lsn, place.chain)
        self.log_epoch = snapshot.epoch
        return True

    def _fits(self, head: Head, generation: Generation) -> bool:
        if not self._safeguards.check_fingerprint:
            return True
        ours = self.code.means(head.fingerprint) or self._adopts(head.fingerprint, head.lsn)
        return ours and (head.of_generation() == generation or not self._safeguards.compare_generation)

    # ---- the log -----------------------------------------------------------------------------------------------

    def apply(self, frames: Sequence[tuple[Frame, bytes]]) -> None:
        """Run confirmed frames. Raises: Diverged, CorruptFrame, GenerationEnded."""
        for frame, _ in frames:
            self.apply_one(frame)

    def goes_on(self, code: Code, runner: Runner) -> None:
        """From here on other code runs what is confirmed."""
        self.code, self._runner, self._upgrades_from = code, runner, None

    def apply_one(self, frame: Frame) -> None:
        """Run a confirmed frame. Raises: as `apply`."""
        if self._place.lsn == 0 and frame.count:  # where it comes by the stream, the log had no epoch when we looked
            try:
                self._place.begin_with(self._log.check_head(frame.epoch))
            except LogTruncated as error:  # it was collected meanwhile: the next start has a checkpoint
                raise GenerationEnded(error.message) from error
        try:
            self._runner.apply(frame)
        except UpgradeRequired as error:  # an upgrade was made while we followed: what runs now the next start asks
            raise GenerationEnded(error.message) from error
        self._witness.applied(frame)
        self.log_epoch = frame.epoch

    def read_stretch(self, head: int) -> bool:
        """Apply what stands in the log behind our place, READ_BYTES of it at most. True: that was its end."""
        place = self._place
        try:
            frames, end = self._log.read(head, place.lsn, place.chain, bytes_max=READ_BYTES)
        except LogTruncated:
            # Collection does not wait for a replica that nobody reaches: what it lacks is in a checkpoint then.
            if not self.load(self._log.check_head(head), place.lsn):
                raise
            frames, end = self._log.read(head, place.lsn, place.chain, bytes_max=READ_BYTES)
        self.apply(frames)
        return end


def _ended(now: Generation, ours: int) -> GenerationEnded:
    return GenerationEnded(
        f"the log is of generation {now.number} of the code since lsn {now.lsn}, this replica's state is of generation "
        f"{ours}"
    )


def _numbered(generation: Generation) -> str:
    return f" (generation {generation.number}, since lsn {generation.lsn})" if generation.lsn else ""
