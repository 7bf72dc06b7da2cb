"""What a store of a sink must do: keep rows and the sink's tip together, and refuse who has been deposed.

The **tip** of a sink says how far one shard is stored: the first position that is not. It stands in the store, beside
the rows, under the key (sink, service id, shard).

    open     fence: raise the tip's epoch to ours, durably; from then on every write of an earlier one is refused,
             also one that began before. Only then read the tip: nobody else moves it any more.
    write    rows and tip in one transaction, which is refused if the tip is not ours or not where we know it

Guarantees: none; these are what `sinks.conformance` checks. Imports base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


class Key(msgspec.Struct, frozen=True):
    """Whose tip it is."""

    sink: str
    service: str
    shard: int
    service_id: str  # 32 hexadecimal digits; each shard of a service has its own


class Claim(msgspec.Struct, frozen=True):
    """Who is going to write."""

    key: Key
    incarnation: int  # of the topic's source: positions of another one have nothing to do with ours
    epoch: int  # of the primary beside the sink: grows with every takeover
    writer: str  # drawn by chance at each `open`: tells two processes of one epoch apart


class Tip(msgspec.Struct, frozen=True):
    """How far a sink is, as its store has it."""

    next_position: int  # the first that is not stored; 0: nothing was stored yet
    incarnation: int  # of the source that it counts; of no meaning at 0
    columns: str  # hash of the columns that are written; empty: none yet, or an operator accepts any
    adoption: int  # how often an operator has accepted the store as it stands


class Opened(msgspec.Struct, frozen=True):
    """What a store tells whom it now knows as the only writer."""

    tip: Tip
    columns: str  # hash of the columns that would be written now
    foreign: tuple[str, ...] = ()  # other services with rows under this sink's name, each described
    retired: str = ""  # another service has taken the sink's name over: which one; empty: no


class Block(msgspec.Struct, frozen=True):
    """Rows of consecutive positions."""

    start: int
    end: int  # the position behind the last one
    batches: Sequence[pa.RecordBatch]  # some positions may have no row


class Decision(msgspec.Struct, frozen=True):
    """What an operator decided about a sink, as it is kept."""

    at: str  # when, as the store writes a time
    what: str  # skip | adopt
    first: int  # positions from here
    next: int  # up to here, without it, were given up; the same as `first`: none
    text: str


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that a store has refused for good, and keeps beside the tip."""

    position: int
    incarnation: int  # of the source whose position it is
    at: str  # when, as the store writes a time
    why: str
    row: str  # JSON of its columns, for people


class BlockRefused(Exception):
    """The store refuses a row of this block for good; which one, smaller blocks tell."""


class Store(Protocol):
    """One table, and the tip of one sink."""

    async def open(self, claim: Claim, schema: str) -> Opened:
        """Connect, fence, and only then read the tip; may be called again, also after any error.

        Args:
            claim: who writes from now on.
            schema: text of the row schema that blocks will have.

        Raises: Deposed when a higher epoch has claimed the tip; SinkTableUnfit when the table can't take such rows;
            SinkUnavailable.
        """
        ...

    async def write(self, block: Block, expected: int) -> None:
        """Store rows, and move the tip from `expected` to `block.end`: both or none.

        Raises: BlockRefused; Deposed when the tip belongs to another writer; SinkTipMismatch when it is ours and does
            not stand at `expected`; SinkTableUnfit; SinkUnavailable, after which nobody knows whether it is stored,
            and `open` tells.
        """
        ...

    async def tip(self, key: Key) -> Tip | None:
        """Read a tip, without a claim; None: there is none. Raises: SinkUnavailable."""
        ...

    async def decisions(self, key: Key) -> Sequence[Decision]:
        """Give what operators decided, the latest first, some hundred at most. Raises: SinkUnavailable."""
        ...

    async def skip(self, key: Key, expected: int, end: int, why: str) -> None:
        """Give up the positions from `expected` up to `end`, and keep that this was decided.

        Raises: SinkTipMismatch when the tip does not stand at `expected`; SinkUnavailable.
        """
        ...

    async def adopt(self, key: Key, incarnation: int, why: str) -> Tip:
        """Accept the store as it stands for this service and source, and keep that this was decided.

        Columns that changed are accepted; other services under the sink's name are retired, and write no more. A tip of
        another incarnation is set to 0. Gives the tip as it then stands.

        Raises: SinkTipMismatch when there is no tip; SinkUnavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection. Raises nothing."""
        ...


@runtime_checkable
class KeepsRefused(Protocol):
    """What a store can do besides that keeps the rows that it refuses, for `onRefusal: deadLetter`."""

    async def give_up(self, block: Block, expected: int, why: str) -> None:
        """Keep the one row of a block as refused, and move the tip from `expected` to `block.end`: both or none.

        Raises: SinkRowRefused when too many are kept; else as `write`.
        """
        ...

    async def refused(self, key: Key) -> Sequence[RefusedRow]:
        """Give all rows that are kept, by incarnation and position. Raises: SinkUnavailable."""
        ...

    async def retry(self, key: Key, position: int, why: str) -> None:
        """Store a row that is kept, keep it no more, and keep that this was decided: all or none.

        Of several incarnations it is that of the oldest. Raises: SinkRowNotKept; SinkRowRefused when it is refused
        again, which is kept as the reason from now on; SinkTableUnfit, SinkUnavailable.
        """
        ...

    async def discard(self, key: Key, position: int, why: str) -> None:
        """Keep a row no more, and keep that this was decided. Raises: SinkRowNotKept, SinkUnavailable."""
        ...
