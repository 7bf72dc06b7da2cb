"""The files of an application's checkpoints, as one process of it needs them: found, loaded, written, and rows held.

    newest, pieces    the newest whole one that is of what the service has got, to go on from, and its bytes
    let_go            of that one and of the rows behind it, which are kept for this replica while it loads
    look              whether another replica has written one since
    add, run          write one that the application gives: in threads, one piece after the other

Guarantees: pieces are written in their order; a checkpoint that can't be written, or ends early, is dropped with its
room, told, and the next one is tried; rows that the oldest checkpoint of those that stay does not hold are kept. A
program may load more slowly than others write newer ones: the checkpoint that it loads stays with the rows behind it,
for LOADING_S at most, since a replica that is gone lets go of nothing. Does not: decide when one is taken. Imports this
package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from deathless.base.errors import ApplicationStateMissing, StorageFailed, TopicRowsDropped
from deathless.foreign.checkpoints import KEPT, CheckpointDamaged, Checkpoints, Found, Head, Writing
from deathless.foreign.coordinator import BeginFile, EndFile, WriteFile
from deathless.foreign.feed import Feed
from deathless.foreign.watching.counts import Counts

_LOG: Final = logging.getLogger("deathless.application")
P = ParamSpec("P")
Result = TypeVar("Result")
WRITE_BYTES: Final = 4 << 20  # of pieces that are here already: so much is written by one thread at once
UNWRITTEN_BYTES_MAX: Final = 8 << 20  # of a checkpoint that is not in its file: then no more is to be read
LOADING_S: Final = 3600.0  # a checkpoint that is loaded is kept for so long after a replica that writes them saw that


class TooEarly(Exception):
    """The service has not said yet where its rows begin in this incarnation."""


class Loading:
    """What is kept for replicas whose programs load a checkpoint; its methods read and write files.

    Args:
        feed: whose rows are held.
        replica: ours.
        clock: gives monotonic seconds.
    """

    def __init__(self, feed: Feed, replica: str, clock: Callable[[], float]) -> None:
        self.on = False  # something is kept for ours
        self._feed = feed
        self._replica = replica
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # by hold: its position, and since when it is known to have that

    def begin(self, first: int) -> None:
        """Keep the rows from here on for our replica. Raises: TopicRowsDropped, OSError."""
        self.on = self._feed.hold_loading(self._replica, first)

    def end(self, delivered: int) -> None:
        """Let go of them, if rows behind the one that was delivered are kept for every replica. Raises: OSError."""
        if 0 < self._feed.held() <= delivered + 1:
            self._feed.drop_loading(replica=self._replica)
            self.on = False

    def held(self) -> list[int]:
        """Give from where rows are kept for replicas that load, and let go of what has been for too long.

        Raises: OSError.
        """
        now, found = self._clock(), self._feed.loading()
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (0, 0.0))[0] == first else (first, now)
            for name, first in found.items()
        }
        for name, (_, since) in self._seen.items():
            if now - since > LOADING_S:
                self._feed.drop_loading(name=name)
                del found[name]
        return list(found.values())


class Checkpointing:
    """One process's.

    Args:
        folder: of the checkpoints.
        feed: whose rows are held.
        hold_back: told whether no more of the application is to be read.
        kept: told each checkpoint of ours that is durable, and whether the program went over by it.
        stay: so many of the newest ones stay; 0: all, and with them every row.
        counts: of what becomes of checkpoints; None: nobody asks for them.
        replica: whose program loads.
        clock: gives monotonic seconds.
    """

    def __init__(
        self,
        folder: Checkpoints,
        feed: Feed,
        hold_back: Callable[[bool], None],
        kept: Callable[[int, bool], None],
        stay: int = KEPT,
        counts: Counts | None = None,
        *,
        replica: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._feed = feed
        self._hold_back = hold_back
        self._kept = kept
        self._stay = stay
        self._counts = counts or Counts()
        self._began_at = 0.0  # monotonic seconds: of the one that is written
        self._actions: asyncio.Queue[BeginFile | WriteFile | EndFile] = asyncio.Queue()
        self._unwritten = 0
        self._writing: Writing | None = None
        self._newest = -1  # position of the newest one that was seen
        self._holds = False  # rows that no checkpoint has are kept
        self._loading = Loading(feed, replica, clock)
        self.problem = ""  # why the last checkpoint of ours is not kept; empty: it is, or there was none

    @property
    def is_behind(self) -> bool:
        """Whether no more is to be read of the application: what it gave is not written yet."""
        return self._unwritten > UNWRITTEN_BYTES_MAX

    async def newest(self, *, is_first: bool = False) -> Found | None:
        """Give the newest checkpoint that is whole and of this service; None: there is none at all.

        Args:
            is_first: the log has nothing of the application.

        Raises:
            TooEarly: it is not known yet which ones are of this service.
            ApplicationStateMissing: none of those there are is.
            OSError.
        """
        while positions := await asyncio.to_thread(self._folder.positions):
            try:
                found = await asyncio.to_thread(self._choose, positions, is_first)
            except ApplicationStateMissing:
                if set(await asyncio.to_thread(self._folder.positions)) <= set(positions):
                    raise
                continue  # others have written newer ones meanwhile, and removed these
            if await asyncio.to_thread(self._keep_found, found):
                return found
        return None

    async def look(self) -> bool:
        """See to rows that are to be kept, and say whether there is a newer checkpoint than was seen.

        Raises: OSError.
        """
        positions = await asyncio.to_thread(self._folder.positions)
        newer = bool(positions) and positions[0] > self._newest
        if newer:
            self._newest = positions[0]
        if not self._holds:  # before anything was published there was nothing to hold
            await asyncio.to_thread(self._keep_rows)
        return newer

    async def let_go(self, delivered: int) -> None:
        """Keep nothing for this replica alone any more, if its program has got what is not kept for every one.

        Args:
            delivered: position of the last row that it got.

        Raises: OSError.
        """
        if self._loading.on:
            await asyncio.to_thread(self._loading.end, delivered)

    async def pieces(self, found: Found) -> AsyncIterator[bytes]:
        """Give a checkpoint's bytes, piece by piece. Raises: OSError."""
        with contextlib.closing(self._folder.blob(found)) as pieces:
            while piece := await asyncio.to_thread(_next, pieces):
                yield piece

    def add(self, action: BeginFile | WriteFile | EndFile) -> None:
        """Have this done behind what was added before."""
        self._actions.put_nowait(action)
        if isinstance(action, WriteFile):
            self._count(len(action.data))

    async def run(self) -> None:
        """Write what is added, until it is cancelled.

        Raises: StorageFailed, ApplicationStateMissing of the very first checkpoint, without which nothing begins;
            StorageFailed of one by which the program goes over to its next version.
        """
        try:
            await self._write_all()
        finally:
            self._drop()

    async def _write_all(self) -> None:
        behind: BeginFile | EndFile | None = None  # what came behind pieces that were written together
        while True:
            action, behind = behind or await self._actions.get(), None
            try:
                if isinstance(action, WriteFile):
                    pieces, behind = self._pieces_from(action.data)
                    await self._write_pieces(pieces)
                else:
                    await self._write(action)
            except OSError as error:
                self._drop()
                self.problem = f"its last checkpoint is not kept: {error}"
                self._counts.checkpoint_failures += 1
                if isinstance(action, EndFile) and action.goes_over:
                    raise StorageFailed(f"the checkpoint of the program's next version: {error}") from error
                _LOG.warning("a checkpoint of the application is not kept", extra={"why": str(error)})
                if self._newest < 0:
                    raise StorageFailed(f"the application's first checkpoint: {error}") from error

    def _pieces_from(self, first: bytes) -> tuple[list[bytes], BeginFile | EndFile | None]:
        """Give the pieces that are here and are written together, and what came behind them, if that was taken."""
        pieces, size = [first], len(first)
        while size < WRITE_BYTES and not self._actions.empty():
            action = self._actions.get_nowait()
            if not isinstance(action, WriteFile):
                return pieces, action
            pieces.append(action.data)
            size += len(action.data)
        return pieces, None

    async def _write_pieces(self, pieces: list[bytes]) -> None:
        self._count(-sum(map(len, pieces)))
        if self._writing is not None:
            await _to_its_end(_write_in_order, self._writing, pieces)

    async def _write(self, action: BeginFile | EndFile) -> None:
        match action:
            case BeginFile(head):
                self._began_at = time.monotonic()
                await _to_its_end(self._begin, head)
            case EndFile(goes_over):
                if self._writing is not None:
                    await self._end(self._writing, goes_over=goes_over)
                elif goes_over:
                    raise OSError("it could not be written")

    async def _end(self, writing: Writing, *, goes_over: bool) -> None:
        position = writing.head.position
        if goes_over:
            await _to_its_end(writing.replace)
            first = True
        else:
            first = await _to_its_end(writing.end)
        self._writing, self.problem = None, ""
        if not first and position == 0:
            raise ApplicationStateMissing("another replica's application began at the same time, and its start counts")
        self._newest = max(self._newest, position)
        self._counts.checkpoint_kept(time.monotonic() - self._began_at)
        await asyncio.to_thread(self._keep_rows)
        self._kept(position, goes_over)

    def _begin(self, head: Head) -> None:
        self._writing = self._folder.begin(head)

    def _drop(self) -> None:
        """Let go of what is being written, if anything is: its file, and the room that it has."""
        if self._writing is not None:
            self._writing.drop()
        self._writing = None

    def _count(self, size: int) -> None:
        self._unwritten += size
        self._hold_back(self.is_behind)

    def _keep_rows(self) -> None:
        """Keep the rows behind the oldest checkpoint that stays, and let go of those before."""
        held = self._loading.held()
        positions = self._folder.positions() if held else []
        needed = {next((each for each in positions if each < first), -1) for first in held}
        stay = self._folder.forget(self._stay, needed)
        self._holds = bool(stay) and self._feed.hold(stay[-1] + 1)

    def _keep_found(self, found: Found) -> bool:
        """Keep a checkpoint, with the rows behind it; False: others have removed it before."""
        position = found.head.position
        try:
            self._loading.begin(position + 1)
        except TopicRowsDropped:
            if position in self._folder.positions():
                raise
        return position in self._folder.positions()

    def _is_open(self, head: Head) -> bool:
        """Whether it is not known yet if a checkpoint is of this service."""
        return self._feed.admits(head.incarnation, head.position) is None

    def _choose(self, positions: list[int], is_first: bool) -> Found:
        passed: list[str] = []
        versions: set[int] = set()  # of those that are damaged
        for position in positions:
            try:
                # Before all of it is read, and again each time until it is known.
                if not is_first and self._is_open(self._folder.head(position)):
                    raise TooEarly
                found = self._folder.look(position)
            except CheckpointDamaged as error:
                _LOG.error("a checkpoint is damaged", extra={"why": str(error)})
                passed.append(str(error))
                with contextlib.suppress(CheckpointDamaged, OSError):
                    versions.add(self._folder.head(position).version)
                continue
            except FileNotFoundError:
                continue  # another replica has a newer one, and has removed it
            head = found.head
            if not versions <= {head.version}:
                passed.append(f"that at position {position} is of the program's former version")
                continue
            if self._feed.admits(head.incarnation, head.position) or (is_first and not position):
                return found
            if self._feed.was(head.incarnation):  # its position may come again, with another state
                self._folder.set_aside(position)
            passed.append(
                f"the checkpoint at position {head.position} is of service {head.service_id}, incarnation "
                f"{head.incarnation}, and of what this service never got"
            )
        raise ApplicationStateMissing(f"no checkpoint of the application can be used: {'; '.join(passed) or 'none'}")


async def _to_its_end(work: Callable[P, Result], *arguments: P.args, **named: P.kwargs) -> Result:
    """Run it in a thread, to its end also when who waits is cancelled: a file is not closed while it is written."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


def _next(pieces: Iterator[bytes]) -> bytes:
    """Give the next piece; empty: there is none."""
    return next(pieces, b"")


def _write_in_order(writing: Writing, pieces: list[bytes]) -> None:
    """Write pieces, one after the other. Raises: OSError."""
    for piece in pieces:
        writing.write(piece)
