"""A file-backed page that a worker writes and its supervisor reads, also after the worker's death (I11).

Cells of u64 in the machine's byte order; the first three are `execution.turn.running`'s:

    0 to 2   the message being run
    3        ticks: one more each time the worker's loop comes round
    4        calls of the file system: odd while one is under way
    5        when the primary was last heard, nanoseconds of the monotonic clock; 0: never
    6        lsn applied
    7        1 while the log has no room
    8        milliseconds that the primary's proof has been without an answer; 0: none is
    9        milliseconds for which the lock store has been answering this follower without a miss; 0: it was not
             asked, or does not answer
    10       when the last proof said that this primary's epoch stands, nanoseconds of the monotonic clock; 0: none did
    11       1 while the outbox has no room
    12       on which boot of the machine the next two were written, and by which service, as a hash; 0: by none
    13       the clock since that boot, sleep included, nanoseconds, when a time record was met
    14       elapsed time of the shard that the record says, microseconds
    15       how far the wall clock is ahead of logical time, microseconds, two's complement; 0: they go together
    16 to 47 two slots of `codec.witness`: what this replica confirmed as primary, written before replies leave
    48       milliseconds that the slowest call of the file system took lately; 0: none took long
    49       what the file system is just now, beside well (0): 1 read-only, 2 without a free inode
    50       lsn that the file beside the log holds durably (`witness_writer`), 0: none
    51       activities for which this primary waits before it hands over; 0: it waits for none
    52, 53   since when, and until when at the latest, seconds of the wall clock
    54       1 while what this replica sends to the outside as primary is held until an operator lets it go
    55 to 63 free

Behind the cells, from byte 512 on: u32 length and bytes of the path of the directory that the page belongs to.

The file lies in this machine's memory (`page_path`), not beside the log: a supervisor must be able to read it while the
log's storage hangs, and a worker that writes to it before each message must not wait for anybody's write-back. It stays
after an orderly stop, for the witness in it: a directory that is put back to an older state is told by it until the
machine starts anew. `sweep` removes pages whose directory is gone.

Guarantees: the supervisor never waits for the worker; what was being run is known to a supervisor started anew; of two
slots one is whole. Does not: survive a power cut, and need not.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import mmap
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from deathless.base.errors import PermissionRefused
from deathless.codec.witness import SLOT_BYTES, Point, decode_slot, encode_slot, newest
from deathless.core.replica.witness import Sighting
from deathless.execution.turn.running import Cells, Running, read_running
from deathless.shell.disk.durable import closing_file
from deathless.shell.disk.filesystem import mounts, on_local_mounts
from deathless.shell.disk.small_files import read_small

CELLS: Final = 64
PAGE_BYTES: Final = 4096
SHARED_CELLS: Final = 16  # the cells before the witness's, which a new worker clears
WITNESS_AT: Final = (8 * SHARED_CELLS, 8 * SHARED_CELLS + SLOT_BYTES)
WITNESS_FILE: Final = "confirmed"
DURABLE: Final = 50
FILE_SLOTS: Final = (0, 512)
PATH_AT: Final = 8 * CELLS
PATH_BYTES_MAX: Final = PAGE_BYTES - PATH_AT - 4
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})  # what memory says that has none for a file
PAGES_SWEPT_MAX: Final = 256  # pages looked at when a replica starts
TICKS, CALLS, UPSTREAM, LSN, FULL, UNPROVED, LOCK_ANSWERS, PROVED, OUTBOX_FULL = 3, 4, 5, 6, 7, 8, 9, 10, 11
SLOWEST, STORAGE = 48, 49
WAITS_FOR, WAITS_SINCE, WAITS_UNTIL, OUTSIDE_HELD = 51, 52, 53, 54
BOOT_ID, BOOT_NS, BOOT_ELAPSED, STEPPED = 12, 13, 14, 15
KEPT: Final = (BOOT_ID, BOOT_NS, BOOT_ELAPSED)
"""Cells that are for the next process (`machine_clock`)."""
BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
CLOCK_TOLD_US: Final = 5_000_000
"""A smaller difference between clocks is nobody's concern."""
MEMORY: Final = "/dev/shm"  # noqa: S108  what else may stand there is checked by `Page`


def page_path(directory: str, replica: str, memory: str = MEMORY, *, instance: str = "") -> str:
    """Where a replica's page is; beside its other files where the machine offers no folder in memory.

    Raises: OSError: it can't be known now.
    """
    tail = f".{instance}" if instance else ""
    if not (os.path.isdir(memory) and os.access(memory, os.W_OK | os.X_OK)):
        return str(Path(directory) / "replicas" / replica / f"page{tail}")
    try:
        device = os.stat(directory).st_dev  # two containers may name two volumes alike and share their memory
    except FileNotFoundError:
        device = 0  # whatever else is said, the directory may be there, and its page has another name
    whose = f"{os.geteuid()}\0{device}\0{os.path.realpath(directory)}\0{replica}{tail}".encode(errors="surrogateescape")
    return os.path.join(memory, f"deathless-{hashlib.blake2b(whose, digest_size=12).hexdigest()}.page")


