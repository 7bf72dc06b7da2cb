"""Whether a changed image or module may be rolled: the same code, by its fingerprint (I6).

    no StatefulSet yet              nothing to compare with: take it
    image, module, limits accepted  take them (limits that decide over turns are part of the code)
    nobody ever served              nothing to protect: take it, so that a wrong first image can be mended
    else                            pod `NAME-check-HASH` tells the new code's fingerprint
        equal to what serves        take it
        another                     UpgradeRequired, the accepted code stays
        no answer                   say why, the accepted code stays

Guarantees: a refused or unanswered check never changes the StatefulSet; a check pod of another image, module or limits
is taken away. Does not: roll. Imports model and base only.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from deathless.base.manifest import ServiceSpec, limits_of
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, objects, text
from deathless_operator.plan.actions import Action, Apply, DeletePod
from deathless_operator.plan.objects import Code, Objects, code_of
from deathless_operator.plan.placement import container_security, digest, pod_security, pull_policy
from deathless_operator.plan.pods import PULL_REASONS, container, every_replica
from deathless_operator.plan.snapshot import PodView, Snapshot

PURPOSE: Final = "check"
TERMINATION_FILE: Final = "/dev/termination-log"
Outcome = Literal["Accepted", "Checking", "Refused", "Unanswered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What code runs, and what is said about the code that the spec names."""

    code: Code  # to make the objects from
    outcome: Outcome
    reason: str  # CamelCase
    message: str
    actions: tuple[Action, ...] = field(default=())
    requeue_s: float | None = None


def accepted_code(snapshot: Snapshot) -> Code | None:
    """Give the code that the StatefulSets run, which are applied in their order; None where there is none."""
    child = next((found for part in snapshot.parts() if (found := part.stateful_set()) is not None), None)
    if child is None:
        return None
    containers = objects(child.raw, "spec", "template", "spec", "containers")
    image = next((text(found, "image") for found in containers if text(found, "name") == names.CONTAINER), "")
    module = child.annotations.get(names.MODULE_ANNOTATION, "")
    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}
    with contextlib.suppress(msgspec.MsgspecError):  # somebody wrote there: the fingerprint decides
        limits = msgspec.json.decode(child.annotations.get(names.LIMITS_ANNOTATION, "{}"), type=dict[str, int | float])
        peers = msgspec.json.decode(child.annotations.get(names.PEERS_ANNOTATION, "{}"), type=dict[str, int])
    return Code(image=image, module=module, limits=limits, peers=peers) if image else None


def serving_fingerprint(snapshot: Snapshot) -> str:
    """Give the fingerprint that the replicas announce, else the one that was seen last; empty: nobody ever served."""
    found = [(pod.ready, pod.announced.epoch, pod.announced.fingerprint) for _, _, pod in every_replica(snapshot)
             if pod.announced is not None and pod.announced.fingerprint and pod.ready]  # fmt: skip
    return max(found)[2] if found else snapshot.resource.status.fingerprint


def decide(snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects_of: Objects) -> Decision:
    """Decide which code the objects are made from."""
    wanted = code_of(spec)
    accepted = accepted_code(snapshot)
    known = serving_fingerprint(snapshot)
    name = names.check_pod(snapshot.resource.name, digest([wanted.image, wanted.module, *_parts(spec)]))
    checks = [pod for pod in snapshot.pods if pod.labels.get(names.LABEL_PURPOSE) == PURPOSE]
    if accepted is None or accepted == wanted or not accepted.module or not known:
        return Decision(
            code=wanted,
            outcome="Accepted",
            reason="Accepted",
            message="the image is the one that runs",
            actions=_remove(checks, "its image is not asked about any more"),
        )
    stale = _remove([pod for pod in checks if pod.name != name], "its image is not asked about any more")
    pod = next((pod for pod in checks if pod.name == name), None)
    if pod is None:
        check = Apply(
            manifest=_check_pod(name, spec, settings, objects_of), why=f"find the fingerprint of {spec.image}"
        )
        return _waiting(accepted, spec, (*stale, check), float(settings.check_deadline_s))
    return _judge(pod, snapshot, spec, settings, accepted, wanted, known, stale)


def _waiting(code: Code, spec: ServiceSpec, actions: tuple[Action, ...], requeue_s: float) -> Decision:
    return Decision(
        code=code,
        outcome="Checking",
        reason="CheckingImage",
        message=f"finding out whether {spec.image} holds the code that serves",
        actions=actions,
        requeue_s=requeue_s,
    )


