"""The lock of a shard in its own directory: names that are linked once and never overwritten.

Why it exists: on one machine the shared directory can be the lock store too (design 0003, "The lock and the fence").
A hard link to a
name that exists fails, for everyone but one; that is the only atomic step this lock uses.

    lock/store.id           id of this store, written once
    lock/service.creating   ServiceRecord; lock/service.live: the same with live = True
    lock/epoch.N            Holder that took the lock with epoch N; the highest counts
    lock/head.N             epoch N may have released; the highest counts (a link of epoch.N: needs no space)
    lock/released.N         the holder of epoch N gave the lock up (likewise)

Every file is written and synced under a temporary name first, then linked, then the folder synced. Nothing is ever
overwritten or removed but temporary names, so that a name once seen is true for ever and can be cached.

    take       link epoch.(seen + 1): FileExistsError means another was faster. Then look again: a head that moved
               since `seen` means that the deposed holder set it in between, so the take does not count (the next
               one will)
    set_head   link head.N, then look for epoch.(N + 1): one that stands may have read the older head, so N is
               deposed; none means that every later taker will read a head of at least N
    owns       epoch.(N + 1) and released.N are absent, by their exact names

The highest number is found by exact names upwards from the last one known; a listing only says where to begin, because
absence in a listing proves nothing. `revision` = 4 x epoch + head + 2 if released + 1 if created + 1 if live: it
grows with every change (a new epoch adds at least 4 and takes back at most 2).

Guarantees: of two takes with one `seen` at most one succeeds; a `LockView` is not older than the call. An outcome
that is not known (an error while reading or linking) is LockUnavailable; an error while syncing leaves as OSError:
stop (I8). Does not: expire anything, or work where look-ups are stale (`shell.disk.filesystem.check_local` keeps it off
such file systems). May import codec and base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from deathless.base.errors import ForeignDirectory, LockUnavailable, LogTruncated
from deathless.base.storage import Use, waits
from deathless.codec.untrusted import read_msgpack
from deathless.codec.witness import Point
from deathless.engine.file_names import remove_name
from deathless.engine.log.spare import is_full
from deathless.engine.ports import FileSystem, Handle, Holder, LockView, ServiceRecord
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

LOCK_FOLDER: Final = "lock"
STORE_ID: Final = "lock/store.id"
CREATING: Final = "lock/service.creating"
LIVE: Final = "lock/service.live"
RESERVE_BYTES: Final = 4096

Record = TypeVar("Record", ServiceRecord, Holder)


class DirectoryLock:
    """The lock in the shared directory, as one process sees it.

    Args:
        fs: the shared directory.
        process: a name that no other living process uses: the replica's, a dot, something drawn. Part of temporary
            names.
        fresh_store_id: what the store's id becomes if it has none yet; drawn at random.
        safeguards: all on, but in tests.
    """

    def __init__(
        self, fs: FileSystem, *, process: str, fresh_store_id: str, safeguards: Safeguards = ALL_SAFEGUARDS
    ) -> None:
        self._fs = fs
        self._process = process
        self._fresh_store_id = fresh_store_id
        self._safeguards = safeguards
        self._epoch = 0  # highest known: what stands once stands for ever
        self._head = 0  # likewise
        self._store_id = ""
        self._service: ServiceRecord | None = None  # as far as known; never changes once live
        self._holders: dict[int, Holder] = {}  # content of epoch files, the last one read
        self._temporary_count = 0
        self._replica = process.partition(".")[0]
        self._reserve = f"{LOCK_FOLDER}/reserve.{self._replica}"

    def prepare(self) -> None:
        """Put a block aside, so that a take on a full disk finds space, and clear up; at the replica's start."""
        with self._answering():
            self._fs.make_folder(LOCK_FOLDER)
            for name in self._fs.listing(LOCK_FOLDER):
                # Left by killed processes of this replica. One that still lives finds no file to link: no answer.
                if name.startswith((f"t.{self._replica}.", f"t.{self._process}.")):
                    remove_name(self._fs, f"{LOCK_FOLDER}/{name}")
            self._put_aside()

    def view(self) -> LockView:
        """See the port."""
        with self._answering():
            return self._view()

    def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """See the port. Gives the store its id as well."""
        with self._answering():
            self._fs.make_folder(LOCK_FOLDER)
            self._link_once(STORE_ID, self._fresh_store_id.encode())
            self._link_once(CREATING, msgspec.msgpack.encode(msgspec.structs.replace(record, live=False)))
            found = self._find_service()
            assert found is not None, "what was linked stands"
            return found

    def go_live(self, holder: Holder) -> bool:
        """See the port."""
        with self._answering():
            if not self._owns(holder):
                return False
            record = self._find_service()
            if record is None:
                raise LogTruncated(f"{CREATING} is missing: the service was created")
            self._link_once(LIVE, msgspec.msgpack.encode(msgspec.structs.replace(record, live=True)))
            return self._owns(holder)

    def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See the port. Success means that `seen.head` is still the head."""
        holder = Holder(seen.epoch + 1, replica, nonce)
        with self._answering():
            if self._find_store_id() != seen.store_id or self._find_head(self._find_epoch()) != seen.head:
                return None
            if not self._link_once(_epoch_path(holder.epoch), msgspec.msgpack.encode(holder)):
                return None
            self._epoch = max(self._epoch, holder.epoch)
            return holder if self._find_head(self._find_epoch()) == seen.head else None

    def set_head(self, holder: Holder, point: Point | None = None) -> int | None:  # noqa: ARG002 - kept elsewhere
        """See the port. The directory holds no witness of itself."""
        with self._answering():
            if not self._owns(holder):
                return None
            with contextlib.suppress(FileExistsError):
                self._fs.link(_epoch_path(holder.epoch), _head_path(holder.epoch))
            self._sync_folder()
            if self._safeguards.guard_head and not self._owns(holder):
                return None
            return self._view().revision

    def owns(self, holder: Holder) -> bool:
        """See the port."""
        with self._answering():
            return self._owns(holder)

    def release(self, holder: Holder, point: Point | None = None) -> None:  # noqa: ARG002 - as in `set_head`
        """See the port."""
        with self._answering():
            if self._owns(holder):
                with contextlib.suppress(FileExistsError):
                    self._fs.link(_epoch_path(holder.epoch), _released_path(holder.epoch))
                self._sync_folder()

    def confirmed(self, holder: Holder) -> Point | None:  # noqa: ARG002 - as in `set_head`
        """See the port."""
        return None

    def witness(self, holder: Holder, point: Point) -> bool | None:  # noqa: ARG002 - as in `set_head`
        """See the port."""
        return None

    # ------------------------------------------------------------ reading

    def _view(self) -> LockView:
        store_id = self._find_store_id()
        service = self._find_service()
        epoch = self._find_epoch()
        head = self._find_head(epoch)
        released = epoch > 0 and self._fs.exists(_released_path(epoch))
        holder = None if epoch == 0 or released else self._holder(epoch)
        live = service is not None and service.live
        revision = 4 * epoch + head + 2 * released + (service is not None) + live
        return LockView(service, epoch, head, holder, revision, store_id)

    def _owns(self, holder: Holder) -> bool:
        if self._find_store_id() == "" or self._find_epoch() != holder.epoch:
            return False
        return self._holder(holder.epoch) == holder and not self._fs.exists(_released_path(holder.epoch))

    def _find_epoch(self) -> int:
        """The highest N with epoch.N: exact names upwards from what is known."""
        epoch = max(self._epoch, 0)
        if epoch == 0 or not self._safeguards.probe_names:
            epoch = max(epoch, self._highest_listed("epoch."))
        if self._safeguards.probe_names:
            while self._fs.exists(_epoch_path(epoch + 1)):
                epoch += 1
        self._epoch = epoch
        return epoch

    def _find_head(self, epoch: int) -> int:
        """The highest N with head.N: exact names downwards from the epoch, which it never passes."""
        known = max(self._head, self._highest_listed("head.") if self._head == 0 else 0)
        if self._safeguards.probe_names:
            for number in range(epoch, known, -1):
                if self._fs.exists(_head_path(number)):
                    known = number
                    break
        self._head = known
        return known

    def _find_service(self) -> ServiceRecord | None:
        if self._service is not None and self._service.live:
            return self._service
        self._service = self._read_record(LIVE, ServiceRecord) or self._read_record(CREATING, ServiceRecord)
        return self._service

    def _find_store_id(self) -> str:
        if self._store_id == "":
            self._store_id = (self._read_file(STORE_ID) or b"").decode()
        return self._store_id

    def _holder(self, epoch: int) -> Holder:
        held = self._holders.get(epoch)
        if held is None:
            held = self._read_record(_epoch_path(epoch), Holder)
            if held is None:
                raise LogTruncated(f"{_epoch_path(epoch)} is missing: it was there a moment ago")
            self._holders = {epoch: held}
        return held

    def _highest_listed(self, prefix: str) -> int:
        try:
            names = self._fs.listing(LOCK_FOLDER)
        except FileNotFoundError:
            return 0
        numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def _read_record(self, path: str, kind: type[Record]) -> Record | None:
        data = self._read_file(path)
        if data is None:
            return None
        try:
            return read_msgpack(data, kind)
        except msgspec.MsgspecError as error:
            raise ForeignDirectory(f"{path} is not what this version writes: {error}") from error

    def _read_file(self, path: str) -> bytes | None:
        try:
            handle = self._fs.open(path)
        except FileNotFoundError:
            return None
        try:
            return self._fs.read(handle, 0, self._fs.size(handle))
        finally:
            self._fs.close(handle)

    # ------------------------------------------------------------ writing

    def _link_once(self, path: str, content: bytes) -> bool:
        """Give `path` its content unless it has one; durable either way. False: it had one."""
        self._temporary_count += 1
        temporary = f"{LOCK_FOLDER}/t.{self._process}.{self._temporary_count}"
        self._write_temporary(temporary, content)
        try:
            if not self._safeguards.exclusive_links:
                self._fs.rename(temporary, path)
                return True
            try:
                self._fs.link(temporary, path)
                first = True
            except FileExistsError:
                first = False
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(temporary)
        self._sync_folder()
        return first

    def _write_temporary(self, path: str, content: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(path)
        try:
            handle = self._fs.create(path)
            self._write_synced(handle, content)
        except OSError as error:
            if not is_full(error):
                raise
            # The block put aside is for this moment.
            for taken in (path, self._reserve):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.unlink(taken)
            self._write_synced(self._fs.create(path), content)
            with contextlib.suppress(OSError):
                self._put_aside()

    def _write_synced(self, handle: Handle, content: bytes) -> None:
        try:
            self._fs.write(handle, 0, content)
            with self._stopping():
                self._fs.sync(handle)
        finally:
            self._fs.close(handle)

    def _put_aside(self) -> None:
        try:
            handle = self._fs.create(self._reserve)
        except FileExistsError:
            return
        except OSError as error:
            if waits(error, Use.ROOM):
                return
            raise
        try:
            self._fs.allocate(handle, 0, RESERVE_BYTES)
        except OSError as error:
            if not is_full(error):
                raise
            self._fs.unlink(self._reserve)
        finally:
            self._fs.close(handle)

    def _sync_folder(self) -> None:
        if self._safeguards.sync_folder:
            with self._stopping():
                self._fs.sync_folder(LOCK_FOLDER)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """An error of the directory is no answer; one while syncing means: stop."""
        try:
            yield
        except _SyncFailedError as error:
            raise error.cause from error
        except OSError as error:
            raise LockUnavailable(f"the lock's directory gives no answer: {error}") from error

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _SyncFailedError(error) from error


class _SyncFailedError(Exception):
    """Carries an error of a sync past the handling of other errors."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _epoch_path(epoch: int) -> str:
    return f"{LOCK_FOLDER}/epoch.{epoch}"


def _head_path(epoch: int) -> str:
    return f"{LOCK_FOLDER}/head.{epoch}"


def _released_path(epoch: int) -> str:
    return f"{LOCK_FOLDER}/released.{epoch}"
