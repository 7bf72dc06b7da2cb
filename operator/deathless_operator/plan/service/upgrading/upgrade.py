"""Whether a service is upgraded to the other code that its spec names, and how far that is (0027).

    suspended                          refused for now: UpgradeRequired says so
    policy Manual, no word             refused: the message holds the command that gives the word
    the driving pod was refused        refused, until code, policy or word change, or somebody deletes that pod
    it was called off                  the accepted code's template again; tried again later, three times in all
    the service is in motion           waited for: a roll, a lost node, upgraders of before, a pod that adopts; of
                                       several shards, those before this one, and the step of the ramp;
                                       the rehearsal that a LiveUpgrade names
    else                               upgrading: the new code's template, two pods more, and a driving pod

    while upgrading: a replica of the accepted code was made anew, or the spec has another number of replicas
                                       called off: the accepted code's template again, and begun anew from there;
                                       refused once replicas were lost three times

That the upgrade was made is no outcome of this module: then the new code is the accepted one (`accepted`).

Guarantees: a function of the snapshot, in which the StatefulSet's template says whether the upgrade was begun, and
ended driving pods how often it was tried. Does not: make manifests (`driving`), or say what code serves (`accepted`).
Imports model and base only.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, number, text
from deathless_operator.plan.actions import Action, DeletePod
from deathless_operator.plan.service.loss import is_lost
from deathless_operator.plan.service.objects import UPGRADERS, Code, UpgradingTo
from deathless_operator.plan.service.placement import digest
from deathless_operator.plan.service.pods import (
    ENDED,
    PULL_REASONS,
    adopting,
    container,
    held,
    primary,
    replicas,
    serves,
    trouble,
)
from deathless_operator.plan.service.upgrading.accepted import (
    Decision,
    Drive,
    Losses,
    Stage,
    noted_losses,
    upgrades_to,
)
from deathless_operator.plan.service.upgrading.asked_for import AskedFor
from deathless_operator.plan.snapshot import PodView, Snapshot

ATTEMPTS_MAX: Final = 3
"""So often one upgrade is tried, and so often replicas lost may spoil it, until it counts as refused."""
WORD_DIGITS_MIN: Final = 12
"""A user's word has at least so many digits of the fingerprint."""
REFUSED_CODE: Final = "DL1023"
UP_S: Final = 60.0
"""Upgraders that have said nothing after this are not waited for any more: the driving pod finds out what they lack."""
LOOK_S: Final = 10.0
MESSAGE_MAX: Final = 1500  # characters of what a driving pod said


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for, and what is known of it."""

    snapshot: Snapshot
    asked: AskedFor
    settings: OperatorSettings
    accepted: Code
    to: UpgradingTo  # what the check pod told
    known: str  # fingerprint that serves
    stale: tuple[Action, ...] = ()  # removes pods that nobody asks about any more
    before: str = ""  # what has to end in the shards before this one; empty: nothing

    @property
    def spec(self) -> ServiceSpec:
        """The spec, with the image, the module and the policy that count."""
        return self.asked.spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of the last driving pod; number 0: there was none."""

    number: int = 0
    pod: str = ""
    refused: str = ""  # what it said
    called_off: str = ""  # why
    ended_at: float = 0.0
    words: str = ""  # how far it is
    prepared: bool = False  # it has tried everything, as it was asked to, and handed nothing over


def word_of(snapshot: Snapshot) -> str:
    """Give the user's word, a fingerprint or its beginning; empty where there is none that counts."""
    word = snapshot.resource.annotations.get(names.UPGRADE_ANNOTATION, "").strip().lower()
    return word if len(word) >= WORD_DIGITS_MIN and set(word) <= set(string.hexdigits) else ""


def key_of(snapshot: Snapshot, asked: AskedFor, wanted: Code) -> str:
    """Give the hash of what is asked for: a refusal counts until this changes."""
    code: Json = msgspec.to_builtins(wanted, order="sorted")
    shard: list[Json] = [snapshot.shard] if snapshot.shard else []
    word = asked.by or word_of(snapshot)
    return digest([code, asked.spec.upgrade_policy, word, *(["prepare"] if asked.hold else []), *shard])


