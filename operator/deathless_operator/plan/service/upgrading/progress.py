"""What is told about a service's LiveUpgrades: how far the one is that is under way, and why others wait.

    Pending      it waits: for another one, for the service, or for its spec to be corrected
    Checking     a pod finds out which code its image holds
    Preparing    pods of the new code start, follow the log and try the migration
    Ready        all that was tried; the service is handed over once its action and its window let it
    Upgrading    the service is handed over
    Ramping      some shards run the new code, and the next ones wait for the step of the ramp
    Succeeded    the new code serves on every shard, and is the accepted one
    Refused      something does not fit; the message says what, and nothing is tried again
    Aborting, Aborted, BackingOut, BackedOut    on request

Guarantees: the phase is made anew from the decisions at each look, but for those that have ended, which stay; Succeeded
is told only once the StatefulSets hold the new code as the accepted one, so that a LiveUpgrade that is deleted then
changes nothing. Does not: decide. Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.live_upgrade import (
    ENDED,
    CodeStatus,
    LiveUpgradeResource,
    LiveUpgradeStatus,
    Phase,
    ShardUpgrade,
)
from deathless_operator.model.status import Condition, ConditionStatus
from deathless_operator.plan.actions import Event
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.service.upgrading.accepted import Decision, Stage, accepted_code, noted_upgrade
from deathless_operator.plan.service.upgrading.asked_for import (
    calls_off,
    code_asked,
    code_to,
    goes_back,
    is_shard_of,
    serves_instead,
    under_way,
)
from deathless_operator.plan.service.upgrading.image_check import first_open
from deathless_operator.plan.service.upgrading.upgrade import leads_still, outcome_of
from deathless_operator.plan.snapshot import Snapshot

MESSAGE_MAX: Final = 2000
FOR_GOOD: Final = "UpgradeRefused"
"""Reason of a refusal that another look does not change."""
STAGES: Final[dict[Stage, Phase]] = {
    "": "Upgrading",
    "Waits": "Pending",
    "Ramps": "Ramping",
    "Prepares": "Preparing",
    "Ready": "Ready",
    "Leads": "Upgrading",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTold:
    """What is to be told about one LiveUpgrade."""

    resource: LiveUpgradeResource
    status: LiveUpgradeStatus
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    phase: Phase
    reason: str
    message: str


def tell_upgrades(snapshot: Snapshot, spec: ServiceSpec, decisions: Sequence[Decision]) -> tuple[UpgradeTold, ...]:
    """Tell about every LiveUpgrade of a service whose shards were decided for."""
    current = under_way(snapshot)
    told = []
    for each in snapshot.live_upgrades:
        if each is current:
            told.append(_current(snapshot, spec, each, decisions))
        elif (waits := _waits(snapshot, each, current)) is not None:
            told.append(_told(each, waits, each.status, snapshot.now))
    return tuple(told)


def tell_waiting(
    upgrades: Sequence[LiveUpgradeResource], reason: str, message: str, now: float
) -> tuple[UpgradeTold, ...]:
    """Tell of every LiveUpgrade that has not ended that nothing is decided about its service for now.

    Args:
        upgrades: of one service.
        reason: CamelCase.
        message: why, and what to do.
        now: wall seconds.
    """
    return tuple(
        _told(each, _Found(phase=_kept(each), reason=reason, message=message), each.status, now)
        for each in upgrades
        if not each.deleted and each.status.phase not in ENDED
    )


def tell_missing(upgrades: Sequence[LiveUpgradeResource], service: str, now: float) -> tuple[UpgradeTold, ...]:
    """Tell of every LiveUpgrade that has not ended that its service is not there."""
    message = f"there is no DeathlessService {service} in this namespace"
    return tell_waiting(upgrades, "ServiceMissing", message, now)


def _kept(resource: LiveUpgradeResource) -> Phase:
    """Give the phase of one about whose service nothing is decided: one that goes back goes back still."""
    phase = resource.status.phase
    return phase if phase in ("BackingOut", "Aborting") else "Pending"


def _waits(snapshot: Snapshot, resource: LiveUpgradeResource, current: LiveUpgradeResource | None) -> _Found | None:
    """Say what one waits for that is not under way; None: nothing is to be said."""
    if resource.deleted or resource.status.phase in ENDED:
        return None
    if resource.spec is None:
        return _Found(phase="Pending", reason="InvalidSpec", message="; ".join(resource.problems))
    if serves := serves_instead(resource, snapshot):
        wanted = resource.spec.from_.image
        told = f"spec.from.image is {wanted}, and {serves} serves. Make another LiveUpgrade for the code that serves"
        return _Found(phase="Refused", reason="OtherCodeServes", message=told)
    if current is not None:
        return _Found(phase="Pending", reason="AnotherUpgrade", message=f"LiveUpgrade {current.name} is under way")
    return None


def _current(
    snapshot: Snapshot, spec: ServiceSpec, resource: LiveUpgradeResource, decisions: Sequence[Decision]
) -> UpgradeTold:
    status = resource.status
    parts = snapshot.parts()
    now = show_time(snapshot.now)
    if status.former is None:
        former = next((each for part in parts if (each := _former(part, resource, spec)) is not None), None)
        status = msgspec.structs.replace(status, former=former)
    status = msgspec.structs.replace(status, shards=_shards(parts, spec, resource, decisions, now))
    measured = [each.unavailable_seconds for each in status.shards if each.unavailable_seconds is not None]
    status = msgspec.structs.replace(status, unavailable_seconds=max(measured, default=None))
    if calls_off(resource):
        return _told(resource, _called_off(parts, resource, spec), status, snapshot.now)
    return _told(resource, _phase(parts, resource, spec, decisions), status, snapshot.now)


def _former(part: Snapshot, resource: LiveUpgradeResource, spec: ServiceSpec) -> CodeStatus | None:
    """Give the code that a shard runs before the upgrade; None: it runs the new code already."""
    accepted = accepted_code(part)
    if accepted is None or is_shard_of(part, code_to(resource, spec)):
        return None
    return CodeStatus(image=accepted.image, module=accepted.module)


def _phase(
    parts: Sequence[Snapshot], resource: LiveUpgradeResource, spec: ServiceSpec, decisions: Sequence[Decision]
) -> _Found:
    """Tell how far one is that is asked for."""
    back, code = goes_back(resource), code_asked(resource, spec)
    shown = f"{code.image} ({code.module})"
    if all(_is_done(part, code, decision) for part, decision in zip(parts, decisions, strict=True)):
        phase: Phase = "BackedOut" if back else "Succeeded"
        reason = "Upgraded" if resource.status.former is not None else "ServesAlready"
        return _Found(phase=phase, reason="BackedOut" if back else reason, message=f"{shown} serves")
    decision = first_open(decisions)
    if decision.outcome == "Accepted":
        return _Found(phase="BackingOut" if back else "Upgrading", reason="Accepting", message=f"{shown} is accepted")
    found = _Found(phase=_phase_of(decision), reason=decision.reason, message=decision.message)
    return _Found(phase="BackingOut", reason=found.reason, message=found.message) if back else found


def _phase_of(decision: Decision) -> Phase:
    match decision.outcome:
        case "Checking" | "Unanswered":
            return "Checking"
        case "Refused":
            return "Refused" if decision.reason == FOR_GOOD else "Pending"
        case "CalledOff":
            return "Preparing"
        case _:
            return STAGES[decision.stage]


def _is_done(part: Snapshot, code: CodeStatus, decision: Decision) -> bool:
    """Tell whether a shard's StatefulSet holds a code as the accepted one, and nobody leads through its upgrade."""
    child = part.stateful_set()
    if child is None or decision.outcome != "Accepted" or leads_still(part):
        return False
    noted = child.annotations.get(names.IMAGE_ANNOTATION), child.annotations.get(names.MODULE_ANNOTATION)
    return noted == (code.image, code.module)


