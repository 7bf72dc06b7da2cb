"""Checkpoints in the shared directory: written whole or not at all, counted only once another has read them.

Why it exists: a checkpoint lets the log below it go, so one that can't be read back would lose confirmed messages.
The steps of one checkpoint (design 0003, "Checkpoints"):

    written      temporary name, synced, linked as `checkpoints/<lsn>-<chain>.ckpt`, folder synced
    announced    mark `<name>.announced`: its last frame is confirmed; before that nobody may load it
    verified     mark `<name>.verified`: another replica (a helper, where there is one replica) read all of it back
                 through a fresh descriptor; only verified ones count for collection
    pruned       older than what the primary needs: marks first, then the file, so that a mark never stands for a
                 file that it was not made for

A checkpoint of one (lsn, chain) is written once; who comes second uses the first one's file. The first one of a
generation may be begun ahead (`begin_first`): its state stands under a temporary name, and `write_first` finishes it.

Guarantees: a name in `names` was linked after its bytes were synced; `load` gives what was written, or
CorruptCheckpoint. Does not: know the chain (the caller compares lsn and chain hash of the head), decide when to
write, or speak with other replicas. May import codec and base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from deathless.base.errors import CorruptCheckpoint, OutOfSpace
from deathless.base.ids import ChainHash, Lsn
from deathless.base.storage import Use, waits
from deathless.codec import checkpoint as codec
from deathless.codec import checkpoint_ahead as ahead
from deathless.codec.snapshot import Begun, Head, Since, Snapshot
from deathless.engine.log.spare import is_full
from deathless.engine.ports import FileSystem, Handle
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

CHECKPOINT_FOLDER: Final = "checkpoints"
SUFFIX: Final = ".ckpt"
ANNOUNCED: Final = ".announced"
VERIFIED: Final = ".verified"
NAME_LENGTH: Final = 16 + 1 + 32 + len(SUFFIX)

Encode = Callable[[Snapshot], Iterator[bytes]]
"""Snapshot -> chunks of the file."""

Decode = Callable[[codec.Read], Snapshot]
"""Reader of the file -> snapshot; raises CorruptCheckpoint, NewerFormat."""

Verify = Callable[[codec.Read], tuple[Head, bytes]]
"""Reader of the file -> its head and state digest, everything checked, nothing kept."""


class CheckpointName(NamedTuple):
    """Where on the chain a checkpoint stands, and the name of its file."""

    lsn: Lsn
    chain: ChainHash
    name: str


def checkpoint_name(lsn: int, chain: bytes) -> str:
    """File name of a checkpoint, sortable by lsn."""
    return f"{lsn:016d}-{chain.hex()}{SUFFIX}"


def parse_checkpoint_name(name: str) -> CheckpointName | None:
    """Take a checkpoint's file name apart; None when it is none (a mark, a temporary name)."""
    if len(name) != NAME_LENGTH or not name.endswith(SUFFIX) or name[16] != "-" or not name[:16].isdecimal():
        return None
    try:
        chain = bytes.fromhex(name[17:49])
    except ValueError:
        return None
    return CheckpointName(Lsn(int(name[:16])), ChainHash(chain), name)


