"""What a pipeline knows of one query, and what it may do next: batches that are staged, decided and applied.

    open      a driver makes itself known by its number; from now on no other number is listened to
    stage     rows of the batch that the driver is at, block by block; they count for nothing yet
    commit    one decision: the batch that goes from where the query stands to `end`, and which blocks are its rows
    apply     the rows of decided blocks reach the service they are for, in their order, each once

Rows that go to a table, not to a service, are kept by the table's store (see spark.table), and nothing of them is here:

    plan      the batch that the driver is about to store; the newest plan is kept
    commit    as above, once the store has it; without blocks

The store counts the batches that it has, in the transaction of their rows. It has as many as are decided here, or one
more, the planned one; so a driver that goes on knows from which position, whatever its predecessor had told.

A query's place is the position behind its last decided batch (see position), and a batch is decided only by who
begins where the query stands: a compare-and-swap. So a driver that was replaced, or that goes on from an old copy of
its checkpoint, decides nothing, whatever it has computed. Blocks that a decision names are kept until they are
applied; nothing else lets go of them, neither a newer driver nor time.

Guarantees: a function of its arguments; what raises has changed nothing. Does not: call anything (see service).
Imports base and the author's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from deathless.sdk import CallRefused, Map, Struct, field

ROWS_MAX: Final = 1000  # of a block
BLOCK_BYTES_MAX: Final = 256 << 10
STAGED_BYTES_MAX: Final = 256 << 20  # of a query: staged and decided
REFUSED_MAX: Final = 10_000  # refused rows that are listed: the query stops then
REFUSED_BYTES_MAX: Final = 64 << 20  # of the arguments of those that are listed: likewise
AGAIN_MAX: Final = 1_000  # refused rows that are to be sent again
WHY_MAX: Final = 500  # letters of a reason
_encode: Final = msgspec.msgpack.Encoder().encode


class DriverDeposed(CallRefused):
    """A driver with a higher number has been assigned since."""


class PositionTaken(CallRefused):
    """The query stands at another position than the one at which the batch begins."""


class BlockMissing(CallRefused):
    """A batch names a block that was not staged, or holds other rows than were."""


class StageFull(CallRefused):
    """There is no room for another block until some that were decided are applied."""


class QueryStopped(CallRefused):
    """The query is stopped, and takes no batch until it is resumed."""


class Tip(Struct):
    """Where a query stands: behind its last decided batch."""

    position: str  # see position
    batch: int  # Spark's number of the batch
    query_id: str  # of the checkpoint that it was computed with
    offsets: str  # text of Spark's file offsets/<batch>, from which a checkpoint can be made again
    number: int  # of the driver that decided it
    rows: int
    time_us: int  # logical time of the decision
    before: str = ""  # text of offsets/<batch - 1>, of queries that keep state in Spark
    state: str = ""  # folder whose version <batch> of the state it was computed with; empty: it keeps none


class Batch(Struct):
    """What a driver asks for: that a batch is decided."""

    number: int  # of the driver
    attempt: int  # that its blocks were staged with
    start: str  # position at which it begins; empty: at the query's beginning
    end: str  # position behind it
    blocks: list[tuple[str, int]]  # (name, rows) of all that are its rows, in their order
    batch: int  # Spark's number of it
    query_id: str  # of the checkpoint that it was computed with
    offsets: str  # text of Spark's file offsets/<batch>
    rows: int = 0  # that a table's store has; those of blocks are counted with them
    before: str = ""  # see Tip
    state: str = ""  # see Tip


class Block(Struct):
    """Rows of a batch that are kept until they are applied."""

    id: str
    rows: int
    size: int  # bytes


class Refused(Struct):
    """A row that its handler refused."""

    key: str
    arguments: dict[str, Any]
    service: str
    method: str
    code: str
    text: str


class Query(Struct):
    """State of one query."""

    number: int = 0  # highest that was opened
    tip: Tip | None = None
    batches: int = 0  # decided ever
    planned: Batch | None = None  # that a table's store may have, though it is not decided
    adopt: str = ""  # why the store's count is to be made ours; empty: it is not
    attempt: int = 0  # of the batch that is staged; counts within one number
    staged: list[Block] = field(default_factory=list)  # of that attempt
    decided: list[Block] = field(default_factory=list)  # in the order in which they are applied
    blocks: Map[str, bytes] = field(default_factory=Map)  # by id: what is staged and what is decided
    size: int = 0  # bytes of all of them
    at: int = 0  # rows of the first decided block that are applied
    applied: int = 0  # rows, ever
    refused: Map[int, Refused] = field(default_factory=Map)  # by an ordinal, from 1
    refusals: int = 0  # ever
    refused_bytes: int = 0  # of what is in `refused`, as `size_of` counts it
    stopped: str = ""  # why no batch is taken; empty: it runs
    again: list[int] = field(default_factory=list)  # of `refused`: those to be sent once more, in this order


def open_query(query: Query, number: int) -> None:
    """Make a driver known; blocks that another one staged and nobody decided are let go.

    Raises: DriverDeposed.
    """
    _check_not_below(query, number)
    if number > query.number:
        query.number = number
        query.attempt = 0
        _drop_staged(query)


def stage_block(query: Query, number: int, attempt: int, block: str, rows: int, data: bytes) -> None:
    """Keep a block of the batch that a driver is at; the same block again changes nothing.

    Args:
        query: of which it is a batch.
        number: of the driver.
        attempt: counts what the driver computes; a higher one lets go of what a lower one has staged.
        block: its name, unique within the attempt.
        rows: how many it holds.
        data: see rows.

    Raises: DriverDeposed, QueryStopped, StageFull, CallRefused.
    """
    _check_number(query, number)
    _check_running(query)
    if attempt < query.attempt:
        raise CallRefused(f"attempt {attempt} is over: the driver stages rows of attempt {query.attempt}")
    if not 0 < rows <= ROWS_MAX or len(data) > BLOCK_BYTES_MAX:
        raise CallRefused(
            f"a block holds 1 to {ROWS_MAX} rows and at most {BLOCK_BYTES_MAX} bytes, not {rows} and {len(data)}"
        )
    name = _name(number, attempt, block)
    if attempt == query.attempt and name in query.blocks:
        return
    if query.size + len(data) > STAGED_BYTES_MAX and (attempt == query.attempt or not query.staged):
        raise StageFull(
            f"{query.size} bytes are kept until their rows are applied; with {len(data)} more there were above "
            f"{STAGED_BYTES_MAX}"
        )
    if attempt > query.attempt:
        query.attempt = attempt
        _drop_staged(query)
    query.blocks[name] = data
    query.staged.append(Block(name, rows, len(data)))
    query.size += len(data)


def plan_batch(query: Query, batch: Batch) -> bool:
    """Keep a batch that a table's store is about to get; False: it was decided before.

    Raises: DriverDeposed, QueryStopped, PositionTaken, CallRefused.
    """
    if not _follows(query, batch):
        return False
    query.planned = batch
    return True


def commit_batch(query: Query, batch: Batch, now_us: int) -> bool:
    """Decide a batch; False: it was decided before.

    Raises: DriverDeposed, QueryStopped, PositionTaken, BlockMissing, CallRefused.
    """
    if not _follows(query, batch):
        _drop_staged(query)
        return False
    held = {block.id: block for block in query.staged} if batch.attempt == query.attempt else {}
    named = {_name(batch.number, batch.attempt, block): rows for block, rows in batch.blocks}
    for name, rows in named.items():
        if name not in held or held[name].rows != rows:
            raise BlockMissing(f"the batch names block {name!r} with {rows} rows, which is not staged")
    query.staged = [block for block in query.staged if block.id not in named]
    _drop_staged(query)
    query.decided += [held[name] for name in named]
    query.planned = None
    query.batches += 1
    total = batch.rows + sum(named.values())
    query.tip = Tip(
        batch.end, batch.batch, batch.query_id, batch.offsets, batch.number, total, now_us, batch.before, batch.state
    )
    return True


def stop_query(query: Query, number: int, why: str) -> None:
    """Have a query take no batch until somebody resumes it. Raises: DriverDeposed, CallRefused."""
    _check_number(query, number)
    query.stopped = why[:WHY_MAX] or "stopped"


def finish_block(query: Query) -> None:
    """Let go of the first decided block, all of whose rows are applied or refused."""
    block = query.decided.pop(0)
    del query.blocks[block.id]
    query.size -= block.size
    query.at = 0


def refuse_row(query: Query, row: Refused, policy: str) -> None:
    """Count a row that its handler refused, and keep it but with the policy `skip`; with `stop` the query stops."""
    query.refusals += 1
    if policy == "skip":
        return
    query.refused[query.refusals] = row
    query.refused_bytes += size_of(row)
    if len(query.refused) >= REFUSED_MAX or query.refused_bytes >= REFUSED_BYTES_MAX:
        query.stopped = f"{len(query.refused)} refused rows are listed, {query.refused_bytes} bytes; retry or drop them"
    if policy == "stop":
        query.stopped = f"{row.service} refused a row of key {row.key!r}: {row.text}"[:WHY_MAX]


def refused_again(query: Query, number: int, code: str, text: str) -> None:
    """A row that is listed was sent once more and refused again: it stays, with the reason of now."""
    row = query.refused.get(number)
    if row is None:
        return
    later = msgspec.structs.replace(row, code=code, text=text)
    query.refused[number] = later
    query.refused_bytes = max(query.refused_bytes + size_of(later) - size_of(row), 0)


def let_go(query: Query, number: int) -> bool:
    """List a refused row no more; False: it is not listed."""
    row = query.refused.pop(number, None)
    if row is None:
        return False
    query.refused_bytes = max(query.refused_bytes - size_of(row), 0)  # what an earlier release listed was not counted
    return True


def order_again(query: Query, ids: Sequence[int]) -> None:
    """Have rows that were refused sent once more, behind those for which that was ordered before.

    Raises: CallRefused.
    """
    new = [each for each in dict.fromkeys(ids) if each in query.refused and each not in query.again]
    if len(query.again) + len(new) > AGAIN_MAX:
        raise CallRefused(f"{len(query.again)} refused rows are to be sent again already; at most {AGAIN_MAX} can be")
    query.again += new


def size_of(row: Refused) -> int:
    """Give about how many bytes a refused row takes, in the state and in an answer."""
    return len(row.key) + len(row.text) + len(_encode(row.arguments))


def _name(number: int, attempt: int, block: str) -> str:
    return f"{number}/{attempt}/{block}"


def _drop_staged(query: Query) -> None:
    for block in query.staged:
        del query.blocks[block.id]
        query.size -= block.size
    query.staged = []


def _follows(query: Query, batch: Batch) -> bool:
    """Say whether a batch begins where the query stands; False: it was decided before.

    Raises: DriverDeposed, QueryStopped, PositionTaken, CallRefused.
    """
    _check_number(query, batch.number)
    _check_running(query)
    stands = query.tip.position if query.tip is not None else ""
    if batch.end == stands:
        return False
    if batch.start != stands:
        raise PositionTaken(
            f"the batch begins at {batch.start or 'the beginning'}, and the query stands at {stands or 'the beginning'}"
        )
    return True


def _check_not_below(query: Query, number: int) -> None:
    if number < query.number:
        raise DriverDeposed(f"driver {number} was replaced by driver {query.number}")


def _check_number(query: Query, number: int) -> None:
    _check_not_below(query, number)
    if number > query.number:
        raise CallRefused(f"driver {number} has not opened the query, whose driver is {query.number}")


def _check_running(query: Query) -> None:
    if query.stopped:
        raise QueryStopped(query.stopped)
