"""The way from the head back to a place in the log: which files count, and how far each.

Why it exists: the log is not "all files in the folder". It is what the cuts say, followed backwards from the lock's
`head` (design 0003, "The log"): each epoch's first frame names the place where it continues an older one, and whatever
stands behind that place, or in files that no cut leads to, is not the log.

    e1.r0 [cut ORIGIN|a|b|ROLL]   e1.r1 [c|d|x y]                 x, y: behind the cut, ignored
                                             ^
    e3.r0 [cut (1, r1, behind d)|opening|e|f|...]                 e2 died before head was set: no cut leads to it

Going back stops at the file that holds the first message after the lsn asked for, so that files below a collection
are not missed. Within the head's epoch a listing proposes the last file, and exact names are tried downwards from
there: **absence in a listing proves nothing**. Forward, the ROLL frames lead (log_reader).

Guarantees: every file on the way was looked up by its exact name; one that must be there and is not is LogTruncated
with its name, never an end of log; a cut of another service, incarnation, fence or lock store is ForeignDirectory.
Does not: read messages. May import codec and base.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, ForeignDirectory, LogTruncated
from deathless.codec.frames import BLOCK, ORIGIN, Cut, Frame, FrameKind, Position, parse_segment_name
from deathless.codec.generations import NEWEST, check_level
from deathless.codec.untrusted import read_msgpack
from deathless.engine.log.segment_scan import LOG_FOLDER, SegmentScan, segment_path
from deathless.engine.ports import FileSystem
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards


class Identity(NamedTuple):
    """Whose log it must be; compared with the cuts on the way."""

    service_id: bytes
    incarnation: int
    fence: str
    store_id: str
    # Cuts up to this epoch may name another incarnation, fence or store: an operator has adopted them. They may name
    # another service only if it is one that this one was made of.
    adopted_through: int = 0
    former_services: frozenset[bytes] = frozenset()

    def check(self, cut: Cut, epoch: int, path: str) -> None:
        """Compare with a cut.

        Raises: ForeignDirectory naming the file and the first thing that differs.
        """
        pairs: list[tuple[str, object, object]] = [("service id", cut.service_id, self.service_id)]
        if epoch <= self.adopted_through and cut.service_id in self.former_services:
            return
        if epoch > self.adopted_through:
            pairs += [
                ("incarnation", cut.incarnation, self.incarnation),
                ("fence", cut.fence, self.fence),
                ("lock store", cut.store_id, self.store_id),
            ]
        for what, found, wanted in pairs:
            if found != wanted:
                shown = [value.hex() if isinstance(value, bytes) else value for value in (found, wanted)]
                raise ForeignDirectory(f"{path}: {what} is {shown[0]}, not {shown[1]} (service {cut.service!r})")


class Leave(NamedTuple):
    """Where an epoch's files stop to count, because the cut of a later one continues from there."""

    position: Position
    into: int  # the later epoch


class Place(NamedTuple):
    """Where reading goes on: right before a frame."""

    epoch: int
    roll: int
    offset: int  # of the next frame in its file, bytes
    ordinal: int  # index of the next frame in its file
    lsn: int  # of the last message before it
    chain: bytes  # behind that message
    incarnation: int | None  # of the epoch's frames; None: not seen yet
    position: Position  # right behind the frame of that last message, as a cut names it


class Route(NamedTuple):
    """The way forward from a place to the end of the log."""

    start: Place
    leaves: dict[int, Leave]  # by epoch
    confirmed: int  # highest lsn that the cuts on the way call confirmed


def decode_cut(frame: Frame, path: str) -> Cut:
    """Take a CUT frame apart and check that header and payload agree.

    Raises: CorruptFrame.
    """
    try:
        cut = read_msgpack(frame.payload, Cut)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"{path}: the cut can't be read: {error}") from error
    if frame.first_lsn != cut.base.lsn + 1 or frame.prev_chain != cut.base.chain or cut.base.epoch >= frame.epoch:
        raise CorruptFrame(f"{path}: header and payload of the cut disagree")
    return cut


def listed_segments(fs: FileSystem) -> list[tuple[int, int]]:
    """(epoch, roll) of the segments that a listing shows, ascending; a hint. An absent folder gives none."""
    try:
        names = fs.listing(LOG_FOLDER)
    except FileNotFoundError:
        return []
    return sorted(place for name in names if (place := parse_segment_name(name)) is not None)


