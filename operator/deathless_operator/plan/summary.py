"""The status of a service: counts, members, and the conditions that sum up the others.

Guarantees: equal facts give an equal status. Does not: decide what is done, or know why a replica is in trouble
(`trouble` tells first). Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from deathless_operator.model import names
from deathless_operator.model.status import Condition, ReplicaStatus, ServiceStatus
from deathless_operator.plan.actions import Event
from deathless_operator.plan.conditions import Findings, settle
from deathless_operator.plan.image_check import serving_fingerprint
from deathless_operator.plan.objects import Code
from deathless_operator.plan.pods import held, is_current, primary, replicas, serves
from deathless_operator.plan.reading import show_time
from deathless_operator.plan.snapshot import PodView, Snapshot

# In this order a condition that is bad explains why a service is not ready.
CAUSES = ("Accepted", "ObjectsOwned", "StorageReady", "LockReady", "CertificateReady", "UpgradeRequired", "Degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the sum is made of."""

    wanted: int
    suspended: bool = False
    progressing: str = ""  # CamelCase reason; empty: nothing is being made, rolled or scaled
    waits: str = ""  # sentence about what is waited for
    stalled: bool = False  # it has been waited for too long
    template: str = ""  # hash of the template that pods are to be of; empty: not known
    code: Code | None = None  # that the objects are made from
    doing: str = ""
    said: dict[str, str] | None = None  # troubled pods' words


def sum_up(snapshot: Snapshot, findings: Findings, facts: Facts) -> tuple[ServiceStatus, tuple[Event, ...]]:
    """Give the status and the events about what changed in it."""
    before = snapshot.resource.status
    pods = replicas(snapshot)
    leader = primary(pods)
    ready = sum(1 for ordinal, pod in pods.items() if ordinal < facts.wanted and serves(pod))
    _tell_sums(snapshot, pods, leader, ready, findings, facts)
    conditions, events = settle(findings, before.conditions, now=snapshot.now, generation=snapshot.resource.generation)
    status = _status(snapshot, pods, leader, ready, conditions, facts)
    # Between the old primary's pod and the new primary's word nobody may lead; then the epoch tells.
    later = status.primary != before.primary if before.primary else status.epoch > before.epoch > 0
    if status.primary and later:
        status = msgspec.structs.replace(status, last_takeover_time=show_time(snapshot.now))
        moved = Event(
            type="Normal",
            reason="PrimaryChanged",
            message=f"{status.primary} leads now, before it {before.primary or 'another'}; epoch {status.epoch}",
        )
        events = (moved, *events)
    return status, events


def _status(
    snapshot: Snapshot,
    pods: dict[int, PodView],
    leader: int | None,
    ready: int,
    conditions: tuple[Condition, ...],
    facts: Facts,
) -> ServiceStatus:
    before = snapshot.resource.status
    spoken = [pod.announced for pod in pods.values() if pod.announced is not None]
    known = max((found for found in spoken if found.service_id), key=lambda found: found.epoch, default=None)
    updated = [pod for pod in pods.values() if is_current(pod, facts.template)] if facts.template else []
    return ServiceStatus(
        observed_generation=snapshot.resource.generation,
        replicas=len(pods),
        ready_replicas=ready,
        updated_replicas=len(updated),
        selector=",".join(f"{key}={value}" for key, value in names.selector(snapshot.resource.name).items()),
        ready=f"{ready}/{facts.wanted}",
        primary=pods[leader].name if leader is not None else "",
        epoch=max([before.epoch, *(found.epoch for found in spoken)]),
        image=facts.code.image if facts.code else before.image,
        module=facts.code.module if facts.code else before.module,
        fingerprint=serving_fingerprint(snapshot),
        service_id=known.service_id if known else before.service_id,
        incarnation=known.incarnation if known else before.incarnation,
        last_takeover_time=before.last_takeover_time,
        doing=facts.doing[:1000],
        members=tuple(_member(ordinal, pod, facts.said or {}) for ordinal, pod in pods.items()),
        conditions=conditions,
    )


def _member(ordinal: int, pod: PodView, said: dict[str, str]) -> ReplicaStatus:
    spoken = pod.announced
    return ReplicaStatus(
        name=f"r{ordinal}",
        pod=pod.name,
        node=pod.node,
        role=pod.labels.get(names.LABEL_ROLE, ""),
        ready=serves(pod),
        epoch=spoken.epoch if spoken else 0,
        problem=said.get(pod.name, "")[:1000],
    )


def _tell_sums(
    snapshot: Snapshot, pods: dict[int, PodView], leader: int | None, ready: int, findings: Findings, facts: Facts
) -> None:
    """Tell the conditions that follow from the others, after all root causes were told."""
    leads = leader is not None and serves(pods[leader])
    short = f"{ready} of {facts.wanted} replicas are ready"
    if facts.stalled:
        findings.tell("Progressing", "False", "Stalled", f"waiting too long for {facts.waits}")
    elif facts.progressing:
        findings.tell("Progressing", "True", facts.progressing, facts.doing)
    else:
        findings.tell("Progressing", "False", "Done", "nothing is being changed")
    if leads:
        assert leader is not None, "somebody leads"
        findings.tell("Available", "True", "PrimaryServes", f"{pods[leader].name} leads")
    elif facts.suspended:
        findings.tell("Available", "False", "Suspended", "spec.suspend is true: nobody serves")
    elif leader is not None:
        findings.tell("Available", "False", "PrimaryNotReady", f"{pods[leader].name} led last and is not ready")
    else:
        findings.tell("Available", "False", "NoPrimary", f"no replica leads; {short}")
    if facts.suspended and not pods:
        # Before the root causes: it was asked for.
        findings.tell("Ready", "False", "Suspended", "spec.suspend is true: set it to false to start again")
    elif ready >= facts.wanted > 0 and leads:
        findings.tell("Ready", "True", "AllReplicasReady", f"{short}, {pods[leader or 0].name} leads")
    else:
        _tell_cause(findings, facts, short)
    if ready < facts.wanted and not facts.progressing:
        missing = [
            f"{pod.name} ({(facts.said or {}).get(pod.name, 'not ready')[:200]})"
            for ordinal, pod in pods.items()
            if not serves(pod) and not held(snapshot, ordinal, pod)
        ]
        findings.tell("Degraded", "True", "ReplicasMissing", f"{short}; {', '.join(missing) or 'pods are missing'}")
    else:
        findings.tell("Degraded", "False", "NotDegraded", "as many replicas serve as can be")


def _tell_cause(findings: Findings, facts: Facts, short: str) -> None:
    cause = next((findings.told[kind] for kind in CAUSES if findings.is_bad(kind)), None)
    if cause is not None:
        findings.tell("Ready", "False", cause.reason, cause.message)
    elif facts.suspended:
        findings.tell("Ready", "False", "Suspending", facts.doing)
    elif facts.waits:
        findings.tell("Ready", "False", facts.progressing or "ReplicasNotReady", f"{short}; waiting for {facts.waits}")
    else:
        findings.tell("Ready", "False", facts.progressing or "ReplicasNotReady", short)
