"""What follows from the journal of a sink: the tip, what is in doubt, and whether two have written."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import SinkJournalUnsound
from deathless.sinks.clickhouse import journal
from deathless.sinks.clickhouse.journal import Entry, check, first_entry, follows, settled
from deathless.sinks.port import Tip

BEGUN = first_entry("w1", 5, 1)
PLANNED = follows(BEGUN, journal.PLAN, "w1", 5, end=4, rows=3, block="b1", why="hash", place="t\tb\tp")
STORED = follows(PLANNED, journal.STORED, "w1", 5, position=4, block="b1", columns="hash")
NEXT = follows(STORED, journal.PLAN, "w1", 5, end=9, rows=5, block="b2", former="b0")


def test_tip_is_that_of_the_last_entry() -> None:
    assert (BEGUN.tip, PLANNED.tip, STORED.tip) == (Tip(0, 1, "", 0), Tip(0, 1, "", 0), Tip(4, 1, "hash", 0))


def test_only_a_plan_and_what_is_there_in_part_are_in_doubt() -> None:
    assert (BEGUN.blocks, PLANNED.blocks, STORED.blocks, NEXT.blocks) == ((), ("b1",), (), ("b0", "b2"))


@pytest.mark.parametrize(
    ("present", "whole"), [([], False), ([1, 2], False), ([1, 2, 3], True), ([1, 2, 3, 7], True), ([1, 2, 9], False)]
)
def test_block_is_stored_once_the_table_has_all_its_rows(present: list[int], whole: bool) -> None:
    assert settled(PLANNED, present) is whole


def test_entry_says_nothing_of_the_one_before_but_the_state() -> None:
    skipped = follows(NEXT, journal.SKIP, "w2", 6, position=12, end=4, why="tried", former="b0,b2")
    assert (skipped.number, skipped.position, skipped.end, skipped.block, skipped.rows) == (5, 12, 4, "", 0)
    assert follows(skipped, journal.STORED, "w2", 6, position=20, former="").end == 20


def test_decisions_are_kept_and_other_entries_replace_each_other() -> None:
    many = msgspec.structs.replace(STORED, number=journal.KEPT + 3)
    assert (STORED.slot, many.slot) == (3, 3)
    assert msgspec.structs.replace(STORED, what=journal.ADOPT).slot == -3


def test_sound_journal_is_accepted() -> None:
    check([BEGUN, PLANNED, STORED, NEXT], ["w1"], "facts")
    check([PLANNED, NEXT], ["w1"], "facts")  # entries between them were replaced


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([STORED, msgspec.structs.replace(NEXT, writer="x")], "foreign writer, x"),
        ([STORED, msgspec.structs.replace(STORED, block="b9")], "written twice"),
        ([STORED, msgspec.structs.replace(NEXT, position=2)], "goes backward"),
        ([STORED, msgspec.structs.replace(NEXT, end=3)], "goes backward"),
        ([STORED, msgspec.structs.replace(NEXT, position=6)], "leaves a gap"),
        ([PLANNED, msgspec.structs.replace(STORED, position=5)], "overlaps"),
        ([PLANNED, msgspec.structs.replace(STORED, block="b9")], "overlaps"),
    ],
)
def test_journal_that_two_have_written_is_found(entries: list[Entry], problem: str) -> None:
    with pytest.raises(SinkJournalUnsound, match=problem):
        check(entries, ["w1"], "facts")
