"""The real spool: what does not fit in memory, in files without a name that this process and its children have alone.

    append -> segment (one file, only ever appended to) -> Piece -> read
                 '-> closed, and its space free, when it is full and its last piece is gone

A file is unlinked as soon as it is made, so nothing is left of a process that ends, however it ends. A forked child
reads through the descriptors that it inherits, by position; what somebody may read is never written a second time.

Guarantees: at most `bytes_max` bytes on the disk and SEGMENTS descriptors; a write that fails is told once, until one
succeeds again, and is no error. Does not: sync, check what it reads (`core.tables.spool` does). Imports base, core and
shell.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import weakref
from pathlib import Path
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.core.tables.spool import Piece
from deathless.shell.disk.durable import naming
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type

SEGMENT_BYTES: Final = 16 << 20  # at least; longer where a spool would need too many
SEGMENTS: Final = 128  # about so many descriptors
SPOOL_FACTOR: Final = 2  # bytes on the disk for each of `outbox_bytes_max`: pieces of one segment do not go together
_LOG: Final = logging.getLogger("deathless.spool")


def scratch_folder(config: ReplicaConfig) -> str:
    """Where a replica keeps what it may lose.

    That is beside its other files, where these are on this machine; in a pod, and where the log is on network storage,
    the folder for temporary files ($TMPDIR, /tmp): in a pod a volume of its own.
    """
    if config.instance or filesystem_type(config.directory) not in LOCAL_TYPES:
        return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  not tried out: that it is full keeps nobody from starting
    return str(Path(config.directory) / "replicas" / config.replica)


class _Segment:
    """A file without a name; closed with the last reference."""

    __slots__ = ("__weakref__", "descriptor", "folder", "size")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self.descriptor = os.dup(file.fileno())
        self.size = 0

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class FilePiece:
    """Bytes [offset, offset + size) of a segment."""

    __slots__ = ("_offset", "_segment", "_size")

    def __init__(self, segment: _Segment, offset: int, size: int) -> None:
        self._segment = segment
        self._offset = offset
        self._size = size

    def read(self) -> bytes:
        """See the port."""
        parts: list[bytes] = []
        at, end = self._offset, self._offset + self._size
        with naming(self._segment.folder):  # the file has no name
            while at < end:
                part = os.pread(self._segment.descriptor, end - at, at)
                if not part:
                    raise OSError(errno.EIO, "a file of the spool is shorter than what was written to it")
                parts.append(part)
                at += len(part)
        return b"".join(parts)


class FileSpool:
    """The spool of one process.

    Args:
        folder: on this machine; made when the first byte is written.
        outbox_bytes_max: see `Limits`; the room on the disk is SPOOL_FACTOR times this.
    """

    def __init__(self, folder: str, outbox_bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = SPOOL_FACTOR * outbox_bytes_max
        self._segment_bytes = max(SEGMENT_BYTES, self._bytes_max // SEGMENTS)
        self._segments: weakref.WeakSet[_Segment] = weakref.WeakSet()
        self._last: _Segment | None = None
        self._failing = False  # the last write failed, and that was told

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(segment.size for segment in self._segments)

    def descriptors(self) -> list[int]:
        """Of all files: a child that reads pieces keeps them."""
        return [segment.descriptor for segment in self._segments]

    def append(self, data: bytes) -> Piece | None:
        """See the port."""
        try:
            piece = self._write(data)
        except OSError as error:
            if not self._failing:
                extra = {"folder": self._folder, "why": str(error)}
                _LOG.error("messages to other services stay in memory: they can't be written to a file", extra=extra)
            self._failing = True
            return None
        if self._failing:
            self._failing = False
            _LOG.info("messages to other services are written to files again", extra={"folder": self._folder})
        return piece

    def _write(self, data: bytes) -> Piece:
        segment = self._last
        if segment is not None and segment.size and segment.size + len(data) > self._segment_bytes:
            segment = self._last = None
        if self.size + len(data) > self._bytes_max:
            raise OSError(errno.ENOSPC, f"the spool holds {self.size} bytes of at most {self._bytes_max}")
        if segment is None:
            segment = self._last = _Segment(self._folder)
            self._segments.add(segment)
        done = 0
        with memoryview(data) as view:
            while done < len(data):
                done += os.pwrite(segment.descriptor, view[done:], segment.size + done)
        piece = FilePiece(segment, segment.size, len(data))
        segment.size += len(data)
        return piece
