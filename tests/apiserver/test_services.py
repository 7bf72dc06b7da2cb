"""A service on a real API server: what the operator makes of it, mends, refuses to touch, and tells.

No pod ever runs here; what a StatefulSet's controller and replicas would write, a test writes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer

from deathless_operator.cluster import authority
from deathless_operator.cluster.kinds import (
    BUDGET,
    CONFIG_MAP,
    EVENT,
    KUBE_SERVICE,
    NETWORK_POLICY,
    ROLE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)

pytestmark = pytest.mark.apiserver


@pytest.fixture
def operator(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, which leads."""
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as made:
        made.wait_leading()
        yield made


def make_service(server: RealApiServer, namespace: str, name: str = "bank", **spec: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "DeathlessService",
        "metadata": {"name": name},
        "spec": {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}} | spec,
    }
    made: dict[str, Any] = server.request("POST", SERVICE.path(namespace), body)
    return made


def exists(server: RealApiServer, kind: Kind, namespace: str, name: str) -> bool:
    return b'"code":404' not in server.request("GET", kind.path(namespace, name), raw=True)


def mounted(server: RealApiServer, namespace: str, kind: str = "configMap", name: str = "bank") -> str:
    """Name of the ConfigMap, or Secret of the lock store, that the pods of a StatefulSet mount; empty: none yet."""
    if not exists(server, STATEFUL_SET, namespace, name):
        return ""
    volumes = server.request("GET", STATEFUL_SET.path(namespace, name))["spec"]["template"]["spec"]["volumes"]
    wanted = {"configMap": "deathless-config", "secret": "deathless-lock-tls"}[kind]
    sources = [each[kind] for each in volumes if each["name"] == wanted]
    return next((str(each.get("name") or each["secretName"]) for each in sources), "")


def conditions(server: RealApiServer, namespace: str, name: str = "bank") -> list[dict[str, Any]]:
    status = server.request("GET", SERVICE.path(namespace, name)).get("status") or {}
    return list(status.get("conditions") or ())


def test_service_gets_its_objects_and_lost_ones_come_back(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    made = make_service(api_server, namespace)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"pods are wanted, see {operator.log}")
    expected = [
        (KUBE_SERVICE, "bank"),
        (KUBE_SERVICE, "bank-primary"),
        (KUBE_SERVICE, "bank-replicas"),
        (CONFIG_MAP, mounted(api_server, namespace)),
        (SERVICE_ACCOUNT, "bank"),
        (ROLE, "bank"),
        (BUDGET, "bank"),
        (NETWORK_POLICY, "bank"),
        (SECRET, "bank-tls"),
    ]
    for kind, name in expected:
        found = api_server.request("GET", kind.path(namespace, name))
        assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"], name
        assert {each["manager"] for each in found["metadata"]["managedFields"]} >= {"deathless-operator"}
    api_server.request("DELETE", KUBE_SERVICE.path(namespace, "bank-primary"))
    wait_until(lambda: exists(api_server, KUBE_SERVICE, namespace, "bank-primary"), "the Service is back")
    ours = api_server.request("GET", SERVICE.path(namespace, "bank"))
    assert ours["spec"] == made["spec"] and ours["metadata"]["generation"] == 1


def test_quiet_service_is_left_alone(api_server: RealApiServer, namespace: str, operator: OperatorProcess) -> None:
    make_service(api_server, namespace)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"made, see {operator.log}")

    def looks() -> float:
        return operator.metric("deathless_operator_reconciles_total")

    def versions() -> list[str]:
        kinds = (STATEFUL_SET, KUBE_SERVICE, CONFIG_MAP, ROLE, NETWORK_POLICY, SECRET, SERVICE)
        items = [each for kind in kinds for each in api_server.request("GET", kind.path(namespace))["items"]]
        return [each["metadata"]["resourceVersion"] for each in items]

    seen: list[list[str]] = []

    def settled() -> bool:
        seen.append(versions())
        return len(seen) > 20 and seen[-1] == seen[-15]

    wait_until(settled, f"nothing is written any more, see {operator.log}", poll_s=0.1)
    before, quiet = looks(), versions()
    touched = {"metadata": {"annotations": {"somebody": "was here"}}}
    api_server.request("PATCH", STATEFUL_SET.path(namespace, "bank"), touched, content="application/merge-patch+json")
    wait_until(lambda: looks() > before, "the change is looked at")
    api_server.request(
        "PATCH", STATEFUL_SET.path(namespace, "bank"), {"metadata": {"annotations": {"somebody": None}}},
        content="application/merge-patch+json",
    )  # fmt: skip
    changed = [one for one, other in zip(quiet, versions(), strict=True) if one != other]
    assert len(changed) <= 1, "another's annotation is no reason to write"


def test_certificate_is_signed_for_the_services_names(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    make_service(api_server, namespace)
    wait_until(lambda: exists(api_server, SECRET, namespace, "bank-tls"), f"signed, see {operator.log}")
    data = api_server.request("GET", SECRET.path(namespace, "bank-tls"))["data"]
    facts = authority.read_facts({key: base64.b64decode(value) for key, value in data.items()})
    held = api_server.request("GET", SECRET.path(namespace, "deathless-ca"))["data"]
    stored = authority.from_data({key: base64.b64decode(value) for key, value in held.items()})
    assert facts is not None and stored is not None
    assert facts.signed_by == stored.current.key_id and any("bank" in name for name in facts.dns_names)


def test_object_of_somebody_else_is_not_taken(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    theirs = {"metadata": {"name": "bank-primary"}, "spec": {"ports": [{"port": 5432}]}}
    api_server.request("POST", KUBE_SERVICE.path(namespace) + "?fieldManager=somebody", theirs)
    make_service(api_server, namespace)
    told = f"the service says whose name is taken, see {operator.log}"
    wait_until(lambda: "bank-primary" in json.dumps(conditions(api_server, namespace)), told)
    found = api_server.request("GET", KUBE_SERVICE.path(namespace, "bank-primary"))
    assert [each["port"] for each in found["spec"]["ports"]] == [5432]


def test_quota_that_refuses_is_told_as_a_condition(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/services": "0"}}}
    api_server.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/none/status"
    status = {"status": {"hard": {"count/services": "0"}, "used": {"count/services": "0"}}}
    api_server.request("PATCH", path, status, content="application/merge-patch+json")
    make_service(api_server, namespace)

    named = f"the quota is named, see {operator.log}"
    wait_until(lambda: "exceeded quota" in json.dumps(conditions(api_server, namespace)), named)
    api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/none")
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it goes on, see {operator.log}")


def test_events_tell_once_what_was_done(api_server: RealApiServer, namespace: str, operator: OperatorProcess) -> None:
    made = make_service(api_server, namespace)

    def told() -> list[dict[str, Any]]:
        items = api_server.request("GET", EVENT.path(namespace))["items"]
        return [each for each in items if each.get("regarding", {}).get("uid") == made["metadata"]["uid"]]

    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank") and bool(told()), f"told, {operator.log}")
    said = [(each["reason"], each["note"]) for each in told()]
    assert len(said) == len(set(said))
    assert {each["reportingController"] for each in told()} == {"deathless.dev/operator"}
