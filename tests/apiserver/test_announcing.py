"""The announcer at a real API server, with the rights its Role gives and no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from etcd_server import wait_until
from real_api_server import RealApiServer
from tests.unit.deathless.shell.announcer_bench import Announcing, announcing_at

from deathless.shell.pod.announcement import FENCED, REPLICA, ROLE, SERVES, STATUS
from deathless.shell.pod.kubernetes_api import Api, ApiError, Place

pytestmark = pytest.mark.apiserver
NAMES = ["bank-0", "bank-1", "bank-2"]
MERGE = "application/merge-patch+json"


class Pods:
    """Three pods of a set, and a user who may get, watch and patch just these."""

    def __init__(self, server: RealApiServer, namespace: str, folder: Path) -> None:
        self.server = server
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        (folder / "token").write_text("nobody-token")
        self.place = Place("127.0.0.1", server.port, namespace, str(folder / "token"), str(server.folder / "ca.crt"))
        rules = [{"apiGroups": [""], "resources": ["pods"], "resourceNames": NAMES, "verbs": ["get", "watch", "patch"]}]
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        server.request("POST", f"{roles}/roles", {"metadata": {"name": "bank"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bank"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}
        binding = {"metadata": {"name": "bank"}, "roleRef": role, "subjects": [subject]}
        server.request("POST", f"{roles}/rolebindings", binding)
        for name in (*NAMES, "other-0"):
            self.make(name)

    def make(self, name: str) -> str:
        """Make a pod; gives its uid."""
        spec = {"containers": [{"name": "replica", "image": "bank:1"}], "nodeName": "none"}
        made = self.server.request("POST", self.path, {"metadata": {"name": name}, "spec": spec})
        uid: str = made["metadata"]["uid"]
        return uid

    def look(self, name: str) -> dict[str, Any]:
        """Give a pod's metadata."""
        metadata: dict[str, Any] = self.server.request("GET", f"{self.path}/{name}")["metadata"]
        return metadata

    def merge(self, name: str, metadata: object) -> None:
        """Change a pod as an operator does."""
        self.server.request("PATCH", f"{self.path}/{name}", {"metadata": metadata}, content=MERGE)

    def wait(self, name: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until something holds of a pod."""
        wait_until(lambda: wanted(self.look(name)), f"{name} as wanted")

    def wait_label(self, name: str, role: str | None) -> None:
        """Wait for a role's label."""
        self.wait(name, lambda found: found.get("labels", {}).get(ROLE) == role)


@pytest.fixture
def pods(api_server: RealApiServer, namespace: str, tmp_path: Path) -> Pods:
    return Pods(api_server, namespace, tmp_path)


@pytest.fixture
def announcing(pods: Pods, tmp_path: Path) -> Iterator[Announcing]:
    with announcing_at(pods.place, pods.look("bank-0")["uid"], tmp_path) as running:
        yield running


def test_role_moves_to_the_new_primary_and_is_taken_off_the_old_one(pods: Pods, announcing: Announcing) -> None:
    pods.merge("bank-1", {"labels": {ROLE: "primary"}, "annotations": {STATUS: json.dumps({"epoch": 1})}})
    announcing.tell("standby")
    pods.wait_label("bank-0", "standby")
    announcing.tell("primary", epoch=2)
    pods.wait_label("bank-0", "primary")
    pods.wait_label("bank-1", None)
    found = pods.look("bank-0")
    assert found["labels"][REPLICA] == "r0"
    assert json.loads(found["annotations"][STATUS])["epoch"] == 2


def test_callers_are_taken_from_a_silent_replica_and_our_own_label_is_put_back(
    pods: Pods, announcing: Announcing
) -> None:
    for name in NAMES:
        pods.merge(name, {"labels": {SERVES: "true"}})
    gone = pods.look("bank-2")["uid"]
    announcing.tell("primary", epoch=2, led=True, silent={"r1": "uid-of-another", "r2": gone})
    pods.wait("bank-2", lambda found: found["labels"][SERVES] == "false")
    assert pods.look("bank-1")["labels"][SERVES] == "true"
    pods.merge("bank-0", {"labels": {SERVES: "false"}})
    pods.wait("bank-0", lambda found: found["labels"][SERVES] == "true")


def test_fence_is_heard_and_its_end(pods: Pods, announcing: Announcing) -> None:
    assert announcing.hear() is False
    pods.merge("bank-0", {"annotations": {FENCED: "true"}})
    assert announcing.hear() is True
    pods.merge("bank-0", {"annotations": {FENCED: None}})
    assert announcing.hear() is False


def test_pod_that_took_our_name_is_left_alone(pods: Pods, announcing: Announcing) -> None:
    announcing.tell("standby")
    pods.wait_label("bank-0", "standby")
    old = pods.look("bank-0")["uid"]
    pods.server.request("DELETE", f"{pods.path}/bank-0?gracePeriodSeconds=0")
    pods.make("bank-0")
    with closing(Api(pods.place)) as api, pytest.raises(ApiError) as refused:
        api.patch_pod("bank-0", {"metadata": {"uid": old, "labels": {ROLE: "primary"}}})
    assert refused.value.status in (409, 422)
    announcing.tell("primary", epoch=9)
    announcing.tell("standby", epoch=9)
    assert ROLE not in pods.look("bank-0").get("labels", {})


def test_patch_of_what_changed_meanwhile_is_refused(pods: Pods) -> None:
    api = Api(pods.place)
    version = pods.look("bank-1")["resourceVersion"]
    pods.merge("bank-1", {"labels": {"other": "x"}})
    with pytest.raises(ApiError) as refused:
        api.patch_pod("bank-1", {"metadata": {"resourceVersion": version, "labels": {ROLE: None}}})
    assert refused.value.status == 409
    api.close()


def test_pods_of_others_can_not_be_touched_or_listed(pods: Pods) -> None:
    api = Api(pods.place)
    for name in ("other-0", ""):
        with pytest.raises(ApiError, match="403"):
            api.get_pod(name)
    with pytest.raises(ApiError, match="403"):
        api.patch_pod("other-0", {"metadata": {"labels": {ROLE: None}}})
    api.close()


def test_api_server_that_was_away_finds_out_at_its_return(pods: Pods, announcing: Announcing) -> None:
    announcing.tell("standby")
    pods.wait_label("bank-0", "standby")
    pods.server.kill()
    announcing.tell("recovering", 2)
    announcing.tell("checkpointer", 3)
    pods.server.start()
    pods.server.wait_ready()
    pods.wait_label("bank-0", "checkpointer")
    pods.merge("bank-0", {"annotations": {FENCED: "true"}})
    while not announcing.hear():
        pass
