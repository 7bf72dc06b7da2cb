"""Takeover, every interleaving: the order that the design prescribes holds, each other reading loses something.

design 0003, "Takeover". The model, its machines and faults are described in
``deathless.simulation.models.takeover_model``; ``Rules()`` is the design. A row of BROKEN changes what its name says
and must stay red, with the reason given: it is the test that the safeguard is needed and that the model can see it. In
every row the lock is stolen at any moment, from holders that are alive, frozen or dead.

Bounds: at most four takings of the lock; one frame per primary. A row with two power cuts contains all runs with
one or none.
"""

from dataclasses import replace

import pytest

from deathless.simulation.models.explorer import explore, find
from deathless.simulation.models.takeover_log import AbsentFile, Cut, Frame, Record, Segment, read_log
from deathless.simulation.models.takeover_model import (
    DIVERGED,
    LOST,
    NEEDLESS,
    STUCK,
    Phase,
    State,
    TakeoverModel,
    opening_above,
)
from deathless.simulation.models.takeover_rules import (
    DIRECTORY_LOCK,
    Backup,
    Fence,
    HeadOrder,
    HeadRule,
    Predecessor,
    Proof,
    RollOrder,
    Rules,
    SealOrder,
    SealRule,
    Tail,
)

DESIGN = Rules()
# The same without the opening frame, which matters for restored lock stores alone: fewer states, more runs.
PLAIN = Rules(opening_frame=False)
# A fence of seals under a lock that still guards head.
SEALS = Rules(opening_frame=False, fence=Fence.SEAL, rolls_max=0)
RESTORED = Rules(rolls_max=0, power_cuts_max=0, restores_max=1)


def four_locks(rules: Rules) -> Rules:
    """Return the rules with the lock taken once more, and without rolls and power cuts to keep the model small."""
    return replace(rules, locks_max=4, rolls_max=0, power_cuts_max=0)


HOLDS = {
    "etcd fence as designed": DESIGN,
    "etcd fence without the opening frame": PLAIN,
    "etcd fence and a listing that lacks a rolled file, taken for an error": replace(DESIGN, stale_listing=True),
    "seals: any higher number deposes, head guarded by the lock": replace(SEALS, seal_rule=SealRule.ANY_HIGHER),
    "seals: each seal closes its epoch, head guarded by the lock": four_locks(SEALS),
    "linked heads, the highest counts, nobody looks at the lock": four_locks(
        replace(SEALS, seal_rule=SealRule.ANY_HIGHER, head_rule=HeadRule.HIGHEST_LINK)
    ),
    "linked heads and a power cut": replace(SEALS, seal_rule=SealRule.ANY_HIGHER, head_rule=HeadRule.HIGHEST_LINK),
    "directory lock as designed, with rolls": DIRECTORY_LOCK,
    "directory lock as designed, four locks, two power cuts": replace(
        DIRECTORY_LOCK, locks_max=4, rolls_max=0, power_cuts_max=2
    ),
    "restored lock store, opening frame, four locks, a power cut": replace(RESTORED, locks_max=4, power_cuts_max=1),
    "restored lock store, opening frame, a power cut, rolls": replace(RESTORED, power_cuts_max=1, rolls_max=1),
    "restored lock store that gives epochs again": replace(
        RESTORED, power_cuts_max=1, backup=Backup.FIRST_HEAD_AND_COUNTER
    ),
}

