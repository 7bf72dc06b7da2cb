"""How many pods there are to be for now, and which one is replaced next.

    adopting  no replica is started while a pod adopts a log of the service: both write it
    scaling   up at once; down followers first: the StatefulSet takes the highest ordinals away, so it is lowered to
              just above the primary, then past it once another replica is ready to take over
    upgrade   two pods more; once it was made they stay until every other replica is of the new code, and has caught up
    suspend   followers above the primary go, those below it are fenced (they can't take over), then all the rest
    rolling   OnDelete and our own order: broken pods, then followers, each ready before the next, the primary last

Guarantees: at most one pod of a service is deleted by one plan, and none while another is missing, going or not ready
(except one that is itself out of date), and only when those replaced before have caught up; the primary only when every
other replica is current and ready, so one takeover per roll. Does not: replace lost pods (`loss`). Imports model and
base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.plan.actions import DeletePod
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service.pods import (
    adopting,
    held,
    is_broken,
    is_current,
    is_outdated,
    passed_s,
    primary,
    replicas,
    serves,
)
from deathless_operator.plan.service.reading import is_fenced
from deathless_operator.plan.service.upgrading.accepted import upgrades_to
from deathless_operator.plan.snapshot import PodView, Snapshot

SETTLE_S: Final = 2.0  # a replica that became ready has followed for this long before the next one goes
CATCH_UP_S: Final = 10.0  # one that does not tell the primary's epoch is waited for so long
FENCE_WAIT_S: Final = 30.0  # a fenced follower that does not stop by then is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many replicas the StatefulSet is given now, on the way to what is wanted."""

    replicas: int
    wanted: int
    fenced: frozenset[str] = field(default=frozenset())  # pods that a suspension fences
    waits: str = ""  # what for, empty: nothing
    adopting: bool = False  # that is a pod that adopts a log
    upgraders: int = 0  # pods beyond what is wanted, that stay for now
    requeue_s: float | None = None


def decide_size(snapshot: Snapshot, spec: ServiceSpec, current: int | None) -> Size:
    """Decide how many replicas the StatefulSet has for now.

    Args:
        snapshot: of the service.
        spec: of the service.
        current: what the StatefulSet is given now, None where there is none.
    """
    wanted = 0 if spec.suspend else spec.replicas
    if wanted and (current is None or wanted >= current) and (shown := adopting(snapshot)):
        return _hold_back(snapshot, current or 0, wanted, shown)
    if current is None or wanted >= current:
        return Size(replicas=wanted, wanted=wanted)
    pods = replicas(snapshot)
    going = [pod.name for ordinal, pod in pods.items() if ordinal >= current]
    if going:
        return Size(replicas=current, wanted=wanted, waits=f"{', '.join(going)} to end", requeue_s=10.0)
    leader = primary(pods)
    if leader is None or leader < wanted or leader >= current:
        # The leader stays, or nobody leads: then there is nothing to hand over.
        return Size(replicas=wanted, wanted=wanted)
    if leader + 1 < current:
        return Size(replicas=leader + 1, wanted=wanted, waits=f"followers above {pods[leader].name} to end")
    if wanted == 0:
        return _stop_below(snapshot, pods, leader, current)
    heirs = [pod.name for ordinal, pod in pods.items() if ordinal < leader and serves(pod)]
    if not heirs:
        return Size(
            replicas=current,
            wanted=wanted,
            waits=f"a ready replica that can take over from {pods[leader].name}",
            requeue_s=10.0,
        )
    return Size(replicas=max(wanted, leader), wanted=wanted, waits=f"{pods[leader].name} to hand over and end")


def keep_upgraders(snapshot: Snapshot, wanted: int, current: int | None, template: str, serving: str) -> Size | None:
    """Keep the pods that made an upgrade for as long as not every other replica is as good as they are; None: all are.

    Args:
        snapshot: of the service.
        wanted: replicas.
        current: what the StatefulSet is given now, None where there is none.
        template: hash of the template that pods are to be of.
        serving: fingerprint of the code that serves.
    """
    pods = replicas(snapshot)
    made = any(ordinal >= wanted and upgrades_to(pod) == serving for ordinal, pod in pods.items())
    if not wanted or current is None or current <= wanted or not made:
        return None
    others = {ordinal: pod for ordinal, pod in pods.items() if ordinal < wanted}
    behind = len(others) < wanted or any(
        is_outdated(snapshot, pod, template) or not (serves(pod) or held(snapshot, ordinal, pod))
        for ordinal, pod in others.items()
    )
    settling = _settling(snapshot, list(others.values()), pods.get(primary(pods) or 0))
    if not behind and not settling:
        return None
    size = Size(replicas=current, wanted=wanted, upgraders=current - wanted)
    return size if behind else replace(size, waits=f"{', '.join(settling)} to catch up", requeue_s=1.0)


def _hold_back(snapshot: Snapshot, current: int, wanted: int, adopters: list[str]) -> Size:
    """Start no replica beside a pod that adopts a log; those that were asked for before it came are left alone."""
    pods = " ".join(adopters)
    waits = (
        f"{', '.join(adopters)} to end, where `kubectl deathless adopt` works on the log; where nobody runs that "
        f"command any more: `kubectl -n {snapshot.resource.namespace} delete pod {pods}`"
    )
    return Size(replicas=current, wanted=wanted, waits=waits, adopting=True, requeue_s=10.0)


