"""A Replay: a service's log is run again by the service's own image, and each message compared with what was logged.

It finds handlers that are not functions of state and arguments, and a machine or a library that gives other results,
before a takeover does.

Guarantees: typed spec and status, from which the CRD is generated; what one field can't show is found by
`replay_problems`. Does not: run anything. Imports base alone.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from deathless.base.manifest_fields import told
from deathless_operator.model.log_run import LogRunResource, LogRunSpec, LogRunStatus, Lsn, Word
from deathless_operator.model.status import StatusPart


class ReplaySpec(LogRunSpec, frozen=True):
    """Which part of which log is run."""

    to_lsn: Annotated[Lsn | None, told("The last message that is run. When absent, the last confirmed one.")] = None


class FirstDifference(StatusPart, frozen=True):
    """The first message that gave another state or reply than when it was logged."""

    lsn: Annotated[int, Meta(ge=0), told("Its lsn; 0 when it is not known.")] = 0
    handler: Annotated[Word, told("Its handler.")] = ""
    key: Annotated[Word, told("Its key.")] = ""
    message: Annotated[str, Meta(max_length=4096), told("What it gives now, and what is known of what it gave.")] = ""


class ReplayResult(StatusPart, frozen=True):
    """What came of a run."""

    messages: Annotated[int, Meta(ge=0), told("Messages that were run and gave what they gave.")] = 0
    started_at: Annotated[int, Meta(ge=0), told("The lsn of the checkpoint it began with; 0: the log's beginning.")] = 0
    lsn: Annotated[int, Meta(ge=0), told("The last message that was run.")] = 0
    keys: Annotated[int, Meta(ge=0), told("Keys that there are at the end.")] = 0
    digest: Annotated[str, Meta(max_length=128), told("The digest of all states at the end.")] = ""
    seconds: Annotated[Annotated[float, Meta(ge=0)], told("How long it took.")] = 0.0
    first_difference: Annotated[FirstDifference | None, told("Where the run ended, if something differs.")] = None


class ReplayStatus(LogRunStatus, frozen=True):
    """The status of a Replay."""

    result: Annotated[ReplayResult | None, told("What came of the run.")] = None


class ReplayResource(LogRunResource, frozen=True, kw_only=True):
    """A Replay as the API server has it."""

    spec: ReplaySpec | None
    status: ReplayStatus = ReplayStatus()


def replay_problems(spec: ReplaySpec) -> list[str]:
    """Find what contradicts itself; the CRD's rules refuse the same."""
    if spec.from_lsn is not None and spec.to_lsn is not None and spec.to_lsn < spec.from_lsn:
        return ["spec.toLsn must not be below spec.fromLsn"]
    return []
