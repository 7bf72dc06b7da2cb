"""What a tool's pod leaves as its termination message: what came of the run, as JSON that fits.

Kubernetes keeps 4,096 bytes of what a container says last, and shows them in the pod's status, where the operator reads
them. An answer that is longer would be cut in the middle and be no JSON any more.

    deathless replay --termination-file FILE       Replayed: what was run, or the first difference
    an error that is neither                       `DLnnnn text (remedy)`, as replicas leave it

Guarantees: what is written is whole; numbers are never left out, texts are cut. Does not: fail where the file can't be
written. Field names are read by operators of other releases: none is renamed, and new ones are optional.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.execution.values.failure import bounded
from deathless.shell.operate.replay import LogDiffers, ReplayResult
from deathless.shell.supervisor.termination_message import BYTES_MAX, leave_word

TEXT_BYTES: Final = 2400  # of a text, as JSON
NAME_BYTES: Final = 400


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first message that gave something else than it gave when it was logged."""

    lsn: int  # 0: not known
    handler: str = ""
    key: str = ""
    text: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What came of a replay."""

    messages: int = 0  # run
    started_at: int = 0  # lsn of the checkpoint that it began with; 0: the beginning
    lsn: int = 0  # of the last message
    keys: int = 0
    digest: str = ""
    seconds: float = 0.0
    difference: FirstDifference | None = None  # None: there is none


def of_replay(result: ReplayResult) -> Replayed:
    """Give what a replay says that found no difference."""
    return Replayed(
        messages=result.messages,
        started_at=result.started_at,
        lsn=result.lsn,
        keys=result.keys,
        digest=result.digest,
        seconds=round(result.seconds, 3),
    )


def of_difference(error: LogDiffers) -> Replayed:
    """Give what a replay says that ended at a difference."""
    return Replayed(
        messages=error.messages,
        difference=FirstDifference(
            lsn=error.lsn,
            handler=fitted(error.handler, NAME_BYTES),
            key=fitted(error.key, NAME_BYTES),
            text=fitted(error.message, TEXT_BYTES),
        ),
    )


def fitted(text: str, bytes_max: int) -> str:
    """Give a text that takes at most so many bytes as JSON, whatever is in it; what is cut off shows as three dots."""
    text = bounded(text, bytes_max)
    while len(msgspec.json.encode(text)) > bytes_max:
        over = len(msgspec.json.encode(text)) - bytes_max
        text = f"{text[: -max(over // 6, 1) - 3]}..."
    return text


def leave_outcome(path: str, outcome: msgspec.Struct) -> None:
    """Write an outcome to the file; an empty path: nowhere."""
    encoded = msgspec.json.encode(outcome)
    assert len(encoded) <= BYTES_MAX, "texts are cut so that all of it fits"
    leave_word(path, encoded.decode())