def _judge(
    pod: PodView,
    snapshot: Snapshot,
    spec: ServiceSpec,
    settings: OperatorSettings,
    accepted: Code,
    wanted: Code,
    known: str,
    stale: tuple[Action, ...],
) -> Decision:
    """Read what a check pod tells."""
    age = snapshot.now - pod.created_at
    found = container(pod, PURPOSE)
    if found is None or not found.terminated:
        reason = found.waiting_reason if found is not None else ""
        if reason in PULL_REASONS or age >= settings.check_deadline_s:
            what = found.waiting_message if found is not None and reason in PULL_REASONS else pod.unschedulable
            return Decision(
                code=accepted,
                outcome="Unanswered",
                reason="ImagePullFailed" if reason in PULL_REASONS else "CheckStalled",
                message=(
                    f"{spec.image} can't be looked into: {what or reason or 'its pod does not start'}. "
                    f"{accepted.image} goes on; correct spec.image, or see pod {pod.name}"
                ),
                actions=stale,
            )
        return _waiting(accepted, spec, stale, max(1.0, settings.check_deadline_s - age))
    told = fingerprint_in(found.message) if found.exit_code == 0 else ""
    if told == known:
        return Decision(
            code=wanted,
            outcome="Accepted",
            reason="Accepted",
            message=f"{spec.image} holds the code that serves",
            actions=(*stale, *_remove([pod], "it has told its fingerprint")),
        )
    if told:
        return Decision(
            code=accepted,
            outcome="Refused",
            reason="OtherFingerprint",
            message=(
                f"{spec.image} with {spec.module} and spec.limits is other code ({told[:12]}) than what serves "
                f"({known[:12]}); {accepted.image} goes on. Set them back; other code needs a live upgrade"
            ),
            actions=stale,
        )
    again = (found.finished_at or pod.created_at) + settings.check_retry_s - snapshot.now
    # Code that can't be loaded says so with a DL code, and would say so again.
    retried = again <= 0 and not found.message.startswith("DL")
    return Decision(
        code=accepted,
        outcome="Unanswered",
        reason="CheckFailed",
        message=(
            f"{spec.image} did not tell its fingerprint: {found.message[:500].strip() or found.reason or 'no word'}. "
            f"{accepted.image} goes on; correct spec.image or spec.module, or see pod {pod.name}"
        ),
        actions=(*stale, *(_remove([pod], "it gave no answer and is tried again") if retried else ())),
        requeue_s=max(1.0, again) if not found.message.startswith("DL") else None,
    )


def fingerprint_in(message: str) -> str:
    """Give the fingerprint in a termination message, empty where there is none."""
    try:
        found: Json = msgspec.json.decode(message.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return ""
    return text(found, "fingerprint")


def _remove(pods: list[PodView], why: str) -> tuple[Action, ...]:
    return tuple(
        DeletePod(name=pod.name, uid=pod.uid, grace_s=0, force=False, why=why) for pod in pods if pod.deleted_at is None
    )


def _parts(spec: ServiceSpec) -> list[Json]:
    """Some limits are part of the fingerprint, and numbers of shards."""
    limits, peers = limits_of(spec), code_of(spec).peers
    found: list[Json] = ["--limits", msgspec.json.encode(limits, order="sorted").decode()] if limits else []
    if spec.shards > 1:
        found += ["--shards", str(spec.shards)]
    if peers:
        found += ["--peers", msgspec.json.encode(peers, order="sorted").decode()]
    return found


def _check_pod(name: str, spec: ServiceSpec, settings: OperatorSettings, objects_of: Objects) -> JsonObject:
    """Give the pod that loads the code and does nothing else: no log, no lock, no token of the API server."""
    template = spec.pod_template
    variables: list[Json] = [
        {"name": item.name, "value": item.value} for item in template.env if item.value_from is None
    ]
    pod: JsonObject = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": settings.check_deadline_s,
        "securityContext": pod_security(template),
        "containers": [
            {
                "name": PURPOSE,
                "image": spec.image,
                "imagePullPolicy": pull_policy(spec, settings),
                "command": [
                    "deathless",
                    "fingerprint",
                    *_parts(spec),
                    "--termination-file",
                    TERMINATION_FILE,
                    spec.module,
                ],
                "env": variables,
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": _resources(spec),
                "volumeMounts": [{"name": "run", "mountPath": names.RUN_FOLDER}],
            }
        ],
        "volumes": [{"name": "run", "emptyDir": {}}],
    }
    if template.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": item.name} for item in template.image_pull_secrets]
    if template.node_selector:
        pod["nodeSelector"] = dict(template.node_selector)
    manifest = objects_of.make("v1", "Pod", name, {"spec": pod})
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    labels = metadata["labels"]
    assert isinstance(labels, dict)
    # No replica: the Services must not find it.
    labels |= {names.LABEL_PURPOSE: PURPOSE, names.LABEL_NAME: "deathless-check"}
    return manifest


def _resources(spec: ServiceSpec) -> JsonObject:
    asked: JsonObject = {key: str(value) for key, value in spec.resources.requests.items()}
    allowed: JsonObject = {key: str(value) for key, value in spec.resources.limits.items()}
    return {key: value for key, value in (("requests", asked), ("limits", allowed)) if value}
