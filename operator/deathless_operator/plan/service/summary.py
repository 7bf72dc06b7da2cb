"""The status of a service: counts, members, and the conditions that sum up the others.

Guarantees: equal facts give an equal status. Does not: decide what is done, or know why a replica is in trouble
(`trouble` tells first). Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from deathless_operator.model import names
from deathless_operator.model.status import Condition, ReplicaStatus, ServiceStatus, ShardStatus
from deathless_operator.plan.actions import Event
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service.conditions import Findings, settle
from deathless_operator.plan.service.objects import Code
from deathless_operator.plan.service.pods import held, is_current, primary, replicas, serves
from deathless_operator.plan.service.reading import has_been, show_time
from deathless_operator.plan.service.upgrading.accepted import accepted_with, serving_fingerprint, told_of, upgrades_to
from deathless_operator.plan.snapshot import PodView, Snapshot

# In this order a condition that is bad explains why a service is not ready.
CAUSES = (
    "Accepted", "ObjectsOwned", "StorageReady", "LockReady", "CertificateReady", "UpgradeRequired", "ProgramReady",
    "Degraded",
)  # fmt: skip
# Where one of these is bad the spec is not in force, though every replica may serve.
OF_THE_SPEC = ("Accepted", "ObjectsOwned", "LockReady", "CertificateReady", "UpgradeRequired")
# Reasons that tell of the future: what was issued is as the spec asks, and goes on.
IN_FORCE = ("NoAuthority", "RenewalOverdue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the sum is made of."""

    wanted: int  # replicas of each shard
    suspended: bool = False
    progressing: str = ""  # CamelCase reason; empty: nothing is being made, rolled or scaled
    waits: str = ""  # sentence about what is waited for
    stalled: bool = False  # it has been waited for too long
    templates: tuple[str, ...] = ()  # by shard: hash of the template that pods are to be of; empty: not known
    codes: tuple[Code, ...] = ()  # by shard: that the objects are made from; empty: not known
    behind: tuple[str, ...] = ()  # by shard: mark of the spec's code, where that is no order; empty: not known
    doing: str = ""
    said: dict[str, str] | None = None  # troubled pods' words
    passing: frozenset[str] = frozenset()  # pods whose words tell of nothing wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """How a shard stands."""

    part: Snapshot
    pods: dict[int, PodView]
    leader: int | None  # ordinal
    ready: int

    @property
    def leads(self) -> bool:
        """Whether its primary serves."""
        return self.leader is not None and serves(self.pods[self.leader])

    @property
    def primary(self) -> str:
        """The pod that leads it; empty: none."""
        return self.pods[self.leader].name if self.leader is not None else ""


def sum_up(
    snapshot: Snapshot, findings: Findings, facts: Facts, safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS
) -> tuple[ServiceStatus, tuple[Event, ...]]:
    """Give the status and the events about what changed in it."""
    shards = [_shard(part, facts) for part in snapshot.parts()]
    _tell_sums(shards, findings, facts, safeguards)
    before = snapshot.resource.status.conditions
    conditions, events = settle(findings, before, now=snapshot.now, generation=snapshot.resource.generation)
    told = [_shard_status(shard, facts) for shard in shards]
    status = _status(snapshot, shards, [status for status, _ in told], conditions, facts)
    return status, (*(event for _, event in told if event is not None), *events)


def _shard(part: Snapshot, facts: Facts) -> _Shard:
    pods = replicas(part)
    ready = sum(1 for ordinal, pod in pods.items() if ordinal < facts.wanted and serves(pod))
    return _Shard(part=part, pods=pods, leader=primary(pods), ready=ready)