BROKEN = {
    # The tail and the cut.
    "tail left in the predecessor's file and not synced again": (STUCK, replace(PLAIN, tail=Tail.LEFT_IN_PLACE)),
    "tail behind the last confirmed header left out": (LOST, replace(DESIGN, tail=Tail.VOIDED)),
    "head set before cut and copies are synced": (STUCK, replace(PLAIN, head_order=HeadOrder.BEFORE_SYNC)),
    # The primary.
    "frame released before it is synced": (LOST, replace(DESIGN, frame_synced=False)),
    "proof before the append instead of after the sync": (LOST, replace(DESIGN, proof=Proof.BEFORE_APPEND)),
    "proof at the opening only, then stolen from while alive": (LOST, replace(DESIGN, proof=Proof.AT_OPENING_ONLY)),
    "roll frame before the next file": (STUCK, replace(PLAIN, roll_order=RollOrder.FRAME_FIRST)),
    "next file with an entry that is not synced": (STUCK, replace(PLAIN, roll_order=RollOrder.ENTRY_NOT_SYNCED)),
    "next file used before the roll frame is synced": (LOST, replace(PLAIN, roll_order=RollOrder.FRAME_NOT_SYNCED)),
    "rolled file missing in a stale listing, taken for the end": (
        LOST,
        replace(DESIGN, stale_listing=True, absent_file=AbsentFile.END_OF_LOG),
    ),
    # The predecessor and head.
    "predecessor is the highest cut in the directory": (
        LOST,
        replace(PLAIN, locks_max=4, predecessor=Predecessor.HIGHEST_CUT, rolls_max=0),
    ),
    "predecessor is the highest cut in a stale listing": (
        LOST,
        replace(PLAIN, predecessor=Predecessor.ANY_CUT, rolls_max=0),
    ),
    "highest head link in a stale listing": (
        LOST,
        replace(DIRECTORY_LOCK, predecessor=Predecessor.HEAD_IN_STALE_LISTING),
    ),
    "head: lock looked at, then overwritten, any higher seal": (
        LOST,
        four_locks(replace(SEALS, head_rule=HeadRule.CHECK_THEN_SET, seal_rule=SealRule.ANY_HIGHER)),
    ),
    "head: lock looked at, then overwritten, closed epochs": (
        LOST,
        four_locks(replace(SEALS, head_rule=HeadRule.CHECK_THEN_SET)),
    ),
    "head: lock looked at, then overwritten, etcd fence": (
        LOST,
        four_locks(replace(PLAIN, head_rule=HeadRule.CHECK_THEN_SET)),
    ),
    "head overwritten without a look at the lock": (
        LOST,
        four_locks(replace(PLAIN, head_rule=HeadRule.OVERWRITE)),
    ),
    "head overwritten by a late successor, which the opening frame turns into a refusal": (
        NEEDLESS,
        four_locks(replace(DESIGN, head_rule=HeadRule.OVERWRITE)),
    ),
    # The seals.
    "seals: only the next number deposes": (LOST, replace(SEALS, seal_rule=SealRule.NEXT_ONLY)),
    "seals: read, then seal with own number": (
        LOST,
        replace(SEALS, seal_rule=SealRule.ANY_HIGHER, seal_order=SealOrder.READ_THEN_SEAL),
    ),
    "seals: read, then seal each epoch": (LOST, replace(SEALS, seal_order=SealOrder.READ_THEN_SEAL)),
    # A lock store restored from a backup.
    "restored lock store without the opening frame": (LOST, replace(RESTORED, opening_frame=False)),
    "lock store restored to a number that was never head": (
        STUCK,
        replace(RESTORED, opening_frame=False, backup=Backup.ANY_LOWER_HEAD),
    ),
    "lock store restored to a number that was never head, opening frame": (
        STUCK,
        replace(RESTORED, locks_max=4, backup=Backup.ANY_LOWER_HEAD),
    ),
    "lock store restored to a number that was never head, opening frame, a power cut": (
        STUCK,
        replace(RESTORED, power_cuts_max=1, backup=Backup.ANY_LOWER_HEAD),
    ),
    "restored lock store whose old holder still owns": (
        DIVERGED,
        replace(RESTORED, locks_max=4, backup=Backup.FIRST_HEAD_AND_HOLDER),
    ),
}


# More than ten seconds on a busy machine; the row with rolls is the same within smaller bounds.
SLOW = {"restored lock store, opening frame, four locks, a power cut"}


@pytest.mark.parametrize(
    "reading", [pytest.param(reading, marks=pytest.mark.slow if reading in SLOW else ()) for reading in HOLDS]
)
def test_takeover_loses_nothing_in_any_interleaving(reading: str) -> None:
    verdict = explore(TakeoverModel(HOLDS[reading]))
    assert verdict.holds, str(verdict)


@pytest.mark.parametrize("reading", BROKEN)
def test_takeover_that_drops_a_safeguard_breaks(reading: str) -> None:
    reason, rules = BROKEN[reading]
    verdict = explore(TakeoverModel(rules))
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert len(verdict.trace) >= 3


def test_model_reaches_a_third_primary_that_serves_what_the_first_released() -> None:
    def wanted(state: State) -> bool:
        third = any(replica.epoch == 3 and replica.phase is Phase.SERVING for replica in state.replicas)
        return third and {name.epoch for name in state.released} >= {1, 2}

    assert find(TakeoverModel(DESIGN), wanted) is not None


def test_model_reaches_late_bytes_of_a_deposed_primary_which_no_reader_follows() -> None:
    def wanted(state: State) -> bool:
        if state.head != 2:
            return False
        followed = {placed.frame.name for placed in read_log(state.files, 2)}
        first = next(segment for segment in state.files if segment.epoch == 1)
        return any(isinstance(record, Frame) and record.name not in followed for record in first.records)

    assert find(TakeoverModel(DESIGN), wanted) is not None


def test_model_reaches_a_cut_with_a_copied_frame_and_a_cut_behind_a_confirmed_one() -> None:
    def copied(state: State) -> bool:
        return any(isinstance(record, Frame) and record.name.epoch < segment.epoch for segment, record in pairs(state))

    def confirmed(state: State) -> bool:
        return any(isinstance(record, Cut) and record.base.length > 2 for _, record in pairs(state))

    def pairs(state: State) -> list[tuple[Segment, Record]]:
        return [(segment, record) for segment in state.files for record in segment.records]

    rules = replace(DESIGN, frames_max=2, rolls_max=0, power_cuts_max=0, locks_max=2)
    assert find(TakeoverModel(rules), copied) is not None
    assert find(TakeoverModel(rules), confirmed) is not None


def test_model_reaches_a_restored_lock_store_that_a_successor_must_refuse() -> None:
    def wanted(state: State) -> bool:
        reading = any(replica.phase is Phase.READING for replica in state.replicas)
        return reading and opening_above(state.files, state.head)

    assert find(TakeoverModel(RESTORED), wanted) is not None
    assert find(TakeoverModel(replace(DESIGN, rolls_max=0)), wanted) is None
