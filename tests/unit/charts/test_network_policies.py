"""Who reaches whom at which port: one table, held against every policy and every pod that are made.

The pods are those that the chart and the operator make, with the labels and ports that they are given there. A label, a
port or a policy that changes alone changes what passes, and then the table differs: more passes, or what is needed does
not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from tests.unit.charts.policies import Object, Peer, Policies, read_peer
from tests.unit.charts.rendering import NAMESPACE, render
from tests.unit.charts.test_chart_rendering import etcd_arguments, operator_arguments
from tests.unit.deathless_operator.plan.drill_world import World as DrillWorld
from tests.unit.deathless_operator.plan.drill_world import make_spec
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import resource as pipeline_resource
from tests.unit.deathless_operator.plan.service.upgrading.test_image_check import checking

from deathless.base.manifest import ServiceSpec
from deathless_operator.cli import run
from deathless_operator.cluster.connection import Connection
from deathless_operator.model import names
from deathless_operator.model.drill import DrillRun
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.drill.pods import agent_manifest, runner_manifest
from deathless_operator.plan.pipelines.objects import PipelineObjects
from deathless_operator.plan.service.erasure import Record, eraser_manifest
from deathless_operator.plan.service.objects import Code, Lock, Objects
from deathless_operator.plan.service.placement import Mounted
from deathless_operator.plan.service.upgrading.accepted import Drive
from deathless_operator.plan.service.upgrading.driving import driving_pod
from deathless_operator.plan.snapshot import ResourceView

CLIENT, REPLICATION, CONTROL, HTTP, HEALTH = 7401, 7402, 7403, 8080, 8081
ETCD, ETCD_PEER, ETCD_METRICS, DNS = 2379, 2380, 2381, 53
PORTS = (DNS, 443, 6443, CLIENT, REPLICATION, CONTROL, HTTP, HEALTH, ETCD, ETCD_PEER, ETCD_METRICS)
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}

SELF = {CLIENT, REPLICATION, CONTROL, HTTP, HEALTH}

# Who calls whom at which ports. A pair that is not here passes nothing. Pods that no policy is about (CALLERS) may call
# whom they like, so their rows say what the callee lets in.
CALLERS = ("runner", "stranger", "caller", "check", "agent", "names")
GUARDED = ("bank", "shop", "operator", "lock-store", "certificates", "driver")
API = {443, 6443}
NAMES = {DNS, -DNS}  # by TCP, and by UDP
TABLE: dict[tuple[str, str], set[int]] = {
    ("bank", "bank"): SELF,
    ("shop", "shop"): SELF,
    ("shop", "bank"): {CLIENT},  # bank is a peer of shop, and not the other way
    ("bank", "lock-store"): {ETCD},
    ("shop", "lock-store"): {ETCD},
    ("lock-store", "lock-store"): {ETCD, ETCD_PEER},
    # Where nothing is known of the callee ports alone decide: names, the API server, a lock store of somebody else's.
    ("bank", "names"): {*NAMES, ETCD, *API},
    ("bank", "outside"): {*NAMES, ETCD, *API},
    ("shop", "names"): {*NAMES, ETCD, CLIENT, *API},
    ("shop", "outside"): {*NAMES, ETCD, CLIENT, *API},
    ("operator", "names"): {*NAMES, *API},
    ("operator", "outside"): {*NAMES, *API},
    ("certificates", "names"): {*NAMES, *API},
    ("certificates", "outside"): {*NAMES, *API},
    ("lock-store", "names"): {*NAMES},
    ("lock-store", "outside"): {*NAMES},
    # A driver of a pipeline is called by nobody, and calls services at their ports, whosever they are.
    ("driver", "bank"): {CLIENT, HTTP},
    ("driver", "shop"): {CLIENT, HTTP},
    ("driver", "operator"): {HTTP},
    ("driver", "names"): {*NAMES, *API, CLIENT, HTTP},
    ("driver", "outside"): {*NAMES, *API, CLIENT, HTTP},
    ("eraser", "lock-store"): {ETCD, ETCD_METRICS},
    ("chart-test", "lock-store"): {ETCD, ETCD_METRICS},
    ("outside", "bank"): {HEALTH},
    ("outside", "shop"): {HEALTH},
}
for _driver in ("bank-upgrade", "shop-upgrade"):
    TABLE |= {(_driver, replica): {CLIENT, HTTP, HEALTH} for replica in ("bank", "shop")}
    TABLE |= {(_driver, "operator"): {HTTP}, (_driver, "lock-store"): {ETCD, ETCD_METRICS}}
TABLE |= {("bank-upgrade", "bank"): SELF, ("shop-upgrade", "shop"): SELF}
for _caller in (*CALLERS, "eraser", "chart-test"):
    TABLE |= {(_caller, replica): {CLIENT, HTTP, HEALTH} for replica in ("bank", "shop")}
    TABLE |= {(_caller, "operator"): {HTTP}}
    TABLE.setdefault((_caller, "lock-store"), {ETCD_METRICS})


def settings_of(objects: list[Object]) -> OperatorSettings:
    """The settings that the chart gives to the operator."""
    given = [each.replace("$(POD_NAMESPACE)", NAMESPACE) for each in operator_arguments(objects)]
    context = run.command.make_context("run", given)
    return run.run_options(context.params, Connection(server="https://x.example")).settings


@dataclass
class Made:
    """What the operator makes for one service."""

    settings: OperatorSettings
    namespace: str
    name: str
    fields: Object

    def __post_init__(self) -> None:
        self.spec = msgspec.convert(SPEC | self.fields, ServiceSpec)
        self.resource = ResourceView(
            namespace=self.namespace, name=self.name, uid=f"u-{self.name}", generation=1, spec=self.spec
        )
        self.objects = Objects(self.resource, self.spec, self.settings)
        self.lock = Lock(endpoints=self.settings.lock_endpoints, prefix=names.lock_prefix(self.namespace))

    def policy(self) -> Object:
        made: Any = self.objects.network_policy(self.lock)
        return dict(made)

    def stateful_set(self) -> Any:
        mounted = Mounted(config_map="c", claim="l")
        return self.objects.stateful_set(mounted, self.lock, Code(image="bank:1", module="bank:bank"), replicas=3)

    def driver(self) -> Object:
        drive = Drive(key="k", attempt=1, fingerprint="ab", only_compatible=True, upgraders=("r3", "r4"))
        made: Any = driving_pod(self.objects, self.name, self.stateful_set(), drive)
        return dict(made)

    def replica(self) -> Object:
        template = self.stateful_set()["spec"]["template"]
        metadata = {"name": f"{self.name}-0", "namespace": self.namespace, **template["metadata"]}
        return {"metadata": metadata, "spec": template["spec"]}


def templates(objects: list[Object]) -> dict[str, Object]:
    """The pods of the chart, by the component that they are labelled with."""
    found: dict[str, Object] = {}
    for each in objects:
        spec = each.get("spec") or {}
        if each["kind"] == "Pod":
            pod = each
        elif each["kind"] in {"Deployment", "StatefulSet", "Job"}:
            pod = spec["template"]
        elif each["kind"] == "CronJob":
            pod = spec["jobTemplate"]["spec"]["template"]
        else:
            continue
        labels = pod["metadata"]["labels"]
        name = labels["app.kubernetes.io/component"]
        # Job and CronJob make pods of the same labels.
        assert name not in found or found[name]["metadata"]["labels"] == labels
        metadata = {"name": name, "namespace": each["metadata"]["namespace"], "labels": labels}
        found[name] = {"metadata": metadata, "spec": pod["spec"]}
    return found


def scene(values: Object | None = None, **fields: Any) -> tuple[Policies, dict[str, Peer]]:
    """Everything that is made for two services of one installation, and who else there is.

    Args:
        values: of the chart.
        fields: of the first service's spec.
    """
    objects = render(values or {})
    settings = settings_of(objects)
    bank = Made(settings, "prod", "bank", fields)
    shop = Made(settings, "web", "shop", {"peers": [{"name": "bank", "addresses": ["bank.prod.svc:7401"]}]})
    drill = DrillWorld(make_spec()).resource()
    order = DrillRun(id="nightly-1", target="bank-0", target_uid="uid-0", node="worker0")
    assert drill.spec is not None
    runner: Any = runner_manifest(drill, drill.spec, order, bank.spec, settings)
    agent: Any = agent_manifest(drill, drill.spec, order, bank.spec, settings)
    record = Record(
        namespace="prod", service="bank", uid="u", claim="bank-log", lock=bank.lock, place=settings.namespace
    )
    eraser: Any = eraser_manifest(record, settings)
    _, check = checking(image="bank:2")
    pipeline = pipeline_resource().pipeline
    assert pipeline is not None
    drivers = PipelineObjects(pipeline, "prod", "u", settings)
    parts = templates(objects)
    pods = {
        "bank": read_peer(bank.replica()),
        "shop": read_peer(shop.replica()),
        "operator": read_peer(parts["operator"]),
        "lock-store": read_peer(parts["lock-store"]),
        "certificates": read_peer(parts["certificates"]),
        "chart-test": read_peer(parts["test"]),
        "runner": replace(read_peer(runner), namespace="prod"),
        "agent": read_peer(agent),
        "eraser": read_peer(eraser),
        "check": read_peer(check),
        "bank-upgrade": read_peer(bank.driver()),
        "shop-upgrade": read_peer(shop.driver()),
        "driver": read_peer(driver_pod(drivers)),
        "stranger": Peer(name="stranger", namespace="prod"),
        "caller": Peer(name="caller", namespace="web"),
        "names": Peer(name="names", namespace="kube-system", labels=(("k8s-app", "kube-dns"),)),
        "outside": Peer(name="an address outside of the cluster"),
    }
    if "lock-users" in parts:
        pods["lock-users"] = read_peer(parts["lock-users"])
    policies: list[Any] = [bank.policy(), shop.policy(), drivers.network_policy()]
    policies += [*(each for each in objects if each["kind"] == "NetworkPolicy")]
    labels = {name: {"kubernetes.io/metadata.name": name} for name in ("prod", "web", "kube-system", NAMESPACE)}
    return Policies(list(pods.values()), policies, labels), pods


def driver_pod(drivers: PipelineObjects) -> Object:
    """The first pod of a pipeline's drivers."""
    made: Any = drivers.stateful_set()
    template = made["spec"]["template"]
    metadata = {"name": "delays-drivers-0", "namespace": "prod", **template["metadata"]}
    return {"metadata": metadata, "spec": template["spec"]}


