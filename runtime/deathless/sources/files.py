"""Files as a source: the lines of all files of a folder, in the order of the files' names, are one partition.

    in/0001.jsonl   ids 0, 1, 2      an id is the running number of a line; a blank line has an id and no record
    in/0002.jsonl   ids 3, 4         a file counts once it has its name: it is written elsewhere and renamed into place

A file is never changed, and none comes before one that was read. What the note in the log says lets a reader find the
place again, and see that the folder is what it was:

    note: u8 1, u32 how many files are before this one, u64 id of its first line, u64 its size in bytes,
          16 bytes BLAKE2b of its name and content, 16 bytes of a chain over the names and sizes of those before

So a file that is being read is known by its whole content, and those before it by their names, sizes and order. While
a reader is at work it also sees at each look whether a file that it has read changed meanwhile.

Guarantees: SourceGap for a file that was changed, became shorter or longer, is gone, was renamed, or came before others
that were read; no row of it is given behind that. Does not: watch a folder, remember anything, read folders in folders,
or delete what was read.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from deathless.base.errors import InvalidArgument, InvalidConfig, SourceGap, SourceUnavailable
from deathless.sources.port import Batch, Partition, Point, Reader, Record, Settings

LOOK_S: Final = 0.5  # between two looks at the folder
LINE_BYTES_MAX: Final = 64 << 20  # the rest of a longer line is passed over; such a row is refused as too long
CHUNK_BYTES: Final = 1 << 20
FORMAT: Final = 1
_NOTE: Final = struct.Struct("<BIQQ16s16s")
_SIZES: Final = struct.Struct("<IQ")
NO_FILES: Final = bytes(16)
"""The chain before the first file."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`options` of a source of this kind."""

    folder: str  # relative to the manifest
    glob: str = "*.jsonl"  # which names in it; those that begin with a dot never count


class Note(NamedTuple):
    """What the log says of the file that is being read."""

    before: int  # files before it
    first_id: int
    size: int
    digest: bytes
    chain: bytes

    def encode(self) -> bytes:
        """Give its bytes."""
        return _NOTE.pack(FORMAT, *self)


class Seen(NamedTuple):
    """What the file system said of a file."""

    size: int
    changed_ns: int
    inode: int


class Entry(NamedTuple):
    """A file that was read, or is."""

    name: str
    seen: Seen
    digest: bytes  # empty: it was read before this reader began


class _Current:
    """The file that is being read."""

    def __init__(self, handle: BinaryIO, name: str, note: Note, seen: Seen) -> None:
        self.handle = handle
        self.name = name
        self.note = note
        self.seen = seen
        self.row = 0  # number of the next line


def read_note(note: bytes) -> Note:
    """Take a note apart. Raises: SourceGap for what is none of ours."""
    if len(note) != _NOTE.size or note[0] != FORMAT:
        raise SourceGap("the log knows this source as another kind of source", remedy="give it another name")
    return Note(*_NOTE.unpack(note)[1:])


def chained(chain: bytes, name: str, size: int) -> bytes:
    """Give the chain behind one more file."""
    told = os.fsencode(name)
    return hashlib.blake2b(chain + _SIZES.pack(len(told), size) + told, digest_size=16).digest()


