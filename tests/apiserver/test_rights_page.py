"""A real API server answers each question of docs/kubernetes/rights.md as the page does."""

from __future__ import annotations

from typing import Any

import pytest
from chart_rights import PLACES, granted, user_of
from real_api_server import RealApiServer
from tests.unit.charts.rendering import Object
from tools import rights

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import LogStorage
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.snapshot import ResourceView

pytestmark = pytest.mark.apiserver
VALUES: dict[str, Object] = {
    "operator, cluster": {},
    "operator, named": {"operator": {"watchNamespaces": [rights.SHOP]}},
    "operator, namespaced": {"operator": {"watchNamespaces": [rights.SHOP]}, "scope": "Namespaced"},
}


@pytest.fixture(scope="module")
def server(api_server: RealApiServer) -> RealApiServer:
    """The API server with the page's namespaces."""
    for name in (rights.OPERATOR, rights.SHOP, rights.OTHER):
        api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return api_server


def answers(server: RealApiServer, user: str) -> list[bool]:
    """What `kubectl auth can-i --as=USER` says."""
    found = []
    for asked in rights.QUESTIONS:
        resource, _, below = asked.resource.partition("/")
        body: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "resourceAttributes": {
                    "verb": asked.verb,
                    "group": asked.group,
                    "resource": resource,
                    "subresource": below,
                    "namespace": asked.namespace,
                    "name": asked.name,
                },
            },
        }
        told = server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        found.append(bool(told["status"]["allowed"]))
    return found


def shown(name: str) -> list[bool]:
    """A column of the page."""
    table = rights.PAGE.read_text().partition(rights.FIRST)[2].partition("\n\n")[0].splitlines()
    column = [cell.strip() for cell in table[0].strip("|").split("|")].index(name)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert len(rows) == len(rights.QUESTIONS)
    return [row[column + 1] == "yes" for row in rows]


@pytest.mark.parametrize("name", list(VALUES))
def test_operator_may_what_the_page_says(server: RealApiServer, name: str) -> None:
    with granted(server, rights.OPERATOR, VALUES[name]):
        found = answers(server, "operator")
    assert [
        str(each) for each, one, other in zip(rights.QUESTIONS, found, shown(name), strict=True) if one != other
    ] == []


def test_pods_of_a_service_may_what_the_page_says(server: RealApiServer) -> None:
    spec = ServiceSpec(module="bank:bank", image="bank:1", log_storage=LogStorage(size="1Gi"))
    view = ResourceView(namespace=rights.SHOP, name="bank", uid="u", generation=1, spec=spec)
    for each in Objects(view, spec, OperatorSettings()).access():
        kind = PLACES.get(str(each["kind"]))
        if kind is not None:
            assert isinstance(each["metadata"], dict)
            del each["metadata"]["ownerReferences"], each["metadata"]["labels"]
            path = f"{kind.path(rights.SHOP)}/bank?fieldManager=test"
            server.request("PATCH", path, each, content="application/apply-patch+yaml")
    found = answers(server, f"system:serviceaccount:{rights.SHOP}:bank")
    assert found == shown(rights.PODS)


def test_what_carries_users_to_the_lock_store_may_what_the_page_says(server: RealApiServer) -> None:
    values = {"lockStore": {"users": {"enabled": True}}}
    user = user_of(rights.LOCK_USERS_ACCOUNT)
    secrets = f"/api/v1/namespaces/{rights.OPERATOR}/secrets?dryRun=All"

    def made(name: str, kind: str) -> int:
        metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}}
        body = {"metadata": metadata, "type": kind}
        return server.answer_to(user, "POST", secrets, body)[0]

    with granted(server, rights.OPERATOR, values, rights.LOCK_USERS_ACCOUNT):
        found = answers(server, user)
        assert made("deathless-lock-users", "Opaque") == 201
        assert made("deathless-lock-users", "kubernetes.io/service-account-token") in {403, 422}
        assert made("another", "Opaque") in {403, 422}
    assert found == shown(rights.LOCK_USERS)
