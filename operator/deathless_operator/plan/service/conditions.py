"""What is told about a service: conditions in words that an on-call person can act on, and events when they change.

    Ready             the summary: every wanted replica is ready and one leads
    Available         callers are served
    Progressing       something is being made, rolled or scaled
    Degraded          fewer replicas serve than wanted, or one is in trouble
    Accepted          the spec can be carried out
    ObjectsOwned      no object of the service's names is somebody else's
    UpgradeRequired   the spec names other code than what serves
    StorageReady, LockReady, CertificateReady     what replicas need
    ProgramReady, ProgramDiffers, RowsSkipped     of services whose code is a program in another language
    OpenAccess        who reaches the service may call it, without proof
    Paused, Fenced    on purpose

Guarantees: each has a reason and a message that says what to do where something is wrong; the same facts give the same
words, so a status is written only when something changed; `lastTransitionTime` moves with the status alone.
Does not: decide what is done. Imports model only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from deathless_operator.model.status import Condition, ConditionStatus
from deathless_operator.plan.actions import Event
from deathless_operator.plan.service.reading import has_been, show_time

MESSAGE_MAX: Final = 2000
# Conditions whose True is bad news.
BAD_WHEN_TRUE: Final = ("Degraded", "UpgradeRequired", "ProgramDiffers", "OpenAccess")
# Reasons of what was asked for: no reason to warn, and its steps are told by Progressing alone.
CALM: Final = (
    "Creating", "Starting", "Rolling", "Scaling", "Suspending", "Suspended", "Waiting", "CheckingImage", "Adopting",
    "Upgrading", "ProgramLoading",
)  # fmt: skip
# Told when they change, but no reason to warn.
QUIET: Final = ("Progressing", "RowsSkipped", "Paused", "Fenced")
# Conditions that name every reason they have.
TOLD_WHOLE: Final = ("Degraded",)
ORDER: Final = (
    "Ready",
    "Available",
    "Progressing",
    "Degraded",
    "Accepted",
    "ObjectsOwned",
    "StorageReady",
    "LockReady",
    "CertificateReady",
    "UpgradeRequired",
    "ProgramReady",
    "ProgramDiffers",
    "RowsSkipped",
    "OpenAccess",
    "Paused",
    "Fenced",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One condition before it has a time."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


@dataclass(slots=True)
class Findings:
    """What was found, the first finding of a type wins: callers tell root causes before consequences.

    Of what degrades a service each reason is told: the first gives the condition its reason, the others follow in its
    message, since a node that is lost must not hide an object that is refused.
    """

    told: dict[str, Told] = field(default_factory=dict)
    besides: dict[str, str] = field(default_factory=dict)  # further reasons of Degraded, with their messages

    def tell(self, kind: str, status: ConditionStatus, reason: str, message: str) -> None:
        """Tell a condition, unless one of its type was told."""
        first = self.told.setdefault(kind, Told(type=kind, status=status, reason=reason, message=message[:MESSAGE_MAX]))
        if kind in TOLD_WHOLE and status == first.status == "True" and reason != first.reason:
            self.besides.setdefault(reason, message[:MESSAGE_MAX])

    def whole(self, kind: str) -> Told | None:
        """Give what was told of that type, with all of its reasons; None: nothing was."""
        found = self.told.get(kind)
        if found is None or kind not in TOLD_WHOLE or not self.besides:
            return found
        more = "".join(f". Also {reason}: {message}" for reason, message in self.besides.items())
        return replace(found, message=(found.message + more)[:MESSAGE_MAX])

    def is_bad(self, kind: str) -> bool:
        """Tell whether bad news of that type were told."""
        found = self.told.get(kind)
        return found is not None and is_bad(found.type, found.status)


def is_bad(kind: str, status: ConditionStatus) -> bool:
    """Tell whether a condition is bad news."""
    if kind in QUIET:
        return False
    return status == "True" if kind in BAD_WHEN_TRUE else status == "False"


def settle(
    findings: Findings, before: tuple[Condition, ...], *, now: float, generation: int
) -> tuple[tuple[Condition, ...], tuple[Event, ...]]:
    """Give the conditions with their times, and an event for each that changed."""
    known = {found.type: found for found in before}
    conditions: list[Condition] = []
    events: list[Event] = []
    for kind in ORDER:
        told, old = findings.whole(kind), known.get(kind)
        if told is None:
            if old is not None:
                conditions.append(old)  # nothing new is known: it stands as it was found
            continue
        moved = old is None or old.status != told.status
        conditions.append(
            Condition(
                type=kind,
                status=told.status,
                reason=told.reason,
                message=told.message,
                last_transition_time=show_time(now) if moved or old is None else _moved_at(old, now),
                observed_generation=generation,
            )
        )
        if _is_news(old, told):
            bad = is_bad(kind, told.status) and told.reason not in CALM
            events.append(
                Event(
                    type="Warning" if bad else "Normal",
                    reason=told.reason,
                    message=f"{kind} is {told.status}: {told.message}",
                )
            )
    return tuple(conditions), tuple(events)


def _moved_at(old: Condition, now: float) -> str:
    """Give when a condition changed last, as it was told; one that is no time, or is to come, was written by hand."""
    return old.last_transition_time if has_been(old.last_transition_time, now) else show_time(now)


def _is_news(old: Condition | None, told: Told) -> bool:
    if old is None:
        # What is fine from the start is no news.
        bad = is_bad(told.type, told.status) and told.reason not in CALM
        return bad or (told.type in QUIET and told.status == "True")
    if old.status == told.status and told.reason in CALM and told.type not in QUIET:
        return False
    return (old.status, old.reason) != (told.status, told.reason)
