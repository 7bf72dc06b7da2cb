"""Where a directory says that it was written, and when one that says so is a copy; pure.

    fits      the file stands in the inode that it names, and the folder too: this is the directory (also after `mv`)
    is a copy it does not fit, inodes mean something here, and the directory is not at the path where it was written
    neither   overlay, tmpfs, network storage; or something was put back in place: told in the log, never refused

Does not: look anything up (shell.directory.place and the simulation do). Imports nothing of ours.
"""

from __future__ import annotations

import msgspec


class Spot(msgspec.Struct, frozen=True):
    """One file or folder on one file system."""

    inode: int
    birth: str  # seconds and nanoseconds; empty where the file system keeps none


class Place(msgspec.Struct, frozen=True):
    """What the file says."""

    installation: str  # 32 hexadecimal digits
    path: str
    machine: str  # for words only
    file: Spot
    folder: Spot


def fits(place: Place, file: Spot, folder: Spot) -> bool:
    """Was it written where it stands? A birth time that one side lacks is not compared.

    Args:
        place: what the file says.
        file: where the file stands.
        folder: where the folder `replicas` stands.
    """
    return _same(place.file, file) and _same(place.folder, folder)


def is_copy(place: Place, path: str, *, numbered: bool) -> bool:
    """Is a directory that does not fit refused?

    Args:
        place: what its file says.
        path: where the directory is, without links.
        numbered: its file system keeps the number of an inode, and gives no other file the same.
    """
    # At the path where the installation was written nothing else of it stands: a backup that was put back, say. Whether
    # anything is missing from it the witnesses of what was confirmed know.
    return numbered and path != place.path


def _same(said: Spot, found: Spot) -> bool:
    return said.inode == found.inode and (said.birth == found.birth or not (said.birth and found.birth))
