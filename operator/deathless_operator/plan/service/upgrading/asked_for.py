"""Which code a service is asked to run: that of the LiveUpgrade which is under way, or its spec's.

    a LiveUpgrade is under way     its code, by a person's word, whatever the policy; or the code of before, going back
    one went past the spec's code  what serves: an image that the spec named already then is no order
    else                           the spec's, under its policy

One LiveUpgrade at a time, the oldest first; the others wait. One that has ended asks for nothing any more, unless its
action is BackOut and its code serves.

Guarantees: a function of the snapshot; whoever deletes a LiveUpgrade before its code serves has called it off, and
afterwards changes nothing. Does not: decide whether code may be run (`image_check`, `upgrade`), or tell how far it is
(`progress`). Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.live_upgrade import ACTIONS, ENDED, Action, CodeStatus, LiveUpgradeResource, Window
from deathless_operator.plan.schedule import latest_due, next_due
from deathless_operator.plan.service.objects import mark_of
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.service.upgrading.accepted import accepted_code, left_behind
from deathless_operator.plan.service.upgrading.ramp import gate_of
from deathless_operator.plan.service.upgrading.rehearsed import not_rehearsed, rehearsed_code
from deathless_operator.plan.snapshot import Snapshot

MAY_GO_BACK: Final = ("Succeeded", "Refused", "Aborted", "BackingOut")
"""Phases from which BackOut returns those shards that run the new code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """What one shard is asked to run."""

    spec: ServiceSpec  # with the image, the module and the policy that count
    own: str  # mark of the code that the spec itself names
    by: str = ""  # uid of the LiveUpgrade that asks, with its direction; empty: the spec does
    hold: str = ""  # why nothing is handed over yet; empty: it may be
    hold_s: float | None = None  # after this it may be; None: that is not a matter of time
    rehearsal: str = ""  # what is missing of the rehearsal that was asked for; empty: nothing
    rehearsed: str = ""  # fingerprint of the code that it ran; empty: none was asked for, or it does not say
    gate: str = ""  # why the shard's turn in the ramp has not come; empty: it has
    left_behind: str = ""  # mark of the spec's code, where that is no order

    @property
    def instead(self) -> str:
        """The mark of the spec's code where other code is asked for in its place; empty: it is not."""
        return self.own if mark_of(self.spec) != self.own else ""


def asked_for(snapshot: Snapshot, spec: ServiceSpec) -> AskedFor:
    """Tell what the snapshot's shard is asked to run."""
    own = mark_of(spec)
    behind = left_behind(snapshot, own)
    found = under_way(snapshot)
    if found is not None and found.spec is not None and not calls_off(found):
        back = goes_back(found)
        code = code_asked(found, spec)
        hold, hold_s = ("", None) if back else _hold(found, snapshot.now)
        wanted = _with(spec, code)
        return AskedFor(
            spec=msgspec.structs.replace(wanted, upgrade_policy="Automatic"),
            own=own,
            by=f"{found.uid} back" if back else found.uid,
            hold=hold,
            hold_s=hold_s,
            rehearsal="" if back else not_rehearsed(snapshot, found, code),
            rehearsed="" if back else rehearsed_code(snapshot, found),
            gate="" if back else gate_of(snapshot, found),
            left_behind=behind,
        )
    accepted = accepted_code(snapshot)
    if behind and accepted is not None:
        serves = CodeStatus(image=accepted.image, module=accepted.module)
        return AskedFor(spec=_with(spec, serves), own=own, left_behind=behind)
    return AskedFor(spec=spec, own=own)


def under_way(snapshot: Snapshot) -> LiveUpgradeResource | None:
    """Give the LiveUpgrade that counts now; None: there is none."""
    return next((found for found in snapshot.live_upgrades if _counts(found, snapshot)), None)


def action_of(resource: LiveUpgradeResource) -> Action:
    """Give what is asked of a LiveUpgrade: its annotation counts before its spec, which may lie in a repository."""
    said = resource.annotations.get(names.ACTION_ANNOTATION, "").strip()
    if said in ACTIONS:
        return said
    return resource.spec.action if resource.spec is not None else "Hold"


def goes_back(resource: LiveUpgradeResource) -> bool:
    """Tell whether a LiveUpgrade asks for the code of before."""
    return action_of(resource) == "BackOut" and resource.status.phase in MAY_GO_BACK


def calls_off(resource: LiveUpgradeResource) -> bool:
    """Tell whether a LiveUpgrade that has not ended is to be called off."""
    return action_of(resource) == "Abort" or (action_of(resource) == "BackOut" and not goes_back(resource))


def code_asked(resource: LiveUpgradeResource, spec: ServiceSpec) -> CodeStatus:
    """Give the code that a LiveUpgrade asks for now."""
    former = resource.status.former
    if goes_back(resource) and former is not None:
        return former
    return code_to(resource, spec)


def code_to(resource: LiveUpgradeResource, spec: ServiceSpec) -> CodeStatus:
    """Give the code that a LiveUpgrade upgrades to."""
    assert resource.spec is not None, "it can be read"
    to = resource.spec.to
    return CodeStatus(image=to.image, module=to.module or spec.module)


def serves_instead(resource: LiveUpgradeResource, snapshot: Snapshot) -> str:
    """Name the image that serves where a LiveUpgrade asks for another one before it; empty: there is no such thing."""
    if resource.spec is None or not resource.spec.from_.image or resource.status.start_time:
        return ""
    spec = snapshot.resource.spec
    for part in snapshot.parts():
        accepted = accepted_code(part)
        if accepted is None or accepted.image == resource.spec.from_.image:
            continue
        if spec is not None and accepted.image == resource.spec.to.image:
            continue  # it was brought there by this one's predecessor of the same name, say
        return accepted.image
    return ""


def is_shard_of(snapshot: Snapshot, code: CodeStatus) -> bool:
    """Tell whether a code is the accepted one of the snapshot's shard."""
    accepted = accepted_code(snapshot)
    return accepted is not None and (accepted.image, accepted.module) == (code.image, code.module)


def _counts(resource: LiveUpgradeResource, snapshot: Snapshot) -> bool:
    spec = snapshot.resource.spec
    if resource.deleted or resource.spec is None or spec is None or serves_instead(resource, snapshot):
        return False
    if resource.status.phase not in ENDED:
        return True
    if not goes_back(resource) or resource.status.former is None:
        return False
    return any(is_shard_of(part, code_to(resource, spec)) for part in snapshot.parts())


def _with(spec: ServiceSpec, code: CodeStatus) -> ServiceSpec:
    return msgspec.structs.replace(spec, image=code.image, module=code.module)


def _hold(resource: LiveUpgradeResource, now: float) -> tuple[str, float | None]:
    """Say why a service is not handed over yet, and after how many seconds it may be."""
    if action_of(resource) == "Hold":
        return f"the action of LiveUpgrade {resource.name} is Hold", None
    window = resource.spec.window if resource.spec is not None else None
    return ("", None) if window is None else _closed(window, now)


def _closed(window: Window, now: float) -> tuple[str, float | None]:
    """Say until when a window is closed. Its schedule was read before."""
    opened = latest_due(window.schedule, window.time_zone, now)
    if opened is not None and now < opened + window.duration_seconds:
        return "", None
    opens = next_due(window.schedule, window.time_zone, now)
    if opens is None:
        return f"its window {window.schedule!r} never opens", None
    return f"its window opens at {show_time(opens)}", opens - now
