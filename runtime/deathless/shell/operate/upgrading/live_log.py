"""A service's log as it grows, for a rehearsal that does not end where the log does: a shadow.

    lock store --head--> reader --confirmed frames--> the rehearsal       what is compared
                         counter, the same frames --> their last lsn      how far behind the rehearsal is

Time counts from when the rehearsal has caught up: everything that was confirmed when the log was last read is compared.
When it is over, what came meanwhile is compared as well, for at most as long again; what is left then is told as not
compared, and nothing is left out in between.

What ends it before its time:

    who started it asks for that               the verdict is of what was compared
    other code serves (an upgrade, a restart)  what comes behind is not the former code's; everything before is given
    the log was collected faster than read     a tool holds no part of a log, since it writes nothing

Guarantees: frames continue each other, from segment to segment and from epoch to epoch, and each is confirmed: one that
is not may be replaced by a successor's (engine.log.reader decides, as for followers). Nothing is written, nothing is
held; the lock store is asked for the head alone. A lock store that does not answer for a moment is asked again. Does
not: run anything, or judge. May import engine, codec and base.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.errors import LockUnavailable, LogTruncated
from deathless.codec.frames import Cut, Frame
from deathless.engine.log.reader import LogReader
from deathless.engine.log.route import RouteFinder, listed_segments
from deathless.engine.ports import FileSystem

READ_BYTES: Final = 1 << 20  # of frames that are held at a time
COUNT_BYTES: Final = 4 << 20  # of frames that are counted at a time
POLL_S: Final = 0.05  # between two looks at the end of the log
COUNT_S: Final = 2.0  # between two looks at how far the log is
LOOK_S: Final = 1.0  # between two looks at the lock store where a file of a later epoch is listed
IDLE_LOOK_S: Final = 10.0  # likewise where none is: absence in a listing proves nothing


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """How long a rehearsal follows a log.

    Attributes:
        seconds: from when it has caught up.
        stopped: says whether it is to end now.
    """

    seconds: float
    stopped: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a log and its head are read.

    Attributes:
        fs: the service's directory.
        head_of: asks the lock store for the head. Raises: LockUnavailable.
        clock: steady seconds.
        pause: waits so many seconds.
    """

    fs: FileSystem
    head_of: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


