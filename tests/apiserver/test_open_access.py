"""Who reaches a service on a real API server: the NetworkPolicy is what allowFrom means, and open doors are told of."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chart_rights import granted
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer, binaries
from test_services import conditions, exists, make_service

from deathless_operator.cluster.kinds import BUDGET, EVENT, KUBE_SERVICE, NETWORK_POLICY, SERVICE, Kind

pytestmark = pytest.mark.apiserver
MERGE = "application/merge-patch+json"
TILL = {"podSelector": {"matchLabels": {"app": "till"}}}
ALLOWED = [
    TILL,
    TILL | {"namespaceSelector": {}},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
]
DRILLS = {"podSelector": {"matchLabels": {"deathless.dev/purpose": "drill"}}}
MTLS = {"ingress": {"authentication": {"type": "MTLS"}}}


@pytest.fixture
def operator(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, which leads."""
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as made:
        made.wait_leading()
        yield made


def body(server: RealApiServer, kind: Kind, namespace: str) -> Any:
    """The spec of the object of a kind that is called as the service."""
    return server.request("GET", kind.path(namespace, "bank"))["spec"]


def test_policy_says_what_allow_from_says_and_what_hands_change_is_set_back(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_service(api_server, namespace, ingress={"allowFrom": ALLOWED})
    wait_until(lambda: exists(api_server, NETWORK_POLICY, namespace, "bank"), f"it is made, see {operator.log}")
    policy = body(api_server, NETWORK_POLICY, namespace)
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "bank"
    inner, door, health = policy["ingress"]
    assert {each["port"] for each in inner["ports"]} == {7401, 7402, 7403, 8080}
    assert [{each["port"] for each in rule["ports"]} for rule in (door, health)] == [{7401, 8080}, {8081}]
    assert door["from"] == [DRILLS, *ALLOWED]
    for kind, edit in edits(policy, body(api_server, KUBE_SERVICE, namespace)):
        before = body(api_server, kind, namespace)
        api_server.request("PATCH", kind.path(namespace, "bank"), {"spec": edit}, content=MERGE)
        assert body(api_server, kind, namespace) != before
        wait_until(partial(stands, api_server, kind, namespace, before), f"{edit} is set back")
    service = SERVICE.path(namespace, "bank")
    api_server.request("PATCH", service, {"spec": {"ingress": {"allowFrom": None}}}, content=MERGE)
    everybody: list[dict[str, Any]] = [{"namespaceSelector": {}}]
    wait_until(
        lambda: body(api_server, NETWORK_POLICY, namespace)["ingress"][1]["from"] == everybody, "every pod is let in"
    )


def stands(server: RealApiServer, kind: Kind, namespace: str, wanted: Any) -> bool:
    """Is an object's spec as it should be?"""
    return bool(body(server, kind, namespace) == wanted)


def edits(policy: Any, service: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """What somebody changes, by kind: each leaves everything there that the operator wants."""
    ingress = copy.deepcopy(policy["ingress"])
    ingress[1]["from"][1]["namespaceSelector"] = {}
    yield NETWORK_POLICY, {"ingress": ingress}
    ingress = copy.deepcopy(policy["ingress"])
    ingress[1]["ports"][0]["endPort"] = 65535
    yield NETWORK_POLICY, {"ingress": ingress}
    yield NETWORK_POLICY, {"podSelector": {"matchLabels": {"no": "pod"}}}
    yield KUBE_SERVICE, {"selector": {"no": "pod"}}
    yield BUDGET, {"selector": {"matchLabels": {"no": "pod"}}}


def test_entry_that_names_nobody_is_refused(api_server: RealApiServer, namespace: str) -> None:
    spec = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}, "ingress": {"allowFrom": [{}]}}
    made = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": spec}
    assert b"names nobody" in api_server.request("POST", SERVICE.path(namespace), made, raw=True)
    policy = {"metadata": {"name": "bank"}, "spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}}
    answer = json.loads(api_server.request("POST", NETWORK_POLICY.path(namespace), policy, raw=True))
    assert answer["code"] == 422, "the API server takes no such policy either"


def test_callers_without_proof_are_told_as_condition_and_event(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    def told() -> str:
        return {each["type"]: str(each["reason"]) for each in conditions(api_server, namespace)}.get("OpenAccess", "")

    def warnings() -> list[dict[str, Any]]:
        events = api_server.request("GET", EVENT.path(namespace))["items"]
        return [each for each in events if each["reason"] == "NoAuthentication"]

    make_service(api_server, namespace)
    wait_until(lambda: told() == "NoAuthentication", f"it is told, see {operator.log}")
    wait_until(lambda: len(warnings()) == 1, "its event comes after the condition")
    (event,) = warnings()
    assert event["type"] == "Warning"
    assert "every pod of the cluster reaches it" in event["note"]
    api_server.request("PATCH", SERVICE.path(namespace, "bank"), {"spec": MTLS}, content=MERGE)
    wait_until(lambda: told() == "Authenticated", f"it has ended, see {operator.log}")


def test_kubectl_warns_of_callers_without_proof_and_applies_the_service(
    api_server: RealApiServer, namespace: str
) -> None:
    own = {"podSelector": {"matchLabels": {"deathless.dev/service": "bank"}}}
    none: dict[str, Any] = {"ingress": {"authentication": {"type": "None"}}}
    open_ones: list[dict[str, Any]] = [
        {},
        none,
        {"ingress": {"allowFrom": [TILL, own]}},
        {"ingress": {"allowFrom": [own | {"namespaceSelector": {}}]}},
        {"ingress": {"allowFrom": [own]}, "networkPolicy": {"type": "Off"}},
    ]
    closed: list[dict[str, Any]] = [MTLS, {"tokenSecretRef": {"name": "t"}}, {"ingress": {"allowFrom": [own]}}]
    with granted(api_server, namespace):
        wait_until(lambda: "need no proof" in applied(api_server, namespace, {}), "the policy is in force")
        assert [spec for spec in open_ones if "need no proof" not in applied(api_server, namespace, spec)] == []
        assert [spec for spec in closed if "need no proof" in applied(api_server, namespace, spec)] == []


def applied(server: RealApiServer, namespace: str, spec: dict[str, Any]) -> str:
    """What kubectl says beside its answer when a service is applied; it is taken in any case."""
    whole = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}} | spec
    made = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": whole}
    command = [str(binaries("kubectl")["kubectl"]), f"--kubeconfig={server.kubeconfig()}", "-n", namespace]
    command += [f"--cache-dir={server.folder / 'kubectl-cache'}", "apply", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(made), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
