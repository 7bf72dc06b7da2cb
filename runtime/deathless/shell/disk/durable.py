"""Small files that must be there after a power cut, whole: who a directory belongs to, what was adopted, positions.

A file is written under another name, synced, put in its place, and the folder is synced.

Guarantees: a reader finds the whole file or the one before it; every error names the file it was met at, also where
the call knew only a descriptor. Does not: decide what an error leads to (`base.storage`), write the log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the file's path into every error of a call on its descriptor, which names none by itself.

    Without it nobody is told which file it was, and what a mount says of its server looks like what a socket says
    (`base.storage.trouble_of`).

    Raises: OSError with a path; what else is raised inside, unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


@contextlib.contextmanager
def closing_file(descriptor: int, path: str | os.PathLike[str]) -> Iterator[None]:
    """Close the descriptor of the file at `path` at the end; errors are named as by `naming`."""
    with naming(path):
        try:
            yield
        finally:
            os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Put a file with this content at `path`, in the place of the one that stands there. Raises: OSError."""
    with _beside(path, data) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def link_file(path: Path, data: bytes) -> bool:
    """Put a file with this content at `path` if none stands there; False: one does. Raises: OSError."""
    with _beside(path, data) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder last. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with closing_file(descriptor, folder):
        os.fsync(descriptor)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Make what another writer left in a file last. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with closing_file(descriptor, path):
        os.fsync(descriptor)


@contextlib.contextmanager
def _beside(path: Path, data: bytes) -> Iterator[Path]:
    """The content synced under a name of its own in the same folder, which is gone afterwards."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")  # every pod's is process 1
    try:
        with naming(temporary), temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
