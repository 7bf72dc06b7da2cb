"""Makes the views of a snapshot from raw objects of the API server.

Guarantees: never raises on an object of a foreign or newer shape; what can't be read is empty. Times are wall seconds.
Does not: fetch anything. Imports model and base only.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, cast

import msgspec

from deathless.codec.untrusted import read_json
from deathless_operator.model.live_upgrade import (
    LiveUpgradeResource,
    LiveUpgradeSpec,
    LiveUpgradeStatus,
    live_upgrade_problems,
)
from deathless_operator.model.names import FENCED_ANNOTATION
from deathless_operator.model.resource_parts import spec_in, status_in
from deathless_operator.model.service import read_spec, read_status
from deathless_operator.model.values import Json, JsonObject, number, objects, part, text, texts
from deathless_operator.plan.schedule import ScheduleError, next_due
from deathless_operator.plan.snapshot import (
    Announcement,
    ChildView,
    ClaimView,
    ContainerView,
    IssuerFacts,
    NodeView,
    PodView,
    ResourceView,
    Warned,
)

ANNOUNCEMENT_BYTES_MAX: Final = 1 << 16
TIME_MAX: Final = 1 << 33  # seconds that a calendar still has
# What a status holds of an announcement has these bounds there; the API server refuses a status that breaks them.
COUNT_MAX: Final = (1 << 63) - 1
WORD_MAX: Final = 64  # characters
TEXT_MAX: Final = 4096
SECONDS_MAX: Final = 253402300799.0  # the last second of the year 9999, which a timestamp can tell
CLOCKS_APART_S: Final = 60.0
"""Clocks of machines that wrote a time and read it differ by this, seconds; by more, and one of them is wrong."""
TAINTS_OF_LOSS: Final = ("node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service")


def read_time(value: Json) -> float | None:
    """Give a timestamp of the API server as wall seconds; None where there is none."""
    if not isinstance(value, str):
        return None
    try:
        return dt.datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return None


def has_been(value: str, now: float) -> bool:
    """Tell whether a text is a time that has come by now, or would have by the clock of another operator."""
    at = read_time(value)
    return at is not None and at <= now + CLOCKS_APART_S


def show_time(at: float) -> str:
    """Give wall seconds as the API server writes them."""
    return dt.datetime.fromtimestamp(int(at), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_resource(raw: JsonObject) -> ResourceView:
    """Read a DeathlessService."""
    spec, problems = read_spec(raw)
    finalizers = part(raw, "metadata", "finalizers")
    return ResourceView(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        generation=number(raw, "metadata", "generation"),
        spec=spec,
        problems=problems,
        labels=texts(raw, "metadata", "labels"),
        annotations=texts(raw, "metadata", "annotations"),
        finalizers=tuple(item for item in finalizers if isinstance(item, str)) if isinstance(finalizers, list) else (),
        deleted_at=read_time(part(raw, "metadata", "deletionTimestamp")),
        status=read_status(raw),
        created_at=read_time(part(raw, "metadata", "creationTimestamp")) or 0.0,
    )


def read_live_upgrade(raw: JsonObject) -> LiveUpgradeResource:
    """Read a LiveUpgrade; a spec that this version can't read has problems, such a status is an empty one."""
    spec, problems = spec_in(raw, LiveUpgradeSpec, _upgrade_problems)
    return LiveUpgradeResource(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        version=text(raw, "metadata", "resourceVersion"),
        generation=number(raw, "metadata", "generation"),
        service=text(raw, "spec", "serviceRef", "name"),
        spec=spec,
        problems=problems,
        annotations=texts(raw, "metadata", "annotations"),
        deleted=read_time(part(raw, "metadata", "deletionTimestamp")) is not None,
        created_at=read_time(part(raw, "metadata", "creationTimestamp")) or 0.0,
        status=status_in(raw, LiveUpgradeStatus),
    )


def _upgrade_problems(spec: LiveUpgradeSpec) -> list[str]:
    problems = live_upgrade_problems(spec)
    if spec.window is not None and not problems:
        try:
            next_due(spec.window.schedule, spec.window.time_zone, 0.0)
        except ScheduleError as error:
            problems = [f"spec.window: {error}"]
    return problems


