"""What a replica writes on its pod: a function of the pod as seen and of how the replica stands.

    label deathless.dev/role        the Service `NAME-primary` selects `primary` by it
    label deathless.dev/serving     the Service `NAME` selects `true` by it, beside Kubernetes' own readiness
    annotation deathless.dev/status what the operator reads
    annotation deathless.dev/fenced what an operator writes: "true" keeps the worker stopped

The role moves without a gap: the new primary takes its label first, then takes it off the others. So one that leads no
more keeps the label until the new one has taken it away, or for HANDED_ON_S; until then both forward to the primary.

Readiness is asked for by the pod's own node, so a node that is gone leaves its pod an endpoint until Kubernetes gives
the node up, which takes most of a minute; meanwhile every third connection would go nowhere. So pods are made with
`serving: true`, the primary says `false` of an instance that it has not heard (core.supervisor.detection decides of
which), and a replica that serves and hears the primary takes that back for itself, at growing intervals (`Comeback`):
two that judge differently must not have endpoints come and go. A primary does it at once, or a Service might have none.
An API server that is away leaves everything as it was.

Guarantees: a patch that is applied leaves nothing to patch; a replica that does not lead never touches another's pod;
the role is taken only from one that claims a lower epoch, and callers only from the very instance that was not heard
and claims no higher one; both only as it was seen (resource version). Does not: send anything. Imports msgspec only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.backoff import next_pause
from deathless.codec.untrusted import read_json
from deathless.shell.link.standing import SERVING, Standing

ROLE: Final = "deathless.dev/role"
REPLICA: Final = "deathless.dev/replica"
SERVES: Final = "deathless.dev/serving"
STATUS: Final = "deathless.dev/status"
FENCED: Final = "deathless.dev/fenced"
PRIMARY: Final = "primary"
HANDED_ON_S: Final = 5.0  # a label "primary" that nobody takes away is given up after this
BACK_MIN_S, BACK_MAX_S = 1.0, 5.0  # between two times that a replica takes itself back in; doubles
STEADY_S: Final = 60.0  # one that was left in for so long may come back at once again
FOLLOWING: Final = frozenset({"standby", "checkpointer", "taking-over"})
TOLD: Final = (
    "replica", "instance", "generation", "role", "state", "epoch", "full", "outbox_full", "clock", "condition",
    "problem", "text", "fingerprint", "service_id", "incarnation", "since", "settings", "waits_for",
    "waits_until", "outside_held", "program",
)  # fmt: skip
"""Fields of the status."""

Object = Mapping[str, object]


class Comeback:
    """How often our own replica may take itself back in among those that are called."""

    def __init__(self) -> None:
        self._back_at = float("-inf")  # when it did last, seconds
        self._pause_s = BACK_MIN_S  # from then on

    def allowed(self, now: float, role: str = "") -> bool:
        """May it do so now, in this role?"""
        return role == PRIMARY or now - self._back_at >= self._pause_s

    def done(self, now: float) -> None:
        """It did."""
        steady = now - self._back_at >= STEADY_S
        longer_s = next_pause(self._pause_s, first_s=BACK_MIN_S, most_s=BACK_MAX_S)
        self._back_at, self._pause_s = now, BACK_MIN_S if steady else longer_s


def comes_back(pod: Object, standing: Standing) -> bool:
    """Was our own replica, which serves and hears the primary, taken out from those that are called?"""
    serves = standing.role in SERVING and standing.state == "running" and standing.led and not standing.stopping
    return serves and not is_serving(pod)


def may_wait(pod: Object, standing: Standing) -> bool:
    """Is this what the moments of a takeover bring: a role of one that led, that goes, or that follows and followed?

    Nobody is sent elsewhere for it, and a takeover needs the processors for itself.
    """
    role, seen = label_of(standing), _text(pod, "labels", ROLE)
    if role != PRIMARY and (standing.stopping or seen == PRIMARY):
        return True
    return standing.state == "running" and role in FOLLOWING and seen in FOLLOWING


def own_patch(pod: Object, standing: Standing, *, ceased_s: float, back: bool = False) -> dict[str, object] | None:
    """Give the patch that makes our own pod say how we stand; None: it does.

    Args:
        pod: as last seen.
        standing: how we stand.
        ceased_s: seconds since we led last; infinite if we never did.
        back: take it back in among those that are called.
    """
    role = label_of(standing)
    if role != PRIMARY and _text(pod, "labels", ROLE) == PRIMARY and ceased_s < HANDED_ON_S:
        role = PRIMARY
    labels = {ROLE: role, REPLICA: standing.replica} | ({SERVES: "true"} if back else {})
    wanted = {"labels": labels, "annotations": {STATUS: status_of(standing)}}
    changes: dict[str, object] = {}
    for part, values in wanted.items():
        changed = {name: value for name, value in values.items() if _text(pod, part, name) != value}
        if changed:
            changes[part] = changed
    if not changes:
        return None
    # A pod of our name that is not ours, a replacement, refuses this.
    return {"metadata": {"uid": standing.instance, **changes}}


def relief_patch(pod: Object, epoch: int, silent: str = "") -> dict[str, object] | None:
    """Give the patch by which the primary of `epoch` takes from another replica's pod what is not its any more.

    Args:
        pod: as just read.
        epoch: ours.
        silent: the instance that was not heard; empty: it was.

    Returns: None where there is nothing to take.
    """
    labels: dict[str, object] = {}
    claimed = claimed_epoch(pod)
    if _text(pod, "labels", ROLE) == PRIMARY and claimed < epoch:
        labels[ROLE] = None
    if silent and uid_of(pod) == silent and claimed <= epoch and is_serving(pod):
        labels[SERVES] = "false"
    return {"metadata": {"resourceVersion": resource_version(pod), "labels": labels}} if labels else None


def label_of(standing: Standing) -> str:
    """The role as a label says it."""
    role = standing.role.lower()
    return "stopping" if standing.stopping and role != PRIMARY else role


def status_of(standing: Standing) -> str:
    """The annotation's text: the same standing gives the same text."""
    told = {name: value for name in TOLD if (value := getattr(standing, name)) is not None}
    return msgspec.json.encode({**told, "role": label_of(standing)}).decode()


def is_fenced(pod: Object) -> bool:
    """Does an operator keep this replica's worker stopped?"""
    return _text(pod, "annotations", FENCED) == "true"


def is_serving(pod: Object) -> bool:
    """Are callers sent to it, as far as the label says? One without the label is older than the label is."""
    return _text(pod, "labels", SERVES) != "false"


def claimed_epoch(pod: Object) -> int:
    """The epoch another replica's pod claims; 0: it says none."""
    try:
        status = read_json(_text(pod, "annotations", STATUS).encode(errors="replace"), dict[str, object])
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