class Followed(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """How much of a growing log was compared."""

    seconds: float  # how long it was followed
    caught_up: bool = False  # the time has begun
    from_lsn: int = 0  # of the last message before it
    messages: int = 0  # that the log got in that time
    compared: int = 0  # of these
    behind_max: int = 0  # so many were once not compared yet, in that time
    interrupted: bool = False  # whoever started it ended it
    ended: str = ""  # why it could not go on; empty: nothing kept it from that

    @property
    def behind(self) -> int:
        """How many of that time's messages were not compared."""
        return self.messages - self.compared

    @property
    def complete(self) -> bool:
        """Was it followed for the time that was asked for?"""
        return not (self.interrupted or self.ended)


class _Place(msgspec.Struct):
    """How far somebody has read."""

    lsn: int
    chain: bytes

    def move(self, frame: Frame) -> None:
        self.lsn, self.chain = int(frame.last_lsn), bytes(frame.chain)


class _Times(msgspec.Struct):
    """When what was, in the clock's seconds; None: not yet."""

    counted: float = float("-inf")
    caught_up: float | None = None
    over: float | None = None  # the time is over; what came in it is compared yet
    to: int = 0  # lsn at which the log ended then


class _Heads:
    """The head, and where the former code ends.

    Args:
        source: where it is asked for.
        head: as it was seen last.
    """

    def __init__(self, source: Source, head: int) -> None:
        self.head = head
        self.limit: int | None = None  # lsn of the last message that the former code ran; None: it still does
        self.answered = True  # the lock store did, when it was asked last
        self._source = source
        self._looked = source.clock()
        self._routes = RouteFinder(source.fs)
        self._code = _code_of(self._routes.cut(head))

    def maybe_look(self) -> None:
        """Nothing more is confirmed: does a later epoch go on?"""
        since = self._source.clock() - self._looked
        if since < LOOK_S:
            return
        listed = listed_segments(self._source.fs)
        if since >= IDLE_LOOK_S or (listed and listed[-1][0] > self.head):
            self.look()

    def look(self) -> bool:
        """Ask the lock store. True: it is another head."""
        self._looked = self._source.clock()
        try:
            head = self._source.head_of()
        except LockUnavailable:  # as for followers: what is known goes on, and it is asked again
            self.answered = False
            return False
        self.answered = True
        if head == self.head:
            return False
        epoch = head
        while epoch > self.head:
            try:
                cut = self._routes.cut(epoch)
            except LogTruncated:
                break  # collected; so is what comes before it, which is found where that is read
            if _code_of(cut) != self._code:
                self.limit = int(cut.base.lsn)
            epoch = cut.base.epoch
        self.head = head
        return True


def _code_of(cut: Cut) -> tuple[bytes, int]:
    """Give what says which code an epoch's turns are of."""
    return bytes(cut.fingerprint), cut.generation


class LiveLog:
    """Gives the frames of one shard's log, behind a place in it.

    Args:
        source: where it is read.
        head: the head, as it was seen last.
        lsn: of the last message before the first frame.
        chain: hash behind that message.
        following: how long.
    """

    def __init__(self, source: Source, head: int, lsn: int, chain: bytes, following: Following) -> None:
        self.over = False  # nothing more is given
        self._source = source
        self._following = following
        self._heads = _Heads(source, head)
        self._reader, self._counter = LogReader(source.fs), LogReader(source.fs)
        self._read, self._counted = _Place(lsn, chain), _Place(lsn, chain)
        self._shown: int | None = None  # lsn at which the log ended when it was last read to its end
        self._compared = lsn
        self._queue: deque[Frame] = deque()
        self._times = _Times()
        self._told = Followed(seconds=0.0)

    # ---- what a rehearsal asks for -----------------------------------------------------------------------------

    def ready(self) -> Frame | None:
        """Give the next frame; None: there is none yet, or it is over."""
        self._check()
        if not self.over and not self._queue:
            self._fill()
        return None if self.over or not self._queue else self._queue.popleft()

    @property
    def caught_up(self) -> bool:
        """Has the time begun?"""
        return self._times.caught_up is not None

    def pause(self) -> None:
        """Wait a moment."""
        self._source.pause(POLL_S)

    def compared(self, frame: Frame) -> None:
        """Hear that a frame is compared."""
        self._compared = int(frame.last_lsn)
        self._check()

    def stop(self, why: str) -> None:
        """Give nothing more: nobody can compare it."""
        if not self.over:
            self._finish(why)

    def behind(self) -> int:
        """Give how many confirmed messages are not compared yet, as it was seen last."""
        now = self._source.clock()
        if not self.over and now >= self._times.counted + COUNT_S:
            self._count(now + COUNT_S / 4)  # the rehearsal waits for it
        return max(self._end() - self._compared, 0)

    def followed(self) -> Followed:
        """Say how much of the log was compared; once it is over."""
        times, told = self._times, self._told
        if times.caught_up is not None:
            until = self._source.clock() if times.over is None else times.over
            told.caught_up, told.seconds = True, until - times.caught_up
            to = times.to if times.over is not None else max(self._end(), self._compared)
            told.messages = to - told.from_lsn
            told.compared = min(self._compared, to) - told.from_lsn
        return told

    # ---- when it is over ---------------------------------------------------------------------------------------

    def _check(self) -> None:
        """See whether it has caught up, its time is over, or nothing of that time is left."""
        times, now = self._times, self._source.clock()
        if self.over:
            return
        if self._following.stopped():
            self._told.interrupted = True
            self._finish("it was interrupted")
        elif times.caught_up is None:
            if self._shown is not None and self._compared >= self._shown:
                times.caught_up, self._told.from_lsn = now, self._compared
        elif times.over is None and now >= times.caught_up + self._following.seconds:
            self._time_over(now)
        if times.over is not None and (self._compared >= times.to or now >= times.over + self._following.seconds):
            self.over = True

    def _time_over(self, now: float) -> None:
        """Note up to where the log is of the time that was asked for."""
        heads = self._heads
        if heads.limit is None:
            heads.look()
        if not heads.answered:
            self._finish("the lock store does not answer, so nobody knows where the log ends")
        if heads.limit is not None or self.over:
            return  # other code served in that time already: it ends where the former one does, and says so
        self._count()
        self._times.over, self._times.to = now, self._end()

    def _finish(self, ended: str) -> None:
        """Give nothing more."""
        self._told.ended = ended
        if self.caught_up:
            self._count()
        self.over = True

    def _end(self) -> int:
        """Give the lsn at which the log of the former code ends, as it was seen last."""
        end, limit = max(self._counted.lsn, self._read.lsn), self._heads.limit
        return end if limit is None else min(end, limit)

    # ---- frames ------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read what is confirmed, or find why nothing is."""
        heads, place = self._heads, self._read
        if heads.limit is not None and place.lsn >= heads.limit:
            if self._compared >= heads.limit:
                self._finish(f"other code serves behind lsn {heads.limit}, and the former one runs no more than that")
            return
        try:
            frames, at_end = self._reader.read(heads.head, place.lsn, place.chain, bytes_max=READ_BYTES)
        except LogTruncated as error:
            if not heads.look() and heads.answered:
                self._gone(error)
            return
        for frame, _ in frames:
            if heads.limit is not None and frame.last_lsn > heads.limit:
                break
            self._queue.append(frame)
            place.move(frame)
        if at_end:
            self._shown = place.lsn
        self._note_behind()
        if not self._queue:
            heads.maybe_look()

    def _gone(self, error: LogTruncated) -> None:
        """End where what comes next was collected. Raises: LogTruncated where it is missing otherwise."""
        oldest = self._reader.routes.find_oldest(self._heads.head).start.lsn
        if oldest <= self._read.lsn:
            raise error
        self._finish(
            f"the log up to lsn {oldest} was collected, and no more than lsn {self._compared} was compared: the run is "
            "slower than the service, or began too far back"
        )

    def _count(self, until: float = float("inf")) -> None:
        """See how far the log is."""
        place, at_end = self._counted, False
        if place.lsn < self._read.lsn:
            place.lsn, place.chain = self._read.lsn, self._read.chain
        while not at_end and self._source.clock() < until:
            try:
                frames, at_end = self._counter.read(self._heads.head, place.lsn, place.chain, bytes_max=COUNT_BYTES)
            except LogTruncated:
                break  # who reads it for the rehearsal finds that as well, and says it
            if frames:
                place.move(frames[-1][0])
        self._times.counted = self._source.clock()
        self._note_behind()

    def _note_behind(self) -> None:
        """Remember how far behind it was, of the time that counts."""
        if self.caught_up and self._times.over is None:
            self._told.behind_max = max(self._told.behind_max, self._end() - self._compared)
