"""From what replicas, pods and Kubernetes say is wrong to conditions and remedies.

Guarantees: every error code that stops a replica leads to one condition; words of the replica itself are kept, since
they name file, address or field. Does not: look at anything but the snapshot. Imports model and base.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deathless.base.manifest import volume_problem
from deathless_operator.model import names
from deathless_operator.model.quantity import billionths
from deathless_operator.plan.mounting import LOG_VOLUME, REASONS, secret_fields, why_not_begun
from deathless_operator.plan.service.conditions import Findings
from deathless_operator.plan.service.pods import (
    PULL_REASONS,
    container,
    every_replica,
    has_settings,
    has_token,
    held,
    primary,
    replicas,
    serves,
    trouble,
)
from deathless_operator.plan.snapshot import Announcement, ClaimView, Failure, PodView, Snapshot, Warned


class Meaning(NamedTuple):
    """What a code means for a service."""

    condition: str
    reason: str
    remedy: str


MEANINGS: Final = {
    "DL1003": Meaning("StorageReady", "OutOfSpace", "grow the volume; the service then continues"),
    "DL1004": Meaning("LockReady", "LockUnavailable", "check etcd, and the network between it and the pods"),
    "DL1007": Meaning(
        "Degraded", "OutboxFull", "bring back the peer that does not accept messages; the service then continues"
    ),
    "DL1012": Meaning("StorageReady", "ReadOnly", "make the volume writable again; the service then continues"),
    "DL1013": Meaning("StorageReady", "StorageFailed", "check the storage; the replica restarts automatically"),
    "DL1014": Meaning("Degraded", "SlowStorage", "check what else uses the volume, or move the log to a faster one"),
    "DL1015": Meaning("StorageReady", "NoInodes", "remove small files from the volume; the service then continues"),
    "DL3001": Meaning("Degraded", "InvalidConfig", "correct the named field of the spec"),
    "DL3010": Meaning("CertificateReady", "Unauthorized", "check the certificates and tokens of both sides"),
    "DL3012": Meaning("StorageReady", "PermissionRefused", "see podTemplate.securityContext.fsGroup"),
    "DL3013": Meaning("Degraded", "InvalidService", "correct spec.module, or the image"),
    "DL3020": Meaning("LockReady", "LockRefused", "see user, password and prefix of spec.lock.etcd"),
    "DL3027": Meaning("StorageReady", "StorageUnfit", "use a volume of another class; see docs/kubernetes/storage.md"),
    "DL3050": Meaning(
        "StorageReady", "VolumeTooSmall", "grow the volume, or lower limits.spareBytes, frameBytesMax and allocateBytes"
    ),
    "DL3100": Meaning("Degraded", "ProgramFailed", "correct spec.binding.command, or the image"),
    "DL3101": Meaning("Degraded", "ProgramFailed", "the program has to connect both of its ports, receivePort first"),
    "DL3102": Meaning(
        "Degraded", "ProgramFailed", "see why the program stands still, or raise its times in spec.binding"
    ),
    "DL3103": Meaning("Degraded", "ProgramFailed", "see the program's last lines in the pod's log, and its memory"),
    "DL3104": Meaning("Degraded", "ProgramFailed", "the program does not do what the protocol wants: correct it"),
    "DL3172": Meaning(
        "Degraded", "CodeEndsProcess", "remove what ends the process from the code, or give the pods more memory"
    ),
    "DL4001": Meaning("StorageReady", "CorruptFrame", "stop, keep the volume, see the runbook"),
    "DL4002": Meaning("StorageReady", "CorruptCheckpoint", "stop, keep the volume, see the runbook"),
    "DL4003": Meaning(
        "StorageReady",
        "LogTruncated",
        "mount the newer log, or `kubectl deathless adopt --restored`",
    ),
    "DL4004": Meaning("StorageReady", "NewerFormat", "use the image that wrote the log, or a newer one"),
    "DL4021": Meaning(
        "StorageReady", "NewerFormat", "use the image that raised the log's format level, or a newer one"
    ),
    "DL4005": Meaning("StorageReady", "ForeignDirectory", "point spec.logStorage at this service's own log"),
    "DL4006": Meaning("LockReady", "StoreOlderThanLog", "suspend the service, then `kubectl deathless adopt`"),
    "DL4007": Meaning(
        "StorageReady",
        "HalfCopy",
        "use the right volume and lock store; if its data is permanently lost, `kubectl deathless adopt`",
    ),
    "DL4008": Meaning("Degraded", "Diverged", "a handler is not deterministic: find it with `deathless check`"),
    "DL4009": Meaning(
        "UpgradeRequired", "OtherCode", "revert spec.image and spec.module, or `kubectl deathless upgrade --offline`"
    ),
}
# Those that say "wait": told about the service only when nobody serves.
PASSING: Final = ("DL1001", "DL1005", "DL2001", "DL2002", "DL1018")
BAD_STATUS: Final = {"UpgradeRequired": "True", "Degraded": "True"}
REMEDIES: Final = (
    ("exceeded quota", "raise the quota, or lower spec.replicas and spec.resources"),
    ("violates podsecurity", "allow what spec.podTemplate requires in the namespace, or require less there"),
    ("failed calling webhook", "check the named webhook: it does not answer"),
    ("denied", "admit objects with the label app.kubernetes.io/managed-by=deathless-operator in the named policy"),
    ("attempting to grant", "give the operator's role the rights that it grants: `helm upgrade` the chart"),
    ("is being terminated", "nothing can be created in a namespace that is being deleted"),
    ("cannot ", "the operator's role lacks this: `helm upgrade` the chart"),
)
"""What to do, by a word of the API server's; the first that fits."""
REMEDY_BY_STATUS: Final = {
    400: "correct the named field of the spec",
    403: "give the operator this right, or admit the object in the policy that refuses it",
    404: "create the named object",
    409: "another writer owns the named field: `kubectl get --show-managed-fields` shows which",
    422: "correct the named field of the spec",
}
MADE_TOGETHER_S: Final = 60.0
"""Pods of one set that are made so soon after each other may be of one attempt, in which one was refused."""