class CheckpointStore:
    """One replica's hold on the checkpoints of a shard.

    Args:
        fs: the shared directory.
        replica: its name, with its instance if it has one; part of temporary names: no other living process has it.
        kept: verified checkpoints that stay, at least 2.
        encode, decode, verify: the format; `codec.checkpoint` unless a test says otherwise.
        make_room: called once when the disk is full, before the write is given up (it frees the spare segment).
        safeguards: all on, but in tests.
    """

    def __init__(
        self,
        fs: FileSystem,
        replica: str,
        *,
        kept: int = 2,
        encode: Encode = codec.encode,
        decode: Decode = codec.decode,
        verify: Verify = codec.verify,
        make_room: Callable[[], None] | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self._fs = fs
        self._kept = kept
        self._encode = encode
        self._decode = decode
        self._verify = verify
        self._make_room = make_room
        self._safeguards = safeguards
        self._temporary = f"{CHECKPOINT_FOLDER}/t.{replica}"
        self._begun = f"{self._temporary}.begun"

    def clear(self, replica: str) -> None:
        """Take away what processes of this replica that are gone left half-written; one that lives writes another."""
        with contextlib.suppress(FileNotFoundError):
            for name in self._fs.listing(CHECKPOINT_FOLDER):
                path = f"{CHECKPOINT_FOLDER}/{name}"
                if path != self._temporary and (name == f"t.{replica}" or name.startswith(f"t.{replica}.")):
                    try:
                        self._unlink(path)
                    except OSError as error:
                        if not waits(error, Use.CHECKPOINT):
                            raise

    def write(self, snapshot: Snapshot) -> str:
        """Write a checkpoint and give it its name; durable when this returns.

        Returns: the file name, also when another replica had written that place already.
        Raises: OutOfSpace: nothing was left behind. OSError: stop.
        """
        self._fs.make_folder(CHECKPOINT_FOLDER)
        name = checkpoint_name(snapshot.lsn, snapshot.chain)
        try:
            self._write_temporary(snapshot)
        except OSError as error:
            if not is_full(error):
                raise
            self._retry_with_room(snapshot, error)
        with contextlib.suppress(FileExistsError):
            self._fs.link(self._temporary, f"{CHECKPOINT_FOLDER}/{name}")
        self._unlink(self._temporary)
        self._sync_folder()
        return name

    def begin_first(self, state: Mapping[bytes, bytes]) -> Begun:
        """Write a state of which a generation's first checkpoint is to be made, and read it back; durable.

        One that was begun before is given up.
        Raises: CorruptCheckpoint where it does not read back; OSError. Nothing is left behind then.
        """
        self._fs.make_folder(CHECKPOINT_FOLDER)
        try:
            end = self._write_file(self._begun, ahead.begin(state))
            with self._opened(self._begun) as read:
                return ahead.read_begun(read, end)
        except (CorruptCheckpoint, OSError):
            self.drop_begun()
            raise

    def drop_begun(self) -> None:
        """Give up what was begun, if anything was. Raises: OSError."""
        self._unlink(self._begun)

    def write_first(self, snapshot: Snapshot) -> None:
        """Write the checkpoint that a generation of the code begins with, and read it back. It needs no mark.

        Where its state was written ahead, that file is finished; where that can't be, the whole is written.
        Raises: as `write` and `verify`.
        """
        if snapshot.since is not None:
            try:
                self._finish(snapshot, snapshot.since)
            except (CorruptCheckpoint, OSError):
                self.drop_begun()
            else:
                return
        name = self.write(snapshot)
        if self._safeguards.verify_first_checkpoint:
            self.read_back(name)

    def _finish(self, snapshot: Snapshot, since: Since) -> None:
        """Finish the file that was begun, read back what is added, and link it; durable.

        Raises: CorruptCheckpoint, FileNotFoundError: it is not what was begun. OSError.
        """
        handle = self._fs.open(self._begun, write=True)
        try:
            if self._fs.size(handle) < since.begun.end:
                raise CorruptCheckpoint(f"{self._begun} is shorter than when it was begun")
            head, chunks = ahead.finish(self._read_of(handle), snapshot, since)
            self._fs.truncate(handle, since.begun.end)  # an attempt before this may have come as far as the end
            self._fs.write(handle, ahead.HEAD_AT, head)
            offset = since.begun.end
            for chunk in chunks:
                self._fs.write(handle, offset, chunk)
                offset += len(chunk)
            if self._safeguards.sync_checkpoint:
                self._fs.sync(handle)
        finally:
            self._fs.close(handle)
        name = checkpoint_name(snapshot.lsn, snapshot.chain)
        if self._safeguards.verify_first_checkpoint:
            with self._opened(self._begun) as read:
                found = ahead.verify_finished(read, since.begun)
            self._check_name(name, found.lsn, found.chain)
        with contextlib.suppress(FileExistsError):
            self._fs.link(self._begun, f"{CHECKPOINT_FOLDER}/{name}")
        self._unlink(self._begun)
        self._sync_folder()

    def names(self, *, announced_only: bool = True) -> list[CheckpointName]:
        """The checkpoints that a listing shows, newest first. A hint: one that is missing costs only time."""
        try:
            listed = self._fs.listing(CHECKPOINT_FOLDER)
        except FileNotFoundError:
            return []
        found = [parsed for name in listed if (parsed := parse_checkpoint_name(name)) is not None]
        return [each for each in reversed(found) if not announced_only or self.announced(each.name)]

    def announce(self, name: str) -> None:
        """Say that the last frame of a checkpoint is confirmed: from now on it may be loaded. Durable.

        Raises: FileNotFoundError when the checkpoint is gone. OSError: stop.
        """
        self._mark(name, ANNOUNCED)

    def announced(self, name: str) -> bool:
        """May the checkpoint be loaded?"""
        return self._fs.exists(f"{CHECKPOINT_FOLDER}/{name}{ANNOUNCED}")

    def verify(self, name: str) -> Head:
        """Read a checkpoint back, all of it, through a fresh descriptor, and mark it as verified. Durable.

        Only another process than the writer's may call it. The caller has compared lsn and chain with its own.
        Raises: CorruptCheckpoint, NewerFormat: it does not count. FileNotFoundError. OSError: stop.
        """
        head = self.read_back(name)
        self._mark(name, VERIFIED)
        return head

    def read_back(self, name: str) -> Head:
        """Read a checkpoint, all of it, through a fresh descriptor. Raises: as `verify`."""
        with self._reader(name) as read:
            head, _ = self._verify(read)
        self._check_name(name, head.lsn, head.chain)
        return head

    def verified(self, name: str) -> bool:
        """Has another process read the checkpoint back?"""
        return not self._safeguards.verify_checkpoint or self._fs.exists(f"{CHECKPOINT_FOLDER}/{name}{VERIFIED}")

    def head(self, name: str) -> Head:
        """Read what a checkpoint says of itself alone. Raises: CorruptCheckpoint, NewerFormat, OSError."""
        with self._reader(name) as read:
            return codec.read_head(read)

    def load(self, name: str) -> Snapshot:
        """Read a checkpoint through a fresh descriptor.

        Raises: CorruptCheckpoint: use an older one. NewerFormat, FileNotFoundError, OSError.
        """
        with self._reader(name) as read:
            snapshot = self._decode(read)
        self._check_name(name, snapshot.lsn, snapshot.chain)
        return snapshot

    def load_newest(
        self, lsn_max: int | None = None, lsn_above: int = -1, *, fits: Callable[[Head], bool] | None = None
    ) -> Snapshot | None:
        """Read the newest announced checkpoint that fits and reads back well; None: there is none.

        Args:
            lsn_max: newer ones are passed over; None: none is.
            lsn_above: those at or below do not count any more (a later Rebased record made them useless).
            fits: asked with what each says of itself; one that does not fit is passed over. None: all do.

        Raises: NewerFormat, OSError.
        """
        for each in self.names():
            if (lsn_max is not None and each.lsn > lsn_max) or each.lsn <= lsn_above:
                continue
            with contextlib.suppress(CorruptCheckpoint, FileNotFoundError):
                if fits is None or fits(self.head(each.name)):
                    return self.load(each.name)
        return None

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        """Read the checkpoint of just this place, announced or not; None: it is not there, or does not read back well.

        Raises: NewerFormat, OSError.
        """
        with contextlib.suppress(CorruptCheckpoint, FileNotFoundError):
            return self.load(checkpoint_name(lsn, chain))
        return None

    def floor(self) -> int:
        """The lsn up to which the log may be collected: that of the oldest of the `kept` newest verified checkpoints.

        Returns: 0 while there are fewer: then the log is needed from its beginning.
        """
        counted = sorted(each.lsn for each in self.counted())
        return counted[-self._kept] if len(counted) >= self._kept else 0

    def counted(self) -> list[CheckpointName]:
        """All that are announced and verified, newest first; whose history they are of is for the caller to compare."""
        return [each for each in self.names() if self.verified(each.name)]

    def prune(self, below: int | None = None) -> list[str]:
        """Remove the checkpoints of less than an lsn; durable. Gives the names.

        Args:
            below: None: that of the oldest of the `kept` newest verified ones.
        """
        floor = self.floor() if below is None else below
        gone = [each.name for each in self.names(announced_only=False) if each.lsn < floor]
        self.remove(gone)
        return gone

    def remove(self, gone: Sequence[str]) -> None:
        """Remove checkpoints with their marks, the last named first; durable."""
        for name in reversed(gone):
            marks = [f"{CHECKPOINT_FOLDER}/{name}{mark}" for mark in (VERIFIED, ANNOUNCED)]
            for mark in marks:
                self._unlink(mark)
            # A file without marks counts for nothing; a mark without its file would count for the next of that name.
            self._sync_folder()
            self._unlink(f"{CHECKPOINT_FOLDER}/{name}")
        if gone:
            self._sync_folder()

    def _write_temporary(self, snapshot: Snapshot) -> None:
        self._write_file(self._temporary, self._encode(snapshot))

    def _write_file(self, path: str, chunks: Iterator[bytes]) -> int:
        """Write a file anew, durably; gives its length."""
        self._unlink(path)
        handle = self._fs.create(path)
        offset = 0
        try:
            for chunk in chunks:
                self._fs.write(handle, offset, chunk)
                offset += len(chunk)
            if self._safeguards.sync_checkpoint:
                self._fs.sync(handle)
        finally:
            self._fs.close(handle)
        return offset

    def _retry_with_room(self, snapshot: Snapshot, error: OSError) -> None:
        self._unlink(self._temporary)
        try:
            if self._make_room is None:
                raise error
            self._make_room()
            self._write_temporary(snapshot)
        except OSError as again:
            if not is_full(again):
                raise
            self._unlink(self._temporary)
            raise OutOfSpace(f"no space for the checkpoint at lsn {snapshot.lsn}") from again

    def _mark(self, name: str, mark: str) -> None:
        with contextlib.suppress(FileExistsError):
            self._fs.link(f"{CHECKPOINT_FOLDER}/{name}", f"{CHECKPOINT_FOLDER}/{name}{mark}")
        self._sync_folder()

    def _reader(self, name: str) -> contextlib.AbstractContextManager[codec.Read]:
        return self._opened(f"{CHECKPOINT_FOLDER}/{name}")

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[codec.Read]:
        handle = self._fs.open(path)
        try:
            yield self._read_of(handle)
        finally:
            self._fs.close(handle)

    def _read_of(self, handle: Handle) -> codec.Read:
        def read(offset: int, size: int) -> bytes:
            return self._fs.read(handle, offset, size)

        return read

    def _check_name(self, name: str, lsn: int, chain: bytes) -> None:
        if checkpoint_name(lsn, chain) != name:
            raise CorruptCheckpoint(
                f"{CHECKPOINT_FOLDER}/{name} holds the checkpoint of lsn {lsn}, chain {chain.hex()}"
            )

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(path)

    def _sync_folder(self) -> None:
        if self._safeguards.sync_folder:
            self._fs.sync_folder(CHECKPOINT_FOLDER)
