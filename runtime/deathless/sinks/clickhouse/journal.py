"""What a sink has written down of its blocks in ClickHouse, and what follows from it. Pure.

ClickHouse has no transaction over two tables, and none over two statements. So a sink keeps a journal beside the rows,
to which only the holder of the fence appends:

    begin    nothing is stored yet
    plan     the rows of [start, end) are going to be inserted, each with this block's id
    stored   they are: the tip is `end`
    skip, adopt, retire     what an operator decided

The last entry says the tip. If it is a plan, the block is in doubt: the server may have its rows, some of them or none.
They carry the block's id, so the table itself says which ones. That is asked once nobody else may insert any more:

    none     the plan is void, and its rows are cut anew
    all      the block is stored
    some     the tip stays; those positions are left out when rows from there on are inserted

Why an id and not the positions: rows of a restored service have the same positions again, and other services may write
to the same table. An id is drawn by chance for each attempt, and is never used for other rows.

Guarantees: none of IO. Does not: read or write anything. Imports base and the port.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from deathless.base.errors import SinkJournalUnsound
from deathless.sinks.port import Tip

BEGIN: Final = "begin"
PLAN: Final = "plan"
STORED: Final = "stored"
SKIP: Final = "skip"
ADOPT: Final = "adopt"
RETIRE: Final = "retire"
KEPT: Final = 1024
"""Entries of one sink and shard that are kept at least, beside decisions, which are kept for ever."""


class Holder(msgspec.Struct, frozen=True):
    """Who may write: the row of the fence with the highest epoch, then turn, then writer."""

    epoch: int
    turn: int  # counts claims within an epoch
    writer: str
    server: str  # that it was raised on; empty: of no account
    account: str  # with which user's rights; empty: of no account


class Entry(msgspec.Struct, frozen=True):
    """One entry of the journal, with the sink's state behind it."""

    number: int  # from 1 on, without a gap
    what: str  # see the module
    writer: str
    epoch: int
    position: int  # the tip behind this entry: the first position that is not stored
    end: int  # of a plan: behind its last position; else as `position`
    rows: int  # of a plan: that the table has of these positions, once it is carried out
    block: str  # of a plan, and of what was stored by it: the id that its rows carry
    former: str  # ids of blocks above the tip that are in the table in part, with commas
    place: str  # where blocks were planned last: the table, and its columns of ids and positions, with tabs
    incarnation: int
    columns: str
    adoption: int
    retired: str
    why: str  # of a decision; of a plan: the hash of its columns, which is the tip's once it is stored
    at: str = ""  # when, as the store writes a time

    @property
    def tip(self) -> Tip:
        """The tip as it stands behind this entry."""
        return Tip(self.position, self.incarnation, self.columns, self.adoption)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Ids under which the table may have rows above the tip."""
        planned = (self.block,) if self.what == PLAN else ()
        return tuple(each for each in self.former.split(",") if each) + planned

    @property
    def slot(self) -> int:
        """What an entry is kept under: a later one with the same slot replaces it."""
        return -self.number if self.what in {SKIP, ADOPT, RETIRE} else self.number % KEPT


def first_entry(writer: str, epoch: int, incarnation: int) -> Entry:
    """Give the entry that a journal begins with."""
    return Entry(1, BEGIN, writer, epoch, 0, 0, 0, "", "", "", incarnation, "", 0, "", "")


def follows(last: Entry, what: str, writer: str, epoch: int, **changes: object) -> Entry:
    """Give an entry behind another, which has what was, but for the changes."""
    plain = msgspec.structs.replace(
        last, number=last.number + 1, what=what, writer=writer, epoch=epoch, end=last.position, rows=0, block="",
        why="", at="",
    )  # fmt: skip
    made: Entry = msgspec.structs.replace(plain, **changes)
    return made if "end" in changes else msgspec.structs.replace(made, end=made.position)


def settled(last: Entry, present: Collection[int]) -> bool:
    """Is the block of a plan in the table as a whole?

    Args:
        last: the journal's last entry, which is a plan.
        present: positions from the tip on that the table has under one of `last.blocks`.
    """
    return sum(1 for each in present if last.position <= each < last.end) == last.rows


def check(entries: Sequence[Entry], fence: Collection[str], sink: str) -> None:
    """Compare the entries of a journal with each other: nothing else would ever show that two had written.

    Args:
        entries: in ascending order of their numbers, the latest, without a gap before the first decision on.
        fence: writers that ever claimed the sink.
        sink: its name, for errors.

    Raises: SinkJournalUnsound when a block goes backward, overlaps with one before, leaves a gap, or was written by
        somebody who never held the fence.
    """
    last: Entry | None = None
    for entry in entries:
        problem = "" if entry.writer in fence else f"entry {entry.number} is of a foreign writer, {entry.writer}"
        if not problem and last is not None:
            problem = _problem(last, entry)
        if problem and entry.what != ADOPT:
            raise SinkJournalUnsound(f"sink {sink}: {problem}")
        last = entry


def _problem(last: Entry, entry: Entry) -> str:
    if entry.number == last.number:
        return f"entry {entry.number} was written twice"
    if entry.number != last.number + 1:
        return ""  # those between were replaced by later ones
    if entry.what == PLAN and entry.position != last.position:
        kind = "goes backward" if entry.position < last.position else "leaves a gap"
        return f"block {entry.block} {kind}: it begins at {entry.position}, and {last.position} was next"
    if entry.what == PLAN and entry.end < entry.position:
        return f"block {entry.block} goes backward: from {entry.position} to {entry.end}"
    if entry.what == STORED and last.what == PLAN and (entry.block, entry.position) != (last.block, last.end):
        return f"block {entry.block} overlaps with {last.block}: it ends at {entry.position}, and not at {last.end}"
    return ""
