"""Writes the rows of a topic: each batch of messages is one block of a file that no other process writes to.

    emit, emit, ... --> deliver --> one Arrow record batch --> block, synced --> PEER_COMMIT, the outbox lets go

No lock and no fence are needed. What stands at a position follows from confirmed messages, so writers of two epochs
can only write the same rows, each to files of its own; readers take a position from any of them. What a writer may not
do is to count what another one wrote: its blocks may be in the page cache alone. So `open` goes on where the service
says, whatever files show, and rows from there are written anew.

    open        refuses to go on behind rows that are in no file: storage was rolled back (DL3065)
    deliver     returns once its block, and the name of a new file, are on the disk
    pass_over   a block without rows, so that no reader takes the position for a gap
    an error    ends the file at its last whole block; the next attempt begins another one

Options, which `spec.topics` gives: `directory`, `keepBytes`, `keepSeconds`, `rollBytes`; `readers` is for
the ingress.

Guarantees: the rows of each position once or more, always the same. Does not: answer (nobody waits for a row), compact
small blocks. Imports drivers.port, topics and the shell's file systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from deathless.base.errors import DeliveryRefused, Deposed, InvalidConfig, SinkUnavailable, TopicRowsMissing
from deathless.base.topics.emitted import EMIT, Emitted
from deathless.drivers.port import Answer, Delivery, Opened, Settings, Sink, Source
from deathless.engine.ports import FileSystem, Handle
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics.arrow import Row, RowMisfit, encode_batch, library, record_batch
from deathless.topics.blocks import PAYLOAD_BYTES_MAX, FileHeader, encode_block, encode_header, read_header
from deathless.topics.index import SourceIndex
from deathless.topics.keeping import BEGINS, Keeping, floor_of, publish_floor, retain
from deathless.topics.source import FileName, TopicSource, parse_source

ROLL_BYTES: Final = 64 << 20
RETAIN_EVERY_S: Final = 60.0
NAMES_MAX: Final = 1000  # that are tried for one file: each is a writer of the same epoch that was there before
T = TypeVar("T")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Of `kind: topic`."""

    directory: str
    keep_bytes: int = 0
    keep_seconds: int = 0
    roll_bytes: int = ROLL_BYTES
    readers: tuple[str, ...] = ()  # over HTTP: the ingress's matter


class _Part(NamedTuple):
    """What becomes one block."""

    schema: str  # empty: it has no rows, and stands in any file
    last: int
    rows: int
    time_us: int
    payload: bytes


class _Written(msgspec.Struct):
    """The file that is written."""

    name: FileName
    handle: Handle
    schema: str
    seed: int
    end: int  # behind its last whole block


def sink(settings: Settings) -> Sink:
    """See port.Factory."""
    options = settings.typed(Options)
    directory = settings.path(options.directory)
    if min(options.keep_bytes, options.keep_seconds, options.roll_bytes - 1) < 0:
        raise InvalidConfig(f"topic {settings.driver}: keepBytes, keepSeconds and rollBytes can't be negative")
    library()  # told now, not with the first row
    return TopicSink(lambda: _open_directory(directory), options)


def _open_directory(directory: Path) -> FileSystem:
    """Give the topic's directory, made durably below the nearest folder that is there. Raises: OSError."""
    standing = next(path for path in (directory, *directory.parents) if path.is_dir())
    if standing != directory:
        RealFileSystem(standing).make_folder(str(directory.relative_to(standing)))
    return RealFileSystem(directory)


