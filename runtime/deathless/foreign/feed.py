"""The rows that an application gets, read from the files of the topic `inputs`.

A service that was restored, copied or forked goes on in another incarnation, whose rows stand in a folder of their
own and begin where the service did not know yet that they were published:

    former incarnation   1 ......... 40 | 41 .. 50 | 51 .. 57    the log was cut behind row 50
    own incarnation                     | 41 .. 50 | 51 ....... 63

So a position below the beginning is read from the former incarnation. A checkpoint of that one is this service's as
well where all rows up to it are the same: what a program is depends on these alone. Whether they are is known once a
row was published that the service made in its own incarnation: the coordinator has it make one that holds nothing.

Guarantees: rows come by ascending positions, none left out; nothing is read where nothing was published yet. Does not:
decide when to read. Imports topics and this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from deathless.foreign.rows import INPUTS, Given, What, encode_items
from deathless.foreign.skips import Skip, without
from deathless.topics.keeping import BEGINS
from deathless.topics.reader import TopicReader
from deathless.topics.source import TopicSource, topic_directory

if TYPE_CHECKING:
    from deathless.engine.ports import FileSystem

ROWS_MAX: Final = 2048  # read at once, at least a block
READ_BYTES: Final = 4 << 20  # likewise
HOLD: Final = "application"
LOADING: Final = "application.loading."  # and a replica: its program loads a checkpoint, and then needs these rows
HOLD_NAME_MAX: Final = 63  # letters
NOTHING: Final = encode_items([])
_COLUMNS: Final = ("_position", *Given.__struct_fields__)


class Ahead(NamedTuple):
    """What was published, seen from an application that has not got all of it."""

    reach: int  # position behind the last row
    bytes: int  # that it had not got, as the topic's files hold them

    def rows(self, delivered: int) -> int:
        """Rows that an application lacks which got all up to a position."""
        return max(self.reach - 1 - delivered, 0)


class Feed:
    """The rows of one service.

    Args:
        directory: of its shard.
        service_id: of the service, 32 hexadecimal digits.
        incarnation: likewise.
        files: the topic's file system; None: the machine's.
        skips: what an operator has the application not get, by position.
        former: incarnations that the service was in before, the last one at the end.
    """

    def __init__(
        self,
        directory: str,
        service_id: str,
        incarnation: int,
        files: FileSystem | None = None,
        skips: Mapping[int, Skip] | None = None,
        former: Sequence[int] = (),
    ) -> None:
        self._files = files
        self._source = TopicSource(service_id, incarnation)
        self.folder = Path(topic_directory(directory, INPUTS))
        self._reader = self._reader_of(self._source)
        self._former = former
        self._begun = False  # a row of this incarnation's own is there
        self._skips = skips or {}
        self.ahead = Ahead(0, 0)  # when it was looked last
        self._there = False  # something was published

    @property
    def source(self) -> TopicSource:
        """The service, and the incarnation that it is in."""
        return self._source

    def reach(self) -> int:
        """Give the position behind the last row; 0: nothing was published. Raises: OSError."""
        return self._reader.bounds().next if self._published() else 0

    def read(self, first: int) -> list[tuple[int, Given]]:
        """Give rows from a position on, in their order; none: there are none yet.

        Raises: TopicRowsDropped, TopicGap, OSError.
        """
        if not self._published():
            return []
        reader, end = self._where(first)
        return [(position, self._given(position, row)) for position, row in _rows(reader, first, end)]

    def _given(self, position: int, row: Given) -> Given:
        skip = self._skips.get(position)
        return row if skip is None else without(row, skip)

    def look_ahead(self, delivered: int) -> None:
        """Look how much there is behind a position. Raises: InvalidArgument, OSError."""
        reach = self.reach()
        self.ahead = Ahead(reach, self._reader.bytes_from(delivered + 1) if reach > delivered + 1 else 0)

    def hold(self, position: int) -> bool:
        """Keep the rows from a position on; False: there are none yet. Raises: TopicRowsDropped, OSError."""
        if not self._published():
            return False
        self._reader.hold(HOLD, max(position, _begins(self._reader)), owner="application")
        return True

    def held(self) -> int:
        """Give the position from which rows are kept for every replica; 0: none are. Raises: OSError."""
        return self._holds().get(HOLD, 0)

    def hold_loading(self, replica: str, position: int) -> bool:
        """Keep the rows from a position on for one replica as well; False: there are none yet.

        Raises: TopicRowsDropped, OSError.
        """
        if not self._published():
            return False
        name = _name_of_loading(replica)
        self._reader.hold(name, max(position, _begins(self._reader)), owner="application")
        return True

    def loading(self) -> dict[str, int]:
        """Give from where rows are kept for replicas that load, by the names of the holds. Raises: OSError."""
        return {name: position for name, position in self._holds().items() if name.startswith(LOADING)}

    def drop_loading(self, *, replica: str = "", name: str = "") -> None:
        """Let go of what is kept for one replica, or of the hold of that name. Raises: OSError."""
        if self._published():
            self._reader.drop_hold(name or _name_of_loading(replica))

    def _holds(self) -> dict[str, int]:
        if not self._published():
            return {}
        return {each.name: each.hold.position for each in self._reader.holds() if each.hold is not None}

    def was(self, incarnation: int) -> bool:
        """Say whether the service was in this incarnation before."""
        return incarnation in self._former

    def admits(self, incarnation: int, position: int) -> bool | None:
        """Say whether a checkpoint is of what this service has got; None: that is not known yet.

        Args:
            incarnation: in which it was taken.
            position: of the last row that is in it.

        Raises: TopicRowsDropped, TopicGap, OSError.
        """
        if incarnation == self._source.incarnation:
            return True
        if not self.was(incarnation):
            return False
        # A first row is written behind the floor that says where the rows begin; the folder is there before that.
        if not self._published() or not self._reader.extent().files:
            return None
        there = {each.incarnation: each for each in self._reader.sources()}
        behind = [each for each in self._former[self._former.index(incarnation) + 1 :] if each in there]
        floors = [reader.floor() for reader in (self._reader, *(self._reader_of(there[each]) for each in behind))]
        if any(each.reason != BEGINS and each.position > 1 for each in floors):
            return False  # where one begins is hidden, and there was a checkpoint of it by then
        start = min(each.position for each in floors)
        if position < start:
            return True
        if not self._has_begun():
            return None
        return incarnation in there and self._is_same(self._reader_of(there[incarnation]), start, position)

    def _has_begun(self) -> bool:
        """Whether a row was published that the service made in this incarnation, see `Coordinator.ask_for_row`."""
        first, end = self._reader.floor().position, self._reader.bounds().next
        while not self._begun and first < end:
            rows = list(_rows(self._reader, first, end))
            if not rows:
                break
            self._begun = any(row.what == What.ITEMS and row.items == NOTHING and not row.upto for _, row in rows)
            first = rows[-1][0] + 1
        return self._begun

    def _is_same(self, former: TopicReader, start: int, position: int) -> bool:
        """Whether rows of a former incarnation are those of this one."""
        at = start
        while at <= position:
            reader, end = self._where(at)
            end = min(end, former.bounds().next, position + 1)
            ours, theirs = list(_rows(reader, at, end)), list(_rows(former, at, end))
            if not ours or ours != theirs:
                return False
            at = ours[-1][0] + 1
        return True

    def _where(self, first: int) -> tuple[TopicReader, int]:
        """Give who has the row at a position, and the position behind the last one that it has of ours."""
        reader, end = self._reader, self._reader.bounds().next
        if self._former and first < _begins(reader):
            there = {each.incarnation: each for each in reader.sources()}
            for incarnation in reversed([each for each in self._former if each in there]):
                reader, end = self._reader_of(there[incarnation]), _begins(reader)
                if first >= _begins(reader):
                    break
        return reader, end

    def _reader_of(self, source: TopicSource) -> TopicReader:
        return TopicReader(self.folder, source, files=self._files)

    def _published(self) -> bool:
        self._there = self._there or self._source in self._reader.sources()
        return self._there


def _name_of_loading(replica: str) -> str:
    """Give the hold's name: with the replica's own where that fits, since those of pods differ at their ends alone."""
    name = f"{LOADING}{replica}"
    digest = hashlib.blake2b(replica.encode(), digest_size=16).hexdigest()
    return name if len(name) <= HOLD_NAME_MAX else LOADING + digest


def _rows(reader: TopicReader, first: int, end: int) -> Iterator[tuple[int, Given]]:
    """Give rows up to a position, as many as are read at once. Raises: TopicRowsDropped, TopicGap, OSError."""
    count = size = 0
    if end <= first:
        return
    for batch in reader.read(first, end, _COLUMNS):
        columns = [column.to_pylist() for column in batch.columns]
        for position, *row in zip(*columns, strict=True):
            yield position, Given(*row)
        count += batch.num_rows
        size += batch.nbytes
        if count >= ROWS_MAX or size >= READ_BYTES:
            return


def _begins(reader: TopicReader) -> int:
    """Give the position with which the rows of an incarnation begin; 1: as far as is known with the first of all."""
    floor = reader.floor()
    return floor.position if floor.reason == BEGINS else 1
