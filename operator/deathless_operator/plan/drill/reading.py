"""Makes a DrillResource from the raw object of the API server.

Guarantees: a drill that this version can't read gives problems with place and remedy, never an error; a status that
can't be read is an empty one. Does not: fetch anything. Imports model and base only.
"""

from __future__ import annotations

import msgspec

from deathless.base.schema_check import find_problems, show_path
from deathless_operator.model.drill import DrillResource, DrillSpec, DrillStatus, drill_problems
from deathless_operator.model.values import JsonObject, number, part, text, texts
from deathless_operator.plan.service.reading import read_time

PROBLEMS_MAX = 8


def read_drill(raw: JsonObject) -> DrillResource:
    """Read a FailoverDrill."""
    spec, problems = _read_spec(raw)
    finalizers = part(raw, "metadata", "finalizers")
    return DrillResource(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        generation=number(raw, "metadata", "generation"),
        spec=spec,
        problems=problems,
        labels=texts(raw, "metadata", "labels"),
        annotations=texts(raw, "metadata", "annotations"),
        finalizers=tuple(one for one in finalizers if isinstance(one, str)) if isinstance(finalizers, list) else (),
        deleted=read_time(part(raw, "metadata", "deletionTimestamp")) is not None,
        created_at=read_time(part(raw, "metadata", "creationTimestamp")) or 0.0,
        status=_read_status(raw),
    )


def _read_spec(raw: JsonObject) -> tuple[DrillSpec | None, tuple[str, ...]]:
    found = find_problems(part(raw, "spec"), DrillSpec)
    if found:
        shown = [f"{show_path(('spec', *problem.path))}: {problem.what}; {problem.remedy}" for problem in found]
        return None, tuple(shown[:PROBLEMS_MAX])
    spec = msgspec.convert(part(raw, "spec"), DrillSpec)
    problems = drill_problems(spec)
    return (None, tuple(problems)) if problems else (spec, ())


def _read_status(raw: JsonObject) -> DrillStatus:
    try:
        return msgspec.convert(part(raw, "status") or {}, DrillStatus)
    except msgspec.ValidationError:
        return DrillStatus()
