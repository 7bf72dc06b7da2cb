"""Which positions the files of one source hold, by the heads of their blocks.

    refresh: lists names       find(position): candidates, looked at when they are needed       reach: one sweep of all

A file belongs to the process that created it, which appends blocks that follow each other and syncs each before the
next; so only the last one can be torn, and it counts once its payload was seen whole.

Guarantees: a payload that is given has its right CRC; files that grow, come and go meanwhile are met anew with fresh
descriptors. Does not: decode rows, or decide what a gap means (`reader`). Imports base and the port of file systems.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    blocks: list[Block] = field(default_factory=list)
    size: int = 0
    trouble: str = ""  # why what stands behind the last block does not count

    @property
    def next(self) -> int:
        """The position behind its last block."""
        return self.blocks[-1].head.last + 1 if self.blocks else self.name.first

    @property
    def time_us(self) -> int:
        """The newest logical time of its rows; 0: it has none."""
        return max((block.head.time_us for block in self.blocks), default=0)

    def block_of(self, position: int) -> Block | None:
        """Give the block that covers a position."""
        at = bisect_right(self.blocks, position, key=lambda block: block.head.first) - 1
        return self.blocks[at] if at >= 0 and self.blocks[at].head.last >= position else None


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

    def update(self, file: TopicFile) -> None:
        """Look at what has come to a file. Raises: OSError but for a file that is gone."""
        try:
            with self.opened(file) as handle:
                size = self.files.size(handle)
                if size < (file.blocks[-1].end if file.blocks else 0):
                    file.header, file.blocks, file.size = None, [], 0  # its writer cut what did not count
                if size != file.size:
                    self._scan(file, handle, size)
        except FileNotFoundError:
            file.header, file.blocks, file.size, file.trouble = None, [], 0, "gone"

    def _scan(self, file: TopicFile, handle: Handle, size: int) -> None:
        file.size, file.trouble = size, ""
        if file.header is None:
            file.header = read_header(self.files.read(handle, 0, HEADER_BYTES_MAX))
            if file.header is None or file.header.first != file.name.first:
                file.header, file.trouble = None, "its header is torn or damaged"
                return
        at = file.blocks[-1].end if file.blocks else file.header.size
        found: list[Block] = []
        while at < size:
            head = read_block_head(self.files.read(handle, at, BLOCK_HEAD_BYTES), seed=file.header.crc)
            expected = found[-1].head.last + 1 if found else file.next
            if head is None or head.first != expected or at + BLOCK_HEAD_BYTES + head.length > size:
                file.trouble = f"no whole block at byte {at}"
                break
            found.append(Block(head, at + BLOCK_HEAD_BYTES))
            at = found[-1].end
        if found and not is_whole(found[-1].head, self.files.read(handle, found[-1].offset, found[-1].head.length)):
            file.trouble = f"no whole block at byte {found[-1].offset - BLOCK_HEAD_BYTES}"
            found.pop()
            file.size = -1  # looked at again: its writer may be in the middle of it
        file.blocks += found

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
            self._look(file)
            block = file.block_of(position)
            if block is not None:
                yield file, block

    def _look(self, file: TopicFile) -> None:
        try:
            self.update(file)
        except (NewerFormat, OSError) as error:
            self._trouble[file.name] = str(error)

    def look_at_all(self) -> None:
        """Look at what has come to each file; what can't be read is kept for `troubles`."""
        for file in self.known.values():
            self._look(file)

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

    def spans(self) -> list[tuple[int, int]]:
        """Give the positions that whole blocks cover, merged: (first, behind the last), ascending."""
        merged: list[tuple[int, int]] = []
        for file in self.known.values():  # sorted by their first positions
            if not file.blocks:
                continue
            first, end = file.name.first, file.next
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((first, end))
        return merged
