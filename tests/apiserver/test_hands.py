"""What people and restores do to a service on a real API server, and what hangs on it: labels, tokens, status, pods.

No pod ever runs here: the test makes them, and writes what replicas announce.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import Reached, RealApiServer
from test_services import conditions, exists, make_service
from tests.cluster.pages import block, walk

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer, scene_of
from deathless_operator.cluster.kinds import POD, SERVICE, SERVICE_ACCOUNT, STATEFUL_SET
from deathless_operator.cluster.observe import Observer
from deathless_operator.cluster.trust import Trust
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.plan import make_plan

pytestmark = pytest.mark.apiserver

MERGE = "application/merge-patch+json"
STORE = "http://lock.test:2379"
WHERE = {
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "bank", "effect": "NoSchedule"}],
    "priorityClassName": "hands-high",
    "runtimeClassName": "hands-sandbox",
    "imagePullSecrets": [{"name": "registry"}],
}


class Bank:
    """A service of one replica, whose pod the test makes."""

    def __init__(self, server: RealApiServer, namespace: str) -> None:
        self.server, self.namespace = server, namespace

    def patch(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Change an object."""
        changed: dict[str, Any] = self.server.request("PATCH", path, change, content=MERGE)
        return changed

    def pod(self) -> dict[str, Any]:
        """The pod bank-0."""
        found: dict[str, Any] = self.server.request("GET", POD.path(self.namespace, "bank-0"))
        return found

    def make_pod(self, *, ready: bool = True, **announced: object) -> str:
        """Make bank-0 as the StatefulSet's controller does, and have it announce itself; gives its uid."""
        path = STATEFUL_SET.path(self.namespace, "bank")
        found = self.server.request("GET", path)
        template = found["spec"]["template"]
        told = {"replica": "r0", "role": "primary", "epoch": 3, "fingerprint": "aa" * 16, "service_id": "ab" * 16}
        annotations = template["metadata"]["annotations"] | {names.STATUS_ANNOTATION: json.dumps(told | announced)}
        labels = template["metadata"]["labels"] | ({names.LABEL_ROLE: names.ROLE_PRIMARY} if ready else {})
        metadata = {"name": "bank-0", "labels": labels, "annotations": annotations}
        made = self.server.request("POST", POD.path(self.namespace), {"metadata": metadata, "spec": template["spec"]})
        running = {"name": "replica", "image": "bank:1", "imageID": "", "ready": ready, "restartCount": 0}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [running | {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
        }
        self.patch(f"{POD.path(self.namespace, 'bank-0')}/status", {"status": status})
        seen = {"status": {"observedGeneration": found["metadata"]["generation"], "replicas": 1}}
        self.patch(f"{path}/status", seen)
        return str(made["metadata"]["uid"])

    def told(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = {each["type"]: each for each in conditions(self.server, self.namespace)}.get(kind, {})
        return str(found.get("status")), str(found.get("reason"))

    def is_gone(self, uid: str) -> bool:
        """Is the pod of that uid not there any more?"""
        # In one read: it may go at any moment.
        found = json.loads(self.server.request("GET", POD.path(self.namespace, "bank-0"), raw=True))
        return bool(found.get("code") == 404 or found["metadata"]["uid"] != uid)


@pytest.fixture
def operator(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, which leads."""
    arguments = (f"--watch-namespaces={namespace}", f"--lock-endpoints={STORE}")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as made:
        made.wait_leading()
        yield made


def make_classes(server: RealApiServer) -> None:
    """What a podTemplate may name, and the API server looks for."""
    priority = {"metadata": {"name": "hands-high"}, "value": 1000}
    server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    sandbox = {"metadata": {"name": "hands-sandbox"}, "handler": "sandbox"}
    server.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", sandbox)


def test_labels_tokens_status_and_the_pod_that_looks_into_an_image(
    api_server: RealApiServer, namespace: str, operator: OperatorProcess
) -> None:
    bank = Bank(api_server, namespace)
    make_service(api_server, namespace, replicas=1, podTemplate=WHERE)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")
    make_classes(api_server)
    uid = bank.make_pod()
    wait_until(lambda: bank.told("Available") == ("True", "PrimaryServes"), f"it serves, see {operator.log}")
    labels_are_set_back(bank)
    status_is_corrected(bank)
    image_is_looked_into_where_replicas_run(bank)
    pod_is_made_anew_after_its_account(bank, uid)


def labels_are_set_back(bank: Bank) -> None:
    """Somebody takes a label by which the pod is found, and writes another."""
    path = POD.path(bank.namespace, "bank-0")
    bank.patch(path, {"metadata": {"labels": {names.LABEL_SERVICE: None, names.LABEL_INSTANCE: "other"}}})
    wait_until(lambda: bank.pod()["metadata"]["labels"].get(names.LABEL_SERVICE) == "bank", "it is found again")
    assert bank.pod()["metadata"]["labels"][names.LABEL_INSTANCE] == "bank"


def status_is_corrected(bank: Bank) -> None:
    """Somebody writes a status that is not so."""
    service = SERVICE.path(bank.namespace, "bank")
    bank.patch(f"{service}/status", {"status": {"epoch": 999, "primary": "bank-7", "image": "bank:9"}})

    def corrected() -> bool:
        status = bank.server.request("GET", service)["status"]
        return (status["epoch"], status["primary"], status["image"]) == (3, "bank-0", "bank:1")

    wait_until(corrected, "it is corrected")


def image_is_looked_into_where_replicas_run(bank: Bank) -> None:
    """The pod that looks into an image is placed as replicas are, and the API server takes it."""
    service = SERVICE.path(bank.namespace, "bank")
    bank.patch(service, {"spec": {"image": "bank:2"}})
    checks = f"{POD.path(bank.namespace)}?labelSelector={names.LABEL_PURPOSE}%3Dcheck"
    wait_until(lambda: bool(bank.server.request("GET", checks)["items"]), "it is looked into")
    (check,) = bank.server.request("GET", checks)["items"]
    plain = [key for key in WHERE if key != "tolerations"]
    assert {key: check["spec"][key] for key in plain} == {key: WHERE[key] for key in plain}
    assert WHERE["tolerations"][0] in check["spec"]["tolerations"]  # type: ignore[index]  # a list
    bank.patch(service, {"spec": {"image": "bank:1"}})


def pod_is_made_anew_after_its_account(bank: Bank, uid: str) -> None:
    """Somebody deletes the account that the pod's token was given for."""
    made = bank.pod()["metadata"]["creationTimestamp"]
    wait_until(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > made, "an account of now is a later one")
    bank.server.request("DELETE", SERVICE_ACCOUNT.path(bank.namespace, "bank"))
    wait_until(lambda: bank.is_gone(uid), "it is made anew")
    assert exists(bank.server, SERVICE_ACCOUNT, bank.namespace, "bank"), "not before its account"
    again = bank.make_pod()
    server = Reached(bank.server)
    walk(server, block("runbooks/conditions.md", "The service as a whole"), NS=bank.namespace, SERVICE="bank")
    assert bank.told("Ready") == ("True", "AllReplicasReady")
    assert bank.pod()["metadata"]["uid"] == again


@pytest.mark.asyncio
async def test_pod_of_a_time_that_was_undone_is_made_anew(
    api_server: RealApiServer, namespace: str, tmp_path: Path
) -> None:
    """The API server's data were put back: a pod finds a later instance of itself that the API server does not know."""
    bank = Bank(api_server, namespace)
    arguments = (f"--watch-namespaces={namespace}", f"--lock-endpoints={STORE}")
    with OperatorProcess(api_server, tmp_path, namespace, *arguments) as operator:
        operator.wait_leading()
        make_service(api_server, namespace, replicas=1)
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it is made, see {operator.log}")
    text = "DL2002 replica r0 is run by instance x, which started later"
    uid = bank.make_pod(ready=False, role="dead", condition="DL2002", text=text, since=time.time())
    settings = OperatorSettings(namespace=namespace, lock_endpoints=(STORE,))
    async with Api(api_server.connection()) as api:
        trust = Trust(api, namespace=namespace, life_s=settings.authority_life_s, certificate_life_s=1e6)
        await trust.maintain(time.time())
        later_s = [5.0]
        observer = Observer(api, trust, settings, wall=lambda: time.time() + later_s[0])

        async def look() -> list[str]:
            """Do what is to be done; gives the reasons of warnings."""
            seen = await observer.observe(namespace, "bank")
            assert seen is not None
            plan = make_plan(seen.snapshot, settings)
            await Performer(api, trust).carry_out(scene_of(seen.snapshot), plan.actions, {})
            return [event.reason for event in plan.events if event.type == "Warning"]

        assert "ReplicaReplaced" not in await look()
        assert not bank.is_gone(uid), "a later instance that falls silent lets it go on by itself"
        later_s[0] = 30.0
        assert "ReplicaReplaced" in await look()
        assert bank.is_gone(uid)
