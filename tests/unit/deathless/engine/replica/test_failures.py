"""Whatever is raised becomes an error with a code: what an operator reads when a replica has stopped (I8)."""

from __future__ import annotations

import errno

import pytest

from deathless.base.errors import Deposed, Internal, OutOfSpace, PermissionRefused, StorageFailed, StorageReadOnly
from deathless.engine.replica.failures import as_ours


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "full", "log/x"), OutOfSpace),
        (OSError(errno.EDQUOT, "full"), OutOfSpace),
        (OSError(errno.EROFS, "read-only"), StorageReadOnly),
        (OSError(errno.EACCES, "denied"), PermissionRefused),
        (OSError(errno.ENOTCONN, "away", "log/x"), StorageFailed),
        (OSError(errno.ENOTCONN, "a socket"), Internal),
        (OSError(errno.EIO, "io"), StorageFailed),
        (KeyError("x"), Internal),
        (Deposed("x"), Deposed),
    ],
)
def test_whatever_is_raised_becomes_one_of_our_errors(error: Exception, kind: type[Exception]) -> None:
    ours = as_ours(error, "a test")
    assert isinstance(ours, kind)
    if isinstance(error, OSError) and error.filename:
        assert "log/x" in ours.message