def _called_off(parts: Sequence[Snapshot], resource: LiveUpgradeResource, spec: ServiceSpec) -> _Found:
    """Tell how far one is that is called off."""
    code = code_to(resource, spec)
    shown = f"{code.image} ({code.module})"
    if any(noted is not None and noted.code.image == code.image for noted in map(noted_upgrade, parts)):
        told = f"the upgrade to {shown} is called off: its pods are being removed"
        return _Found(phase="Aborting", reason="Aborted", message=told)
    upgraded = [part.set_name for part in parts if is_shard_of(part, code)]
    if len(upgraded) == len(parts):
        told = f"{shown} served before the upgrade could be called off. To return to the former code: action BackOut"
        return _Found(phase="Succeeded", reason="AbortedTooLate", message=told)
    which = f"; {', '.join(upgraded)} runs it already: action BackOut returns to the former code" if upgraded else ""
    return _Found(phase="Aborted", reason="Aborted", message=f"the upgrade to {shown} was called off{which}")


def _shards(
    parts: Sequence[Snapshot],
    spec: ServiceSpec,
    resource: LiveUpgradeResource,
    decisions: Sequence[Decision],
    now: str,
) -> tuple[ShardUpgrade, ...]:
    """Tell of each shard how far it is."""
    known = {each.shard: each for each in resource.status.shards}
    back, code = goes_back(resource), code_asked(resource, spec)
    found = []
    for part, decision in zip(parts, decisions, strict=True):
        before = known.get(part.shard, ShardUpgrade(shard=part.shard))
        outcome = outcome_of(part) if is_shard_of(part, code) else None
        phase: Phase = _phase_of(decision) if decision.outcome != "Accepted" else "BackedOut" if back else "Succeeded"
        measured = round(outcome.unavailable_s, 3) if outcome is not None and outcome.from_version else None
        found.append(
            ShardUpgrade(
                shard=part.shard,
                phase=phase,
                message=decision.message[:MESSAGE_MAX],
                generation=outcome.generation if outcome is not None else before.generation,
                unavailable_seconds=measured if measured is not None else before.unavailable_seconds,
                completion_time=(before.completion_time or now) if _is_done(part, code, decision) else "",
            )
        )
    return tuple(found)


