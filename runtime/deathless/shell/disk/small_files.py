"""Reads small files that somebody else may have put there: members, identities, configs, secrets.

Why: a name in a shared directory says nothing of what stands behind it. A file of many gigabytes would fill the memory
of every replica that looks, and a pipe would hold its reader for ever.

Guarantees: a regular file of at most so many bytes, whole, or OSError with its path; returns as soon as the file system
does. Does not: decode (`codec.untrusted`), write (`shell.disk.durable`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deathless.shell.disk.durable import closing_file

SMALL_FILE_BYTES_MAX: Final = 1 << 20


@contextmanager
def opened_small(path: str | Path) -> Iterator[int]:
    """Give the descriptor of a regular file, for `read_opened` and for what else is asked of the same file.

    Raises: OSError with the path; EINVAL for what is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without writer would be waited for
    with closing_file(descriptor, path):
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield descriptor


def read_opened(descriptor: int, path: str | Path, bytes_max: int = SMALL_FILE_BYTES_MAX) -> bytes:
    """Give the bytes of what `opened_small` opened at `path`.

    Raises: OSError; EFBIG when there are more than `bytes_max` of them.
    """
    parts = []
    left = bytes_max + 1
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    if not left:
        raise OSError(errno.EFBIG, f"more than {bytes_max} bytes", str(path))
    return b"".join(parts)


def read_small(path: str | Path, bytes_max: int = SMALL_FILE_BYTES_MAX) -> bytes:
    """Give a file's bytes.

    Raises: OSError with the path; EFBIG when there are more than `bytes_max` of them, EINVAL for what is no file.
    """
    with opened_small(path) as descriptor:
        return read_opened(descriptor, path, bytes_max)
