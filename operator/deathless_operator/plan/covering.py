"""Whether an object has to be applied: a comparison that needs no call.

An object bears the hash of what was applied last, so a change of ours is seen by the hash alone; a change by somebody
else is seen because the object no longer holds what we want. What the API server adds (defaults, status, addresses)
is not looked at.

Guarantees: False only when every field that we want stands there. Does not: normalise quantities and the like; such a
field is applied again and again, which the API server takes without a change. Imports model only.
"""

from __future__ import annotations

from deathless_operator.model.names import APPLIED_ANNOTATION, LABEL_SERVICE
from deathless_operator.model.values import Json, JsonObject, text
from deathless_operator.plan.snapshot import ChildView, Snapshot


def covers(live: Json, wanted: Json) -> bool:
    """Tell whether `live` holds everything of `wanted`."""
    if isinstance(wanted, dict):
        # An empty object and none are the same to the API server.
        seen = live if isinstance(live, dict) else {} if live is None else None
        return seen is not None and all(covers(seen.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        seen_list = live if isinstance(live, list) else [] if live is None else None
        return (
            seen_list is not None
            and len(seen_list) == len(wanted)
            and all(covers(one, other) for one, other in zip(seen_list, wanted, strict=True))
        )
    if isinstance(wanted, bool) or isinstance(live, bool):
        # False, 0 and "" are left out by the API server.
        return live is wanted or (live is None and not wanted)
    return live == wanted or (live is None and wanted in ("", 0, None))


def is_foreign(child: ChildView, snapshot: Snapshot) -> bool:
    """Tell whether an object is somebody else's: without our label, or controlled by another owner."""
    ours = child.labels.get(LABEL_SERVICE) == snapshot.resource.name
    return not ours or child.controller_uid not in ("", snapshot.resource.uid)


def needs_apply(child: ChildView | None, manifest: JsonObject) -> bool:
    """Tell whether a manifest has to be applied.

    Args:
        child: the object as it is, None where there is none.
        manifest: as `Objects` makes it, with its hash.
    """
    if child is None:
        return True
    wanted = text(manifest, "metadata", "annotations", APPLIED_ANNOTATION)
    return child.annotations.get(APPLIED_ANNOTATION) != wanted or not covers(child.raw, manifest)
