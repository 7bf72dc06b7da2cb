"""Errors of what is stored: it is damaged, of another service or an older state, or written by other code.

`errors` draws the whole tree, and everybody imports them from there. Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import DataCorrupt


class CorruptFrame(DataCorrupt):
    """A frame fails its checksum or chain and valid frames follow it."""

    code = "DL4001"


class CorruptCheckpoint(DataCorrupt):
    """A checkpoint fails its checksum or is not on the chain; the older one is used."""

    code = "DL4002"


class LogTruncated(DataCorrupt):
    """The log ends below an LSN that is known to be confirmed, or a required file is missing."""

    code = "DL4003"


class NewerFormat(DataCorrupt):
    """Written by a newer version of Deathless."""

    code = "DL4004"
    remedy = "run the version that wrote it, or a newer one"


class NewerLevel(DataCorrupt):
    """The log has a format level that this build does not know."""

    code = "DL4021"
    remedy = "run the build that raised the level, or a newer one; `deathless version` says up to which level it reads"


class ForeignDirectory(DataCorrupt):
    """The directory belongs to another service, incarnation, fence or lock store."""

    code = "DL4005"
    remedy = "point logStorage at this service's directory, or `deathless adopt` it"


class StoreOlderThanLog(DataCorrupt):
    """The lock store was restored from a backup: the log knows a later epoch."""

    code = "DL4006"
    remedy = "`deathless adopt` follows the highest opening frame of the log"


class HalfCopy(DataCorrupt):
    """A directory contains only a part of a service: one side knows the service, the other does not."""

    code = "DL4007"


class Diverged(DataCorrupt):
    """Replay gave another digest than the one logged; message, handler and LSN are named (I6)."""

    code = "DL4008"
    remedy = "the handler is not deterministic: find the cause with `deathless check`"
    lsn: int = 0  # of the first message that differs; 0: not known


class UpgradeRequired(DataCorrupt):
    """Code, interpreter, libraries or replicated limits differ from the log's fingerprint (I6)."""

    code = "DL4009"
    exit_code = 78
    remedy = (
        "go on with the code that wrote the log: `deathless up --kept-code`, in a cluster its image; or, once that was "
        "stopped in order, upgrade to the new code: `deathless upgrade --offline`"
    )


class PeerBehind(DataCorrupt):
    """A peer asks for messages that it had already confirmed: it lost data. The connection is retried."""

    code = "DL4010"
    remedy = "if the peer was restored from a backup, create it anew and adopt it"


class CopiedDirectory(DataCorrupt):
    """The directory is a copy of another one, with its names and addresses: nothing is contacted or started from it."""

    code = "DL4011"
    remedy = (
        "`deathless adopt --as-new` makes it a service of its own; use `deathless adopt --moved` if the original is "
        "gone, or this is its backup; in scripts use `deathless up --if-copied as-new|moved`"
    )


class HistoryDiffers(DataCorrupt):
    """Two services do not agree on what one has sent to the other: one of them was copied or restored."""

    code = "DL4012"
    remedy = "find out which of the two was copied or restored; `deathless peers adopt` on both starts over"


class ServiceRolledBack(DataCorrupt):
    """The service expects a message that it has already answered: it lost what it had acknowledged."""

    code = "DL4016"
    remedy = "tell the service's operators that it was restored to an older state; find out by queries what is lost"


class OtherDirectory(DataCorrupt):
    """The two ends of a connection did not prove that they use the same directory: nothing is exchanged."""

    code = "DL4017"
    remedy = "run the command in the directory of the service; a copy of the directory is another service"


class FormerCodeMissing(DataCorrupt):
    """The code that wrote a log is not kept with it, or its interpreter is gone: it can't be started from there."""

    code = "DL4018"
    exit_code = 78
    remedy = "start it from the sources, or the image, that wrote the log; `deathless fingerprint` shows what it is"
