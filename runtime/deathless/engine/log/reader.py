"""Reads the log of a shard forwards: frame after frame from file to file, and what of it is confirmed.

Why it exists: followers read the log while it is written, a successor reads its end after the seals stand, tools
verify it. All three follow the same files (log_route) and take frames through the same checks (segment_scan); they
differ only in what they make of the end.

    who                        at a place without a whole valid frame          gives
    a follower (`read`)        nothing more for now; a bad frame that did      confirmed frames
                               not change between two reads is judged
    a successor (`read_tail`)  judged, by its bytes too: end, or CorruptFrame  confirmed and unconfirmed apart
    anyone, before a cut's     CorruptFrame, or LogTruncated if the file       -
    place or in a rolled file  ends there: a cut leads beyond it

Confirmed is the highest confirmed lsn in any header on the way (OPENING, CONFIRM and ROLL count too), in any cut's
base, or told by the caller. A frame is confirmed whole.

Guarantees: frames given continue each other and the (lsn, chain) asked for; nothing behind a cut is given; `read`
gives nothing unconfirmed. Does not: cache bytes; between two calls it keeps places alone, and every call reads
through fresh descriptors. May import codec and base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, LogTruncated
from deathless.codec.frames import BLOCK, ORIGIN, Frame, FrameKind, Position, RollTo
from deathless.codec.generations import NEWEST
from deathless.codec.untrusted import read_msgpack
from deathless.engine.log.route import Identity, Leave, Place, Route, RouteFinder, missing
from deathless.engine.log.segment_scan import Chain, Scanned, SegmentScan, segment_path
from deathless.engine.ports import FileSystem, Tail
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards


class Step(NamedTuple):
    """A frame of the log and the place right behind it."""

    found: Scanned
    after: Place


class _Mark(NamedTuple):
    """What a follower has read up to, so that its next call need not look for it."""

    head: int
    place: Place
    leaves: dict[int, Leave]
    confirmed: int


class LogReader:
    """Reads one shard's log.

    Args:
        fs: the shared directory.
        identity: whose log it must be; None: anyone's.
        safeguards: all on, but in tests.
        newest: format level up to which it is read.
    """

    def __init__(
        self,
        fs: FileSystem,
        identity: Identity | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        newest: int = NEWEST,
    ) -> None:
        self.routes = RouteFinder(fs, identity, safeguards, newest)
        self._fs = fs
        self._safeguards = safeguards
        self._mark: _Mark | None = None
        self._hint: tuple[Frame, int, int] | None = None  # a frame of the stream, and where it is said to stand
        self._suspect: tuple[str, int] | None = None  # where the last live read met bytes that are no frame

    def read(self, head: int, lsn: int, chain: bytes, *, bytes_max: int) -> tuple[list[tuple[Frame, bytes]], bool]:
        """See the port `LogStore`. A reader that is ahead of what the storage shows gets nothing, and no error.

        Head 0 is a log without an epoch: nothing is confirmed.
        """
        if head == 0:
            return [], True
        route = self._route(head, lsn, chain)
        join = _Join(lsn, chain, route.start)
        confirmed = route.confirmed
        given: list[tuple[Frame, bytes]] = []
        waiting: list[Step] = []
        size = 0
        for step in self.walk(route, judge=False):
            frame = step.found.frame
            confirmed = max(confirmed, frame.confirmed_lsn)
            if join.passes(step):
                waiting.append(step)
            ready = 0
            for held in waiting:
                if held.found.frame.last_lsn > confirmed and self._safeguards.confirmed_only:
                    break
                given.append((held.found.frame, held.found.raw))
                size += len(held.found.raw)
                ready += 1
            if ready:
                self._mark = _Mark(head, waiting[ready - 1].after, route.leaves, confirmed)
                del waiting[:ready]
                if size >= bytes_max:
                    return given, False
        return given, True

    def read_tail(self, head: int, lsn: int, chain: bytes, confirmed_lsn: int, *, ends_at: int | None = None) -> Tail:
        """See the port `LogStore`. Call it only once the seals stand. Head 0 is a log without an epoch."""
        if head == 0:
            return self._empty_tail(max(lsn, confirmed_lsn))
        route = self._route(head, lsn, chain)
        join = _Join(lsn, chain, route.start)
        confirmed = max(route.confirmed, confirmed_lsn, lsn)
        steps: list[Step] = []
        last = route.start
        for step in self.walk(route, judge=True):
            confirmed = max(confirmed, step.found.frame.confirmed_lsn)
            if join.passes(step):
                steps.append(step)
            last = step.after
        passed_over = self._judge_bytes(last, ends_at)
        if last.lsn < confirmed and self._safeguards.check_confirmed_end:
            raise LogTruncated(
                f"{segment_path(last.epoch, last.roll)} offset {last.offset}: the log ends at lsn {last.lsn}, "
                f"but lsn {confirmed} is confirmed",
                remedy="restore the file from a copy, or start a replica that has the missing messages",
            )
        if not self._safeguards.cut_at_confirmed:
            confirmed = last.lsn
        split = sum(step.found.frame.first_lsn <= confirmed for step in steps)
        position = steps[split - 1].after.position if split else join.position
        pairs = [(step.found.frame, step.found.raw) for step in steps]
        return Tail(pairs[:split], pairs[split:], position, passed_over)

    def _judge_bytes(self, place: Place, ends_at: int | None) -> str:
        """Say whether what stands behind the last valid frame was a whole frame once; gives what was passed over.

        Raises: CorruptFrame when it was, unless everything confirmed is known to stand before it.
        """
        path = segment_path(place.epoch, place.roll)
        scan = SegmentScan(self._fs, place.epoch, place.roll, None, self._safeguards)
        try:
            if not scan.changed_at(place.offset):
                return ""
        finally:
            scan.close()
        text = f"{path} offset {place.offset}: the frame at lsn {place.lsn + 1} is not what was written"
        if ends_at is not None and place.lsn >= ends_at:
            return f"{text}; nothing behind lsn {ends_at} was confirmed, so it is passed over"
        raise CorruptFrame(
            f"{text}, and no crash tears a write like that",
            remedy="bring back the file from an intact copy; where there is none, see `deathless adopt --help`",
        )

    def chain_at(self, head: int, lsn: int) -> bytes | None:
        """See the port `LogStore`."""
        if head == 0 or self.routes.find_oldest(head).start.lsn > lsn:
            return None
        route = self.routes.find(head, lsn)
        place = route.start
        if place.lsn < lsn:
            for step in self.walk(route, judge=False):
                place = step.after
                if place.lsn >= lsn:
                    break
        return place.chain if place.lsn == lsn else b""

    def find_end(self, head: int, lsn: int) -> tuple[Place, str]:
        """Find the end of what reads well, from the file that holds `lsn` on, and why it is no sound end; empty: it is.

        For a writer that is known to be gone. Raises: LogTruncated, CorruptFrame when not even that file reads well.
        """
        route = self.routes.find(head, lsn)
        place = route.start
        try:
            for step in self.walk(route, judge=True):
                place = step.after
            self._judge_bytes(place, None)
        except (CorruptFrame, LogTruncated) as error:
            return place, error.message
        return place, ""

    def _empty_tail(self, known_lsn: int) -> Tail:
        if known_lsn > 0 and self._safeguards.check_confirmed_end:
            raise LogTruncated(f"the lock knows no epoch, but lsn {known_lsn} is confirmed")
        return Tail([], [], ORIGIN)

    def walk(self, route: Route, *, judge: bool) -> Iterator[Step]:
        """Give every frame from the route's start to the end of the log, cuts and others included.

        Args:
            route: of the RouteFinder.
            judge: at the end, say whether it is one (the writer is sealed); else only where bytes stayed bad.

        Raises: LogTruncated, CorruptFrame, NewerFormat, OSError.
        """
        place = route.start
        while True:
            leave = route.leaves.get(place.epoch)
            if not self._safeguards.follow_cuts and leave is not None:
                leave = leave._replace(position=msgspec.structs.replace(leave.position, length=1 << 62))
            rolled: int | None = None
            for step in self._walk_file(place, leave, judge=judge):
                yield step
                place = step.after
                if step.found.frame.kind == FrameKind.ROLL:
                    rolled = _roll_of(step, segment_path(place.epoch, place.roll))
            if leave is not None and leave.position.roll == place.roll:
                place = self._into_next_epoch(place, leave)
            elif rolled is not None:
                if not self._safeguards.missing_is_error and not self._fs.exists(segment_path(place.epoch, rolled)):
                    return
                place = place._replace(roll=rolled, offset=0, ordinal=0)
            else:
                return

    def _walk_file(self, place: Place, leave: Leave | None, *, judge: bool) -> Iterator[Step]:
        """Give the frames of one file from a place in it, up to its ROLL frame, its cut's place or its end."""
        path = segment_path(place.epoch, place.roll)
        limit = leave.position.length if leave is not None and leave.position.roll == place.roll else None
        if limit is not None and place.offset >= limit:
            return  # nothing of the log is left there: who read it all needs no file that was collected since
        try:
            scan = SegmentScan(self._fs, place.epoch, place.roll, limit, self._safeguards)
        except FileNotFoundError as error:
            raise missing(path, "the log leads to it") from error
        try:
            while limit is None or place.offset < limit:
                found = scan.frame_or_reread(place.offset, place.ordinal)
                if found is None:
                    if leave is not None and self._safeguards.follow_cuts:
                        raise self._cut_short(scan, place, leave)
                    found = self._at_end(scan, place, judge=judge)
                    if found is None:
                        return
                place = self._take(place, found, path)
                yield Step(found, place)
                if found.frame.kind == FrameKind.ROLL:
                    return
        finally:
            scan.close()

    def _take(self, place: Place, found: Scanned, path: str) -> Place:
        """Check that a frame continues the log and give the place behind it."""
        frame = found.frame
        if self._safeguards.check_chain:
            chain = Chain(place.lsn, place.chain)
            chain.take(found, path)
            if place.incarnation not in {None, frame.incarnation} or frame.confirmed_lsn > place.lsn:
                raise CorruptFrame(
                    f"{path} offset {found.offset}: frame at lsn {frame.first_lsn} names incarnation "
                    f"{frame.incarnation} and confirmed lsn {frame.confirmed_lsn}, which does not fit what is before it"
                )
        position = place.position
        lsn, behind = place.lsn, place.chain
        if frame.kind == FrameKind.DATA:
            lsn, behind = frame.last_lsn, frame.chain
            position = Position(place.epoch, place.roll, found.end, lsn, behind)
        return Place(place.epoch, place.roll, found.end, place.ordinal + 1, lsn, behind, frame.incarnation, position)

    def _at_end(self, scan: SegmentScan, place: Place, *, judge: bool) -> Scanned | None:
        """Nothing valid stands at the place, which no cut calls whole: is it the end? None: yes, or not yet known."""
        here = (scan.path, place.offset)
        if not judge:
            if scan.empty_at(place.offset):
                return None
            known, self._suspect = self._suspect == here, here
            if not known:
                return None
        found = scan.judge_end(place.offset, place.ordinal, place.lsn + 1, place.incarnation)
        if found is None and judge and self._safeguards.look_beyond_bad_frame:
            self._check_no_next_file(place)
        return found

    def _check_no_next_file(self, place: Place) -> None:
        """A frame in the next file proves that this one had its ROLL frame, synced."""
        try:
            scan = SegmentScan(self._fs, place.epoch, place.roll + 1, None, self._safeguards, chunk_bytes=BLOCK)
        except FileNotFoundError:
            return
        try:
            if scan.frame_or_reread(0, 0) is not None:
                raise CorruptFrame(
                    f"{segment_path(place.epoch, place.roll)} offset {place.offset}: the frame at lsn {place.lsn + 1} "
                    f"is not what was written, and {scan.path} goes on"
                )
        finally:
            scan.close()

    def _cut_short(self, scan: SegmentScan, place: Place, leave: Leave) -> CorruptFrame | LogTruncated:
        """The error for a place before a cut's where no valid frame stands."""
        text = (
            f"{scan.path} offset {place.offset}: no valid frame at lsn {place.lsn + 1}, but epoch {leave.into} "
            f"continues from lsn {leave.position.lsn}"
        )
        return LogTruncated(text) if scan.empty_at(place.offset) else CorruptFrame(text)

    def _into_next_epoch(self, place: Place, leave: Leave) -> Place:
        """Step from the place that a cut names into the epoch of that cut."""
        base = leave.position
        exact = place.offset == base.length and place.lsn == base.lsn and place.chain == base.chain
        if self._safeguards.check_chain and not exact:
            raise CorruptFrame(
                f"{segment_path(place.epoch, place.roll)} offset {place.offset}: the log is at lsn {place.lsn} there, "
                f"but the cut of epoch {leave.into} names lsn {base.lsn} at offset {base.length}"
            )
        return place._replace(epoch=leave.into, roll=0, offset=0, ordinal=0, incarnation=None)

    def _route(self, head: int, lsn: int, chain: bytes) -> Route:
        mark = self._mark
        if mark is not None and mark.head == head and mark.place.lsn == lsn and mark.place.chain == chain:
            return Route(mark.place, mark.leaves, mark.confirmed)
        self._mark = None
        hinted = self._hinted(head, lsn, chain)
        return hinted if hinted is not None else self.routes.find(head, lsn)

    def note_place(self, frame: Frame, roll: int, offset: int) -> None:
        """Hear that a frame of messages stands in file `roll` of its epoch at `offset`; checked before it is used."""
        self._hint = (frame, roll, offset)

    def _hinted(self, head: int, lsn: int, chain: bytes) -> Route | None:
        """The way from a noted frame, if the file has just that one there; else a segment is read from its start."""
        if self._hint is None:
            return None
        frame, roll, offset = self._hint
        if (frame.epoch, frame.last_lsn, frame.chain) != (head, lsn, chain):
            return None
        try:
            scan = SegmentScan(self._fs, frame.epoch, roll, None, self._safeguards)
        except FileNotFoundError:
            return None
        try:
            found = scan.frame_or_reread(offset, frame.index)
        finally:
            scan.close()
        if found is None or found.frame != frame:
            return None
        position = Position(frame.epoch, roll, found.end, frame.last_lsn, frame.chain)
        place = Place(
            frame.epoch, roll, found.end, frame.index + 1, frame.last_lsn, frame.chain, frame.incarnation, position
        )
        return Route(place, {}, frame.confirmed_lsn)


