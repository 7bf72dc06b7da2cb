"""Runs a program again in a process of its own, over rows that its service recorded: repro test and upgrade test.

    repro test     the same program, from a checkpoint, over the rows behind it: does it emit what the log has?
    upgrade test   another program, or one that has two versions and is told to go over (12), from the same checkpoint

    debugging      either of them with a program that somebody else starts, which stays connected behind its last row

Nothing of it leaves: there is no connection to the service, it is never told that it leads, and the folder of the
service is read alone. At the end it gives a checkpoint, which says that it has emitted everything, and is thrown away.

Guarantees: nothing is written, and nothing of the process is left when `replay` has returned. Does not: keep the
service from dropping rows and checkpoints meanwhile; that is told as an error. Imports the shell and this package.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from deathless.base.errors import (
    ApplicationEnded,
    ApplicationStateMissing,
    InvalidArgument,
    ProgramVersionDiffers,
)
from deathless.foreign.checkpoints import Blob, CheckpointDamaged, Checkpoints, Found, Head, Writing
from deathless.foreign.feed import Feed
from deathless.foreign.rerun import Parting, Rerun
from deathless.foreign.rows import Given
from deathless.foreign.skips import Skips
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.states import State
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign.application import Application, ApplicationSettings, Death
from deathless.shell.foreign.check.comparing import show
from deathless.shell.foreign.check_bytes import fastest_check
from deathless.shell.foreign.connections import until_read

COMMITTER: Final = 7_002
READ_S: Final = 0.002  # between two looks at how much the application has read, where it reads
READ_MAX_S: Final = 0.05  # where it does not
UNREAD_BYTES_MAX: Final = 4 << 20  # that the application has not read: then it gets no more


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What is to be run.

    Attributes:
        directory: of the service's shard.
        settings: how the program is started.
        start: position of the checkpoint that it begins from; None: of the newest.
        oldest: it begins from the oldest checkpoint that is kept, in place of `start`.
        number: the checkpoint that it begins from, counted from the oldest that is kept, from 1 on; 0: as the two say.
        version: the checkpoint has to be of this version of the program, and it gets the rows that this version
            had; -1: whichever.
        end: position of the last row that it gets; None: of the last there is.
        upgraded: it is told to go over to its next version (12) before the rows.
    """

    directory: str
    settings: ApplicationSettings
    start: int | None = None
    oldest: bool = False
    number: int = 0
    version: int = -1
    end: int | None = None
    upgraded: bool = False


class Differing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the program emitted something else than the log has.

    Attributes:
        target: of the messages; "": the service itself.
        first: position among all messages for the target: everything before it is equal.
        last: position at which it was found; the difference is there, or between both.
        row: position of the row that tells what was logged.
        fewer: the program sent nothing there.
        expected: what was logged, from `first` on; empty: the log has a digest of it alone.
        got: what the program sent, from `first` on.
    """

    target: str
    first: int
    last: int
    row: int
    fewer: bool
    expected: tuple[str, ...]
    got: tuple[str, ...]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it.

    Attributes:
        checkpoint: position that it began from.
        end: position of the last row that it got.
        rows: that it got.
        messages: calls and returns in them.
        outputs: that it sent.
        beyond: those of them that the log has not up to `end`, so that they were compared with nothing.
        refused: outputs that went nowhere, in this run as in any other.
        upgraded: it was told to go over to its next version.
        differs: where it parted from the log; None: nowhere.
    """

    checkpoint: int
    end: int
    rows: int
    messages: int
    outputs: int
    beyond: int
    refused: int
    upgraded: bool
    differs: Differing | None


class Watching(Protocol):
    """Who runs a program that somebody else starts."""

    def ready(self) -> None:
        """The ports are bound: the program may be started."""
        ...

    def ran(self, report: ReplayReport) -> None:
        """It has given the checkpoint behind its last row, and stays connected."""
        ...


