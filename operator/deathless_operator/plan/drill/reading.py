"""Makes a DrillResource from the raw object of the API server.

Guarantees: a drill that this version can't read gives problems with place and remedy, never an error; a status that
can't be read is an empty one. Does not: fetch anything. Imports model and base only.
"""

from __future__ import annotations

from deathless_operator.model.drill import DrillResource, DrillSpec, DrillStatus, drill_problems
from deathless_operator.model.resource_parts import spec_in, status_in
from deathless_operator.model.values import JsonObject, number, part, text, texts
from deathless_operator.plan.service.reading import read_time


def read_drill(raw: JsonObject) -> DrillResource:
    """Read a FailoverDrill."""
    spec, problems = spec_in(raw, DrillSpec, drill_problems)
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
        status=status_in(raw, DrillStatus),
    )
