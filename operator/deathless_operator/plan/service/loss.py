"""Replaces replicas on nodes that are lost, and keeps fenced pods fenced.

A StatefulSet never replaces a pod whose node does not answer: it could still run. Here it may: the epoch fences what
the old process writes, and its pod's uid keeps what it owns apart from its replacement's (0005, "A replica in a pod").

Guarantees: a pod is force-deleted only when its node has been unreachable for `replaceAfterSeconds`, and never when
every node of a service that has several is unreachable at once: then it is the API server that sees nobody.
Does not: decide who leads. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from deathless_operator.model import names
from deathless_operator.plan.actions import Action, DeletePod, Event, PatchMetadata
from deathless_operator.plan.service.pods import every_replica, passed_s, trouble, wants_fence
from deathless_operator.plan.service.reading import is_fenced
from deathless_operator.plan.snapshot import NodeView, PodView, Snapshot

FORMER_CODE: Final = "DL2002"
FORMER_S: Final = 20.0
"""A replica that found a later instance of itself is given so long to go on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What is lost, and what is done about it."""

    actions: tuple[Action, ...] = field(default=())
    events: tuple[Event, ...] = field(default=())
    pods: tuple[str, ...] = field(default=())  # on nodes that do not answer
    message: str = ""
    requeue_s: float | None = None
    deleting: frozenset[str] = field(default=frozenset())  # pods that this plan force-deletes


def replace_lost(snapshot: Snapshot, after_s: int) -> Lost:
    """Plan for pods on nodes that do not answer.

    Args:
        snapshot: of the service.
        after_s: how long a node is waited for, seconds.
    """
    pods = [pod for _, _, pod in every_replica(snapshot) if pod.node]
    lost = [(pod, node) for pod in pods if (node := snapshot.node(pod.node)) is not None and is_lost(node)]
    if not lost:
        return Lost()
    nodes = {pod.node for pod in pods}
    names_of = tuple(pod.name for pod, _ in lost)
    if len(nodes) > 1 and {pod.node for pod, _ in lost} == nodes:
        return Lost(
            pods=names_of,
            message=(
                f"all {len(nodes)} nodes of the service are unreachable for the control plane; pods are kept, since "
                "they may still run. Check the control plane first"
            ),
        )
    actions: list[Action] = []
    events: list[Event] = []
    waits: list[float] = []
    for pod, node in lost:
        left = (node.unready_since or snapshot.now) + after_s - snapshot.now
        if left > 0:
            waits.append(left)
            continue
        why = f"node {node.name} has been unreachable for {after_s} s"
        actions.append(DeletePod(name=pod.name, uid=pod.uid, grace_s=0, force=True, why=why))
        events.append(Event(type="Warning", reason="ReplicaReplaced", message=f"{pod.name} is recreated: {why}"))
    shown = ", ".join(f"{pod.name} on {node.name}" for pod, node in lost)
    return Lost(
        actions=tuple(actions),
        events=tuple(events),
        pods=names_of,
        message=f"unreachable: {shown}; replaced {after_s} s after the node went silent",
        requeue_s=min(waits) if waits else 5.0,
        deleting=frozenset(action.name for action in actions if isinstance(action, DeletePod)),
    )


def is_lost(node: NodeView) -> bool:
    """Tell whether a node does not answer."""
    return node.unreachable and not node.ready


def fence(snapshot: Snapshot, besides: frozenset[str] = frozenset()) -> tuple[Action, ...]:
    """Bring the pods' fencing annotations in line with the service's.

    Args:
        snapshot: of the service.
        besides: pods that are fenced for another reason, a suspension.
    """
    actions = []
    for part, ordinal, pod in every_replica(snapshot):
        wanted = wants_fence(part, ordinal) or pod.name in besides
        # What somebody wrote on a pod by hand stays until somebody takes it away.
        ours = names.FENCED_AT_ANNOTATION in pod.annotations
        if wanted != is_fenced(pod) and (wanted or ours) and pod.deleted_at is None:
            actions.append(_patch(snapshot, pod, wanted))
    return tuple(actions)


def relabel(snapshot: Snapshot) -> tuple[Action, ...]:
    """Set back what somebody took or wrote of the labels by which a pod is found, by its set, Services and us."""
    actions = []
    every = every_replica(snapshot)
    marked = {pod.labels.get(names.LABEL_TEMPLATE) for _, _, pod in every if names.LABEL_SERVING in pod.labels}
    for part, _, pod in every:
        wanted = names.labels(snapshot.resource.name) | names.shard_label(part.shard, part.shards)
        if pod.labels.get(names.LABEL_TEMPLATE) in marked:  # else it is of an operator before that label
            wanted.setdefault(names.LABEL_SERVING, pod.labels.get(names.LABEL_SERVING, names.SERVING))
        changed: dict[str, str | None] = {key: value for key, value in wanted.items() if pod.labels.get(key) != value}
        if changed and pod.deleted_at is None:
            why = "somebody changed the labels by which it is found"
            actions.append(
                PatchMetadata(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, labels=changed, why=why)
            )
    return tuple(actions)


def replace_former(snapshot: Snapshot) -> Lost:
    """Have pods made anew that say that a later instance of themselves has been there.

    The API server knows one pod of a name, so a later one that it does not know is of a time that was undone: the API
    server's data were restored from an older copy. A replica goes on by itself once the later one has been silent for
    some seconds; one that can't has its pod made anew, which is a later instance than any.
    """
    actions: list[Action] = []
    events: list[Event] = []
    waits: list[float] = []
    for _, _, pod in every_replica(snapshot):
        code, _ = trouble(pod)
        if code != FORMER_CODE or pod.deleted_at is not None:
            continue
        since = pod.announced.since if pod.announced is not None else 0.0
        left = FORMER_S - passed_s(snapshot, max(pod.created_at, since))
        if left > 0:
            waits.append(left)
            continue
        why = "a later instance of it is unknown to the API server, as after its data were restored"
        actions.append(DeletePod(name=pod.name, uid=pod.uid, grace_s=None, force=False, why=why))
        events.append(Event(type="Warning", reason="ReplicaReplaced", message=f"{pod.name} is recreated: {why}"))
    return Lost(actions=tuple(actions), events=tuple(events), requeue_s=min(waits) if waits else None)


def _patch(snapshot: Snapshot, pod: PodView, wanted: bool) -> PatchMetadata:
    return PatchMetadata(
        api_version="v1",
        kind="Pod",
        name=pod.name,
        uid=pod.uid,
        annotations={
            names.FENCED_ANNOTATION: "true" if wanted else None,
            names.FENCED_AT_ANNOTATION: str(int(snapshot.now)) if wanted else None,
        },
        why="the service asks for it to be fenced" if wanted else "the service asks for it no longer",
    )
