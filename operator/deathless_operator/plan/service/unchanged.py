"""Plans that change nothing of what a spec says, since it can't be read, or somebody asked for that.

Guarantees: what is lost is replaced and what is to be fenced is fenced, unless the service is paused; how things stand
is told; the service is not Ready while its spec waits. Does not: read a spec. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deathless.base.manifest import ServiceSpec
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import ServiceStatus, condition
from deathless_operator.model.values import number
from deathless_operator.plan.actions import Action, Event, target
from deathless_operator.plan.service import loss
from deathless_operator.plan.service.conditions import Findings
from deathless_operator.plan.service.summary import Facts, sum_up
from deathless_operator.plan.service.trouble import tell_fenced, tell_kubernetes, tell_replicas
from deathless_operator.plan.service.upgrading import progress
from deathless_operator.plan.service.upgrading.accepted import noted_upgrade
from deathless_operator.plan.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done about one service, and what is to be told."""

    actions: tuple[Action, ...]  # in order
    status: ServiceStatus | None  # None: the resource is going, write nothing
    events: tuple[Event, ...]  # changes only
    requeue_s: float | None  # look again after this at the latest; None: when something changes, or at the resync
    sentence: str  # what is being done, in one sentence
    wanted: int = 0  # replicas of each shard that shall be now: 0 while it is suspended, or goes
    upgrades: tuple[progress.UpgradeTold, ...] = ()  # its LiveUpgrades


def tell_waiting(findings: Findings, plan: Plan) -> None:
    """Tell of a service that is paused whether its spec waits to be carried out."""
    ready = condition(plan.status.conditions, "Ready") if plan.status is not None else None
    if ready is not None and ready.status == "True" and not plan.actions:
        return
    first = next((f"{type(action).__name__} {target(action)}" for action in plan.actions), "")
    doing = f"would come next: {first}" if first else (ready.message if ready is not None else plan.sentence)
    findings.tell("Ready", "False", "ByAnnotation", f"the spec is not carried out while it is paused; {doing}")


def only_remedy(snapshot: Snapshot, settings: OperatorSettings, findings: Findings, sentence: str) -> Plan:
    """Replace what is lost and fence what is to be fenced, as far as that needs no spec; tell how things stand."""
    lost = loss.replace_lost(snapshot, ServiceSpec(module="x:x").replace_after_seconds)
    plan = only_tell(snapshot, settings, findings, lost.message or sentence)
    waits = [wait for wait in (plan.requeue_s, lost.requeue_s) if wait is not None]
    actions = (*lost.actions, *loss.fence(snapshot))
    return replace(plan, actions=actions, events=(*lost.events, *plan.events), requeue_s=min(waits, default=None))


def only_tell(snapshot: Snapshot, settings: OperatorSettings, findings: Findings, sentence: str) -> Plan:
    """Plan nothing, and tell how things stand."""
    sets = [child for part in snapshot.parts() if (child := part.stateful_set()) is not None]
    wanted = max((number(child.raw, "spec", "replicas") for child in sets), default=0)
    noted = [found.replicas for part in snapshot.parts() if (found := noted_upgrade(part)) is not None]
    wanted = min([wanted, *noted])
    if not findings.told.get("Paused"):
        findings.tell("Paused", "False", "NotPaused", "the operator works on it")
    said = tell_replicas(snapshot, findings)
    tell_kubernetes(snapshot, findings)
    tell_fenced(snapshot, findings)
    facts = Facts(wanted=wanted, suspended=wanted == 0 and bool(sets), doing=sentence, said=said)
    status, events = sum_up(snapshot, findings, facts)
    return Plan(
        actions=(),
        status=status,
        events=events,
        requeue_s=float(settings.resync_s),
        sentence=sentence,
        wanted=wanted,
        upgrades=progress.tell_waiting(snapshot.live_upgrades, "ServiceWaits", sentence, snapshot.now),
    )