async def replay(order: ReplayOrder, tell: Callable[[str], None]) -> ReplayReport:
    """Run it.

    Args:
        order: what.
        tell: told how far it is, after each block of rows.

    Raises:
        ApplicationStateMissing: there is no whole checkpoint.
        InvalidArgument: none at that position or of that number, or it lies behind the end.
        ProgramVersionDiffers: it is of another version.
        TopicRowsDropped: rows behind it are not kept any more.
        DeathlessError: the program can't be started, ended, stood still or broke the protocol.
        OSError: a file can't be read.
    """
    found, blob, feed, end = await asyncio.to_thread(_place, order)
    run = Run(order.settings, found.head)
    await run.over(blob, feed, end, tell, upgraded=order.upgraded)
    return _report(order, found.head.position, run.rerun)


async def debug(order: ReplayOrder, watching: Watching) -> None:
    """Run it with a program that somebody else starts, beyond whatever differs, until the program ends.

    Args:
        order: what; its settings name two ports and no command.
        watching: told when the program may be started, and what came of it.

    Raises: as `replay`; ApplicationEnded also where it ended before its last checkpoint; PortTaken.
    """
    found, blob, feed, end = await asyncio.to_thread(_place, order)
    run = Run(order.settings, found.head, goes_on=True)

    async def behind() -> None:
        watching.ran(_report(order, found.head.position, run.rerun))
        await run.gone()

    await run.over(blob, feed, end, lambda _: None, upgraded=order.upgraded, ready=watching.ready, behind=behind)


def _place(order: ReplayOrder) -> tuple[Found, Blob, Feed, int]:
    """Give the checkpoint to begin from, its bytes, the rows and the position of the last of them.

    The file is open from here on: a service that runs removes its oldest checkpoint with each one that it writes.
    Raises: as `replay`.
    """
    folder = Checkpoints(RealFileSystem(Path(order.directory)), "")
    start = _numbered(folder, order.number) if order.number else order.start
    found, blob = _find_open(folder, start=start, oldest=order.oldest)
    with contextlib.ExitStack() as kept:
        kept.callback(blob.close)
        feed, end = _rows_behind(folder, found, order)
        kept.pop_all()
    return found, blob, feed, end


def _rows_behind(folder: Checkpoints, found: Found, order: ReplayOrder) -> tuple[Feed, int]:
    """Give the rows behind a checkpoint, and the position of the last of them. Raises: as `replay`."""
    feed = feed_of(order.directory, found)
    last = last_row(feed, found)
    if order.version >= 0:
        last = _last_of(folder, found.head, order.version, last)
    end = last if order.end is None else order.end
    if end < found.head.position:
        raise InvalidArgument(
            f"the checkpoint stands at position {found.head.position}, behind {end}",
            remedy="begin from an earlier one (--from oldest), or end later",
        )
    if end > last:
        raise InvalidArgument(f"the last row is at position {last}, before {end}", remedy="end there, or earlier")
    return feed, end


def _find_open(folder: Checkpoints, *, start: int | None = None, oldest: bool = False) -> tuple[Found, Blob]:
    """Give the checkpoint to begin from, as `find`, and its bytes. Raises: as `find`."""
    while True:
        found = find(folder, start=start, oldest=oldest)
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile: `find` says what there is
            return found, folder.blob(found)


def _numbered(folder: Checkpoints, number: int) -> int:
    """Give the position of a checkpoint, counted from the oldest that is kept. Raises: ApplicationStateMissing."""
    positions = sorted(folder.positions())
    if number > len(positions):
        raise ApplicationStateMissing(
            f"there is no checkpoint {number}", remedy=f"name one from 1 to {len(positions)}" if positions else None
        )
    return positions[number - 1]


def _last_of(folder: Checkpoints, head: Head, version: int, last: int) -> int:
    """Give the position of the last row that this version had.

    Raises: ProgramVersionDiffers: the checkpoint is of another version; OSError.
    """
    if head.version not in {-1, version}:
        raise ProgramVersionDiffers.between(version, head.version, f"the checkpoint at position {head.position}")
    for position in sorted(each for each in folder.positions() if each > head.position):
        with contextlib.suppress(CheckpointDamaged, FileNotFoundError):
            if folder.head(position).version not in {-1, version}:
                return min(position, last)
    return last


