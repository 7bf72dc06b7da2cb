"""What to do about one service: a pure function from what is seen to what is done and told.

    another's       another installation looks after it, or it is claimed first (installation)
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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import JsonObject, number, text
from deathless_operator.plan.actions import Action, Apply, DeleteObject, Event, MakeToken, Target, target
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service import access as lock_access
from deathless_operator.plan.service import erasure, loss, pod_settings, rollout
from deathless_operator.plan.service.certificates import Certificates, plan_certificates
from deathless_operator.plan.service.conditions import Findings
from deathless_operator.plan.service.covering import is_foreign, to_apply
from deathless_operator.plan.service.installation import claim_or_leave
from deathless_operator.plan.service.objects import UPGRADERS, Code, Lock, Objects, caller_secrets, claim_of, tls_of
from deathless_operator.plan.service.open_access import tell_access
from deathless_operator.plan.service.pods import every_replica, handing_over, replicas
from deathless_operator.plan.service.shards import Shard, is_seen
from deathless_operator.plan.service.summary import Facts, sum_up
from deathless_operator.plan.service.trouble import (
    tell_fenced,
    tell_kubernetes,
    tell_programs,
    tell_replicas,
    tell_storage,
)
from deathless_operator.plan.service.unchanged import Plan, only_remedy, only_tell, tell_waiting
from deathless_operator.plan.service.upgrading import image_check, progress
from deathless_operator.plan.service.upgrading.accepted import (
    Decision,
    kept_note,
    made_upgrade,
    noted_code,
    says_refused,
    serving_fingerprint,
    upgrades_to,
)
from deathless_operator.plan.service.upgrading.driving import driving_pod
from deathless_operator.plan.snapshot import Snapshot

__all__ = ["UNSEEN_S", "Plan", "make_plan"]

NOTHING: Final = "nothing to do"
UNSEEN_S: Final = 5.0
"""After this a claim or Secret of the user's is looked for again: it bears no label, so no watch tells that it came."""


def make_plan(snapshot: Snapshot, settings: OperatorSettings, safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS) -> Plan:
    """Make the plan for one service.

    Args:
        snapshot: what the API server shows.
        settings: what the installation was told.
        safeguards: all but in tests.
    """
    resource = snapshot.resource
    if resource.deleted_at is not None:
        sentence = "the service is being deleted, with its objects"
        return Plan(actions=(), status=None, events=(), requeue_s=None, sentence=sentence)
    leaves = claim_or_leave(snapshot, settings) if safeguards.claim_first else None
    if leaves is not None:
        return leaves
    plan = _plan_own(snapshot, settings, safeguards)
    assert plan.status is not None, "a service that stays has one"
    return replace(plan, status=msgspec.structs.replace(plan.status, installation=settings.namespace))


def _plan_own(snapshot: Snapshot, settings: OperatorSettings, safeguards: PlanSafeguards) -> Plan:
    """Make the plan for a service that is ours to look after."""
    resource = snapshot.resource
    if resource.spec is None:
        findings = Findings()
        findings.tell("Accepted", "False", "InvalidSpec", "; ".join(resource.problems) or "the spec can't be read")
        return only_remedy(snapshot, settings, findings, "only lost pods are replaced until the spec is corrected")
    if resource.annotations.get(names.PAUSED_ANNOTATION) == "true":
        findings = Findings()
        told = f"nothing is changed until the annotation {names.PAUSED_ANNOTATION} is removed"
        findings.tell("Paused", "True", "ByAnnotation", told)
        tell_waiting(findings, _Planner(snapshot, resource.spec, settings, safeguards).make())
        return only_tell(snapshot, settings, findings, told)
    return _Planner(snapshot, resource.spec, settings, safeguards).make()