class FilesReader:
    """A folder.

    Args:
        source: name of the source.
        folder: the folder.
        glob: which names count.
    """

    def __init__(self, source: str, folder: Path, glob: str) -> None:
        self._source = source
        self._folder = folder
        self._glob = glob
        self._known: list[Entry] = []  # files that were read, and the one that is, in order
        self._chain = NO_FILES  # over those before the current one
        self._current: _Current | None = None  # None: all that there are were read
        self._next_id = 0
        self._note = b""
        self._wanted: dict[int, Note] = {}  # by number of the file: what the log knows of files that come
        self._looked_at = float("-inf")

    # ---- the port ----------------------------------------------------------------------------------------------

    async def partitions(self) -> Sequence[Partition]:
        """See Reader: there is one."""
        return [Partition(0, self._source)]

    async def open(self, partition: Partition, points: Sequence[Point]) -> None:
        """See Reader."""
        await self._run(partition, lambda: self._open(points))

    async def read(self, partition: Partition, records_max: int, bytes_max: int) -> Batch:
        """See Reader."""
        found: list[Batch] = []
        await self._run(partition, lambda: found.append(self._read(records_max, bytes_max)))
        return found[0]

    async def taken_in(self, partition: Partition, last_id: int) -> None:
        """See Reader: nobody is told."""

    async def adopt(self, partition: Partition, last_id: int, at: str) -> Point:
        """See Reader: `at` is a file's name, or NAME:LINE, whose lines count from 1; a name may have colons itself."""
        found: list[Point] = []
        await self._run(partition, lambda: found.append(self._adopt(last_id, at)))
        return found[0]

    async def leave(self, partition: Partition) -> None:  # noqa: ARG002 - as the port has it
        """See Reader."""
        self._close()

    async def close(self) -> None:
        """See Reader."""
        self._close()

    async def _run(self, partition: Partition, work: object) -> None:
        """Do what waits for a disk in a thread."""
        assert partition.number == 0
        assert callable(work)
        try:
            await asyncio.to_thread(work)
        except SourceGap:
            self._close()
            raise
        except OSError as error:
            self._close()
            raise SourceUnavailable(f"source {self._source}: {self._folder}: {error}") from None

    # ---- where to begin ----------------------------------------------------------------------------------------

    def _open(self, points: Sequence[Point]) -> None:
        self._close()
        lowest, note = points[0], points[0].note
        self._known, self._chain, self._note, self._wanted = [], NO_FILES, b"", {}
        self._next_id = lowest.last_id + 1
        self._looked_at = float("-inf")
        names = self._names()
        for point in points:
            if point.note:
                self._want(read_note(point.note), names)
        if not note:
            if lowest.last_id >= 0:
                raise self._gap(f"nothing is known of the file of row {lowest.last_id}")
            return
        place = read_note(note)
        self._pass(names[: place.before], place)
        before, first_id = self._file_of_next(names, place)
        if min(self._wanted) < before:
            raise self._gap("shards of the service know its files in another order")
        self._begin(names[before], first_id)
        assert self._current is not None
        self._skip(self._current, self._next_id - first_id)

    def _file_of_next(self, names: Sequence[str], place: Note) -> tuple[int, int]:
        """Find the file of the row that is to be read next; gives how many are before it, and its first id.

        A note may be that of a row which was refused, in a later file: lines between are blank, or rows of other
        shards, which may lack them.
        """
        before, first_id = place.before, place.first_id
        while first_id > self._next_id:
            if not before:
                raise self._gap(f"row {self._next_id} is in none of the files before {self._next_name(place)}")
            before -= 1
            with (self._folder / names[before]).open("rb") as handle:
                first_id -= _count(handle)
        if before < place.before:
            self._know(names[:before])
        return before, first_id

    def _want(self, note: Note, names: Sequence[str]) -> None:
        if note.before >= len(names):
            raise self._gap(f"{note.before + 1} files were read, and {len(names)} are there")
        if self._wanted.setdefault(note.before, note) != note:
            raise self._gap("shards of the service know the same file differently")

    def _pass(self, names: Sequence[str], place: Note) -> None:
        """Take in files that were read, and see that they are those of then."""
        self._know(names)
        if self._chain != place.chain:
            raise self._gap(
                f"the {place.before} files before {self._next_name(place)} are not those that were read: one is gone, "
                "was changed or renamed, or came in between"
            )

    def _know(self, names: Sequence[str]) -> None:
        """Take in files that were read, by their names and sizes, in place of those that were taken in."""
        self._known, self._chain = [], NO_FILES
        for name in names:
            seen = self._stat(name)
            self._known.append(Entry(name, seen, b""))
            self._chain = chained(self._chain, name, seen.size)

    def _next_name(self, place: Note) -> str:
        names = self._names()
        return names[place.before] if place.before < len(names) else "the end"

    def _begin(self, name: str, first_id: int) -> None:
        """Open the next file, and know all of it."""
        before = len(self._known)
        handle = (self._folder / name).open("rb")
        try:
            seen = _seen(os.fstat(handle.fileno()))
            digest = _digest(name, handle)
            note = Note(before, first_id, seen.size, digest, self._chain)
            self._check_begun(name, note, changed=_seen(os.fstat(handle.fileno())) != seen)
            handle.seek(0)
        except BaseException:
            handle.close()
            raise
        self._known.append(Entry(name, seen, digest))
        self._current = _Current(handle, name, note, seen)
        self._note = note.encode()

    def _check_begun(self, name: str, note: Note, *, changed: bool) -> None:
        wanted = self._wanted.pop(note.before, None)
        if wanted is not None and wanted != note:
            raise self._gap(f"file {name} is not what was read: {_difference(wanted, note)}")
        if changed:
            raise self._gap(f"file {name} is being written; write it elsewhere, and rename it into place")

    def _skip(self, current: _Current, rows: int) -> None:
        while current.row < rows:
            if not _line(current.handle):
                raise self._gap(f"file {current.name} has {current.row} lines, and {rows} were read")
            current.row += 1

    # ---- reading -----------------------------------------------------------------------------------------------

    def _read(self, records_max: int, bytes_max: int) -> Batch:
        records: list[Record] = []
        size = 0
        while len(records) < records_max and size < bytes_max:
            current = self._current
            if current is None:
                if not self._next_file():
                    break
                continue
            line = _line(current.handle)
            if not line:
                self._end_file(current)
                if records:
                    break  # looked at again before the next file
                continue
            if line.strip():
                records.append(Record(self._next_id, line.rstrip(b"\r\n"), note=self._note))
                size += len(line)
            current.row += 1
            self._next_id += 1
        self._check_unchanged()
        return Batch(records, self._next_id - 1, self._note)

    def _check_unchanged(self) -> None:
        """See that what was just read is of the file that was looked through."""
        current = self._current
        if current is not None and _seen(os.fstat(current.handle.fileno())) != current.seen:
            raise self._gap(f"file {current.name} was changed while it was read")

    def _end_file(self, current: _Current) -> None:
        self._check_unchanged()
        current.handle.close()
        self._current = None
        self._chain = chained(self._chain, current.name, current.seen.size)
        self._looked_at = float("-inf")

    def _next_file(self) -> bool:
        """Look at the folder now and then, and begin the next file. False: there is none."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_S:
            return False
        self._looked_at = now
        names = self._names()
        self._check_known(names)
        if len(names) == len(self._known):
            return False
        self._begin(names[len(self._known)], self._next_id)
        return True

    def _check_known(self, names: Sequence[str]) -> None:
        """See that the files that were read are there as they were, and that none came before the last of them."""
        for at, entry in enumerate(self._known):
            name = names[at] if at < len(names) else ""
            if name != entry.name:
                if entry.name in names:
                    raise self._gap(f"file {name} came before {self._known[-1].name}, which was read")
                raise self._gap(f"file {entry.name}, which was read, is gone")
            seen = self._stat(name)
            if seen == entry.seen:
                continue
            if seen.size == entry.seen.size and entry.digest:
                with (self._folder / name).open("rb") as handle:
                    if _digest(name, handle) == entry.digest:
                        self._known[at] = entry._replace(seen=seen)
                        continue
            elif seen.size == entry.seen.size:
                continue  # it was read before we began, and its size is what the log knows
            raise self._gap(f"file {name}, which was read, was changed")

    # ---- an operator's decision --------------------------------------------------------------------------------

    def _adopt(self, last_id: int, at: str) -> Point:
        names = self._names()
        name, _, line = (at, "", "") if at in names else at.rpartition(":") if ":" in at else (at, "", "")
        if name not in names:
            raise InvalidArgument(f"source {self._source}: there is no file {name!r} in {self._folder}")
        if line and not (line.isdecimal() and int(line) >= 1):
            raise InvalidArgument(f"{at!r} is no place: it is NAME, or NAME:LINE, with lines from 1 on")
        row = int(line) - 1 if line else 0
        before = names.index(name)
        chain = NO_FILES
        for each in names[:before]:
            chain = chained(chain, each, self._stat(each).size)
        with (self._folder / name).open("rb") as handle:
            seen = _seen(os.fstat(handle.fileno()))
            digest = _digest(name, handle)
            handle.seek(0)
            lines = _count(handle)
        if row > lines:
            raise InvalidArgument(f"file {name} has {lines} lines")
        marked = max(last_id + 1, row - 1)
        return Point(marked, Note(before, marked + 1 - row, seen.size, digest, chain).encode())

    # ---- the folder --------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Give the names of the files that count, in order. Raises: OSError."""
        with os.scandir(self._folder) as entries:
            return sorted(
                each.name
                for each in entries
                if not each.name.startswith(".") and fnmatchcase(each.name, self._glob) and each.is_file()
            )

    def _stat(self, name: str) -> Seen:
        try:
            return _seen((self._folder / name).stat())
        except FileNotFoundError:
            raise self._gap(f"file {name}, which was read, is gone") from None

    def _close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.handle.close()

    def _gap(self, what: str) -> SourceGap:
        return SourceGap(f"source {self._source}: {self._folder}: {what}")


