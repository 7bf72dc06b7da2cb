"""The operator's account with the chart's roles and policies: what it tries beyond objects of ours is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from chart_rights import USER, granted
from real_api_server import RealApiServer
from tests.unit.deathless_operator.plan.log_runs.test_rehearsals import pod as rehearsal_pod
from tests.unit.deathless_operator.plan.log_runs.test_run import Run

from deathless_operator.cluster.kinds import SERVICE
from deathless_operator.plan.actions import Apply

pytestmark = pytest.mark.apiserver
SPEC = {"module": "bank:bank", "image": "bank:1", "logStorage": {"size": "1Gi"}}
OURS = {"app.kubernetes.io/managed-by": "deathless-operator", "deathless.dev/service": "bank"}
SECRET_VALUE = "of another tenant"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def places(api_server: RealApiServer) -> Iterator[tuple[str, str, str]]:
    """The operator's namespace, one with a service, and one of somebody who has none."""
    own, served, other = "reach-own", "reach-served", "reach-other"
    for name in (own, served, other):
        api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    api_server.request("POST", SERVICE.path(served), {
        "apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": SPEC,
    })  # fmt: skip
    for place in (served, other, "kube-system"):
        for name, labels in (("theirs", {}), ("bank-tls", OURS), ("allowed", {"deathless.dev/readable": "true"})):
            data = {"key": base64.b64encode(SECRET_VALUE.encode()).decode()}
            body = {"metadata": {"name": name, "labels": labels}, "data": data}
            if place == served or name == "theirs":
                api_server.request("POST", f"/api/v1/namespaces/{place}/secrets", body)
    with granted(api_server, own):
        yield own, served, other


def tried(
    server: RealApiServer, method: str, path: str, body: Body | None = None, content: str = ""
) -> tuple[int, str]:
    status, data = server.answer_to(USER, method, path, body, content)
    return status, data.decode()


def owned(body: Body, name: str = "bank", labels: Body | None = None) -> Body:
    owner = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "name": "bank", "uid": "u", "controller": True}
    return {
        "metadata": {"name": name, "labels": OURS if labels is None else labels, "ownerReferences": [owner]},
        **body,
    }


def pod(labels: Body | None = None, **spec: Any) -> Body:
    container = {"name": "a", "image": "a"}
    base = {"containers": [container], "serviceAccountName": "bank"}
    return owned({"spec": base | spec}, "bank-check-1", labels)


PRIVILEGED = [{"name": "a", "image": "a", "securityContext": {"privileged": True}}]
REFUSED = {
    "pod without our label": ("pods", pod({})),
    "privileged pod": ("pods", pod(containers=PRIVILEGED)),
    "privileged init container": ("pods", pod(initContainers=[PRIVILEGED[0] | {"name": "b"}])),
    "added capability": ("pods", pod(containers=[
        {"name": "a", "image": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}])),
    "pod with its node's files": ("pods", pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
    "pod in its node's network": ("pods", pod(hostNetwork=True)),
    "pod among its node's processes": ("pods", pod(hostPID=True)),
    "pod of a foreign account": ("pods", pod(serviceAccountName="admin")),
    "pod of the default account with its token": ("pods", pod(serviceAccountName="default")),
    "pod of no account with a projected token": ("pods", pod(
        serviceAccountName="default", automountServiceAccountToken=False,
        volumes=[{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}])),
    "token of an account": ("secrets", {"type": "kubernetes.io/service-account-token", "metadata": {
        "name": "bank-x", "labels": OURS, "annotations": {"kubernetes.io/service-account.name": "admin"}}}),
    "Secret of another's name": ("secrets", owned({}, "theirs-2")),
    "ServiceAccount of nobody": ("serviceaccounts", {"metadata": {"name": "bank", "labels": OURS}}),
    "Service that leads elsewhere": ("services", owned({"spec": {"type": "ExternalName", "externalName": "e.org"}})),
    "Service that takes addresses": ("services", owned({
        "spec": {"externalIPs": ["10.0.0.1"], "ports": [{"port": 1}]}})),
}  # fmt: skip


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_would_give_it_the_rights_of_others_is_refused(
    api_server: RealApiServer, places: tuple[str, str, str], what: str
) -> None:
    kind, body = REFUSED[what]
    status, said = tried(api_server, "POST", f"/api/v1/namespaces/{places[1]}/{kind}?dryRun=All", body)
    assert (status, "ValidatingAdmissionPolicy" in said) == (422, True) or status == 403, said
    assert "deathless-operator-objects" in said


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ([{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["bank-0"], "verbs": ["get", "patch"]}], False),
        ([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], True),
        ([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"], "verbs": ["patch"]}], True),
    ],
)
def test_roles_it_grants_are_of_pods_by_name(
    api_server: RealApiServer, places: tuple[str, str, str], rules: list[Body], refused: bool
) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{places[1]}/roles?dryRun=All"
    status, said = tried(api_server, "POST", path, owned({"rules": rules}))
    assert (status >= 400) is refused, said


@pytest.mark.parametrize(("subject", "refused"), [("bank", False), ("another", True)])
def test_roles_are_bound_to_the_service_s_own_account(
    api_server: RealApiServer, places: tuple[str, str, str], subject: str, refused: bool
) -> None:
    _, served, _ = places
    rules = [{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["bank-0"], "verbs": ["get"]}]
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{served}"
    tried(api_server, "POST", f"{base}/roles", owned({"rules": rules}))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bank"}
    body = owned({"roleRef": role, "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": served}]})
    status, said = tried(api_server, "POST", f"{base}/rolebindings?dryRun=All", body)
    assert (status >= 400) is refused, said


