"""The service of a pipeline: where its queries stand, the rows on their way, and who drives.

    spec: {module: "deathless.pipelines.service:pipeline"}

Keys are the names of the queries, and DRIVERS. Everything that matters of a pipeline is in this service's log, so it
is replicated, confirmed and taken over as any service is; a Spark driver and its checkpoint hold nothing that can't be
made again. Rows of a decided batch go on to the service they are for as calls of its handlers: exactly once, to the
shard of their key, and answered, so that a row which its handler refuses is known.

Guarantees: rows of a query are applied in the order of its batches, each batch whole or not at all, each row once.
Imports the author's names and the rest of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from deathless.base.errors import Overloaded
from deathless.pipelines import assignment, ledger
from deathless.pipelines.assignment import Agent, Assignment, Drivers
from deathless.pipelines.ledger import Batch, Query, Refused, Tip
from deathless.pipelines.rows import Row, decode_rows
from deathless.sdk import (
    CallFailed,
    CallRefused,
    Context,
    DeathlessError,
    Operation,
    QueryContext,
    Service,
    Struct,
    field,
)

DRIVERS: Final = "."  # no query has that name
WINDOW: Final = 250  # calls under way at once, one of each key
AGAIN_LOOK: Final = timedelta(milliseconds=100)  # between looks whether refused rows were sent again
REFUSED_SHOWN_BYTES: Final = 1 << 20  # of refused rows in one answer, which has one row at least
BUSY_PAUSE: Final = timedelta(seconds=1)  # before a row that the other service had no room for is sent again


class Held(Query):
    """State of a key: that of a query, or `drivers` under the key DRIVERS."""

    drivers: Drivers = field(default_factory=Drivers)


class Opened(Struct):
    """Where a query stands for the driver that opened it."""

    tip: Tip | None
    attempt: int  # the driver counts on from here
    stopped: str
    batches: int = 0  # decided ever
    planned: Batch | None = None  # that a table's store may have, though it is not decided
    adopt: str = ""  # why the store's count is to be made ours; empty: it is not


class QueryView(Struct):
    """What people are shown of a query."""

    number: int
    tip: Tip | None
    staged_blocks: int
    waiting_rows: int  # decided and not applied yet
    held_bytes: int
    batches: int  # decided ever
    applied: int
    refused: int  # rows kept that were refused
    refusals: int  # ever
    stopped: str


class RefusedView(Struct):
    """One row that its handler refused."""

    id: int
    row: Refused


class DriversView(Struct):
    """Who drives, and who could."""

    number: int
    agent: str
    since_us: int
    agents: dict[str, Agent]
    failed: str
    suspended: bool
    queries: list[str]


pipeline = Service("pipeline", state=Held)


# ---- who drives ------------------------------------------------------------------------------------------------


@pipeline.handler
def report(held: Held, ctx: Context, agent: str, warm: bool) -> Assignment:
    """Take in that an agent is there; gives whether it drives."""
    _only(ctx, drivers=True)
    return assignment.report(held.drivers, agent, ctx.now_us, warm=warm)


@pipeline.handler
def resign(held: Held, ctx: Context, agent: str, number: int, progressed: bool, ordered: bool) -> None:
    """Take in that a driver has ended."""
    _only(ctx, drivers=True)
    assignment.resign(held.drivers, agent, number, progressed=progressed, ordered=ordered)


@pipeline.handler
def declare(held: Held, ctx: Context, number: int, queries: list[str]) -> None:
    """Note which queries a driver runs."""
    _only(ctx, drivers=True)
    assignment.declare(held.drivers, number, queries)


@pipeline.handler
def hand_over(held: Held, ctx: Context) -> str:
    """Have another agent drive as soon as a warm one is there; gives who drives now."""
    _only(ctx, drivers=True)
    held.drivers.leaving = bool(held.drivers.agent)
    return held.drivers.agent


@pipeline.handler
def suspend(held: Held, ctx: Context, suspended: bool) -> None:
    """Have nobody drive, or somebody again; the latter also after too many deaths."""
    _only(ctx, drivers=True)
    assignment.suspend(held.drivers, suspended=suspended)


@pipeline.handler(shared=True)
def newest_number(held: Held, ctx: Context) -> int:
    """Give the number of the newest assignment."""
    _only(ctx, drivers=True)
    return held.drivers.number


@pipeline.query
def show_drivers(held: Held, ctx: QueryContext) -> DriversView:
    """Give who drives, and who could."""
    _only(ctx, drivers=True)
    found = held.drivers
    return DriversView(
        found.number, found.agent, found.since_us, found.agents, found.failed, found.suspended, found.queries
    )


# ---- queries ---------------------------------------------------------------------------------------------------


@pipeline.handler(name="open", shared=True)
async def open_(held: Held, ctx: Context, number: int) -> Opened:
    """Make a driver known to a query; gives where the query stands."""
    _only(ctx)
    if number > held.number:  # a number that was never given would shut out all drivers that follow
        newest = await ctx.call(pipeline.name, DRIVERS, "newest_number", result=int)
        if number > newest:
            raise CallRefused(f"driver {number} was never assigned; the newest is {newest}")
    ledger.open_query(held, number)
    return Opened(held.tip, held.attempt, held.stopped, held.batches, held.planned, held.adopt)


@pipeline.handler(shared=True)
def stage(held: Held, ctx: Context, number: int, attempt: int, block: str, rows: int, data: bytes) -> None:
    """Keep a block of the batch that a driver is at."""
    _only(ctx)
    found = len(decode_rows(data).rows)  # what can't be read is refused now: once it is decided, nobody could mend it
    if found != rows:
        raise CallRefused(f"the block holds {found} rows, not {rows}")
    ledger.stage_block(held, number, attempt, block, rows, data)


@pipeline.handler(shared=True)
def plan(held: Held, ctx: Context, batch: Batch) -> bool:
    """Keep a batch that a table's store is about to get; False: it was decided before."""
    _only(ctx)
    return ledger.plan_batch(held, batch)


