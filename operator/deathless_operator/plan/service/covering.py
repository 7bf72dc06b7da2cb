"""Whether an object has to be applied: a comparison that needs no call.

An object bears the hash of what was applied last, so a change of ours is seen by the hash alone; a change by somebody
else is seen because the object no longer holds what we want. What the API server adds (defaults, status, addresses)
is not looked at; but for what EXACT names, where something more changes what is meant: one label more in a selector
and it finds no pod, an empty selector more in a NetworkPolicy and another namespace is let in.
What it stores otherwise than it was written is told from somebody's change like this:

    hash stands, body holds what we want       applied; quantities are compared by value
    hash stands, body differs                  applied again, with the generation that was seen written on it
    the same, and the generation written on    applied: the API server took what we want at that generation and changed
    it is the object's still                   nothing, so what stands there is what it makes of it
    the same, and the generation is a later    somebody changed it, before or after: applied again, as above
    one

The generation is written in the same request as the hash, and grows with every change of a body: whoever changes a
field, ours or not, has it compared anew. It is kept on the object alone, so any operator may go on from there.

Guarantees: None only when every field that we want stands there, or the API server was asked for it and keeps
something else. Does not: notice that a newer API server would keep a field that an older one dropped; the next change
of the manifest brings it. Settle rewritten fields of kinds without a generation (ConfigMap, Service, claim and the
like): those hold nothing but texts and quantities, and would be applied once a look. Imports model only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deathless_operator.model.names import APPLIED_ANNOTATION, LABEL_SERVICE, SEEN_GENERATION_ANNOTATION
from deathless_operator.model.quantity import billionths
from deathless_operator.model.values import Json, JsonObject, number, part, text
from deathless_operator.plan.snapshot import ChildView, Snapshot

QUANTITIES = ("requests", "limits")  # maps of these names hold quantities
EXACT: Mapping[str, str] = {
    "NetworkPolicy": "spec",
    "PodDisruptionBudget": "spec.selector",
    "Service": "spec.selector",
}
"""Where nothing may stand beside what we want: the path by kind."""


def covers(live: Json, wanted: Json) -> bool:
    """Tell whether `live` holds everything of `wanted`."""
    return difference(live, wanted) is None


def difference(live: Json, wanted: Json, at: str = "", *, exact: str | None = None) -> str | None:
    """Give the path of the first thing of `wanted` that `live` does not hold; None: it holds everything.

    Args:
        live: what stands there.
        wanted: what should.
        at: the path of both.
        exact: a path below which `live` may hold nothing else; None: nowhere.
    """
    if isinstance(wanted, str):  # most values are texts
        return None if live == wanted or (live is None and not wanted) else at
    if isinstance(wanted, dict):
        if live == wanted:  # so it is nearly always, and then nothing has to be looked at one by one
            return None
        # An empty object and none are the same to the API server, but for selectors, where none is another selector.
        seen = live if isinstance(live, dict) else {} if live is None else None
        closed = exact is not None and (at == exact or at.startswith(f"{exact}."))
        if seen is None or (closed and (live is None or set(seen) - set(wanted))):
            return at
        compare = _quantity_difference if at.rpartition(".")[2] in QUANTITIES else partial(difference, exact=exact)
        for key, value in wanted.items():
            path = compare(seen.get(key), value, f"{at}.{key}" if at else key)
            if path is not None:
                return path
        return None
    if isinstance(wanted, list):
        seen_list = live if isinstance(live, list) else [] if live is None else None
        if seen_list is None or len(seen_list) != len(wanted):
            return at
        for index, (one, other) in enumerate(zip(seen_list, wanted, strict=True)):
            path = difference(one, other, f"{at}[{index}]", exact=exact)
            if path is not None:
                return path
        return None
    if isinstance(wanted, bool) or isinstance(live, bool):
        # False, 0 and "" are left out by the API server.
        return None if live is wanted or (live is None and not wanted) else at
    return None if live == wanted or (live is None and wanted in (0, None)) else at


def _quantity_difference(live: Json, wanted: Json, at: str) -> str | None:
    if isinstance(live, str) and isinstance(wanted, str) and (value := billionths(wanted)) is not None:
        return None if billionths(live) == value else at
    return difference(live, wanted, at)


def is_foreign(child: ChildView, snapshot: Snapshot) -> bool:
    """Tell whether an object is somebody else's: without our label, or controlled by another owner."""
    ours = child.labels.get(LABEL_SERVICE) == snapshot.resource.name
    return not ours or child.controller_uid not in ("", snapshot.resource.uid)


def is_applied(child: ChildView, manifest: JsonObject) -> bool:
    """Tell whether an object's body is what the API server makes of a manifest; labels and the like are not looked at.

    Args:
        child: the object as it is.
        manifest: as `Objects` makes it, with its hash.
    """
    return _is_noted(child, manifest) and (_is_settled(child) or body_difference(child, manifest) is None)


def body_difference(child: ChildView, manifest: JsonObject) -> str | None:
    """Give the path of the first thing of a manifest's body that an object does not hold; None: it holds everything."""
    body: JsonObject = {key: value for key, value in manifest.items() if key != "metadata"}
    return difference(child.raw, body, exact=EXACT.get(child.kind))


def was_repeated(child: ChildView, manifest: JsonObject) -> bool:
    """Tell whether a manifest was applied to an object again already, because its body differed."""
    return _is_noted(child, manifest) and SEEN_GENERATION_ANNOTATION in child.annotations


def to_apply(child: ChildView | None, manifest: JsonObject) -> JsonObject | None:
    """Give what has to be applied to have an object hold a manifest; None: nothing.

    Args:
        child: the object as it is, None where there is none.
        manifest: as `Objects` makes it, with its hash.
    """
    if child is None or not _is_noted(child, manifest):
        return manifest
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict), "a manifest has metadata"
    if is_applied(child, manifest) and covers(child.raw.get("metadata"), metadata):
        return None
    generation = number(child.raw, "metadata", "generation")
    if not generation:
        return manifest
    annotations = part(metadata, "annotations")
    assert isinstance(annotations, dict), "its hash is one"
    noted: JsonObject = annotations | {SEEN_GENERATION_ANNOTATION: str(generation)}
    return manifest | {"metadata": metadata | {"annotations": noted}}


def _is_noted(child: ChildView, manifest: JsonObject) -> bool:
    """Tell whether the manifest's hash is the one that was applied last."""
    return child.annotations.get(APPLIED_ANNOTATION) == text(manifest, "metadata", "annotations", APPLIED_ANNOTATION)


def _is_settled(child: ChildView) -> bool:
    """Tell whether applying it at its present generation has changed nothing of its body."""
    generation = number(child.raw, "metadata", "generation")
    return generation > 0 and child.annotations.get(SEEN_GENERATION_ANNOTATION) == str(generation)
