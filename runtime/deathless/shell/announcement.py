"""What a replica writes on its pod: a function of the pod as seen and of how the replica stands.

    label deathless.dev/role        the Service `NAME-primary` selects `primary` by it
    annotation deathless.dev/status what the operator reads
    annotation deathless.dev/fenced what an operator writes: "true" keeps the worker stopped

The role moves without a gap: the new primary takes its label first, then takes it off the others. So one that leads no
more keeps the label until the new one has taken it away, or for HANDED_ON_S; until then both forward to the primary.

Guarantees: a patch that is applied leaves nothing to patch; a replica that does not lead never touches another's pod;
the label is taken only from one that claims a lower epoch, and only as it was seen (resource version). Does not: send
anything. Imports msgspec only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.shell.standing import Standing

ROLE: Final = "deathless.dev/role"
REPLICA: Final = "deathless.dev/replica"
STATUS: Final = "deathless.dev/status"
FENCED: Final = "deathless.dev/fenced"
PRIMARY: Final = "primary"
HANDED_ON_S: Final = 5.0  # a label "primary" that nobody takes away is given up after this
TOLD: Final = (
    "replica", "instance", "generation", "role", "state", "epoch", "condition", "problem", "text", "fingerprint",
    "service_id", "incarnation", "since",
)  # fmt: skip
"""Fields of the status."""

Object = Mapping[str, object]


def own_patch(pod: Object, standing: Standing, *, ceased_s: float) -> dict[str, object] | None:
    """Give the patch that makes our own pod say how we stand; None: it does.

    Args:
        pod: as last seen.
        standing: how we stand.
        ceased_s: seconds since we led last; infinite if we never did.
    """
    role = label_of(standing)
    if role != PRIMARY and _text(pod, "labels", ROLE) == PRIMARY and ceased_s < HANDED_ON_S:
        role = PRIMARY
    wanted = {"labels": {ROLE: role, REPLICA: standing.replica}, "annotations": {STATUS: status_of(standing)}}
    changes: dict[str, object] = {}
    for part, values in wanted.items():
        changed = {name: value for name, value in values.items() if _text(pod, part, name) != value}
        if changed:
            changes[part] = changed
    if not changes:
        return None
    # A pod of our name that is not ours, a replacement, refuses this.
    return {"metadata": {"uid": standing.instance, **changes}}


def relief_patch(pod: Object, epoch: int) -> dict[str, object] | None:
    """Give the patch by which the primary of `epoch` takes the label off another replica's pod; None: it has none."""
    if _text(pod, "labels", ROLE) != PRIMARY or claimed_epoch(pod) >= epoch:
        return None
    return {"metadata": {"resourceVersion": resource_version(pod), "labels": {ROLE: None}}}


def label_of(standing: Standing) -> str:
    """The role as a label says it."""
    role = standing.role.lower()
    return "stopping" if standing.stopping and role != PRIMARY else role


def status_of(standing: Standing) -> str:
    """The annotation's text: the same standing gives the same text."""
    told = {name: getattr(standing, name) for name in TOLD}
    return msgspec.json.encode({**told, "role": label_of(standing)}).decode()


def is_fenced(pod: Object) -> bool:
    """Does an operator keep this replica's worker stopped?"""
    return _text(pod, "annotations", FENCED) == "true"


def claimed_epoch(pod: Object) -> int:
    """The epoch another replica's pod claims; 0: it says none."""
    try:
        status = msgspec.json.decode(_text(pod, "annotations", STATUS), type=dict[str, object])
    except msgspec.MsgspecError:
        return 0
    epoch = status.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def uid_of(pod: Object) -> str:
    """Its uid; empty: there is none."""
    return _metadata_text(pod, "uid")


def resource_version(pod: Object) -> str:
    """The version of what was seen."""
    return _metadata_text(pod, "resourceVersion")


def is_older(pod: Object, other: Object) -> bool:
    """Is `pod` an earlier view of the same object than `other`?"""
    version, known = resource_version(pod), resource_version(other)
    return uid_of(pod) == uid_of(other) and version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _metadata(pod: Object) -> Object:
    metadata = pod.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _metadata_text(pod: Object, name: str) -> str:
    value = _metadata(pod).get(name)
    return value if isinstance(value, str) else ""


def _text(pod: Object, part: str, name: str) -> str:
    values = _metadata(pod).get(part)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else ""