PROGRAM_SERVES: Final = "serving"
PROGRAM_REASONS: Final = {"loading": "ProgramLoading", "failing": "ProgramKeepsFailing", "ended": "ProgramEnded"}
PROGRAM_DOES: Final = {
    "loading": "is started and has not run what is logged yet",
    "failing": "ends again and again before it has served for two seconds, and is started after pauses",
    "ended": "has no process",
}
PROGRAM_REMEDY: Final = (
    "calls are logged and wait for it, nothing is lost. What to do: see the error's page, and the program's last lines "
    "in the pod's log; a message that ends it each time is found with `deathless ambrosia replay --to N` in a pod, and "
    "left out with `deathless ambrosia skip N`"
)


def tell_replicas(snapshot: Snapshot, findings: Findings, passing: frozenset[str] = frozenset()) -> dict[str, str]:
    """Tell what replicas say of themselves; gives each troubled pod's words, for members and messages.

    Args:
        snapshot: of the service.
        findings: to tell it to.
        passing: pods whose words tell of nothing wrong: an upgrade makes and leaves such pods.
    """
    said: dict[str, str] = {}
    crowded = ""
    holding: list[tuple[Snapshot, PodView]] = []  # each with its shard
    stepped: PodView | None = None
    for part, ordinal, pod in every_replica(snapshot):
        if held(part, ordinal, pod):
            continue
        if pod.announced is not None and serves(pod):
            if pod.announced.full:
                _tell_full(pod.name, findings)
            if pod.announced.outbox_full:
                crowded = crowded or pod.name
            if pod.announced.outside_held:
                holding.append((part, pod))
            if pod.announced.clock:
                stepped = stepped or pod
        if not has_settings(snapshot, pod):
            findings.tell(
                "Degraded",
                "True",
                "OtherSettings",
                f"{pod.name} does not serve, and was started with settings that differ from its template's. Such pods "
                "are recreated one at a time. What to do: nothing, unless it persists",
            )
        code, words = trouble(pod)
        pod_words = words or _pod_words(pod)
        if pod_words:
            said[pod.name] = pod_words
        if not code or code in PASSING or pod.name in passing:
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
    if holding:
        _tell_holding(holding, snapshot, findings)
    if stepped is not None and stepped.announced is not None:  # it keeps nobody from being served, so it comes last
        message = (
            f"{stepped.name}: its wall clock is {stepped.announced.clock} of the service's time, which continues "
            "unaffected: nothing expires early and no timer fires early. A step ahead is followed after five minutes. "
            "What to do: correct the clock of its node"
        )
        findings.tell("Degraded", "True", "ClockStepped", message)
    return said