class TopicSink:
    """Writes one topic of one source; see the module.

    Args:
        files: opens the topic's directory.
        options: of the topic; `directory` is `files`' matter.
        clock: monotonic seconds.
    """

    def __init__(
        self, files: Callable[[], FileSystem], options: Options, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_files = files
        self._options = options
        self._clock = clock
        self._files: FileSystem | None = None  # None: not open
        self._source = Source("", 0, b"", 0, 0)
        self._index: SourceIndex | None = None
        self._next = 1  # position that the next block begins with
        self._written: _Written | None = None
        self._retained_at = 0.0
        self._busy = asyncio.Lock()  # one thread of ours at a time, also when its caller gave up

    async def open(self, source: Source, first: int) -> Opened:
        """See port.Sink. Raises: also TopicRowsMissing."""
        return await self._in_thread(lambda: self._open(source, first))

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """See port.Sink."""
        await self._in_thread(lambda: self._deliver(deliveries))
        return ()

    async def pass_over(self, position: int, answer: Answer | None) -> None:  # noqa: ARG002  the host tells it
        """See port.Sink. The answer is not kept: `open` says that the position comes again until it was confirmed."""
        await self._in_thread(lambda: self._append(_Part("", position, 0, 0, b"")))

    async def confirmed(self, through: int) -> None:
        """See port.Sink: no answers are kept."""

    async def close(self) -> None:
        """See port.Sink."""
        async with self._busy:  # a thread whose caller gave up has ended after this
            self._let_go()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """The disk may take long, and the primary wants to hear that we live."""

        async def run() -> T:
            async with self._busy:
                return await asyncio.to_thread(self._guarded, work)

        return await asyncio.shield(asyncio.ensure_future(run()))

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            self._let_go()
            raise SinkUnavailable(f"{error.filename or self._options.directory}: {error.strerror or error}") from None

    # ---- in a thread -----------------------------------------------------------------------------------------

    def _open(self, source: Source, first: int) -> Opened:
        self._let_go()
        files = self._open_files()
        folder = TopicSource(source.service_id.hex(), source.incarnation).folder
        listed = files.listing("")
        begins = folder not in listed and any(parse_source(name) is not None for name in listed)
        files.make_folder(folder)
        self._source, self._next = source, first
        index = self._index = SourceIndex(files, folder)
        self._look(index)
        if first > 1 and begins:  # the service was restored: what is below stands with what it was before
            publish_floor(files, folder, first, BEGINS)
        if first > floor_of(files, folder).position and not _has(index, first - 1):
            raise TopicRowsMissing(
                f"the service has published its rows below position {first} durably, and {self._options.directory} "
                f"lacks position {first - 1}: its storage was rolled back, or files were removed",
                remedy=f"bring the files back; or give the rows up: `deathless topics skip TOPIC --to {first}`",
            )
        self._files = files
        self._retain(index)
        return Opened(first)

    def _look(self, index: SourceIndex) -> None:
        """See what files there are. Raises: Deposed when a later epoch has one."""
        index.refresh()
        latest = max((name.epoch for name in index.known), default=0)
        if latest > self._source.epoch:
            raise Deposed(
                f"epoch {self._source.epoch} of {self._source.service} ended, {latest} writes to {index.folder}"
            )

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        assert deliveries[0].position >= self._next, "the host delivers nothing twice"
        emitted = [(each, _emitted(each)) for each in deliveries]
        parts: list[_Part] = []
        for schema, group in groupby(emitted, lambda each: each[1].schema):
            rows = [Row(each.position, each.key, it.time_us, it.row) for each, it in group]
            parts += _parts(schema, self._source.shard, rows)
        for part in parts:
            self._append(part)

    def _append(self, part: _Part) -> None:
        """Write one block, and return when it is durable."""
        files = self._files
        if files is None or self._index is None:
            raise SinkUnavailable(f"{self._options.directory} is not open")
        written = self._written
        if written is not None and (part.schema not in ("", written.schema) or self._is_full(written)):
            self._roll(files)
            written = None
        if written is None:
            self._begin(files, part)
        else:
            block = encode_block(part.payload, self._next, part.last, part.rows, part.time_us, seed=written.seed)
            files.write(written.handle, written.end, block)
            files.sync(written.handle)
            written.end += len(block)
        self._next = part.last + 1
        if self._clock() >= self._retained_at + RETAIN_EVERY_S:
            self._look(self._index)
            self._retain(self._index)

    def _is_full(self, written: _Written) -> bool:
        return written.end >= self._options.roll_bytes

    def _begin(self, files: FileSystem, part: _Part) -> None:
        """Begin a file with this block. Its name is durable when this returns."""
        assert self._index is not None
        source, folder = self._source, self._index.folder
        header = FileHeader(
            source.service_id, source.incarnation, source.epoch, self._next, source.shard, source.service, part.schema
        )
        data = encode_header(header)
        begun = read_header(data)
        assert begun is not None
        name, handle = self._create(files)
        self._written = written = _Written(name, handle, part.schema, begun.crc, 0)
        data += encode_block(part.payload, self._next, part.last, part.rows, part.time_us, seed=begun.crc)
        files.write(handle, 0, data)
        files.sync(handle)
        files.sync_folder(folder)
        written.end = len(data)

    def _create(self, files: FileSystem) -> tuple[FileName, Handle]:
        """Create a file exclusively: another process of our epoch may still write to those that are there."""
        assert self._index is not None
        epoch = self._source.epoch
        used = max((name.number for name in self._index.known if name.epoch == epoch), default=0)
        for number in range(used + 1, used + 1 + NAMES_MAX):
            name = FileName(self._next, epoch, number)
            with contextlib.suppress(FileExistsError):
                handle = files.create(self._index.path(name))
                self._index.refresh()
                return name, handle
        raise SinkUnavailable(f"{self._index.folder}: no name is left for a file of epoch {epoch}")

    def _roll(self, files: FileSystem) -> None:
        assert self._index is not None and self._written is not None
        files.close(self._written.handle)
        self._written = None
        self._look(self._index)
        self._retain(self._index)

    def _retain(self, index: SourceIndex) -> None:
        retain(index, Keeping(self._options.keep_bytes, self._options.keep_seconds * 1_000_000))
        self._retained_at = self._clock()

    def _let_go(self) -> None:
        """End the file at its last whole block; nothing of it is written any more."""
        files, written, self._files, self._written = self._files, self._written, None, None
        if files is None or written is None or self._index is None:
            return
        with contextlib.suppress(OSError):
            try:
                if written.end:
                    files.truncate(written.handle, written.end)
                else:  # it never held a whole block: a full disk is not filled with such files
                    files.unlink(self._index.path(written.name))
            finally:
                files.close(written.handle)


def _has(index: SourceIndex, position: int) -> bool:
    """Is a position in a whole block? Raises: OSError."""
    for file, block in index.candidates(position):
        with index.opened(file) as handle:
            if index.payload(file, block, handle) is not None:
                return True
    return False


def _emitted(delivery: Delivery) -> Emitted:
    """Give the row that a message carries. Raises: DeliveryRefused when it is none."""
    if delivery.method != EMIT or delivery.reference is not None:
        raise DeliveryRefused(
            f"a topic takes what `ctx.emit` sends; this is {delivery.method!r}"
            + (", and a handler waits for it" if delivery.reference is not None else ""),
            position=delivery.position,
        )
    try:
        return msgspec.convert(delivery.arguments, Emitted)
    except msgspec.ValidationError as error:
        raise DeliveryRefused(str(error), position=delivery.position) from None


def _parts(schema: str, shard: int, rows: Sequence[Row]) -> list[_Part]:
    """Make blocks of rows of one schema, as few as their size allows. Raises: DeliveryRefused."""
    try:
        payload = encode_batch(record_batch(schema, shard, rows))
    except RowMisfit as error:
        raise DeliveryRefused(str(error), position=rows[error.at].position) from None
    except ValueError as error:
        raise DeliveryRefused(str(error), position=rows[0].position) from None
    if len(payload) <= PAYLOAD_BYTES_MAX:
        return [_Part(schema, rows[-1].position, len(rows), max(row.time_us for row in rows), payload)]
    if len(rows) == 1:
        raise DeliveryRefused(f"the row has {len(payload):,} bytes", position=rows[0].position)
    half = len(rows) // 2
    return [*_parts(schema, shard, rows[:half]), *_parts(schema, shard, rows[half:])]