@pipeline.handler(shared=True)
def commit(held: Held, ctx: Context, batch: Batch) -> bool:
    """Decide a batch; False: it was decided before. Its rows are applied from now on."""
    _only(ctx)
    applied = not held.decided  # else `apply` is at it, or `resume` begins it
    decided = ledger.commit_batch(held, batch, ctx.now_us)
    if applied and held.decided:
        _order_to_apply(ctx)
    return decided


@pipeline.handler
async def apply(held: Held, ctx: Context, in_order: bool = False) -> None:
    """Send rows of decided blocks to the service they are for, one block after the other.

    Args:
        held: state of the query.
        ctx: of the turn.
        in_order: rows of one key wait for each other: one that the other service has no room for is sent again, and
            those behind it must not be taken before. False: an earlier version has begun this, and asked for all calls
            of a window at once.
    """
    await _send_again(held, ctx)
    if not held.decided or held.stopped:
        return
    block = decode_rows(held.blocks[held.decided[0].id])
    while held.at < len(block.rows) and not held.stopped:
        rows = block.rows[held.at : held.at + WINDOW]
        behind = _behind(rows) if in_order else {}
        waiting = set(behind.values())
        calls = {
            at: ctx.call(block.service, key, block.method, arguments)
            for at, (key, arguments) in enumerate(rows)
            if at not in waiting
        }
        for at, (key, arguments) in enumerate(rows):
            failure = await _failure(ctx, calls.pop(at), block.service, key, block.method, arguments)
            if (then := behind.get(at)) is not None:
                calls[then] = ctx.call(block.service, key, block.method, rows[then][1])
            held.at += 1
            held.applied += failure is None
            if failure is not None:
                refused = Refused(key, arguments, block.service, block.method, failure.code, failure.text)
                ledger.refuse_row(held, refused, block.policy if failure.of_handler else "stop")
        await _send_again(held, ctx)
    if held.at == len(block.rows):
        ledger.finish_block(held)
    if held.decided and not held.stopped:
        ctx.continue_with("apply", {"in_order": True})


def _order_to_apply(ctx: Context) -> None:
    """Have `apply` see to what is decided."""
    ctx.fork(pipeline.name, ctx.key, "apply", {"in_order": True})


def _behind(rows: Sequence[Row]) -> dict[int, int]:
    """Give, by the index of a row, that of the next one of its key."""
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for at, (key, _) in enumerate(rows):
        if key in last:
            found[last[key]] = at
        last[key] = at
    return found


async def _send_again(held: Held, ctx: Context) -> None:
    """Send refused rows once more for which that was ordered: each by itself, between rows that were answered."""
    while held.again:
        row = held.refused.get(held.again[0])
        if row is not None:
            called = ctx.call(row.service, row.key, row.method, row.arguments)
            failure = await _failure(ctx, called, row.service, row.key, row.method, row.arguments)
            if failure is None:
                held.applied += 1
                ledger.let_go(held, held.again[0])
            else:
                ledger.refused_again(held, held.again[0], failure.code, failure.text)
        held.again.pop(0)