def passing(rules: Policies, caller: Peer, callee: Peer) -> set[int]:
    """The ports that pass; negative: by UDP."""
    found = {port for port in PORTS if rules.allows(caller, callee, port)}
    return found | {-port for port in PORTS if rules.allows(caller, callee, port, "UDP")}


def differences(rules: Policies, pods: dict[str, Peer]) -> Iterator[tuple[str, str, set[int], set[int]]]:
    """What passes and what should, where that differs, for every pair that a policy has a say in."""
    for callee in (*GUARDED, "names", "outside"):
        for caller, pod in pods.items():
            if caller in GUARDED or callee in GUARDED:
                passes, should = passing(rules, pod, pods[callee]), TABLE.get((caller, callee), set())
                if passes != should:
                    yield caller, callee, passes, should


def differ(rules: Policies, pods: dict[str, Peer]) -> bool:
    return next(differences(rules, pods), None) is not None


def test_what_is_needed_passes_and_nothing_else() -> None:
    rules, pods = scene()
    assert list(differences(rules, pods)) == []


def test_every_policy_is_about_the_pods_that_it_is_named_after() -> None:
    rules, pods = scene()
    about = {
        name: [policy["metadata"]["name"] for policy in rules.of(pod)] for name, pod in pods.items() if rules.of(pod)
    }
    installed = {name: [f"deathless-{name}"] for name in ("operator", "lock-store", "certificates")}
    assert about == {"bank": ["bank"], "shop": ["shop"], "driver": ["delays-drivers"], **installed}


