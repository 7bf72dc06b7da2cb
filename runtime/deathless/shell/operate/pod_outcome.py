"""What a tool's pod leaves as its termination message: what came of the run, as JSON that fits.

Kubernetes keeps 4,096 bytes of what a container says last, and shows them in the pod's status, where the operator reads
them. An answer that is longer would be cut in the middle and be no JSON any more.

    deathless replay --termination-file FILE             Replayed: what was run, or the first difference
    deathless upgrade rehearse --termination-file FILE   RehearsedInPod: the verdict, what differs, what was covered
    an error that is neither                             `DLnnnn text (remedy)`, as replicas leave it

Guarantees: what is written is whole; the verdict and numbers are never left out, texts are cut, and of lists so much as
fits: what was not covered and what is declared give way first, and how many entries are left out is said. Does not:
fail where the file can't be written. Field names are read by operators of other releases: none is renamed, and new
ones are optional.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.execution.rehearsal.findings import Difference
from deathless.execution.values.failure import bounded
from deathless.shell.operate.replay import LogDiffers, ReplayResult
from deathless.shell.operate.upgrading.live_log import Followed
from deathless.shell.operate.upgrading.rehearsal import Rehearsed
from deathless.shell.supervisor.termination_message import BYTES_MAX, leave_word

TEXT_BYTES: Final = 2400  # of a text, as JSON
NAME_BYTES: Final = 400
SHORT_BYTES: Final = 150
"""Of a text of a rehearsal, of which there are many."""
LIST_MAX: Final = 64
KEPT: Final = 2  # entries of each list that stay while others have more


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


class Differs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All differences of one kind of one handler."""

    kind: str
    handler: str = ""
    lsn: int = 0  # of the first; 0: at the end of the run
    key: str = ""
    count: int = 1
    expected: str = ""
    found: str = ""
    declared: str = ""


class Covered(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How often a handler was met."""

    handler: str
    turns: int = 0
    left_out: int = 0


class FollowedInPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How much of a growing log was compared."""

    seconds: float
    messages: int = 0  # that the log got in that time
    compared: int = 0  # of these
    behind_max: int = 0
    ended: str = ""  # why it could not be followed for all of the time


class RehearsedInPod(msgspec.Struct, kw_only=True, rename="camel"):
    """What came of a rehearsal."""

    passed: bool
    same_code: bool
    from_version: int
    to_version: int
    messages: int
    started_at: int
    lsn: int
    seconds: float
    differences: list[Differs]
    misfits: list[str]
    coverage: list[Covered]
    not_covered: list[str]
    left_off: int = 0  # entries that did not fit
    fingerprint: str = ""  # of the new code, hexadecimal
    by_digests: bool = False  # compared with the log's own digests, and not with the former code beside it
    followed: FollowedInPod | None = None  # None: it ended where the log did
    shard: int = 0  # whose log it was
    of: int = 1  # how many shards the service has


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


def of_rehearsal(rehearsed: Rehearsed) -> RehearsedInPod:
    """Give what a rehearsal says, as far as it fits."""
    ordered = sorted(rehearsed.differences, key=lambda each: bool(each.declared))
    told = RehearsedInPod(
        passed=rehearsed.passed,
        same_code=rehearsed.same_code,
        fingerprint=rehearsed.fingerprint,
        by_digests=rehearsed.by_digests,
        from_version=rehearsed.from_version,
        to_version=rehearsed.to_version,
        messages=rehearsed.messages,
        started_at=rehearsed.started_at,
        lsn=rehearsed.lsn,
        seconds=round(rehearsed.seconds, 3),
        differences=[_differs(each) for each in ordered[:LIST_MAX]],
        misfits=[fitted(each.text, 2 * SHORT_BYTES) for each in rehearsed.misfits[:LIST_MAX]],
        coverage=[
            Covered(handler=fitted(each.handler, SHORT_BYTES), turns=each.turns, left_out=each.left_out)
            for each in rehearsed.coverage[:LIST_MAX]
            if each.turns
        ],
        not_covered=[fitted(each, SHORT_BYTES) for each in rehearsed.not_covered[:LIST_MAX]],
        followed=None if rehearsed.followed is None else _followed(rehearsed.followed),
        shard=rehearsed.shard,
        of=rehearsed.of,
    )
    met = len(rehearsed.coverage) - len(rehearsed.not_covered)
    all_ = len(ordered) + len(rehearsed.misfits) + len(rehearsed.not_covered) + met
    lists: tuple[list[Differs] | list[Covered] | list[str], ...] = (
        told.not_covered, told.coverage, told.misfits, told.differences
    )  # fmt: skip
    told.left_off = all_ - sum(map(len, lists))
    while len(msgspec.json.encode(told)) > BYTES_MAX:
        next(each for each in lists if len(each) > KEPT or (each and each is told.differences)).pop()
        told.left_off += 1
    return told


def _followed(followed: Followed) -> FollowedInPod:
    return FollowedInPod(
        seconds=round(followed.seconds, 3),
        messages=followed.messages,
        compared=followed.compared,
        behind_max=followed.behind_max,
        ended=fitted(followed.ended, 2 * SHORT_BYTES),
    )


def _differs(each: Difference) -> Differs:
    return Differs(
        kind=each.kind,
        handler=fitted(each.handler, SHORT_BYTES),
        lsn=each.lsn,
        key=fitted(each.key, SHORT_BYTES),
        count=each.count,
        expected=fitted(each.expected, SHORT_BYTES),
        found=fitted(each.found, SHORT_BYTES),
        declared=fitted(each.declared, SHORT_BYTES),
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
