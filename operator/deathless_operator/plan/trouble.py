"""From what replicas, pods and Kubernetes say is wrong to conditions and remedies.

Guarantees: every error code that stops a replica leads to one condition; words of the replica itself are kept, since
they name file, address or field. Does not: look at anything but the snapshot. Imports model only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deathless_operator.model import names
from deathless_operator.plan.conditions import Findings
from deathless_operator.plan.pods import PULL_REASONS, container, every_replica, held, serves, trouble
from deathless_operator.plan.snapshot import PodView, Snapshot, Warned


class Meaning(NamedTuple):
    """What a code means for a service."""

    condition: str
    reason: str
    remedy: str


MEANINGS: Final = {
    "DL1003": Meaning("StorageReady", "OutOfSpace", "grow the volume; the service goes on by itself"),
    "DL1004": Meaning("LockReady", "LockUnavailable", "look at etcd, and at the network between it and the pods"),
    "DL1007": Meaning("Degraded", "OutboxFull", "bring back whoever takes nothing; the service goes on by itself"),
    "DL3001": Meaning("Degraded", "InvalidConfig", "correct what it names in the spec"),
    "DL3010": Meaning("CertificateReady", "Unauthorized", "look at certificates and token of both sides"),
    "DL3012": Meaning("StorageReady", "PermissionRefused", "see podTemplate.securityContext.fsGroup"),
    "DL3013": Meaning("Degraded", "InvalidService", "correct spec.module, or the image"),
    "DL3020": Meaning("LockReady", "LockRefused", "see user, password and prefix of spec.lock.etcd"),
    "DL3027": Meaning("StorageReady", "StorageUnfit", "use a volume of another class; see docs/kubernetes/storage.md"),
    "DL4001": Meaning("StorageReady", "CorruptFrame", "stop, keep the volume, see runbook"),
    "DL4002": Meaning("StorageReady", "CorruptCheckpoint", "stop, keep the volume, see runbook"),
    "DL4003": Meaning("StorageReady", "LogTruncated", "the volume lacks what was confirmed: mount the right one"),
    "DL4004": Meaning("StorageReady", "NewerFormat", "use the image that wrote the log, or a newer one"),
    "DL4005": Meaning("StorageReady", "ForeignDirectory", "point spec.logStorage at this service's own log"),
    "DL4006": Meaning("LockReady", "StoreOlderThanLog", "etcd was restored from a backup: `deathless adopt`"),
    "DL4007": Meaning("StorageReady", "HalfCopy", "the volume or lock store is empty or another: use the right one"),
    "DL4008": Meaning("Degraded", "Diverged", "a handler is not deterministic: `deathless check`"),
    "DL4009": Meaning("UpgradeRequired", "OtherCode", "set spec.image and spec.module back to what wrote the log"),
}
# Those that say "wait": told about the service only when nobody serves.
PASSING: Final = ("DL1001", "DL1005", "DL2001", "DL2002")
BAD_STATUS: Final = {"UpgradeRequired": "True", "Degraded": "True"}
MADE_TOGETHER_S: Final = 60.0
"""Pods of one set that are made so soon after each other may be of one attempt, in which one was refused."""


def tell_replicas(snapshot: Snapshot, findings: Findings) -> dict[str, str]:
    """Tell what replicas say of themselves; gives each troubled pod's words, for members and messages."""
    said: dict[str, str] = {}
    crowded = ""
    for part, ordinal, pod in every_replica(snapshot):
        if held(part, ordinal, pod):
            continue
        if pod.announced is not None and serves(pod):
            if pod.announced.full:
                _tell_full(pod.name, findings)
            if pod.announced.outbox_full:
                crowded = crowded or pod.name
        code, words = trouble(pod)
        pod_words = words or _pod_words(pod)
        if pod_words:
            said[pod.name] = pod_words
        if not code or code in PASSING:
            continue
        meaning = MEANINGS.get(code, Meaning("Degraded", "ReplicaFailed", f"see docs/errors/{code}.md"))
        findings.tell(
            meaning.condition,
            "True" if meaning.condition in BAD_STATUS else "False",
            meaning.reason,
            f"{pod.name}: {words[:800]}. What to do: {meaning.remedy}",
        )
    if crowded:  # behind what else degrades the service: it is told as Available and Ready too
        _tell_crowded(crowded, snapshot, findings)
    return said


