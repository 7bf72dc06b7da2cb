"""What gives the rows of one topic, of one shard: files (`TopicReader`), or a service's HTTP port (`RemoteTopic`).

Guarantees: whoever takes a `RowSource` reads the same rows from either, and meets the same errors: TopicGap,
TopicRowsDropped, InvalidArgument. Does not: read anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from deathless.topics.source import TopicSource

if TYPE_CHECKING:
    import pyarrow as pa


class Bounds(NamedTuple):
    """Which rows there are."""

    floor: int  # rows below may be gone
    first: int  # from here on all are there; below the floor where a hold keeps them
    next: int  # up to here, without it


class Extent(NamedTuple):
    """How much there is."""

    files: int
    size_bytes: int
    time_us: int  # newest logical time of a row
    schema: str  # text of the newest rows' schema; empty: there are none


class RowSource(Protocol):
    """The rows of one topic, of one shard and one source. `TopicReader` says what each method does."""

    def source(self) -> TopicSource:
        """Give whose rows are read."""
        ...

    def bounds(self) -> Bounds:
        """Give which rows there are now."""
        ...

    def extent(self) -> Extent:
        """Give how much there is."""
        ...

    def schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Give the columns of the newest rows, or those of them."""
        ...

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from position `start` up to `end`, without it: exactly these, or an error."""
        ...

    def follow(
        self, start: int, columns: Sequence[str] | None = None, *, pause_s: float = ...
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from `start` on, for ever, as they come."""
        ...

    def wait(self, position: int, *, pause_s: float = ..., pauses: int | None = None) -> int:
        """Wait until a position is there; gives the one up to which all are."""
        ...

    def hold(self, name: str, position: int, *, owner: str = "", since: str = "") -> None:
        """Keep the rows from a position on; the same name again moves the hold."""
        ...

    def drop_hold(self, name: str) -> bool:
        """Let go of a hold; False: there is none."""
        ...


def follow_rows(
    rows: RowSource, start: int, columns: Sequence[str] | None, *, pause_s: float
) -> Iterator[pa.RecordBatch]:
    """Give the rows from `start` on, for ever, as they come, in the schema that they begin with."""
    schema: pa.Schema | None = None
    while True:
        end = rows.wait(start, pause_s=pause_s)
        schema = schema or rows.schema(columns)
        yield from rows.read(start, end, schema=schema)
        start = end


__all__ = ["Bounds", "Extent", "RowSource", "follow_rows"]