def _tell_full(primary: str, findings: Findings) -> None:
    """Tell that a primary refuses calls because the log is full: it is ready, but callers are not served."""
    meaning = MEANINGS["DL1003"]
    message = (
        f"{primary}: the log is full. Calls are refused with DL1003, queries are answered, what was confirmed "
        f"is kept. What to do: {meaning.remedy}"
    )
    for kind in (meaning.condition, "Available", "Ready"):
        findings.tell(kind, "False", meaning.reason, message)


def _tell_crowded(primary: str, snapshot: Snapshot, findings: Findings) -> None:
    """Tell that a primary refuses calls because others do not confirm what it sent; they are not named on its pod."""
    meaning = MEANINGS["DL1007"]
    resource = snapshot.resource
    message = (
        f"{primary}: there is no room for messages to other services. Calls are refused with DL1007, queries are "
        f"answered, no sent message is lost. `kubectl deathless peers {resource.name} -n {resource.namespace}` shows "
        f"which peer has not confirmed them (lag) and why. What to do: {meaning.remedy}"
    )
    findings.tell(meaning.condition, "True", meaning.reason, message)
    for kind in ("Available", "Ready"):
        findings.tell(kind, "False", meaning.reason, message)


def _tell_holding(holding: list[tuple[Snapshot, PodView]], snapshot: Snapshot, findings: Findings) -> None:
    """Tell that primaries hold what goes to the outside: callers are served, and others wait for what is held."""
    part, pod = holding[0]
    whose = f"{snapshot.resource.name} -n {snapshot.resource.namespace}"
    which = f" --shard {part.shard}" if snapshot.shards > 1 else ""
    more = f", and likewise for {len(holding) - 1} more shards" if len(holding) > 1 else ""
    message = (
        f"{pod.name}: messages to other services and drivers, and activities, are held back, since the log was "
        "restored from a backup or copied. Callers are served. What to do: look at what waits, with "
        f"`kubectl deathless peers {whose}{which}` and `kubectl deathless invocations {whose}{which}`, then release "
        f"it with `kubectl deathless resume-outside {whose}{which}`{more}"
    )
    findings.tell("Degraded", "True", "OutsideHeld", message)
    findings.tell("Ready", "False", "OutsideHeld", message)


def _pod_words(pod: PodView) -> str:
    found = container(pod)
    if pod.unschedulable:
        return f"not placed: {pod.unschedulable}"
    if pod.phase == "Failed":
        return f"{pod.phase_reason or 'Failed'}: {pod.phase_message}".rstrip(": ")
    if found is None or found.running:
        return ""
    if found.reason == "OOMKilled":
        return "OOMKilled: it needed more memory than spec.resources.limits allows"
    return f"{found.waiting_reason}: {found.waiting_message}".strip(": ") if found.waiting_reason else ""


def tell_refused(snapshot: Snapshot, findings: Findings) -> None:
    """Tell which objects the API server refused, in its words, and what waits for them.

    The spec is not in force then, so the service is not Ready, even where every replica serves.
    """
    refused = (*snapshot.unread, *snapshot.hidden, *snapshot.failures)
    if not refused:
        return
    quota = all("exceeded quota" in failure.message for failure in refused)
    message = "; ".join(map(_refusal, refused))
    held = sorted({name for failure in snapshot.failures for name in failure.holds})
    waiting = f"{', '.join(held)} {'waits' if len(held) == 1 else 'wait'} for it" if held else "nothing waits for it"
    message = f"{message}. Everything else continues; {waiting}"
    reason = "QuotaExceeded" if quota else "ObjectRefused"
    findings.tell("Degraded", "True", reason, message)
    findings.tell("Ready", "False", reason, message)


