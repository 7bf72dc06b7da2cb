"""Puts another program in the place of the one that a stopped service ran, at one position of its inputs.

    former program   newest checkpoint --rows behind it--> checkpoint at the last one     (8, log, 2; a barrier)
    next program     that checkpoint --goes over (12)--> its own checkpoint, in its place     (8, 12, 2)

Whatever the former program emitted of the rows is in the lanes of its checkpoint, logged or not, and comes along; the
next program gets the rows behind it alone. The one step that counts is the rename of the second file: before it the
service goes on with the former program, behind it with the next one. The first file is an ordinary checkpoint of the
former program, which it could have given at any time.

Guarantees: no replica's program runs meanwhile (`claim`); a next program that can't be started, or does not give a
checkpoint, changes nothing. Does not: change the manifest, or speak to replicas. Imports this package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument, ProgramNotRepeated
from deathless.foreign.checkpoints import Checkpoints, Found, Head, Writing, encode_lanes
from deathless.foreign.claim import claim
from deathless.foreign.feed import Feed
from deathless.foreign.replay import Run, feed_of, find, last_row
from deathless.protocols.ambrosia import events as on
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign.application import ApplicationSettings

WRITER: Final = "upgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeOrder:
    """What is to be done.

    Attributes:
        directory: of the service's shard.
        former: how the program is started that ran last.
        next: how the other one is started.
        dry: everything but the last step: the next program's checkpoint is thrown away.
    """

    directory: str
    former: ApplicationSettings
    next: ApplicationSettings
    dry: bool = False


class UpgradeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it.

    Attributes:
        position: of the last row that the former program ran.
        rows: that it had to run for that.
        former_bytes: of its checkpoint there.
        next_bytes: of the next program's checkpoint.
        upgraded: the next program's counts.
    """

    position: int
    rows: int
    former_bytes: int
    next_bytes: int
    upgraded: bool


async def upgrade(order: UpgradeOrder, tell: Callable[[str], None]) -> UpgradeReport:
    """Do it.

    Args:
        order: what.
        tell: told how far it is.

    Raises:
        ProgramClaimed: a replica runs.
        InvalidArgument: the service was restored or copied, and did not run since.
        ProgramNotRepeated: the former program, as it is named, is not the one that ran.
        ApplicationStateMissing: there is no whole checkpoint.
        DeathlessError: a program can't be started, ended, stood still or broke the protocol.
        OSError: a file can't be read or written.
    """
    folder = Checkpoints(RealFileSystem(Path(order.directory)), WRITER)
    await asyncio.to_thread(find, folder)  # without one there is nothing to claim
    with claim(order.directory, alone=True):
        newest = await asyncio.to_thread(find, folder)
        await asyncio.to_thread(_check_service, order.directory, newest)
        found, rows = await _to_the_end(order, folder, newest, tell)
        tell("the next program begins")
        feed = feed_of(order.directory, found)
        run = Run(order.next, found.head, _keep(folder, found.head, feed))
        await run.over(folder.blob(found), feed, found.head.position, tell, upgraded=True)
        assert run.written is not None
        report = UpgradeReport(
            position=found.head.position,
            rows=rows,
            former_bytes=found.head.length,
            next_bytes=run.written.head.length,
            upgraded=not order.dry,
        )
        if order.dry:
            run.drop()
        else:
            await asyncio.to_thread(run.written.replace)
        return report


async def _to_the_end(
    order: UpgradeOrder, folder: Checkpoints, newest: Found, tell: Callable[[str], None]
) -> tuple[Found, int]:
    """Have the former program run what is behind its newest checkpoint; gives one behind that, and the rows it ran."""
    feed = feed_of(order.directory, newest)
    last = await asyncio.to_thread(last_row, feed, newest)
    if last == newest.head.position:
        return newest, 0
    run = Run(order.former, newest.head, _keep(folder, newest.head, feed))
    await run.over(folder.blob(newest), feed, last, tell, upgraded=False)
    parting = run.rerun.parting
    if parting is not None:
        run.drop()
        raise ProgramNotRepeated(
            f"{order.former.command[0]} sends something else to {parting.target or 'itself'} at position "
            f"{parting.first} than what was logged by row {parting.row}"
        )
    assert run.written is not None
    await asyncio.to_thread(run.written.end)
    return await asyncio.to_thread(find, folder), run.rerun.counted.rows


def _check_service(directory: str, newest: Found) -> None:
    """See that the rows behind the newest checkpoint are known. Raises: InvalidArgument, OSError."""
    head = newest.head
    if not feed_of(directory, newest).admits(head.incarnation, head.position):
        raise InvalidArgument(
            f"the checkpoint at position {head.position} is of before the service was restored or copied, and the "
            "service has not run since",
            remedy="start it once with the former program, and stop it again",
        )


def _keep(folder: Checkpoints, head: Head, feed: Feed) -> Callable[[on.CheckpointBegan], Writing]:
    """Give what begins the file of a checkpoint of the service."""

    def begin(began: on.CheckpointBegan) -> Writing:
        return folder.begin(
            Head(
                service_id=feed.source.service_id,
                incarnation=feed.source.incarnation,
                position=began.lsn,
                records=began.records,
                length=began.length,
                lanes=encode_lanes(began.lanes),
                initial=head.initial if began.lsn == 0 else b"",
                version=head.version,
            )
        )

    return begin