def _tell_full(primary: str, findings: Findings) -> None:
    """Tell that a primary refuses calls for want of room: it is ready, and callers are not served all the same."""
    meaning = MEANINGS["DL1003"]
    message = (
        f"{primary}: the log has no room. Calls are refused with DL1003, queries are answered, what was confirmed "
        f"stays. What to do: {meaning.remedy}"
    )
    for kind in (meaning.condition, "Available", "Ready"):
        findings.tell(kind, "False", meaning.reason, message)


def _tell_crowded(primary: str, snapshot: Snapshot, findings: Findings) -> None:
    """Tell that a primary refuses calls because others do not confirm what it sent; they are not named on its pod."""
    meaning = MEANINGS["DL1007"]
    resource = snapshot.resource
    message = (
        f"{primary}: messages to other services have no room. Calls are refused with DL1007, queries are answered, "
        f"nothing that was sent is lost. `kubectl deathless peers {resource.name} -n {resource.namespace}` says who "
        f"has not confirmed them (lag) and why. What to do: {meaning.remedy}"
    )
    findings.tell(meaning.condition, "True", meaning.reason, message)
    for kind in ("Available", "Ready"):
        findings.tell(kind, "False", meaning.reason, message)


def _pod_words(pod: PodView) -> str:
    found = container(pod)
    if pod.unschedulable:
        return f"not placed: {pod.unschedulable}"
    if pod.phase == "Failed":
        return f"{pod.phase_reason or 'Failed'}: {pod.phase_message}".rstrip(": ")
    if found is None or found.running:
        return ""
    if found.reason == "OOMKilled":
        return "OOMKilled: it needs more memory than spec.resources.limits allows"
    return f"{found.waiting_reason}: {found.waiting_message}".strip(": ") if found.waiting_reason else ""


def tell_kubernetes(snapshot: Snapshot, findings: Findings) -> None:
    """Tell what keeps Kubernetes from making pods."""
    for failure in snapshot.failures:
        reason = "QuotaExceeded" if "exceeded quota" in failure.message else "ApplyRefused"
        remedy = "raise the quota, or lower spec.replicas and spec.resources" if reason == "QuotaExceeded" else ""
        findings.tell(
            "Degraded",
            "True",
            reason,
            f"{failure.kind} {failure.name} was refused: {failure.message[:800]}" + (f". {remedy}" if remedy else ""),
        )
    for warned in sorted(snapshot.warnings, key=lambda found: -found.at):
        _tell_warning(warned, findings, snapshot)
    for _, _, pod in every_replica(snapshot):
        found = container(pod)
        if found is not None and found.waiting_reason in PULL_REASONS:
            findings.tell(
                "Degraded",
                "True",
                "ImagePullFailed",
                f"{pod.name}: {found.waiting_message or found.waiting_reason}. Correct spec.image, or add "
                "podTemplate.imagePullSecrets",
            )
        if found is not None and found.reason == "OOMKilled" and not pod.ready:
            findings.tell("Degraded", "True", "OutOfMemory", f"{pod.name}: {_pod_words(pod)}")
        if pod.unschedulable:
            findings.tell(
                "Degraded",
                "True",
                "Unschedulable",
                f"{pod.name} is not placed: {pod.unschedulable}. Add nodes, or lower what it asks for",
            )


