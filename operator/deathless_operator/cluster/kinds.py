"""The kinds of objects that the operator reads or writes, and their paths.

Guarantees: an object's path is made from this table alone, so a kind that is not in it cannot be touched, and the
operator's role (charts/deathless) needs no rule beyond it. Does not discover kinds from the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object at one version."""

    api_version: str  # `apps/v1`, or `v1` for the core group
    kind: str  # `StatefulSet`
    plural: str  # `statefulsets`
    namespaced: bool = True

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, or of all in a namespace, or of all (namespace None)."""
        top = "/api/" if "/" not in self.api_version else "/apis/"
        parts = [top + self.api_version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            assert namespace is not None or not self.namespaced, "an object in a namespace is named with it"
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


SERVICE = Kind("deathless.dev/v1alpha1", "DeathlessService", "deathlessservices")
DRILL = Kind("deathless.dev/v1alpha1", "FailoverDrill", "failoverdrills")
LIVE_UPGRADE = Kind("deathless.dev/v1alpha1", "LiveUpgrade", "liveupgrades")
REPLAY = Kind("deathless.dev/v1alpha1", "Replay", "replays")
REHEARSAL = Kind("deathless.dev/v1alpha1", "Rehearsal", "rehearsals")
PIPELINE = Kind("deathless.dev/v1alpha1", "SparkPipeline", "sparkpipelines")
POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
SECRET = Kind("v1", "Secret", "secrets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
KUBE_SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
CORE_EVENT = Kind("v1", "Event", "events")
CERTIFICATE = Kind("cert-manager.io/v1", "Certificate", "certificates")
ISSUER = Kind("cert-manager.io/v1", "Issuer", "issuers")
CLUSTER_ISSUER = Kind("cert-manager.io/v1", "ClusterIssuer", "clusterissuers", namespaced=False)

ALL = (
    SERVICE, DRILL, LIVE_UPGRADE, REPLAY, REHEARSAL, PIPELINE, POD, NODE, SECRET, CONFIG_MAP, KUBE_SERVICE,
    SERVICE_ACCOUNT, CLAIM, STATEFUL_SET, BUDGET, ROLE, ROLE_BINDING, NETWORK_POLICY, LEASE, EVENT, CORE_EVENT,
    CERTIFICATE, ISSUER, CLUSTER_ISSUER,
)  # fmt: skip
_BY_NAME = {(each.api_version, each.kind): each for each in ALL}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return the kind of an object.

    Raises:
        KeyError: the operator has nothing to do with such objects: a bug in what planned it.
    """
    return _BY_NAME[str(manifest["apiVersion"]), str(manifest["kind"])]
