"""`kubectl deathless` on a real API server: what it reads, and that what it writes is taken there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_services import exists

from deathless_operator.cli import plugin
from deathless_operator.cli.plugin_adopt import adopt_manifest
from deathless_operator.cluster.kinds import DRILL, POD, SERVICE, STATEFUL_SET
from deathless_operator.model import names
from deathless_operator.plan.service.reading import read_resource

pytestmark = pytest.mark.apiserver
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
READY = {"type": "Ready", "status": "True", "reason": "AllReplicasReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}


class Plugin:
    """The plugin in one namespace."""

    def __init__(self, server: RealApiServer, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.namespace = server, namespace
        self._capsys = capsys
        self._place = ["--namespace", namespace, "--kubeconfig", str(server.kubeconfig())]

    def run(self, *words: str) -> tuple[int, Any]:
        """Run a command with --json; gives its exit code and what it printed."""
        code = plugin.main([*words, "--json", *self._place])
        printed = self._capsys.readouterr()
        return code, json.loads(printed.out or printed.err)

    def noted(self) -> dict[str, str]:
        """Return our annotations on the service."""
        meta = self.server.request("GET", SERVICE.path(self.namespace, "bank"))["metadata"]
        return {key: value for key, value in (meta.get("annotations") or {}).items() if key.startswith(names.GROUP)}


@pytest.fixture(name="kubectl_deathless")
def plugin_with_a_bank(api_server: RealApiServer, namespace: str, capsys: pytest.CaptureFixture[str]) -> Plugin:
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": SPEC}
    api_server.request("POST", SERVICE.path(namespace), body)
    return Plugin(api_server, namespace, capsys)


def test_status_is_read_and_its_exit_code_says_whether_it_is_ready(kubectl_deathless: Plugin) -> None:
    assert kubectl_deathless.run("status", "bank")[0] == 69
    server, path = kubectl_deathless.server, SERVICE.path(kubectl_deathless.namespace, "bank", "status")
    status = {"primary": "bank-1", "epoch": 3, "conditions": [READY]}
    server.request("PATCH", path, {"status": status}, content="application/merge-patch+json")
    code, told = kubectl_deathless.run("status", "bank")
    assert (code, told["status"]["primary"], told["status"]["epoch"]) == (0, "bank-1", 3)
    assert [one["name"] for one in kubectl_deathless.run("status")[1]] == ["bank"]


def test_annotations_are_set_and_taken_away(kubectl_deathless: Plugin) -> None:
    kubectl_deathless.run("fence", "bank", "r2", "--no-wait")
    kubectl_deathless.run("pause", "bank", "--no-wait")
    assert kubectl_deathless.noted() == {names.FENCED_ANNOTATION: "r2", names.PAUSED_ANNOTATION: "true"}
    kubectl_deathless.run("unfence", "bank", "--no-wait")
    kubectl_deathless.run("resume", "bank", "--no-wait")
    assert kubectl_deathless.noted() == {}


def test_commands_end_once_the_operator_and_the_replicas_have_told(kubectl_deathless: Plugin, tmp_path: Path) -> None:
    server, namespace = kubectl_deathless.server, kubectl_deathless.namespace
    service, pod = SERVICE.path(namespace, "bank"), POD.path(namespace, "bank-2")

    def paused() -> str:
        conditions = server.request("GET", service)["status"]["conditions"]
        return str(next(each["status"] for each in conditions if each["type"] == "Paused"))

    # A replica that has stopped already: what is left to be waited for is the operator's mark.
    told = json.dumps({"replica": "r2", "role": "fenced"})
    labels = names.labels("bank") | {names.LABEL_REPLICA: "r2"}
    metadata = {"name": "bank-2", "labels": labels, "annotations": {names.STATUS_ANNOTATION: told}}
    containers = {"containers": [{"name": names.CONTAINER, "image": "bank:1"}]}
    server.request("POST", POD.path(namespace), {"metadata": metadata, "spec": containers})
    assert kubectl_deathless.run("fence", "bank", "r2", "--timeout", "1")[0] == 75, "nobody has marked it"
    with OperatorProcess(server, tmp_path, namespace, f"--watch-namespaces={namespace}") as operator:
        operator.wait_leading()
        assert kubectl_deathless.run("fence", "bank", "r2")[0] == 0
        assert server.request("GET", pod)["metadata"]["annotations"][names.FENCED_ANNOTATION] == "true"
        code, error = kubectl_deathless.run("unfence", "bank", "--timeout", "1")
        assert (code, "bank-2" in error["error"]["what"]) == (75, True), "it does not serve"
        assert kubectl_deathless.run("pause", "bank") == (0, {"name": "bank", "paused": True})
        assert paused() == "True"
        assert kubectl_deathless.run("resume", "bank") == (0, {"name": "bank", "paused": False})
        assert paused() == "False"


def test_replicas_are_started_once_the_pod_that_adopts_is_gone(kubectl_deathless: Plugin, tmp_path: Path) -> None:
    server, namespace = kubectl_deathless.server, kubectl_deathless.namespace
    service, sets = SERVICE.path(namespace, "bank"), STATEFUL_SET.path(namespace, "bank")

    def suspend(suspended: bool) -> None:
        server.request("PATCH", service, {"spec": {"suspend": suspended}}, content="application/merge-patch+json")

    def size() -> int:
        return int(server.request("GET", sets)["spec"]["replicas"])

    def reason() -> str:
        conditions = server.request("GET", service)["status"]["conditions"]
        return str(next(each["reason"] for each in conditions if each["type"] == "Progressing"))

    suspend(True)
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379")
    with OperatorProcess(server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        wait_until(lambda: exists(server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")
        assert size() == 0
        found, resource = server.request("GET", sets), read_resource(server.request("GET", service))
        pod = server.request("POST", POD.path(namespace), adopt_manifest(resource, found, ["adopt", "--yes"], "", 60.0))
        suspend(False)
        wait_until(lambda: reason() == "Adopting", f"the pod is seen, see {operator.log}")
        assert size() == 0
        server.request("DELETE", POD.path(namespace, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        wait_until(lambda: size() == 3, f"it goes on by itself, see {operator.log}")


@pytest.mark.parametrize("fault", ["ProcessKill", "PodDelete", "NodeDrain", "Freeze", "Partition", "LockOutage"])
def test_drill_that_it_makes_is_taken(kubectl_deathless: Plugin, fault: str) -> None:
    code, told = kubectl_deathless.run("drill", "bank", "--fault", fault, "--no-wait")
    assert code == 0
    made = kubectl_deathless.server.request("GET", DRILL.path(kubectl_deathless.namespace, told["name"]))
    assert made["spec"]["fault"]["type"] == fault


def test_switchover_without_a_primary_is_refused_with_a_remedy(kubectl_deathless: Plugin) -> None:
    code, told = kubectl_deathless.run("switchover", "bank")
    assert code != 0
    assert told["error"]["code"].startswith("DL")
    assert told["error"]["remedy"]
