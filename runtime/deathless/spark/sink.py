"""Where a batch of a query goes, and the sink of queries whose rows go to a service (`table` has the other).

Spark calls `on_batch` with each micro-batch, in the driver's own process. Rows come as Arrow, so their number in memory
is that of one batch, which the source bounds (`maxRowsPerBatch`). Rows for a service are staged with the pipeline, and
count once its service has decided the batch, which begins where the query stands; who computes the same batch again is
told that it is decided.

Guarantees: a batch is decided whole, once, in the order of its rows. Does not: retry a batch (the driver starts the
query again, from where it stands). Imports the pipelines' names.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deathless.base.errors import InvalidArgument, StateRefused
from deathless.pipelines.ledger import Batch, Tip
from deathless.pipelines.rows import Row, blocks_of
from deathless.pipelines.service import Opened
from deathless.spark.checkpoint import BatchFiles, lay, read_batch
from deathless.spark.holds import are_kept
from deathless.spark.queries import KEY, Query
from deathless.spark.state import KeptState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


class Ledger(Protocol):
    """What a sink needs of a pipeline's service; `PipelineClient` is one."""

    @property
    def name(self) -> str:
        """Of the pipeline."""
        ...

    def open(self, query: str, number: int) -> Opened:
        """Make a driver known to a query."""
        ...

    def stage(self, query: str, number: int, attempt: int, block: str, rows: int, data: bytes) -> None:
        """Keep a block."""
        ...

    def plan(self, query: str, batch: Batch) -> bool:
        """Keep a batch that a table's store is about to get."""
        ...

    def commit(self, query: str, batch: Batch) -> bool:
        """Decide a batch."""
        ...

    def adopted(self, query: str) -> None:
        """Say that the store's count was made the query's."""
        ...

    def incarnation(self, query: str) -> int:
        """Tell the service from any other, and from a restored one."""
        ...


class QuerySink(ABC):
    """Decides the batches of one run of a query.

    Args:
        query: whose rows they are.
        ledger: the pipeline's service.
        number: of the driver's assignment.
        folder: for the checkpoint, which must not be there yet; of a query that keeps state, for those of all its runs.
        before_rows: told (query, start, end) of each batch before anything is done with its rows: its name and texts of
            offsets, the first one empty where the query begins.
    """

    def __init__(
        self,
        query: Query,
        ledger: Ledger,
        number: int,
        folder: Path,
        before_rows: Callable[[str, str, str], object] = lambda _query, _start, _end: None,
    ) -> None:
        self.query = query
        self.number = number
        self._kept = KeptState(folder, number) if query.stateful else None
        self.folder = folder if self._kept is None else self._kept.folder
        self.decided = 0  # batches
        self.error: Exception | None = None  # what the last batch ended with
        self._before_rows = before_rows
        self._ledger = ledger
        self._tip: Tip | None = None
        self._query_id = ""

    def open(self) -> str:
        """Make the driver known, and lay the checkpoint from where the query stands; gives why it is stopped.

        Raises: DriverDeposed; as `SyncClient.call`; StateMissing; OSError; what a store raises.
        """
        opened = self._open()
        self._tip = opened.tip
        if opened.stopped:
            return opened.stopped
        if self._kept is not None and opened.tip is not None:
            self._kept.lay(opened.tip)
            self._query_id = opened.tip.query_id
        else:
            self._query_id = lay(self.folder, opened.tip)
        return ""

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        """Stage the rows of a batch, and decide it. Raises: what went wrong, which `error` holds too."""
        self.error = None
        try:
            files = read_batch(self.folder, batch, self._tip, first=0 if self._kept is None else 1)
            self._before_rows(self.query.name, self._rows_from(batch, files), files.offsets)
            if self._kept is not None and self._is_decided(batch, files):
                frame.toArrow()  # Spark keeps what it has computed only if somebody takes it
                return
            self._decide(frame, batch, files)
        except Exception as error:
            self.error = error
            raise
        self.decided += 1

    def close(self) -> None:
        """Let go of what the run holds, and of its checkpoint, unless others may need it."""
        if self._kept is not None:
            self._kept.close()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _rows_from(self, batch: int, files: BatchFiles) -> str:
        """Give the text of the offsets behind which rows are to be kept; empty: the query begins.

        A driver that goes on with a query that keeps state computes the last decided batch again, so its rows are kept
        as well.
        """
        if self._kept is None:
            return self._offsets(batch - 1).read_text(encoding="utf-8") if files.start else ""
        known = [each for each in (batch - 2, batch - 1) if self._offsets(each).exists()]
        return self._offsets(known[0]).read_text(encoding="utf-8") if known else ""

    def _is_decided(self, batch: int, files: BatchFiles) -> bool:
        """Say whether a batch is computed for the state alone: the empty first one, and the last that was decided."""
        if self._tip is not None:
            return batch == self._tip.batch
        if batch == 0 and not are_kept(files.offsets):
            raise StateRefused(
                f"query {self.query.name} keeps state in Spark, and reads something else than topics of services",
                remedy="read with .format('deathless').option('service', ...): only their rows are kept for a driver "
                "that takes over",
            )
        return batch == 0

    def _state(self, batch: int) -> tuple[str, str]:
        """Bring what a batch has read to the disk; gives what its decision is to say of it: `before` and `state`."""
        if self._kept is None:
            return "", ""
        return self._offsets(batch - 1).read_text(encoding="utf-8"), self._kept.settle(batch)

    def _commit(self, wanted: Batch) -> None:
        """Have a batch decided; former checkpoints are needed no more then."""
        if self._ledger.commit(self.query.name, wanted) and self._kept is not None:
            self._kept.decided()

    def _offsets(self, batch: int) -> Path:
        return self.folder / "offsets" / str(batch)

    @abstractmethod
    def _open(self) -> Opened:
        """Make the driver known; gives where the query stands."""

    @abstractmethod
    def _decide(self, frame: DataFrame, batch: int, files: BatchFiles) -> None:
        """Have the rows of a batch where they go, and the batch decided."""


class ServiceSink(QuerySink):
    """The sink of a query whose rows go to a service."""

    _attempt = 0

    def _open(self) -> Opened:
        opened = self._ledger.open(self.query.name, self.number)
        self._attempt = opened.attempt
        return opened

    def _decide(self, frame: DataFrame, batch: int, files: BatchFiles) -> None:
        self._attempt += 1
        query, blocks = self.query, []
        rows = rows_of(query, frame)
        for number, (count, data) in enumerate(blocks_of(query.service, query.method, query.on_refusal, rows)):
            name = str(number)
            self._ledger.stage(query.name, self.number, self._attempt, name, count, data)
            blocks.append((name, count))
        before, state = self._state(batch)
        wanted = Batch(
            self.number, self._attempt, files.start, files.end, blocks, batch, self._query_id, files.offsets,
            before=before, state=state,
        )  # fmt: skip
        self._commit(wanted)


def rows_of(query: Query, frame: DataFrame) -> Iterator[Row]:
    """Give the rows of a batch: key, and arguments by name.

    Raises: InvalidArgument for a row whose key is no text.
    """
    for found in frame.toArrow().to_batches(max_chunksize=4096):
        for row in found.to_pylist():
            key: Any = row.pop(KEY)
            if not isinstance(key, str) or not key:
                raise InvalidArgument(
                    f"query {query.name}: the key of a row must be a text that is not empty, not {key!r}"
                )
            yield key, row
