"""Whether a changed image or module may be rolled: the same code, by its fingerprint (I6).

    nothing was accepted yet        nothing to compare with: take it
    image, module, limits accepted  take them (limits that decide over turns are part of the code)
    nobody ever served              nothing to protect: take it, so that a wrong first image can be mended
    else                            pod `NAME-check-HASH` tells the new code's fingerprint, in each way of telling it
        one equals what serves      take it
        another                     see `upgrade`; the accepted code stays until replicas of the new one serve
        no answer                   say why, the accepted code stays

Each shard is decided for; one is upgraded once those before it are whole. A check's answer counts for all of them. What
is said of the spec is true of a LiveUpgrade while one is under way (`asked_for`).

Guarantees: an unanswered check never changes the StatefulSet; a check pod of another image, module or limits is taken
away. An upgrade that is noted on the StatefulSet goes on without its check pod. Does not: roll, or decide about other
code. Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec

from deathless.base.manifest import ServiceSpec, limits_of
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, text
from deathless_operator.plan.actions import Action, Apply, DeletePod
from deathless_operator.plan.service.objects import Code, Objects, UpgradingTo, code_of
from deathless_operator.plan.service.placement import (
    as_object,
    container_security,
    digest,
    pod_security,
    pull_policy,
    where_it_runs,
)
from deathless_operator.plan.service.pods import PULL_REASONS, container, replicas, serves
from deathless_operator.plan.service.upgrading import upgrade
from deathless_operator.plan.service.upgrading.accepted import (
    Decision,
    accepted_code,
    noted_upgrade,
    refused_everywhere,
    serving_fingerprint,
)
from deathless_operator.plan.service.upgrading.asked_for import AskedFor, asked_for
from deathless_operator.plan.snapshot import PodView, Snapshot

PURPOSE: Final = "check"
TERMINATION_FILE: Final = "/dev/termination-log"
SPELLINGS_MAX: Final = 8  # of one code that are noted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """What is asked about code that differs from the accepted one."""

    snapshot: Snapshot
    spec: ServiceSpec
    settings: OperatorSettings
    accepted: Code
    wanted: Code
    known: str  # fingerprint that serves
    stale: tuple[Action, ...]  # removes check pods of other code
    before: str  # what has to end in the shards before this one; empty: nothing
    asked: AskedFor

    @property
    def adopted(self) -> str:
        """The fingerprint that `upgrade --offline` took; empty: none that counts.

        The service stands still for that. Where a replica serves, the log is of what that one runs: the annotation may
        be of any time before.
        """
        if any(map(serves, replicas(self.snapshot).values())):
            return ""
        return self.snapshot.resource.annotations.get(names.ADOPTED_CODE_ANNOTATION, "")


def decide(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects_of: Objects
) -> tuple[Decision, ...]:
    """Decide for each shard which code its objects are made from; what several ask for stands in the first of them."""
    found: list[Decision] = []
    taken: list[Action] = []
    before = ""
    for part in snapshot.parts():
        asked = asked_for(part, spec)
        decision = _decide(part, asked, settings, objects_of, before)
        decision = replace(decision, left_behind=asked.left_behind)
        own = tuple(action for action in decision.actions if action not in taken)
        taken += own
        named = decision.message if snapshot.shards == 1 else f"{part.set_name}: {decision.message}"
        found.append(replace(decision, actions=own, message=named))
        if not before:
            before = _unfinished(part, spec, decision)
    if all(decision.outcome == "Accepted" for decision in found):
        checks = _remove(_check_pods(snapshot), "its image is not asked about any more")
        found[-1] = replace(found[-1], actions=(*found[-1].actions, *checks))
    return tuple(found)


def first_open(decisions: Sequence[Decision]) -> Decision:
    """Give the decision that tells how the service stands: of the first shard whose code is not what the spec names."""
    return next((found for found in decisions if found.outcome != "Accepted"), decisions[0])


def _unfinished(part: Snapshot, spec: ServiceSpec, decision: Decision) -> str:
    """Say what is still to be done in a shard before the next one is upgraded; empty: nothing."""
    if decision.outcome != "Accepted":
        return f"{part.set_name} is upgraded"
    return upgrade.in_motion(part, spec.replicas)


def _check_pods(snapshot: Snapshot) -> list[PodView]:
    return [pod for pod in snapshot.pods if pod.labels.get(names.LABEL_PURPOSE) == PURPOSE]


def _decide(
    snapshot: Snapshot, asked: AskedFor, settings: OperatorSettings, objects_of: Objects, before: str
) -> Decision:
    spec = asked.spec
    wanted = code_of(spec)
    accepted = accepted_code(snapshot)
    known = serving_fingerprint(snapshot)
    name = names.check_pod(snapshot.resource.name, digest([wanted.image, wanted.module, *_parts(spec)]))
    checks = _check_pods(snapshot)
    if accepted is None or accepted == wanted or not known:
        return Decision(
            code=wanted,
            outcome="Accepted",
            reason="Accepted",
            message="the image is the one that runs",
            # One whose LiveUpgrade waits for its outcome ends by itself.
            actions=() if asked.by else upgrade.remove_drivers(snapshot),
        )
    stale = _remove([pod for pod in checks if pod.name != name], "its image is not asked about any more")
    check = _Check(
        snapshot=snapshot,
        spec=spec,
        settings=settings,
        accepted=accepted,
        wanted=wanted,
        known=known,
        stale=stale,
        before=before,
        asked=asked,
    )
    noted = noted_upgrade(snapshot)
    if noted is not None and noted.code == wanted and not noted.is_told_by(check.adopted):
        return _other_code(noted, check)  # it was begun: whether its check pod is still there is no matter
    pod = next((pod for pod in checks if pod.name == name), None)
    drivers = upgrade.remove_drivers(snapshot, upgrade.key_of(snapshot, asked, wanted))
    if pod is None:
        made = Apply(manifest=_check_pod(name, spec, settings, objects_of), why=f"find the fingerprint of {spec.image}")
        return _waiting(check, (*stale, *drivers, made), float(settings.check_deadline_s))
    found = container(pod, PURPOSE)
    if found is not None and found.terminated and found.exit_code == 0 and fingerprint_in(found.message):
        return _judge_told(found.message, check)
    return _judge_silent(pod, check, (*stale, *drivers))


def _waiting(check: _Check, actions: tuple[Action, ...], requeue_s: float) -> Decision:
    return Decision(
        code=check.accepted,
        outcome="Checking",
        reason="CheckingImage",
        message=f"checking whether {check.spec.image} contains the code that serves",
        actions=actions,
        requeue_s=requeue_s,
    )


def _judge_told(message: str, check: _Check) -> Decision:
    """Compare the fingerprints that a check pod tells with what serves."""
    told, spellings = fingerprint_in(message), spellings_in(message)
    if not spellings.isdisjoint({check.known, check.adopted} - {""}):
        return Decision(
            code=check.wanted,
            outcome="Accepted",
            reason="Accepted",
            message=f"{check.spec.image} contains the code that serves",
            actions=(*check.stale, *upgrade.remove_drivers(check.snapshot)),
        )
    refused = refused_everywhere(check.snapshot)
    if refused and spellings.isdisjoint(refused):
        # Nothing is left to be upgraded from, and a replica whose code is not the log's runs nothing of it.
        return Decision(
            code=check.wanted,
            outcome="Accepted",
            reason="Accepted",
            message=f"no replica holds the code that the log is of; {check.spec.image} is tried",
            actions=(*check.stale, *upgrade.remove_drivers(check.snapshot)),
        )
    wanted = check.wanted
    to = UpgradingTo(
        image=wanted.image,
        module=wanted.module,
        limits=wanted.limits,
        peers=wanted.peers,
        fingerprint=told,
        spellings=tuple(sorted(spellings - {told})[:SPELLINGS_MAX]),
        replicas=check.spec.replicas,
        instead=check.asked.instead,
    )
    return _other_code(to, check)


def _other_code(to: UpgradingTo, check: _Check) -> Decision:
    asked = upgrade.Asked(
        snapshot=check.snapshot,
        asked=check.asked,
        settings=check.settings,
        accepted=check.accepted,
        to=to,
        known=check.known,
        stale=check.stale,
        before=check.before,
    )
    return upgrade.decide(asked)


def _judge_silent(pod: PodView, check: _Check, actions: tuple[Action, ...]) -> Decision:
    """Say of a check pod that tells no fingerprint why that is."""
    spec, settings, now = check.spec, check.settings, check.snapshot.now
    age = now - pod.created_at
    found = container(pod, PURPOSE)
    if found is None or not found.terminated:
        reason = found.waiting_reason if found is not None else ""
        if reason in PULL_REASONS or age >= settings.check_deadline_s:
            what = found.waiting_message if found is not None and reason in PULL_REASONS else pod.unschedulable
            return Decision(
                code=check.accepted,
                outcome="Unanswered",
                reason="ImagePullFailed" if reason in PULL_REASONS else "CheckStalled",
                message=(
                    f"{spec.image} can't be checked: {what or reason or 'its pod does not start'}. "
                    f"{check.accepted.image} continues; correct spec.image, or see pod {pod.name}"
                ),
                actions=actions,
            )
        return _waiting(check, actions, max(1.0, settings.check_deadline_s - age))
    again = (found.finished_at or pod.created_at) + settings.check_retry_s - now
    # Code that can't be loaded says so with a DL code, and would say so again.
    retried = again <= 0 and not found.message.startswith("DL")
    return Decision(
        code=check.accepted,
        outcome="Unanswered",
        reason="CheckFailed",
        message=(
            f"{spec.image} did not report its fingerprint: {found.message[:500].strip() or found.reason or 'no word'}. "
            f"{check.accepted.image} continues; correct spec.image or spec.module, or see pod {pod.name}"
        ),
        actions=(*actions, *(_remove([pod], "it gave no answer and is tried again") if retried else ())),
        requeue_s=max(1.0, again) if not found.message.startswith("DL") else None,
    )


def fingerprint_in(message: str) -> str:
    """Give the fingerprint in a termination message, empty where there is none."""
    return text(_told_in(message), "fingerprint")


def spellings_in(message: str) -> frozenset[str]:
    """Give every fingerprint in a termination message that means the code: older releases know it by another."""
    found = _told_in(message)
    others = found.get("spellings") if isinstance(found, dict) else None
    known = [each for each in others if isinstance(each, str)] if isinstance(others, list) else []
    return frozenset(filter(None, (text(found, "fingerprint"), *known)))


def _told_in(message: str) -> Json:
    try:
        return cast("Json", read_json(message.encode("utf-8", "replace"), object))
    except msgspec.DecodeError:
        return None


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
