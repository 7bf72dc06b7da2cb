"""The operator with the rights of its chart alone: it can do all of its work, and touches nothing elsewhere."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from chart_rights import USER, granted
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer

from deathless_operator.cluster.kinds import (
    BUDGET,
    CLAIM,
    CONFIG_MAP,
    DRILL,
    KUBE_SERVICE,
    NETWORK_POLICY,
    NODE,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)

pytestmark = pytest.mark.apiserver
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
MADE = (
    STATEFUL_SET, KUBE_SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, BUDGET, NETWORK_POLICY, CLAIM, SECRET,
)  # fmt: skip
LOCK = "--lock-endpoints=http://lock.test:2379"


def make(server: RealApiServer, kind: Kind, namespace: str, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    server.request("POST", kind.path(namespace), body)


def another(server: RealApiServer) -> str:
    """Make another namespace."""
    name = f"other-{secrets.token_hex(4)}"
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def names_of(server: RealApiServer, kind: Kind, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in server.request("GET", kind.path(namespace))["items"]]


def wait_whole(server: RealApiServer, namespace: str, operator: OperatorProcess) -> None:
    """Wait until a service has every object, a status and an event."""

    def whole() -> bool:
        status = server.request("GET", SERVICE.path(namespace, "bank")).get("status") or {}
        return bool(status.get("conditions")) and all(
            any(name.startswith("bank") for name in names_of(server, kind, namespace)) for kind in MADE
        )

    wait_until(whole, f"the service is whole, see {operator.log}")


def refusals(operator: OperatorProcess) -> list[str]:
    lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
    return [line["message"] for line in lines if "orbidden" in json.dumps(line) or line["level"] == "error"]


def test_operator_of_named_namespaces_works_there_and_nowhere_else(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    served, other = another(api_server), another(api_server)
    values = {"operator": {"watchNamespaces": [served]}}
    for place in (served, other):
        make(api_server, SERVICE, place, "bank", SPEC)
    scope = f"--watch-namespaces={served}"
    with (
        granted(api_server, namespace, values),
        OperatorProcess(api_server, tmp_path, namespace, scope, LOCK, user=USER) as operator,
    ):
        operator.wait_leading()
        wait_whole(api_server, served, operator)
        api_server.request("DELETE", SERVICE.path(served, "bank"))
        wait_until(lambda: operator.metric("deathless_operator_services") == 0, f"forgotten, see {operator.log}")
        assert operator.end() == 0
        assert refusals(operator) == []
        assert b'"code":403' in api_server.request_as(USER, "GET", SECRET.path(other)), "it could not, had it wanted to"
    assert [names_of(api_server, kind, other) for kind in (STATEFUL_SET, SECRET, CLAIM)] == [[], [], []]


def test_namespaced_installation_works_in_its_own_namespace_without_any_right_on_the_cluster(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    make(api_server, SERVICE, namespace, "bank", SPEC)
    other = another(api_server)
    with (
        granted(api_server, namespace, {"scope": "Namespaced"}),
        OperatorProcess(
            api_server, tmp_path, namespace, f"--watch-namespaces={namespace}", LOCK, user=USER
        ) as operator,
    ):
        operator.wait_leading()
        wait_whole(api_server, namespace, operator)
        assert operator.end() == 0
        assert refusals(operator) == []
        for path in (NODE.path(None), SECRET.path(None), SECRET.path(other), SERVICE.path(None), SERVICE.path(other)):
            assert b'"code":403' in api_server.request_as(USER, "GET", path)


def test_operator_of_the_whole_cluster_works_and_lists_no_secrets(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    other = another(api_server)
    make(api_server, SERVICE, other, "bank", SPEC)
    make(api_server, DRILL, other, "weekly", {"serviceRef": {"name": "bank"}, "fault": {"type": "PodDelete"}})
    with (
        granted(api_server, namespace),
        OperatorProcess(api_server, tmp_path, namespace, LOCK, user=USER) as operator,
    ):
        operator.wait_leading()
        wait_whole(api_server, other, operator)
        path = DRILL.path(other, "weekly")
        wait_until(lambda: "status" in api_server.request("GET", path), f"the drill is told, see {operator.log}")
        assert operator.end() == 0
        assert refusals(operator) == []
        for path in (SECRET.path(other), SECRET.path(None)):
            assert b'"code":403' in api_server.request_as(USER, "GET", path)
        assert b'"items"' in api_server.request_as(USER, "GET", NODE.path(None))
