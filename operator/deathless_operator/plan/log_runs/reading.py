"""Makes the resources of log runs from raw objects of the API server.

Guarantees: one that this version can't read gives problems with place and remedy, never an error; a status that can't
be read is an empty one. Does not: fetch anything. Imports model and base only.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from deathless.base.schema_check import find_problems, show_path
from deathless_operator.model.rehearsal import RehearsalResource, RehearsalSpec, RehearsalStatus
from deathless_operator.model.replay import ReplayResource, ReplaySpec, ReplayStatus, replay_problems
from deathless_operator.model.values import JsonObject, number, part, text
from deathless_operator.plan.service.reading import PROBLEMS_MAX, read_time

S = TypeVar("S", bound=msgspec.Struct)


def read_replay(raw: JsonObject) -> ReplayResource:
    """Read a Replay."""
    spec, problems = _read_spec(raw, ReplaySpec)
    if spec is not None and (found := replay_problems(spec)):
        spec, problems = None, tuple(found)
    return ReplayResource(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        version=text(raw, "metadata", "resourceVersion"),
        generation=number(raw, "metadata", "generation"),
        service=text(raw, "spec", "serviceRef", "name"),
        spec=spec,
        problems=problems,
        deleted=_is_deleted(raw),
        status=_read_status(raw, ReplayStatus),
    )


def read_rehearsal(raw: JsonObject) -> RehearsalResource:
    """Read a Rehearsal."""
    spec, problems = _read_spec(raw, RehearsalSpec)
    return RehearsalResource(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        version=text(raw, "metadata", "resourceVersion"),
        generation=number(raw, "metadata", "generation"),
        service=text(raw, "spec", "serviceRef", "name"),
        spec=spec,
        problems=problems,
        deleted=_is_deleted(raw),
        status=_read_status(raw, RehearsalStatus),
    )


def _is_deleted(raw: JsonObject) -> bool:
    return read_time(part(raw, "metadata", "deletionTimestamp")) is not None


def _read_spec(raw: JsonObject, kind: type[S]) -> tuple[S | None, tuple[str, ...]]:
    found = find_problems(part(raw, "spec"), kind)
    if found:
        shown = [f"{show_path(('spec', *problem.path))}: {problem.what}; {problem.remedy}" for problem in found]
        return None, tuple(shown[:PROBLEMS_MAX])
    return msgspec.convert(part(raw, "spec"), kind), ()


def _read_status(raw: JsonObject, kind: type[S]) -> S:
    try:
        return msgspec.convert(part(raw, "status") or {}, kind)
    except msgspec.ValidationError:
        return kind()