def boot_number(path: str = BOOT_ID_FILE) -> int:
    """A number that differs from boot to boot of this machine; 0: it tells none."""
    try:
        text = Path(path).read_bytes()
    except OSError:
        return 0
    return int.from_bytes(hashlib.blake2b(text.strip(), digest_size=8).digest(), "little") | 1


class Page:
    """The page at `path`, created when missing; `fresh` clears what a former worker left, but for the witness.

    Args:
        path: see `page_path`.
        fresh: a worker begins.
        directory: whose page it is; empty: it is known already, or does not matter.

    Raises: PermissionRefused when what stands there is not ours alone; OSError.
    """

    def __init__(self, path: str, *, fresh: bool = False, directory: str = "") -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        with closing_file(descriptor, path):
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionRefused(f"{path} belongs to another user, or others may write it", remedy="remove it")
            if found.st_size < PAGE_BYTES:
                # Its space is there from now on: a store into memory that the machine does not have would kill us.
                os.posix_fallocate(descriptor, 0, PAGE_BYTES)
                os.pwrite(descriptor, bytes(PAGE_BYTES), 0)
                fresh = True
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        self.path = path
        self.cells = memoryview(self._map).cast("Q")
        self.running: Cells | None = None  # where a worker says what it runs; it clears the page first
        self._slot = self._older_slot()  # the one to be written next
        if fresh:
            self.clear()
            whose = os.path.realpath(directory).encode(errors="surrogateescape")
            if directory and len(whose) <= PATH_BYTES_MAX:
                self._map[PATH_AT : PATH_AT + 4 + len(whose)] = len(whose).to_bytes(4, "little") + whose

    def clear(self) -> None:
        """Clear what a former worker left, but for the witness."""
        self.running = Cells(memoryview(self._map))
        for cell in range(TICKS, SHARED_CELLS):
            if cell not in KEPT:
                self.cells[cell] = 0
        self.cells[OUTSIDE_HELD] = 0
        self.note_waiting(None)

    def note_waiting(self, waiting: tuple[int, float, float] | None, now: float = 0.0, wall_s: float = 0.0) -> None:
        """Say what a primary waits for before it hands over.

        Args:
            waiting: of `core.primary.handover`; None: nothing.
            now: of the same clock.
            wall_s: of the wall clock, at the same moment.
        """
        cells = self.cells
        if waiting is None:
            cells[WAITS_FOR] = cells[WAITS_SINCE] = cells[WAITS_UNTIL] = 0
            return
        count, since, until = waiting
        if not cells[WAITS_FOR]:  # read off once: what is told of it does not change with each look
            cells[WAITS_SINCE], cells[WAITS_UNTIL] = (max(0, round(wall_s - now + at)) for at in (since, until))
        cells[WAITS_FOR] = count

    @property
    def full(self) -> bool:
        """The log has no room."""
        return bool(self.cells[FULL])

    @property
    def stepped_us(self) -> int:
        """How far the wall clock is ahead of logical time, negative when behind; 0: they go together."""
        us = self.cells[STEPPED]
        return us - (1 << 64) if us >> 63 else us

    @stepped_us.setter
    def stepped_us(self, us: int) -> None:
        self.cells[STEPPED] = us & (1 << 64) - 1

    @property
    def clock(self) -> str:
        """Where the wall clock stands to logical time, if they differ by so much that people shall know."""
        us = self.stepped_us
        if abs(us) < CLOCK_TOLD_US:
            return ""
        return "ahead" if us > 0 else "behind"

    @property
    def outbox_full(self) -> bool:
        """The outbox has no room."""
        return bool(self.cells[OUTBOX_FULL])

    def read_running(self) -> Running | None:
        """The message that is, or was at its death, being run."""
        return read_running(bytes(self._map[:24]))

    def begin_reign(self, point: Point) -> None:
        """Write the first witness of a reign; one of another service or incarnation goes."""
        for at in WITNESS_AT:
            found = decode_slot(self._map[at : at + SLOT_BYTES])
            if found is not None and (found.service_id, found.incarnation) != (point.service_id, point.incarnation):
                self._map[at : at + SLOT_BYTES] = bytes(SLOT_BYTES)
        self.note_confirmed(point)

    def note_confirmed(self, point: Point) -> None:
        """Write a witness down, beside the one before it."""
        at = WITNESS_AT[self._slot]
        self._map[at : at + SLOT_BYTES] = encode_slot(point)
        self._slot ^= 1

    def _older_slot(self) -> int:
        first, second = (decode_slot(self._map[at : at + SLOT_BYTES]) for at in WITNESS_AT)
        return 1 if first is not None and newest([first, second]) is first else 0

    def read_confirmed(self, by: str = "") -> Point | None:
        """Give the witness that was written last; None: there is none."""
        return newest([decode_slot(self._map[at : at + SLOT_BYTES], by) for at in WITNESS_AT])

    def forget_confirmed(self) -> None:
        """Remove the witness: a person gave up what it stands for."""
        self._map[WITNESS_AT[0] : WITNESS_AT[1] + SLOT_BYTES] = bytes(2 * SLOT_BYTES)

    def forget(self) -> None:
        """Remove the file: its service is no more. Whoever has it mapped keeps it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def waits_of(page: Page) -> dict[str, Any]:
    """Give what a primary says that it waits for, and whether for an operator, as `standing.Standing` names it."""
    names = {"waits_for": WAITS_FOR, "waits_since": WAITS_SINCE, "waits_until": WAITS_UNTIL}
    waits = {name: page.cells[cell] for name, cell in names.items()}
    return {**waits, "outside_held": bool(page.cells[OUTSIDE_HELD])}


def open_page(directory: str, replica: str, *, instance: str = "", fresh: bool = True, memory: str = MEMORY) -> Page:
    """Open a replica's page, in memory, or beside its files where memory has no room.

    Args:
        directory: the shard's.
        replica: whose page.
        instance: which of several that call themselves this replica.
        fresh: for a new worker.
        memory: see `page_path`.

    Raises: PermissionRefused; OSError.
    """
    path = page_path(directory, replica, memory, instance=instance)
    try:
        return Page(path, fresh=fresh, directory=directory)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    with contextlib.suppress(OSError):
        if os.stat(path).st_size < PAGE_BYTES:  # it was begun just now; a whole one holds a witness
            os.unlink(path)
    return Page(page_path(directory, replica, "", instance=instance), fresh=fresh, directory=directory)


def confirmed_in_pages(directory: str, replica: str, *, instance: str = "", memory: str = MEMORY) -> list[Sighting]:
    """Give what this machine's pages of a directory's replicas say was confirmed; one that can't be read says nothing.

    Args:
        directory: the shard's.
        replica: one that may have no folder there yet.
        instance: of the caller; other replicas of this machine have none.
        memory: see `page_path`.

    Raises: OSError: it can't be known now which pages there are.
    """
    try:
        replicas = sorted({replica, *os.listdir(Path(directory) / "replicas")})
    except FileNotFoundError:
        replicas = [replica]
    names = {
        page_path(directory, name, where, instance=which): name
        for name in replicas
        for where in (memory, "")
        for which in sorted({"", instance})
    }
    found: list[Sighting] = []
    for path, name in names.items():
        if not os.path.exists(path):
            continue
        with contextlib.suppress(OSError, PermissionRefused):
            point = Page(path).read_confirmed(name)
            if point is not None:
                found.append(Sighting(point, f"page {path}"))
    return found


def confirmed_elsewhere(directory: str, replica: str, *, instance: str = "", memory: str = MEMORY) -> list[Sighting]:
    """Give every point outside log and lock store: of this machine's pages, and of the files beside the log.

    Raises: as `confirmed_in_pages`.
    """
    pages = confirmed_in_pages(directory, replica, instance=instance, memory=memory)
    return [*pages, *confirmed_in_files(directory)]


def confirmed_in_files(directory: str) -> list[Sighting]:
    """Give what the replicas' files beside the log say was confirmed; one that can't be read says nothing."""
    found: list[Sighting] = []
    for path in sorted((Path(directory) / "replicas").glob(f"*/{WITNESS_FILE}")):
        with contextlib.suppress(OSError):
            data = read_small(path)
            point = newest([decode_slot(data[at : at + SLOT_BYTES], path.parent.name) for at in FILE_SLOTS])
            if point is not None:
                found.append(Sighting(msgspec.structs.replace(point, boot=0), f"replicas/{path.parent.name}/confirmed"))
    return found


def sweep(memory: str = MEMORY) -> None:
    """Remove pages of this user whose directory is gone.

    Those of directories on network storage stay: they are other services', and the storage of one of them that hangs
    must not keep ours from starting.
    """
    with contextlib.suppress(OSError), os.scandir(memory) as entries:
        seen = mounts()  # once: a machine may have hundreds of each
        for entry in itertools.islice(
            (each for each in entries if each.name.startswith("deathless-")), PAGES_SWEPT_MAX
        ):
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if found.st_uid == os.geteuid() and _directory_is_gone(entry.path, seen):
                    os.unlink(entry.path)


def _directory_is_gone(path: str, seen: list[tuple[str, str]]) -> bool:
    with open(path, "rb") as file:
        head = file.read(PAGE_BYTES)
    length = int.from_bytes(head[PATH_AT : PATH_AT + 4], "little")
    whose = os.fsdecode(head[PATH_AT + 4 : PATH_AT + 4 + length])
    if not whose or not on_local_mounts(whose, seen):
        return False
    try:
        os.lstat(whose)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.isdir(os.path.dirname(whose))
    return False
