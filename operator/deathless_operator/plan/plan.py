"""What to do about one service: a pure function from what is seen to what is done and told.

    going           its objects go with it, by their ownerReferences; the log only where the spec says Delete, and then
                    its keys in the lock store, too (erasure)
    a former one    of the same name has left keys that are to be erased: that first
    spec unreadable nothing is changed, what runs goes on
    paused          nothing is changed
    else            code to run (image_check) -> lock store (access), certificates -> objects that differ are applied
                    -> size and roll (rollout) -> lost nodes, fencing (loss) -> what is told (trouble, summary)

Guarantees: the same snapshot gives the same plan; a plan carried out in part and made anew converges, since nothing is
remembered but what the API server holds. A pod is deleted for a roll only by a plan that finds the
StatefulSets as they were applied and sees that their controller has read them; shards are rolled one after the other.
Never writes a spec. Does not: talk to the API server. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import ServiceStatus
from deathless_operator.model.values import JsonObject, number, text
from deathless_operator.plan import access as lock_access
from deathless_operator.plan import erasure, image_check, loss, rollout
from deathless_operator.plan.actions import Action, Apply, DeleteObject, Event, MakeToken
from deathless_operator.plan.certificates import Certificates, plan_certificates
from deathless_operator.plan.conditions import Findings
from deathless_operator.plan.covering import body_difference, is_applied, is_foreign, to_apply, was_repeated
from deathless_operator.plan.objects import Code, Lock, Objects, claim_of, tls_of
from deathless_operator.plan.placement import Mounted, template_hash
from deathless_operator.plan.pods import every_replica, held, is_current, replicas, serves
from deathless_operator.plan.snapshot import ChildView, Snapshot
from deathless_operator.plan.summary import Facts, sum_up
from deathless_operator.plan.trouble import tell_fenced, tell_kubernetes, tell_replicas, tell_storage

UNSEEN_S: Final = 5.0
"""After this a claim or Secret of the user's is looked for again: it bears no label, so no watch tells that it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done about one service, and what is to be told."""

    actions: tuple[Action, ...]  # in order
    status: ServiceStatus | None  # None: the resource is going, write nothing
    events: tuple[Event, ...]  # changes only
    requeue_s: float | None  # look again after this at the latest; None: when something changes, or at the resync
    sentence: str  # what is being done, in one sentence
    wanted: int = 0  # replicas of each shard that shall be now: 0 while it is suspended, or goes


def make_plan(snapshot: Snapshot, settings: OperatorSettings) -> Plan:
    """Make the plan for one service.

    Args:
        snapshot: what the API server shows.
        settings: what the installation was told.
    """
    resource = snapshot.resource
    if resource.deleted_at is not None:
        sentence = "the service is going, and its objects with it"
        return Plan(actions=(), status=None, events=(), requeue_s=None, sentence=sentence)
    if resource.spec is None:
        findings = Findings()
        findings.tell("Accepted", "False", "InvalidSpec", "; ".join(resource.problems) or "the spec can't be read")
        return _only_tell(snapshot, settings, findings, "nothing is changed until the spec is mended")
    if resource.annotations.get(names.PAUSED_ANNOTATION) == "true":
        findings = Findings()
        told = f"nothing is changed until the annotation {names.PAUSED_ANNOTATION} is taken away"
        findings.tell("Paused", "True", "ByAnnotation", told)
        return _only_tell(snapshot, settings, findings, told)
    return _Planner(snapshot, resource.spec, settings).make()


