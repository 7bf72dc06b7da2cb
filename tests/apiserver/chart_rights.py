"""Gives the user `operator` the rights that the chart gives the operator, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from etcd_server import wait_until
from real_api_server import RealApiServer
from tests.unit.charts.rendering import Object, render

from deathless_operator.cluster.kinds import ROLE, ROLE_BINDING, Kind

PLACES = {
    "Role": ROLE,
    "RoleBinding": ROLE_BINDING,
    "ClusterRole": Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False),
    "ClusterRoleBinding": Kind(
        "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
    ),
    "ValidatingAdmissionPolicy": Kind(
        "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
    ),
}
USER = "operator"
APPLY = "application/apply-patch+yaml"


def user_of(account: str) -> str:
    """Name the user that stands for an account of the chart: one for each, since roles in namespaces stay."""
    return USER if account == "deathless-operator" else account


@contextmanager
def granted(
    server: RealApiServer, namespace: str, values: Object | None = None, account: str = "deathless-operator"
) -> Iterator[None]:
    """Apply the roles of a release in `namespace`, bound to the user; those of the whole cluster go at the end.

    Args:
        server: where.
        namespace: the operator's own.
        values: of the chart.
        account: whose rights the user gets.
    """
    made, user = [], user_of(account)
    for each in render(values or {}, namespace=namespace):
        kind = PLACES.get(each["kind"])
        # Roles of others (certificates, aggregated ones) are no rights of the account.
        if kind is None or not each["metadata"]["name"].startswith(account):
            continue
        changed = dict(each)
        if "subjects" in each:
            changed["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        if kind.kind == "ValidatingAdmissionPolicy":
            told = json.dumps(changed)
            changed = json.loads(told.replace(f"system:serviceaccount:{namespace}:{account}", user))
        place = kind.path(each["metadata"].get("namespace", namespace) if kind.namespaced else None)
        path = f"{place}/{each['metadata']['name']}"
        server.request("PATCH", f"{path}?fieldManager=test&force=true", changed, content=APPLY)
        if not kind.namespaced:
            made.append(path)
    try:
        if any("policies" in path for path in made):
            wait_until(lambda: is_held(server, namespace, account), "the policies are in force")
        yield
    finally:
        for path in made:
            server.request("DELETE", path)
        if any("policies" in path for path in made):
            wait_until(lambda: not any(meets(server, *each) for each in tries(namespace, account)), "no policy is left")


Try = tuple[str, str, str, dict[str, str], str]
"""Who makes what, where, with which labels, and a word of the refusal."""


def tries(namespace: str, account: str) -> tuple[Try, ...]:
    """Give what the policies refuse: of objects, to the user; of places, to everybody."""
    if account != "deathless-operator":
        return ((user_of(account), "secrets", namespace, {}, "two Secrets and no others"),)
    labelled = {"app.kubernetes.io/managed-by": "deathless-operator", "deathless.dev/service": "tried"}
    return (
        (USER, "configmaps", namespace, {}, "with its label"),
        ("admin", "configmaps", "default", labelled, "no params found"),
    )


def meets(server: RealApiServer, user: str, what: str, place: str, labels: dict[str, str], word: str) -> bool:
    """Tell whether a try is refused with that word."""
    body = {"metadata": {"name": "tried", "labels": labels}}
    path = f"/api/v1/namespaces/{place}/{what}?dryRun=All"
    return word in server.answer_to(user, "POST", path, body)[1].decode()


def is_held(server: RealApiServer, namespace: str, account: str) -> bool:
    """Tell whether the policies are in force."""
    return all(meets(server, *each) for each in tries(namespace, account))
