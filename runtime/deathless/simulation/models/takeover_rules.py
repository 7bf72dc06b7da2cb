"""The readings of takeover that the takeover model compares, and the bounds within which it does.

Why it exists: each safeguard of the takeover (design 0003, "Takeover") is one choice among a few that look alike. Here
every choice has a name, so that a test can switch one safeguard off and show the run in which something is lost.

What it guarantees: ``Rules()`` is what the design prescribes for a lock in etcd; ``DIRECTORY_LOCK`` below is
what it prescribes for the lock in the directory itself. What each choice does is said in ``takeover_model``.

Imports only ``takeover_log``. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum

from deathless.simulation.models.takeover_log import AbsentFile


class Fence(StrEnum):
    """How a replica proves that no successor has taken over."""

    ETCD = "the lock's value is mine"
    SEAL = "no seal of a successor in the directory"


class SealRule(StrEnum):
    """Which seals a successor links, and which its predecessors look for."""

    CLOSES_EACH_EPOCH = "seal.N closes N, for every N from head to own epoch - 1"
    ANY_HIGHER = "a successor links its own number, any higher number deposes"
    NEXT_ONLY = "a successor links its own number, only the next number deposes"


class SealOrder(StrEnum):
    """Whether a successor seals before it reads the log."""

    SEAL_THEN_READ = "seal, then read"
    READ_THEN_SEAL = "read, then seal"


class Predecessor(StrEnum):
    """Which epoch a successor takes for the end of the log."""

    HEAD = "head"
    HEAD_IN_STALE_LISTING = "the highest head link in a listing that may be old"
    HIGHEST_CUT = "the highest epoch with a cut in the directory"
    ANY_CUT = "the highest epoch with a cut in a listing that may be old"


class HeadRule(StrEnum):
    """How a successor sets ``head``."""

    GUARDED = "in a transaction that compares the lock"
    CHECK_THEN_SET = "looks at the lock, then overwrites"
    HIGHEST_LINK = "links head.N exclusively, the highest counts"
    OVERWRITE = "overwrites, without a look at the lock"


class HeadOrder(StrEnum):
    """Whether ``head`` may point to an epoch whose cut and copies are not yet durable."""

    AFTER_SYNC = "sync, then head"
    BEFORE_SYNC = "head, then sync"


class Tail(StrEnum):
    """What a successor does with frames behind the last confirmed position."""

    COPIED = "copied behind the cut and synced"
    LEFT_IN_PLACE = "left in the predecessor's file, the cut put behind them"
    VOIDED = "left out"


class RollOrder(StrEnum):
    """How a primary goes on to a new file."""

    FILE_FIRST = "next file and entry synced, then the roll frame synced, then used"
    ENTRY_NOT_SYNCED = "next file created, entry not synced"
    FRAME_FIRST = "roll frame synced, then the next file created"
    FRAME_NOT_SYNCED = "next file used before the roll frame is synced"


class Proof(StrEnum):
    """When a primary proves that no successor has taken over."""

    AFTER_EACH_SYNC = "after each sync, before the release"
    BEFORE_APPEND = "before each append"
    AT_OPENING_ONLY = "once, when it begins to serve"


class Backup(StrEnum):
    """What a restored lock store says."""

    FIRST_HEAD = "head 1, and the lock with nobody"
    ANY_LOWER_HEAD = "any number below head, even one that was never head"
    FIRST_HEAD_AND_COUNTER = "head 1 and epoch 1, so that numbers are given again"
    FIRST_HEAD_AND_HOLDER = "head 1, held by epoch 1 as then: own? forgets to compare the store's id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One reading of the protocol, and the bounds within which it is explored. The defaults are the design."""

    fence: Fence = Fence.ETCD
    seal_rule: SealRule = SealRule.CLOSES_EACH_EPOCH
    seal_order: SealOrder = SealOrder.SEAL_THEN_READ
    predecessor: Predecessor = Predecessor.HEAD
    head_rule: HeadRule = HeadRule.GUARDED
    head_order: HeadOrder = HeadOrder.AFTER_SYNC
    tail: Tail = Tail.COPIED
    roll_order: RollOrder = RollOrder.FILE_FIRST
    proof: Proof = Proof.AFTER_EACH_SYNC
    frame_synced: bool = True
    opening_frame: bool = True
    # A reader may be shown a directory in which the newest rolled file is not yet there.
    stale_listing: bool = False
    absent_file: AbsentFile = AbsentFile.ERROR
    backup: Backup = Backup.FIRST_HEAD
    # Bounds: times the lock is taken, counted from the first primary; the others per run or per primary.
    locks_max: int = 3
    rolls_max: int = 1
    frames_max: int = 1
    power_cuts_max: int = 1
    restores_max: int = 0


DIRECTORY_LOCK = Rules(fence=Fence.SEAL, head_rule=HeadRule.HIGHEST_LINK)
"""The design, with the lock in the directory: seals that close each epoch, linked heads of which the highest counts."""
