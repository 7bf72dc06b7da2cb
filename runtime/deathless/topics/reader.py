"""Reads the rows of one topic: of one shard, by their positions, exactly or not at all.

    read(start, end)   each position from `start` to `end` once, whichever files hold it
    follow(start)      the same without an end, as rows come
    hold(name, at)     keeps the rows from `at` on, until the hold is moved or dropped

Files of several epochs may hold the same positions with the same rows, so the lowest position that is still missing is
taken from any whole block. What is in none is looked for again, through fresh listings and descriptors, for LOOKS
pauses, because on shared storage a listing may be old; then it is an error, never left out.

Guarantees: no row is given twice or left out, and none whose checksum is wrong. Does not: need the service to run.
Imports the rest of this package.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.base.errors import InvalidArgument, TopicGap, TopicRowsDropped
from deathless.engine.ports import FileSystem, Handle
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics.arrow import ORDINARY, arrow_schema, decode_batch, fit, library
from deathless.topics.index import Block, SourceIndex, TopicFile
from deathless.topics.keeping import (
    SKIPPED,
    Floor,
    Hold,
    NamedHold,
    drop,
    floor_of,
    holds_of,
    publish_floor,
    register,
)
from deathless.topics.row_source import Bounds, Extent, follow_rows
from deathless.topics.source import TopicSource, parse_file, parse_source

if TYPE_CHECKING:
    import pyarrow as pa

PAUSE_S: Final = 0.2
LOOKS: Final = 25  # at a gap, a pause before each: five seconds


class TopicReader:
    """Reads one source of a topic.

    Args:
        directory: of the topic in a shard's directory: `<shard directory>/topics/<topic>`.
        source: whose rows; None: of the one that published last, if all are of one service.
        files: the directory's file system.
        sleep: pauses for so many seconds.
        looks: at a gap, before it is an error, with a pause before each; 0: one new listing, and no pause.
        called: what errors call the topic; empty: by its directory.
    """

    def __init__(
        self,
        directory: str | Path,
        source: TopicSource | None = None,
        *,
        files: FileSystem | None = None,
        sleep: Callable[[float], object] = time.sleep,
        looks: int = LOOKS,
        called: str = "",
    ) -> None:
        self.directory = Path(directory)
        self._source = source
        self._files = files
        self._sleep = sleep
        self._looks = looks
        self._called = called or str(directory)
        self._index: SourceIndex | None = None

    # ---- what there is ---------------------------------------------------------------------------------------

    def sources(self) -> list[TopicSource]:
        """Give whose rows the directory holds, by service, the one that published last behind the others.

        Raises: OSError.
        """
        try:
            files = self._opened()
            names = files.listing("")
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [each for name in names if (each := parse_source(name)) is not None]
        # An incarnation is drawn by chance; epochs go on where a service is restored.
        return sorted(found, key=lambda each: (each.service_id, _latest_epoch(files, each), each.incarnation))

    def source(self) -> TopicSource:
        """Give whose rows are read. Raises: InvalidArgument when there are none, or of several services."""
        if self._source is None:
            found = self.sources()
            if not found:
                raise InvalidArgument(f"{self._called} holds no rows of a topic")
            if len({each.service_id for each in found}) > 1:
                raise InvalidArgument(f"{self._called} holds rows of several services; name one of {found}")
            self._source = found[-1]
        return self._source

    def bounds(self) -> Bounds:
        """Give which rows there are now. Raises: InvalidArgument, OSError."""
        index = self._listed()
        floor = floor_of(index.files, index.folder).position
        return Bounds(floor, index.lowest(floor), index.reach(floor))

    def schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Give the columns of the newest rows, or those of them. Raises: InvalidArgument, OSError."""
        schema = arrow_schema(self.extent().schema)
        return chosen(schema, columns)

    def extent(self) -> Extent:
        """Give how much the files of the source hold. Raises: InvalidArgument, OSError."""
        index = self._listed()
        tips = index.tips()
        return Extent(
            len(index.known),
            sum(index.sizes().values()),
            max((file.time_us for file in tips), default=0),
            _schema_of(index, tips),
        )

    def bytes_from(self, position: int) -> int:
        """Give the bytes of rows from a position on, as files hold them. Raises: InvalidArgument, OSError."""
        index = self._listed()
        sizes = index.sizes()
        behind = sum(size for name, size in sizes.items() if name.first > position)
        found = next(index.candidates(position), None)
        if found is None:
            return behind
        file, block = found
        return behind + max(sizes.get(file.name, 0) - block.offset, 0)

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from position `start` up to `end`, without it, in ascending order.

        Args:
            start: above 0.
            end: at most `bounds().next`, or it is waited for as at a gap.
            columns: by name; None: all of the newest schema.
            schema: to give rows in, in the place of `columns`; see `schema`.

        Raises: TopicGap when positions are in no whole block; TopicRowsDropped when they are below the floor;
            InvalidArgument; OSError.
        """
        if start < 1:
            raise InvalidArgument(f"positions begin with 1, not with {start}")
        for _, batch in self.parts(start, end, schema or self.schema(columns)):
            yield batch

    def parts(self, start: int, end: int, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Give rows as `read` does, each batch with the position behind those that it covers. Raises: as `read`."""
        position = start
        while position < end:
            found = self._batch_at(position, end, schema)
            if found is None:
                raise self._missing(position, end)
            position, batch = found
            if batch is not None and batch.num_rows:
                yield position, batch

    def follow(
        self, start: int, columns: Sequence[str] | None = None, *, pause_s: float = PAUSE_S
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from `start` on, for ever, as they come; a look each `pause_s` while none do.

        Raises: as `read`.
        """
        return follow_rows(self, start, columns, pause_s=pause_s)

    def wait(self, position: int, *, pause_s: float = PAUSE_S, pauses: int | None = None) -> int:
        """Wait until a position is there; gives the one up to which all are.

        Args:
            position: that is waited for.
            pause_s: between two looks.
            pauses: after so many give up, and give what is there; None: never.

        Raises: InvalidArgument; OSError.
        """
        made = 0
        while True:
            bounds = self.bounds()
            if position < bounds.next or made == pauses:
                return bounds.next
            self._sleep(pause_s)
            made += 1

    def _batch_at(self, position: int, end: int, schema: pa.Schema) -> tuple[int, pa.RecordBatch | None] | None:
        """Give the rows of one block from a position on, and the position behind them; None: it is in no whole one."""
        index = self._indexed()
        for look in range(self._looks + 2):  # at what is known, at a new listing, and then after a pause each
            if look > 1:
                self._sleep(PAUSE_S)
            if look:
                index.refresh(fresh=look > 1)
            for file, block in index.candidates(position):
                try:
                    with index.opened(file) as handle:
                        found = self._rows(index, file, block, handle)
                except OSError as error:
                    index.failed(file, error)
                    continue
                if found is not None:
                    batch = found[0]
                    behind = min(block.head.last + 1, end)
                    return behind, None if batch is None else fit(_between(batch, position, behind), schema)
            if look and position < floor_of(index.files, index.folder).position:
                return None
        return None

    def _rows(
        self, index: SourceIndex, file: TopicFile, block: Block, handle: Handle
    ) -> tuple[pa.RecordBatch | None] | None:
        if not block.head.rows:
            return (None,)
        payload = index.payload(file, block, handle)
        if payload is None or file.header is None:
            return None
        try:
            batch = decode_batch(payload, file.header.schema)
        except ValueError as error:
            index.failed(file, OSError(f"no rows of its schema at byte {block.offset}: {error}"))
            return None
        return (batch,)

    def _missing(self, position: int, end: int) -> TopicGap | TopicRowsDropped:
        index = self._indexed()
        floor = floor_of(index.files, index.folder)
        if position < floor.position:
            return TopicRowsDropped(
                f"position {position} is below the floor of {self._called}, {floor.position}: {floor.why}"
            )
        troubles = index.troubles()
        return TopicGap(
            f"{self._called}: position {position} of {position} to {end - 1} is in no whole block"
            + (f"; {troubles}" if troubles else "")
        )

    # ---- what is kept ----------------------------------------------------------------------------------------

    def floor(self) -> Floor:
        """Give the floor, and why it stands there. Raises: InvalidArgument, OSError."""
        index = self._indexed()
        return floor_of(index.files, index.folder)

    def holds(self) -> list[NamedHold]:
        """Give what keeps rows, by name. Raises: InvalidArgument, OSError."""
        index = self._indexed()
        return holds_of(index.files, index.folder)

    def hold(self, name: str, position: int, *, owner: str = "", since: str = "") -> None:
        """Keep the rows from a position on; the same name again moves the hold.

        Raises: TopicRowsDropped when they may be gone already; InvalidArgument; OSError.
        """
        index = self._indexed()
        register(index.files, index.folder, name, Hold(position, owner, since))

    def drop_hold(self, name: str) -> bool:
        """Let go of a hold; False: there is none. Raises: InvalidArgument; OSError."""
        index = self._indexed()
        return drop(index.files, index.folder, name)

    def skip(self, position: int) -> Floor:
        """Give up the rows below a position, for ever. Raises: InvalidArgument; OSError."""
        index = self._indexed()
        return publish_floor(index.files, index.folder, position, SKIPPED)

    def _opened(self) -> FileSystem:
        if self._files is None:
            self._files = RealFileSystem(self.directory)
        return self._files

    def _indexed(self) -> SourceIndex:
        if self._index is None:
            source = self.source()  # first: a topic nobody wrote yet has no folder, and that is said as no rows
            self._index = SourceIndex(self._opened(), source.folder)
        return self._index

    def _listed(self) -> SourceIndex:
        index = self._indexed()
        index.refresh()
        return index


def _latest_epoch(files: FileSystem, source: TopicSource) -> int:
    """Give the epoch of the newest file; 0: there is none. Raises: OSError."""
    with contextlib.suppress(FileNotFoundError):
        names = (parse_file(text) for text in files.listing(source.folder))
        return max((name.epoch for name in names if name is not None), default=0)
    return 0


def _schema_of(index: SourceIndex, tips: Sequence[TopicFile]) -> str:
    """Give the text of the newest rows' schema; empty: there are none."""
    newest = sorted(tips, key=lambda file: (file.next, file.name.epoch, file.name.number), reverse=True)
    others = sorted((file for file in index.known.values() if file not in newest), key=lambda file: file.name)
    for file in [*newest, *reversed(others)]:
        if file.header is None:
            index.look(file)
        if file.header is not None and file.header.schema:
            return file.header.schema
    return ""


def chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Give a schema with only these columns, in this order; None: all. Raises: InvalidArgument."""
    return schema if columns is None else library().schema([_field(schema, name) for name in columns])


def _field(schema: pa.Schema, name: str) -> pa.Field:
    at = schema.get_field_index(name)
    if at < 0:
        raise InvalidArgument(f"there is no column {name!r}; there are {', '.join(schema.names)}")
    return schema.field(at)


def _between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Give the rows of these positions; they ascend."""
    positions = batch.column(ORDINARY.index("_position"))
    if batch.num_rows and positions[0].as_py() >= start and positions[-1].as_py() < end:
        return batch
    found = [at for at, position in enumerate(positions.to_pylist()) if start <= position < end]
    return batch.slice(found[0], len(found)) if found else batch.slice(0, 0)
