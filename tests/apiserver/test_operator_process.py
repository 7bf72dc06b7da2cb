"""The operator as a process on a real API server: election, end, kill, freeze, outage, and what it leaves alone."""

from __future__ import annotations

import functools
import json
import signal
from pathlib import Path

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer

from deathless_operator.cluster.kinds import (
    BUDGET,
    CLAIM,
    CONFIG_MAP,
    DRILL,
    KUBE_SERVICE,
    LEASE,
    NETWORK_POLICY,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)

pytestmark = pytest.mark.apiserver

RECONCILES = "deathless_operator_reconciles_total"


def make_service(server: RealApiServer, namespace: str, name: str = "bank") -> None:
    server.request(
        "POST",
        SERVICE.path(namespace),
        {
            "apiVersion": "deathless.dev/v1alpha1",
            "kind": "DeathlessService",
            "metadata": {"name": name},
            "spec": {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}},
        },
    )


def holder(server: RealApiServer, namespace: str) -> str:
    lease = server.request("GET", LEASE.path(namespace, "deathless-operator"))
    return str(lease["spec"].get("holderIdentity", ""))


def test_one_leads_and_its_polite_end_hands_over_at_once(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    scope = f"--watch-namespaces={namespace}"
    with OperatorProcess(api_server, tmp_path, namespace, scope, "--identity=a") as first:
        first.wait_leading()
        assert holder(api_server, namespace).startswith("a_")
        with OperatorProcess(api_server, tmp_path, namespace, scope, "--identity=b") as second:
            wait_until(lambda: second.get("/readyz") == 200, "a waiting process is ready")
            assert second.metric("deathless_operator_leader") == 0 and second.get("/livez") == 200
            assert first.end() == 0
            second.wait_leading()
            assert holder(api_server, namespace).startswith("b_")
            assert second.end() == 0
    assert holder(api_server, namespace) == ""


def test_killed_leader_is_followed_and_services_are_looked_at(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    scope = f"--watch-namespaces={namespace}"
    with OperatorProcess(api_server, tmp_path, namespace, scope) as first:
        first.wait_leading()
        make_service(api_server, namespace)
        wait_until(lambda: first.metric(RECONCILES) > 0, f"the service is looked at, see {first.log}")
        first.process.kill()
    with OperatorProcess(api_server, tmp_path, namespace, scope) as second:
        second.wait_leading()
        wait_until(lambda: second.metric(RECONCILES) > 0, f"the service is looked at again, see {second.log}")
        assert api_server.request("GET", SECRET.path(namespace, "deathless-ca"))["data"]["ca.crt"]


def test_frozen_leader_is_followed_and_ends_when_it_thaws(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    scope = f"--watch-namespaces={namespace}"
    with (
        OperatorProcess(api_server, tmp_path, namespace, scope, "--identity=a") as first,
        OperatorProcess(api_server, tmp_path, namespace, scope, "--identity=b") as second,
    ):
        wait_until(
            lambda: first.metric("deathless_operator_leader") + second.metric("deathless_operator_leader") == 1,
            "one leads",
        )
        leader, other = (first, second) if first.metric("deathless_operator_leader") else (second, first)
        leader.process.send_signal(signal.SIGSTOP)
        other.wait_leading()
        leader.process.send_signal(signal.SIGCONT)
        assert leader.process.wait(timeout=60) == 76
        assert other.metric("deathless_operator_leader") == 1


def test_outage_of_the_api_server_is_survived_and_changes_are_seen_afterwards(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    scope = (f"--watch-namespaces={namespace}", "--lease-seconds=90", "--renew-seconds=80", "--retry-seconds=0.5")
    with OperatorProcess(api_server, tmp_path, namespace, *scope) as operator:
        operator.wait_leading()
        make_service(api_server, namespace, "first")
        wait_until(lambda: operator.metric("deathless_operator_services") == 1, f"seen, see {operator.log}")
        api_server.restart()
        make_service(api_server, namespace, "second")
        wait_until(lambda: operator.metric("deathless_operator_services") == 2, f"seen, see {operator.log}")
        assert operator.get("/livez") == 200 and operator.process.poll() is None


def test_kopf_writes_nothing_into_our_resources(api_server: RealApiServer, namespace: str, tmp_path: Path) -> None:
    drill = {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": "weekly"},
        "spec": {"serviceRef": {"name": "none"}, "fault": {"type": "PodDelete"}, "suspend": True},
    }
    with OperatorProcess(api_server, tmp_path, namespace, f"--watch-namespaces={namespace}") as operator:
        operator.wait_leading()
        make_service(api_server, namespace)
        api_server.request("POST", DRILL.path(namespace), drill)
        wait_until(lambda: operator.metric(RECONCILES) >= 2, f"both are looked at, see {operator.log}")
        assert operator.end() == 0
        lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
    for path in (SERVICE.path(namespace, "bank"), DRILL.path(namespace, "weekly")):
        found = json.dumps(api_server.request("GET", path))
        assert "kopf" not in found and "last-handled" not in found
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert [line for line in lines if line["level"] == "error"] == []


def test_api_server_that_hangs_costs_the_lease_and_the_process_ends(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    with OperatorProcess(api_server, tmp_path, namespace, f"--watch-namespaces={namespace}") as operator:
        operator.wait_leading()
        api_server.freeze()
        try:
            assert operator.process.wait(timeout=60) == 76
        finally:
            api_server.thaw()


def test_operator_killed_at_any_moment_leaves_nothing_undone(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    make_service(api_server, namespace)

    def made() -> int:
        kinds = (SECRET, CONFIG_MAP, KUBE_SERVICE, ROLE, ROLE_BINDING, BUDGET, NETWORK_POLICY, CLAIM, STATEFUL_SET)
        return sum(len(api_server.request("GET", kind.path(namespace))["items"]) for kind in kinds)

    def has_made(count: int) -> bool:
        return made() >= count

    for count in (1, 2, 4, 7, 10):
        with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
            wait_until(functools.partial(has_made, count), f"{count} objects are there, {operator.log}", poll_s=0.002)
            operator.process.kill()
        # The next one need not wait until the lease ends, if there is one by now.
        api_server.request("DELETE", LEASE.path(namespace, "deathless-operator"), raw=True)
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        path = SERVICE.path(namespace, "bank")
        wait_until(
            lambda: "conditions" in api_server.request("GET", path).get("status", {}), f"told, see {operator.log}"
        )
        assert api_server.request("GET", STATEFUL_SET.path(namespace, "bank"))["spec"]["replicas"] == 3
        assert operator.end() == 0
        assert '"level": "error"' not in operator.log.read_text()
