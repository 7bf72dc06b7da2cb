"""A small cluster to plan for: raw objects, a StatefulSet controller, kubelets and an election, each stepped by hand.

Why raw: the planner reads what the API server would give it, through `plan.reading`, so both are tested together.
Guarantees: deterministic; what the operator writes is checked as it is written (`Broken` names the rule). Does not:
know anything of the planner but its actions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from tests.unit.deathless_operator.plan.storing import COUNTED, copied, stored

from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import text
from deathless_operator.plan.actions import (
    Action,
    Apply,
    CopySecret,
    DeleteObject,
    DeletePod,
    IssueCertificate,
    MakeToken,
    PatchMetadata,
    Target,
    TrustAuthorities,
    lacking,
    target,
)
from deathless_operator.plan.drill.reading import read_drill
from deathless_operator.plan.log_runs.reading import read_rehearsal
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service.plan import Plan, make_plan
from deathless_operator.plan.service.reading import (
    read_child,
    read_claim,
    read_live_upgrade,
    read_node,
    read_pod,
    read_resource,
    show_time,
)
from deathless_operator.plan.snapshot import (
    AuthorityFacts,
    CertificateFacts,
    ChildView,
    Failure,
    IssuerFacts,
    Measured,
    SecretFacts,
    Snapshot,
    Warned,
)

Raw = dict[str, Any]
START = 1_800_000_000.0
SETTINGS = OperatorSettings(lock_endpoints=("https://etcd.deathless-system.svc:2379",), lock_tls_secret="etcd-client")
SPEC: Raw = {"module": "bank:bank", "image": "bank:1", "logStorage": {"claimName": "shared"}, "replicas": 3}
FINGERPRINTS = {
    "bank:1": "aa" * 16,
    "bank:2": "aa" * 16,
    "bank:other": "bb" * 16,
    "bank:misfit": "cc" * 16,  # what is stored does not fit
    "bank:major": "dd" * 16,  # its interface is not compatible with any other, and all fits
}


class Broken(AssertionError):
    """The operator broke a rule."""


@dataclass
class World:
    """Everything the API server holds about one service, and what happens to it."""

    spec: Raw = field(default_factory=lambda: copied(SPEC))
    annotations: dict[str, str] = field(default_factory=dict)
    settings: OperatorSettings = SETTINGS
    now: float = START
    children: dict[tuple[str, str], Raw] = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)
    nodes: dict[str, Raw] = field(default_factory=dict)
    claims: dict[str, Raw] = field(default_factory=dict)
    certificates: dict[str, CertificateFacts] = field(default_factory=dict)
    secrets: dict[str, SecretFacts] = field(default_factory=dict)
    copied: dict[str, Raw] = field(default_factory=dict)  # Secrets that the operator copied, without their data
    sources: dict[str, SecretFacts] = field(default_factory=dict)
    lock_users_withdrawn: bool = False
    authority: AuthorityFacts = field(default_factory=lambda: AuthorityFacts(ready=True, signs="k1", trusts=("k1",)))
    cert_manager: bool = False
    issuer: IssuerFacts = field(default_factory=IssuerFacts)
    warnings: tuple[Warned, ...] = ()
    failures: tuple[Failure, ...] = ()
    status: Raw = field(default_factory=lambda: {"installation": SETTINGS.namespace})
    generation: int = 1
    epoch: int = 0  # of all shards: each takeover draws the next one
    takeovers: int = 0
    shard_takeovers: dict[str, int] = field(default_factory=dict)  # by StatefulSet
    made: int = 0
    tokens_made: int = 0
    deleted_at: str = ""
    unpullable: tuple[str, ...] = ()
    told: list[str] = field(default_factory=list)  # reasons of events
    refuses: tuple[Target, ...] = ()  # what the API server refuses for good
    was_refused: bool = False  # `failures` come from that
    done: list[Target] = field(default_factory=list)  # what was carried out
    strict: bool = True
    log_codes: dict[str, str] = field(default_factory=dict)  # by StatefulSet: fingerprint of the code the log is of
    orders: dict[str, str] = field(default_factory=dict)  # and one that its primary was told to be upgraded to
    calls_off: int = 0  # so many upgrades are called off
    safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS
    live_upgrades: dict[str, Raw] = field(default_factory=dict)
    drills: dict[str, Raw] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    rehearsals: dict[str, Raw] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in range(4):
            self.add_node(f"n{index}")
        self.claims["shared"] = claim("shared")
        self.sources["etcd-client"] = SecretFacts(
            name="etcd-client", keys=("ca.crt", "tls.crt", "tls.key"), digest="d1"
        )

    # ------------------------------------------------------------ what the operator sees and does

    def resource(self) -> Raw:
        """The DeathlessService."""
        found: Raw = {
            "apiVersion": names.API_VERSION,
            "kind": names.SERVICE_KIND,
            "metadata": {
                "name": "bank",
                "namespace": "prod",
                "uid": "uid-bank",
                "generation": self.generation,
                "annotations": dict(self.annotations),
                "creationTimestamp": show_time(START),
            },
            "spec": copied(self.spec),
            "status": copied(self.status),
        }
        if self.deleted_at:
            found["metadata"]["deletionTimestamp"] = self.deleted_at
        return found

    def snapshot(self) -> Snapshot:
        """What is seen now."""
        resource = read_resource(self.resource())
        storage = self.spec.get("logStorage", {})
        wanted = self.claims.get(storage.get("claimName") or names.log_claim("bank"))
        return Snapshot(
            now=self.now,
            resource=resource,
            children=tuple(read_child(copied(found)) for found in (*self.children.values(), *self.copied.values())),
            pods=tuple(read_pod(copied(found)) for found in self.pods.values()),
            nodes=tuple(read_node(found) for found in self.nodes.values()),
            live_upgrades=tuple(read_live_upgrade(copied(found)) for found in self.live_upgrades.values()),
            measured=self.measured,
            drills=tuple(read_drill(copied(found)) for found in self.drills.values()),
            rehearsals=tuple(read_rehearsal(copied(found)) for found in self.rehearsals.values()),
            claim=read_claim(wanted) if wanted else None,
            certificates=tuple(self.certificates.values()),
            authority=self.authority,
            lock_secrets=tuple(self.secrets.values()),
            lock_sources=tuple(self.sources.values()),
            lock_users_withdrawn=self.lock_users_withdrawn,
            cert_manager=self.cert_manager,
            issuer=self.issuer,
            record=self._record(),
            warnings=self.warnings,
            failures=self.failures,
        )

    def _record(self) -> ChildView | None:
        found = self.children.get(("ConfigMap", names.erase_record("prod", "bank")))
        return read_child(copied(found)) if found else None

    def plan(self) -> Plan:
        """The plan for what is seen now."""
        return make_plan(self.snapshot(), self.settings, self.safeguards)

    def operate(self, actions_max: int | None = None) -> Plan:
        """Run the operator once; it dies after so many actions."""
        before = copied(self.spec)
        plan = self.plan()
        failures = self._try(plan.actions[:actions_max])
        if failures or self.was_refused:
            self.failures, self.was_refused = (
                failures,
                bool(failures),
            )  # as the reconciler does: the status tells what was refused just now
            plan = replace(plan, status=self.plan().status)
        whole = actions_max is None or actions_max > len(plan.actions)
        if whole and plan.status is not None:
            self.status = json.loads(msgspec.json.encode(plan.status))
            self.told += [event.reason for event in plan.events]
            for told in plan.upgrades:
                self.live_upgrades[told.resource.name]["status"] = json.loads(msgspec.json.encode(told.status))
                self.told += [event.reason for event in told.events]
        if self.spec != before:
            raise Broken("the operator wrote a spec")
        return plan

    def _try(self, actions: Iterable[Action]) -> tuple[Failure, ...]:
        """Carry actions out but for those that are refused, and those that need one of these."""
        undone: dict[Target, Failure | None] = {}
        for action in actions:
            about = target(action)
            if needed := lacking(action, undone):
                undone[about] = None
                for each in needed:
                    if (failure := undone[each]) is not None:
                        undone[each] = replace(failure, holds=(*failure.holds, str(about)))
            elif any(about.kind == kind and about.name.startswith(name) for kind, name in self.refuses):
                undone[about] = Failure(
                    kind=about.kind, name=about.name, status=403, reason="Forbidden", message="denied by policy"
                )
            else:
                self.done.append(about)
                self.carry_out(action)
        return tuple(failure for failure in undone.values() if failure is not None)

    def carry_out(self, action: Action) -> None:
        """Do one action as the API server does."""
        match action:
            case Apply(manifest=manifest):
                self.apply(dict(manifest))
            case DeletePod():
                self.delete_pod(action)
            case DeleteObject(kind="Secret", name=name, uid=uid):
                assert self.copied[name]["metadata"]["uid"] == uid
                self._check_unused("Secret", name)
                del self.copied[name], self.secrets[name]
            case DeleteObject(kind=kind, name=name, uid=uid):
                self._check_unused(kind, name)
                if self.children[kind, name]["metadata"]["uid"] == uid:
                    del self.children[kind, name]
            case PatchMetadata(name=name, annotations=annotations, labels=labels):
                self._annotate(name, annotations or {})
                self.pods[name]["metadata"]["labels"] |= {key: value for key, value in (labels or {}).items() if value}
            case IssueCertificate():
                self._issue(action)
            case TrustAuthorities(secret=secret, uid=uid):
                assert self.certificates[secret].uid == uid
                self.certificates[secret] = replace(self.certificates[secret], trusts=self.authority.trusts)
            case CopySecret(source=source, manifest=manifest):
                copy_name = text(manifest, "metadata", "name")
                facts = self.sources[source]
                uid = self.copied.get(copy_name, {"metadata": {"uid": f"uid-{self.made}-{copy_name}"}})["metadata"][
                    "uid"
                ]
                self.copied[copy_name] = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}  # type: ignore[dict-item]  # metadata is an object
                self.secrets[copy_name] = SecretFacts(
                    name=copy_name, keys=facts.keys, digest=facts.digest, source=facts.digest, managed=True
                )
            case MakeToken(manifest=manifest):
                token_name = text(manifest, "metadata", "name")
                if token_name in self.secrets:
                    raise Broken(f"{token_name} is there, and would be made anew")
                self.tokens_made += 1
                self.secrets[token_name] = SecretFacts(name=token_name, keys=("token",), managed=True)

    def apply(self, manifest: Raw) -> None:
        """Server-side apply, for one manager: what is applied stands, in the spelling of the API server."""
        manifest = copied(manifest)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "Pod":
            if name not in self.pods:
                self.make_pod(name, manifest)
            return
        old = self.children.get((kind, name))
        self.made += old is None
        new: Raw = {"metadata": {"uid": f"uid-{self.made}-{name}", "creationTimestamp": show_time(self.now)}}
        metadata = (old or new)["metadata"]
        if "spec" in manifest:
            manifest["spec"] = stored(manifest["spec"])
        kept = {key: metadata[key] for key in ("uid", "creationTimestamp") if key in metadata}
        manifest["metadata"] = {**manifest["metadata"], **kept}
        if kind in COUNTED:
            changed = old is None or old["spec"] != manifest["spec"]
            manifest["metadata"]["generation"] = metadata.get("generation", 0) + changed
        manifest["status"] = (old or {}).get("status", {})
        self.children[kind, name] = manifest
        if kind == "PersistentVolumeClaim":
            self.claims[name] = claim(name, uid=metadata["uid"])

    def _check_unused(self, kind: str, name: str) -> None:
        if users := [key for key, pod in self.pods.items() if (kind, name) in read_pod(pod).mounts]:
            raise Broken(f"{kind} {name} is deleted while {users} refer to it")

    def config_name(self, name: str = "bank") -> str:
        """Name of the ConfigMap that a StatefulSet's template mounts."""
        found = self.children["StatefulSet", name]["spec"]["template"]["spec"]["volumes"]
        return next(str(volume["configMap"]["name"]) for volume in found if "configMap" in volume)

    def config(self, name: str = "bank") -> Raw:
        """The replica.json in it."""
        found: Raw = json.loads(self.children["ConfigMap", self.config_name(name)]["data"]["replica.json"])
        return found

    def meddle(self, change: Raw, name: str = "bank") -> None:
        """Somebody else changes fields of a StatefulSet's spec, if there is one."""
        found = self.stateful_set(name)
        if found is not None and found["spec"] | change != found["spec"]:
            found["spec"] |= copied(change)
            found["metadata"]["generation"] += 1

    def delete_pod(self, action: DeletePod) -> None:
        """Delete a pod, once it is seen that the operator may."""
        pod = self.pods.get(action.name)
        if pod is None or pod["metadata"]["uid"] != action.uid:
            return
        if names.LABEL_PURPOSE not in pod["metadata"]["labels"] and not action.force and self.strict:
            self._check_roll(action.name)
        if action.force or action.grace_s == 0:
            del self.pods[action.name]
        else:
            pod["metadata"].setdefault("deletionTimestamp", show_time(self.now + 30))

    def _check_roll(self, name: str) -> None:
        found = self.stateful_set(set_of(name))
        log_code = self.log_codes.get(set_of(name), "")
        code = code_of(found["spec"]["template"]) if found else log_code
        if is_ready(self.pods[name]) and code != log_code:
            raise Broken(f"{name} serves, and would be made anew from other code than the log is of")
        others = {key: pod for key, pod in self.replicas(set_of(name)).items() if key != name}
        size = min(self.size(set_of(name)), self.spec["replicas"])  # pods that an upgrade needs besides may be missing
        stay = {names.pod(set_of(name), ordinal) for ordinal in range(size)}
        if stay - {name, *others}:
            raise Broken(f"{name} is deleted while another pod is missing")
        for before in self.sets()[: self.sets().index(set_of(name))]:
            pods = self.replicas(before)
            old = [key for key, pod in pods.items() if template_of(pod) != self.template(before)]
            if old or len(pods) < self.size(before):
                raise Broken(f"{name} is deleted before the shard of {before} is rolled: {old}")
        if going := [key for key, pod in others.items() if is_going(pod)]:
            raise Broken(f"{name} is deleted while {going} is going")
        template = self.template(set_of(name))
        if role(self.pods[name]) == "primary" and is_ready(self.pods[name]):
            old = [key for key, pod in others.items() if template_of(pod) != template]
            unready = [key for key, pod in others.items() if not is_ready(pod) and not is_fenced(pod)]
            if old or unready:
                raise Broken(f"primary {name} is deleted before {old or unready}")

    def _annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        held = self.pods[name]["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value

    def _issue(self, action: IssueCertificate) -> None:
        name = text(action.manifest, "metadata", "name")
        self.certificates[name] = CertificateFacts(
            secret=name,
            not_before=self.now - 300,
            not_after=self.now + action.life_s,
            dns_names=action.dns_names,
            uris=action.uris,
            signed_by=self.authority.signs,
            trusts=self.authority.trusts,
        )

    # ------------------------------------------------------------ what the cluster does

    def sets(self) -> list[str]:
        """Names of the StatefulSets, by shard."""
        return [names.of_shard("bank", shard) for shard in range(self.spec.get("shards", 1))]

    @property
    def log_code(self) -> str:
        """Fingerprint of the code that the first shard's log is of."""
        return self.log_codes.get("bank", "")

    @log_code.setter
    def log_code(self, fingerprint: str) -> None:
        self.log_codes["bank"] = fingerprint

    @property
    def ordered(self) -> str:
        """Fingerprint that the first shard's primary was told to be upgraded to, and is not yet."""
        return self.orders.get("bank", "")

    @ordered.setter
    def ordered(self, fingerprint: str) -> None:
        self.orders["bank"] = fingerprint

    def stateful_set(self, name: str = "bank") -> Raw | None:
        """The StatefulSet."""
        return self.children.get(("StatefulSet", name))

    def size(self, name: str = "bank") -> int:
        """Replicas that the StatefulSet is given."""
        found = self.stateful_set(name)
        return int(found["spec"]["replicas"]) if found else 0

    def template(self, name: str = "bank") -> str:
        """Hash of the StatefulSet's template."""
        found = self.stateful_set(name)
        return str(found["spec"]["template"]["metadata"]["labels"][names.LABEL_TEMPLATE]) if found else ""

    def replicas(self, name: str = "") -> dict[str, Raw]:
        """Pods of a set, or of all."""
        found = sorted(self.pods.items())
        pods = {key: pod for key, pod in found if names.LABEL_PURPOSE not in pod["metadata"]["labels"]}
        return {key: pod for key, pod in pods.items() if name in ("", set_of(key))}

    def add_node(self, name: str) -> None:
        """Add a ready node."""
        self.nodes[name] = {
            "metadata": {"name": name},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": show_time(START)}]},
        }

    def lose_node(self, name: str) -> None:
        """The node stops to answer, and what runs on it is unready for the API server."""
        self.nodes[name]["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": show_time(self.now)}
        ]
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") == name:
                set_ready(pod, ready=False)

    def find_node(self, name: str) -> None:
        """The node answers again."""
        self.add_node(name)

    def run_controller(self) -> None:
        """The StatefulSet controller: makes what is missing, ends what is too much."""
        for each in self.sets():
            found = self.stateful_set(each)
            if found is None:
                continue
            found["status"] = {"observedGeneration": found["metadata"]["generation"]}
            wanted = {names.pod(each, ordinal) for ordinal in range(self.size(each))}
            for name in sorted(wanted - set(self.replicas(each))):
                self.make_pod(name, copied(found["spec"]["template"]))
            for name, pod in self.replicas(each).items():
                if name not in wanted:
                    pod["metadata"].setdefault("deletionTimestamp", show_time(self.now + 30))

    def make_pod(self, name: str, template: Raw) -> None:
        """A pod from a template, not started yet."""
        self.made += 1
        metadata = dict(template["metadata"]) | {
            "name": name,
            "uid": f"uid-{self.made}-{name}",
            "creationTimestamp": show_time(self.now),
        }
        pod = {"metadata": metadata, "spec": dict(template["spec"]), "status": {"phase": "Pending"}}
        self.pods[name] = pod

    def place(self, pod: Raw) -> None:
        """The scheduler: the ready node with the fewest pods."""
        used = [found["spec"].get("nodeName") for found in self.pods.values()]
        ready = [name for name, node in self.nodes.items() if node["status"]["conditions"][0]["status"] == "True"]
        if ready and not pod["spec"].get("nodeName"):
            pod["spec"]["nodeName"] = min(ready, key=lambda name: (used.count(name), name))

    def run_kubelet(self, name: str) -> None:
        """The node of a pod takes its next step: start it, make it ready, or end it."""
        pod = self.pods.get(name)
        if pod is None:
            return
        self.place(pod)
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        if node is None or node["status"]["conditions"][0]["status"] != "True":
            return
        if is_going(pod):
            if role(pod) == "primary":
                self._hand_over(name)
            del self.pods[name]
        elif purpose(pod) == names.PURPOSE_UPGRADE:
            if pod["status"]["phase"] in ("Pending", "Running"):
                self._run_driver(pod)
        elif purpose(pod):
            if pod["status"]["phase"] == "Pending":
                self._run_check(pod)
        elif pod["status"]["phase"] == "Pending":
            self._start(pod, name)
        elif self.log_codes.get(set_of(name), code_of(pod)) != code_of(pod):
            self._stand_by(pod, name)
        else:
            set_ready(pod, ready=not is_fenced(pod), at=self.now)
            if is_fenced(pod):
                self._say(name, pod, "fenced")
            elif role(pod) in ("recovering", "fenced", "upgrader", ""):
                self._say(name, pod, "standby")

    def _start(self, pod: Raw, name: str) -> None:
        image = pod["spec"]["containers"][0]["image"]
        if image in self.unpullable:
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling {image}"}
            pod["status"]["containerStatuses"] = [{"name": "replica", "image": image, "state": {"waiting": waiting}}]
            return
        pod["status"] = {
            "phase": "Running",
            "containerStatuses": [{"name": "replica", "image": image, "state": {"running": {}}}],
        }
        set_ready(pod, ready=False)
        self._say(name, pod, "recovering")

    def _stand_by(self, pod: Raw, name: str) -> None:
        """The log is of other code: it waits for an upgrade, where it is made for one, or is idle for good."""
        set_ready(pod, ready=False, at=self.now)
        upgrades = names.FORMER_CONTAINER in [each["name"] for each in pod["spec"]["containers"]]
        self._say(name, pod, "upgrader" if upgrades else "dead", condition="" if upgrades else "DL4009")

    def _run_driver(self, pod: Raw) -> None:
        """It looks, gives the order, and tells what came of it."""
        (container,) = pod["spec"]["containers"]
        told = code_of(pod)
        pod["status"].setdefault("containerStatuses", [{"name": "upgrade", "state": {"running": {}}}])
        each = names.of_shard("bank", int(pod["metadata"]["labels"].get(names.LABEL_SHARD, "0")))
        pods = self.replicas(each).values()
        upgraders = [pod for pod in pods if role(pod) == "upgrader" and code_of(pod) == told]
        if pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Running"
        elif self.log_codes.get(each) == told:
            made = {"fingerprint": told, "generation": self.takeovers, "unavailableS": 0.25, "fromVersion": 1}
            end_driver(pod, 0, json.dumps(made), self.now)
        elif container["image"] == "bank:misfit":
            end_driver(pod, 78, "DL1023 FieldDropped: Account.owner", self.now)
        elif self._differs(told, each) and "--only-compatible" in container["command"]:
            end_driver(pod, 78, "DL1023 HandlerGone: close", self.now)
        elif self.calls_off or self.now - made_at(pod) > 600:
            self.calls_off = max(0, self.calls_off - 1)
            end_driver(pod, 75, "DL1022 the upgrader is not up to date", self.now)
        elif upgraders and "--prepare-only" in container["command"]:
            end_driver(pod, 0, json.dumps({"prepared": True}), self.now)
        elif upgraders and not self.orders.get(each):
            self.orders[each] = told

    def _differs(self, told: str, each: str) -> bool:
        return FINGERPRINTS["bank:major"] in (told, self.log_codes.get(each))

    def _commit(self, each: str) -> None:
        """An upgrader makes the upgrade that was ordered, where it still can: nobody asks who ordered it."""
        told = self.orders.pop(each, "")
        for key, pod in self.replicas(each).items():
            if told and role(pod) == "upgrader" and code_of(pod) == told:
                self.log_codes[each], self.epoch, self.takeovers = told, self.epoch + 1, self.takeovers + 1
                self.shard_takeovers[each] = self.shard_takeovers.get(each, 0) + 1
                for other in self.replicas(each).values():
                    other["metadata"]["labels"].pop(names.LABEL_ROLE, None)
                    if code_of(other) != told:
                        set_ready(other, ready=False, at=self.now)
                set_ready(pod, ready=True, at=self.now)
                self._say(key, pod, "primary")
                return

    def _run_check(self, pod: Raw) -> None:
        found = pod["spec"]["containers"][0]
        if found["image"] in self.unpullable:
            waiting = {"reason": "ErrImagePull", "message": "no such image"}
            pod["status"]["containerStatuses"] = [{"name": "check", "state": {"waiting": waiting}}]
            return
        ended = {
            "exitCode": 0,
            "message": json.dumps({"fingerprint": FINGERPRINTS[found["image"]]}),
            "finishedAt": show_time(self.now),
        }
        pod["status"] = {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "check", "state": {"terminated": ended}}],
        }

    def _say(self, name: str, pod: Raw, spoken: str, condition: str = "") -> None:
        ordinal = name.rpartition("-")[2]
        pod["metadata"]["labels"][names.LABEL_ROLE] = spoken
        told = {
            "replica": f"r{ordinal}",
            "role": spoken,
            "epoch": self.epoch,
            "fingerprint": code_of(pod) if spoken == "dead" else self.log_codes.get(set_of(name)) or code_of(pod),
            "condition": condition,
            "service_id": "ab" * 16,
            "incarnation": 1,
        }
        pod["metadata"].setdefault("annotations", {})[names.STATUS_ANNOTATION] = json.dumps(told)

    def _hand_over(self, name: str) -> None:
        del self.pods[name]["metadata"]["labels"][names.LABEL_ROLE]
        self.elect()

    def elect(self) -> None:
        """A replica that serves takes the lead of its shard where none does."""
        for each in self.sets():
            self._commit(each)
            self._elect(each)

    def _elect(self, each: str) -> None:
        able = {
            key: pod
            for key, pod in self.replicas(each).items()
            if is_ready(pod) and not is_going(pod) and not is_fenced(pod)
        }
        if not able or any(role(pod) == "primary" for pod in able.values()):
            return
        name, pod = next(iter(able.items()))
        assert self.log_codes.setdefault(each, code_of(pod)) == code_of(pod), "other code leads"
        self.epoch += 1
        self.takeovers += 1
        self.shard_takeovers[each] = self.shard_takeovers.get(each, 0) + 1
        self._say(name, pod, "primary")
        for key, other in self.replicas(each).items():
            if key != name and role(other) in ("primary", "standby"):
                self._say(key, other, "standby")  # it follows, and tells the new epoch

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds

    def others_work(self) -> None:
        """Everybody but the operator works once, and a second goes by."""
        self.run_controller()
        for name in list(self.pods):
            self.run_kubelet(name)
        self.elect()
        self.pass_time(1)

    def edit(self, **changes: object) -> None:
        """A user changes the spec."""
        self.spec |= changes
        self.generation += 1

    def ask(self, name: str, image: str, **spec: object) -> None:
        """A user makes a LiveUpgrade."""
        self.live_upgrades[name] = {
            "apiVersion": names.API_VERSION,
            "kind": names.LIVE_UPGRADE_KIND,
            "metadata": {
                "name": name,
                "namespace": "prod",
                "uid": f"uid-{name}-{len(self.told)}",
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": show_time(self.now + len(self.live_upgrades)),
            },
            "spec": {"serviceRef": {"name": "bank"}, "to": {"image": image}, **spec},
        }

    def order(self, name: str, action: str) -> None:
        """A user changes the action of a LiveUpgrade."""
        self.live_upgrades[name]["spec"]["action"] = action
        self.live_upgrades[name]["metadata"]["generation"] += 1

    def upgrade(self, name: str) -> Raw:
        """The status of a LiveUpgrade."""
        found: Raw = self.live_upgrades[name].get("status", {})
        return found

    def settle(self, rounds_max: int = 80) -> None:
        """Let everybody work until nothing changes. Raises: Broken when it does not come to rest."""
        before = self.shape()
        for _ in range(rounds_max):
            self.operate()
            self.others_work()
            after = self.shape()
            if after == before and self._rests():
                return
            before = after
        raise Broken(f"it does not come to rest: {self.plan().sentence}; {[str(a)[:300] for a in self.plan().actions]}")

    def _rests(self) -> bool:
        """Whether the operator has nothing to do now, and is not to look again at once."""
        plan = self.plan()
        return not plan.actions and (plan.requeue_s is None or plan.requeue_s > 1)

    def shape(self) -> bytes:
        """All that may still change, as JSON."""
        pods = {key: {part: pod[part] for part in ("metadata", "status")} for key, pod in self.pods.items()}
        return msgspec.json.encode(
            [pods, list(self.children.values()), list(map(str, self.certificates)), self.status, self.live_upgrades]
        )

    def condition(self, kind: str) -> Raw:
        """A condition of the status that was written last."""
        return next(found for found in self.status["conditions"] if found["type"] == kind)


