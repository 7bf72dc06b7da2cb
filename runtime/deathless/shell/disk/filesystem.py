"""The real shared directory: the port `FileSystem` over POSIX calls, and the checks of where it may stand.

Why it exists: the engine states what it needs of a directory in one port; this is its real side, and its twin is
`simulation.world.disk`. It decides nothing and retries nothing: a sync that failed once has lost data, whatever a
second one says, so every error leaves as OSError with the path in it and the caller stops (I8). Interrupted calls are
repeated by Python itself; short writes are continued here.

Guarantees: a created folder is durable when `make_folder` returns; one descriptor serves a handle from `create` or
`open` to `close`; with `bypass_cache` reads come from the storage, not from this machine's page cache (for takeover
reads on network storage). Does not: lock, cache or buffer anything. May import os, engine and below.

The fence `seal` relies on a look-up seeing at once what another process linked. Only file systems of one machine
promise that: `check_local` allows those by name and refuses all others, and `probe_storage` may only say no.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from deathless.base.errors import StorageUnfit
from deathless.base.storage import Use, waits
from deathless.engine.ports import FileSystem, Handle
from deathless.shell.disk.durable import naming, sync_folder

LOCAL_TYPES: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs"})
"""File systems of one machine, on which a name linked by one process is seen by the next look-up of any other."""

ALIGNMENT: Final = 4096
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class RealFileSystem:
    """The directory `root` as a `FileSystem`.

    Args:
        root: an existing folder.
        bypass_cache: read past the page cache (O_DIRECT) where the file system can.
    """

    def __init__(self, root: str | os.PathLike[str], *, bypass_cache: bool = False) -> None:
        self.root = Path(root).resolve()
        self._prefix = f"{self.root}/"
        self._bypass_cache = bypass_cache
        self._paths: dict[Handle, str] = {}
        self._direct: set[Handle] = set()
        try:  # what a mount that is away says is raised as it is
            mode = os.stat(self.root).st_mode
        except FileNotFoundError:
            mode = 0
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(self.root))

    def create(self, path: str) -> Handle:
        """See the port."""
        return self._remember(os.open(self._full(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), path)

    def open(self, path: str, *, write: bool = False) -> Handle:
        """See the port."""
        full = self._full(path)
        if write:
            return self._remember(os.open(full, os.O_RDWR | os.O_CLOEXEC), path)
        if self._bypass_cache:
            # Some file systems (tmpfs, overlay) know no O_DIRECT; they hold their only copy in memory or pass on.
            with contextlib.suppress(OSError):
                handle = self._remember(os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT), path)
                self._direct.add(handle)
                return handle
        return self._remember(os.open(full, os.O_RDONLY | os.O_CLOEXEC), path)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See the port."""
        try:
            done = os.pwrite(handle, data, offset)
            if done == len(data):
                return
            left = memoryview(data)
            while done < len(data):
                done += os.pwrite(handle, left[done:], offset + done)
        except OSError as error:
            raise self._named(error, handle) from error

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """See the port."""
        try:
            if handle in self._direct:
                return _read_direct(handle, offset, size)
            data = os.pread(handle, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(handle, size - got, offset + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise self._named(error, handle) from error

    def sync(self, handle: Handle) -> None:
        """See the port."""
        try:
            os.fdatasync(handle)
        except OSError as error:
            raise self._named(error, handle) from error

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """See the port."""
        try:
            os.posix_fallocate(handle, offset, size)
        except OSError as error:
            raise self._named(error, handle) from error

    def truncate(self, handle: Handle, size: int) -> None:
        """See the port."""
        try:
            os.ftruncate(handle, size)
        except OSError as error:
            raise self._named(error, handle) from error

    def size(self, handle: Handle) -> int:
        """See the port."""
        try:
            return os.fstat(handle).st_size
        except OSError as error:
            raise self._named(error, handle) from error

    def close(self, handle: Handle) -> None:
        """See the port."""
        path = self._paths.pop(handle, None)
        if path is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), f"handle {handle}")
        self._direct.discard(handle)
        with naming(self._prefix + path):
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        """See the port."""
        os.link(self._full(source), self._full(target), follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        """See the port."""
        os.replace(self._full(source), self._full(target))

    def unlink(self, path: str) -> None:
        """See the port."""
        os.unlink(self._full(path))

    def exists(self, path: str) -> bool:
        """See the port. Any error but "no such name" is raised: it is no answer."""
        try:
            os.stat(self._full(path))
        except FileNotFoundError:
            return False
        return True

    def listing(self, path: str) -> list[str]:
        """See the port."""
        return sorted(os.listdir(self._full(path)))

    def make_folder(self, path: str) -> None:
        """See the port. Durable when it returns."""
        at = self.root
        for part in Path(path).parts:
            parent, at = at, at / part
            try:
                os.mkdir(at, 0o755)
            except FileExistsError:
                if not at.is_dir():
                    raise
            sync_folder(str(parent))  # also where it stood: who made it may have ended before its name was durable

    def sync_folder(self, path: str) -> None:
        """See the port."""
        sync_folder(self._full(path))

    def _full(self, path: str) -> str:
        assert not path.startswith("/") and ".." not in path, f"path {path!r} leaves the directory"
        return self._prefix + path

    def _remember(self, descriptor: int, path: str) -> Handle:
        handle = Handle(descriptor)
        self._paths[handle] = path
        return handle

    def _named(self, error: OSError, handle: Handle) -> OSError:
        """The same error with the file's path in it; calls on descriptors name none."""
        number = error.errno or errno.EIO
        return OSError(number, os.strerror(number), self._prefix + self._paths.get(handle, f"handle {handle}"))


def _read_direct(descriptor: int, offset: int, size: int) -> bytes:
    """Read through an aligned buffer: O_DIRECT takes no other."""
    start = offset // ALIGNMENT * ALIGNMENT
    length = -(-(offset + size - start) // ALIGNMENT) * ALIGNMENT
    with mmap.mmap(-1, max(length, ALIGNMENT)) as buffer:
        got = 0
        while got < length:
            with memoryview(buffer) as whole, whole[got:length] as part:
                done = os.preadv(descriptor, [part], start + got)
            got += done
            if done == 0 or got % ALIGNMENT:
                break  # the end of the file
        return buffer[offset - start : max(offset - start, min(got, offset - start + size))]


def filesystem_type(path: str | os.PathLike[str], mountinfo: str | None = None) -> str:
    """Give the type of the file system that holds `path`, as the kernel names it (`ext4`, `nfs4`, `fuse.bindfs`).

    Args:
        path: an existing file or folder.
        mountinfo: text of /proc/self/mountinfo; None reads it.

    Returns: "unknown" where no mount point fits.
    """
    best, best_type = -1, "unknown"
    for point, kind in _mounts_over(os.path.realpath(path), mounts(mountinfo)):
        if len(point) >= best:  # of two mounts on one point the later one is seen
            best, best_type = len(point), kind
    return best_type


def mounts(mountinfo: str | None = None) -> list[tuple[str, str]]:
    """Give point and type of each mount that this process sees, in the order in which they were made.

    Args:
        mountinfo: as above.
    """
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    lines = [line.partition(" - ") for line in mountinfo.splitlines()]
    whole = [(left.split(), right.split()) for left, _, right in lines if right]
    return [(_unescape(left[4]), right[0]) for left, right in whole if len(left) >= 5]


def on_local_mounts(path: str, seen: list[tuple[str, str]]) -> bool:
    """Does a look-up pass through file systems of this machine alone, which never hang? Looks at none of them.

    Args:
        path: absolute, without links; it need not be there.
        seen: what `mounts` gives.
    """
    kinds = {kind for _, kind in _mounts_over(path, seen)}
    return bool(kinds) and kinds <= LOCAL_TYPES


def _mounts_over(path: str, seen: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Give those that a path lies below."""
    return ((point, kind) for point, kind in seen if path == point or path.startswith(point.rstrip("/") + "/"))


def _unescape(text: str) -> str:
    """Mount points escape blank, tab, newline and backslash in octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text


def check_local(path: str | os.PathLike[str], *, allow_any: bool = False, mountinfo: str | None = None) -> str:
    """Check that the fence `seal` may be used in a directory.

    Args:
        path: the log directory.
        allow_any: the operator's word that look-ups there are never stale; skips the list.
        mountinfo: see `filesystem_type`.

    Returns: the file system's type.
    Raises: StorageUnfit: the caller refuses to start.
    """
    kind = filesystem_type(path, mountinfo)
    if kind in LOCAL_TYPES or allow_any:
        return kind
    raise StorageUnfit(
        f"fence seal on a file system of type {kind}: a look-up there may miss what another machine has linked",
        remedy="use the etcd fence for shared storage, or put the log on a local file system",
    )


def probe_storage(fs: FileSystem, name: str) -> None:
    """Try what the log needs of its directory. Passing proves nothing; failing forbids the start.

    Args:
        fs: the directory.
        name: of this replica; used in the temporary names.

    Raises: StorageUnfit naming what does not work. OSError when the directory can't be used at all. A full disk
        raises nothing.
    """
    fs.make_folder("probe")
    first, second = f"probe/{name}.first", f"probe/{name}.second"
    for leftover in (first, second):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(leftover)
    try:
        handle = fs.create(first)
    except OSError as error:
        if error.errno in FULL:
            return
        raise
    try:
        fs.write(handle, 0, b"probe")
        fs.allocate(handle, 0, 2 * ALIGNMENT)
        fs.sync(handle)
        if fs.size(handle) != 2 * ALIGNMENT or fs.read(handle, 0, 5) != b"probe":
            raise StorageUnfit("the log directory does not return what was written")
        if not _refused_as_existing(lambda: fs.close(fs.create(first))):
            raise StorageUnfit("the log directory does not create files exclusively")
        fs.link(first, second)
        if not _refused_as_existing(lambda: fs.link(first, second)):
            raise StorageUnfit("the log directory does not link exclusively")
        if not fs.exists(second):
            raise StorageUnfit("the log directory does not show a name that was linked")
        fs.sync_folder("probe")
    except OSError as error:
        if error.errno in FULL:
            return  # a full disk says nothing about calls; the log has its spare (I8)
        if waits(error, Use.START):
            raise  # it says what the storage is just now, not what it can't do
        raise StorageUnfit(f"the log directory lacks a call that the log needs: {error}") from error
    finally:
        fs.close(handle)
        for leftover in (first, second):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(leftover)


def _refused_as_existing(call: Callable[[], None]) -> bool:
    try:
        call()
    except FileExistsError:
        return True
    return False
