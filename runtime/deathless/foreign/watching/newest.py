"""The newest checkpoint of a program, as people are told of it: how old it is, and how large.

Whichever replica wrote it, so a replica that takes none tells of it as well.

Guarantees: nothing of its contents is read. Does not: say whether it is whole (`checkpoints` does). Imports base and
this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from deathless.base.foreign.binding import FOLDER
from deathless.foreign.checkpoints import PREFIX


class Newest(NamedTuple):
    """The newest checkpoint of a service's program."""

    position: int  # of the last row that is in it; -1: there is none
    size: int  # bytes
    at_us: int  # when it was written, by the clock of the storage; 0: there is none


NONE: Final = Newest(-1, 0, 0)


def newest_checkpoint(directory: str) -> Newest:
    """Look which it is.

    Args:
        directory: of the shard.

    Raises: OSError.
    """
    try:
        found = [path for path in (Path(directory) / FOLDER).iterdir() if _is_one(path.name)]
        if not found:
            return NONE
        newest = max(found, key=lambda path: path.name)
        told = newest.stat()
    except FileNotFoundError:  # nothing has run yet; or it was removed meanwhile, since a newer one is there
        return NONE
    return Newest(int(newest.name.removeprefix(PREFIX)), told.st_size, told.st_mtime_ns // 1000)


def _is_one(name: str) -> bool:
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).isdecimal()
