"""A service whose code is a program in another language, on a real API server: its pods, and what its status tells."""

from __future__ import annotations

import json
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_services import conditions, exists, make_service, mounted, operator

from deathless.base.config import ReplicaConfig
from deathless.base.foreign.binding import LIMITS, SERVICE_MODULE
from deathless_operator.cluster.kinds import CONFIG_MAP, POD, STATEFUL_SET

pytestmark = pytest.mark.apiserver

__all__ = ["operator"]  # the fixture

BINDING = {"command": ["/app/counter", "--name={replica}"], "environment": {"GOMAXPROCS": "2"}, "compare": "Shape"}


def make(server: RealApiServer, namespace: str) -> None:
    """Make the service; its module is the one that a binding stands for."""
    spec: dict[str, Any] = {"binding": BINDING, "replicas": 1, "resources": {"limits": {"memory": "512Mi"}}}
    make_service(server, namespace, module=SERVICE_MODULE, **spec)
    wait_until(lambda: exists(server, STATEFUL_SET, namespace, "bank"), "its StatefulSet")


def test_pod_has_the_program_in_its_settings_and_one_container_for_both(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    """Read-only, without rights, with one limit of memory; the program's environment is not the pod's."""
    make(api_server, namespace)
    config = api_server.request("GET", CONFIG_MAP.path(namespace, mounted(api_server, namespace)))
    told = json.loads(config["data"]["replica.json"])
    assert told["binding"]["command"] == BINDING["command"]
    assert (told["binding"]["folder"], told["binding"]["compare"]) == (".", "Shape")
    assert told["binding"]["environment"] == BINDING["environment"]
    assert [each["name"] for each in told["drivers"]] == ["inputs"]
    assert set(told) <= set(ReplicaConfig.__struct_fields__)
    assert LIMITS.items() <= told["limits"].items()
    pod: Any = api_server.request("GET", STATEFUL_SET.path(namespace, "bank"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert "GOMAXPROCS" not in [each["name"] for each in container["env"]]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_status_says_that_the_leaders_program_is_not_there(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    """What a replica says stands in its pod's annotation, which this test writes."""
    make(api_server, namespace)
    template = api_server.request("GET", STATEFUL_SET.path(namespace, "bank"))["spec"]["template"]
    labels = template["metadata"]["labels"] | {"deathless.dev/role": "primary"}

    def annotation(**program: object) -> dict[str, str]:
        said = {"replica": "r0", "role": "primary", "epoch": 1, "program": program}
        return {"deathless.dev/status": json.dumps(said)}

    failing = annotation(state="failing", text="DL3103 it ended (read what it printed)")
    body = {"metadata": {"name": "bank-0", "labels": labels, "annotations": failing}, "spec": template["spec"]}
    api_server.request("POST", POD.path(namespace), body)
    wait_until(lambda: ready(api_server, namespace, "ProgramKeepsFailing"), f"the reason, see {operator.log}")
    serving = {"metadata": {"annotations": annotation(state="serving")}}
    path = POD.path(namespace, "bank-0")
    api_server.request("PATCH", path, serving, content="application/merge-patch+json")
    wait_until(lambda: ready(api_server, namespace, "ProgramServes"), f"that it serves, see {operator.log}")


def ready(server: RealApiServer, namespace: str, reason: str) -> bool:
    """Does the condition ProgramReady give this reason, and Ready too where it is a bad one?"""
    found = {each["type"]: each for each in conditions(server, namespace)}
    program, whole = found.get("ProgramReady", {}), found.get("Ready", {})
    bad = program.get("status") == "False"
    return program.get("reason") == reason and (not bad or (whole["status"], whole["reason"]) == ("False", reason))