def claim(
    name: str,
    *,
    uid: str = "uid-claim",
    modes: Iterable[str] = ("ReadWriteMany",),
    phase: str = "Bound",
    capacity: str = "1Gi",
) -> Raw:
    """A claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "uid": uid},
        "spec": {"accessModes": list(modes)},
        "status": {"phase": phase, "capacity": {"storage": capacity}},
    }


def set_of(pod: str) -> str:
    """Name of the StatefulSet that a replica's pod is of."""
    return pod.rpartition("-")[0]


def made_at(pod: Raw) -> float:
    """When a pod was made."""
    return read_pod(pod).created_at


def purpose(pod: Raw) -> str:
    """What a pod is for; empty: a replica's."""
    return str(pod["metadata"]["labels"].get(names.LABEL_PURPOSE, ""))


def code_of(pod: Raw) -> str:
    """Fingerprint of the code in a pod's image."""
    return FINGERPRINTS[pod["spec"]["containers"][0]["image"]]


def end_driver(pod: Raw, code: int, message: str, now: float) -> None:
    """A pod that leads through an upgrade ends."""
    ended = {"exitCode": code, "message": message, "finishedAt": show_time(now)}
    status = [{"name": "upgrade", "state": {"terminated": ended}}]
    pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": status}


def is_going(pod: Raw) -> bool:
    """Whether a pod is marked for deletion."""
    return "deletionTimestamp" in pod["metadata"]


def is_fenced(pod: Raw) -> bool:
    """Whether a pod bears the fencing annotation."""
    return bool(pod["metadata"].get("annotations", {}).get(names.FENCED_ANNOTATION) == "true")


def role(pod: Raw) -> str:
    """A pod's role label."""
    return str(pod["metadata"]["labels"].get(names.LABEL_ROLE, ""))


def template_of(pod: Raw) -> str:
    """Hash of the template a pod was made from."""
    return str(pod["metadata"]["labels"].get(names.LABEL_TEMPLATE, ""))


def is_ready(pod: Raw) -> bool:
    """Whether a pod is ready."""
    conditions = pod["status"].get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def set_ready(pod: Raw, *, ready: bool, at: float | None = None) -> None:
    """Make a pod ready, or not; the time stands when nothing changes."""
    if at is None or is_ready(pod) != ready:
        changed = {} if at is None else {"lastTransitionTime": show_time(at)}
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False", **changed}]


def running(spec: Raw | None = None) -> World:
    """A world in which the service runs and everybody rests."""
    world = World(spec={**copied(SPEC), **(spec or {})})
    world.settle()
    world.pass_time(60)
    return world
