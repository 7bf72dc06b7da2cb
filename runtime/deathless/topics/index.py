"""Which positions the files of one source hold, by the heads of their blocks.

    refresh      lists names
    candidates   blocks that cover a position; files are looked at when they are needed
    reach        up to where rows are: from the names of files, and the blocks of the newest ones

A file belongs to the process that created it, which appends blocks that follow each other and syncs each before the
next; so only the last one can be torn, and it counts once its payload was seen whole. Who creates a file has made all
positions below its first one durable, or found them so. A name therefore tells what stands below it, and of all files
only a few have to be looked at.

Guarantees: a payload that is given has its right CRC; files that grow, come and go meanwhile are met anew with fresh
descriptors; the blocks of FILES_MAX files at most are kept in memory. Does not: decode rows, or decide what a gap means
(`reader`). Imports base and the port of file systems.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.base.errors import NewerFormat
from deathless.engine.ports import FileSystem, Handle
from deathless.topics.blocks import (
    BLOCK_HEAD_BYTES,
    HEADER_BYTES_MAX,
    BlockHead,
    FileHeader,
    is_whole,
    read_block_head,
    read_header,
)
from deathless.topics.source import FileName, parse_file

TROUBLES_MAX: Final = 4  # that an error names
FILES_MAX: Final = 4  # whose blocks are remembered: a file of small blocks has a hundred thousand
TIPS_MAX: Final = 16  # files begun last, which may reach furthest


class Block(NamedTuple):
    """A block and where its payload stands."""

    head: BlockHead
    offset: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.head.length


@dataclass(slots=True)
class TopicFile:
    """What is known of one file."""

    name: FileName
    header: FileHeader | None = None  # None: none was seen whole
    blocks: list[Block] | None = None  # None: they are not remembered
    next: int = 0  # position behind its last whole block
    end: int = 0  # offset behind it
    time_us: int = 0  # the newest logical time of its rows; 0: it has none
    size: int = 0
    trouble: str = ""  # why what stands behind the last block does not count

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know no more than the name."""
        self.header, self.blocks, self.next, self.end, self.time_us, self.size = None, None, self.name.first, 0, 0, 0

    def block_of(self, position: int) -> Block | None:
        """Give the block that covers a position."""
        blocks = self.blocks or []
        at = bisect_right(blocks, position, key=lambda block: block.head.first) - 1
        return blocks[at] if at >= 0 and blocks[at].head.last >= position else None


