"""The log of a shard over a shared directory: the port `LogStore` on the port `FileSystem`.

Why it exists: it joins what the modules beside it do, into the one object that a replica holds.

    segment_scan    one file: frames, and what stands at the end
    log_route       from the head back to a place: which files count
    log_reader      forwards from there: what is confirmed, what a successor copies
    segment_writer  one epoch's files: order of writes and syncs
    spare           space put aside for a takeover
    log_overview    for tools: what stands in the folder, and openings above head

Layout, below the shared directory:

    log/e000000000003.r000000.seg    segment: epoch 3, file 0 (codec.frames)
    seal/000000000002                epoch 2 is closed; linked, never removed
    replicas/<replica>/spare         spare segment;  replicas/<replica>/seal   empty; its seals are links of it
    replicas/<replica>/prepared.*    the next segment, filled with zeros ahead of time

Guarantees (design 0003, "The log", I1, I6, I8): see each module. Seals stand durably when `link_seals` returns.
Collection
removes whole files only, never the head's first, never one that a reader at or above the collected lsn would open,
oldest first, each removal durable before the next, so that a crash leaves no hole. Beside that go files that no cut
leads to, whole and in any order. Does not: ask the lock, prove, or
decide when; a process must be the only one of its replica. May import codec and base.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Final

import msgspec

from deathless.base.errors import Closed, Internal, LogTruncated, StoreOlderThanLog
from deathless.base.limits import Limits
from deathless.codec.frames import BLOCK, Cut, Frame, segment_name
from deathless.codec.generations import NEWEST
from deathless.engine.log.overview import newest_opening
from deathless.engine.log.prepared import PreparedSegment
from deathless.engine.log.reader import LogReader
from deathless.engine.log.route import Identity, listed_segments
from deathless.engine.log.segment_scan import LOG_FOLDER, segment_path
from deathless.engine.log.segment_writer import SegmentWriter
from deathless.engine.log.spare import Spare
from deathless.engine.ports import FileSystem, SegmentMaker, Tail
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

SEAL_FOLDER: Final = "seal"
PREPARED_BYTES: Final = 16 << 20  # a takeover looks through what of such a file is still zeros
ROLLS_END: Final = 1 << 32  # above every roll of an epoch


def seal_path(epoch: int) -> str:
    """Path of the name that closes an epoch."""
    return f"{SEAL_FOLDER}/{epoch:012d}"


class ShardLog:
    """One replica's hold on a shard's log: reads it, and writes it while the replica is primary.

    Args:
        fs: the shared directory.
        limits: see `base.limits`.
        replica: this replica's name.
        identity: whose log it must be; None: anyone's (a first start knows it only after `create_service`).
        safeguards: all on, but in tests.
        instance: which of several that call themselves this replica; empty: there is one at a time.
        maker: fills segments ahead of time; None: there are none of these.
        nonce: that no other process of this replica ever has, where there is a maker.
        newest: format level up to which it is read.
    """

    def __init__(
        self,
        fs: FileSystem,
        limits: Limits,
        replica: str,
        identity: Identity | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        *,
        instance: str = "",
        maker: SegmentMaker | None = None,
        nonce: str = "",
        newest: int = NEWEST,
    ) -> None:
        self._fs = fs
        self._safeguards = safeguards
        self._replica_folder = f"replicas/{replica}"
        self._reader = LogReader(fs, identity, safeguards, newest)
        self._adopted_through = identity.adopted_through if identity is not None else 0
        self._kept = (0, 0)  # epoch and roll of the newest file before our epoch that our cut or our copies are from
        self._spare = Spare(fs, replica, limits.spare_bytes, instance=instance)
        size = min(PREPARED_BYTES, limits.segment_bytes_max // 4 // BLOCK * BLOCK)
        self._prepared = PreparedSegment(fs, replica, size, maker, nonce)
        self._writer = writer = SegmentWriter(fs, limits, self._spare, safeguards, self._prepared)
        # See the port. The writer's own, because each frame passes through them. `reserve` says False as well while
        # there is no space for a spare: the next takeover must fit (I8).
        self.reserve, self.append, self.sync = writer.reserve, writer.append, writer.sync

    @property
    def spare(self) -> Spare:
        """This replica's spare segment: `prepare` it when idle; `free` it for a checkpoint that finds no space."""
        return self._spare

    def prepare(self) -> bool:
        """Make the folders and the spare, at the replica's start. False: no space for a spare.

        Raises: OSError.
        """
        for folder in (LOG_FOLDER, SEAL_FOLDER, self._replica_folder):
            self._fs.make_folder(folder)
        with contextlib.suppress(FileExistsError):
            self._make_seal_source()
        self._prepared.clear()
        return self._spare.prepare()

    def check_head(self, head: int) -> Cut:
        """Read the head's cut, to see that the directory is ours before anything else is done.

        Raises: LogTruncated when it is missing; ForeignDirectory; CorruptFrame; OSError.
        """
        return self._reader.routes.cut(head)

    def check_store(self, head: int, epoch: int, revision: int) -> Cut | None:
        """See the port."""
        newest = newest_opening(self._fs, max(head - 1, 0), epoch)
        if newest is not None and self._safeguards.refuse_older_store:
            above, opening = newest
            if above > head:
                raise StoreOlderThanLog(
                    f"{segment_path(above, 0)} opened epoch {above}, the lock store's head is {head}"
                )
            if opening.store_revision > revision and above > self._adopted_through:
                raise StoreOlderThanLog(
                    f"{segment_path(above, 0)} names revision {opening.store_revision}, the lock store is at {revision}"
                )
        return self.check_head(head) if head else None

    def read(self, head: int, lsn: int, chain: bytes, *, bytes_max: int) -> tuple[list[tuple[Frame, bytes]], bool]:
        """See the port."""
        return self._reader.read(head, lsn, chain, bytes_max=bytes_max)

    def read_tail(self, head: int, lsn: int, chain: bytes, confirmed_lsn: int, *, ends_at: int | None = None) -> Tail:
        """See the port."""
        return self._reader.read_tail(head, lsn, chain, confirmed_lsn, ends_at=ends_at)

    def chain_at(self, head: int, lsn: int) -> bytes | None:
        """See the port."""
        return self._reader.chain_at(head, lsn)

    def oldest(self, head: int) -> tuple[int, bytes]:
        """(lsn, chain) right before the oldest message that is still in the log; (0, zeros) when nothing was collected.

        Raises: as `read`.
        """
        start = self._reader.routes.find_oldest(head).start
        return start.lsn, start.chain

    def write_cut(self, epoch: int, cut: bytes, tail: Tail, *, incarnation: int) -> None:
        """See the port.

        Raises: OutOfSpace: nothing was written. StoreOlderThanLog when the file exists already: the store gave the
            epoch twice. Closed after an error, or for an epoch not above the last. OSError: stop.
        """
        decoded = msgspec.msgpack.decode(cut, type=Cut)
        if (
            decoded.base != tail.position
            or decoded.copies != len(tail.unconfirmed)
            or decoded.incarnation != incarnation
        ):
            raise Internal(f"cut of epoch {epoch} does not fit the tail that it continues")
        copies = [frame for frame, _ in tail.unconfirmed]
        self._writer.begin(epoch, cut, tail.position, copies, incarnation, level=decoded.level)
        copied = tail.unconfirmed[-1][0].epoch if tail.unconfirmed else 0
        self._kept = (copied, ROLLS_END) if copied else (tail.position.epoch, tail.position.roll)

    def last_place(self) -> tuple[int, int]:
        """See the port."""
        return self._writer.last_place

    def note_place(self, frame: Frame, roll: int, offset: int) -> None:
        """See the port."""
        self._reader.note_place(frame, roll, offset)

    def link_seals(self, first: int, last: int) -> None:
        """See the port."""
        with contextlib.suppress(FileExistsError):
            self._make_seal_source()
        for epoch in range(max(first, 1), last + 1):
            self._link_seal(epoch)
        # Existing ones too: another may have linked them and died before this sync.
        if self._safeguards.sync_folder:
            self._fs.sync_folder(SEAL_FOLDER)

    def sealed(self, epoch: int) -> bool:
        """See the port."""
        return self._fs.exists(seal_path(epoch))

    def collect(self, lsn: int) -> list[str]:
        """See the port. `lsn` counts only up to the last confirmed lsn in a header that this writer synced.

        Nothing is left to do for an lsn below what was collected before.
        Raises: Closed when this replica is not writing; LogTruncated when the head's own first file is missing and
        no successor has sealed it.
        """
        if not self._writer.open:
            raise Closed("only a primary collects")
        if self._safeguards.collect_below_confirmed:
            lsn = min(lsn, self._writer.confirmed)
        head = self._writer.epoch
        routes = self._reader.routes
        try:
            start = routes.find(head, lsn).start
        except LogTruncated:
            if self.sealed(head):
                return []  # our proof was answered before a long pause: a successor leads, and has collected this
            routes.find_oldest(head)  # our own first file must be there
            return []  # a follower came back from below what is gone already; it starts from a checkpoint
        listed = listed_segments(self._fs)
        gone = [place for place in listed if place < (start.epoch, start.roll) and place != (head, 0)]
        if not self._safeguards.collect_oldest_first:
            gone.reverse()
        for epoch, roll in gone:
            self._fs.unlink(segment_path(epoch, roll))
            if self._safeguards.collect_oldest_first:
                self._fs.sync_folder(LOG_FOLDER)
        return [segment_name(epoch, roll) for epoch, roll in gone]

    def remove_unread(self) -> list[str]:
        """See the port. What copies were made of stays until it is collected, and what an operator adopted.

        Nobody else ever reads these files: our cut passes them over, and every later cut continues from ours or from
        behind it. A writer of one that wakes up is sealed, and finds its file, or the name of it, gone.

        Raises: Closed when this replica is not writing. OSError.
        """
        if not self._writer.open:
            raise Closed("only a primary removes files")
        unread = [place for place in listed_segments(self._fs) if self._kept < place < (self._writer.epoch, 0)]
        gone = [place for place in unread if place[0] > self._adopted_through]
        for epoch, roll in gone:
            with contextlib.suppress(FileNotFoundError):  # a listing is a hint
                self._fs.unlink(segment_path(epoch, roll))
        return [segment_name(epoch, roll) for epoch, roll in gone]

    def close(self) -> None:
        """See the port. The same object may begin a later epoch, unless an error closed it."""
        self._writer.close()

    def _link_seal(self, epoch: int) -> None:
        try:
            self._fs.link(f"{self._replica_folder}/seal", seal_path(epoch))
        except FileExistsError:
            return
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            # The file has as many names as the file system allows: go on with a new one.
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # another instance does the same
                self._fs.unlink(f"{self._replica_folder}/seal")
                self._make_seal_source()
            self._fs.link(f"{self._replica_folder}/seal", seal_path(epoch))

    def _make_seal_source(self) -> None:
        """Make the empty file that seals are links of: on a full disk a link still finds room, a new file may not."""
        path = f"{self._replica_folder}/seal"
        if self._fs.exists(path):
            return
        self._fs.make_folder(SEAL_FOLDER)
        self._fs.make_folder(self._replica_folder)
        handle = self._fs.create(path)
        try:
            self._fs.sync(handle)
        finally:
            self._fs.close(handle)
