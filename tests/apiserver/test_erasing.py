"""Keys of a service that is deleted with its log, on a real API server: what is written, when, and what is left.

No pod ever runs here, and nothing is collected; what kubelets and the garbage collector would do, a test does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from operator_process import OperatorProcess
from real_api_server import RealApiServer
from test_services import conditions, exists, make_service

from deathless_operator.cluster.kinds import CLAIM, CONFIG_MAP, EVENT, POD, SERVICE, STATEFUL_SET
from deathless_operator.model import names
from deathless_operator.plan.service import erasure
from deathless_operator.plan.service.reading import read_child

pytestmark = pytest.mark.apiserver

DELETE: dict[str, Any] = {"logStorage": {"size": "1Gi", "deletionPolicy": "Delete"}}
MERGE = "application/merge-patch+json"


@pytest.fixture
def home(api_server: RealApiServer, namespace: str) -> str:
    """The operator's namespace, another than the services'."""
    name = f"{namespace}-system"
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def operator(api_server: RealApiServer, namespace: str, home: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, which leads."""
    with start(api_server, namespace, home, tmp_path) as made:
        made.wait_leading()
        yield made


def start(server: RealApiServer, namespace: str, home: str, folder: Path) -> OperatorProcess:
    arguments = (f"--watch-namespaces={namespace}", "--lock-endpoints=http://lock.test:2379", "--resync-seconds=2")
    return OperatorProcess(server, folder, home, *arguments)


def record(server: RealApiServer, namespace: str, home: str) -> erasure.Record | None:
    """The record of service bank."""
    name = names.erase_record(namespace, "bank")
    # One question: between two the record may go.
    items = server.request("GET", CONFIG_MAP.path(home))["items"]
    found = [each for each in items if each["metadata"]["name"] == name]
    return erasure.read_record(read_child({"apiVersion": "v1", "kind": "ConfigMap", **found[0]})) if found else None


def erasers(server: RealApiServer, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.request("GET", POD.path(namespace))["items"]
    return [each for each in items if each["metadata"]["labels"].get(names.LABEL_PURPOSE) == names.PURPOSE_ERASE]


def collect(server: RealApiServer, namespace: str) -> None:
    """Do as the garbage collector does about set and claim; the claim's protection ends with its pods."""
    for kind, name in ((STATEFUL_SET, "bank"), (CLAIM, "bank-log")):
        server.request("PATCH", kind.path(namespace, name), {"metadata": {"finalizers": None}}, content=MERGE)
        server.request("DELETE", kind.path(namespace, name))


def end(server: RealApiServer, pod: dict[str, Any], phase: str, message: str = "", code: int = 0) -> None:
    """Do as a kubelet does about a pod that ended."""
    meta = pod["metadata"]
    ended = {"exitCode": code, "message": message, "finishedAt": meta["creationTimestamp"], "reason": "Completed"}
    told = {"name": "erase", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [told | {"state": {"terminated": ended}}]}
    path = POD.path(meta["namespace"], meta["name"], "status")
    server.request("PATCH", path, {"status": status}, content=MERGE)


def told(server: RealApiServer, namespace: str, uid: str) -> list[str]:
    items = server.request("GET", EVENT.path(namespace))["items"]
    return [each["reason"] for each in items if each.get("regarding", {}).get("uid") == uid]


def test_keys_go_with_the_service_and_nothing_of_it_stays(
    api_server: RealApiServer, namespace: str, home: str, operator: OperatorProcess
) -> None:
    made = make_service(api_server, namespace, **DELETE)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"pods are wanted, see {operator.log}")
    found = record(api_server, namespace, home)
    assert found is not None and found.uid == made["metadata"]["uid"], "it stands before the first pod is wanted"
    assert not made["metadata"].get("finalizers"), "nothing holds the service back"
    api_server.request("DELETE", SERVICE.path(namespace, "bank"))
    wait_until(lambda: "erased when" in operator.log.read_text(), f"it waits for set and claim, see {operator.log}")
    assert not exists(api_server, SERVICE, namespace, "bank") and not erasers(api_server, home)
    collect(api_server, namespace)
    wait_until(lambda: bool(erasers(api_server, home)), f"a pod erases, see {operator.log}")
    [pod] = erasers(api_server, home)
    order = json.loads(pod["spec"]["containers"][0]["args"][2].removeprefix("--order="))
    assert order["service"] == "bank" and order["etcd"]["prefix"] == f"/deathless/{namespace}/"
    assert record(api_server, namespace, home) is not None
    end(api_server, pod, "Succeeded")
    wait_until(lambda: record(api_server, namespace, home) is None, f"the record is dropped, see {operator.log}")
    assert not erasers(api_server, home)
    wait_until(lambda: "KeysErased" in told(api_server, namespace, made["metadata"]["uid"]), "it is told")


