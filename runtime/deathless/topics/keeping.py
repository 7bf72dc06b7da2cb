"""How long rows are kept: floors, which say what may be gone, and holds, which keep what a reader still needs.

    a writer    publishes the floor durably ----> reads the holds ----> deletes what lies below both
    a reader    registers its hold durably -----> reads the floor, and is refused if that is above its position

So one of the two always sees the other, however late either goes on, and also when both are frozen in between. Floors
are names with a position, of which the highest counts: a writer that wakes late lowers nothing.

Guarantees: no file with a row at or above the lowest hold is deleted, and the newest file never is; ages are
differences of the rows' logical times. Does not: run by itself (the writer calls it). Imports base, codec.untrusted
and the port of file systems.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from deathless.base.errors import TopicRowsDropped
from deathless.codec.untrusted import read_json
from deathless.engine.ports import FileSystem
from deathless.topics.index import SourceIndex
from deathless.topics.source import FLOORS, HOLDS, floor_name, hold_name, parse_floor, parse_hold

T = TypeVar("T")
RECORD_BYTES_MAX: Final = 4096
RETENTION: Final = "retention"
SKIPPED: Final = "skipped"
BEGINS: Final = "begins"
WHY: Final = {
    RETENTION: "keepBytes or keepDays of the topic let them go",
    SKIPPED: "an operator gave them up with `deathless topics skip`",
    BEGINS: "the restored service begins here; earlier rows stand with its earlier incarnation",
}


class Floor(msgspec.Struct, frozen=True):
    """Rows below `position` may be gone."""

    position: int
    reason: str = ""  # a key of WHY

    @property
    def why(self) -> str:
        """The reason in words."""
        return WHY.get(self.reason, "for a reason that this build does not know")


class Hold(msgspec.Struct, frozen=True):
    """A reader that needs the rows from `position` on."""

    position: int
    owner: str = ""
    since: str = ""  # when it was registered, as its owner writes a time
    sure: bool = False  # the floor was looked at after it was registered


class NamedHold(msgspec.Struct, frozen=True):
    """A hold as it is listed."""

    name: str
    hold: Hold | None  # None: its file can't be read, and so keeps everything


class Keeping(msgspec.Struct, frozen=True):
    """How much is kept; 0 is without a limit."""

    size_bytes: int = 0
    age_us: int = 0


def floor_of(files: FileSystem, folder: str) -> Floor:
    """Give the floor of a source. Raises: OSError."""
    position, reason = max(_floors(files, folder), default=(1, ""))
    return Floor(position, reason)


def publish_floor(files: FileSystem, folder: str, position: int, reason: str) -> Floor:
    """Say durably that rows below a position may be gone; a floor never sinks. Gives the one that counts.

    All of it is a name, so that it needs no space on a disk that is full.

    Raises: OSError.
    """
    now = floor_of(files, folder)
    if position <= now.position:
        return now
    path = f"{folder}/{FLOORS}"
    files.make_folder(path)
    with suppress(FileExistsError):
        files.close(files.create(f"{path}/{floor_name(position, reason)}"))
    files.sync_folder(path)
    for lower in _floors(files, folder):
        if lower[0] < position:
            with suppress(FileNotFoundError):
                files.unlink(f"{path}/{floor_name(*lower)}")
    return Floor(position, reason)


def _floors(files: FileSystem, folder: str) -> list[tuple[int, str]]:
    return [found for name in _listed(files, f"{folder}/{FLOORS}") if (found := parse_floor(name)) is not None]


def holds_of(files: FileSystem, folder: str) -> list[NamedHold]:
    """Give the holds of a source, by name. Raises: OSError."""
    found = []
    for text in _listed(files, f"{folder}/{HOLDS}"):
        name = parse_hold(text)
        if name is None:
            continue
        try:
            found.append(NamedHold(name, _read(files, f"{folder}/{HOLDS}/{text}", Hold)))
        except FileNotFoundError:
            continue  # dropped meanwhile
    return found


def lowest_hold(files: FileSystem, folder: str) -> int | None:
    """Give the lowest position that is held; 0: a hold can't be read; None: there is no hold. Raises: OSError."""
    return min((each.hold.position if each.hold else 0 for each in holds_of(files, folder)), default=None)