def _told(resource: LiveUpgradeResource, found: _Found, status: LiveUpgradeStatus, at: float) -> UpgradeTold:
    """Write down what was found, and tell an event where the phase is another one."""
    before, message = resource.status, found.message[:MESSAGE_MAX]
    now = show_time(at)
    begun = found.phase in ("Preparing", "Ready", "Upgrading", "Ramping", "BackingOut")
    status = msgspec.structs.replace(
        status,
        observed_generation=resource.generation,
        phase=found.phase,
        reason=found.reason,
        message=message,
        start_time=before.start_time or (now if begun else ""),
        completion_time=now if found.phase in ENDED else "",
        conditions=_conditions(resource, found, now),
    )
    if found.phase == before.phase:
        return UpgradeTold(resource=resource, status=status)
    bad = found.phase == "Refused"
    event = Event(type="Warning" if bad else "Normal", reason=f"Upgrade{found.phase}", message=message)
    return UpgradeTold(resource=resource, status=status, events=(event,))


def _conditions(resource: LiveUpgradeResource, found: _Found, now: str) -> tuple[Condition, ...]:
    ended = found.phase in ENDED
    succeeded: ConditionStatus = "True" if found.phase == "Succeeded" else "False" if ended else "Unknown"
    ready: ConditionStatus = "True" if found.phase in ("Ready", "Upgrading", "Ramping", "Succeeded") else "False"
    moves = not ended and found.phase != "Pending"
    progressing: ConditionStatus = "True" if moves else "False"
    known = {each.type: each for each in resource.status.conditions}
    told = []
    for kind, state in (("Progressing", progressing), ("Ready", ready), ("Succeeded", succeeded)):
        before = known.get(kind)
        since = before.last_transition_time if before is not None and before.status == state else ""
        told.append(
            Condition(
                type=kind,
                status=state,
                reason=found.reason,
                message=found.message[:MESSAGE_MAX],
                last_transition_time=since or now,
                observed_generation=resource.generation,
            )
        )
    return tuple(told)
