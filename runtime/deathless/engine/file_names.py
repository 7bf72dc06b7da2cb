"""Names of files in the shared directory that change hands: what a writer of them must not leave behind.

Guarantees: see each. Does not: write files. May import base.
"""

from __future__ import annotations

import contextlib

from deathless.base.storage import Use, waits
from deathless.engine.ports import FileSystem, Handle


def remove_name(fs: FileSystem, path: str) -> None:
    """Remove a name that is in nobody's way, if it stands; on a volume that is read-only just now it stays.

    Raises: OSError that says anything else.
    """
    try:
        fs.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if not waits(error, Use.ROOM):
            raise


def keep_only(fs: FileSystem, path: str, former: str) -> Handle:
    """Open a file for writing by one of its two names, once the other one is gone, durably.

    One file under two names would be one segment written by two epochs, so this comes before anything is written to it.

    Args:
        fs: the shared directory.
        path: the name that it keeps.
        former: the other; somebody else may have taken it away.

    Raises: OSError: it may still have both.
    """
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(former)
    fs.sync_folder(former.rpartition("/")[0])
    return fs.open(path, write=True)
