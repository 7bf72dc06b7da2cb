"""What the chart gives to the prometheus-operator is taken by a real API server that knows its kinds, strictly."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import pytest
from real_api_server import RealApiServer, binaries, monitoring_kinds
from tests.unit.charts.rendering import VARIANTS, render

pytestmark = pytest.mark.apiserver
GROUP: Final = "monitoring.coreos.com"
PLURALS: Final = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
ON: Final = {"podMonitor": {"mode": "Always"}, "alerts": {"mode": "Always"}}


@pytest.fixture(scope="module", autouse=True)
def _kinds(api_server: RealApiServer) -> None:
    """Their kinds, beside ours; nobody else's test minds."""
    binaries("helm")
    folder = monitoring_kinds()
    api_server.install(*(folder / f"{GROUP}_{plural}.yaml" for plural in PLURALS.values()))


def rendered(name: str) -> list[dict[str, Any]]:
    """What a set of values renders for the prometheus-operator, with monitoring on."""
    given = VARIANTS[name]
    values = given | {key: given.get(key, {}) | on for key, on in ON.items()}
    return [each for each in render(values) if each["apiVersion"].startswith(f"{GROUP}/")]


def dry_run(server: RealApiServer, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Have the API server look at an object as if to store it; unknown fields are refused."""
    moved = copy.deepcopy(manifest)
    moved["metadata"]["namespace"] = namespace
    path = f"/apis/{moved['apiVersion']}/namespaces/{namespace}/{PLURALS[moved['kind']]}"
    answer: dict[str, Any] = json.loads(
        server.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", moved, raw=True)
    )
    return answer


@pytest.mark.parametrize("name", VARIANTS)
def test_pod_monitors_and_rules_are_taken(name: str, api_server: RealApiServer, namespace: str) -> None:
    found = rendered(name)
    assert {each["kind"] for each in found} == set(PLURALS)
    for manifest in found:
        answer = dry_run(api_server, namespace, manifest)
        assert answer.get("spec") == manifest["spec"], answer


def misspelled_monitor(spec: dict[str, Any]) -> None:
    spec["podMetricsEndpoints"][0]["intervall"] = "30s"


def mistyped_monitor(spec: dict[str, Any]) -> None:
    spec["podMetricsEndpoints"][0]["interval"] = "half a minute"


def misspelled_rule(spec: dict[str, Any]) -> None:
    spec["groups"][0]["rules"][0]["expression"] = "1"


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("PodMonitor", misspelled_monitor),
        ("PodMonitor", mistyped_monitor),
        ("PrometheusRule", misspelled_rule),
    ],
)
def test_object_with_a_mistake_is_refused(kind: str, spoil: Any, api_server: RealApiServer, namespace: str) -> None:
    manifest = copy.deepcopy(next(each for each in rendered("default") if each["kind"] == kind))
    spoil(manifest["spec"])
    answer = dry_run(api_server, namespace, manifest)
    assert answer["kind"] == "Status" and answer["status"] == "Failure", answer
