"""Whether a changed image or module may be rolled: the same code, by its fingerprint (I6).

    nothing was accepted yet        nothing to compare with: take it
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
from typing import Final, Literal, cast

import msgspec

from deathless.base.config import PeerConfig
from deathless.base.limits import REPLICATED
from deathless.base.manifest import ServiceSpec, limits_of
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, objects, text
from deathless_operator.plan.actions import Action, Apply, DeletePod
from deathless_operator.plan.service.objects import Code, Objects, code_of
from deathless_operator.plan.service.placement import (
    as_object,
    container_security,
    digest,
    pod_security,
    pull_policy,
    where_it_runs,
)
from deathless_operator.plan.service.pods import PULL_REASONS, container, every_replica, serves
from deathless_operator.plan.snapshot import ChildView, PodView, Snapshot

PURPOSE: Final = "check"
OTHER_CODE: Final = "DL4009"
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
    """Give the code that was accepted last; None where nothing was.

    It stands on the StatefulSets, which are applied in their order, and in the status, so that whoever deletes one of
    them by hand has no code accepted unseen. The image in a StatefulSet's template is not asked: anybody may edit it.
    """
    child = next((found for part in snapshot.parts() if (found := part.stateful_set()) is not None), None)
    if child is None or names.MODULE_ANNOTATION not in child.annotations:
        return _told_code(snapshot) or _running_code(snapshot)
    image = child.annotations.get(names.IMAGE_ANNOTATION, "") or _image_of(child)  # of an operator before it
    module = child.annotations[names.MODULE_ANNOTATION]
    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}
    with contextlib.suppress(msgspec.MsgspecError):  # somebody wrote there: the fingerprint decides
        limits = read_json(child.annotations.get(names.LIMITS_ANNOTATION, "{}").encode(), dict[str, int | float])
        peers = read_json(child.annotations.get(names.PEERS_ANNOTATION, "{}").encode(), dict[str, int])
    return Code(image=image, module=module, limits=limits, peers=peers) if image else None


def _image_of(child: ChildView) -> str:
    containers = objects(child.raw, "spec", "template", "spec", "containers")
    return next((text(found, "image") for found in containers if text(found, "name") == names.CONTAINER), "")


class AcceptedWith(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the status keeps of accepted code, beside image and module."""

    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}


def accepted_with(code: Code) -> str:
    """Give that of a code, as JSON; empty where all of it is as by default."""
    found = AcceptedWith(limits=code.limits, peers=code.peers)
    return "" if found == AcceptedWith() else msgspec.json.encode(found, order="sorted").decode()


def _told_code(snapshot: Snapshot) -> Code | None:
    """Give the code that the status tells of."""
    told = snapshot.resource.status
    if not told.image or not told.module:
        return None
    besides = AcceptedWith()
    with contextlib.suppress(msgspec.MsgspecError):  # somebody wrote there: the fingerprint decides
        besides = read_json((told.accepted_with or "{}").encode(), AcceptedWith)
    return Code(image=told.image, module=told.module, limits=besides.limits, peers=besides.peers)


class _Configured(msgspec.Struct, frozen=True):
    """What a replica.json tells of the accepted code; what else stands there is passed over."""

    module: str = ""
    limits: dict[str, int | float] = {}
    peers: tuple[PeerConfig, ...] = ()


def _running_code(snapshot: Snapshot) -> Code | None:
    """Give the code of replicas that serve, by their image and settings: nothing else tells what was accepted."""
    serving = [(one.image, pod) for _, _, pod in every_replica(snapshot) if serves(pod) and (one := container(pod))]
    if not serving or not serving[0][0]:
        return None
    image, pod = serving[0]
    mounted = (snapshot.child(*each) for each in sorted(pod.mounts) if each[0] == "ConfigMap")
    child = next((each for each in mounted if each is not None), None)
    if child is None:
        return None
    try:
        found = read_json(text(child.raw, "data", names.CONFIG_FILE).encode(), _Configured)
    except msgspec.MsgspecError:
        return None
    limits = {name: value for name, value in found.limits.items() if name in REPLICATED}
    peers = {peer.name: peer.shards for peer in found.peers if peer.shards > 1}
    return Code(image=image, module=found.module, limits=limits, peers=peers) if found.module else None


def serving_fingerprint(snapshot: Snapshot) -> str:
    """Give the fingerprint of the code that the service has run; empty: nobody ever served.

    Replicas that are ready tell it; then those that have served in an epoch and are not refused for their code, then
    the status, which anybody may have written.
    """
    spoken = [(pod.ready, told.epoch, told.fingerprint) for _, _, pod in every_replica(snapshot)
              if (told := pod.announced) is not None and told.fingerprint
              and (pod.ready or (told.epoch > 0 and OTHER_CODE not in (told.condition, told.problem)))]  # fmt: skip
    return max(spoken)[2] if spoken else snapshot.resource.status.fingerprint


def decide(snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects_of: Objects) -> Decision:
    """Decide which code the objects are made from."""
    wanted = code_of(spec)
    accepted = accepted_code(snapshot)
    known = serving_fingerprint(snapshot)
    name = names.check_pod(snapshot.resource.name, digest([wanted.image, wanted.module, *_parts(spec)]))
    checks = [pod for pod in snapshot.pods if pod.labels.get(names.LABEL_PURPOSE) == PURPOSE]
    if accepted is None or accepted == wanted or not known:
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
        message=f"checking whether {spec.image} contains the code that serves",
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
                    f"{spec.image} can't be checked: {what or reason or 'its pod does not start'}. "
                    f"{accepted.image} continues; correct spec.image, or see pod {pod.name}"
                ),
                actions=stale,
            )
        return _waiting(accepted, spec, stale, max(1.0, settings.check_deadline_s - age))
    told = fingerprint_in(found.message) if found.exit_code == 0 else ""
    adopted = snapshot.resource.annotations.get(names.ADOPTED_CODE_ANNOTATION, "")
    if told and told in (known, adopted):
        return Decision(
            code=wanted,
            outcome="Accepted",
            reason="Accepted",
            message=f"{spec.image} contains the code that serves",
            actions=(*stale, *_remove([pod], "it has told its fingerprint")),
        )
    if told:
        return Decision(
            code=accepted,
            outcome="Refused",
            reason="OtherFingerprint",
            message=(
                f"{spec.image} with {spec.module} and spec.limits is other code ({told[:12]}) than what serves "
                f"({known[:12]}); {accepted.image} continues. Revert them, or suspend the service and "
                "`kubectl deathless adopt --code`"
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
            f"{spec.image} did not report its fingerprint: {found.message[:500].strip() or found.reason or 'no word'}. "
            f"{accepted.image} continues; correct spec.image or spec.module, or see pod {pod.name}"
        ),
        actions=(*stale, *(_remove([pod], "it gave no answer and is tried again") if retried else ())),
        requeue_s=max(1.0, again) if not found.message.startswith("DL") else None,
    )


def fingerprint_in(message: str) -> str:
    """Give the fingerprint in a termination message, empty where there is none."""
    try:
        found = cast("Json", read_json(message.encode("utf-8", "replace"), object))
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
    pod |= where_it_runs(spec)
    if template.affinity is not None:
        pod["affinity"] = as_object(template.affinity)
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