def register(files: FileSystem, folder: str, name: str, hold: Hold) -> None:
    """Register a hold, or move one of that name.

    A hold that moves up is never refused: its rows were kept all the time, whatever the floor says.

    Raises: TopicRowsDropped when the rows may be gone; InvalidArgument; OSError.
    """
    path, file = f"{folder}/{HOLDS}", hold_name(name)
    try:
        former = _read(files, f"{path}/{file}", Hold)
    except FileNotFoundError:
        former = None
    sure = former is not None and former.sure and former.position <= hold.position
    files.make_folder(path)
    _write(files, path, file, msgspec.json.encode(msgspec.structs.replace(hold, sure=sure)))
    if sure:
        return
    floor = floor_of(files, folder)
    if floor.position > hold.position:
        if former is None:
            drop(files, folder, name)
        else:
            _write(files, path, file, msgspec.json.encode(former))
        raise TopicRowsDropped(f"rows below position {floor.position} may be gone, {hold.position} too: {floor.why}")
    _write(files, path, file, msgspec.json.encode(msgspec.structs.replace(hold, sure=True)))


def drop(files: FileSystem, folder: str, name: str) -> bool:
    """Drop a hold; False: there is none of that name. Raises: InvalidArgument; OSError."""
    path = f"{folder}/{HOLDS}"
    try:
        files.unlink(f"{path}/{hold_name(name)}")
    except FileNotFoundError:
        return False
    files.sync_folder(path)
    return True


def retain(index: SourceIndex, keeping: Keeping) -> list[str]:
    """Delete files whose rows are kept no longer; gives their paths.

    Args:
        index: of the source, refreshed.
        keeping: how much is kept.

    Raises: OSError.
    """
    files, folder = index.files, index.folder
    allowed = droppable(index, keeping)
    held = lowest_hold(files, folder)
    floor = publish_floor(files, folder, allowed if held is None else min(allowed, held), RETENTION)
    held = lowest_hold(files, folder)  # after the floor is durable: see the module
    below = floor.position if held is None else min(floor.position, held)
    newest = index.newest()
    gone = []
    for file in [each for name, each in index.known.items() if name.first < below and each is not newest]:
        index.update(file)
        if file.next <= below:
            with suppress(FileNotFoundError):
                files.unlink(index.path(file.name))
            del index.known[file.name]
            gone.append(index.path(file.name))
    return gone


def droppable(index: SourceIndex, keeping: Keeping) -> int:
    """Give the position below which rows need not be kept, by size or by age. Raises: OSError.

    Of the files, those that may go are looked at, and the newest ones.
    """
    newest = index.newest()
    if newest is None or not (keeping.size_bytes or keeping.age_us):
        return 1
    sizes = index.sizes()
    total = sum(sizes.values())
    now_us = max(file.time_us for file in index.tips())
    point = 1
    for name, file in index.known.items():  # by their first positions
        if name.first >= newest.name.first:
            break
        too_much = bool(keeping.size_bytes) and total > keeping.size_bytes
        if not too_much and not keeping.age_us:
            break
        index.update(file)
        if not too_much and file.time_us >= now_us - keeping.age_us:
            break
        total -= sizes.get(name, 0)
        point = max(point, file.next)
    return min(point, newest.name.first)


def _listed(files: FileSystem, folder: str) -> list[str]:
    try:
        return files.listing(folder)
    except FileNotFoundError:
        return []


def _read(files: FileSystem, path: str, kind: type[T]) -> T | None:
    """Read a small record; None: it is none. Raises: OSError."""
    handle = files.open(path)
    try:
        data = files.read(handle, 0, RECORD_BYTES_MAX)
    finally:
        files.close(handle)
    try:
        return read_json(data, kind)
    except msgspec.MsgspecError:
        return None


def _write(files: FileSystem, folder: str, name: str, data: bytes) -> None:
    """Put a small file in the place of the one that stands there, durably."""
    temporary = f"{folder}/.{name}.{os.urandom(6).hex()}"
    handle = files.create(temporary)
    try:
        try:
            files.write(handle, 0, data)
            files.sync(handle)
        finally:
            files.close(handle)
        files.rename(temporary, f"{folder}/{name}")
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_folder(folder)
