"""Lines of a file, each exactly once: JSON, one object a line, in the order in which the service sent.

    effects.jsonl              {"position":7,"method":"paid","key":"alice","arguments":{...},"id":"shop/0/..."}
    effects.jsonl.position     whose positions these are, the highest epoch, from where to read the lines at a start
    effects.jsonl.lock         held while one of the two is written

A line carries its position, so effect and position are one write. At a start the lines behind the place that
`.position` names are read: the last whole one says where to go on, and one that was torn by the process's death is
cut. They are synced before they count: whoever was killed may have left them in the page cache alone. A line of a
message that somebody waits for names who waits, so its answer (the position) outlives us as well.

Two replicas may have the file open. Each write is made with the lock held, after `.position` was read: a higher epoch
in it ends us (Deposed). What stands behind the end that we know is nobody's: an attempt of ours that failed, and cut.

A process that is frozen with the lock held keeps its successor out, and must: between its look at `.position` and its
write nothing but the lock tells it that its epoch ended. So a wait for the lock ends after LOCK_WAIT_S with
SinkUnavailable, which names the holder to operators, and begins again.

Options: `path`, and `sync` (true: each batch is on the disk before it is acknowledged). The lock is the kernel's
(flock), so the file belongs on a local disk, or on network storage that carries locks to all that mount it.

Guarantees: exactly once, as far as the file stays what we wrote; nobody else may write to it. Does not: rotate, or
forget. Imports drivers.port and codec.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from deathless.base.errors import Deposed, InvalidConfig, SinkUnavailable
from deathless.codec.untrusted import read_json
from deathless.codec.wire import ok_reply
from deathless.drivers.json_body import json_of
from deathless.drivers.port import Answer, Delivery, Opened, Reference, Settings, Sink, Source
from deathless.shell.disk.small_files import read_small

LOCK_WAIT_S: Final = 5.0  # so long the lock is waited for before operators are told
LOCK_AGAIN_S: Final = 0.01
HOLDER_BYTES_MAX: Final = 128  # of who holds the lock, as its file says
REMEMBER_LINES: Final = 10_000  # after so many lines `.position` moves on, so that a start reads no more
T = TypeVar("T")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Of `kind: files`."""

    path: str
    sync: bool = True


class Line(msgspec.Struct, omit_defaults=True):
    """One effect."""

    position: int
    method: str
    key: str
    arguments: dict[str, object]
    id: str
    waits: tuple[int, int] | None = None  # invocation and operation of who waits


class Place(msgspec.Struct, rename="camel"):
    """Content of `.position`."""

    service: str
    shard: int
    service_id: str
    incarnation: int
    epoch: int
    offset: int  # lines of this source that matter begin here
    next_position: int  # at least
    answers: list[tuple[int, int, int, str]] = []  # of positions without a line: position, reference, reply in base64

    @property
    def source(self) -> tuple[str, int, str, int]:
        """Whose positions these are."""
        return self.service, self.shard, self.service_id, self.incarnation


class _Written(NamedTuple):
    """A line that is kept in mind."""

    line: Line
    end: int  # offset behind it


def sink(settings: Settings) -> Sink:
    """See port.Factory."""
    options = settings.typed(Options)
    path = settings.path(options.path)
    if not options.path or path.is_dir() or not path.parent.is_dir():
        raise InvalidConfig(f"driver {settings.driver}: options.path {path} is not a file in an existing folder")
    return FileSink(path, sync=options.sync)