def _stop_below(snapshot: Snapshot, pods: dict[int, PodView], leader: int, current: int) -> Size:
    """Suspend what is left: followers with lower ordinals than the primary's stop first, by the fencing annotation."""
    below = {ordinal: pod for ordinal, pod in pods.items() if ordinal < leader}
    fenced = frozenset(pod.name for pod in below.values())
    running = [pod for pod in below.values() if not _has_stopped(snapshot, pod)]
    if running:
        shown = ", ".join(pod.name for pod in running)
        return Size(replicas=current, wanted=0, fenced=fenced, waits=f"{shown} to stop", requeue_s=FENCE_WAIT_S)
    return Size(replicas=0, wanted=0, fenced=fenced, waits=f"{pods[leader].name} to end")


def _has_stopped(snapshot: Snapshot, pod: PodView) -> bool:
    if not is_fenced(pod):
        return False
    since = pod.annotations.get(names.FENCED_AT_ANNOTATION, "")
    waited = passed_s(snapshot, float(since)) if since.isdecimal() else FENCE_WAIT_S
    return not serves(pod) or waited >= FENCE_WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next step of a roll."""

    delete: DeletePod | None = None
    outdated: tuple[str, ...] = field(default=())  # pods that are not of the template
    waits: str = ""  # what the roll waits for, empty: nothing
    event: str = ""  # told when the step is taken
    requeue_s: float | None = None


def next_step(
    snapshot: Snapshot,
    spec: ServiceSpec,
    template: str,
    size: int,
    safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS,
) -> Step:
    """Find the pod that is replaced next.

    Args:
        snapshot: of the service, whose StatefulSet is applied and seen by its controller.
        spec: of the service.
        template: hash of the template that pods are to be of.
        size: replicas that the StatefulSet has.
        safeguards: all but in tests.
    """
    everyone = replicas(snapshot)
    pods = {ordinal: pod for ordinal, pod in everyone.items() if ordinal < size}
    old = {ordinal: pod for ordinal, pod in pods.items() if is_outdated(snapshot, pod, template)}
    shown = tuple(pod.name for pod in old.values())
    if not old:
        return Step()
    if spec.update_strategy is not None and spec.update_strategy.type == "OnDelete":
        return Step(outdated=shown, waits="their deletion, as spec.updateStrategy says OnDelete")
    going = [pod.name for pod in everyone.values() if pod.deleted_at is not None]
    if safeguards.roll_one_at_a_time and (going or len(pods) < size):
        missing = [names.pod(snapshot.set_name, ordinal) for ordinal in range(size) if ordinal not in pods]
        return Step(outdated=shown, waits=f"{', '.join(going or missing)} to come back")
    leader = primary(everyone)  # it may be one that made an upgrade, and is not to stay
    waiting = [
        pod.name
        for ordinal, pod in pods.items()
        if ordinal not in old and not serves(pod) and not held(snapshot, ordinal, pod)
    ]
    if broken := [ordinal for ordinal, pod in old.items() if is_broken(pod)]:
        return _replace(old[broken[-1]], shown, "it can't start, and runs an old template")
    if waiting:
        return Step(outdated=shown, waits=f"{', '.join(waiting)} to become ready")
    if fresh := _settling(
        snapshot, [pod for ordinal, pod in pods.items() if ordinal not in old], everyone.get(leader or 0)
    ):
        return Step(outdated=shown, waits=f"{', '.join(fresh)} to catch up", requeue_s=1.0)
    if silent := [ordinal for ordinal, pod in old.items() if not serves(pod) and (ordinal != leader or size == 1)]:
        chosen = old[silent[-1]]
        runs = "has other settings than its template" if is_current(chosen, template) else "runs an old template"
        return _replace(chosen, shown, f"it does not serve, and {runs}")
    if leader is None and size > 1:
        return Step(outdated=shown, waits="a primary")
    if leader is not None and leader in old and not serves(old[leader]):
        return Step(outdated=shown, waits=f"{old[leader].name} to become ready, or another primary")
    last = safeguards.primary_last or leader not in old
    if followers := [ordinal for ordinal in old if ordinal != leader and last]:
        return _replace(old[followers[-1]], shown, _why(old[followers[-1]], template))
    assert leader is not None, "every other pod is current"
    heirs = [pod for ordinal, pod in pods.items() if ordinal != leader and serves(pod)]
    if size > 1 and not heirs:
        return Step(outdated=shown, waits=f"a replica that can take over from {old[leader].name}")
    return _replace(old[leader], shown, f"{_why(old[leader], template)}; it leads, and hands over first")


def _why(pod: PodView, template: str) -> str:
    """Say why a pod that serves is made anew."""
    return "its token has ended with its account" if is_current(pod, template) else "the template has changed"


def _settling(snapshot: Snapshot, current: list[PodView], leader: PodView | None) -> list[str]:
    """Name the replaced pods that are ready and have not followed the primary long enough to take over from it."""
    epoch = leader.announced.epoch if leader is not None and leader.announced is not None else 0
    found = []
    for pod in current:
        follows = pod.announced is not None and pod.announced.epoch >= epoch
        if serves(pod) and passed_s(snapshot, pod.ready_since) < (SETTLE_S if follows else CATCH_UP_S):
            found.append(pod.name)
    return found


def _replace(pod: PodView, outdated: tuple[str, ...], why: str) -> Step:
    return Step(
        # Politely: SIGTERM makes a primary hand over.
        delete=DeletePod(name=pod.name, uid=pod.uid, grace_s=None, force=False, why=why),
        outdated=outdated,
        waits=f"{pod.name} to come back",
        event=f"{pod.name} is replaced: {why}",
    )
