"""A Rehearsal: a service's log is run by the code that serves and by another image, and what differs is told.

It tells before an upgrade what callers would see otherwise behind it. Nothing is upgraded by it; a LiveUpgrade may wait
for it. It ends where the log does, or follows the log as it grows: a shadow.

Guarantees: typed spec and status, from which the CRD is generated; what one field can't show is found by
`rehearsal_problems`. Does not: run anything. Imports base alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from deathless.base.manifest_fields import told
from deathless_operator.model.log_run import EXACT_MAX, LogRunResource, LogRunSpec, LogRunStatus, Word
from deathless_operator.model.status import StatusPart

Verdict = Literal["", "Passed", "Failed", "Inconclusive"]
LIST_MAX = 64


class RehearsalSpec(LogRunSpec, frozen=True, kw_only=True):
    """Which code runs which part of which log."""

    image: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)],
        told(
            "The image with the new code. It needs this release of Deathless or a later one, as the image that serves."
        ),
    ]
    module: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^([^:]+:[A-Za-z_][A-Za-z0-9_]*)?$",
                max_length=1024,
                description="package.module:attribute or path/to/file.py:attribute",
            ),
        ],
        told("Its module and attribute in the image; when empty, those of the code that serves."),
    ] = ""
    messages: Annotated[
        Annotated[int, Meta(ge=1, le=EXACT_MAX)] | None,
        told("About so many messages are run, to the end of their frame. When absent, all that there are."),
    ] = None
    follow_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=604800)] | None,
        told(
            "The run goes on where the log ends, and follows it as it grows, for so long from when it has caught up. "
            "When absent, it ends there."
        ),
    ] = None


class RehearsedDifference(StatusPart, frozen=True):
    """All differences of one kind of one handler."""

    kind: Annotated[Word, told("What differs: ReplyDiffers, Raised, CallsDiffer, StateDiffers and so on.")]
    handler: Annotated[Word, told("The handler, by its name in the new code.")] = ""
    count: Annotated[int, Meta(ge=0), told("How often it differs.")] = 0
    lsn: Annotated[int, Meta(ge=0), told("The message that differs first; 0: the end of the run.")] = 0
    key: Annotated[Word, told("Its key.")] = ""
    expected: Annotated[Word, told("What the code that serves does there.")] = ""
    found: Annotated[Word, told("What the new code does there.")] = ""
    declared: Annotated[Word, told("Why the new code says that this is meant; when empty, it does not say so.")] = ""


class Coverage(StatusPart, frozen=True):
    """How often a handler was met."""

    handler: Annotated[Word, told("The handler.")]
    turns: Annotated[int, Meta(ge=0), told("Its turns that were compared.")] = 0
    left_out: Annotated[int, Meta(ge=0), told("Its turns that were not, since what came before them differs.")] = 0


class FollowedLog(StatusPart, frozen=True):
    """How much of the log was compared as it grew."""

    seconds: Annotated[Annotated[float, Meta(ge=0)], told("How long it was followed, once it had caught up.")] = 0.0
    messages: Annotated[int, Meta(ge=0), told("Messages that the log got in that time.")] = 0
    compared: Annotated[int, Meta(ge=0), told("How many of these were compared.")] = 0
    behind_max: Annotated[int, Meta(ge=0), told("The most messages that were ever waiting to be compared.")] = 0
    ended: Annotated[Word, told("Why it could not be followed for all of the time; when empty, it was.")] = ""


class RehearsalResult(StatusPart, frozen=True):
    """What came of a rehearsal."""

    same_code: Annotated[bool, told("Whether the image holds the code that serves.")] = False
    fingerprint: Annotated[
        Word,
        told(
            "The fingerprint of the new code, by which a LiveUpgrade knows it; when empty, an older image did not say."
        ),
    ] = ""
    by_digests: Annotated[
        bool,
        told(
            "Whether the new code ran alone, against the digests of the log; coverage then counts messages, not turns."
        ),
    ] = False
    from_version: Annotated[int, Meta(ge=0), told("The version of the code that serves.")] = 0
    to_version: Annotated[int, Meta(ge=0), told("The version of the new code.")] = 0
    messages: Annotated[int, Meta(ge=0), told("Messages that were run by both.")] = 0
    started_at: Annotated[int, Meta(ge=0), told("The lsn of the checkpoint it began with; 0: the log's beginning.")] = 0
    lsn: Annotated[int, Meta(ge=0), told("The last message that was run.")] = 0
    seconds: Annotated[Annotated[float, Meta(ge=0)], told("How long it took.")] = 0.0
    differences: Annotated[
        tuple[RehearsedDifference, ...],
        Meta(max_length=LIST_MAX),
        told("What differs, by handler; what is declared comes last."),
    ] = ()
    misfits: Annotated[
        tuple[Word, ...], Meta(max_length=LIST_MAX), told("What of the stored state or interface does not fit.")
    ] = ()
    coverage: Annotated[
        tuple[Coverage, ...], Meta(max_length=LIST_MAX), told("Handlers that were met, and how often.")
    ] = ()
    not_covered: Annotated[
        tuple[Word, ...], Meta(max_length=LIST_MAX), told("Handlers of which no turn was compared.")
    ] = ()
    left_off: Annotated[int, Meta(ge=0), told("Entries of these lists that are left out; the pod's log has all.")] = 0
    followed: Annotated[FollowedLog | None, told("How much of a growing log was compared, if it was followed.")] = None


class RehearsalStatus(LogRunStatus, frozen=True):
    """The status of a Rehearsal."""

    verdict: Annotated[
        Verdict,
        told(
            "Passed: nothing differs but what the new code declares. Failed: something does. Inconclusive: it could "
            "not be run."
        ),
    ] = ""
    result: Annotated[RehearsalResult | None, told("What came of the run.")] = None


class RehearsalResource(LogRunResource, frozen=True, kw_only=True):
    """A Rehearsal as the API server has it."""

    spec: RehearsalSpec | None
    status: RehearsalStatus = RehearsalStatus()


def rehearsal_problems(spec: RehearsalSpec) -> list[str]:
    """Find what contradicts itself; the CRD's rules refuse the same."""
    problems = []
    if spec.follow_seconds is not None and spec.messages is not None:
        problems.append("spec.messages ends a run that spec.followSeconds goes on with: leave one of them out")
    if spec.follow_seconds is not None and spec.follow_seconds >= spec.active_deadline_seconds:
        problems.append("spec.followSeconds must be less than spec.activeDeadlineSeconds: its pod is ended then")
    return problems
