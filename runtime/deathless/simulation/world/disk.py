"""A shared disk that keeps what was synced, and of the rest whatever chance leaves.

Why it exists: what a file store may rely on is little, and a real disk shows its worst only at a power cut. This one
shows it whenever asked, the same way for the same seed.

The machine. One ``SimDisk`` holds files (inodes) and folders; each replica sees it through a ``SimFileSystem`` of
its own, the simulated side of the port ``FileSystem``. Every file has two contents, what programs see and what is
durable, kept as the content and an undo record of the blocks changed since the last sync; folders likewise have
entries and an undo record.

    process crash    what programs saw stays (the page cache lives); only open handles are gone
    power cut        each 4 KiB block written since the file's last sync is kept, undone or torn between 512 byte
                     sectors; sizes likewise; each entry linked, created or removed since its folder's last sync is
                     kept or undone, each by itself

Faults a test can plant: refused space (``capacity_bytes``), a volume that takes no change (``read_only``), an error
at a chosen call (``fail``), stale look-ups (``SimFileSystem.stale``: names once found absent stay absent, listings
stay as first seen, until ``refresh``), a flipped bit (``flip_bit``), a dead view (``SimFileSystem.dead``). A ``gate``
is called before and after each call and may pause the caller or raise: so a simulation makes calls slow or hung, and a
test crashes between any two.

Guarantees: the same seed and calls give the same bytes. Does not: reorder what one program sees; lie about a sync;
rot by itself. May import engine and below.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from deathless.engine.ports import Handle
from deathless.simulation.world.inode import BLOCK, SECTOR, Inode, put

Gate = Callable[[str, str, str], None]
"""(operation, path, "before" or "after") -> None; may pause or raise."""

CHANGES: Final = frozenset(
    {"create", "write", "sync", "allocate", "truncate", "link", "rename", "unlink", "make_folder", "sync_folder"}
)
"""Operations that change something: each one is a crash point, before and after."""


def no_gate(_operation: str, _path: str, _moment: str) -> None:
    """Let everything pass at once."""


@dataclass(slots=True, eq=False)
class Folder:
    """Entries as programs see them, and the durable value of each that changed since the last sync."""

    entries: dict[str, Inode] = field(default_factory=dict)
    undo: dict[str, Inode | None] = field(default_factory=dict)

    def put(self, name: str, inode: Inode | None) -> None:
        """Set or remove an entry, not durable."""
        self.undo.setdefault(name, self.entries.get(name))
        if inode is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = inode

    def cut_power(self, rng: random.Random) -> None:
        """Keep or undo each entry not synced."""
        for name, old in self.undo.items():
            if rng.randrange(2):
                if old is None:
                    self.entries.pop(name, None)
                else:
                    self.entries[name] = old
        self.undo.clear()


@dataclass(slots=True)
class PlannedFault:
    """An error at calls to come."""

    operation: str  # of FileSystem
    path: str  # the paths it is for begin so
    number: int  # errno
    count: int  # calls it still stops
    view: str | None  # the view it is for; None: every


class SimDisk:
    """The shared directory as the disk holds it.

    Args:
        rng: chance, seeded; drawn only at a power cut.
        capacity_bytes: space for all files together; None: no end.
    """

    def __init__(self, rng: random.Random, *, capacity_bytes: int | None = None) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.read_only = False  # what changes anything fails with EROFS, for every view
        self.folders: dict[str, Folder] = {"": Folder()}
        self._faults: list[PlannedFault] = []
        self._generation = 0  # handles of older generations are dead

    def view(self, name: str, gate: Gate = no_gate) -> SimFileSystem:
        """Give a replica's own sight of the disk."""
        return SimFileSystem(self, name, gate)

    def cut_power(self) -> None:
        """Lose what was not synced, as chance will; every open handle of every view is dead."""
        self._generation += 1
        for path in sorted(self.folders):
            self.folders[path].cut_power(self.rng)
        for inode in self._inodes():
            inode.cut_power(self.rng)

    def make_durable(self) -> None:
        """Keep everything as programs see it."""
        for folder in self.folders.values():
            folder.undo.clear()
        for inode in self._inodes():
            inode.sync()

    def fail(
        self, operation: str, path: str = "", *, number: int = errno.EIO, count: int = 1, view: str | None = None
    ) -> None:
        """Let the next `count` calls of `operation` on paths that begin with `path` raise OSError(`number`)."""
        self._faults.append(PlannedFault(operation, path, number, count, view))

    def heal(self) -> None:
        """Forget all planned faults."""
        self._faults.clear()

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Change one bit of a file, durably and without a trace."""
        inode = self.inode(path)
        put(inode, offset, bytes([inode.read(offset, 1)[0] ^ 1 << bit]))

    def lose_sector(self, path: str, offset: int) -> None:
        """Let the sector at `offset` read as zeros from now on, as if it had never been written."""
        put(self.inode(path), offset // SECTOR * SECTOR, bytes(SECTOR))

    def used_bytes(self) -> int:
        """Space that all files take which have a name."""
        named = {id(inode): inode.room for folder in self.folders.values() for inode in folder.entries.values()}
        return sum(_rounded(room) for room in named.values())

    def free_bytes(self) -> int:
        """Space left; a huge number without a capacity."""
        return 1 << 62 if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes()

    def inode(self, path: str) -> Inode:
        """Give the file of a path. Raises: FileNotFoundError."""
        folder, name = _split(path)
        held = self.folders.get(folder)
        if held is None or name not in held.entries:
            raise _error(errno.ENOENT, path)
        return held.entries[name]

    def folder(self, path: str) -> Folder:
        """Give the folder. Raises: FileNotFoundError."""
        if path not in self.folders:
            raise _error(errno.ENOENT, path)
        return self.folders[path]

    @property
    def generation(self) -> int:
        """Counts power cuts."""
        return self._generation

    def planned_error(self, operation: str, path: str, view: str) -> OSError | None:
        """Give the error planned for this call, counting it."""
        for fault in self._faults:
            if fault.operation == operation and path.startswith(fault.path) and fault.view in {None, view}:
                fault.count -= 1
                if fault.count <= 0:
                    self._faults.remove(fault)
                return _error(fault.number, path)
        return None

    def _inodes(self) -> Iterator[Inode]:
        seen: dict[int, Inode] = {}
        for path in sorted(self.folders):
            folder = self.folders[path]
            for inode in folder.entries.values():
                seen.setdefault(id(inode), inode)
            for old in folder.undo.values():
                if old is not None:
                    seen.setdefault(id(old), old)
        return iter(seen.values())


class SimFileSystem:
    """One replica's view of a ``SimDisk``: the simulated side of the port ``FileSystem``.

    Args:
        disk: the disk that all views share.
        name: of the view; faults can be planned for it alone.
        gate: called before and after each call with its name and path; it may pause or raise.
    """

    def __init__(self, disk: SimDisk, name: str, gate: Gate = no_gate) -> None:
        self.disk = disk
        self.name = name
        self.gate = gate
        self.stale = False  # True: absent names and listings are remembered until `refresh`
        self.dead = False  # True: every call raises ENOTCONN
        self._absent: set[str] = set()
        self._listings: dict[str, list[str]] = {}
        self._open: dict[Handle, tuple[Inode, str, int]] = {}
        self._next_handle = 3

    def refresh(self) -> None:
        """Forget what look-ups and listings had found."""
        self._absent.clear()
        self._listings.clear()

    def crash(self) -> None:
        """End the process: its handles are gone; what it wrote, and look-ups found, stays in the machine's caches."""
        self._open.clear()
        if not self.stale:
            self.refresh()

    def create(self, path: str) -> Handle:
        """See the port."""
        self._before("create", path)
        folder, name = self._parent(path)
        if name in folder.entries:
            raise _error(errno.EEXIST, path)
        inode = Inode()
        folder.put(name, inode)
        return self._opened("create", path, inode)

    def open(self, path: str, *, write: bool = False) -> Handle:
        """See the port."""
        self._before("open", path)
        if self.stale and path in self._absent and not write:
            raise _error(errno.ENOENT, path)
        try:
            inode = self.disk.inode(path)
        except FileNotFoundError:
            self._absent.add(path)
            raise
        return self._opened("open", path, inode)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See the port."""
        inode, path = self._inode("write", handle)
        more = _rounded(max(inode.room, offset + len(data))) - _rounded(inode.room)
        if more > self.disk.free_bytes():
            raise _error(errno.ENOSPC, path)
        inode.write(offset, data)
        self.gate("write", path, "after")

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """See the port."""
        inode, path = self._inode("read", handle)
        data = inode.read(offset, size)
        self.gate("read", path, "after")
        return data

    def sync(self, handle: Handle) -> None:
        """See the port. A planned error loses what was to be synced, as a real kernel does."""
        try:
            inode, path = self._inode("sync", handle)
        except OSError:
            held = self._open.get(handle)
            if held is not None:
                held[0].cut_power(self.disk.rng)
            raise
        inode.sync()
        self.gate("sync", path, "after")

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """See the port."""
        inode, path = self._inode("allocate", handle)
        end = max(inode.room, offset + size)
        if _rounded(end) - _rounded(inode.room) > self.disk.free_bytes():
            raise _error(errno.ENOSPC, path)
        inode.room = end
        inode.size = max(inode.size, offset + size)
        self.gate("allocate", path, "after")

    def truncate(self, handle: Handle, size: int) -> None:
        """See the port."""
        inode, path = self._inode("truncate", handle)
        inode.truncate(size)
        self.gate("truncate", path, "after")

    def size(self, handle: Handle) -> int:
        """See the port."""
        inode, path = self._inode("size", handle)
        self.gate("size", path, "after")
        return inode.size

    def close(self, handle: Handle) -> None:
        """See the port."""
        if self._open.pop(handle, None) is None:
            raise _error(errno.EBADF, f"handle {handle}")

    def link(self, source: str, target: str) -> None:
        """See the port."""
        self._before("link", target)
        inode = self.disk.inode(source)
        folder, name = self._parent(target)
        if name in folder.entries:
            raise _error(errno.EEXIST, target)
        folder.put(name, inode)
        self._appeared(target)
        self.gate("link", target, "after")

    def rename(self, source: str, target: str) -> None:
        """See the port."""
        self._before("rename", target)
        inode = self.disk.inode(source)
        old_folder, old_name = self._parent(source)
        new_folder, new_name = self._parent(target)
        new_folder.put(new_name, inode)
        old_folder.put(old_name, None)
        self._appeared(target)
        self._listings.clear()
        self.gate("rename", target, "after")

    def unlink(self, path: str) -> None:
        """See the port."""
        self._before("unlink", path)
        self.disk.inode(path)
        folder, name = self._parent(path)
        folder.put(name, None)
        self._listings.clear()
        self.gate("unlink", path, "after")

    def exists(self, path: str) -> bool:
        """See the port."""
        self._before("exists", path)
        if self.stale and path in self._absent:
            return False
        folder, name = _split(path)
        held = self.disk.folders.get(folder)
        found = path in self.disk.folders or (held is not None and name in held.entries)
        if not found:
            self._absent.add(path)
        self.gate("exists", path, "after")
        return found

    def listing(self, path: str) -> list[str]:
        """See the port."""
        self._before("listing", path)
        if self.stale and path in self._listings:
            return list(self._listings[path])
        names = set(self.disk.folder(path).entries)
        prefix = f"{path}/" if path else ""
        for other in self.disk.folders:
            if other and other != path and other.startswith(prefix) and "/" not in other[len(prefix) :]:
                names.add(other[len(prefix) :])
        found = sorted(names)
        self._listings[path] = found
        self.gate("listing", path, "after")
        return list(found)

    def make_folder(self, path: str) -> None:
        """See the port. Durable at once."""
        self._before("make_folder", path)
        at = ""
        for part in path.split("/"):
            at = f"{at}/{part}" if at else part
            folder, name = _split(at)
            if name in self.disk.folder(folder).entries:
                raise _error(errno.EEXIST, at)
            self.disk.folders.setdefault(at, Folder())
            self._absent.discard(at)
        self.gate("make_folder", path, "after")

    def sync_folder(self, path: str) -> None:
        """See the port."""
        self._before("sync_folder", path)
        self.disk.folder(path).undo.clear()
        self.gate("sync_folder", path, "after")

    def _before(self, operation: str, path: str) -> None:
        self.gate(operation, path, "before")
        if self.dead:
            raise _error(errno.ENOTCONN, path)
        if self.disk.read_only and operation in CHANGES and operation not in ("sync", "sync_folder"):
            raise _error(errno.EROFS, path)
        error = self.disk.planned_error(operation, path, self.name)
        if error is not None:
            raise error

    def _inode(self, operation: str, handle: Handle) -> tuple[Inode, str]:
        held = self._open.get(handle)
        if held is None or held[2] != self.disk.generation:
            raise _error(errno.EBADF, f"handle {handle}")
        self._before(operation, held[1])
        return held[0], held[1]

    def _opened(self, operation: str, path: str, inode: Inode) -> Handle:
        handle = Handle(self._next_handle)
        self._next_handle += 1
        self._open[handle] = (inode, path, self.disk.generation)
        if operation == "create":
            self._appeared(path)
        self.gate(operation, path, "after")
        return handle

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, name = _split(path)
        return self.disk.folder(folder), name

    def _appeared(self, path: str) -> None:
        """What this view made itself, it sees."""
        self._absent.discard(path)
        self._listings.pop(_split(path)[0], None)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