def feed_of(directory: str, found: Found) -> Feed:
    """Give the rows that a checkpoint's positions are of. Raises: CorruptFrame, HalfCopy, OSError."""
    service_id, incarnation, adoption = found.head.service_id, found.head.incarnation, read_adoption(directory)
    if incarnation in adoption.former:
        service_id, incarnation = adoption.service_id.hex() or service_id, adoption.incarnation
    skips = Skips(RealFileSystem(Path(directory))).read(incarnation)
    return Feed(directory, service_id, incarnation, skips=skips, former=adoption.former)


def last_row(feed: Feed, found: Found) -> int:
    """Give the position of the last row, or of the checkpoint where none is behind it. Raises: OSError."""
    return max(feed.reach() - 1, found.head.position)


def find(folder: Checkpoints, *, start: int | None = None, oldest: bool = False) -> Found:
    """Give the checkpoint to begin from: the newest one, the oldest, or the one at `start`.

    Raises: ApplicationStateMissing, InvalidArgument, OSError.
    """
    while True:
        positions = folder.positions()
        if not positions:
            raise ApplicationStateMissing("the service has no checkpoint of its program")
        default = positions[-1] if oldest else positions[0]
        position = default if start is None else start
        if position not in positions:
            there = ", ".join(map(str, reversed(positions)))
            raise InvalidArgument(f"no checkpoint stands at position {position}", remedy=f"name one of these: {there}")
        try:
            return folder.look(position)
        except FileNotFoundError:  # a newer one was written meanwhile, and this one removed
            continue
        except CheckpointDamaged as error:
            raise ApplicationStateMissing(
                f"the checkpoint at position {position} can't be read: {error}", remedy="name another one with --from"
            ) from error


def _report(order: ReplayOrder, start: int, rerun: Rerun) -> ReplayReport:
    counted = rerun.counted
    return ReplayReport(
        checkpoint=start,
        end=rerun.delivered,
        rows=counted.rows,
        messages=counted.messages,
        outputs=counted.outputs,
        beyond=rerun.beyond if rerun.parting is None else 0,
        refused=counted.refused,
        upgraded=order.upgraded,
        differs=_differing(rerun.parting) if rerun.parting is not None else None,
    )


def _differing(parting: Parting) -> Differing:
    return Differing(
        target=parting.target,
        first=parting.first,
        last=parting.last,
        row=parting.row,
        fewer=parting.fewer,
        expected=tuple(map(show, parting.expected)),
        got=tuple(map(show, parting.got)),
    )


