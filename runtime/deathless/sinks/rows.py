"""The topic as a sink sees it: how far its rows reach, the rows of a block, and the sink's own hold.

Guarantees: rows of a block have the schema that was asked for, in ascending positions; a hold stands at or below what
was stored. Does not: decide anything (`machine` does). Imports topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deathless.base.errors import DeathlessError, SinkRowsDropped, SinkUnavailable, TopicRowsDropped
from deathless.sinks.machine import HoldSeen, Look
from deathless.sinks.port import Block
from deathless.topics.arrow import arrow_schema
from deathless.topics.keeping import NamedHold
from deathless.topics.reader import TopicReader
from deathless.topics.source import TopicSource

if TYPE_CHECKING:
    from deathless.engine.ports import FileSystem

BLOCK_BYTES_MAX: Final = 64 << 20
"""Of a block's rows in memory; one of more rows ends before."""


def hold_of(sink: str) -> str:
    """Give the name of a sink's hold."""
    return f"sink.{sink}"


class TopicRows:
    """One source of a topic, for one sink.

    Args:
        directory: of the topic.
        source: whose rows.
        sink: its name.
        files: the directory's file system; None: the machine's.
    """

    def __init__(self, directory: str, source: TopicSource, sink: str, files: FileSystem | None = None) -> None:
        self.source = source
        self._reader = TopicReader(directory, source, files=files)
        self._blocks = TopicReader(directory, source, files=files)  # of `block` alone, which another thread may call
        self._name = hold_of(sink)
        self._sink = sink
        self._oldest = (0, 0)  # a position, and the logical time of the first row from there on

    def look(self, position: int) -> Look:
        """Look at the topic.

        Args:
            position: the first that is not stored; 0: not known.

        Raises: SinkUnavailable.
        """
        try:
            bounds, schema = self._reader.bounds(), self._reader.extent().schema
            hold = next((each for each in self._reader.holds() if each.name == self._name), None)
            seen = None if hold is None else _seen(hold)
            held = self._reader.bytes_from(seen.position if seen is not None else position or bounds.first)
        except OSError as error:
            raise SinkUnavailable(f"the topic's files: {error}") from error
        return Look(bounds.floor, bounds.first, bounds.next, schema, seen, held)

    def block(self, start: int, end: int, schema: str) -> Block:
        """Read the rows of a block, which may end earlier; it may take seconds, and be called in another thread.

        Raises: SinkRowsDropped, TopicGap, SinkUnavailable.
        """
        batches, size = [], 0
        try:
            for batch in self._blocks.read(start, end, schema=arrow_schema(schema)):
                batches.append(batch)
                size += batch.nbytes
                if size >= BLOCK_BYTES_MAX:
                    end = int(batch.column("_position")[-1].as_py()) + 1
                    break
        except TopicRowsDropped as error:
            raise SinkRowsDropped(f"sink {self._sink}: {error.message}") from error
        except OSError as error:
            raise SinkUnavailable(f"the topic's files: {error}") from error
        return Block(start, end, batches)

    def oldest_us(self, position: int, end: int) -> int:
        """Give the logical time of the first row that is not stored, microseconds since 1970; 0: there is none."""
        if position >= end:
            return 0
        if self._oldest[0] != position:
            try:
                batch = next(self._reader.read(position, end, ["_time"]), None)
            except (DeathlessError, OSError):
                return 0
            self._oldest = (position, 0 if batch is None else int(batch.column(0)[0].value))
        return self._oldest[1]

    def hold(self, hold: HoldSeen) -> bool:
        """Register or move the sink's hold; False: rows from there may be gone, and nothing holds them.

        Raises: SinkUnavailable.
        """
        try:
            since = f"{hold.began} {hold.adoption}"
            self._reader.hold(self._name, hold.position, owner=f"sink {self._sink}", since=since)
        except TopicRowsDropped:
            return False
        except OSError as error:
            raise SinkUnavailable(f"the topic's hold: {error}") from error
        return True

    def drop_hold(self) -> None:
        """Let go of the hold. Raises: SinkUnavailable."""
        try:
            self._reader.drop_hold(self._name)
        except OSError as error:
            raise SinkUnavailable(f"the topic's hold: {error}") from error


def source_of(directory: str, service_id: str) -> TopicSource | None:
    """Give the source that one service published last in a topic's folder; None: it has published nothing yet.

    Raises: OSError.
    """
    found = [each for each in TopicReader(directory).sources() if each.service_id == service_id]
    return found[-1] if found else None


def _seen(named: NamedHold) -> HoldSeen | None:
    hold = named.hold
    if hold is None:
        return None
    began, _, adoption = hold.since.partition(" ")
    if not (began.isdecimal() and adoption.isdecimal()):
        return None  # none of ours, though it has our name: it is written anew
    return HoldSeen(hold.position, int(began), int(adoption))
