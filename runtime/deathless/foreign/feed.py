"""The rows that an application gets, read from the files of the topic `inputs`.

Guarantees: rows come by ascending positions, none left out; nothing is read where nothing was published yet. Does not:
decide when to read. Imports topics and this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.foreign.rows import INPUTS, Given
from deathless.foreign.skips import Skip, without
from deathless.topics.reader import TopicReader
from deathless.topics.source import TopicSource, topic_directory

if TYPE_CHECKING:
    from deathless.engine.ports import FileSystem

ROWS_MAX: Final = 2048  # read at once, at least a block
READ_BYTES: Final = 4 << 20  # likewise
HOLD: Final = "application"
_COLUMNS: Final = ("_position", *Given.__struct_fields__)


class Feed:
    """The rows of one service.

    Args:
        directory: of its shard.
        service_id: of the service, 32 hexadecimal digits.
        incarnation: likewise.
        files: the topic's file system; None: the machine's.
        skips: what an operator has the application not get, by position.
    """

    def __init__(
        self,
        directory: str,
        service_id: str,
        incarnation: int,
        files: FileSystem | None = None,
        skips: Mapping[int, Skip] | None = None,
    ) -> None:
        self._source = TopicSource(service_id, incarnation)
        self.folder = Path(topic_directory(directory, INPUTS))
        self._reader = TopicReader(self.folder, self._source, files=files)
        self._skips = skips or {}
        self._there = False  # something was published

    def reach(self) -> int:
        """Give the position behind the last row; 0: nothing was published. Raises: OSError."""
        return self._reader.bounds().next if self._published() else 0

    def read(self, first: int) -> list[tuple[int, Given]]:
        """Give rows from a position on, in their order; none: there are none yet.

        Raises: TopicRowsDropped, TopicGap, OSError.
        """
        if not self._published():
            return []
        bounds = self._reader.bounds()
        found: list[tuple[int, Given]] = []
        size = 0
        if bounds.next <= first:
            return found
        for batch in self._reader.read(first, bounds.next, _COLUMNS):
            columns = [column.to_pylist() for column in batch.columns]
            found += [(row[0], self._given(row[0], Given(*row[1:]))) for row in zip(*columns, strict=True)]
            size += batch.nbytes
            if len(found) >= ROWS_MAX or size >= READ_BYTES:
                break
        return found

    def _given(self, position: int, row: Given) -> Given:
        skip = self._skips.get(position)
        return row if skip is None else without(row, skip)

    def hold(self, position: int) -> bool:
        """Keep the rows from a position on; False: there are none yet. Raises: TopicRowsDropped, OSError."""
        if not self._published():
            return False
        self._reader.hold(HOLD, position, owner="application")
        return True

    def _published(self) -> bool:
        self._there = self._there or self._source in self._reader.sources()
        return self._there
