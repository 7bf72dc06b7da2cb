"""Rows for those who ask over HTTP, read in threads: what the ingress of a replica answers from.

    state      which rows there are, and of which source
    rows       an Arrow stream or lines of JSON, a piece at a time
    hold       keeps rows for a reader; drop_hold lets go of them

The newest source alone is served. Who has positions says of which source they are; where that is another one, it is an
error and never other rows (TopicSourceDiffers). Readers of a topic are kept from one request to the next, so that a
look costs what has come since; one that met an error is not, and the next request looks through fresh descriptors.

Guarantees: any number of threads may ask at the same time; a gap is told at once, since whoever asks looks again
by itself (`remote`). Does not: know HTTP, or who may read. Imports the rest of this package.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from deathless.base.errors import InvalidArgument, TopicNotReadable, TopicSourceDiffers
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.topics.state import TopicState
from deathless.topics.arrow import arrow_schema, library
from deathless.topics.keeping import NamedHold
from deathless.topics.reader import TopicReader, chosen
from deathless.topics.wire import arrow_pieces, json_pieces

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_MAX: Final = 4  # readers that are kept, of each topic and shard


class ServedTopics:
    """The topics of one service.

    Args:
        folders: of each topic, by shard.
        safeguards: what is kept.
    """

    def __init__(self, folders: Mapping[str, Sequence[str]], safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self._folders = folders
        self._safeguards = safeguards
        self._idle: dict[str, list[TopicReader]] = {}  # by folder
        self._lock = threading.Lock()

    def state(self, topic: str, shard: int, source: str) -> TopicState:
        """Give which rows there are. Raises: TopicSourceDiffers; InvalidArgument; OSError."""
        if not source and not TopicReader(self._folders[topic][shard]).sources():
            return TopicState(topic=topic, shard=shard)
        with self._reading(topic, shard, source) as reader:
            bounds, extent = reader.bounds(), reader.extent()
            return TopicState(
                topic=topic,
                shard=shard,
                source=reader.source().folder,
                floor=bounds.floor,
                first=bounds.first,
                next=bounds.next,
                columns=extent.schema,
                files=extent.files,
                bytes=extent.size_bytes,
                time_us=extent.time_us,
            )

    def rows(
        self,
        topic: str,
        shard: int,
        source: str,
        *,
        start: int | None,
        end: int | None,
        columns: Sequence[str] | None,
        schema: str | None,
        lines: bool,
    ) -> Rows:
        """Give the rows from `start` up to `end`; the first `next` of what is given raises what this would.

        Args:
            topic: which.
            shard: which.
            source: of the positions; empty: the newest one.
            start: None: the first position that is there.
            end: None: behind the last one.
            columns: None: all.
            schema: text of the row schema that rows are given in; None: of the newest rows.
            lines: JSON.
        """
        return Rows(self._pieces(topic, shard, source, start, end, columns, schema, lines=lines))

    def _pieces(
        self,
        topic: str,
        shard: int,
        source: str,
        start: int | None,
        end: int | None,
        columns: Sequence[str] | None,
        schema: str | None,
        *,
        lines: bool,
    ) -> Iterator[bytes]:
        library()  # told before anything is looked at
        with self._reading(topic, shard, source) as reader:
            bounds = reader.bounds() if start is None or end is None else None
            begin = start if start is not None else bounds.first if bounds else 1
            behind = end if end is not None else bounds.next if bounds else 1
            wanted = chosen(_schema(schema), columns) if schema is not None else reader.schema(columns)
            parts = reader.parts(begin, behind, wanted)
            yield from json_pieces(parts) if lines else arrow_pieces(parts, wanted, max(begin, behind))

    def hold(
        self, topic: str, shard: int, source: str, name: str, position: int, *, owner: str, since: str, of_others: bool
    ) -> None:
        """Register or move a hold.

        Args:
            topic: which.
            shard: which.
            source: of the position; empty: the newest one.
            name: of the hold.
            position: rows from there on are kept.
            owner: who registers it.
            since: when, for people.
            of_others: a hold that another owner registered may be moved.

        Raises: TopicNotReadable; TopicRowsDropped; TopicSourceDiffers; InvalidArgument; OSError.
        """
        with self._reading(topic, shard, source) as reader:
            _check_owner(reader.holds(), name, owner, of_others=of_others)
            reader.hold(name, position, owner=owner, since=since)

    def drop_hold(self, topic: str, shard: int, source: str, name: str, *, owner: str, of_others: bool) -> bool:
        """Drop a hold; False: there is none. Raises: as `hold`."""
        with self._reading(topic, shard, source) as reader:
            _check_owner(reader.holds(), name, owner, of_others=of_others)
            return reader.drop_hold(name)

    @contextmanager
    def _reading(self, topic: str, shard: int, source: str) -> Iterator[TopicReader]:
        """Lend a reader of the newest source. Raises: TopicSourceDiffers; InvalidArgument; OSError."""
        folder = self._folders[topic][shard]
        newest = TopicReader(folder, looks=0, called=f"topic {topic!r} of shard {shard}")
        try:
            present = newest.source()
        except InvalidArgument:
            if newest.sources() or not source:
                raise
            raise TopicSourceDiffers(f"topic {topic!r} has no rows, of {source} neither") from None
        if source and source != present.folder and self._safeguards.check_topic_source:
            raise TopicSourceDiffers(f"topic {topic!r} has rows of {present.folder}, and not of {source}")
        with self._lock:
            idle = self._idle.setdefault(folder, [])
            idle[:] = [each for each in idle if each.source() == present]
            reader = idle.pop() if idle else newest
        yield reader  # what raises in here loses it
        with self._lock:
            if len(self._idle[folder]) < IDLE_MAX:
                self._idle[folder].append(reader)


class Rows:
    """Rows that are being read: one piece at a time, in whichever thread.

    Args:
        pieces: makes them.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()
        self._closed = False

    def next(self) -> bytes | None:
        """Give the next piece; None: there are no more. Raises: what reading does."""
        with self._lock:
            return None if self._closed else next(self._pieces, None)

    def close(self) -> None:
        """Let go of what is open, once no thread reads any more."""
        with self._lock:
            self._closed = True
            self._pieces.close()  # type: ignore[attr-defined]  # a generator


def _schema(text: str) -> pa.Schema:
    try:
        return arrow_schema(text)
    except ValueError as error:
        raise InvalidArgument(f"schema: {error} - at `$.schema`") from None


def _check_owner(holds: Sequence[NamedHold], name: str, owner: str, *, of_others: bool) -> None:
    """Refuse a hold that somebody else registered. Raises: TopicNotReadable."""
    for each in holds:
        if each.name == name and each.hold is not None and each.hold.owner not in ("", owner) and not of_others:
            raise TopicNotReadable(f"hold {name!r} is of {each.hold.owner}", remedy="choose another name for the hold")
