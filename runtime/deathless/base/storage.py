"""What an error of the storage leads to: one table of what a file is for and what went wrong.

Why it exists: a full disk, a volume that is read-only for a minute and a disk that lost data all arrive as `OSError`,
at dozens of calls. Whether a replica waits, starts again or ends must not depend on which call happened to meet it.

    Use      what the file is for                          Trouble   what the error number says
    RECORD   frames, cuts and seals: written and synced    FULL      ENOSPC, EDQUOT: no space, quota or inode is left
    ROOM     the spare, the next segment, more of it       READ_ONLY EROFS
    LOCK     names of the directory lock                   FAILED    EIO, ESTALE, and what else a device says
    ...                                                    DENIED    EACCES, EPERM

Guarantees: every pair has one outcome; `docs/kubernetes/storage.md` shows the same table (a test compares them).
Does not: carry anything out. Imports nothing of ours but errors.
"""

from __future__ import annotations

import enum
import errno
from typing import Final

from deathless.base.errors import (
    DeathlessError,
    Internal,
    OutOfSpace,
    PermissionRefused,
    StorageFailed,
    StorageReadOnly,
)


class Use(enum.Enum):
    """What a file is for."""

    RECORD = "frames, cuts and seals, written and synced"
    ROOM = "the spare, the next segment, more room in the present one"
    LOCK = "names of the directory lock"
    READ = "the log, checkpoints, the spool and what was adopted, read"
    CHECKPOINT = "checkpoints, written and announced; collection"
    HINT = "addresses, proofs, the witness's file, code records, the spool written"
    START = "what a replica looks at and writes before its worker starts"


class Trouble(enum.Enum):
    """What went wrong; the value is the error numbers that say so."""

    FULL = (errno.ENOSPC, errno.EDQUOT)
    READ_ONLY = (errno.EROFS,)
    FAILED = (errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ENODEV, errno.ENXIO, errno.EUCLEAN, errno.EBADMSG)
    DENIED = (errno.EACCES, errno.EPERM)


class Outcome(enum.Enum):
    """What a replica does."""

    WAITS = "goes on without, and tries again by itself"
    RESTARTS = "its worker ends and is started again, for ever; another replica takes over"
    ENDS = "stays stopped until somebody acts"


_ERROR: Final[dict[Trouble, type[DeathlessError]]] = {
    Trouble.FULL: OutOfSpace,
    Trouble.READ_ONLY: StorageReadOnly,
    Trouble.FAILED: StorageFailed,
    Trouble.DENIED: PermissionRefused,
}
_OF_A_MOUNT: Final = (
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECOMM,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.ENOLINK,
    errno.ENONET,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.EPROTO,
    errno.EREMCHG,
    errno.ESHUTDOWN,
    errno.ETIMEDOUT,
)
"""What file systems with a server say of a file when the server is away or just went; a socket says them of itself.

The kernel gives ECONNABORTED to the calls that were under way when a FUSE server ended, ENOTCONN to all after them.
"""

_OF_THIS_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""What says nothing of a file: the process or its machine lacks something just now."""

_W, _R, _E = Outcome.WAITS, Outcome.RESTARTS, Outcome.ENDS
_COLUMNS: Final = (Trouble.FULL, Trouble.READ_ONLY, Trouble.FAILED, Trouble.DENIED)
# A RECORD that met no space was allocated on a volume that had promised more than it has. What is not known to have
# reached the disk is not tried again on the same descriptor, whatever the number (I8).
_ROWS: Final = {
    Use.RECORD: (_R, _R, _R, _E),
    Use.ROOM: (_W, _W, _R, _E),
    Use.LOCK: (_W, _W, _W, _W),
    Use.READ: (_R, _R, _R, _E),
    Use.CHECKPOINT: (_W, _W, _R, _E),
    Use.HINT: (_W, _W, _W, _W),
    Use.START: (_W, _W, _W, _E),
}
OUTCOMES: Final = {
    (use, trouble): outcome for use, row in _ROWS.items() for trouble, outcome in zip(_COLUMNS, row, strict=True)
}
"""The table."""


def trouble_of(error: OSError) -> Trouble | None:
    """Give what the error says of the storage; None: it says nothing of it.

    Args:
        error: of a file when it carries a path (`shell.disk.durable`), else of anything.
    """
    for trouble in Trouble:
        if error.errno in trouble.value:
            return trouble
    return Trouble.FAILED if error.filename and error.errno in _OF_A_MOUNT else None


def waits(error: OSError, use: Use) -> bool:
    """Does the replica go on without what it met this error for?"""
    trouble = trouble_of(error)
    return trouble is not None and OUTCOMES[use, trouble] is Outcome.WAITS


def storage_error(error: OSError) -> DeathlessError | None:
    """Give one of our errors, with the file's path in its words; None: it says what stands there, or nothing of files.

    Whoever looked at a file and gets one knows nothing of what stands there.
    """
    trouble = trouble_of(error)
    what = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
    if error.errno in _OF_THIS_PROCESS:
        return Internal(f"input/output: {what}", remedy="it is retried; check the limits of the process")
    return _ERROR[trouble](what) if trouble is not None else None


def code_of(trouble: Trouble) -> str:
    """Give the code of the error that a trouble becomes."""
    return _ERROR[trouble].code
