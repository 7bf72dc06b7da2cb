"""What processes of each generation find when they start with a log that was upgraded."""

from dataclasses import replace

import pytest

from deathless.simulation.models.takeover_log import ROOT, FrameId, Position, SegmentOf
from deathless.simulation.models.upgrade_log import Checkpoint, Cut, File, Frame, Ran, Record, Upgraded
from deathless.simulation.models.upgrade_rules import FIRST, SECOND, Generation, Loading, Rules
from deathless.simulation.models.upgrade_start import BrokenError, Durable, Starts, Violation

UPGRADED = Upgraded(2, SECOND)
FRAME = FrameId(1, 0)
BEFORE = (Ran(FRAME, "a"),)
AFTER = (*BEFORE, Ran(UPGRADED, "b", 2))
FIRST_CHECKPOINT = Checkpoint(((FRAME, UPGRADED), 0), SECOND, AFTER, durable=True)
# An attempt of epoch 3, which set no head.
LEFT = Checkpoint(((FRAME, Upgraded(3, SECOND)), 0), SECOND, (*BEFORE, Ran(Upgraded(3, SECOND), "b", 3)), durable=True)


def file(epoch: int, *records: Record) -> File:
    return SegmentOf(epoch, 0, records, len(records))


OLD = file(1, Cut(ROOT, FIRST), Frame(FRAME, 0, FIRST))
NEW = file(2, Cut(Position(1, 0, 2), SECOND), Frame(UPGRADED, 1, SECOND))
SERVED = Durable((OLD, NEW), frozenset({FIRST_CHECKPOINT, LEFT}), 2, FIRST, collected=False, migration=None)
ATTEMPTED = SERVED._replace(head=1)


def test_before_head_is_set_the_former_generation_leads_and_the_next_one_upgrades() -> None:
    starts = Starts(Rules())
    former, upgrader = starts.start(ATTEMPTED, FIRST), starts.start(ATTEMPTED, SECOND)
    assert (former.may, former.upgrades, former.view) == (True, False, BEFORE)
    assert (upgrader.may, upgrader.upgrades, upgrader.view) == (True, True, BEFORE)
    assert starts.judge(ATTEMPTED, BEFORE) == ""


def test_behind_head_the_new_generation_leads_from_the_checkpoint_behind_its_record_and_the_former_refuses() -> None:
    starts = Starts(Rules())
    assert starts.start(SERVED, SECOND).view == AFTER
    refused = starts.start(SERVED, FIRST)
    assert (refused.may, refused.why) == (False, "generation 1a meets 2b")
    assert not starts.start(SERVED, Generation(2, "c")).may
    assert starts.judge(SERVED, AFTER) == ""


def test_log_without_its_first_checkpoint_can_be_led_by_nobody() -> None:
    judged = Starts(Rules()).judge(SERVED._replace(checkpoints=frozenset({LEFT})), AFTER)
    assert judged.startswith(Violation.STALL)


def test_newest_checkpoint_of_another_chain_is_another_history() -> None:
    judged = Starts(Rules(loading=Loading.NEWEST)).judge(SERVED, AFTER)
    assert judged.startswith(Violation.LOST)


def test_state_of_the_former_generation_under_the_name_of_the_first_checkpoint_is_a_violation() -> None:
    misnamed = FIRST_CHECKPOINT._replace(of=FIRST)
    starts, durable = Starts(Rules()), SERVED._replace(checkpoints=frozenset({misnamed}))
    with pytest.raises(BrokenError, match=Violation.OTHER_CODE):
        starts.start(durable, SECOND)
    assert starts.judge(durable, ()).startswith(Violation.OTHER_CODE)


def test_former_code_runs_again_only_where_the_rules_have_it_and_the_log_stands() -> None:
    gone = SERVED._replace(checkpoints=frozenset())
    again = replace(Rules(), former_code_again=True, migration_repeats=True)
    assert Starts(again).start(gone, SECOND).view == (*BEFORE, Ran(UPGRADED, "b"))
    assert not Starts(again).start(gone._replace(collected=True), SECOND).may
    assert not Starts(Rules()).start(gone, SECOND).may