def changed(policies: list[Object]) -> Iterator[tuple[str, list[Object]]]:
    """Every policy taken away, and every port and label in one changed, one at a time."""
    for index, policy in enumerate(policies):
        name = policy["metadata"]["name"]
        yield f"without {name}", [*policies[:index], *policies[index + 1 :]]
        spec = policy["spec"]
        for way in ("ingress", "egress"):
            for number, rule in enumerate(spec.get(way, ())):
                for port in range(len(rule.get("ports", ()))):
                    other = copy.deepcopy(policies)
                    other[index]["spec"][way][number]["ports"][port]["port"] = 9
                    yield f"{name}: {way} {number}, port {rule['ports'][port]}", other
                for end in range(len(rule.get("from" if way == "ingress" else "to", ()))):
                    other = copy.deepcopy(policies)
                    peers = other[index]["spec"][way][number]["from" if way == "ingress" else "to"]
                    peers[end] = {"podSelector": {"matchLabels": {"forgotten": "yes"}}}
                    yield f"{name}: {way} {number}, peer {end}", other
        other = copy.deepcopy(policies)
        other[index]["spec"]["podSelector"]["matchLabels"]["forgotten"] = "yes"
        yield f"{name}: about others", other


def test_any_change_of_one_policy_alone_is_seen() -> None:
    rules, pods = scene()
    unseen = []
    for what, policies in changed(rules.policies):
        rules.policies = policies
        if not differ(rules, pods):
            unseen.append(what)
    assert unseen == []


