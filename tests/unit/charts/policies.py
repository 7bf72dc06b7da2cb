"""NetworkPolicies, and what they let pass: computed, for the tests beside it and for networks that enforce none.

    rules = Policies(pods, policies, {"prod": {"kubernetes.io/metadata.name": "prod"}})
    rules.selected("deathless-system", "deathless-operator")     # the pods that a policy is about
    rules.allows(one, other, 7402)                                # may `one` open a connection to that port of `other`?

Guarantees: judged by labels of pods and namespaces and by ports of containers: a policy that names a label or port that
no pod has lets nothing pass here either. Does not: know ipBlock, which none of the rendered policies has by itself, or
send a packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One end of a connection."""

    name: str
    namespace: str = ""  # empty: outside of the cluster, or a node
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[tuple[str, int], ...] = ()  # what its containers name
    waiting: bool = True  # its containers have not all ended


def read_peer(pod: Object) -> Peer:
    """Read a pod."""
    listed = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    return Peer(
        name=pod["metadata"]["name"],
        namespace=pod["metadata"]["namespace"],
        labels=tuple(sorted(pod["metadata"].get("labels", {}).items())),
        ports=tuple((port.get("name", ""), port["containerPort"]) for port in listed),
        waiting=pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"),
    )


def fits(selector: Object, labels: dict[str, str]) -> bool:
    """Does a label selector fit?"""
    for one in selector.get("matchExpressions", ()):
        have = labels.get(one["key"])
        fit = {
            "Exists": have is not None,
            "DoesNotExist": have is None,
            "In": have in one.get("values", ()),
            "NotIn": have not in one.get("values", ()),
        }[one["operator"]]
        if not fit:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


class Policies:
    """Policies and pods.

    Args:
        pods: who is there.
        policies: NetworkPolicies, each with its namespace.
        namespaces: labels of each namespace that has pods.
    """

    def __init__(
        self, pods: Sequence[Peer], policies: Sequence[Object], namespaces: Mapping[str, dict[str, str]]
    ) -> None:
        self.pods = list(pods)
        self.policies = list(policies)
        self._namespaces = namespaces

    def find(self, label: str, value: str) -> list[Peer]:
        """The pods that bear a label."""
        return [pod for pod in self.pods if fits({"matchLabels": {label: value}}, dict(pod.labels))]

    def of(self, pod: Peer) -> list[Object]:
        """The policies about a pod."""
        return [
            policy
            for policy in self.policies
            if policy["metadata"]["namespace"] == pod.namespace
            and fits(policy["spec"]["podSelector"], dict(pod.labels))
        ]

    def selected(self, namespace: str, name: str) -> set[str]:
        """The names of the pods that a policy is about."""
        return {
            pod.name for pod in self.pods for policy in self.of(pod)
            if (policy["metadata"]["namespace"], policy["metadata"]["name"]) == (namespace, name)
        }  # fmt: skip

    def allows(self, source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
        """May the one open a connection to a port of the other?"""
        return self._half("Egress", source, target, target, port, protocol) and self._half(
            "Ingress", target, source, target, port, protocol
        )

    def _half(self, kind: str, about: Peer, other: Peer, target: Peer, port: int, protocol: str) -> bool:
        way = kind.lower()
        policies = [policy for policy in self.of(about) if kind in policy["spec"]["policyTypes"]]
        if not policies:
            return True
        rules = [(rule, policy) for policy in policies for rule in policy["spec"].get(way, ())]
        end = "to" if kind == "Egress" else "from"
        return any(
            self._is_port(rule.get("ports"), target, port, protocol)
            and self._is_peer(rule.get(end), policy["metadata"]["namespace"], other)
            for rule, policy in rules
        )

    def _is_port(self, listed: list[Object] | None, target: Peer, port: int, protocol: str) -> bool:
        if not listed:
            return True
        named: dict[Any, int] = dict(target.ports)
        return any(
            one.get("protocol", "TCP") == protocol and named.get(one.get("port"), one.get("port")) in (None, port)
            for one in listed
        )

    def _is_peer(self, listed: list[Object] | None, home: str, other: Peer) -> bool:
        if not listed:
            return True
        if not other.namespace:
            return False  # no selector fits what is no pod
        for one in listed:
            assert set(one) <= {"podSelector", "namespaceSelector"}, one
            where = one.get("namespaceSelector")
            near = other.namespace == home if where is None else fits(where, self._namespaces[other.namespace])
            if near and fits(one.get("podSelector", {}), dict(other.labels)):
                return True
        return False
