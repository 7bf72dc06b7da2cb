"""Questions about the pods of a service that are there, which several parts of a plan ask.

Guarantees: one answer each to "which replica is this", "who leads", "what is wrong with it". Does not: make pods or
their template (`placement` does), or decide anything. Imports model and base only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from deathless_operator.model import names
from deathless_operator.model.values import part
from deathless_operator.plan.service.reading import CLOCKS_APART_S, is_fenced, read_time, show_time
from deathless_operator.plan.snapshot import ContainerView, PodView, Snapshot

_CODE: Final = re.compile(r"\bDL\d{4}\b")
# Waiting for a reason that time does not mend: replacing such a pod takes nothing away.
BROKEN: Final = (
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
OTHER_SETTINGS_S: Final = 300.0
"""So long a replica that was started with other settings than its template's has to start again by itself, seconds."""
ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod that runs no more."""
PULL_REASONS: Final = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")


def passed_s(snapshot: Snapshot, since: float) -> float:
    """Give the seconds since a moment that another machine told.

    Infinite for one that is to come by more than CLOCKS_APART_S: clocks differ, and nothing waits until ours is there.
    """
    return snapshot.now - since if since <= snapshot.now + CLOCKS_APART_S else math.inf


def ordinal_of(pod: PodView, set_name: str) -> int | None:
    """Give the ordinal of a replica's pod; None for a pod that is not the set's."""
    head, _, tail = pod.name.rpartition("-")
    if head != set_name or not tail.isdecimal() or names.LABEL_PURPOSE in pod.labels:
        return None
    return int(tail)


def replicas(snapshot: Snapshot) -> dict[int, PodView]:
    """Give the pods of the shard's replicas by ordinal, lowest first."""
    name = snapshot.set_name
    found = ((ordinal_of(pod, name), pod) for pod in snapshot.pods)
    return dict(sorted((ordinal, pod) for ordinal, pod in found if ordinal is not None))


def every_replica(snapshot: Snapshot) -> list[tuple[Snapshot, int, PodView]]:
    """Give the replicas of all shards: the snapshot seen for its shard, ordinal, pod."""
    return [(part, ordinal, pod) for part in snapshot.parts() for ordinal, pod in replicas(part).items()]


def primary(pods: dict[int, PodView]) -> int | None:
    """Give the ordinal of the pod that leads: of several with that label, one that says so, and has the highest epoch.

    The label alone may be of before, or somebody's.
    """
    claims = [
        (_says_it_leads(pod), pod.announced.epoch if pod.announced else 0, -ordinal)
        for ordinal, pod in pods.items()
        if pod.labels.get(names.LABEL_ROLE) == names.ROLE_PRIMARY
    ]
    return -max(claims)[2] if claims else None


def _says_it_leads(pod: PodView) -> bool:
    return pod.announced is not None and pod.announced.role == names.ROLE_PRIMARY


def container(pod: PodView, name: str = names.CONTAINER) -> ContainerView | None:
    """Give the pod's container of that name."""
    return next((found for found in pod.containers if found.name == name), None)


def serves(pod: PodView) -> bool:
    """Tell whether a replica stands with the others: ready (caught up, by its own word) and not going."""
    return pod.ready and pod.deleted_at is None


def is_broken(pod: PodView) -> bool:
    """Tell whether a pod can't become ready by itself."""
    found = container(pod)
    return pod.phase == "Failed" or (found is not None and not found.running and found.waiting_reason in BROKEN)


def is_current(pod: PodView, template: str) -> bool:
    """Tell whether a pod was made from the template with that hash."""
    return pod.labels.get(names.LABEL_TEMPLATE) == template


def has_token(snapshot: Snapshot, pod: PodView) -> bool:
    """Tell whether a pod's token is one of the account that is there now.

    A token ends with the account that it was given for, and a node renews one only when most of its life is over: a
    pod that is older than the account can't announce itself until it is made anew.
    """
    account = snapshot.child("ServiceAccount", snapshot.resource.name)
    made = read_time(part(account.raw, "metadata", "creationTimestamp")) if account is not None else None
    return made is None or pod.created_at >= made


def has_settings(snapshot: Snapshot, pod: PodView) -> bool:
    """Tell whether a replica was started with the settings of its pod's template, as far as that matters.

    One that serves goes on, and one that does not yet has time to start again by itself.
    """
    told, wanted = pod.announced.settings if pod.announced else "", pod.annotations.get(names.CONFIG_ANNOTATION, "")
    since = max(pod.created_at, pod.ready_since)
    return not told or not wanted or told == wanted or serves(pod) or passed_s(snapshot, since) < OTHER_SETTINGS_S


def is_outdated(snapshot: Snapshot, pod: PodView, template: str) -> bool:
    """Tell whether a pod has to be made anew: of another template or other settings, or its token has ended."""
    return not (is_current(pod, template) and has_token(snapshot, pod) and has_settings(snapshot, pod))


def trouble(pod: PodView) -> tuple[str, str]:
    """Give the code and the words of what keeps a replica from serving; ("", "") where it says nothing."""
    if serves(pod):
        return "", ""
    spoken = pod.announced
    last = container(pod)
    words = []
    if spoken is not None:
        words += [spoken.text, spoken.condition, spoken.problem, spoken.program_text]
    if last is not None and not last.running:
        words.append(last.message)
    said = max((word.strip() for word in words), key=lambda word: (bool(_CODE.search(word)), len(word)), default="")
    code = _CODE.search(said)
    return (code.group(0) if code else ""), said


def wants_fence(snapshot: Snapshot, ordinal: int) -> bool:
    """Tell whether the service's annotation fences a replica: "r0,r2" ("1/r0" of several shards), or "*" for all."""
    value = snapshot.resource.annotations.get(names.FENCED_ANNOTATION, "")
    wanted = {item.strip() for item in value.split(",")}
    return "*" in wanted or names.member(ordinal, snapshot.shard, snapshot.shards) in wanted


def held(snapshot: Snapshot, ordinal: int, pod: PodView) -> bool:
    """Tell whether a replica is stopped on purpose."""
    return is_fenced(pod) or wants_fence(snapshot, ordinal)


def adopting(snapshot: Snapshot) -> list[str]:
    """Name the pods in which `kubectl deathless adopt` works on the log of one of the service's shards, or may yet.

    One that has ended is no such pod any more, whether or not somebody takes it away.
    """
    adopts = (pod for pod in snapshot.pods if pod.labels.get(names.LABEL_PURPOSE) == names.PURPOSE_ADOPT)
    return sorted(pod.name for pod in adopts if pod.phase not in ENDED)


def handing_over(pods: Iterable[PodView]) -> list[str]:
    """Say of each primary that waits for activities before it hands over for what it waits, and how long at most."""
    told = []
    for pod in pods:
        said = pod.announced
        if said is None or not said.waits_for or pod.labels.get(names.LABEL_ROLE) != names.ROLE_PRIMARY:
            continue
        what = "1 activity" if said.waits_for == 1 else f"{said.waits_for} activities"
        until = show_time(said.waits_until)
        told.append(f"{pod.name} lets {what} end that must run at most once, until {until} at most, then hands over")
    return told
