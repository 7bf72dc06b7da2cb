"""An operator with the rights of its chart, and pipelines on a real API server; the test plays kubelet and agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_rights import USER, granted
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_rights import another, refusals

from deathless_operator.cluster.kinds import (
    BUDGET,
    KUBE_SERVICE,
    NETWORK_POLICY,
    PIPELINE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.spark_pipeline import read_pipeline
from deathless_operator.model.values import text
from deathless_operator.plan.pipelines.objects import PipelineObjects
from deathless_operator.plan.service.covering import body_difference
from deathless_operator.plan.service.reading import read_child

pytestmark = pytest.mark.apiserver
MERGE = "application/merge-patch+json"
SPEC: dict[str, Any] = {
    "module": "delays.py:build",
    "image": "delays:1",
    "replicas": 2,
    "logStorage": {"size": "5Gi"},
    "services": [{"name": "airports"}],
    "conf": {"spark.sql.shuffle.partitions": "4"},
}
MADE = (
    (SERVICE, "delays"),
    (KUBE_SERVICE, "delays-ui"),
    *((kind, "delays-drivers") for kind in (
        SERVICE_ACCOUNT, ROLE, ROLE_BINDING, BUDGET, NETWORK_POLICY, STATEFUL_SET,
    )),
)  # fmt: skip


class Pipeline:
    """One pipeline in a namespace of its own."""

    def __init__(self, server: RealApiServer, namespace: str, operator: OperatorProcess) -> None:
        self.server, self.namespace, self.operator = server, namespace, operator

    def get(self, kind: Kind, name: str) -> dict[str, Any]:
        """One object; one that is not there has no metadata."""
        found: dict[str, Any] = json.loads(self.server.request("GET", kind.path(self.namespace, name), raw=True))
        return found

    def make(self, spec: dict[str, Any]) -> None:
        """Make the pipeline."""
        body = {"apiVersion": PIPELINE.api_version, "kind": PIPELINE.kind, "metadata": {"name": "delays"}}
        self.server.request("POST", PIPELINE.path(self.namespace), body | {"spec": spec})

    def change(self, **spec: object) -> None:
        """Change its spec."""
        self.server.request("PATCH", PIPELINE.path(self.namespace, "delays"), {"spec": spec}, content=MERGE)

    def wait_whole(self) -> None:
        """Wait until every object is there."""
        wait_until(
            lambda: all(self.get(kind, name).get("code") != 404 for kind, name in MADE),
            f"it is whole, see {self.operator.log}",
        )

    def wait(self, **status: object) -> None:
        """Wait until the status says all this."""

        def told() -> bool:
            found = self.get(PIPELINE, "delays").get("status", {})
            ready: dict[str, Any] = next((each for each in found.get("conditions", ()) if each["type"] == "Ready"), {})
            seen = found | {"reason": ready.get("reason")}
            last.append(seen)
            return all(seen.get(key, "") == value for key, value in status.items())

        last: list[dict[str, Any]] = []
        try:
            wait_until(told, f"{status}, see {self.operator.log}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last[-1]}") from None

    def announce(self, ordinal: int, role: str, number: int = 0) -> None:
        """A pod of the StatefulSet runs, and its agent tells of its driver."""
        name = f"delays-drivers-{ordinal}"
        template = self.get(STATEFUL_SET, "delays-drivers")["spec"]["template"]
        if self.get(POD, name).get("code") == 404:
            labels = template["metadata"]["labels"] | {"statefulset.kubernetes.io/pod-name": name}
            body = {"metadata": {"name": name, "labels": labels}, "spec": template["spec"]}
            self.server.request("POST", POD.path(self.namespace), body)
        status = json.dumps({"pid": 1, "agent": f"a{ordinal}", "role": role, "number": number})
        patch = {"metadata": {"annotations": {names.STATUS_ANNOTATION: status}}}
        self.server.request("PATCH", POD.path(self.namespace, name), patch, content=MERGE)
        ready = {"conditions": [{"type": "Ready", "status": "True" if role != "starting" else "False"}]}
        path = POD.path(self.namespace, name, "status")
        self.server.request("PATCH", path, {"status": {"phase": "Running", **ready}}, content=MERGE)

    def serve(self, status: str = "True") -> None:
        """The pipeline's service is told of as ready, as the operator would once its replicas run."""
        told = {"type": "Ready", "status": status, "reason": "Serving", "message": "it serves"}
        body = {"status": {"conditions": [told | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
        self.server.request("PATCH", SERVICE.path(self.namespace, "delays", "status"), body, content=MERGE)


@pytest.fixture
def pipeline(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Iterator[Pipeline]:
    served = another(api_server)
    with (
        granted(api_server, namespace),
        OperatorProcess(api_server, tmp_path, namespace, f"--watch-namespaces={served}", user=USER) as operator,
    ):
        operator.wait_leading()
        yield Pipeline(api_server, served, operator)


def test_its_service_and_its_drivers_are_made_follow_it_and_are_told_of(pipeline: Pipeline) -> None:
    pipeline.make(SPEC)
    pipeline.wait_whole()
    service, drivers = pipeline.get(SERVICE, "delays"), pipeline.get(STATEFUL_SET, "delays-drivers")
    assert service["metadata"]["ownerReferences"][0]["kind"] == PIPELINE.kind
    assert (service["spec"]["module"], service["spec"]["image"]) == ("deathless.pipelines.service:pipeline", "delays:1")
    assert drivers["spec"]["replicas"] == 2
    pipeline.announce(0, "driver", 4)
    pipeline.announce(1, "warm")
    pipeline.wait(driver="delays-drivers-0", number=4, warm=1, ready="2/2")
    pipeline.announce(0, "starting")
    pipeline.announce(1, "driver", 5)
    pipeline.wait(driver="delays-drivers-1", number=5, warm=0, ready="1/2")
    pipeline.change(image="delays:2", drivers={"replicas": 3, "memory": "2g"}, replicas=3)

    def followed() -> bool:
        spec, made = pipeline.get(STATEFUL_SET, "delays-drivers")["spec"], pipeline.get(SERVICE, "delays")["spec"]
        config = json.dumps(spec["template"])
        return (spec["replicas"], made["replicas"], made["image"]) == (3, 3, "delays:2") and "2g" in config

    wait_until(followed, f"both follow, see {pipeline.operator.log}")
    pipeline.change(suspend=True)
    pipeline.wait(reason="Suspended", ready="1/0")
    wait_until(lambda: pipeline.get(STATEFUL_SET, "delays-drivers")["spec"]["replicas"] == 0, "drivers are stopped")
    assert pipeline.get(SERVICE, "delays")["spec"]["suspend"] is True
    assert refusals(pipeline.operator) == []


def test_what_the_api_server_makes_of_an_object_is_taken_for_no_change_of_somebodys(pipeline: Pipeline) -> None:
    """Else every look would apply it again, for ever."""
    pipeline.make(SPEC)
    pipeline.wait_whole()
    for number in range(3):
        pipeline.announce(0, "driver", 4 + number)  # it is looked at once more
        pipeline.wait(number=4 + number)
    whole = read_pipeline(pipeline.get(PIPELINE, "delays"))
    assert whole.pipeline is not None
    made = PipelineObjects(whole.pipeline, pipeline.namespace, whole.uid, OperatorSettings(namespace="x")).all()
    live = {(kind.kind, name): read_child(pipeline.get(kind, name)) for kind, name in MADE}
    for child in live.values():
        assert names.SEEN_GENERATION_ANNOTATION not in child.annotations, f"{child.kind} was applied again"
    for manifest in made:
        kind = str(manifest["kind"])
        child = live[kind, text(manifest, "metadata", "name")]
        if kind != "NetworkPolicy":  # its ports are this cluster's
            assert body_difference(child, manifest) is None, kind


def test_a_service_that_somebody_edits_is_set_back(pipeline: Pipeline) -> None:
    pipeline.make(SPEC)
    pipeline.wait_whole()
    path = SERVICE.path(pipeline.namespace, "delays")
    pipeline.server.request("PATCH", path, {"spec": {"replicas": 5, "logLevel": "debug"}}, content=MERGE)
    wait_until(lambda: pipeline.get(SERVICE, "delays")["spec"]["replicas"] == 2, f"see {pipeline.operator.log}")


def test_what_is_anothers_is_left_alone_and_told(pipeline: Pipeline) -> None:
    body = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "delays"}}
    theirs = {"module": "x:x", "image": "x:1", "logStorage": {"size": "1Gi"}}
    pipeline.server.request("POST", SERVICE.path(pipeline.namespace), body | {"spec": theirs})
    pipeline.make(SPEC)
    pipeline.wait(reason="NameTaken")
    assert pipeline.get(SERVICE, "delays")["spec"]["module"] == "x:x"
    assert pipeline.get(STATEFUL_SET, "delays-drivers")["code"] == 404


def attempt(pipeline: Pipeline, place: str, owner: str, *, labelled: bool = True) -> str:
    """Have the operator's account make a DeathlessService; gives what is said."""
    reference = {"apiVersion": PIPELINE.api_version, "kind": owner, "name": "delays", "uid": "u", "controller": True}
    labels = {names.LABEL_MANAGED_BY: names.FIELD_MANAGER, names.LABEL_PIPELINE: "delays"}
    body = {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {"name": "delays", "labels": labels if labelled else {}, "ownerReferences": [reference]},
        "spec": {"module": "x:x", "image": "x:1", "logStorage": {"size": "1Gi"}},
    }
    path = f"{SERVICE.path(place)}?dryRun=All"
    return pipeline.server.answer_to(USER, "POST", path, body)[1].decode()


def test_the_operator_makes_no_service_but_that_of_a_pipeline(api_server: RealApiServer, namespace: str) -> None:
    """Otherwise whoever controls it could have its objects admitted wherever it likes."""
    served, other = another(api_server), another(api_server)
    body = {"apiVersion": PIPELINE.api_version, "kind": PIPELINE.kind, "metadata": {"name": "delays"}, "spec": SPEC}
    api_server.request("POST", PIPELINE.path(served), body)
    with granted(api_server, namespace):
        made = Pipeline(api_server, served, None)  # type: ignore[arg-type]  # no operator runs
        assert '"kind":"DeathlessService"' in attempt(made, served, PIPELINE.kind).replace(": ", ":")
        assert "of a SparkPipeline, and no other one" in attempt(made, served, "ConfigMap")
        assert "with its label" in attempt(made, served, PIPELINE.kind, labelled=False)
        assert "no params found" in attempt(made, other, PIPELINE.kind), "nobody has a pipeline there"
        assert api_server.answer_to(USER, "POST", PIPELINE.path(other), body)[0] == 403, "specs are people's"
