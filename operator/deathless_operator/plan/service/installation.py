"""Which installation of the operator looks after a service, so that two never work on one.

The chart may be installed twice with its defaults, and both operators then see every service: each would put its own
lock store, authority and Secrets into it and roll its replicas, in turn and for ever. So a service has one owner, named
by the namespace that its operator lives in:

    annotation deathless.dev/installation    a person's word; moves a service to another installation
    status.installation                      the first one that looked at it, written to the version that it read
    the same annotation on its objects       where the status was lost, or names one that marked none of them
    none                                     it is claimed, and nothing else is done in that look

Guarantees: of two that claim at once one writes and the other looks again; one that is not the owner changes nothing,
the status included, and tells an event. Does not: find out whether the owner still exists: who takes an installation
away for good moves its services by the annotation. Imports model only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import Event
from deathless_operator.plan.service.unchanged import Plan
from deathless_operator.plan.snapshot import ResourceView, Snapshot


def owner_of(snapshot: Snapshot) -> str:
    """Give the namespace of the installation that looks after a service; empty: none does yet."""
    resource = snapshot.resource
    ours = (child for child in snapshot.children if resource.uid in child.owner_uids)
    return owner(resource, (child.annotations.get(names.INSTALLATION_ANNOTATION, "") for child in ours))


def owner(resource: ResourceView, marks: Iterable[str]) -> str:
    """Give what `owner_of` gives.

    Args:
        resource: the service.
        marks: the installations that its objects name; empty texts are passed over.
    """
    if told := resource.annotations.get(names.INSTALLATION_ANNOTATION, ""):
        return told
    known, written = set(filter(None, marks)), resource.status.installation
    # Who is written there has claimed it a moment ago, or has marked objects since: else a person wrote that status.
    return min(known) if known and written not in known else written


def claim_or_leave(snapshot: Snapshot, settings: OperatorSettings) -> Plan | None:
    """Give the plan of an installation that is not the owner; None: it is."""
    looks_after, mine = owner_of(snapshot), settings.namespace
    if looks_after == mine:
        return None
    if not looks_after:
        status = msgspec.structs.replace(snapshot.resource.status, installation=mine)
        return Plan(actions=(), status=status, events=(), requeue_s=0.0, sentence=f"it is claimed by {mine}")
    how = f"kubectl -n {snapshot.resource.namespace} annotate --overwrite deathlessservice {snapshot.resource.name}"
    told = (
        f"the operator in namespace {looks_after} manages it, so the one in {mine} does not. If that one is "
        f"permanently gone, or this one is to take over: {how} {names.INSTALLATION_ANNOTATION}={mine}"
    )
    event = Event(type="Warning", reason="OtherInstallation", message=told)
    return Plan(actions=(), status=None, events=(event,), requeue_s=None, sentence=told)
