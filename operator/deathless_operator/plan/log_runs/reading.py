"""Makes the resources of log runs from raw objects of the API server.

Guarantees: as `resource_parts`. Does not: fetch anything. Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from deathless_operator.model.log_run import LogRunResource, LogRunSpec, LogRunStatus
from deathless_operator.model.rehearsal import (
    RehearsalResource,
    RehearsalSpec,
    RehearsalStatus,
    rehearsal_problems,
)
from deathless_operator.model.replay import ReplayResource, ReplaySpec, ReplayStatus, replay_problems
from deathless_operator.model.resource_parts import spec_in, status_in
from deathless_operator.model.values import JsonObject, number, part, text
from deathless_operator.plan.service.reading import read_time

R = TypeVar("R", bound=LogRunResource)
S = TypeVar("S", bound=LogRunSpec)


def read_replay(raw: JsonObject) -> ReplayResource:
    """Read a Replay."""
    return _read(raw, ReplayResource, ReplaySpec, ReplayStatus, replay_problems)


def read_rehearsal(raw: JsonObject) -> RehearsalResource:
    """Read a Rehearsal."""
    return _read(raw, RehearsalResource, RehearsalSpec, RehearsalStatus, rehearsal_problems)


def _read(
    raw: JsonObject,
    resource: type[R],
    spec_kind: type[S],
    status_kind: type[LogRunStatus],
    problems_of: Callable[[S], Sequence[str]],
) -> R:
    spec, problems = spec_in(raw, spec_kind, problems_of)
    return resource(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        version=text(raw, "metadata", "resourceVersion"),
        generation=number(raw, "metadata", "generation"),
        service=text(raw, "spec", "serviceRef", "name"),
        spec=spec,
        problems=problems,
        deleted=read_time(part(raw, "metadata", "deletionTimestamp")) is not None,
        status=status_in(raw, status_kind),
    )
