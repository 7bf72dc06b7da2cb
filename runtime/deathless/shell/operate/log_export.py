"""Writes a shard's log, as far as it is needed to run it again elsewhere, into one file: `deathless log export`.

    plan     where a run can begin (the newest checkpoint at or below what was asked for), the frames from there to the
             end, the code that is kept beside the log; every file is open by then, so that none is collected meanwhile
    write    a tar file: exported.json, a config that tools find the folder by, checkpoints, log, code, and last
             digests.json, which says what each file must be

It is made while the service runs or not. A run of it elsewhere gives every state and reply to the byte: seeds, hash
seed and the kept code are in it. So is everything that callers sent: the file is as secret as the log.

Guarantees: nothing of the service is changed; the frames are those that the log leads through, cut off behind the last
one that was whole; credentials, addresses and certificates are left out. Does not: hold the log of several shards in
one file. May import engine, codec and base.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import BinaryIO, Final, Self

import msgspec

from deathless.base.config import PeerConfig, ReplicaConfig
from deathless.base.errors import CorruptCheckpoint, FormerCodeMissing, InvalidArgument, LogTruncated, RetryLater
from deathless.codec.frames import FrameKind
from deathless.engine.log.checkpoint_store import ANNOUNCED, CHECKPOINT_FOLDER, VERIFIED
from deathless.engine.log.overview import frames_of
from deathless.engine.log.route import Route
from deathless.engine.log.segment_scan import segment_path
from deathless.shell.lock_stores.exported import FILE, Exported
from deathless.shell.lock_stores.inspection import Inspection
from deathless.shell.service_code.code_record import FOLDER as CODE
from deathless.shell.service_code.former_command import former_command

CONFIG_PATH: Final = "replicas/r0/config.json"
DIGESTS: Final = "digests.json"
FILE_MODE: Final = 0o600


@dataclass(slots=True)
class _Source:
    name: str  # in the archive
    file: BinaryIO
    size: int  # bytes of it that are taken, from its beginning


@dataclass(slots=True)
class Export:
    """What is to be written. Closes its files at the end of a `with`."""

    exported: Exported
    config: ReplicaConfig
    sources: list[_Source] = field(default_factory=list)
    has_code: bool = False  # the code that wrote the log's end is in it

    @property
    def bytes(self) -> int:
        """How much of files there is to copy."""
        return sum(source.size for source in self.sources)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.sources:
            source.file.close()

    def add(self, directory: str, name: str, size: int | None = None) -> None:
        """Open a file of the service's directory. Raises: OSError."""
        file = (Path(directory) / name).open("rb")
        self.sources.append(_Source(name, file, os.fstat(file.fileno()).st_size if size is None else size))


def plan_export(look: Inspection, start: int | None = None, to: int | None = None) -> Export:
    """Find out what is to be written, and open it.

    Args:
        look: whose log it is.
        start: lsn from which it shall be possible to run it again; None: the newest checkpoint (at or below `to`).
        to: the last message; None: the last one there is.

    Raises: InvalidArgument, RetryLater when the log was collected meanwhile; DataCorrupt errors, OSError.
    """
    if not look.view.head:
        raise InvalidArgument(
            f"the log in {look.config.directory} is empty", remedy="export it once the service served"
        )
    if start is not None and to is not None and start > to:
        raise InvalidArgument(f"--from {start} is above --to {to}", remedy="name an earlier lsn to begin with")
    try:
        return _plan(look, start, to)
    except FileNotFoundError as error:
        raise RetryLater(
            f"{error.filename} was collected while the log was looked at", remedy="run the command again"
        ) from None


def _plan(look: Inspection, start: int | None, to: int | None) -> Export:
    asked = min((each for each in (start, to) if each is not None), default=None)
    first = _beginning(look, asked)
    route = _route(look, first, to)
    last, head = int(route.start.lsn), route.start.epoch
    confirmed = max(first, route.confirmed, look.known_confirmed)
    ends: dict[tuple[int, int], int] = {}  # bytes to take of each segment, by epoch and roll
    for step in look.steps(route):
        frame, place = step.found.frame, step.after
        confirmed = max(confirmed, frame.confirmed_lsn)
        if not ends or to is None or last < to:
            # What stands behind the message that was asked for is read only until it shows that one to be confirmed.
            ends[place.epoch, place.roll], head = place.offset, place.epoch
            last = int(frame.last_lsn) if frame.kind == FrameKind.DATA else last
        if to is not None and min(last, confirmed) >= to:
            break
    if to is not None and confirmed < to:
        raise InvalidArgument(
            f"--to {to} is above the last confirmed message, lsn {confirmed}",
            remedy=f"--to {confirmed}, or leave it out",
        )
    if (head, 0) not in ends:
        ends[head, 0] = _end_of_beginning(look, head, ends)
    fingerprint = look.reader.routes.cut(head).fingerprint
    config, has_code = _config(look.config, fingerprint)
    record, view = look.record, look.view
    export = Export(
        Exported(
            name=record.name,
            service_id=record.service_id,
            incarnation=record.incarnation,
            seed=record.seed,
            hash_seed=record.hash_seed,
            fence=record.fence,
            store_id=view.store_id,
            head=head,
            first_lsn=first,
            last_lsn=last,
            confirmed_lsn=min(confirmed, last),
            fingerprint=fingerprint.hex(),
            exported_at=datetime.now(UTC).isoformat(timespec="seconds"),
            version=metadata.version("deathless"),
        ),
        config,
        has_code=has_code,
    )
    try:
        _open(export, look, ends)
    except BaseException:
        export.__exit__()
        raise
    return export


