"""What a person sees of our kinds through a real kubectl: columns, short names, texts, and waiting for a condition."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from real_api_server import RealApiServer, binaries

from deathless_operator.cluster.kinds import DRILL, SERVICE
from deathless_operator.model.crd import DEFINITIONS, Definition, make_schema

pytestmark = pytest.mark.apiserver
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}


class Kubectl:
    """kubectl on a test's namespace."""

    def __init__(self, server: RealApiServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    def run(self, *words: str, text: str = "") -> str:
        """Run it, and return what it printed."""
        command = [str(binaries("kubectl")["kubectl"]), f"--kubeconfig={self.server.kubeconfig()}"]
        # Discovery is cached in the home folder otherwise, by a port that another server may have had.
        command += [f"--cache-dir={self.server.folder / 'kubectl-cache'}", f"--namespace={self.namespace}"]
        done = subprocess.run(
            [*command, *words], input=text, capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def table(self, *words: str) -> list[list[str]]:
        """Return the cells of what `get` prints; columns are two blanks apart at least."""
        lines = self.run("get", *words).splitlines()
        starts = [
            index for index, sign in enumerate(lines[0]) if sign != " " and lines[0][index - 1 : index] in ("", " ")
        ]
        ends = [*starts[1:], None]
        return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


@pytest.fixture
def kubectl(api_server: RealApiServer, namespace: str) -> Kubectl:
    return Kubectl(api_server, namespace)


def make_bank(server: RealApiServer, namespace: str, status: dict[str, Any]) -> None:
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": SPEC}
    server.request("POST", SERVICE.path(namespace), body)
    path = SERVICE.path(namespace, "bank", "status")
    server.request("PATCH", path, {"status": status}, content="application/merge-patch+json")


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "AllReplicasReady",
    "message": "bank-1 leads",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
STATUS = {
    "observedGeneration": 1,
    "ready": "3/3",
    "primary": "bank-1",
    "epoch": 7,
    "image": "bank:1",
    "doing": "nothing to do",
    "conditions": [READY],
}


def test_services_are_listed_by_their_short_name_with_what_matters(
    api_server: RealApiServer, namespace: str, kubectl: Kubectl
) -> None:
    make_bank(api_server, namespace, STATUS)
    heading, row = kubectl.table("dls")
    assert heading == ["NAME", "READY", "PRIMARY", "EPOCH", "STATUS", "AGE"]
    assert row[:5] == ["bank", "3/3", "bank-1", "7", "AllReplicasReady"]
    wide = kubectl.table("deathless", "-o", "wide")
    assert wide[0][5:7] == ["IMAGE", "DOING"], "both kinds are in the category deathless"
    assert "bank" in kubectl.run("wait", "--for=condition=Ready", "deathlessservice/bank", "--timeout=60s")


def test_drills_are_listed_with_their_verdict(api_server: RealApiServer, namespace: str, kubectl: Kubectl) -> None:
    spec = {"serviceRef": {"name": "bank"}, "fault": {"type": "PodDelete"}, "suspend": True}
    body = {"apiVersion": DRILL.api_version, "kind": DRILL.kind, "metadata": {"name": "weekly"}, "spec": spec}
    api_server.request("POST", DRILL.path(namespace), body)
    status = {"verdict": "Passed", "unavailableSeconds": 0.42, "callsLost": 0, "callsDoubled": 0}
    path = DRILL.path(namespace, "weekly", "status")
    api_server.request("PATCH", path, {"status": status}, content="application/merge-patch+json")
    heading, row = kubectl.table("fdr")
    assert heading == ["NAME", "SERVICE", "FAULT", "VERDICT", "UNAVAILABLE", "LOST", "DOUBLED", "LAST", "AGE"]
    assert row[:7] == ["weekly", "bank", "PodDelete", "Passed", "0.42", "0", "0"]


def test_service_is_scaled_as_a_deployment_is(api_server: RealApiServer, namespace: str, kubectl: Kubectl) -> None:
    make_bank(api_server, namespace, STATUS | {"replicas": 3, "selector": "app.kubernetes.io/instance=bank"})
    assert "scaled" in kubectl.run("scale", "dls", "bank", "--replicas=5")
    assert api_server.request("GET", SERVICE.path(namespace, "bank"))["spec"]["replicas"] == 5
    scale = json.loads(kubectl.run("get", "--raw", SERVICE.path(namespace, "bank", "scale")))
    assert scale["status"] == {"replicas": 3, "selector": "app.kubernetes.io/instance=bank"}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_explain_shows_every_field_and_the_words_of_the_models(definition: Definition, kubectl: Kubectl) -> None:
    shown = kubectl.run("explain", definition.plural, "--recursive")
    assert definition.description.split(".")[0][:60] in " ".join(shown.split())
    schema: Any = make_schema(definition)
    for part in ("spec", "status"):
        told = " ".join(kubectl.run("explain", f"{definition.plural}.{part}").split())
        for name, field in schema["properties"][part]["properties"].items():
            assert name in told
            assert " ".join(field["description"].split()) in told, f"{part}.{name}"


def test_contradiction_is_refused_by_kubectl_apply_in_our_words(kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {"name": "bank"},
        "spec": SPEC | {"tls": {"issuer": "CertManager"}},
    }
    with pytest.raises(AssertionError, match=r"tls\.issuerRef goes with tls\.issuer CertManager"):
        kubectl.run("apply", "-f", "-", text=json.dumps(manifest))