def _refusal(failure: Failure) -> str:
    """Give a refusal with the API server's words and what to do about it."""
    said = failure.message.lower()
    remedy = next((found for word, found in REMEDIES if word in said), "")
    remedy = remedy or REMEDY_BY_STATUS.get(failure.status, "see its message; the operator retries each minute")
    code = f"{failure.status} {failure.reason}"
    return f"{failure.kind} {failure.name} was refused ({code}): {failure.message[:600]}. What to do: {remedy}"


def tell_tokens(snapshot: Snapshot, findings: Findings) -> None:
    """Tell which replicas can't announce themselves, since their account was deleted and made again."""
    mute = [
        pod.name for _, _, pod in every_replica(snapshot) if not has_token(snapshot, pod) and pod.deleted_at is None
    ]
    if mute:
        findings.tell(
            "Degraded",
            "True",
            "TokensEnded",
            f"ServiceAccount {snapshot.resource.name} was recreated after {', '.join(mute)} had started, and their "
            "tokens became invalid with the old one: they serve, but labels and endpoints are no longer updated. "
            "They are recreated one by one",
        )


def tell_kubernetes(snapshot: Snapshot, findings: Findings) -> None:
    """Tell what keeps Kubernetes from making pods."""
    tell_refused(snapshot, findings)
    tell_tokens(snapshot, findings)
    for warned in sorted(snapshot.warnings, key=lambda found: -found.at):
        _tell_warning(warned, findings, snapshot)
    fields = secret_fields(snapshot.resource.spec) if snapshot.resource.spec is not None else {}
    for _, _, pod in every_replica(snapshot):
        found = container(pod)
        if why := "" if pod.ready else why_not_begun(pod, snapshot.warnings, fields):
            findings.tell("Degraded", "True", "VolumeMissing", why)
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
                f"{pod.name} is not placed: {pod.unschedulable}. Add nodes, or lower its requests",
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
            f"pods can't be created: {warned.message[:800]}. "
            + (
                "Raise the quota, or lower spec.replicas and spec.resources"
                if quota
                else "See the namespace's policies"
            ),
        )
    pods = {pod.name: pod for _, _, pod in every_replica(snapshot)}
    if warned.reason in REASONS and warned.name in pods:
        pod = pods[warned.name]
        if not pod.ready and LOG_VOLUME in warned.message:
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
            findings.tell("StorageReady", "Unknown", "ClaimBeingMade", f"claim {claim_name} is being created")
        else:
            findings.tell(
                "StorageReady",
                "False",
                "ClaimNotFound",
                f"spec.logStorage.claimName names {claim_name}, which does not exist: create it (ReadWriteMany)",
            )
    elif claim.deleted_at is not None:
        findings.tell(
            "StorageReady",
            "False",
            "ClaimGoing",
            f"claim {claim.name} is marked for deletion and disappears when the last pod ends: save the log first",
        )
    elif claim.phase == "Lost":
        findings.tell("StorageReady", "False", "VolumeLost", f"the volume of claim {claim.name} is gone: restore it")
    elif "ReadWriteMany" not in claim.access_modes:
        # On one node it works, and a laptop's cluster often has nothing else.
        wrong = ", ".join(claim.access_modes) or "no access mode"
        small = _too_small(snapshot, claim)
        together = len({pod.node for _, _, pod in every_replica(snapshot) if pod.node}) <= 1
        findings.tell(
            "StorageReady",
            "True" if together else "False",
            "OneNodeOnly" if together else "NotShared",
            f"claim {claim.name} has {wrong}: replicas on several nodes need ReadWriteMany{small}",
        )
    elif claim.phase != "Bound":
        findings.tell(
            "StorageReady",
            "Unknown",
            "ClaimPending",
            f"claim {claim.name} is not bound yet; a class that binds late waits for the first pod",
        )
    else:
        small = _too_small(snapshot, claim)
        told = f"claim {claim.name}, {claim.capacity or 'of unknown size'}{small}"
        findings.tell("StorageReady", "True", "VolumeTooSmall" if small else "Bound", told)