def _shard_status(shard: _Shard, facts: Facts) -> tuple[ShardStatus, Event | None]:
    """Give a shard's status, and the event that tells of a new primary."""
    before, now = told_of(shard.part), shard.part.now
    code = facts.codes[shard.part.shard] if facts.codes else None
    behind = facts.behind[shard.part.shard] if facts.behind else ""
    spoken = [pod.announced for pod in shard.pods.values() if pod.announced is not None]
    known = max((found for found in spoken if found.service_id), key=lambda found: found.epoch, default=None)
    status = ShardStatus(
        shard=shard.part.shard,
        ready=f"{shard.ready}/{facts.wanted}",
        primary=shard.primary,
        epoch=_epoch(shard, before.epoch),
        service_id=known.service_id if known else before.service_id,
        incarnation=known.incarnation if known else before.incarnation,
        last_takeover_time=_moved_at(shard, before.last_takeover_time),
        image=code.image if code else before.image,
        module=code.module if code else before.module,
        accepted_with=accepted_with(code, behind) if code else before.accepted_with,
        fingerprint=serving_fingerprint(shard.part),
    )
    # Between the old primary's pod and the new primary's word nobody may lead; then the epoch tells.
    later = status.primary != before.primary if before.primary else status.epoch > before.epoch > 0
    if not (status.primary and later):
        return status, None
    moved = Event(
        type="Normal",
        reason="PrimaryChanged",
        message=f"{status.primary} is primary now, before it {before.primary or 'another'}; epoch {status.epoch}",
    )
    return msgspec.structs.replace(status, last_takeover_time=show_time(now)), moved


def _epoch(shard: _Shard, before: int) -> int:
    """Give the epoch that is told: the primary's word counts, or a number written by hand would stand for ever."""
    spoken = [pod.announced.epoch for pod in shard.pods.values() if pod.announced is not None]
    if shard.leads and spoken:
        return max(spoken)
    return max([before, *spoken])


def _moved_at(shard: _Shard, before: str) -> str:
    """Give when the primary changed last, as it was told; one that is no time, or is to come, was written by hand."""
    if not before or has_been(before, shard.part.now):
        return before
    leader = shard.pods[shard.leader].announced if shard.leader is not None else None
    since = leader.since if leader is not None else 0.0
    return show_time(min(since or shard.part.now, shard.part.now))


def _status(
    snapshot: Snapshot,
    shards: list[_Shard],
    told: list[ShardStatus],
    conditions: tuple[Condition, ...],
    facts: Facts,
) -> ServiceStatus:
    last = told[-1]  # of several shards the last one is upgraded last
    ready, several = sum(shard.ready for shard in shards), len(shards) > 1
    updated = [
        pod
        for shard, template in zip(shards, facts.templates, strict=False)
        for pod in _counted(shard, facts)
        if is_current(pod, template)
    ]
    return ServiceStatus(
        observed_generation=snapshot.resource.generation,
        replicas=sum(len(_counted(shard, facts)) for shard in shards),
        ready_replicas=ready,
        updated_replicas=len(updated),
        selector=",".join(f"{key}={value}" for key, value in names.selector(snapshot.resource.name).items()),
        ready=f"{ready}/{facts.wanted * len(shards)}",
        primary=_led(shards) if several else told[0].primary,
        epoch=max(one.epoch for one in told),
        image=last.image,
        module=last.module,
        accepted_with=last.accepted_with,
        fingerprint=last.fingerprint,
        service_id="" if several else told[0].service_id,
        incarnation=0 if several else told[0].incarnation,
        last_takeover_time=max(one.last_takeover_time for one in told),
        doing=facts.doing[:1000],
        shards=tuple(told) if several else (),
        members=tuple(
            _member(shard.part, ordinal, pod, facts.said or {})
            for shard in shards
            for ordinal, pod in shard.pods.items()
        ),
        conditions=conditions,
    )


def _counted(shard: _Shard, facts: Facts) -> list[PodView]:
    """Give the pods that count as replicas: those that an upgrade needs besides do not."""
    return [pod for ordinal, pod in shard.pods.items() if ordinal < facts.wanted or not upgrades_to(pod)]


def _led(shards: list[_Shard]) -> str:
    """Say how many shards are led, as a column shows it."""
    return f"{sum(shard.leader is not None for shard in shards)} of {len(shards)} shards led"