def _is_over(warned: Warned, snapshot: Snapshot) -> bool:
    """Tell whether pods that a StatefulSet was refused could be made since: all are there, or a later one of it is."""
    spec, every = snapshot.resource.spec, every_replica(snapshot)
    made = max((pod.created_at for part, _, pod in every if part.set_name == warned.name), default=0.0)
    whole = len(every) >= (spec.replicas * spec.shards if spec else 0)
    return whole or made > warned.at + MADE_TOGETHER_S


def _tell_warning(warned: Warned, findings: Findings, snapshot: Snapshot) -> None:
    if warned.kind == "StatefulSet" and warned.reason == "FailedCreate" and not _is_over(warned, snapshot):
        quota = "exceeded quota" in warned.message
        findings.tell(
            "Degraded",
            "True",
            "QuotaExceeded" if quota else "PodsRefused",
            f"pods can't be made: {warned.message[:800]}. "
            + (
                "Raise the quota, or lower spec.replicas and spec.resources"
                if quota
                else "See the namespace's policies"
            ),
        )
    pods = {pod.name: pod for _, _, pod in every_replica(snapshot)}
    if warned.reason in ("FailedMount", "FailedAttachVolume") and warned.name in pods:
        pod = pods[warned.name]
        if not pod.ready and "deathless-log" in warned.message:
            findings.tell(
                "StorageReady", "False", "MountFailed", f"{pod.name} can't mount the log: {warned.message[:800]}"
            )
    claim = snapshot.claim
    if warned.kind == "PersistentVolumeClaim" and claim is not None and claim.phase == "Pending":
        findings.tell(
            "StorageReady", "False", "ClaimPending", f"claim {claim.name} is not bound: {warned.message[:800]}"
        )


def tell_storage(snapshot: Snapshot, findings: Findings, claim_name: str, *, made_here: bool) -> None:
    """Tell how the log's volume stands."""
    claim = snapshot.claim
    if claim is None:
        if made_here:
            findings.tell("StorageReady", "Unknown", "ClaimBeingMade", f"claim {claim_name} is being made")
        else:
            findings.tell(
                "StorageReady",
                "False",
                "ClaimNotFound",
                f"spec.logStorage.claimName names {claim_name}, which is not there: create it (ReadWriteMany)",
            )
    elif claim.deleted_at is not None:
        findings.tell(
            "StorageReady",
            "False",
            "ClaimGoing",
            f"claim {claim.name} is marked for deletion and goes when the last pod ends: save the log first",
        )
    elif claim.phase == "Lost":
        findings.tell("StorageReady", "False", "VolumeLost", f"the volume of claim {claim.name} is gone: restore it")
    elif "ReadWriteMany" not in claim.access_modes:
        # On one node it works, and a laptop's cluster often has nothing else.
        wrong = ", ".join(claim.access_modes) or "no access mode"
        together = len({pod.node for _, _, pod in every_replica(snapshot) if pod.node}) <= 1
        findings.tell(
            "StorageReady",
            "True" if together else "False",
            "OneNodeOnly" if together else "NotShared",
            f"claim {claim.name} has {wrong}: replicas on several nodes need ReadWriteMany",
        )
    elif claim.phase != "Bound":
        findings.tell(
            "StorageReady",
            "Unknown",
            "ClaimPending",
            f"claim {claim.name} is not bound yet; a class that binds late waits for the first pod",
        )
    else:
        findings.tell("StorageReady", "True", "Bound", f"claim {claim.name}, {claim.capacity or 'of unknown size'}")


def tell_fenced(snapshot: Snapshot, findings: Findings) -> None:
    """Tell which replicas are stopped on purpose."""
    shown = [pod.name for part, ordinal, pod in every_replica(snapshot) if held(part, ordinal, pod)]
    if shown:
        findings.tell(
            "Fenced",
            "True",
            "ByAnnotation",
            f"stopped until the annotation {names.FENCED_ANNOTATION} is taken away: {', '.join(shown)}",
        )
    else:
        findings.tell("Fenced", "False", "NotFenced", "no replica is stopped on purpose")