def _route(look: Inspection, first: int, to: int | None) -> Route:
    """Give the way to what is taken; where the last message is the checkpoint's, its frame is, if it is still there."""
    if to is not None and to == first > 0:
        with contextlib.suppress(LogTruncated):
            return look.reader.routes.find(look.view.head, first - 1)
    return look.reader.routes.find(look.view.head, first)


def _end_of_beginning(look: Inspection, epoch: int, ends: Mapping[tuple[int, int], int]) -> int:
    """Give how much to take of an epoch's first file, whose cut every reader looks at, when no frame in it is needed.

    Where the next file is taken, all of it is: a first file that ended before its roll frame would be a damaged one.
    """
    whole = (epoch, 1) in ends
    end = 0
    for found in frames_of(look.filesystem, epoch, 0):
        end = found.end
        if not whole or found.frame.kind == FrameKind.ROLL:
            break
    return end


def _beginning(look: Inspection, asked: int | None) -> int:
    """Give the lsn of the checkpoint that a run begins with; 0: the log's beginning. Raises: InvalidArgument."""
    usable = [each for each in look.beginnings() if asked is None or each.lsn <= asked]
    for each in usable if asked != 0 else ():
        with contextlib.suppress(CorruptCheckpoint, FileNotFoundError):
            look.checkpoints.read_back(each.name)
            return int(each.lsn)
    if look.whole_route().start.lsn:
        raise InvalidArgument(
            f"there is no checkpoint at or below lsn {asked or 0}, and the log no longer begins at 0",
            remedy="`deathless checkpoint ls` shows from where a run may begin",
        )
    return 0


def _config(config: ReplicaConfig, fingerprint: bytes) -> tuple[ReplicaConfig, bool]:
    """Give a config of what turns depend on and nothing else, and whether the code is kept."""
    try:
        _, folder, module = former_command(config.directory, fingerprint)
        code = folder.name
    except FormerCodeMissing:
        code, module = "", config.module
    found = ReplicaConfig(
        service=config.service,
        module=module,
        directory=".",
        replica="r0",
        limits=config.limits,
        peers=tuple(PeerConfig(name=peer.name, shards=peer.shards) for peer in config.peers),
        code=code,
        shard=config.shard,
        shards=config.shards,
    )
    return found, bool(code)


def _open(export: Export, look: Inspection, ends: dict[tuple[int, int], int]) -> None:
    directory, told = look.config.directory, export.exported
    for each in look.beginnings():
        if told.first_lsn <= each.lsn <= told.last_lsn:
            path = f"{CHECKPOINT_FOLDER}/{each.name}"
            export.add(directory, path)
            for mark in (ANNOUNCED, VERIFIED):
                with contextlib.suppress(FileNotFoundError):
                    export.add(directory, path + mark)
    for (epoch, roll), end in sorted(ends.items()):
        export.add(directory, segment_path(epoch, roll), end)
    root = Path(directory)
    for found in sorted((root / CODE).rglob("*")):
        if found.is_file() and not found.is_symlink():
            export.add(directory, str(found.relative_to(root)))


def _told(config: ReplicaConfig) -> dict[str, object]:
    """Give the fields that are not as by default."""
    plain = ReplicaConfig(service="", module="", directory="", replica="")
    default: dict[str, object] = msgspec.to_builtins(plain)
    found: dict[str, object] = msgspec.to_builtins(config)
    return {name: value for name, value in found.items() if value != default[name]}


class _Hashed(io.RawIOBase):
    """Reads a file and notes the digest of what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read and note."""
        data = self._file.read(size)
        self.digest.update(data)
        return data


def write_export(export: Export, out: BinaryIO, tell: Callable[[str], None]) -> int:
    """Write it.

    Args:
        export: what.
        out: is written to from where it stands; nothing is read or sought.
        tell: gets how far it is.

    Returns: how many bytes of files are in it.
    Raises: OSError.
    """
    digests: dict[str, str] = {}
    done, whole = 0, export.bytes

    def put(name: str, file: BinaryIO, size: int) -> None:
        nonlocal done
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, FILE_MODE
        read = _Hashed(file)
        archive.addfile(info, read)
        digests[name] = read.digest.hexdigest()
        done += size
        tell(f"exported {done >> 20:,} of {whole >> 20:,} MiB")

    def put_json(name: str, value: object) -> None:
        data = msgspec.json.format(msgspec.json.encode(value), indent=2)
        put(name, io.BytesIO(data), len(data))

    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        put_json(FILE, export.exported)
        put_json(CONFIG_PATH, _told(export.config))
        for source in export.sources:
            put(source.name, source.file, source.size)
        put_json(DIGESTS, dict(digests))
    return done
