"""Runs of messages that stand in a file instead of in memory, and the port to who keeps the files; pure.

    messages -> store -> Run (position, count, sizes, checksum; the bytes are a Piece of the spool) -> load -> messages

What a spool holds is a copy that this process may lose: the truth is the log and the checkpoints. So nothing is synced
or found again after a restart, and a spool that takes nothing is no error. A piece lives for as long as somebody refers
to it: the outbox until the run is trimmed, a snapshot until it is written. So it never goes while it may be read.

Guarantees: `load` gives what `store` was given, or raises: the checksum stays in memory, so that bytes of another place
are no answer either. Does not: decide what goes where (`outbox` does), touch files. Imports codec and base.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from deathless.base.errors import Internal
from deathless.codec.sections import split

REMEDY: Final = "check the replica's scratch storage; the replica starts again by itself and makes them anew"


class Piece(Protocol):
    """Bytes in a spool; they go with the last reference to this."""

    def read(self) -> bytes:
        """Give what was appended, as far as the storage knows. Raises: OSError."""
        ...


class Spool(Protocol):
    """Who keeps bytes outside memory, for this process alone."""

    def append(self, data: bytes) -> Piece | None:
        """Keep bytes. None: no room, or the storage failed; operators were told, and the caller keeps them itself."""
        ...


class Run:
    """Messages of one target that follow each other, in a spool; never changed."""

    __slots__ = ("_checksum", "_piece", "count", "first", "size")

    def __init__(self, first: int, count: int, size: int, checksum: int, piece: Piece) -> None:
        self.first = first  # position of the first message
        self.count = count
        self.size = size  # bytes of the messages
        self._checksum = checksum
        self._piece = piece

    @property
    def end(self) -> int:
        """Position behind the last message."""
        return self.first + self.count

    def load(self) -> list[bytes]:
        """Read the messages. Raises: Internal; the replica stops and makes them anew from the log (I8)."""
        try:
            data = self._piece.read()
        except OSError as error:  # never told to the loop as such, which would take it for a broken connection
            text = f"messages from position {self.first} of an outbox can not be read: {error}"
            raise Internal(text, remedy=REMEDY) from error
        if zlib.crc32(data) != self._checksum:
            text = f"messages from position {self.first} of an outbox do not read back as they were written"
            raise Internal(text, remedy=REMEDY)
        return split(data, 4 * self.count, struct.unpack_from(f"<{self.count}I", data))


def store(spool: Spool, first: int, messages: Sequence[bytes]) -> Run | None:
    """Have a spool keep messages from position `first` on. None: it took nothing."""
    sizes = list(map(len, messages))
    data = struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(messages)
    piece = spool.append(data)
    return None if piece is None else Run(first, len(sizes), sum(sizes), zlib.crc32(data), piece)


class Stored:
    """The messages of one target at one moment, partly in a spool: a `Messages` of a snapshot, one run in memory.

    Args:
        runs: the oldest ones.
        skipped: messages of the first run that were trimmed.
        cut: their bytes.
        young: those behind the runs.
    """

    __slots__ = ("cut", "runs", "skipped", "young")

    def __init__(self, runs: Sequence[Run], skipped: int, cut: int, young: list[bytes]) -> None:
        self.runs = tuple(runs)
        self.skipped = skipped
        self.cut = cut
        self.young = young

    def __len__(self) -> int:
        return sum(run.count for run in self.runs) - self.skipped + len(self.young)

    def __iter__(self) -> Iterator[bytes]:
        skipped = self.skipped
        for run in self.runs:
            yield from run.load()[skipped:]
            skipped = 0
        yield from self.young