def _only_tell(snapshot: Snapshot, settings: OperatorSettings, findings: Findings, sentence: str) -> Plan:
    """Plan nothing, and tell how things stand."""
    sets = [child for part in snapshot.parts() if (child := part.stateful_set()) is not None]
    wanted = max((number(child.raw, "spec", "replicas") for child in sets), default=0)
    if not findings.told.get("Paused"):
        findings.tell("Paused", "False", "NotPaused", "the operator works on it")
    said = tell_replicas(snapshot, findings)
    tell_kubernetes(snapshot, findings)
    tell_fenced(snapshot, findings)
    facts = Facts(wanted=wanted, suspended=wanted == 0 and bool(sets), doing=sentence, said=said)
    status, events = sum_up(snapshot, findings, facts)
    return Plan(
        actions=(), status=status, events=events, requeue_s=float(settings.resync_s), sentence=sentence, wanted=wanted
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """One shard's StatefulSet: as it is, and as it is to be for now."""

    part: Snapshot  # seen for this shard
    child: ChildView | None
    size: rollout.Size
    manifest: JsonObject
    template: str  # hash of the manifest's

    @property
    def is_applied(self) -> bool:
        """It is as the manifest has it, as far as the API server keeps that."""
        return self.child is not None and is_applied(self.child, self.manifest)

    @property
    def changed_again(self) -> str:
        """Path of what somebody has changed again after the manifest was applied twice; empty: nothing."""
        if self.child is None or not was_repeated(self.child, self.manifest) or self.is_applied:
            return ""
        return body_difference(self.child, self.manifest) or ""

    @property
    def is_settled(self) -> bool:
        """It has as many replicas as wanted, and its controller has read it: a roll may go on."""
        sized = self.size.replicas == self.size.wanted > 0
        return sized and self.child is not None and _is_seen(self.child)

    @property
    def unready(self) -> list[str]:
        """Pods that are to serve and don't."""
        return [
            pod.name
            for ordinal, pod in replicas(self.part).items()
            if ordinal < self.size.wanted and not serves(pod) and not held(self.part, ordinal, pod)
        ]

    @property
    def missing(self) -> list[str]:
        """Pods that are to be and are not."""
        pods = replicas(self.part)
        return [names.pod(self.part.set_name, ordinal) for ordinal in range(self.size.wanted) if ordinal not in pods]

    @property
    def is_moving(self) -> bool:
        """It has another number of replicas than wanted."""
        size = self.size
        surplus = any(ordinal >= size.wanted for ordinal in replicas(self.part))
        return bool(size.waits) or size.replicas != size.wanted or surplus


@dataclass(slots=True)
class _Planner:
    """Makes one plan; each step adds to actions, events and findings."""

    snapshot: Snapshot
    spec: ServiceSpec
    settings: OperatorSettings
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    waits: list[float] = field(default_factory=list)  # seconds
    foreign: list[str] = field(default_factory=list)

    def make(self) -> Plan:
        """Make it."""
        snapshot, spec = self.snapshot, self.spec
        if snapshot.remains is not None:
            return self._erase_first(erasure.plan_erasure(snapshot.remains, self.settings))
        objects = Objects(snapshot.resource, spec, self.settings)
        decision = image_check.decide(snapshot, spec, self.settings, objects)
        access = lock_access.plan_access(snapshot, spec, self.settings, objects)
        certificates = plan_certificates(snapshot, spec, self.settings, objects)
        for waiting in (decision.requeue_s, certificates.requeue_s):
            self._look_again(waiting)
        self.actions += [*access.actions, *certificates.actions, *self._token(objects)]
        late = self._apply_claim(objects)
        late += self._apply_record(access.lock)
        if access.lock is None:
            self._look_again(UNSEEN_S)
        facts = Facts(
            wanted=0 if spec.suspend else spec.replicas,
            suspended=spec.suspend,
            progressing="Waiting",
            waits="the lock store",
        )
        if access.lock is not None:
            replicas = (pod for pod in snapshot.pods if names.LABEL_PURPOSE not in pod.labels)
            labelled = all(names.LABEL_SERVING in pod.labels for pod in replicas)
            for manifest in objects.supports(access.lock, decision.code, labelled=labelled):
                self._apply(manifest)
            facts = self._run(objects, access.lock, certificates, decision)
        self.actions += [*late, *decision.actions]
        self._remove_unwanted()
        self._tell(access, certificates, decision)
        return self._finish(facts)

    def _token(self, objects: Objects) -> list[Action]:
        """Make the operators' token where there is none; it is kept for as long as the service is there.

        One that somebody made himself is used as it is; a former service's goes by itself, and then there is none. Pods
        start without it and learn it when it comes.
        """
        name = names.operator_token_secret(self.snapshot.resource.name)
        if name in {secret.name for secret in self.snapshot.lock_secrets}:
            return []
        manifest = objects.make("v1", "Secret", name, {"type": "Opaque"})
        return [MakeToken(manifest=manifest, why="operators show it at the HTTP ingress")]

    def _look_again(self, after_s: float | None) -> None:
        if after_s is not None:
            self.waits.append(after_s)

    def _apply(self, manifest: JsonObject) -> bool:
        """Apply a manifest where it differs; False where its name is somebody else's."""
        kind, name = text(manifest, "kind"), text(manifest, "metadata", "name")
        child = self.snapshot.child(kind, name)
        if child is not None and is_foreign(child, self.snapshot):
            self.foreign.append(f"{kind} {name}")
            return False
        applied = to_apply(child, manifest)
        if applied is not None:
            self.actions.append(Apply(manifest=applied, why="it is not there" if child is None else "it differs"))
        return True

    def _apply_claim(self, objects: Objects) -> list[Action]:
        """Apply the claim: first where it is new, since pods wait for it; else last, since it may be refused."""
        manifest = objects.claim()
        if manifest is None:
            return []
        before = len(self.actions)
        self._apply(manifest)
        if self.snapshot.child("PersistentVolumeClaim", text(manifest, "metadata", "name")) is None:
            return []
        late = self.actions[before:]
        del self.actions[before:]
        return late

    def _apply_record(self, lock: Lock | None) -> list[Action]:
        """Note the keys that go with the service before anything can write one; gives what is to be done last.

        It is dropped last: the claim that stays after all must not be left with its keys gone.
        """
        if lock is None:
            return []
        record, child = erasure.record_of(self.snapshot, self.spec, self.settings, lock), self.snapshot.record
        if record is None:
            return [] if child is None else [erasure.forget(child, self.settings, "the spec keeps log and keys")]
        manifest = erasure.record_manifest(record, self.settings)
        applied = to_apply(child, manifest)
        if applied is not None:
            self.actions.append(Apply(manifest=applied, why="it says which keys go with the service"))
        return []

    def _erase_first(self, found: erasure.Erasure) -> Plan:
        """A former service of this name goes first: this one would be refused for its keys."""
        self.actions += found.actions
        self.events += found.events
        self._look_again(found.requeue_s)
        self.findings.tell("LockReady", "False", "ErasingKeys", f"a former service of this name: {found.sentence}")
        wanted = 0 if self.spec.suspend else self.spec.replicas
        return self._finish(
            Facts(
                wanted=wanted,
                suspended=self.spec.suspend,
                progressing="Waiting",
                waits="the former service's keys to be erased",
                doing=found.sentence,
            )
        )

    def _mounted(self, part: Snapshot, lock: Lock) -> Mounted:
        name, spec = self.snapshot.resource.name, self.spec
        token = spec.token_secret_ref
        return Mounted(
            config_map=names.config_map(part.set_name),
            claim=claim_of(self.snapshot.resource, spec),
            tls=names.tls_secret(name) if tls_of(spec).issuer != "Off" else "",
            lock_tls=lock.tls_secret,
            lock_user=lock.user_secret,
            token=token.name if token else "",
            operator_token=names.operator_token_secret(name),
        )

    def _shard(self, part: Snapshot, objects: Objects, lock: Lock, code: Code) -> _Shard:
        """Decide what a shard's StatefulSet is to be for now."""
        child = part.stateful_set()
        current = number(child.raw, "spec", "replicas") if child is not None else None
        size = rollout.decide_size(part, self.spec, current)
        self._look_again(size.requeue_s)
        mounted = self._mounted(part, lock)
        manifest = objects.stateful_set(mounted, lock, code, replicas=size.replicas, shard=part.shard)
        body = manifest["spec"]
        assert isinstance(body, dict), "a StatefulSet has a spec"
        template = body["template"]
        assert isinstance(template, dict), "and a template"
        return _Shard(part=part, child=child, size=size, manifest=manifest, template=template_hash(template))

    def _run(self, objects: Objects, lock: Lock, certificates: Certificates, decision: image_check.Decision) -> Facts:
        """Plan StatefulSets, sizes, roll and lost replicas."""
        snapshot, spec = self.snapshot, self.spec
        shards = [self._shard(part, objects, lock, decision.code) for part in snapshot.parts()]
        wanted, templates = shards[0].size.wanted, tuple(shard.template for shard in shards)
        if any(shard.child is None for shard in shards) and (blocked := self._blocked(certificates)):
            self._look_again(UNSEEN_S)
            return Facts(
                wanted=wanted, suspended=spec.suspend, progressing="Waiting", waits=blocked, templates=templates,
                code=decision.code, doing=f"waiting for {blocked}",
            )  # fmt: skip
        ours = [self._apply(shard.manifest) for shard in shards]
        if not all(ours):
            return Facts(wanted=wanted, doing="a StatefulSet's name is somebody else's", code=decision.code)
        lost = loss.replace_lost(snapshot, spec)
        fenced = frozenset(name for shard in shards for name in shard.size.fenced)
        self.actions += [*lost.actions, *loss.fence(snapshot, fenced)]
        self.events += lost.events
        self._look_again(lost.requeue_s)
        if lost.message:
            self.findings.tell("Degraded", "True", "NodeUnreachable", lost.message)
        step = self._unapplied(shards)
        if step is None:
            step = rollout.Step() if lost.pods else self._roll(shards)
            self._look_again(step.requeue_s)
            if step.delete is not None:
                self.actions.append(step.delete)
                self.events.append(Event(type="Normal", reason="ReplicaRolled", message=step.event))
        return self._facts(shards, step, lost, decision)

    def _unapplied(self, shards: list[_Shard]) -> rollout.Step | None:
        """Wait for StatefulSets that are not as applied: pods made now would be of another template. None: all are."""
        late = [shard for shard in shards if not shard.is_applied]
        if not late:
            return None
        outdated = tuple(
            pod.name
            for shard in shards
            for ordinal, pod in replicas(shard.part).items()
            if ordinal < shard.size.wanted and not is_current(pod, shard.template)
        )
        shown = ", ".join(shard.part.set_name for shard in late)
        changed = [f"{shard.part.set_name} {path}" for shard in late if (path := shard.changed_again)]
        if outdated and changed:
            told = (
                f"StatefulSet {', '.join(changed)} was changed by somebody after it was applied again, so "
                f"{', '.join(outdated)} can't be rolled. Find who writes it (kubectl get --show-managed-fields)"
            )
            self.findings.tell("Progressing", "False", "ChangedByAnother", told)
        return rollout.Step(outdated=outdated, waits=f"StatefulSet {shown} to be as applied" if outdated else "")

    def _roll(self, shards: list[_Shard]) -> rollout.Step:
        """Find the next step of a roll: a shard is begun once those before it are whole."""
        waits: list[str] = []
        for shard in shards:
            if not shard.is_settled:
                break
            step = rollout.next_step(shard.part, self.spec, shard.template, shard.size.wanted)
            if step.outdated and waits:
                return rollout.Step(outdated=step.outdated, waits=f"{', '.join(waits)} to become ready")
            if step.outdated:
                return step
            waits += [*shard.unready, *shard.missing]
        return rollout.Step()

    def _blocked(self, certificates: Certificates) -> str:
        """Give what has to be there before the first pod is made; empty: nothing."""
        if not certificates.usable:
            return "certificates"
        if self.spec.log_storage.claim_name and self.snapshot.claim is None:
            return f"claim {self.spec.log_storage.claim_name}"
        token = self.spec.token_secret_ref
        if token is not None and token.name not in {secret.name for secret in self.snapshot.lock_secrets}:
            return f"Secret {token.name} (spec.tokenSecretRef)"
        known = {secret.name for secret in self.snapshot.lock_secrets}
        for driver in self.spec.drivers:
            if driver.secret_ref is not None and driver.secret_ref.name not in known:
                return f"Secret {driver.secret_ref.name} (of driver {driver.name})"
        return ""

    def _facts(
        self, shards: list[_Shard], step: rollout.Step, lost: loss.Lost, decision: image_check.Decision
    ) -> Facts:
        unready = [name for shard in shards for name in shard.unready]
        missing = [name for shard in shards for name in shard.missing]
        moving = next((shard for shard in shards if shard.is_moving), None)
        waits = step.waits or (moving.size.waits if moving is not None else "") or ", ".join([*unready, *missing])
        reason, doing = "", "nothing to do"
        if moving is not None:
            reason, size = "Suspending" if self.spec.suspend else "Scaling", moving.size
            which = f"{moving.part.set_name}: " if len(shards) > 1 else ""
            doing = f"{which}{size.replicas} replicas on the way to {size.wanted}; waiting for {waits or 'pods to end'}"
        elif step.outdated:
            reason, doing = "Rolling", f"rolling {', '.join(step.outdated)}; waiting for {waits}"
        elif missing:
            reason, doing = "Creating", f"making {', '.join(missing)}"
        elif unready and self._are_young(unready):
            reason, doing = "Starting", f"waiting for {waits} to become ready"
        elif decision.outcome == "Checking":
            reason, doing = "CheckingImage", decision.message
        if lost.message:
            doing = lost.message
        return Facts(
            wanted=shards[0].size.wanted,
            suspended=self.spec.suspend,
            progressing=reason,
            waits=waits,
            stalled=bool(reason in ("Rolling", "Scaling") and unready) and not self._are_young(unready),
            templates=tuple(shard.template for shard in shards),
            code=decision.code,
            doing=doing,
        )

    def _are_young(self, shown: list[str]) -> bool:
        """Tell whether one of the pods still has time to become ready; looks again when the time is over."""
        born = {pod.name: pod.created_at for _, _, pod in every_replica(self.snapshot)}
        left = max(born.get(name, 0.0) for name in shown) + self.settings.step_deadline_s - self.snapshot.now
        if left > 0:
            self.waits.append(left)
        return left > 0

    def _remove_unwanted(self) -> None:
        """Delete what is ours and no part of the spec any more."""
        name = self.snapshot.resource.name
        unwanted: list[tuple[str, str]] = []
        if not self.settings.network_policies or self.spec.network_policy.type == "Off":
            unwanted.append(("NetworkPolicy", name))
        if tls_of(self.spec).issuer != "CertManager":
            unwanted += [("Certificate", names.tls_secret(name)), ("Certificate", names.client_tls_secret(name))]
        for kind, wanted in unwanted:
            child = self.snapshot.child(kind, wanted)
            if child is not None and child.controller_uid == self.snapshot.resource.uid and child.deleted_at is None:
                self.actions.append(
                    DeleteObject(
                        api_version=child.api_version,
                        kind=kind,
                        name=wanted,
                        uid=child.uid,
                        why="the spec asks for it no longer",
                    )
                )

    def _tell(self, access: lock_access.Access, certificates: Certificates, decision: image_check.Decision) -> None:
        """Tell root causes; the first of a type stands."""
        findings = self.findings
        if decision.outcome in ("Refused", "Unanswered"):
            findings.tell("Accepted", "False", decision.reason, decision.message)
        if decision.outcome == "Refused":
            findings.tell("UpgradeRequired", "True", decision.reason, decision.message)
        if self.foreign:
            shown = ", ".join(self.foreign)
            findings.tell(
                "ObjectsOwned",
                "False",
                "OwnedByAnother",
                f"{shown}: exists and is not this service's. Delete it, rename the service, or label it "
                f"{names.LABEL_SERVICE}={self.snapshot.resource.name} to have it taken over",
            )
            self._look_again(10.0)
        if access.lock is None:
            findings.tell("LockReady", "False", access.reason, access.message)
            self._look_again(10.0)
        ready = certificates.usable and not certificates.lacking
        findings.tell("CertificateReady", "True" if ready else "False", certificates.reason, certificates.message)

    def _finish(self, facts: Facts) -> Plan:
        snapshot, findings = self.snapshot, self.findings
        said = tell_replicas(snapshot, findings)
        tell_storage(
            snapshot,
            findings,
            claim_of(snapshot.resource, self.spec),
            made_here=not self.spec.log_storage.claim_name,
        )
        tell_kubernetes(snapshot, findings)
        tell_fenced(snapshot, findings)
        findings.tell("LockReady", "True", "Configured", "no replica complains about the lock store")
        findings.tell("Accepted", "True", "SpecAccepted", "the spec is being carried out")
        findings.tell("ObjectsOwned", "True", "Owned", "every object of the service is its own")
        findings.tell("UpgradeRequired", "False", "SameCode", "the code that serves is what the spec names")
        findings.tell("Paused", "False", "NotPaused", "the operator works on it")
        facts = replace(facts, said=said)
        status, events = sum_up(snapshot, findings, facts)
        return Plan(
            actions=tuple(self.actions),
            status=status,
            events=(*self.events, *events),
            requeue_s=min([float(self.settings.resync_s), *self.waits]),
            sentence=facts.doing or "nothing to do",
            wanted=facts.wanted,
        )


def _is_seen(child: ChildView) -> bool:
    """Tell whether the StatefulSet's controller has read it as it stands: else it would make pods of before."""
    return number(child.raw, "status", "observedGeneration") >= number(child.raw, "metadata", "generation")
