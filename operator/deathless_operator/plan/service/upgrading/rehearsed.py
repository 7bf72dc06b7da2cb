"""Why a LiveUpgrade that names a Rehearsal is not begun yet.

    it is not there, or of another service, image or module     said, and waited for
    it ran other code than the image holds now                  said by `upgrade`, once a check pod has told the code
    it has not ended                                            waited for
    it did not pass, or ran the log of code that serves no more said, and waited for: a person makes another one
    it passed                                                   the upgrade may begin

An image is a name, which another image may have got since. So what a Rehearsal ran is known by its fingerprint.

Guarantees: a function of the snapshot. Once a shard runs the new code, the Rehearsal is not asked about any more, and
may be deleted. Does not: make Rehearsals. Imports model only.
"""

from __future__ import annotations

from deathless_operator.model.live_upgrade import CodeStatus, LiveUpgradeResource
from deathless_operator.model.log_run import ENDED
from deathless_operator.model.rehearsal import RehearsalResource
from deathless_operator.plan.service.upgrading.accepted import accepted_code
from deathless_operator.plan.snapshot import Snapshot


def not_rehearsed(snapshot: Snapshot, resource: LiveUpgradeResource, code: CodeStatus) -> str:
    """Say what is missing of the rehearsal that a LiveUpgrade asks for; empty: nothing.

    Args:
        snapshot: of the service.
        resource: the LiveUpgrade.
        code: what it upgrades to.
    """
    name = _asked_for(resource)
    if not name:
        return ""
    found = next((each for each in snapshot.rehearsals if each.name == name), None)
    if found is None:
        return f"there is no Rehearsal {name} in this namespace, which spec.rehearsal names"
    if found.spec is None:
        return f"Rehearsal {name}, which spec.rehearsal names, can't be read: {'; '.join(found.problems)}"
    return _is_of_another(snapshot, found, code) or _has_not_passed(snapshot, found)


def rehearsed_code(snapshot: Snapshot, resource: LiveUpgradeResource) -> str:
    """Give the fingerprint of the code that the rehearsal ran which a LiveUpgrade asks for; empty: that is not told."""
    name = _asked_for(resource)
    found = next((each for each in snapshot.rehearsals if name and each.name == name), None)
    return found.status.result.fingerprint if found is not None and found.status.result is not None else ""


def _asked_for(resource: LiveUpgradeResource) -> str:
    """Name the Rehearsal that is to have passed; empty: none is, or a shard runs the new code already."""
    if resource.spec is None or any(each.completion_time for each in resource.status.shards):
        return ""
    return resource.spec.rehearsal


def _is_of_another(snapshot: Snapshot, found: RehearsalResource, code: CodeStatus) -> str:
    """Say that a Rehearsal is about something else; empty: it is not."""
    what = f"Rehearsal {found.name}, which spec.rehearsal names, is of"
    assert found.spec is not None, "it can be read"
    if found.service != snapshot.resource.name:
        return f"{what} service {found.service}"
    if found.spec.image != code.image:
        return f"{what} image {found.spec.image}, and spec.to.image is {code.image}"
    accepted = accepted_code(snapshot)
    module = found.spec.module or (accepted.module if accepted is not None else code.module)
    if module != code.module:
        return f"{what} module {module}, and the upgrade is to {code.module}"
    return ""


def _has_not_passed(snapshot: Snapshot, found: RehearsalResource) -> str:
    """Say how a Rehearsal stands; empty: it has passed, with the code that serves."""
    status, accepted = found.status, accepted_code(snapshot)
    if status.phase not in ENDED:
        return f"Rehearsal {found.name} has not ended: {status.message or 'it has not begun'}"
    another = "make another Rehearsal and name it in spec.rehearsal, or leave that empty"
    if status.verdict != "Passed":
        return f"Rehearsal {found.name} did not pass: {status.message}. Correct the code, or {another}"
    if accepted is not None and status.image and status.image != accepted.image:
        return f"Rehearsal {found.name} ran the log by {status.image}, and {accepted.image} serves: {another}"
    return ""