@dataclass(slots=True)
class _Planner:
    """Makes one plan; each step adds to actions, events and findings."""

    snapshot: Snapshot
    spec: ServiceSpec
    settings: OperatorSettings
    safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    waits: list[float] = field(default_factory=list)  # seconds
    foreign: list[str] = field(default_factory=list)
    upgrades: tuple[progress.UpgradeTold, ...] = ()

    def make(self) -> Plan:
        """Make it."""
        snapshot, spec = self.snapshot, self.spec
        if snapshot.remains is not None:
            return self._erase_first(erasure.plan_erasure(snapshot.remains, self.settings))
        lost = self._replace_lost()
        objects = Objects(snapshot.resource, spec, self.settings)
        decisions = image_check.decide(snapshot, spec, self.settings, objects)
        self._tell_upgrades(decisions)
        self.upgrades = progress.tell_upgrades(snapshot, spec, decisions)
        access, former = self._access(objects, decisions)
        certificates = plan_certificates(snapshot, spec, self.settings, objects)
        for waiting in (*(decision.requeue_s for decision in decisions), certificates.requeue_s):
            self._look_again(waiting)
        self.actions += [*access.actions, *certificates.actions, *self._token(objects)]
        late = self._apply_claim(objects)
        late += self._apply_record(access.lock)
        if access.lock is None:
            self._look_again(UNSEEN_S)
            self.actions[:0] = loss.fence(snapshot)
        facts = Facts(
            wanted=0 if spec.suspend else spec.replicas,
            suspended=spec.suspend,
            progressing="Waiting",
            waits="the lock store",
        )
        if access.lock is not None:
            replicas = (pod for pod in snapshot.pods if names.LABEL_PURPOSE not in pod.labels)
            labelled = all(names.LABEL_SERVING in pod.labels for pod in replicas)
            upgrades = {shard: to for shard, each in enumerate(decisions) if (to := each.upgrade) is not None}
            codes = [decision.code for decision in decisions]
            for manifest in objects.supports(access.lock, codes, labelled=labelled, former=former, upgrades=upgrades):
                self._apply(manifest)
            shards = [
                self._shard(part, objects, access.lock, decision, former)
                for part, decision in zip(snapshot.parts(), decisions, strict=True)
            ]
            facts = self._run(shards, access.lock, certificates, decisions, lost)
            for shard, decision in zip(shards, decisions, strict=True):
                self._drive(shard, objects, decision)
            late += pod_settings.remove_unused(snapshot, shards, self.safeguards)
        self.actions += [*late, *(action for decision in decisions for action in decision.actions)]
        self._remove_unwanted()
        self._tell(access, certificates, image_check.first_open(decisions))
        return self._finish(facts)

    def _tell_upgrades(self, decisions: Sequence[Decision]) -> None:
        """Tell, once each, that an upgrade of a shard begins and that it was made."""
        for part, decision in zip(self.snapshot.parts(), decisions, strict=True):
            made = made_upgrade(part)
            if made is not None and noted_code(part) != made.code:
                where = f"{part.set_name}: " if part.shards > 1 else ""
                told = f"{where}{made.image} ({made.module}) serves, with code {made.fingerprint[:12]}"
                self.events.append(Event(type="Normal", reason="Upgraded", message=told))
            if decision.begins:
                self.events.append(Event(type="Normal", reason="UpgradeStarted", message=decision.message))

    def _drive(self, shard: Shard, objects: Objects, decision: Decision) -> None:
        """Make the pod that leads through an upgrade, once its StatefulSet is as applied and seen."""
        if decision.drive is None or not shard.is_applied or shard.child is None or not is_seen(shard.child):
            return
        manifest = driving_pod(objects, self.snapshot.resource.name, shard.manifest, decision.drive)
        needs = frozenset({Target("ConfigMap", shard.config)})
        self.actions.append(Apply(manifest=manifest, why="it leads through the upgrade", needs=needs))

    def _access(self, objects: Objects, decisions: Sequence[Decision]) -> tuple[lock_access.Access, bool]:
        """Find the lock store, and tell whether the service keeps the names of former operators for now."""
        snapshot, spec = self.snapshot, self.spec
        former = lock_access.plan_access(snapshot, spec, self.settings, objects, former=True)
        if former.lock is not None and not _upgrades(decisions):
            made = [
                self._manifest(part, objects, former.lock, decision, replicas=0, former=True)
                for part, decision in zip(snapshot.parts(), decisions, strict=True)
            ]
            templates = {shard: pod_settings.template_of(each) for shard, each in enumerate(made)}
            if pod_settings.keeps_former(snapshot, templates) or not self.safeguards.settings_by_content:
                return former, True
        return lock_access.plan_access(snapshot, spec, self.settings, objects), False

    def _replace_lost(self) -> loss.Lost:
        """Replace what is lost, before anything else and whatever else can't be done."""
        lost = loss.replace_lost(self.snapshot, self.spec.replace_after_seconds)
        former = loss.replace_former(self.snapshot)
        self.actions += [*lost.actions, *former.actions, *loss.relabel(self.snapshot)]
        self.events += [*lost.events, *former.events]
        self._look_again(lost.requeue_s)
        self._look_again(former.requeue_s)
        if lost.message:
            self.findings.tell("Degraded", "True", "NodeUnreachable", lost.message)
        return lost

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

    def _needs(self, shard: Shard, lock: Lock) -> frozenset[Target]:
        """Give what a StatefulSet is not applied without.

        One that is there needs the settings that its template names by their hash: pods would be made with those of
        before. One that is made anew needs what its pods can't start without, and the record of its keys; and no pod
        of a service is started for the first time before the NetworkPolicy that closes it is there.
        """
        config = Target("ConfigMap", shard.config)
        if not self.safeguards.needs_hold_back:
            return frozenset()
        if shard.child is not None:
            there = {secret.name for secret in self.snapshot.lock_secrets}
            new = {Target("Secret", each) for each in (lock.tls_secret, lock.user_secret) if each and each not in there}
            return frozenset({config, *(new & self._planned())})
        found = {config, *self._remaking}
        found |= {target for target in self._planned() if target.kind in ("PersistentVolumeClaim", "Secret")}
        name, record = self.snapshot.resource, names.erase_record
        found.add(Target("ConfigMap", record(name.namespace, name.name)))
        if not serving_fingerprint(self.snapshot):
            found.add(Target("NetworkPolicy", name.name))
        return frozenset(found)

    @property
    def _remaking(self) -> frozenset[Target]:
        """Give what is still to be made and without which a pod that is deleted can't be made again: its account."""
        account = Target("ServiceAccount", self.snapshot.resource.name)
        return frozenset() if self.snapshot.child(*account) is not None else frozenset({account})

    def _planned(self) -> set[Target]:
        """Give what is done by now's actions."""
        return {target(action) for action in self.actions}

    def _apply(self, manifest: JsonObject, needs: frozenset[Target] = frozenset()) -> bool:
        """Apply a manifest where it differs; False where its name is somebody else's."""
        kind, name = text(manifest, "kind"), text(manifest, "metadata", "name")
        unread = {failure.kind for failure in self.snapshot.unread}
        hidden = {(failure.kind, failure.name) for failure in self.snapshot.hidden}
        unknown = [each for each in (Target(kind, name), *needs) if each.kind in unread or tuple(each) in hidden]
        if unknown:
            return True  # whether it is there, and whose it is, is not known
        child = self.snapshot.child(kind, name)
        if child is not None and is_foreign(child, self.snapshot):
            self.foreign.append(f"{kind} {name}")
            return False
        applied = to_apply(child, manifest)
        if applied is not None:
            why = "it is not there" if child is None else "it differs"
            self.actions.append(Apply(manifest=applied, why=why, needs=needs))
        return True

    def _apply_claim(self, objects: Objects) -> list[Action]:
        """Apply the claim: first where it is new, since pods wait for it; else last, since it may be refused."""
        manifest = objects.claim()
        if manifest is None:
            return []
        before = len(self.actions)
        resource = self.snapshot.resource
        record = Target("ConfigMap", names.erase_record(resource.namespace, resource.name))
        # A claim that goes with the service takes the log; the keys, which the record names, have to go as well.
        self._apply(manifest, frozenset({record}))
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
            claim = Target("PersistentVolumeClaim", names.log_claim(self.snapshot.resource.name))
            why = "the spec keeps log and keys"
            return (
                [] if child is None else [replace(erasure.forget(child, self.settings, why), needs=frozenset({claim}))]
            )
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
        self.findings.tell("LockReady", "False", "ErasingKeys", f"a previous service of this name: {found.sentence}")
        self.upgrades = progress.tell_waiting(
            self.snapshot.live_upgrades, "ServiceWaits", found.sentence, self.snapshot.now
        )
        wanted = 0 if self.spec.suspend else self.spec.replicas
        return self._finish(
            Facts(
                wanted=wanted,
                suspended=self.spec.suspend,
                progressing="Waiting",
                waits="the previous service's keys to be erased",
                doing=found.sentence,
            )
        )

    def _manifest(
        self, part: Snapshot, objects: Objects, lock: Lock, decision: Decision, *, replicas: int, former: bool
    ) -> JsonObject:
        """Give a shard's StatefulSet."""
        mounted = pod_settings.mounted(
            self.snapshot.resource, self.spec, lock, self._config(part, objects, lock, decision, former)
        )
        return objects.stateful_set(
            mounted,
            lock,
            decision.code,
            replicas=replicas,
            shard=part.shard,
            upgrade=decision.upgrade,
            noted=kept_note(part) if self.safeguards.upgrade_noted else None,
            losses=decision.losses.note() if decision.losses is not None else "",
            left_behind=decision.left_behind,
        )

    def _config(self, part: Snapshot, objects: Objects, lock: Lock, decision: Decision, former: bool) -> str:
        """Name the ConfigMap that a shard's template mounts."""
        if decision.upgrade is not None:
            return objects.config_name(lock, decision.upgrade.code, part.shard, upgrades=True)
        return objects.config_name(lock, decision.code, part.shard, former=former)

    def _shard(self, part: Snapshot, objects: Objects, lock: Lock, decision: Decision, former: bool) -> Shard:
        """Decide what a shard's StatefulSet is to be for now."""
        child = part.stateful_set()
        current = number(child.raw, "spec", "replicas") if child is not None else None
        manifest = self._manifest(part, objects, lock, decision, replicas=current or 0, former=former)
        size = self._size(part, decision, current, pod_settings.template_of(manifest))
        self._look_again(size.requeue_s)
        if size.replicas != (current or 0):
            manifest = self._manifest(part, objects, lock, decision, replicas=size.replicas, former=former)
        return Shard(
            part=part,
            child=child,
            size=size,
            manifest=manifest,
            template=pod_settings.template_of(manifest),
            config=self._config(part, objects, lock, decision, former),
        )

    def _size(self, part: Snapshot, decision: Decision, current: int | None, template: str) -> rollout.Size:
        """Decide how many pods a shard has for now."""
        if decision.upgrade is not None:
            wanted = decision.upgrade.replicas
            return rollout.Size(replicas=wanted + UPGRADERS, wanted=wanted, upgraders=UPGRADERS)
        wanted = 0 if self.spec.suspend else self.spec.replicas
        kept = rollout.keep_upgraders(part, wanted, current, template, serving_fingerprint(part))
        if kept is not None and self.safeguards.upgraders_stay:
            return kept
        return rollout.decide_size(part, self.spec, current)

    def _run(
        self,
        shards: list[Shard],
        lock: Lock,
        certificates: Certificates,
        decisions: Sequence[Decision],
        lost: loss.Lost,
    ) -> Facts:
        """Plan StatefulSets, sizes, fences and the roll."""
        snapshot, spec = self.snapshot, self.spec
        wanted, templates = shards[0].size.wanted, tuple(shard.template for shard in shards)
        fenced = frozenset(name for shard in shards for name in shard.size.fenced)
        self.actions[:0] = loss.fence(snapshot, fenced)
        if any(shard.child is None for shard in shards) and (blocked := self._blocked(certificates)):
            self._look_again(UNSEEN_S)
            return Facts(
                wanted=wanted, suspended=spec.suspend, progressing="Waiting", waits=blocked, templates=templates,
                codes=_codes(decisions), behind=_behind(decisions), doing=f"waiting for {blocked}",
            )  # fmt: skip
        ours = [self._apply(shard.manifest, self._needs(shard, lock)) for shard in shards]
        if not all(ours):
            return Facts(
                wanted=wanted,
                doing="a StatefulSet's name is somebody else's",
                codes=_codes(decisions),
                behind=_behind(decisions),
            )
        step = self._unapplied(shards)
        if step is None:
            still = lost.pods or (_upgrades(decisions) and self.safeguards.upgrade_rolls_nothing)
            step = rollout.Step() if still else self._roll(shards)
            self._look_again(step.requeue_s)
            if step.delete is not None:
                self.actions.append(replace(step.delete, needs=self._remaking))
                self.events.append(Event(type="Normal", reason="ReplicaRolled", message=step.event))
        return self._facts(shards, step, lost, decisions)

    def _unapplied(self, shards: list[Shard]) -> rollout.Step | None:
        """Wait for StatefulSets that are not as applied: pods made now would be of another template. None: all are."""
        late = [shard for shard in shards if not shard.is_applied]
        if not late:
            return None
        outdated = tuple(name for shard in shards for name in shard.outdated)
        shown = ", ".join(shard.part.set_name for shard in late)
        changed = [f"{shard.part.set_name} {path}" for shard in late if (path := shard.changed_again)]
        if outdated and changed:
            told = (
                f"StatefulSet {', '.join(changed)} was changed by somebody after it was applied again, so "
                f"{', '.join(outdated)} can't be rolled. Find who writes it (kubectl get --show-managed-fields)"
            )
            self.findings.tell("Progressing", "False", "ChangedByAnother", told)
        return rollout.Step(outdated=outdated, waits=f"StatefulSet {shown} to be as applied" if outdated else "")

    def _roll(self, shards: list[Shard]) -> rollout.Step:
        """Find the next step of a roll: a shard is begun once those before it are whole."""
        waits: list[str] = []
        for shard in shards:
            if not shard.is_settled:
                break
            step = rollout.next_step(shard.part, self.spec, shard.template, shard.size.wanted, self.safeguards)
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
        for secret, at in zip(caller_secrets(self.spec), ("token.secretRef", "oidc.caSecretRef"), strict=True):
            if secret and secret not in known:
                return f"Secret {secret} (spec.ingress.authentication.{at})"
        for driver in self.spec.drivers:
            if driver.secret_ref is not None and driver.secret_ref.name not in known:
                return f"Secret {driver.secret_ref.name} (of driver {driver.name})"
        for sink in self.spec.sinks:
            if sink.secret_ref is not None and sink.secret_ref.name not in known:
                return f"Secret {sink.secret_ref.name} (of sink {sink.name})"
        for source in self.spec.sources:
            if source.secret_ref is not None and source.secret_ref.name not in known:
                return f"Secret {source.secret_ref.name} (of source {source.name})"
        return ""

    def _facts(self, shards: list[Shard], step: rollout.Step, lost: loss.Lost, decisions: Sequence[Decision]) -> Facts:
        decision = image_check.first_open(decisions)
        unready = [name for shard in shards for name in shard.unready]
        missing = [name for shard in shards for name in shard.missing]
        moving = next((shard for shard in shards if shard.is_moving), None)
        waits = step.waits or (moving.size.waits if moving is not None else "") or ", ".join([*unready, *missing])
        reason, doing = "", ""
        if (now := next((each for each in decisions if each.upgrade is not None), None)) is not None:
            reason, doing = "Upgrading", now.message
        elif moving is not None:
            size = moving.size
            reason = "Suspending" if self.spec.suspend else "Adopting" if size.adopting else "Scaling"
            which = f"{moving.part.set_name}: " if len(shards) > 1 else ""
            doing = f"{which}{size.replicas} replicas on the way to {size.wanted}; waiting for {waits or 'pods to end'}"
        elif step.outdated:
            reason, doing = "Rolling", f"rolling {', '.join(step.outdated)}; waiting for {waits}"
        elif missing:
            reason, doing = "Creating", f"making {', '.join(missing)}"
        elif unready and self._are_young(unready):
            reason, doing = "Starting", f"waiting for {waits} to become ready"
        elif decision.outcome in ("Checking", "Upgrading"):
            reason, doing = decision.reason, decision.message
        if lost.message:
            doing = lost.message
        told = handing_over(pod for _, _, pod in every_replica(self.snapshot))
        doing = "; ".join(filter(None, (doing, *told))) or NOTHING
        return Facts(
            wanted=shards[0].size.wanted,
            suspended=self.spec.suspend,
            progressing=reason,
            waits=waits,
            stalled=bool(reason in ("Rolling", "Scaling") and unready) and not self._are_young(unready),
            templates=tuple(shard.template for shard in shards),
            codes=_codes(decisions),
            behind=_behind(decisions),
            doing=doing,
            passing=frozenset(name for shard in shards for name in self._passing(shard, decisions[shard.part.shard])),
        )

    def _passing(self, shard: Shard, decision: Decision) -> set[str]:
        """Name the pods whose words tell of nothing wrong: upgraders, and what is rolled behind an upgrade."""
        serving = serving_fingerprint(shard.part)
        outdated, every = set(shard.outdated), list(replicas(shard.part).values())
        behind = {pod.name for pod in every if pod.name in outdated and says_refused(pod)}
        served = any(pod.ready for pod in every)
        upgraders = {pod.name for pod in every if upgrades_to(pod) not in ("", serving)}
        return (behind if served and decision.upgrade is None else set()) | upgraders

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

    def _tell(self, access: lock_access.Access, certificates: Certificates, decision: Decision) -> None:
        """Tell root causes; the first of a type stands."""
        findings = self.findings
        if decision.outcome in ("Refused", "Unanswered"):
            findings.tell("Accepted", "False", decision.reason, decision.message)
        elif decision.left_behind:
            findings.tell("Accepted", "True", "SpecBehind", self._behind(decision.code))
        if decision.outcome in ("Refused", "CalledOff"):
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

    def _behind(self, code: Code) -> str:
        """Say that the spec names code that an upgrade went past."""
        spec = self.spec
        return (
            f"{code.image} ({code.module}) serves since a LiveUpgrade brought it, and the spec still names "
            f"{spec.image} ({spec.module}), which is no order any more: set spec.image and spec.module to "
            "what serves. To return to the former code, make another LiveUpgrade, or set that one's action to BackOut"
        )

    def _finish(self, facts: Facts) -> Plan:
        snapshot, findings = self.snapshot, self.findings
        tell_programs(snapshot, findings)  # before what follows from it: pods without a program are not ready
        said = tell_replicas(snapshot, findings, facts.passing)
        tell_storage(
            snapshot,
            findings,
            claim_of(snapshot.resource, self.spec),
            made_here=not self.spec.log_storage.claim_name,
        )
        tell_kubernetes(snapshot, findings)
        tell_fenced(snapshot, findings)
        tell_access(snapshot.resource.name, self.spec, self.settings, findings)
        findings.tell("LockReady", "True", "Configured", "no replica complains about the lock store")
        findings.tell("Accepted", "True", "SpecAccepted", "the spec is being applied")
        findings.tell("ObjectsOwned", "True", "Owned", "every object belongs to the service")
        findings.tell("UpgradeRequired", "False", "SameCode", "the spec names the code that serves")
        findings.tell("Paused", "False", "NotPaused", "the operator manages it")
        facts = replace(facts, said=said)
        status, events = sum_up(snapshot, findings, facts, self.safeguards)
        return Plan(
            actions=tuple(self.actions),
            status=status,
            events=(*self.events, *events),
            requeue_s=min([float(self.settings.resync_s), *self.waits]),
            sentence=facts.doing or NOTHING,
            wanted=facts.wanted,
            upgrades=self.upgrades,
        )


def _upgrades(decisions: Sequence[Decision]) -> bool:
    """Tell whether a shard is being upgraded."""
    return any(decision.upgrade is not None for decision in decisions)


def _behind(decisions: Sequence[Decision]) -> tuple[str, ...]:
    return tuple(decision.left_behind for decision in decisions)


def _codes(decisions: Sequence[Decision]) -> tuple[Code, ...]:
    return tuple(decision.code for decision in decisions)
