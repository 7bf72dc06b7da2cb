"""The readings of the upgrade protocol that the upgrade model compares, and the bounds within which it does.

Why it exists: each safeguard of an upgrade (design 0026, "What the model shows") is one choice among a few that look
alike. Here every choice has a name and a sentence, so that a test can take another one and show what then goes wrong.

What it guarantees: ``Rules()`` is what the design prescribes. Does not: say how a choice is carried out
(``upgrade_model``). Imports nothing of ours. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Generation(NamedTuple):
    """Which code a log goes on with: a number that never comes back, and the fingerprint of the code."""

    number: int
    code: str


FIRST = Generation(1, "a")
SECOND = Generation(2, "b")


class Told(StrEnum):
    """What says that the log goes on with another generation, and where its first checkpoint is."""

    RECORD = "the record UPGRADED, a data frame behind the cut; the checkpoint is the one behind it"
    EVERY_CUT = "the cut names the checkpoint, and every later cut repeats the name"
    ONE_CUT = "the cut of the upgrade alone names the checkpoint"
    KEY_THEN_HEAD = "a key of its own in the lock store, set before head"
    HEAD_THEN_KEY = "a key of its own in the lock store, set once the upgrader serves"
    MESSAGE = "a message of the log that every replica runs, so that all of them have both codes"


class Tail(StrEnum):
    """What an upgrader makes of the end of head's log."""

    CONFIRMED = "it upgrades only if synced headers, read under the lock, confirm everything"
    CLOSED = "it upgrades only behind a closing frame of the primary, read under the lock"
    FORMER_CODE = "frames that are not confirmed are copied, and the former code runs them"
    NEW_CODE = "frames that are not confirmed are copied, and the new code runs them"
    DROPPED = "frames that are not confirmed are left out"
    AS_HANDED_OVER = "the log ends where the primary said so when it was drained; nothing is read under the lock"


class Order(StrEnum):
    """In which order an upgrader makes things durable."""

    CHECKPOINT_CUT_HEAD = "migrate, first checkpoint synced, cut and record synced, head"
    HEAD_THEN_CHECKPOINT = "cut, head, then the first checkpoint"
    SERVES_FIRST = "cut, head, serve; a checkpoint comes later, as after any takeover"
    CHECKPOINT_NOT_SYNCED = "the first checkpoint is written before head, and synced behind it"
    CUT_NOT_SYNCED = "the cut is written before head, and synced behind it"
    HEAD_THEN_MIGRATION = "cut, head, then the migration and its checkpoint"


class Loading(StrEnum):
    """Which checkpoint a replica of an upgraded generation begins from."""

    ON_CHAIN = "one of its generation at the place that the log names, or further on along the same chain"
    NEWEST = "the one of its generation with the highest lsn, whatever its chain"


class Check(StrEnum):
    """When a replica compares its generation with that of head."""

    BEFORE_TAKE = "between the look at the lock and the taking of just that lock, and again under the lock"
    LOOK_THEN_TAKE = "before it takes the lock, whatever was set in between, and again under the lock"
    UNDER_LOCK = "under the lock alone"
    AT_START = "when its process starts, and never again"
    NEVER = "never: a standby of the former code goes on running what the new code wrote"


class Collection(StrEnum):
    """When the log and the checkpoints of the former generation are removed."""

    NEVER = "not within the bounds of the model"
    AFTER_TWO = "once two checkpoints of the new generation stand, along the log's own chain"
    AFTER_ANY_TWO = "once two checkpoints of the new generation stand, those of attempts that were let go included"
    AFTER_ONE = "once one checkpoint of the new generation stands, along the log's own chain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One reading of the protocol, and the bounds within which it is explored. The defaults are the design."""

    told: Told = Told.RECORD
    tail: Tail = Tail.CONFIRMED
    order: Order = Order.CHECKPOINT_CUT_HEAD
    loading: Loading = Loading.ON_CHAIN
    check: Check = Check.BEFORE_TAKE
    collection: Collection = Collection.NEVER
    # UPGRADED holds the epoch that wrote it, so that the places behind the records of two attempts differ.
    epoch_in_record: bool = True
    # A checkpoint's name holds its generation, beside the place (lsn and chain) that it is of.
    generation_in_name: bool = False
    # A successor takes the place of the checkpoint that it loaded as confirmed, so that it does not copy the record.
    loaded_is_confirmed: bool = True
    # State that was fed before the cut is compared with the log by its chain; otherwise by its lsn.
    fed_by_chain: bool = True
    # An upgrader compares the generation that it upgrades from with head's under the lock; otherwise when it starts.
    from_under_lock: bool = True
    # A replica is of head's generation if number and fingerprint are equal; otherwise if the fingerprint is.
    number_compared: bool = True
    # A replica passes over checkpoints of other generations; otherwise it stops at the newest if that is of another.
    others_passed_over: bool = True
    # An upgrader sets head in a transaction that compares the lock; otherwise it overwrites head whenever it wakes.
    head_guarded: bool = True
    # A primary's proof fails once an upgrader holds the lock; otherwise it may go on answering until head is set.
    proof_sees_upgrader: bool = True
    # The former code may run the log once more, to migrate again, where the first checkpoint is damaged.
    former_code_again: bool = False
    # Migrating the same state twice gives the same bytes.
    migration_repeats: bool = False
    # A back-out is another upgrade; otherwise the operator sets head back to the epoch before the upgrade.
    back_out_is_upgrade: bool = True
    # Those who may take the lock, in their order: the first generation, and upgraders of others.
    generations: tuple[Generation, ...] = (FIRST, SECOND)
    migration_may_fail: bool = False
    # Bounds: times the lock is taken, counted from the first primary; the others per run or per primary.
    takings_max: int = 3
    frames_max: int = 1
    rolls_max: int = 0
    power_cuts_max: int = 0
    restores_max: int = 0
    former_checkpoints_max: int = 0
    rots_max: int = 0