def _member(part: Snapshot, ordinal: int, pod: PodView, said: dict[str, str]) -> ReplicaStatus:
    spoken = pod.announced
    return ReplicaStatus(
        name=names.member(ordinal, part.shard, part.shards),
        pod=pod.name,
        node=pod.node,
        role=pod.labels.get(names.LABEL_ROLE, ""),
        ready=serves(pod),
        epoch=spoken.epoch if spoken else 0,
        program=spoken.program[:63] if spoken else "",
        problem=said.get(pod.name, "")[:1000],
    )


def _tell_sums(shards: list[_Shard], findings: Findings, facts: Facts, safeguards: PlanSafeguards) -> None:
    """Tell the conditions that follow from the others, after all root causes were told."""
    ready, wanted = sum(shard.ready for shard in shards), facts.wanted * len(shards)
    whole = all(shard.ready >= facts.wanted > 0 for shard in shards)
    leads = all(shard.leads for shard in shards)
    led = f"{shards[0].primary} is primary" if len(shards) == 1 else f"each of {len(shards)} shards has a primary"
    short = f"{ready} of {wanted} replicas are ready"
    if facts.stalled:
        findings.tell("Progressing", "False", "Stalled", f"waiting too long for {facts.waits}")
    elif facts.progressing:
        findings.tell("Progressing", "True", facts.progressing, facts.doing)
    else:
        findings.tell("Progressing", "False", "Done", "nothing is being changed")
    if leads:
        findings.tell("Available", "True", "PrimaryServes", led)
    elif facts.suspended:
        findings.tell("Available", "False", "Suspended", "spec.suspend is true: no replica serves")
    else:
        findings.tell("Available", "False", *_why_unled(shards, short))
    if facts.suspended and not any(shard.pods for shard in shards):
        # Before the root causes: it was asked for.
        findings.tell("Ready", "False", "Suspended", "spec.suspend is true: set it to false to start the service again")
    elif whole and leads and safeguards.ready_needs_the_spec and (behind := _behind(findings, facts)):
        findings.tell("Ready", "False", *behind)
    elif whole and leads:
        findings.tell("Ready", "True", "AllReplicasReady", f"{short}, {led}")
    else:
        _tell_cause(findings, facts, short)
    if not whole and not facts.progressing and facts.wanted > 0:
        missing = [
            f"{pod.name} ({(facts.said or {}).get(pod.name, 'not ready')[:200]})"
            for shard in shards
            for ordinal, pod in shard.pods.items()
            if not serves(pod) and not held(shard.part, ordinal, pod)
        ]
        findings.tell("Degraded", "True", "ReplicasMissing", f"{short}; {', '.join(missing) or 'pods are missing'}")
    else:
        findings.tell("Degraded", "False", "NotDegraded", "as many replicas serve as can be")


def _behind(findings: Findings, facts: Facts) -> tuple[str, str] | None:
    """Say why what serves is not what the spec asks for: reason and message; None: it is.

    Who waits for Ready after a change of the spec has to see whether that change serves.
    """
    bad = (findings.told[kind] for kind in OF_THE_SPEC if findings.is_bad(kind))
    cause = next((found for found in bad if found.reason not in IN_FORCE), None)
    if cause is not None:
        return cause.reason, cause.message
    if facts.stalled:
        return "Stalled", f"waiting too long for {facts.waits}"
    if facts.progressing:
        return facts.progressing, facts.doing
    return None


def _why_unled(shards: list[_Shard], short: str) -> tuple[str, str]:
    """Say of which shards callers are not served: reason and message."""
    silent = [
        f"{shard.primary} was primary last and is not ready"
        for shard in shards
        if shard.leader is not None and not shard.leads
    ]
    unled = [shard.part.shard for shard in shards if shard.leader is None]
    if not unled:
        return "PrimaryNotReady", ", ".join(silent)
    if len(shards) == 1:
        return "NoPrimary", f"no replica is primary; {short}"
    shown = ", ".join(map(str, unled))
    return "NoPrimary", "; ".join([f"no replica of shard {shown} is primary", *silent, short])


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
