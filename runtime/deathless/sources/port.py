"""What a reader of a source must do: give what stands outside by ids, from any place on, and notice what is missing.

A source has **partitions**; each is one stream of the service's log, and is read by one process at a time. What stands
in a partition has **ids**, which ascend and may have gaps: a row's number, a record's offset. An id names the same
record for ever.

    partitions --> open(points) --> read, read, ... --> leave          for each partition; the host calls one after the
                     ^                 |                               other, never two at a time
                     '-----------------'  SourceUnavailable: opened anew after a pause
                                          SourceGap: the stream stops by name until its cause is gone

All that says how far a partition is stands in the service's log: the last id that was taken in, and beside it a
**note** of the reader's own, of up to 56 bytes (`NOTE_BYTES_MAX`): what it needs to find the place again, and to tell
that what stands there is not what stood there before. A reader keeps nothing else, anywhere: it may be killed at any
time, another one goes on from the same point on another machine, and the two may live at the same time.

**Nothing may be missed silently.** If what follows a point is gone (deleted, expired), or if what stands at or before
it is not what the note was made of (another topic of the name, a log that was cut, a file that was changed), `open`
and `read` raise SourceGap and give nothing. They raise it each time, until an operator decides (`adopt`).

Records are given as they stand, however odd: what is too long, has no key or can't be decoded is refused by its name
when it runs, by the source's `onRefusal`. A reader drops none.

Guarantees: everything here is data. Does not: know streams, shards, keys of rows, or how inputs are sent (the host
does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from deathless.base.errors import InvalidConfig, SourceGap, SourceUnavailable
from deathless.codec.streams.records import ID_MAX

__all__ = [
    "ID_MAX",
    "NOTE_BYTES_MAX",
    "Batch",
    "Factory",
    "Partition",
    "Point",
    "Reader",
    "Record",
    "Settings",
    "SourceGap",
    "SourceUnavailable",
]

T = TypeVar("T")

NOTE_BYTES_MAX: Final = 56
"""Of a reader's note; the host's own 8 bytes stand before it in the log."""


class Partition(msgspec.Struct, frozen=True, order=True):
    """One numbered sequence of records."""

    number: int  # of its stream, in [0, 2^63): the same for ever
    name: str  # for people, such as flights/3


class Point(msgspec.Struct, frozen=True, order=True):
    """A place in a partition, as the log of one shard knows it."""

    last_id: int  # up to here, with it, everything was taken in; -1: nothing was
    note: bytes  # that was logged last; empty: none ever was. It may be that of a later record, which was refused


class Record(msgspec.Struct, frozen=True):
    """One record."""

    id: int  # in [0, ID_MAX], above that of the record before it
    value: bytes | None  # as it stands; JSON is expected. None: it has none, as a deletion in Kafka
    key: bytes | None = None  # None: it has none, or its kind of source knows no keys beside values
    note: bytes = b""  # that holds behind this record; the same as before costs nothing in the log


class Batch(msgspec.Struct, frozen=True):
    """What was read of a partition."""

    records: Sequence[Record]  # ids ascending
    last_id: int  # everything up to here, with it, was read; ids behind the last record, up to here, have none
    note: bytes  # that holds behind `last_id`
    end: int = 0  # the id behind the last one that stands there now; 0: not known. For operators


class Reader(Protocol):
    """One source, as its process reads it."""

    async def partitions(self) -> Sequence[Partition]:
        """Give all that the source has now, by number; called now and then, as new ones may appear.

        Raises: SourceUnavailable.
        """
        ...

    async def open(self, partition: Partition, points: Sequence[Point]) -> None:
        """Be ready to read behind the first of these points; called again after any error, and after `leave`.

        Args:
            partition: which.
            points: how far the shards of the service are, the lowest first; one at least. What was taken in behind the
                first one is read again and dropped. Each of the others must be what stands there as well: `open`, or
                `read` when it comes to it, raises SourceGap if it is not.

        Raises: SourceGap when what follows is not there, or is not what follows; SourceUnavailable.
        """
        ...

    async def read(self, partition: Partition, records_max: int, bytes_max: int) -> Batch:
        """Give what follows what was read last, in order; no records if there are none now.

        It does not wait for more to come, or some ten milliseconds at most: the host asks again.

        Args:
            partition: one that is open.
            records_max: at least 1.
            bytes_max: of keys and values; one record that has more is given alone.

        Raises: SourceGap; SourceUnavailable, after which it is opened anew.
        """
        ...

    async def taken_in(self, partition: Partition, last_id: int) -> None:
        """All shards have everything up to this id, confirmed: for tools of the source that show it, and for no
        decision. Called at most about once a second for each partition. Raises nothing.
        """
        ...

    async def adopt(self, partition: Partition, last_id: int, at: str) -> Point:
        """An operator decides where a stream goes on: give the point that is logged for that.

        Args:
            partition: which; it need not be open.
            last_id: the highest id that any shard has taken in.
            at: the place of the record that is to be read next, as operators of this kind of source name it: an offset,
                a file's name.

        Returns: a point whose id is above `last_id`, since it is logged as a mark; behind it that record follows.

        Raises: InvalidArgument when there is no such place, or when its ids would not ascend; SourceUnavailable.
        """
        ...

    async def leave(self, partition: Partition) -> None:
        """Let go of a partition. Raises nothing."""
        ...

    async def close(self) -> None:
        """Let go of everything; it is not used again. Raises nothing."""
        ...


class Settings(msgspec.Struct, frozen=True):
    """What a factory of readers is given, from the manifest's `spec.sources`."""

    source: str  # its name
    options: dict[str, object]  # as they stand there
    folder: str = "."  # absolute: what relative paths in the options start from

    def typed(self, kind: type[T]) -> T:
        """Give the options as this type, usually a Struct with `forbid_unknown_fields=True` and `rename="camel"`.

        Raises: InvalidConfig naming the field; the source refuses to start.
        """
        try:
            return msgspec.convert(self.options, kind)
        except msgspec.ValidationError as error:
            raise InvalidConfig(f"source {self.source}: options: {error}") from None

    def path(self, text: str) -> Path:
        """Give a path of the options, relative to the manifest's folder."""
        return Path(self.folder) / text


Factory = Callable[[Settings], Reader]
"""Makes a reader and checks its options (InvalidConfig); connects nothing."""
