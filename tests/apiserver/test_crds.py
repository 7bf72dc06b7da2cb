"""The CRDs on a real API server: each rule takes its sample and refuses the other, and schemas mean what they say.

Samples stand in tests/samples; the first line of each says what comes of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_api_server import ROOT, RealApiServer

from deathless_operator.model.crd import DEFINITIONS

PLURALS = {each.kind: each.plural for each in DEFINITIONS}
SAMPLES = sorted(Path(ROOT, "tests/samples").glob("*/*.yaml"))
STRICT = "fieldManager=test&fieldValidation=Strict"


def collection(namespace: str, kind: str) -> str:
    """Path of a kind's objects."""
    return f"/apis/deathless.dev/v1alpha1/namespaces/{namespace}/{PLURALS[kind]}"


def apply(server: RealApiServer, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Server-side apply; the answer, which may be a refusal."""
    path = f"{collection(namespace, manifest['kind'])}/{manifest['metadata']['name']}?{STRICT}"
    answer: dict[str, Any] = json.loads(
        server.request("PATCH", path, manifest, content="application/apply-patch+yaml", raw=True)
    )
    return answer


@pytest.mark.apiserver
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_rule_takes_one_sample_and_refuses_the_other(path: Path, api_server: RealApiServer, namespace: str) -> None:
    text = path.read_text()
    *before, last = list(yaml.safe_load_all(text))
    for manifest in before:
        assert apply(api_server, namespace, manifest)["kind"] == manifest["kind"]
    answer = apply(api_server, namespace, last)
    first = text.partition("\n")[0]
    if first == "# accepted":
        assert answer["kind"] == last["kind"], answer
    else:
        assert answer["kind"] == "Status", "it was taken"
        assert first.removeprefix("# refused: ") in answer["message"]


SERVICE: dict[str, Any] = {
    "apiVersion": "deathless.dev/v1alpha1",
    "kind": "DeathlessService",
    "metadata": {"name": "bank"},
    "spec": {"image": "bank:1", "module": "bank:bank", "logStorage": {"claimName": "log"}},
}


@pytest.mark.apiserver
def test_defaults_are_filled_in_and_status_is_apart(api_server: RealApiServer, namespace: str) -> None:
    made = apply(api_server, namespace, SERVICE)
    assert (made["spec"]["replicas"], made["spec"]["shards"], made["spec"]["suspend"]) == (3, 1, False)
    path = f"{collection(namespace, 'DeathlessService')}/bank"
    status = {**made, "status": {"readyReplicas": 2, "ready": "2/3"}, "spec": {**made["spec"], "replicas": 1}}
    told = api_server.request("PUT", f"{path}/status", status)
    assert (told["status"]["readyReplicas"], told["spec"]["replicas"]) == (2, 3), "a status never writes a spec"
    scale = api_server.request("GET", f"{path}/scale")
    assert scale["spec"]["replicas"] == 3
    scale["spec"]["replicas"] = 5
    api_server.request("PUT", f"{path}/scale", scale)
    assert api_server.request("GET", path)["spec"]["replicas"] == 5


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"replicas": 8}, "less than or equal to 7"),
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"promoteCheckpointer": "Never"}, "supported values"),
        ({"logStorage": {"claimName": "log", "subPath": "../up"}}, "should match"),
        ({"resources": {"requests": {"cpu": "much"}}}, "should match"),
        ({"limits": {"turnMaxS": 0}}, "greater than 0"),
        ({"replica": 3}, "not declared in schema"),
    ],
)
def test_field_out_of_range_is_refused(
    spec: dict[str, Any], word: str, api_server: RealApiServer, namespace: str
) -> None:
    answer = apply(api_server, namespace, {**SERVICE, "spec": {**SERVICE["spec"], **spec}})
    assert answer["kind"] == "Status"
    assert word in answer["message"]


@pytest.mark.apiserver
def test_name_that_is_too_long_is_refused(api_server: RealApiServer, namespace: str) -> None:
    answer = apply(api_server, namespace, {**SERVICE, "metadata": {"name": "b" * 41}})
    assert "metadata.name" in answer["message"]


@pytest.mark.apiserver
def test_whole_spec_is_taken(api_server: RealApiServer, namespace: str) -> None:
    spec = {
        **SERVICE["spec"],
        "resources": {"requests": {"cpu": 2, "memory": "1Gi"}},
        "ingress": {"allowFrom": [{"podSelector": {"matchLabels": {"app": "x"}}}]},
        "lock": {"etcd": {"endpoints": ["https://a:2379", "https://b:2379"], "tlsSecretRef": {"name": "tls"}}},
        "podTemplate": {
            "affinity": {"nodeAffinity": {}},
            "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        },
    }
    made = apply(api_server, namespace, {**SERVICE, "spec": spec})
    assert made["spec"]["podTemplate"]["volumes"] == spec["podTemplate"]["volumes"]
    assert made["spec"]["podTemplate"]["env"][0]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "k"}}
