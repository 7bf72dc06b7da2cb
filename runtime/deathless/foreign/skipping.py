"""Decides whether a message may be skipped by which a program ends: what was run stays, since its outputs are logged.

A row may be skipped where the program, in a process of its own from its newest checkpoint, goes on behind all rows
before it and ends by that row; and no process that lives is past it. Then no program has run it, and none can.

Guarantees: nothing is written. Does not: ask anybody, or skip (`skips` does). Imports the shell and this package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from deathless.base.errors import DeathlessError, InvalidArgument
from deathless.foreign.checkpoints import Checkpoints
from deathless.foreign.replay import ReplayOrder, feed_of, find, replay
from deathless.foreign.rows import decode_given
from deathless.foreign.skips import Skip, skip_of
from deathless.protocols.ambrosia.messages import Rpc
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign.application import ApplicationSettings
from deathless.shell.link.application_status import ApplicationStatus, read_statuses

LOOK_S: Final = 3.0
"""Between two looks at the processes: one that ends by the row does not live so long behind it."""
ALIVE: Final = frozenset({"following", "leading", "snapshot", "leading_snapshot"})
FIND: Final = "find the first row that it ends by, with `deathless ambrosia replay --to POSITION`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipOrder:
    """What is to be skipped.

    Attributes:
        directory: of the service's shard.
        settings: how the program is started.
        position: of the row.
        item: the place of one message in it, from 0 on; None: all.
    """

    directory: str
    settings: ApplicationSettings
    position: int
    item: int | None = None


class Killer(NamedTuple):
    """A row by which the program ends.

    Attributes:
        items: its messages.
        skip: what is to be skipped of it.
    """

    items: tuple[Rpc, ...]
    skip: Skip


async def examine(order: SkipOrder, tell: Callable[[str], None]) -> Killer:
    """See whether it may be skipped; gives what.

    Args:
        order: what.
        tell: told how far the program is.

    Raises:
        InvalidArgument: it may not.
        ApplicationStateMissing: there is no whole checkpoint.
        OSError: a file can't be read.
    """
    newest = await asyncio.to_thread(find, Checkpoints(RealFileSystem(Path(order.directory)), ""))
    position, stands = order.position, newest.head.position
    if stands >= position:
        raise InvalidArgument(
            f"the program ran the row at position {position}: a checkpoint of it stands at {stands}",
            remedy="what it got before a checkpoint can't be taken back",
        )
    feed = feed_of(order.directory, newest)
    rows = dict(await asyncio.to_thread(feed.read, position))
    if position not in rows:
        raise InvalidArgument(f"there is no row at position {position}", remedy="see `deathless ambrosia status`")
    skip = skip_of(position, rows[position], order.item, feed.source.incarnation)
    await _nobody_is_past(order)
    await _ends_by(order, stands, tell)
    return Killer(decode_given(rows[position].items), skip)


async def _nobody_is_past(order: SkipOrder) -> None:
    """Look twice whether a process lives that has got the row. Raises: InvalidArgument."""
    first = _past(order)
    if not first:
        return
    await asyncio.sleep(LOOK_S)
    for replica, pid in _past(order).items():
        if first.get(replica) == pid:
            raise InvalidArgument(
                f"the program of {replica} (process {pid}) got the row at position {order.position}, and lives",
                remedy="a program that does not end by a message has run it, and its state holds it",
            )


def _past(order: SkipOrder) -> dict[str, int]:
    """Give the processes that are at the row or behind it, by replica."""

    def is_past(status: ApplicationStatus) -> bool:
        return status.state in ALIVE and status.position >= order.position

    return {each.replica: each.pid for each in read_statuses(order.directory) if is_past(each)}


async def _ends_by(order: SkipOrder, start: int, tell: Callable[[str], None]) -> None:
    """Run the program up to the row, and with it. Raises: InvalidArgument: it ends before that row, or not by it."""

    async def run(end: int) -> None:
        await replay(ReplayOrder(directory=order.directory, settings=order.settings, start=start, end=end), tell)

    at = f"the row at position {order.position}"
    try:
        await run(order.position - 1)
    except DeathlessError as error:
        raise InvalidArgument(f"the program does not get as far as {at}: {error}", remedy=FIND) from error
    try:
        await run(order.position)
    except DeathlessError:
        return
    raise InvalidArgument(f"the program runs {at}, and goes on", remedy=FIND)