def read_child(raw: JsonObject) -> ChildView:
    """Read any other object; apiVersion and kind must stand in it."""
    owners = objects(raw, "metadata", "ownerReferences")
    return ChildView(
        api_version=text(raw, "apiVersion"),
        kind=text(raw, "kind"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        raw=raw,
        labels=texts(raw, "metadata", "labels"),
        annotations=texts(raw, "metadata", "annotations"),
        owner_uids=tuple(text(owner, "uid") for owner in owners),
        controller_uid=next((text(owner, "uid") for owner in owners if owner.get("controller") is True), ""),
        deleted_at=read_time(part(raw, "metadata", "deletionTimestamp")),
    )


def read_announcement(value: str) -> Announcement | None:
    """Read the annotation that a replica's announcer writes; None where there is none or it is broken.

    Anybody who may patch the pod can write it, so a field that can't be true is read as empty.
    """
    if not value or len(value) > ANNOUNCEMENT_BYTES_MAX:
        return None
    try:
        found = cast("Json", read_json(value.encode(), object))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not isinstance(found, dict):
        return None
    told = found.get("program")
    program = told if isinstance(told, dict) else {}
    return Announcement(
        replica=text(found, "replica"),
        instance=text(found, "instance"),
        role=text(found, "role"),
        epoch=_count(found, "epoch"),
        full=found.get("full") is True,
        outbox_full=found.get("outbox_full") is True,
        outside_held=found.get("outside_held") is True,
        clock=text(found, "clock"),
        condition=text(found, "condition"),
        problem=text(found, "problem"),
        text=text(found, "text"),
        fingerprint=_word(found, "fingerprint", TEXT_MAX),
        service_id=_word(found, "service_id", WORD_MAX),
        incarnation=_count(found, "incarnation"),
        settings=text(found, "settings"),
        waits_for=_count(found, "waits_for"),
        waits_until=max(0, min(number(found, "waits_until"), TIME_MAX)),
        since=_moment(found.get("since")),
        program=_word(program, "state", WORD_MAX),
        program_text=_word(program, "text", TEXT_MAX),
        program_differs=_word(program, "differs", TEXT_MAX),
        program_skips=_count(program, "skipped"),
    )


def _count(found: JsonObject, key: str) -> int:
    value = number(found, key)
    return value if 0 <= value <= COUNT_MAX else 0


def _word(found: JsonObject, key: str, length_max: int) -> str:
    value = text(found, key)
    return value if len(value) <= length_max else ""


def _moment(value: Json) -> float:
    """Read wall seconds, as a number or as a timestamp; 0 where there are none."""
    seconds = value if isinstance(value, int | float) and not isinstance(value, bool) else read_time(value) or 0.0
    return float(seconds) if 0 <= seconds <= SECONDS_MAX else 0.0


def read_pod(raw: JsonObject) -> PodView:
    """Read a pod."""
    child = read_child(raw)
    conditions = {text(found, "type"): found for found in objects(raw, "status", "conditions")}
    placed = conditions.get("PodScheduled", {})
    return PodView(
        name=child.name,
        uid=child.uid,
        node=text(raw, "spec", "nodeName"),
        phase=text(raw, "status", "phase") or "Pending",
        ready=text(conditions.get("Ready", {}), "status") == "True",
        ready_since=read_time(part(conditions.get("Ready", {}), "lastTransitionTime")) or 0.0,
        labels=child.labels,
        annotations=child.annotations,
        announced=read_announcement(child.annotations.get("deathless.dev/status", "")),
        containers=tuple(
            _container(found)
            for kind in ("containerStatuses", "initContainerStatuses")
            for found in objects(raw, "status", kind)
        ),
        created_at=read_time(part(raw, "metadata", "creationTimestamp")) or 0.0,
        deleted_at=child.deleted_at,
        controller_uid=child.controller_uid,
        unschedulable=text(placed, "message") if text(placed, "status") == "False" else "",
        phase_reason=text(raw, "status", "reason"),
        phase_message=text(raw, "status", "message"),
        mounts=read_mounts(part(raw, "spec")),
    )


def read_mounts(spec: Json) -> frozenset[tuple[str, str]]:
    """Read which ConfigMaps and Secrets the volumes of a pod's spec hold: kind and name of each."""
    found: set[tuple[str, str]] = set()
    for volume in objects(spec, "volumes"):
        for source in (volume, *objects(volume, "projected", "sources")):
            found |= {("ConfigMap", text(source, "configMap", "name")), ("Secret", text(source, "secret", "name"))}
            found.add(("Secret", text(source, "secret", "secretName")))
    return frozenset(each for each in found if each[1])


def _container(raw: JsonObject) -> ContainerView:
    ended = part(raw, "state", "terminated")
    last = ended if isinstance(ended, dict) else part(raw, "lastState", "terminated")
    return ContainerView(
        name=text(raw, "name"),
        image=text(raw, "image"),
        running=isinstance(part(raw, "state", "running"), dict),
        waiting_reason=text(raw, "state", "waiting", "reason"),
        waiting_message=text(raw, "state", "waiting", "message"),
        exit_code=number(last, "exitCode") if isinstance(last, dict) else None,
        message=text(last, "message"),
        reason=text(last, "reason"),
        finished_at=read_time(part(last, "finishedAt")),
        terminated=isinstance(ended, dict),
        restarts=number(raw, "restartCount"),
    )


def read_node(raw: JsonObject) -> NodeView:
    """Read a node."""
    found = next((item for item in objects(raw, "status", "conditions") if text(item, "type") == "Ready"), {})
    state = text(found, "status")
    taints = {text(taint, "key") for taint in objects(raw, "spec", "taints")}
    return NodeView(
        name=text(raw, "metadata", "name"),
        ready=state == "True",
        unready_since=None if state == "True" else read_time(part(found, "lastTransitionTime")),
        unreachable=state == "Unknown" or bool(taints.intersection(TAINTS_OF_LOSS)),
        cordoned=part(raw, "spec", "unschedulable") is True,
    )


def read_condition(raw: JsonObject, kind: str) -> JsonObject:
    """Give a condition of an object's status; empty where there is none, or one of an older generation."""
    found = next((item for item in objects(raw, "status", "conditions") if text(item, "type") == kind), {})
    seen, made = number(found, "observedGeneration"), number(raw, "metadata", "generation")
    return found if not seen or seen >= made else {}


def read_issuer(raw: JsonObject) -> IssuerFacts:
    """Read an Issuer or ClusterIssuer of cert-manager."""
    found = read_condition(raw, "Ready")
    told = text(found, "message") or "cert-manager has not looked at it yet"
    return IssuerFacts(ready=text(found, "status") == "True", message=told)


def read_claim(raw: JsonObject) -> ClaimView:
    """Read a PersistentVolumeClaim."""
    child = read_child(raw)
    modes = part(raw, "spec", "accessModes")
    return ClaimView(
        name=child.name,
        uid=child.uid,
        phase=text(raw, "status", "phase") or "Pending",
        access_modes=tuple(mode for mode in modes if isinstance(mode, str)) if isinstance(modes, list) else (),
        capacity=text(raw, "status", "capacity", "storage"),
        storage_class=text(raw, "spec", "storageClassName"),
        deleted_at=child.deleted_at,
        owner_uids=child.owner_uids,
        created_at=read_time(part(raw, "metadata", "creationTimestamp")) or 0.0,
    )


def read_warning(raw: JsonObject) -> Warned | None:
    """Read an event; None where it is no warning."""
    if text(raw, "type") != "Warning":
        return None
    times = (
        part(raw, "series", "lastObservedTime"),
        part(raw, "lastTimestamp"),
        part(raw, "eventTime"),
        part(raw, "metadata", "creationTimestamp"),
    )
    regarding = "involvedObject" if "involvedObject" in raw else "regarding"
    return Warned(
        kind=text(raw, regarding, "kind"),
        name=text(raw, regarding, "name"),
        reason=text(raw, "reason"),
        message=text(raw, "message") or text(raw, "note"),
        at=next((at for at in map(read_time, times) if at is not None), 0.0),
    )


def is_fenced(pod: PodView) -> bool:
    """Tell whether the fencing annotation stands on a pod."""
    return pod.annotations.get(FENCED_ANNOTATION) == "true"