class SourceIndex:
    """The files of one source.

    Args:
        files: holds the folder.
        folder: of the source.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.known: dict[FileName, TopicFile] = {}
        self._trouble: dict[FileName, str] = {}  # of payloads, and of files that can't be opened
        self._remembered: list[TopicFile] = []  # those with blocks, the latest last

    def path(self, name: FileName) -> str:
        """Give the path of a file."""
        return f"{self.folder}/{name.text}"

    def refresh(self, *, fresh: bool = False) -> None:
        """List the files again; `fresh` forgets what was seen in them. Raises: OSError."""
        try:
            names = {name for text in self.files.listing(self.folder) if (name := parse_file(text)) is not None}
        except FileNotFoundError:
            names = set()
        if fresh:
            self.known.clear()
        self._trouble.clear()
        self.known = {name: self.known.get(name) or TopicFile(name) for name in sorted(names)}

    def update(self, file: TopicFile, *, blocks: bool = False) -> None:
        """Look at what has come to a file; with `blocks`, remember which ones it has.

        Raises: NewerFormat; OSError but for a file that is gone.
        """
        try:
            with self.opened(file) as handle:
                size = self.files.size(handle)
                if size < file.end or (blocks and file.blocks is None):
                    file.forget()  # its writer cut what did not count, or all of it is wanted again
                    file.blocks = [] if blocks else None
                if size != file.size:
                    self._scan(file, handle, size)
        except FileNotFoundError:
            file.forget()
            file.trouble = "gone"
        if blocks:
            self._remember(file)

    def _remember(self, file: TopicFile) -> None:
        self._remembered = [other for other in self._remembered if other is not file] + [file]
        for other in self._remembered[:-FILES_MAX]:
            other.blocks = None
        del self._remembered[:-FILES_MAX]

    def _scan(self, file: TopicFile, handle: Handle, size: int) -> None:
        file.size, file.trouble = size, ""
        if file.header is None:
            file.header = read_header(self.files.read(handle, 0, HEADER_BYTES_MAX))
            if file.header is None or file.header.first != file.name.first:
                file.header, file.trouble = None, "its header is torn or damaged"
                return
            file.end = file.header.size
        last: Block | None = None  # the others before it counted when it was begun
        at = file.end
        while at < size:
            head = read_block_head(self.files.read(handle, at, BLOCK_HEAD_BYTES), seed=file.header.crc)
            expected = last.head.last + 1 if last is not None else file.next
            if head is None or head.first != expected or at + BLOCK_HEAD_BYTES + head.length > size:
                file.trouble = f"no whole block at byte {at}"
                break
            if last is not None:
                _count(file, last)
            last = Block(head, at + BLOCK_HEAD_BYTES)
            at = last.end
        if last is not None and not is_whole(last.head, self.files.read(handle, last.offset, last.head.length)):
            file.trouble = f"no whole block at byte {last.offset - BLOCK_HEAD_BYTES}"
            file.size = -1  # looked at again: its writer may be in the middle of it
        elif last is not None:
            _count(file, last)

    @contextmanager
    def opened(self, file: TopicFile) -> Iterator[Handle]:
        """Give a fresh descriptor of a file. Raises: OSError."""
        handle = self.files.open(self.path(file.name))
        try:
            yield handle
        finally:
            self.files.close(handle)

    def candidates(self, position: int) -> Iterator[tuple[TopicFile, Block]]:
        """Give blocks that cover a position, those whose files begin nearest to it first."""
        near = [self.known[name] for name in sorted(self.known, reverse=True) if name.first <= position]
        others = []
        for file in near:
            block = file.block_of(position)
            if block is None:
                others.append(file)
            else:
                yield file, block
        for file in others:
            self.look(file, blocks=file.next > position or file.header is None)
            if file.next > position and file.blocks is None:
                self.look(file, blocks=True)
            block = file.block_of(position)
            if block is not None:
                yield file, block

    def look(self, file: TopicFile, *, blocks: bool = False) -> None:
        """Look at what has come to a file; what can't be read is kept for `troubles`."""
        try:
            self.update(file, blocks=blocks)
        except (NewerFormat, OSError) as error:
            self._trouble[file.name] = str(error)

    def look_at_all(self) -> None:
        """Look at what has come to each file."""
        for file in self.known.values():
            self.look(file)

    def sizes(self) -> dict[FileName, int]:
        """Give how many bytes each file has, without a look at its blocks. Raises: OSError."""
        found = {}
        for name, file in self.known.items():
            try:
                with self.opened(file) as handle:
                    found[name] = self.files.size(handle)
            except FileNotFoundError:
                continue
        return found

    def newest(self) -> TopicFile | None:
        """Give the file that was begun last; None: there is none."""
        return max(self.known.values(), key=lambda file: (file.name.epoch, file.name.number), default=None)

    def tips(self) -> list[TopicFile]:
        """Give the files that may reach furthest, looked at: those that were begun last, and the one that begins last.

        Whoever counts rows writes to the last one of all, or is about to begin one. Those before it may reach further
        with rows that were not counted, and will be written anew.
        """
        begun = sorted(self.known, key=lambda name: (name.epoch, name.number))
        found = [self.known[name] for name in sorted({*begun[-TIPS_MAX:], *sorted(self.known)[-1:]})]
        for file in found:
            self.look(file)
        return found

    def reach(self, floor: int) -> int:
        """Give the position behind the last row that is there: all from `floor` on are, or were."""
        reached = max((name.first for name in self.known), default=floor)
        for file in self.tips():
            if file.name.first <= reached:
                reached = max(reached, file.next)
        return max(reached, floor)

    def lowest(self, floor: int) -> int:
        """Give the position from which rows are there up to the floor, where a hold keeps them below it."""
        below = [file for file in self.known.values() if file.name.first < floor]
        for file in below:
            self.look(file)
        found = floor
        for file in sorted(below, key=lambda each: each.next, reverse=True):
            if file.next >= found:
                found = min(found, file.name.first)
        return found

    def payload(self, file: TopicFile, block: Block, handle: Handle) -> bytes | None:
        """Give the payload of a block; None: it is not whole there now. Raises: OSError."""
        data = self.files.read(handle, block.offset, block.head.length)
        if is_whole(block.head, data):
            return data
        self._trouble[file.name] = f"the block at byte {block.offset - BLOCK_HEAD_BYTES} is damaged"
        return None

    def failed(self, file: TopicFile, error: OSError) -> None:
        """Keep for `troubles` why a file could not be read."""
        self._trouble[file.name] = str(error)

    def troubles(self) -> str:
        """Say what is wrong with files; empty: nothing."""
        found = {name: file.trouble for name, file in self.known.items() if file.trouble} | self._trouble
        shown = [f"{self.path(name)}: {text}" for name, text in sorted(found.items())]
        more = [f"and {len(shown) - TROUBLES_MAX} others"] if len(shown) > TROUBLES_MAX else []
        return "; ".join(shown[:TROUBLES_MAX] + more)


def _count(file: TopicFile, block: Block) -> None:
    """Take a block in that is whole."""
    file.next, file.end = block.head.last + 1, block.end
    file.time_us = max(file.time_us, block.head.time_us)
    if file.blocks is not None:
        file.blocks.append(block)