class _Join:
    """Watches a walk until it reaches the (lsn, chain) that the reader stands at."""

    def __init__(self, lsn: int, chain: bytes, start: Place) -> None:
        self._lsn = lsn
        self._chain = chain
        self._joined = False
        self.position = start.position  # of the reader's (lsn, chain), once joined
        self._look(start)

    def passes(self, step: Step) -> bool:
        """Is this frame one of messages behind the reader?

        Raises: LogTruncated when the reader's (lsn, chain) is not on the log.
        """
        if self._joined:
            return step.found.frame.kind == FrameKind.DATA
        self._look(step.after)
        return False

    def _look(self, place: Place) -> None:
        if place.lsn < self._lsn:
            return
        if place.lsn > self._lsn or place.chain != self._chain:
            raise LogTruncated(
                f"{segment_path(place.epoch, place.roll)}: lsn {self._lsn} with chain hash {self._chain.hex()} is not "
                "on this log",
                remedy="the directory or the replica's state is of another history: see `deathless log verify`",
            )
        self._joined = True
        self.position = place.position


def _roll_of(step: Step, path: str) -> int:
    try:
        roll = read_msgpack(step.found.frame.payload, RollTo).roll
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"{path} offset {step.found.offset}: the roll frame can't be read: {error}") from error
    if roll != step.after.roll + 1:
        raise CorruptFrame(f"{path} offset {step.found.offset}: file {step.after.roll} rolls to file {roll}")
    return roll
