"""Puts a shard together: the tables of the core, the handlers' executor and where it stands, all of them empty.

Whoever runs a log has to make the same five objects and to give each of them the same limits and the same tables, or
it does not get the same bytes (I6). So a worker, a replay, the simulation, the benchmarks and the tests do it here.

    shard = open_shard(service, limits, record.seed)          one that runs a service's handlers
    shard = shard_around(executor, limits)                    one that runs whatever executes messages

The parts are attributes of the shard: `executor`, `sessions`, `keys`, `place`, `outbox`. Guarantees: no two shards
share a table. Does not: read a checkpoint or a log (`Shard.restore`, `Shard.apply`).
"""

from __future__ import annotations

from collections.abc import Callable

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.shards import Sharding
from deathless.core.replica.replica import ShardPlace
from deathless.core.tables.keys import KeyTable
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.sessions import SessionTable
from deathless.engine.ports import Executor
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor, Hide, nothing_hidden
from deathless.execution.turn.running import PAGE_BYTES, Cells, RunningPage
from deathless.execution.values.failure import Tell, untold


def open_shard(  # noqa: PLR0913 - what the executor and the shard may be given, each by its name
    service: Service,
    limits: Limits,
    seed: bytes,
    running: RunningPage | None = None,
    *,
    sharding: Sharding | None = None,
    hide: Hide = nothing_hidden,
    more_memory: Callable[[], object] = int,
    tell: Tell = untold,
    outbox: Outbox | None = None,
    safeguards: Safeguards = ALL_SAFEGUARDS,
    make: type[HandlerExecutor] = HandlerExecutor,
) -> Shard:
    """Open an empty shard that runs the handlers of `service`.

    Args:
        service: whose handlers run.
        limits: of the executor, the shard and its tables.
        seed: 32 bytes of the service, for `ctx.random`.
        running: where the message being run is written down; None: a page of its own, which nobody reads.
        sharding: which shard this is, and how many others have; None: of services of one shard each.
        hide: called around each batch and query.
        more_memory: called where what turns have kept is no reason to deny memory to the next.
        tell: told each bug of a handler or query.
        outbox: None: one in memory.
        safeguards: all on, but in tests.
        make: the class of the executor.

    Raises: InvalidService as HandlerExecutor.
    """
    keys = KeyTable(limits, safeguards)
    page = Cells(bytearray(PAGE_BYTES)) if running is None else running
    executor = make(service, limits, seed, keys, page, hide, sharding, more_memory=more_memory, tell=tell)
    return _shard(executor, keys, limits, safeguards, outbox=outbox, place=None)


def shard_around(
    executor: Executor,
    limits: Limits,
    safeguards: Safeguards = ALL_SAFEGUARDS,
    *,
    outbox: Outbox | None = None,
    place: ShardPlace | None = None,
) -> Shard:
    """Open an empty shard around an executor that needs no table of keys.

    Args:
        executor: runs CALL messages.
        limits: of the shard and its tables.
        safeguards: all on, but in tests.
        outbox: None: one in memory.
        place: where it stands; None: at the beginning.
    """
    return _shard(executor, KeyTable(limits, safeguards), limits, safeguards, outbox=outbox, place=place)


def _shard(
    executor: Executor,
    keys: KeyTable,
    limits: Limits,
    safeguards: Safeguards,
    *,
    outbox: Outbox | None,
    place: ShardPlace | None,
) -> Shard:
    place = ShardPlace() if place is None else place
    return Shard(executor, SessionTable(limits), keys, place, limits, safeguards, outbox=outbox)