def _too_small(snapshot: Snapshot, claim: ClaimView) -> str:
    """Say that a claim is smaller than the least; it may still serve, and replicas refuse to begin on what is smaller.

    What a claim is said to have is a number that some classes don't go by, so it holds nobody up.
    """
    spec = snapshot.resource.spec
    if spec is None:
        return ""
    size = billionths(claim.capacity or spec.log_storage.size) or 0
    lacks = volume_problem(spec, size // 10**9)
    return f". Once it is full it may remain full: {lacks}. What to do: {MEANINGS['DL3050'].remedy}" if lacks else ""


def tell_fenced(snapshot: Snapshot, findings: Findings) -> None:
    """Tell which replicas are stopped on purpose."""
    shown = [pod.name for part, ordinal, pod in every_replica(snapshot) if held(part, ordinal, pod)]
    if shown:
        findings.tell(
            "Fenced",
            "True",
            "ByAnnotation",
            f"stopped until the annotation {names.FENCED_ANNOTATION} is removed: {', '.join(shown)}",
        )
    else:
        findings.tell("Fenced", "False", "NotFenced", "no replica is stopped on purpose")


def tell_programs(snapshot: Snapshot, findings: Findings) -> None:
    """Tell how the programs of a service are whose code is one in another language; nothing where it is a module.

    A replica is not ready while its program does not serve. Here it is told why, and that callers wait where it is the
    primary's.
    """
    spec = snapshot.resource.spec
    if spec is None or spec.binding is None:
        return
    pods = replicas(snapshot)
    leader = primary(pods)
    led = pods[leader] if leader is not None else None
    _tell_leader(None if led is None or led.deleted_at is not None or spec.suspend else led, findings)
    spoken = [
        (pod.name, pod.announced)
        for part, ordinal, pod in every_replica(snapshot)
        if pod.announced is not None and not held(part, ordinal, pod)
    ]
    _tell_differing(spoken, findings)
    _tell_skipped(spoken, findings)


def _tell_leader(pod: PodView | None, findings: Findings) -> None:
    said = pod.announced.program if pod is not None and pod.announced is not None else ""
    if pod is None or pod.announced is None:
        findings.tell("ProgramReady", "Unknown", "NoPrimary", "no replica is primary, so no program leads")
    elif not said:
        findings.tell("ProgramReady", "Unknown", "ProgramUnknown", f"{pod.name} has not said yet how its program is")
    elif said == PROGRAM_SERVES:
        findings.tell("ProgramReady", "True", "ProgramServes", f"the program of {pod.name} runs what is logged")
    else:
        why = f" ({pod.announced.program_text[:800]})" if pod.announced.program_text else ""
        message = f"{pod.name}: its program {PROGRAM_DOES.get(said, said)}{why}; {PROGRAM_REMEDY}"
        for kind in ("ProgramReady", "Available", "Ready"):
            findings.tell(kind, "False", PROGRAM_REASONS.get(said, "ProgramEnded"), message)


def _tell_differing(spoken: list[tuple[str, Announcement]], findings: Findings) -> None:
    differing = [(name, said.program_differs) for name, said in spoken if said.program_differs]
    if not differing:
        findings.tell("ProgramDiffers", "False", "SameOutputs", "what programs send again is what they had sent")
        return
    name, what = differing[0]
    message = (
        f"the program of {name} sent something else when it was run again, {what[:800]}; likewise "
        f"{len(differing) - 1} more. Nothing that differs has left. What to do: look for a clock, a random number or "
        "the order of a map in it; `deathless ambrosia replay --from oldest` in a pod shows the message. This is told "
        "until the replica starts anew"
    )
    findings.tell("ProgramDiffers", "True", "OutputDiffers", message)


def _tell_skipped(spoken: list[tuple[str, Announcement]], findings: Findings) -> None:
    count = max((said.program_skips for _, said in spoken), default=0)
    if count:
        rows = "1 row" if count == 1 else f"{count} rows"
        message = (
            f"an operator has the programs skip messages of {rows}, by which they ended each time; "
            "`deathless ambrosia skip` in a pod lists them"
        )
        findings.tell("RowsSkipped", "True", "SkippedByOperator", message)
    else:
        findings.tell("RowsSkipped", "False", "NothingSkipped", "programs get every message")