def missing(path: str, why: str) -> LogTruncated:
    """The error for a file that must be there."""
    return LogTruncated(f"{path} is missing: {why}", remedy="restore the file, or the whole directory, from a copy")


class RouteFinder:
    """Finds routes.

    Args:
        fs: the shared directory.
        identity: whose log it must be; None: anyone's (tools that only look).
        safeguards: all on, but in tests.
        newest: format level up to which the log is read.
    """

    def __init__(
        self,
        fs: FileSystem,
        identity: Identity | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        newest: int = NEWEST,
    ) -> None:
        self._fs = fs
        self._identity = identity
        self._safeguards = safeguards
        self._newest = newest

    def find(self, head: int, lsn: int) -> Route:
        """Find the way from the first frame that matters to a reader at `lsn` to the end of the log of `head`.

        The start's lsn is at or below `lsn` (0 is below every message).
        Raises: LogTruncated, CorruptFrame, ForeignDirectory, NewerFormat, NewerLevel, OSError.
        """
        return self._find(head, lsn, whole=False)

    def find_oldest(self, head: int) -> Route:
        """Find the way from the oldest frame that is still there.

        Raises: as `find`; LogTruncated only when the head's own first file is missing.
        """
        return self._find(head, -1, whole=True)

    def cut(self, epoch: int) -> Cut:
        """Read the cut of an epoch.

        Raises: LogTruncated when file or cut are missing; ForeignDirectory; NewerLevel.
        """
        path = segment_path(epoch, 0)
        frame = self._first_frame(epoch, 0, None, f"epoch {epoch} begins there")
        if frame is None or frame.kind != FrameKind.CUT:
            raise LogTruncated(f"{path} has no cut: nothing says what epoch {epoch} continues")
        cut = decode_cut(frame, path)
        if self._safeguards.refuse_newer_level:
            check_level(cut.level, path, self._newest)
        if self._identity is not None and self._safeguards.check_identity:
            self._identity.check(cut, epoch, path)
        return cut

    def _find(self, head: int, lsn: int, *, whole: bool) -> Route:
        leaves: dict[int, Leave] = {}
        confirmed = 0
        epoch, roll = head, self._last_listed_roll(head)
        limit: int | None = None
        best: Place | None = None  # oldest start found so far that leads forward
        # The head's first file is read whatever is asked: it must be there, and be ours.
        self.cut(head)
        while True:
            try:
                start, stop = self._start_in(epoch, roll, limit, lsn)
            except LogTruncated:
                if whole and best is not None:
                    return Route(best, leaves, confirmed)
                raise
            best = start or best
            if stop is not None:
                base = stop.base
                confirmed = max(confirmed, base.lsn)
                if base.lsn <= lsn or base.epoch == ORIGIN.epoch:
                    assert start is not None, "an epoch's first file begins with its cut"
                    return Route(start, leaves, confirmed)
                leaves[base.epoch] = Leave(base, epoch)
                epoch, roll, limit = base.epoch, base.roll, base.length
            elif start is not None and start.lsn <= lsn:
                return Route(start, leaves, confirmed)
            else:
                roll, limit = roll - 1, None

    def _start_in(self, epoch: int, roll: int, limit: int | None, lsn: int) -> tuple[Place | None, Cut | None]:
        """Give where reading could start in one file (None: it holds no frame), and the cut if it begins with one."""
        if roll == 0:
            cut = self.cut(epoch)
            base = cut.base
            return Place(epoch, 0, 0, 0, base.lsn, base.chain, None, base), cut
        frame = self._first_frame(epoch, roll, limit, f"epoch {epoch} rolled to it, and lsn {lsn + 1} is not above it")
        if frame is None:
            return None, None
        before = frame.first_lsn - 1
        position = Position(epoch, roll, 0, before, frame.prev_chain)
        return Place(epoch, roll, 0, 0, before, frame.prev_chain, None, position), None

    def _first_frame(self, epoch: int, roll: int, limit: int | None, why: str) -> Frame | None:
        try:
            scan = SegmentScan(self._fs, epoch, roll, limit, self._safeguards, chunk_bytes=BLOCK)
        except FileNotFoundError as error:
            raise missing(segment_path(epoch, roll), why) from error
        try:
            found = scan.frame_or_reread(0, 0)
        finally:
            scan.close()
        return None if found is None else found.frame

    def _last_listed_roll(self, epoch: int) -> int:
        return max((roll for listed, roll in listed_segments(self._fs) if listed == epoch), default=0)
