"""Topics as a source of Spark: `spark.read.format("deathless")` and `spark.readStream.format("deathless")`.

The options are those of `options`. A row has the topic's columns and before them `_shard`, `_position`, `_key` and
`_time`. A batch holds exactly the positions from its start to its end, however often it is read and whatever the number
of executors: else the read fails, and no row is left out in silence.

Guarantees: partitions are a function of the range alone (see offsets). Does not: say when rows are taken (a sink does);
a stream's `commit` only moves its hold. Imports topics and pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from deathless.base.errors import InvalidArgument
from deathless.spark.offsets import Offset, Span, cut, now, spans
from deathless.spark.options import Settings, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RECENT_ROWS: Final = 100  # of a batch of a warm-up
RECENT_BATCHES: Final = 15


class Range(InputPartition):
    """Positions of one shard, as Spark hands them to its tasks."""

    def __init__(self, span: Span) -> None:
        self.span = span


class Deathless(DataSource):
    """The source `deathless`; `spark.dataSource.register(Deathless)` makes it known to a session."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "deathless"

    def schema(self) -> StructType:
        """Give the columns of the topic's newest rows. Raises: InvalidArgument, OSError."""
        settings = read_options(self.options)
        found = [settings.reader(shard).schema() for shard in range(settings.shards) if settings.published(shard)]
        if not found:
            raise InvalidArgument(
                f"topic {settings.topic!r} has no rows yet, so its columns are not known",
                remedy="start the query once a row was published, or give the columns with .schema(...)",
            )
        return from_arrow_schema(max(found, key=len))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Give what reads all rows that there are now."""
        return _BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Give what reads rows as they come."""
        return _StreamReader(read_options(self.options), schema)


class Recent(Deathless):
    """The same for a warm-up: a few of the newest rows, for which nothing is kept, in small batches."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Give what reads the newest rows, RECENT_BATCHES batches at most."""
        settings = read_options(self.options)
        return _RecentReader(settings._replace(hold="", max_rows=RECENT_ROWS), schema)


class Driven(Deathless):
    """The same for a driver: the first batch of a new query is empty.

    So where the query begins is said by the offsets of a batch, before any row is read, and not by what `earliest` or
    `latest` mean when that is asked again.
    """

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Give what reads rows as they come."""
        return _DrivenReader(read_options(self.options), schema)


class _Rows:
    """Reads ranges in the columns that the query began with."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        reader = self.settings.reader(partition.span.shard, partition.span.source)
        held = reader.schema(wanted.names)
        for batch in reader.read(partition.span.start, partition.span.end, schema=held):
            yield pa.RecordBatch.from_arrays(
                [batch.column(at).cast(field.type) for at, field in enumerate(wanted)], schema=wanted
            )


class _BatchReader(_Rows, DataSourceReader):
    """Reads all rows that there were when the query was planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """See DataSourceReader."""
        return [Range(span) for span in spans(now(self.settings, newest=False), now(self.settings, newest=True))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        assert isinstance(partition, Range)
        return _Rows.read(self, partition)


class _StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows as they come."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._until: Offset | None = None  # a query that ends where the rows ended when it began

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Give where a new query begins; what it has not taken is kept for it from now on."""
        start = now(self.settings, newest=self.settings.start == "latest")
        self._hold(start)
        return start

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  Spark's name
        """Give where the next batch ends."""
        until = self._until if self._until is not None else now(self.settings, newest=True)
        return cut(start, until, limit.max_rows if isinstance(limit, ReadMaxRows) else self.settings.max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Give how many rows a batch may have."""
        return ReadMaxRows(self.settings.max_rows)

    def reportLatestOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Give where the rows end."""
        return now(self.settings, newest=True)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Have the query end with the rows that there are now."""
        self._until = now(self.settings, newest=True)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """See DataSourceStreamReader."""
        return [Range(span) for span in spans(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        assert isinstance(partition, Range)
        return _Rows.read(self, partition)

    def commit(self, end: Offset) -> None:
        """Let go of rows below; a query that goes on begins above them."""
        self._hold(end)

    def stop(self) -> None:
        """Nothing is to be closed."""

    def _hold(self, at: Offset) -> None:
        if self.settings.hold:
            for shard, (source, position) in at["shards"].items():
                self.settings.reader(int(shard), source).hold(self.settings.hold, position, owner="spark")


class _DrivenReader(_StreamReader):
    """Reads rows as they come, behind an empty batch if the query is new."""

    _begun: Offset | None = None  # where it begins, if it is new
    _told = False  # that the first batch ends there as well

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Give where a new query begins: the same each time, as Spark asks again in the first batch."""
        if self._begun is None:
            self._begun = super().initialOffset()
        return self._begun

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  Spark's name
        """Give where the next batch ends: the first one of a new query where it begins."""
        if self._begun is not None and not self._told:
            self._told = True
            return self._begun
        return super().latestOffset(start, limit)


class _RecentReader(_StreamReader):
    """Reads a few of the newest rows."""

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Begin a few batches before the end."""
        first, end = now(self.settings, newest=False), now(self.settings, newest=True)
        back = RECENT_BATCHES * RECENT_ROWS // max(1, len(end["shards"]))
        for shard, place in first["shards"].items():
            place[1] = max(place[1], end["shards"][shard][1] - back)
        return first