class Failure(NamedTuple):
    """Why a row was not taken."""

    code: str
    text: str
    of_handler: bool  # False: it says nothing of this row


async def _failure(
    ctx: Context, called: Operation[object], service: str, key: str, method: str, arguments: dict[str, object]
) -> Failure | None:
    """Wait for a call, and repeat it while the other side has no room; gives why the row was not taken."""
    while True:
        try:
            await called
        except Overloaded:
            await ctx.timer(after=BUSY_PAUSE)
            called = ctx.call(service, key, method, arguments)
        except CallFailed as error:
            return Failure(error.failure_code, str(error), of_handler=True)
        except DeathlessError as error:  # the service was created anew, for instance: the next row would fare the same
            return Failure(error.code, str(error), of_handler=False)
        else:
            return None


@pipeline.handler(shared=True)
def stop(held: Held, ctx: Context, number: int, why: str) -> None:
    """Have a query take no batch until somebody resumes it: its driver can't go on with it."""
    _only(ctx)
    ledger.stop_query(held, number, why)


@pipeline.handler(shared=True)
def resume(held: Held, ctx: Context) -> None:
    """Let a stopped query go on; rows that were refused stay listed."""
    _only(ctx)
    held.stopped = ""
    _order_to_apply(ctx)


@pipeline.handler(shared=True)
def adopt(held: Held, ctx: Context, why: str) -> None:
    """Have the query go on from where it stands here, whatever the table's store has counted; empty: it was done."""
    _only(ctx)
    held.adopt = why[: ledger.WHY_MAX]


@pipeline.handler(shared=True)
def drop_refused(held: Held, ctx: Context, ids: list[int]) -> int:
    """Let go of rows that were refused; gives how many there were."""
    _only(ctx)
    return sum(ledger.let_go(held, each) for each in ids)


@pipeline.handler(shared=True)
async def send_again(held: Held, ctx: Context, ids: list[int]) -> list[int]:
    """Send rows that were refused once more, in the order given; gives those that are still listed when that is done.

    `apply` does it, before the rows that it sends next: so it has a place among the query's rows, and does not wait
    until no more of them come.
    """
    _only(ctx)
    ledger.order_again(held, ids)
    _order_to_apply(ctx)
    while any(each in held.again for each in ids):
        await ctx.timer(after=AGAIN_LOOK)
    return [each for each in ids if each in held.refused]


@pipeline.handler
async def retry_refused(held: Held, ctx: Context, ids: list[int]) -> list[int]:
    """As `send_again`, once no more rows are to be applied; for tools of before."""
    _only(ctx)
    again = []
    for each in ids:
        row = held.refused.get(each)
        if row is None:
            continue
        called = ctx.call(row.service, row.key, row.method, row.arguments)
        failure = await _failure(ctx, called, row.service, row.key, row.method, row.arguments)
        if failure is None:
            held.applied += 1
            ledger.let_go(held, each)
        else:
            ledger.refused_again(held, each, failure.code, failure.text)
            again.append(each)
    return again


@pipeline.query
def show(held: Held, ctx: QueryContext) -> QueryView:
    """Give where a query stands."""
    _only(ctx)
    return QueryView(
        number=held.number,
        tip=held.tip,
        staged_blocks=len(held.staged),
        waiting_rows=sum(block.rows for block in held.decided) - held.at,
        held_bytes=held.size,
        batches=held.batches,
        applied=held.applied,
        refused=len(held.refused),
        refusals=held.refusals,
        stopped=held.stopped,
    )


@pipeline.query
def show_refused(held: Held, ctx: QueryContext, above: int, most: int) -> list[RefusedView]:
    """Give rows that were refused, ascending, those above an id: so many, or fewer where they are long.

    There are no more if, and only if, it gives none.
    """
    _only(ctx)
    found: list[RefusedView] = []
    room = REFUSED_SHOWN_BYTES
    for each in held.refused.keys_above(above):
        row = held.refused[each]
        room -= ledger.size_of(row)
        if len(found) >= most or (found and room < 0):
            break
        found.append(RefusedView(each, row))
    return found


def _only(ctx: QueryContext, *, drivers: bool = False) -> None:
    if (ctx.key == DRIVERS) != drivers:
        what = f"works on the key {DRIVERS!r}" if drivers else "works on the name of a query"
        raise CallRefused(f"this {what}, not on {ctx.key!r}")
