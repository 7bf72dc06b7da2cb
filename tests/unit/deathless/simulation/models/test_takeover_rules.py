"""The defaults of the takeover model are what the design prescribes."""

from dataclasses import replace

from deathless.simulation.models.takeover_log import AbsentFile
from deathless.simulation.models.takeover_rules import (
    DIRECTORY_LOCK,
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


def test_defaults_are_the_order_of_the_design() -> None:
    rules = Rules()
    assert rules.fence is Fence.ETCD
    assert rules.seal_rule is SealRule.CLOSES_EACH_EPOCH
    assert rules.seal_order is SealOrder.SEAL_THEN_READ
    assert rules.predecessor is Predecessor.HEAD
    assert rules.head_rule is HeadRule.GUARDED
    assert rules.head_order is HeadOrder.AFTER_SYNC
    assert rules.tail is Tail.COPIED
    assert rules.roll_order is RollOrder.FILE_FIRST
    assert rules.proof is Proof.AFTER_EACH_SYNC
    assert rules.absent_file is AbsentFile.ERROR
    assert rules.frame_synced
    assert rules.opening_frame


def test_directory_lock_differs_in_fence_and_head_alone() -> None:
    assert replace(DIRECTORY_LOCK, fence=Fence.ETCD, head_rule=HeadRule.GUARDED) == Rules()
