"""The sink of queries whose rows go to a table: rows and the count of batches in one transaction of the table's store.

    open    the pipeline's service knows the driver by its number, so nothing is planned any more under a lower one;
            then the store does, so nothing is stored any more under a lower one; only then its count is read
    batch   plan at the service; rows and count at the store; commit at the service

The store is one of those that sinks have (`sinks.port`): the number of the driver is its epoch, and the count of
batches its position. The service has decided as many batches as the store has, or one fewer: then the store has the
batch that was planned last, and it is decided now. Any other count means that one of the two was restored to an older
state, or that the rows went elsewhere before, and nothing is stored until an operator says so.

Guarantees: what a deposed driver has planned it does not store once its successor has read the count. Does not: skip
rows that the store refuses. Imports sinks and the pipelines' names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from deathless.base.config import SinkConfig
from deathless.base.errors import SinkColumnsChanged, SinkRowRefused, SinkTaken, SinkTipMismatch
from deathless.pipelines.ledger import Batch
from deathless.pipelines.service import Opened
from deathless.sinks.port import Block, BlockRefused, Claim, Key, Store
from deathless.sinks.port import Opened as StoreOpened
from deathless.sinks.stores import make_store
from deathless.spark.checkpoint import BatchFiles
from deathless.spark.row_schema import row_schema
from deathless.spark.sink import QuerySink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
ROWS_AT_ONCE: Final = 4096  # of a batch, as Python's objects
ADOPT: Final = (
    "if the table shall go on as it is: `deathless pipelines adopt {query} --why ...`, and `resume {query}` if it has "
    "stopped"
)


class TableSink(QuerySink):
    """The sink of a query whose rows go to a table; arguments as `QuerySink`.

    Its methods may be called in several threads, one after the other.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _store: Store
    _batches = 0  # that the store has

    def _open(self) -> Opened:
        name = self.query.name
        opened = self._ledger.open(name, self.number)
        if opened.stopped:
            return opened
        incarnation = self._ledger.incarnation(name)
        pipeline = self._ledger.name
        claim = Claim(Key(f"{pipeline}.{name}", pipeline, 0, f"{incarnation:032x}"), incarnation, self.number, "")
        found = self._claim(claim)
        if opened.adopt:
            found = self._adopt(claim, found, opened)
        self._judge(found)
        stored, planned = found.tip.next_position, opened.planned
        if stored == opened.batches + 1 and planned is not None:
            self._ledger.commit(name, msgspec.structs.replace(planned, number=self.number))
            opened = self._ledger.open(name, self.number)
        if stored != opened.batches:
            raise SinkTipMismatch(
                f"query {name}: the table has {stored} batches, and the pipeline has decided {opened.batches}: one of "
                "the two was restored to an older state, or the query's rows went elsewhere before",
                remedy=ADOPT.format(query=name) + "; a query of another name begins anew",
            )
        self._batches = stored
        return opened

    def _decide(self, frame: DataFrame, batch: int, files: BatchFiles) -> None:
        name, rows = self.query.name, frame.toArrow()
        before, state = self._state(batch)
        wanted = Batch(
            self.number, 0, files.start, files.end, [], batch, self._query_id, files.offsets, rows=rows.num_rows,
            before=before, state=state,
        )  # fmt: skip
        if not self._ledger.plan(name, wanted):
            return
        block = Block(self._batches, self._batches + 1, rows.to_batches(max_chunksize=ROWS_AT_ONCE))
        try:
            self._run(self._store.write(block, self._batches))
        except BlockRefused as error:
            raise SinkRowRefused(
                f"query {name}: the table refuses a row of batch {batch}: {error}",
                remedy=f"make the table take it, then `deathless pipelines resume {name}`",
            ) from None
        self._commit(wanted)
        self._batches += 1

    def close(self) -> None:
        """Let go of the connection and of the checkpoint."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(self._store.close())
            loop.close()
        super().close()

    def _claim(self, claim: Claim) -> StoreOpened:
        """Claim the store anew: nobody else stores anything from then on."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._store = make_store(self._config(claim.key.sink))
        drawn = msgspec.structs.replace(claim, writer=os.urandom(8).hex())
        return self._run(self._store.open(drawn, row_schema(self.query.name, self.query.frame.schema).text))

    def _adopt(self, claim: Claim, found: StoreOpened, opened: Opened) -> StoreOpened:
        """Have the store go on from the count of the pipeline, and claim it anew."""
        tip = self._run(self._store.adopt(claim.key, claim.incarnation, opened.adopt))
        stored = found.tip.next_position == opened.batches + 1 and opened.planned is not None
        wanted = opened.batches + stored
        if tip.next_position != wanted:
            self._run(self._store.skip(claim.key, tip.next_position, wanted, opened.adopt))
        self._ledger.adopted(self.query.name)
        return self._claim(claim)

    def _judge(self, found: StoreOpened) -> None:
        """See that the store may be written to. Raises: SinkTaken, SinkColumnsChanged."""
        name = self.query.name
        if found.retired:
            raise SinkTaken(
                f"query {name}: {found.retired} has taken its table over", remedy="drop one of the two queries"
            )
        if found.foreign:
            raise SinkTaken(
                f"query {name}: the store has batches under this name of {', '.join(found.foreign)}",
                remedy=f"name one of the two anew; or empty the table and `deathless pipelines adopt {name}`",
            )
        if found.tip.columns and found.tip.columns != found.columns:
            raise SinkColumnsChanged(
                f"query {name}: the columns are not those that the batches before were stored with",
                remedy=ADOPT.format(query=name),
            )

    def _config(self, sink: str) -> SinkConfig:
        table = self.query.table
        assert table is not None, "the query says so"
        return SinkConfig(
            name=sink, topic="", topic_directory="", store=table.store, table=table.name, dsn=table.dsn,
            dsn_file=table.dsn_file, schema=table.schema, create=table.create,
        )  # fmt: skip

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return self._loop.run_until_complete(work)
