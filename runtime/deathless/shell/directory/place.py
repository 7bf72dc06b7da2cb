"""Which directory is the one that a service was created in, or adopted into: the file `place`, which a copy betrays.

A copy carries everything along: names, addresses in members/, tokens. So each directory whose lock lies in it keeps a
file that says where it was written: its own inode and birth time, those of the folder `replicas`, the path, and a nonce
that names this installation. A copy holds the same text in another inode.

    fits         the file stands in the inode that it names, and the folder too: this is the directory (also after `mv`)
    differs      a copy. Nobody is dialled, nothing is started: CopiedDirectory, with what an operator can say
    absent       of a build without it, or a service that has just begun: written at the next start
    unreadable   written anew, with a warning
    overlay, tmpfs, network storage   number their inodes as they like: told in the log, never refused

A clone of the blocks below (an image, a snapshot of a volume) keeps inodes: it is told by the proof that each
connection asks for (shell.net.proof). With etcd as the lock store there is no such file: volumes are moved file by file
there, and the store knows its service.

Guarantees: reading never writes; what a start wrote, it finds again. Does not: judge what only reads a log
(`log verify`, `replay`), or decide what a copy is (core.access.place does). May import core and base.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import CopiedDirectory, DeathlessError, PermissionRefused
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.storage import storage_error
from deathless.codec.untrusted import read_json
from deathless.core.access.place import Place, Spot, is_copy
from deathless.core.access.place import fits as stands_at
from deathless.shell.disk.durable import closing_file, naming, sync_folder
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type
from deathless.shell.disk.holders import holder_of
from deathless.shell.disk.small_files import opened_small, read_opened

FILE: Final = "place"
FOLDER: Final = "replicas"
LENIENT: Final = frozenset({"overlay", "tmpfs"})  # local, but inodes and births come and go
_LOG: Final = logging.getLogger("deathless.place")
_STATX_BYTES, _STATX_ALL, _STATX_BTIME, _AT_EMPTY_PATH = 256, 0xFFF, 0x800, 0x1000


class Found(NamedTuple):
    """What a directory's file says, and where that very file stands.

    Replicas that start at once replace one another's file: what one of them wrote and where the next one's stands say
    nothing together.
    """

    place: Place
    file: Spot


def spot_of(path: str | os.PathLike[str]) -> Spot:
    """Give inode and birth time of a file or folder. Raises: OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    with closing_file(descriptor, path):
        return _spot_of_opened(descriptor)


def _spot_of_opened(descriptor: int) -> Spot:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if statx is None or statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_ALL, buffer):
        return Spot(os.fstat(descriptor).st_ino, "")
    (mask,) = struct.unpack_from("<I", buffer, 0)
    (inode,) = struct.unpack_from("<Q", buffer, 32)
    seconds, nanoseconds = struct.unpack_from("<qI", buffer, 80)
    return Spot(inode, f"{seconds}.{nanoseconds:09d}" if mask & _STATX_BTIME else "")


def find_place(directory: str) -> Found | None:
    """Give what a directory's file says and where it stands; None: there is none, or nothing can be made of it.

    Raises: what the storage says; then nobody knows what stands there, and nothing may be written in its place.
    """
    path = Path(directory) / FILE
    try:
        with opened_small(path) as descriptor:
            return Found(read_json(read_opened(descriptor, path), Place), _spot_of_opened(descriptor))
    except OSError as error:
        _raise_of_storage(error)
    except msgspec.MsgspecError:
        pass
    return None


def read_place(directory: str) -> Place | None:
    """Give what a directory's file says; None: there is none, or nothing can be made of it.

    Raises: as `find_place`.
    """
    found = find_place(directory)
    return found.place if found is not None else None


def _raise_of_storage(error: OSError) -> None:
    said = storage_error(error)
    if said is not None:
        raise said from error


def fits(directory: str, found: Found) -> bool:
    """Is this the directory in which the file was written?

    Raises: what the storage says.
    """
    try:
        return stands_at(found.place, found.file, spot_of(Path(directory) / FOLDER))
    except OSError as error:
        _raise_of_storage(error)
        return False


def check_place(directory: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
    """Refuse a copy before anything is dialled or started from it; writes nothing.

    Raises: CopiedDirectory; what the storage says.
    """
    try:
        found = find_place(directory)
    except PermissionRefused:  # a client's user need not be allowed to; who starts here is told by `keep_place`
        return
    if found is None or not safeguards.check_place or fits(directory, found):
        return
    place = found.place
    if not is_copy(place, os.path.realpath(directory), numbered=_counts(directory)):
        _LOG.warning("this directory may be a copy", extra={"of": place.path, "installation": place.installation})
        return
    raise CopiedDirectory(f"{directory} is {told(place)}")


def told(place: Place) -> str:
    """Say whose copy a directory is, in words."""
    of = f"a copy of {place.path} (installation {place.installation[:8]})"
    if place.machine != _machine():
        return f"{of} on another machine"
    if not at_home(place):
        return f"{of}, which is not there now"
    pid = 0
    with contextlib.suppress(OSError):
        pid = next(filter(None, map(holder_of, sorted(Path(place.path).glob(f"{FOLDER}/*/supervisor.lock")))), 0)
    return f"{of}, which runs (process {pid})" if pid else f"{of}, which stands there too"


def at_home(place: Place) -> bool:
    """Does the directory still stand where this installation was written?"""
    try:
        original = find_place(place.path)
        return original is not None and original.place.installation == place.installation and fits(place.path, original)
    except DeathlessError:
        return False


def _counts(directory: str) -> bool:
    kind = filesystem_type(directory)
    return kind in LOCAL_TYPES and kind not in LENIENT


def keep_place(directory: str) -> None:
    """Write the file at the first start, and after a move or where it only warns, so that it fits.

    Raises: CopiedDirectory; OSError.
    """
    check_place(directory)
    found = find_place(directory)
    if found is None:
        if (Path(directory) / FILE).exists():
            _LOG.warning("the file place can't be read and is rewritten", extra={"directory": directory})
        write_place(directory)
    elif not fits(directory, found) or found.place.path != os.path.realpath(directory):
        write_place(directory, found.place.installation)


def write_place(directory: str, installation: str = "") -> Place:
    """Say that this is the directory; a new installation if none is named. Raises: OSError."""
    folder = Path(directory) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(directory) / f".{FILE}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with naming(temporary), temporary.open("xb") as file:
            place = Place(
                installation or os.urandom(16).hex(),
                os.path.realpath(directory),
                _machine(),
                spot_of(temporary),
                spot_of(folder),
            )
            file.write(msgspec.json.format(msgspec.json.encode(place), indent=2))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(Path(directory) / FILE)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(directory)
    return place


def _machine() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path("/etc/machine-id").read_text().strip()
    return ""