COMPONENT = ("app.kubernetes.io/name", "app.kubernetes.io/component")
LABELS = {
    **dict.fromkeys(("bank", "shop"), (names.LABEL_NAME, names.LABEL_INSTANCE, names.LABEL_SERVICE)),
    **dict.fromkeys(("operator", "lock-store", "certificates", "chart-test"), COMPONENT),
    "eraser": (names.LABEL_PURPOSE,),
    "bank-upgrade": (names.LABEL_PURPOSE, names.LABEL_INSTANCE, names.LABEL_SERVICE),
}


@pytest.mark.parametrize(("who", "label"), [(who, label) for who, labels in LABELS.items() for label in labels])
def test_pod_that_loses_a_label_of_a_policy_is_seen(who: str, label: str) -> None:
    rules, pods = scene()
    kept = tuple(pair for pair in pods[who].labels if pair[0] != label)
    assert kept != pods[who].labels
    assert differ(rules, pods | {who: replace(pods[who], labels=kept)})


def test_table_names_the_ports_that_processes_listen_on() -> None:
    _, pods = scene()
    assert dict(pods["bank"].ports) == {
        "client": CLIENT, "replication": REPLICATION, "control": CONTROL, "http": HTTP, "health": HEALTH,
    }  # fmt: skip
    members = etcd_arguments({})
    listens = [members[f"listen-{what}-urls"].rpartition(":")[2] for what in ("client", "peer", "metrics")]
    assert [int(port) for port in listens] == [ETCD, ETCD_PEER, ETCD_METRICS]
    assert {port for _, port in pods["lock-store"].ports} == {ETCD, ETCD_PEER, ETCD_METRICS}
    context = run.command.make_context("run", operator_arguments(render({})))
    assert dict(pods["operator"].ports)["metrics"] == context.params["metrics_port"] == HTTP


def test_front_door_for_some_is_closed_to_others() -> None:
    apps = {"podSelector": {"matchLabels": {"app": "till"}}, "namespaceSelector": {}}
    rules, pods = scene(ingress={"allowFrom": [apps]})
    till = replace(pods["caller"], labels=(("app", "till"),))
    assert passing(rules, till, pods["bank"]) == {CLIENT, HTTP, HEALTH}
    assert passing(rules, pods["runner"], pods["bank"]) == {CLIENT, HTTP, HEALTH}, "drills call as callers do"
    for who in ("caller", "stranger", "shop"):
        assert passing(rules, pods[who], pods["bank"]) <= {HEALTH}


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_front_door_that_is_reached_from_outside_lets_it_in(kind: str) -> None:
    rules, pods = scene(ingress={"serviceType": kind})
    assert passing(rules, pods["outside"], pods["bank"]) == {CLIENT, HTTP, HEALTH}
