"""Gives the user `operator` the rights that the chart gives the operator, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
}
USER = "operator"
APPLY = "application/apply-patch+yaml"


@contextmanager
def granted(server: RealApiServer, namespace: str, values: Object | None = None) -> Iterator[None]:
    """Apply the roles of a release in `namespace`, bound to the user; those of the whole cluster go at the end.

    Args:
        server: where.
        namespace: the operator's own.
        values: of the chart.
    """
    made = []
    for each in render(values or {}, namespace=namespace):
        kind = PLACES.get(each["kind"])
        # Roles of others (certificates, aggregated ones) are no rights of the operator.
        if kind is None or not each["metadata"]["name"].startswith("deathless-operator"):
            continue
        changed = dict(each)
        if "subjects" in each:
            changed["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
        place = kind.path(each["metadata"].get("namespace", namespace) if kind.namespaced else None)
        path = f"{place}/{each['metadata']['name']}"
        server.request("PATCH", f"{path}?fieldManager=test&force=true", changed, content=APPLY)
        if not kind.namespaced:
            made.append(path)
    try:
        yield
    finally:
        for path in made:
            server.request("DELETE", path)
