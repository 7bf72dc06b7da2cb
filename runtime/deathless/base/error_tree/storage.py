"""Errors of the log's storage; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid, RetryLater


class StorageReadOnly(RetryLater):
    """The log's file system is mounted read-only, or has become so; nothing can be recorded until it is writable."""

    code = "DL1012"
    remedy = "make the volume writable again; the service then continues"


class StorageFailed(RetryLater):
    """The log's storage reported an error of its own; what was being written is not retried in place (I8)."""

    code = "DL1013"
    remedy = "check the log's storage; the replica restarts automatically"


class StorageSlow(RetryLater):
    """A write to the log's storage takes much longer than it should; calls are answered, but late."""

    code = "DL1014"
    remedy = "check what else uses the volume, or move the log to a faster one"


class StorageUnfit(Invalid):
    """The log directory's file system is not suitable for the log or its fence; the message names what is missing."""

    code = "DL3027"
    exit_code = 78
    remedy = (
        "put the log on a suitable file system: a local disk, or NFS 4, CephFS or a cloud's file store (ReadWriteMany)"
    )


class VolumeTooSmall(Invalid):
    """The log's volume is smaller than the minimum on which a full log can free space; nothing was written to it."""

    code = "DL3050"
    exit_code = 78
    remedy = "give the log a larger volume, or lower limits.spareBytes, frameBytesMax and allocateBytes"