class Run:
    """One process of it, from its start to its end.

    Args:
        settings: how it is started.
        head: of the checkpoint that it begins from.
        keep: begins the file of the checkpoint that it gives at its end; None: that is thrown away.
        goes_on: also behind what differs, with nothing compared any more.
    """

    def __init__(
        self,
        settings: ApplicationSettings,
        head: Head,
        keep: Callable[[on.CheckpointBegan], Writing] | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        self.written: Writing | None = None  # the checkpoint of its end, without its name
        self._machine = ApplicationMachine(
            name=settings.instance,
            committer=COMMITTER,
            stop_at_difference=not goes_on,
            bounds=Bounds(message_bytes_max=settings.message_bytes_max),
            check=fastest_check(),
        )
        self.rerun = Rerun(self._machine, head)
        self._keep = keep
        self._goes_on = goes_on
        self._application = Application(settings, self._machine, self)
        self._application.replaying = True
        self._changed = asyncio.Event()
        self._death: Death | None = None
        self._has_given = False  # the checkpoint at its end

    async def over(
        self,
        blob: Blob,
        feed: Feed,
        end: int,
        tell: Callable[[str], None],
        *,
        upgraded: bool,
        ready: Callable[[], None] = lambda: None,
        behind: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run it over all rows from the checkpoint on, as far as it does not part from the log.

        Args:
            blob: of the checkpoint; it is closed at the end.
            feed: gives the rows.
            end: position of the last one.
            tell: told how far it is.
            upgraded: it is told to go over to its next version first.
            ready: told when it may connect.
            behind: is awaited behind its last checkpoint, before it is ended; None: nothing.

        Raises: DeathlessError: what it ended by; OSError.
        """
        try:
            self._application.start()
            ready()
            await self._begin(blob, upgraded=upgraded)
            while self.rerun.delivered < end and not self._is_over:
                rows = await asyncio.to_thread(feed.read, self.rerun.delivered + 1)
                if not rows:
                    break
                await self._deliver([each for each in rows if each[0] <= end])
                tell(f"row {self.rerun.delivered:,} of {end:,}")
            await self._finish()
            if behind is not None:
                await behind()
        except BaseException:
            self.drop()
            raise
        finally:
            blob.close()
            await self._end()

    def drop(self) -> None:
        """Let go of the checkpoint of its end."""
        if self.written is not None:
            self.written.drop()
            self.written = None

    async def _begin(self, blob: Iterator[bytes], *, upgraded: bool) -> None:
        """Give it the checkpoint, once it is there."""
        await self._until(lambda: self._machine.state is State.WAITING)
        self._order(self.rerun.load())
        while piece := await asyncio.to_thread(next, blob, b""):
            self._order(on.LoadPart(data=piece))
            await self._has_room()
        if upgraded:
            self._order(on.TestUpgrade())

    async def _deliver(self, rows: list[tuple[int, Given]]) -> None:
        """Give it rows, as fast as it reads them."""
        for event in self.rerun.deliver(rows):
            self._order(event)
            await self._has_room()

    async def _finish(self) -> None:
        """Have it give a checkpoint, behind everything that it emits; then nothing more comes."""
        if self._is_over:
            return
        self._order(on.TakeCheckpoint())
        await self._until(lambda: self._has_given)
        self.rerun.ended()

    async def _end(self) -> None:
        """End it, if it lives."""
        self._application.stop()
        await self.gone()

    async def gone(self) -> None:
        """Wait until it has ended."""
        while self._death is None:
            self._changed.clear()
            await self._changed.wait()

    @property
    def _is_over(self) -> bool:
        """Whether it parted from the log, and is run no further."""
        return self.rerun.parting is not None and not self._goes_on

    # ---- what the application tells ------------------------------------------------------------------------------

    def application_connected(self) -> None:
        """See shell.foreign.application.Owner."""
        self._changed.set()

    def carry_out(self, effects: list[on.Effect]) -> None:
        """See shell.foreign.application.Owner."""
        for event in self.rerun.took(effects):
            self._application.order(event)
        for effect in effects:
            match effect:
                case on.CheckpointBegan() if self._keep is not None:
                    self.written = self._keep(effect)
                case on.CheckpointPart() if self.written is not None:
                    self.written.write(effect.data)
                case on.CheckpointEnded():
                    self._has_given = True
                case _:
                    pass
        self._changed.set()

    def application_ended(self, death: Death) -> None:
        """See shell.foreign.application.Owner."""
        self._death = death
        self._changed.set()

    # ---- waiting -------------------------------------------------------------------------------------------------

    def _order(self, event: on.Event) -> None:
        self._alive()
        if not self._is_over:
            self._application.order(event)

    async def _has_room(self) -> None:
        await until_read(
            lambda: self._application.waiting if self._death is None else 0,
            UNREAD_BYTES_MAX,
            first_s=READ_S,
            most_s=READ_MAX_S,
        )

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until this is so, or it parted from the log. Raises: what it ended by."""
        while not holds() and not self._is_over:
            self._alive()
            self._changed.clear()
            await self._changed.wait()

    def _alive(self) -> None:
        if self._death is not None and not self._is_over:
            raise self._death.error or ApplicationEnded("it was stopped")