class FileSink:
    """Appends to one file; see the module.

    Args:
        path: of the file.
        sync: write through to the disk.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self._path = path
        self._sync = sync
        self._place = Place("", 0, "", 0, 0, 0, 0)  # Invariant: after `open`, as it stands in `.position`
        self._end = 0  # of what counts in the file
        self._written: deque[_Written] = deque()  # lines behind place.offset
        self._busy = asyncio.Lock()  # one thread of ours at a time, also when its caller gave up

    async def open(self, source: Source, first: int) -> Opened:
        """See port.Sink."""
        return await self._in_thread(lambda: self._open(source, first))

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """See port.Sink."""
        return await self._in_thread(lambda: self._deliver(deliveries))

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        """See port.Sink."""
        await self._in_thread(lambda: self._pass_over(position, answer))

    async def confirmed(self, through: int) -> None:
        """See port.Sink."""
        await self._in_thread(lambda: self._confirmed(through))

    async def close(self) -> None:
        """See port.Sink."""
        async with self._busy:  # a thread whose caller gave up has ended after this
            self._place = Place("", 0, "", 0, 0, 0, 0)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """The disk may take long, and the primary wants to hear that we live."""

        async def run() -> T:
            async with self._busy:
                return await asyncio.to_thread(self._locked, work)

        return await asyncio.shield(asyncio.ensure_future(run()))

    def _locked(self, work: Callable[[], T]) -> T:
        try:
            with _locked(self._beside(".lock")):
                return work()
        except OSError as error:
            raise SinkUnavailable(f"{error.filename or self._path}: {error.strerror or error}") from None

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    # ---- with the lock held ----------------------------------------------------------------------------------

    def _open(self, source: Source, first: int) -> Opened:
        found = self._read_place()
        ours = Place(source.service, source.shard, source.service_id.hex(), source.incarnation, source.epoch, 0, first)
        if not self._path.exists():
            _create(self._path)
        lines: list[_Written] = []
        if found is not None and found.source == ours.source:
            if found.epoch > ours.epoch:
                raise Deposed(
                    f"epoch {ours.epoch} of {source.service} ended, {found.epoch} has written to {self._path}"
                )
            ours.offset, ours.next_position, ours.answers = found.offset, found.next_position, found.answers
            lines, self._end = self._read_lines(ours.offset)
        else:  # what another service, or another incarnation, has written stays
            _, self._end = self._read_lines(0, others=True)
            ours.offset = self._end
        os.truncate(self._path, self._end)
        if self._sync:
            _sync_file(self._path)  # lines of a process that was killed may be in the page cache alone
        if lines:
            ours.next_position = max(ours.next_position, lines[-1].line.position + 1)
        self._written = deque(lines)
        self._write_place(ours)
        answers = [_answer_of(each.line) for each in lines if each.line.waits is not None]
        answers += [Answer(at, Reference(i, o), base64.b64decode(reply)) for at, i, o, reply in ours.answers]
        return Opened(ours.next_position, sorted(answers, key=lambda each: each.position))

    def _deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        self._check_ours()
        lines = [_line_of(each) for each in deliveries]
        assert lines[0].position >= self._place.next_position, "the host delivers nothing twice"
        parts = [json_of(line, line.arguments, line.position) + b"\n" for line in lines]
        self._append(b"".join(parts))
        for line, part in zip(lines, parts, strict=True):
            self._end += len(part)
            self._written.append(_Written(line, self._end))
        self._place.next_position = lines[-1].position + 1
        if len(self._written) > REMEMBER_LINES and self._forget(lambda line: line.waits is None):
            self._write_place(self._place)
        return [_answer_of(line) for line in lines if line.waits is not None]

    def _pass_over(self, position: int, answer: Answer | None) -> None:
        self._check_ours()
        place = msgspec.structs.replace(self._place, next_position=position + 1)
        if answer is not None:
            reference, reply = answer.reference, base64.b64encode(answer.reply).decode()
            place.answers = [*place.answers, (position, reference.invocation, reference.operation, reply)]
        self._write_place(place)

    def _confirmed(self, through: int) -> None:
        self._check_ours()
        self._forget(lambda line: line.position <= through)
        self._place.answers = [each for each in self._place.answers if each[0] > through]
        self._write_place(self._place)

    def _forget(self, done: Callable[[Line], bool]) -> bool:
        """Move the place behind the first lines that are done; the caller writes it."""
        before = self._place.offset
        while self._written and done(self._written[0].line):
            self._place.offset = self._written.popleft().end
        return self._place.offset > before

    def _check_ours(self) -> None:
        found = self._read_place()
        if found is None:
            raise SinkUnavailable(f"{self._beside('.position')} is gone")
        if found.source != self._place.source or found.epoch != self._place.epoch:
            raise Deposed(f"epoch {found.epoch} of {found.service} writes to {self._path}, ours is {self._place.epoch}")

    def _append(self, data: bytes) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._check_size(os.fstat(descriptor).st_size)
            os.ftruncate(descriptor, self._end)  # what an attempt before this left
            try:
                write_all(descriptor, data, self._end)
                if self._sync:
                    os.fdatasync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):  # or the next attempt does
                    os.ftruncate(descriptor, self._end)
                raise
        finally:
            os.close(descriptor)

    def _check_size(self, size: int) -> None:
        if size < self._end:
            raise SinkUnavailable(
                f"{self._path} has {size} bytes, but {self._end} were written",
                remedy=f"restore it; or remove {self._beside('.position').name}, to start with the messages still kept",
            )

    def _read_lines(self, offset: int, *, others: bool = False) -> tuple[list[_Written], int]:
        """Give the whole lines from here on and where they end; what is behind was torn. `others`: not taken apart."""
        lines: list[_Written] = []
        self._end = offset
        with self._path.open("rb") as file:
            self._check_size(os.fstat(file.fileno()).st_size)
            file.seek(offset)
            for text in file:
                if not text.endswith(b"\n") or b"\0" in text:
                    break
                offset += len(text)
                if others:
                    continue
                try:
                    lines.append(_Written(read_json(text, Line), offset))
                except msgspec.MsgspecError as error:
                    raise SinkUnavailable(
                        f"{self._path}: no line of this driver at byte {offset - len(text)}: {error}"
                    ) from None
        return lines, offset

    def _read_place(self) -> Place | None:
        path = self._beside(".position")
        try:
            return read_json(read_small(path), Place)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SinkUnavailable(f"{path}: {error}") from None

    def _write_place(self, place: Place) -> None:
        path, new = self._beside(".position"), self._beside(".position.new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(place))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(path.parent)
        self._place = place


def write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write at this offset, in as many steps as the kernel takes."""
    while data:
        count = os.pwrite(descriptor, data, at)
        at, data = at + count, data[count:]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the kernel's lock on a file: its end frees it, whatever kills us. The file says who held it last.

    Raises: SinkUnavailable when another process keeps it for LOCK_WAIT_S.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + LOCK_WAIT_S
        while not _try_lock(descriptor):
            if time.monotonic() >= until:
                holder = os.pread(descriptor, HOLDER_BYTES_MAX, 0).decode(errors="replace").strip() or "another process"
                raise SinkUnavailable(
                    f"{path} is held by {holder}",
                    remedy="if that process is frozen, let it continue (kill -CONT) or end it (kill -KILL)",
                )
            time.sleep(LOCK_AGAIN_S)
        us = f"process {os.getpid()} on {socket.gethostname()}\n".encode()[:HOLDER_BYTES_MAX]
        os.pwrite(descriptor, us.ljust(HOLDER_BYTES_MAX), 0)  # always as long, so that nothing of another is left
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    _sync_folder(path.parent)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line_of(delivery: Delivery) -> Line:
    reference = delivery.reference
    return Line(
        delivery.position,
        delivery.method,
        delivery.key,
        delivery.arguments,
        delivery.idempotency_key,
        None if reference is None else (reference.invocation, reference.operation),
    )


def _answer_of(line: Line) -> Answer:
    """Give what a handler that waits is told: the position of its line."""
    assert line.waits is not None
    return Answer(line.position, Reference(*line.waits), ok_reply(msgspec.msgpack.encode(line.position)))