def driving_pods(snapshot: Snapshot) -> list[PodView]:
    """Give the pods that lead, or led, through an upgrade of the shard."""
    pods = [pod for pod in snapshot.pods if pod.labels.get(names.LABEL_PURPOSE) == names.PURPOSE_UPGRADE]
    return [pod for pod in pods if pod.labels.get(names.LABEL_SHARD, "0") == str(snapshot.shard)]


def remove_drivers(snapshot: Snapshot, key: str = "") -> tuple[Action, ...]:
    """Take driving pods away.

    Args:
        snapshot: of the service.
        key: those that have ended and were asked for this are kept, as the record of how they ended; empty: none is.
    """
    return tuple(
        _delete(pod, "its upgrade is not asked for any more")
        for pod in driving_pods(snapshot)
        if not (key and _is_of(pod, key) and pod.phase in ENDED)
    )


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a driving pod says when the new code serves, as far as it is told on; see `deathless upgrade drive`."""

    generation: int = 0
    unavailable_s: float = 0.0
    from_version: int = 0  # 0: it found the upgrade made, and measured nothing


def outcome_of(snapshot: Snapshot) -> Outcome | None:
    """Give what the driving pod of a shard that is upgraded said; None: none has ended well."""
    for pod in driving_pods(snapshot):
        found = container(pod, names.PURPOSE_UPGRADE)
        if found is not None and found.terminated and found.exit_code == 0:
            try:
                told = read_json(found.message.encode("utf-8", "replace"), Outcome)
            except msgspec.MsgspecError:
                continue
            if told.generation:
                return told
    return None


def leads_still(snapshot: Snapshot) -> bool:
    """Tell whether a driving pod of the shard has not ended yet, and may."""
    return any(pod.phase not in ENDED and not _is_away(snapshot, pod) for pod in driving_pods(snapshot))


def decide(asked: Asked) -> Decision:
    """Decide about other code: what is refused, what waits, what is begun."""
    key = key_of(asked.snapshot, asked.asked, asked.to.code)
    losses = noted_losses(asked.snapshot, key)
    decision = _decide(asked, key, losses)
    return decision if decision.losses is not None or not losses.times else replace(decision, losses=losses)


def _decide(asked: Asked, key: str, losses: Losses) -> Decision:
    snapshot, spec = asked.snapshot, asked.spec
    last = _last_attempt(asked, key)
    has_word = bool(word_of(snapshot)) and asked.to.fingerprint.startswith(word_of(snapshot))
    if why := _held_back(asked, has_word):
        return _refuse(asked, key, why, reason="OtherFingerprint")
    if last.refused:
        told = f"pod {last.pod} says: {last.refused}. {_after_refusal(asked)}"
        return _refuse(asked, key, told, reason="UpgradeRefused")
    if last.called_off and last.number >= ATTEMPTS_MAX:
        told = f"was called off {last.number} times, at last because: {last.called_off}. It is tried again once pod "
        return _refuse(asked, key, f"the upgrade {told}{last.pod} is deleted", reason="UpgradeRefused")
    begun = is_begun(asked)
    if not begun and losses.times >= ATTEMPTS_MAX:
        return _refuse(asked, key, _lost_too_often(asked, losses), reason="UpgradeRefused")
    if begun and asked.to.replicas != spec.replicas:
        why = f"spec.replicas has changed from {asked.to.replicas} to {spec.replicas}"
        return _call_off(asked, key, f"{why}; it begins again once every replica serves", LOOK_S)
    if begun and (lost := _recreated(asked)):
        why = f"{', '.join(lost)} was lost, and was recreated from the new code's template"
        called_off = _call_off(asked, key, f"{why}; it begins again once every replica serves", LOOK_S)
        return replace(called_off, losses=losses._replace(times=losses.times + 1))
    again_s = last.ended_at + asked.settings.check_retry_s - snapshot.now if last.called_off else 0.0
    if again_s > 0:
        told = f"{last.called_off}. Attempt {last.number} of {ATTEMPTS_MAX}; it is tried again automatically"
        return _call_off(asked, key, told, again_s)
    if not begun and asked.before:
        return _waiting(asked, key, f"begins after {asked.before}")
    if not begun and (why := asked.asked.rehearsal or _other_code_was_rehearsed(asked)):
        return _waiting(asked, key, f"waits: {why}")
    if not begun and asked.asked.gate:
        return _waiting(asked, key, f"waits: {asked.asked.gate}", stage="Ramps")
    if not begun and (why := in_motion(snapshot, spec.replicas)):
        return _waiting(asked, key, f"begins after {why}")
    return _go_on(asked, key, last, has_word) if begun else _begin(asked, key)


def is_begun(asked: Asked) -> bool:
    """Tell whether pods are made from the template of this upgrade."""
    child = asked.snapshot.stateful_set()
    at = ("spec", "template", "metadata", "annotations", names.UPGRADING_TO_ANNOTATION)
    return child is not None and text(child.raw, *at) == asked.to.fingerprint


def how_to_ask(snapshot: Snapshot, fingerprint: str) -> str:
    """Give the command by which a user says that a code is to be upgraded to."""
    where = f"-n {snapshot.resource.namespace}"
    name = snapshot.resource.name
    return (
        f"`kubectl deathless upgrade {name} {where} --go`, or `kubectl {where} annotate --overwrite deathlessservice "
        f"{name} {names.UPGRADE_ANNOTATION}={fingerprint[:16]}`"
    )


def _held_back(asked: Asked, has_word: bool) -> str:
    """Say why nothing is begun, and what a user can do; empty: nothing holds it back."""
    spec, (accepted, to) = asked.spec, (asked.accepted, asked.to)
    what = (
        f"{spec.image} with {spec.module} and spec.limits is other code ({to.fingerprint[:12]}) than what serves "
        f"({asked.known[:12]}); {accepted.image} continues"
    )
    if spec.suspend:
        return (
            f"{what}. It is upgraded while it runs: set spec.suspend to false, revert the change, or "
            "`kubectl deathless upgrade --offline`"
        )
    if spec.upgrade_policy == "Manual" and not has_word:
        return f"{what}. To upgrade it: {how_to_ask(asked.snapshot, to.fingerprint)}. Or revert the change"
    return ""


def _other_code_was_rehearsed(asked: Asked) -> str:
    """Say that the rehearsal ran other code than would be upgraded to; empty: it did not, or does not say."""
    rehearsed, to = asked.asked.rehearsed, asked.to
    if not rehearsed or to.is_told_by(rehearsed):
        return ""
    return (
        f"its Rehearsal ran other code ({rehearsed[:12]}) than {to.code.image} with {to.code.module} and spec.limits "
        f"({to.fingerprint[:12]}): another image may have got that name since, or spec.limits are others. Make another "
        "Rehearsal and name it in spec.rehearsal, or leave that empty"
    )


def _after_refusal(asked: Asked) -> str:
    """Say what a user can do about a refusal."""
    spec, to = asked.spec, asked.to
    told = f"{asked.accepted.image} continues. What to do: change the code so that this fits, or revert it"
    if spec.upgrade_policy == "Compatible" and not to.fingerprint.startswith(word_of(asked.snapshot) or "-"):
        told += f"; to upgrade with its migrations: {how_to_ask(asked.snapshot, to.fingerprint)}"
    return told


def _recreated(asked: Asked) -> list[str]:
    """Name replicas of the accepted code that were lost since the upgrade began, and made anew by its template."""
    pods, count = replicas(asked.snapshot), asked.spec.replicas
    return [pod.name for ordinal, pod in pods.items() if ordinal < count and upgrades_to(pod)]


def _lost_too_often(asked: Asked, losses: Losses) -> str:
    """Say that what is wrong with the replicas has to be found first."""
    snapshot = asked.snapshot
    where = f"-n {snapshot.resource.namespace}"
    return (
        f"the upgrade from {_shown(asked.accepted)} to {_shown(asked.to.code)} was called off {losses.times} times "
        f"because a replica was lost while it was under way, and {asked.accepted.image} continues. Find out why pods "
        "are lost; then let it begin again: "
        f"`kubectl {where} annotate statefulset {snapshot.set_name} {names.LOSSES_ANNOTATION}-`"
    )


def in_motion(snapshot: Snapshot, count: int) -> str:
    """Say what has to end in a shard of so many replicas before an upgrade begins; empty: nothing."""
    child, pods = snapshot.stateful_set(), replicas(snapshot)
    if shown := adopting(snapshot):
        return f"{', '.join(shown)} has ended"
    if child is None or number(child.raw, "spec", "replicas") != count:
        return "the service has as many replicas as the spec says"
    if over := [pod.name for ordinal, pod in pods.items() if ordinal >= count or upgrades_to(pod)]:
        return f"{', '.join(over)} has ended"
    if lost := [pod.name for pod in pods.values() if (node := snapshot.node(pod.node)) is not None and is_lost(node)]:
        return f"{', '.join(lost)}, whose node is unreachable, is replaced"
    absent = [names.pod(snapshot.set_name, ordinal) for ordinal in range(count) if ordinal not in pods]
    absent += [pod.name for ordinal, pod in pods.items() if not serves(pod) and not held(snapshot, ordinal, pod)]
    if absent:
        return f"{', '.join(absent)} is ready"
    return "" if primary(pods) is not None else "a replica leads"


def _begin(asked: Asked, key: str) -> Decision:
    to = msgspec.structs.replace(asked.to, replicas=asked.spec.replicas)
    doing = f"pods of {to.image} are created beside the others"
    return replace(_upgrading(replace(asked, to=to), key, doing), begins=True)


def _go_on(asked: Asked, key: str, last: Attempt, has_word: bool) -> Decision:
    """Give the next step of an upgrade whose template stands."""
    count, snapshot = asked.spec.replicas, asked.snapshot
    pods = replicas(snapshot)
    ordinals = range(count, count + UPGRADERS)
    if last.prepared:
        told = f"everything is ready, and was tried by pod {last.pod}; {asked.asked.hold}"
        ready = _upgrading(asked, key, told, stage="Ready")
        in_s = asked.asked.hold_s
        return ready if in_s is None else replace(ready, requeue_s=max(1.0, min(in_s, ready.requeue_s or in_s)))
    if last.number and not last.called_off:
        stage: Stage = "Prepares" if asked.asked.hold else "Leads"
        return _upgrading(asked, key, f"pod {last.pod} leads through it: {last.words}", stage=stage)
    shown = [names.pod(snapshot.set_name, ordinal) for ordinal in ordinals]
    there = [pod for ordinal in ordinals if (pod := pods.get(ordinal)) is not None and pod.deleted_at is None]
    up = [pod for pod in there if _is_up(pod)]
    old = all(snapshot.now - pod.created_at >= UP_S for pod in there)
    if not up or (len(up) < len(shown) and not (old and len(there) == len(shown))):
        waits = [f"{pod.name} ({said[:300]})" if (said := _says(pod)) else pod.name for pod in there if pod not in up]
        waits += [name for name in shown if name not in {pod.name for pod in there}]
        refused = next((found.message for found in snapshot.warnings if _is_about(found.kind, found.reason)), "")
        told = f": {refused[:300]}" if refused and len(there) < len(shown) else ""
        return _upgrading(asked, key, f"waiting for {', '.join(waits)} to start{told}")
    drive = Drive(
        key=key,
        attempt=last.number + 1,
        fingerprint=asked.to.fingerprint,
        only_compatible=asked.spec.upgrade_policy == "Compatible" and not has_word,
        prepare_only=bool(asked.asked.hold),
        upgraders=tuple(f"r{ordinal}" for ordinal in ordinals),
        shard=names.shard_label(snapshot.shard, snapshot.shards),
    )
    return replace(_upgrading(asked, key, "the pod that leads through it is created"), drive=drive)


def _is_about(kind: str, reason: str) -> bool:
    return kind == "StatefulSet" and reason == "FailedCreate"


def _is_up(pod: PodView) -> bool:
    """Tell whether an upgrader has begun, well or not: the driving pod finds out which."""
    found = container(pod)
    return pod.announced is not None or (found is not None and found.exit_code is not None)


def _says(pod: PodView) -> str:
    found = container(pod)
    return pod.unschedulable or trouble(pod)[1] or (found.waiting_reason if found is not None else "")


def _last_attempt(asked: Asked, key: str) -> Attempt:
    """Read what the driving pods tell: the one of the highest number counts."""
    pods = [pod for pod in driving_pods(asked.snapshot) if _is_of(pod, key) and not _is_away(asked.snapshot, pod)]
    if not pods:
        return Attempt()
    pod = max(pods, key=_number_of)
    found = container(pod, names.PURPOSE_UPGRADE)
    told = Attempt(number=_number_of(pod), pod=pod.name)
    ended_at = (found.finished_at if found is not None else None) or pod.created_at
    if pod.phase in ENDED or (found is not None and found.terminated):
        said = (found.message.strip() if found is not None else "") or pod.phase_message or pod.phase_reason
        said = said[:MESSAGE_MAX] or "it ended without a word"
        if found is not None and found.exit_code == 0:
            if asked.asked.hold:
                return replace(told, prepared=True)
            deadline = ended_at + asked.settings.step_deadline_s
            if asked.snapshot.now < deadline:
                return replace(told, words="it is made, and the replicas' word for that is awaited")
            return replace(told, called_off=f"{pod.name} says that it is made, and no replica does", ended_at=deadline)
        if said.startswith(REFUSED_CODE):
            return replace(told, refused=said)
        return replace(told, called_off=said, ended_at=ended_at)
    waits = found.waiting_reason if found is not None else ""
    deadline = pod.created_at + asked.settings.check_deadline_s
    runs = found is not None and found.running
    if waits in PULL_REASONS or (not runs and asked.snapshot.now >= deadline):
        why = (found.waiting_message if found is not None else "") or pod.unschedulable or waits
        since = pod.created_at if waits in PULL_REASONS else deadline
        return replace(told, called_off=f"{pod.name} does not start: {why or 'it is not placed'}", ended_at=since)
    return replace(told, words="it runs" if runs else f"it starts{f' ({waits})' if waits else ''}")


def _number_of(pod: PodView) -> int:
    value = pod.annotations.get(names.ATTEMPT_ANNOTATION, "")
    return int(value) if value.isdecimal() and len(value) < len(str(2**31)) else 1


def _is_of(pod: PodView, key: str) -> bool:
    return pod.annotations.get(names.UPGRADE_OF_ANNOTATION) == key


def _is_away(snapshot: Snapshot, pod: PodView) -> bool:
    """Tell whether a driving pod counts no more: it goes, or runs on a node that does not answer."""
    node = snapshot.node(pod.node)
    return pod.deleted_at is not None or (pod.phase not in ENDED and node is not None and is_lost(node))


def _upgrading(asked: Asked, key: str, doing: str, stage: Stage = "Prepares") -> Decision:
    kept = _last_attempt(asked, key)
    return Decision(
        code=asked.accepted,
        outcome="Upgrading",
        reason="Upgrading",
        message=f"upgrading from {_shown(asked.accepted)} to {_shown(asked.to.code)}: {doing}",
        actions=(*asked.stale, *_tidy(asked, key, kept.pod)),
        requeue_s=LOOK_S,
        upgrade=asked.to,
        stage=stage,
    )


def _waiting(asked: Asked, key: str, told: str, stage: Stage = "Waits") -> Decision:
    """The accepted code goes on as it is, until what is under way has ended."""
    return Decision(
        code=asked.accepted,
        outcome="Upgrading",
        reason="Upgrading",
        message=f"the upgrade from {_shown(asked.accepted)} to {_shown(asked.to.code)} {told}",
        actions=(*asked.stale, *remove_drivers(asked.snapshot, key)),
        requeue_s=LOOK_S,
        stage=stage,
    )


def _call_off(asked: Asked, key: str, why: str, again_s: float) -> Decision:
    return Decision(
        code=asked.accepted,
        outcome="CalledOff",
        reason="UpgradeCalledOff",
        message=(
            f"the upgrade from {_shown(asked.accepted)} to {_shown(asked.to.code)} was called off, and the former "
            f"code serves: {why}"
        ),
        actions=(*asked.stale, *remove_drivers(asked.snapshot, key)),
        requeue_s=max(1.0, again_s),
    )


def _refuse(asked: Asked, key: str, message: str, *, reason: str) -> Decision:
    return Decision(
        code=asked.accepted,
        outcome="Refused",
        reason=reason,
        message=message,
        actions=(*asked.stale, *remove_drivers(asked.snapshot, key)),
    )


def _shown(code: Code) -> str:
    """Give a code as a sentence names it."""
    return f"{code.image} ({code.module})"


def _tidy(asked: Asked, key: str, kept: str) -> tuple[Action, ...]:
    """Take away driving pods of another upgrade, of earlier attempts, and on nodes that do not answer."""
    pods = [pod for pod in driving_pods(asked.snapshot) if pod.name != kept or not _is_of(pod, key)]
    return tuple(_delete(pod, "another one leads through the upgrade") for pod in pods)


def _delete(pod: PodView, why: str) -> DeletePod:
    # By force where it is going already: its node may never answer, and it decides nothing.
    return DeletePod(name=pod.name, uid=pod.uid, grace_s=0, force=pod.deleted_at is not None, why=why)
