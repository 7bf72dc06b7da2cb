"""Who has the programs of a service: the replicas that run them, or an upgrade that puts another one in their place.

    <shard directory>/application/claim.lock    a lock of the kernel: shared by replicas, exclusive for an upgrade

Guarantees: while an upgrade has it no program of a replica runs, and the other way round; whoever dies has it no more.
Does not: work on storage that has no such locks, or does not carry them between machines:
there replicas run, and an upgrade is refused, or has to be kept from running beside them by hand. Imports base.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deathless.base.errors import ProgramClaimed
from deathless.base.foreign.binding import FOLDER

NAME: Final = "claim.lock"
LOCKLESS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What storage says that has no such locks."""


class Claim:
    """What somebody has of the programs.

    Args:
        descriptor: of the locked file.
        alone: nobody else has them.
    """

    def __init__(self, descriptor: int, *, alone: bool) -> None:
        self.alone = alone
        self._descriptor = descriptor

    def share(self) -> None:
        """Have them with others from now on. Raises: ProgramClaimed: another one has them alone just now; OSError."""
        self.alone = False
        _lock(self._descriptor, alone=False)


@contextlib.contextmanager
def claim(directory: str, *, alone: bool) -> Iterator[Claim]:
    """Have the programs.

    Args:
        directory: of the shard.
        alone: no replica's program runs meanwhile; False: other replicas may have theirs.

    Raises: ProgramClaimed; OSError.
    """
    folder = Path(directory) / FOLDER
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(descriptor, alone=alone)
        yield Claim(descriptor, alone=alone)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, alone: bool) -> None:
    """Lock the file, or lock it otherwise. Raises: as `claim`."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ProgramClaimed(
            "programs of its replicas run" if alone else "an upgrade of the service's program is under way"
        ) from None
    except OSError as error:  # who runs goes on without; who wants to be alone can't know it
        if alone or error.errno not in LOCKLESS:
            raise