def test_log_that_is_kept_keeps_its_keys(
    api_server: RealApiServer, namespace: str, home: str, operator: OperatorProcess
) -> None:
    make_service(api_server, namespace, **DELETE)
    wait_until(lambda: record(api_server, namespace, home) is not None, f"a record, see {operator.log}")
    keep = {"spec": {"logStorage": {"deletionPolicy": "Retain"}}}
    api_server.request("PATCH", SERVICE.path(namespace, "bank"), keep, content=MERGE)
    wait_until(lambda: record(api_server, namespace, home) is None, f"none any more, see {operator.log}")
    claim = api_server.request("GET", CLAIM.path(namespace, "bank-log"))
    assert not claim["metadata"].get("ownerReferences")


def test_service_made_again_at_once_waits_and_an_operator_that_was_away_finds_it_all(
    api_server: RealApiServer, namespace: str, home: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    made = make_service(api_server, namespace, **DELETE)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"pods are wanted, see {operator.log}")
    operator.process.kill()
    operator.process.wait()
    api_server.request("DELETE", SERVICE.path(namespace, "bank"))
    collect(api_server, namespace)
    again = make_service(api_server, namespace, **DELETE)
    folder = tmp_path / "next"
    folder.mkdir()
    with start(api_server, namespace, home, folder) as successor:
        wait_until(lambda: bool(erasers(api_server, home)), f"a pod erases, see {successor.log}")
        wait_until(
            lambda: "ErasingKeys" in json.dumps(conditions(api_server, namespace)), f"it is told, see {successor.log}"
        )
        assert not exists(api_server, STATEFUL_SET, namespace, "bank"), "the keys of the former one come first"
        [pod] = erasers(api_server, home)
        end(api_server, pod, "Succeeded")
        wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"it goes on, see {successor.log}")
        found = record(api_server, namespace, home)
        assert found is not None and found.uid == again["metadata"]["uid"] != made["metadata"]["uid"]


def test_service_that_went_while_the_operator_was_away_is_found_by_its_record(
    api_server: RealApiServer, namespace: str, home: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    made = make_service(api_server, namespace, **DELETE)
    wait_until(lambda: exists(api_server, STATEFUL_SET, namespace, "bank"), f"pods are wanted, see {operator.log}")
    operator.process.kill()
    operator.process.wait()
    api_server.request("DELETE", SERVICE.path(namespace, "bank"))
    collect(api_server, namespace)
    folder = tmp_path / "next"
    folder.mkdir()
    with start(api_server, namespace, home, folder) as successor:
        wait_until(lambda: bool(erasers(api_server, home)), f"a pod erases, see {successor.log}")
        [pod] = erasers(api_server, home)
        end(api_server, pod, "Failed", "DL4005 these keys are another's", 65)
        wait_until(lambda: record(api_server, namespace, home) is None, f"it gives up, see {successor.log}")
        wait_until(lambda: "KeysKept" in told(api_server, namespace, made["metadata"]["uid"]), "it is told")