@pytest.mark.parametrize("place", [0, 1, 2, "kube-system"])
def test_no_foreign_secret_is_read_by_any_verb(
    api_server: RealApiServer, places: tuple[str, str, str], place: int | str
) -> None:
    namespace = place if isinstance(place, str) else places[place]
    path = f"/api/v1/namespaces/{namespace}/secrets"
    merge = "application/merge-patch+json"
    lift = {"metadata": {"labels": OURS | {"deathless.dev/readable": "true"}}}
    answers = [
        tried(api_server, "GET", path),
        tried(api_server, "GET", f"{path}/theirs"),
        tried(api_server, "PATCH", f"{path}/theirs?dryRun=All", {}, merge),
        tried(api_server, "PATCH", f"{path}/theirs?dryRun=All", lift, merge),
        tried(api_server, "PATCH", f"{path}/theirs", lift, merge),
        tried(api_server, "DELETE", f"{path}/theirs"),
        tried(api_server, "PUT", f"{path}/theirs?dryRun=All", {"metadata": {"name": "theirs", "labels": OURS}}),
    ]
    assert all(status >= 400 for status, _ in answers), answers
    assert not any(base64.b64encode(SECRET_VALUE.encode()).decode() in said for _, said in answers)


def test_it_looks_at_its_own_secrets_and_at_those_whose_owner_allows_it(
    api_server: RealApiServer, places: tuple[str, str, str]
) -> None:
    path, merge = f"/api/v1/namespaces/{places[1]}/secrets", "application/merge-patch+json"
    for name in ("bank-tls", "allowed"):
        status, said = tried(api_server, "PATCH", f"{path}/{name}?dryRun=All", {}, merge)
        assert status == 200 and base64.b64decode(json.loads(said)["data"]["key"]).decode() == SECRET_VALUE
    assert tried(api_server, "PATCH", f"{path}/none?dryRun=All", {}, merge)[0] == 404
    assert tried(api_server, "PATCH", f"{path}/allowed", {"data": {"key": ""}}, merge)[0] >= 400, "a look, no change"


def test_it_writes_nothing_where_nobody_made_a_service(api_server: RealApiServer, places: tuple[str, str, str]) -> None:
    for place in (places[2], "kube-system", "default"):
        for kind, body in (("pods", pod()), ("configmaps", owned({})), ("secrets", owned({}, "bank-tls-2"))):
            status, said = tried(api_server, "POST", f"/api/v1/namespaces/{place}/{kind}?dryRun=All", body)
            assert status >= 400, said
            assert "deathless-operator" in said


def test_nobody_else_meets_the_policies(api_server: RealApiServer, places: tuple[str, str, str]) -> None:
    for place in (places[2], "kube-system", "default"):
        for kind, body in (("pods", pod({})), ("configmaps", owned({}, labels={})), ("secrets", owned({}, labels={}))):
            api_server.request("POST", f"/api/v1/namespaces/{place}/{kind}?dryRun=All", body)
    another = {"app.kubernetes.io/managed-by": "deathless-operator"}
    authority = owned({}, "deathless-ca", another)
    api_server.request("POST", f"/api/v1/namespaces/{places[2]}/secrets?dryRun=All", authority)
    controlled = pod(OURS | {"statefulset.kubernetes.io/pod-name": "bank-0"})
    path = f"/api/v1/namespaces/{places[2]}/pods?dryRun=All"
    api_server.request("POST", path, controlled)
    assert tried(api_server, "POST", path, controlled)[0] >= 400, "the operator makes no such pod"


@pytest.mark.parametrize("labels", [{}, {"deathless.dev/purpose": "drill"}, {"deathless.dev/run": "r"}])
def test_pod_that_hides_whose_it_is_is_refused_where_nobody_made_a_service(
    api_server: RealApiServer, places: tuple[str, str, str], labels: dict[str, str]
) -> None:
    found = {"app.kubernetes.io/managed-by": "deathless-operator"} | labels
    body = pod(found, serviceAccountName="", automountServiceAccountToken=False)
    status, said = tried(api_server, "POST", f"/api/v1/namespaces/{places[2]}/pods?dryRun=All", body)
    assert status >= 400 and "deathless-operator" in said


def test_eraser_runs_where_the_service_is_gone_and_nothing_else_under_its_name(
    api_server: RealApiServer, places: tuple[str, str, str]
) -> None:
    labels = {"app.kubernetes.io/managed-by": "deathless-operator", "deathless.dev/purpose": "erase"}
    container = {"name": "e", "image": "deathless:0.1.0", "command": ["deathless"], "args": ["erase", "--yes"]}
    path = f"/api/v1/namespaces/{places[2]}/pods?dryRun=All"

    def answer(**changed: Any) -> int:
        """Status of an attempt."""
        body = pod(labels, containers=[container | changed], serviceAccountName="", automountServiceAccountToken=False)
        return tried(api_server, "POST", path, body)[0]

    assert answer() < 300
    assert answer(image="other:1") >= 400
    assert answer(command=["sh"]) >= 400
    assert answer(args=["call"]) >= 400
    assert answer(env=[{"name": "PYTHONPATH", "value": "/x"}]) >= 400


@pytest.mark.parametrize("spec", [None, rehearsal_pod()], ids=["replay", "rehearsal"])
def test_pods_of_runs_of_a_log_are_made_with_these_rights(
    api_server: RealApiServer, places: tuple[str, str, str], spec: Body | None
) -> None:
    (made,) = Run().look().actions
    assert isinstance(made, Apply)
    body: Body = {**made.manifest, "metadata": {**made.manifest["metadata"], "namespace": places[1]}}  # type: ignore[dict-item]
    if spec is not None:
        body["spec"] = spec
    status, said = tried(api_server, "POST", f"/api/v1/namespaces/{places[1]}/pods?dryRun=All", body)
    assert status == 201, said
