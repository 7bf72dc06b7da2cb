"""NetworkPolicies as the API server has them: for clusters whose network does not enforce them.

Guarantees: policies, labels of pods and namespaces, and ports of containers are those that are in the cluster. Does
not: judge (`tests.unit.charts.policies`), or send a packet.
"""

from __future__ import annotations

import json

from tests.cluster.installed import Lab
from tests.unit.charts.policies import Object, Peer, Policies, read_peer


def read_policies(cluster: Lab, *names: str) -> Policies:
    """Read policies and pods of some namespaces."""
    pods: list[Peer] = []
    policies: list[Object] = []
    namespaces: dict[str, dict[str, str]] = {}
    for name in names:
        namespaces[name] = cluster.get("namespace", name)["metadata"]["labels"]
        listed = json.loads(cluster.kubectl("-n", name, "get", "pods,networkpolicies", "-o", "json"))["items"]
        pods += [pod for each in listed if each["kind"] == "Pod" and (pod := read_peer(each)).waiting]
        policies += [each for each in listed if each["kind"] == "NetworkPolicy"]
    return Policies(pods, policies, namespaces)