def _seen(found: os.stat_result) -> Seen:
    return Seen(found.st_size, found.st_mtime_ns, found.st_ino)


def _digest(name: str, handle: BinaryIO) -> bytes:
    """Give the hash of a file's name and content; `handle` stands at its end then."""
    told = os.fsencode(name)
    found = hashlib.blake2b(_SIZES.pack(len(told), 0) + told, digest_size=16)
    while chunk := handle.read(CHUNK_BYTES):
        found.update(chunk)
    return found.digest()


def _line(handle: BinaryIO) -> bytes:
    """Give the next line with its end; empty: there is none."""
    line = handle.readline(LINE_BYTES_MAX)
    if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
        while (rest := handle.readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
            pass
    return line


def _count(handle: BinaryIO) -> int:
    """Give how many lines follow; `handle` stands at the end then."""
    return sum(1 for _ in iter(lambda: _line(handle), b""))


def _difference(wanted: Note, found: Note) -> str:
    if wanted.size != found.size:
        return f"it had {wanted.size} bytes, and has {found.size}"
    if wanted.digest != found.digest:
        return "it was renamed, or has another content"
    if wanted.first_id != found.first_id:
        return f"its first row was {wanted.first_id}, and is {found.first_id}"
    return "files before it are others"


def reader(settings: Settings) -> Reader:
    """Make a reader. Raises: InvalidConfig."""
    options = settings.typed(Options)
    if not options.folder or "/" in options.glob or not options.glob:
        raise InvalidConfig(
            f"source {settings.source}: options: folder and glob must not be empty, and glob names files"
        )
    return FilesReader(settings.source, settings.path(options.folder), options.glob)
