"""NetworkPolicies of the installation and of a service, held against the pods, labels and ports that are really there.

The lab's network enforces no policy, so no packet is sent: what a policy says is computed from what the API server has.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.installed import NAMESPACE, Lab, Ledger
from tests.cluster.policies import read_policies
from tests.unit.charts.policies import Peer, read_peer

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

CLIENT, REPLICATION, CONTROL, HTTP, HEALTH = 7401, 7402, 7403, 8080, 8081
ETCD, ETCD_PEER, METRICS, DNS, API_SERVER = 2379, 2380, 8080, 53, 6443
OUTSIDE = Peer(name="an address outside of the cluster")


class Scene:
    """Who is there: one of each kind, as the API server shows them."""

    def __init__(self, cluster: Lab, ledger: Ledger, other: Ledger) -> None:
        self.policies = read_policies(cluster, NAMESPACE, ledger.namespace, other.namespace, "kube-system")
        self.replicas = [pod for pod in self._labelled("deathless.dev/service") if pod.namespace == ledger.namespace]
        self.strangers = [pod for pod in self._labelled("deathless.dev/service") if pod.namespace == other.namespace]
        self.operators = self.policies.find("app.kubernetes.io/component", "operator")
        self.members = self.policies.find("app.kubernetes.io/component", "lock-store")
        self.names = self.policies.find("k8s-app", "kube-dns")
        self.anybody = Peer(name="a pod without our labels", namespace=other.namespace)

    def _labelled(self, label: str) -> list[Peer]:
        return [pod for pod in self.policies.pods if label in dict(pod.labels)]

    def passes(self, source: Peer, target: Peer, *ports: int, protocol: str = "TCP") -> set[int]:
        """Which of the ports the one reaches on the other."""
        return {port for port in ports if self.policies.allows(source, target, port, protocol)}


@pytest.fixture(scope="module")
def scene(cluster: Lab, settled: Ledger) -> Iterator[Scene]:
    """The installation, a service, and another service beside it, which the first one's namespace alone may call."""
    near = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settled.namespace}}}
    with Ledger(cluster, "beside", replicas=1, ingress={"allowFrom": [near]}) as other:
        other.wait_ready()
        yield Scene(cluster, settled, other)


def test_each_policy_is_about_the_pods_it_is_named_after_and_every_pod_has_one(scene: Scene, settled: Ledger) -> None:
    rules = scene.policies
    everybody = [*scene.replicas, *scene.strangers, *scene.operators, *scene.members]
    assert (len(scene.replicas), len(scene.operators), len(scene.members)) == (3, 2, 3)
    assert [len(rules.of(pod)) for pod in everybody] == [1] * len(everybody)
    assert rules.selected(settled.namespace, settled.name) == {pod.name for pod in scene.replicas}
    assert rules.selected(NAMESPACE, "deathless-operator") == {pod.name for pod in scene.operators}
    assert rules.selected(NAMESPACE, "deathless-lock-store") == {pod.name for pod in scene.members}


def test_ports_that_policies_name_are_ports_of_the_pods(scene: Scene) -> None:
    for pod in (*scene.replicas, *scene.operators, *scene.members):
        for policy in scene.policies.of(pod):
            rules = policy["spec"].get("ingress", ())
            named = {one["port"] for rule in rules for one in rule.get("ports", ())}
            assert named, policy["metadata"]["name"]
            assert named <= {*dict(pod.ports), *dict(pod.ports).values()}, (pod.name, pod.ports)


def test_what_a_service_and_the_installation_need_passes(scene: Scene) -> None:
    one, two, _ = scene.replicas
    every = (CLIENT, REPLICATION, CONTROL, HTTP, HEALTH)
    assert scene.passes(one, two, *every) == set(every)
    assert scene.passes(scene.members[0], scene.members[1], ETCD, ETCD_PEER) == {ETCD, ETCD_PEER}
    assert scene.passes(scene.anybody, one, *every) == {CLIENT, HTTP, HEALTH}
    assert scene.passes(scene.anybody, scene.operators[0], METRICS) == {METRICS}
    for pod in (one, scene.strangers[0]):
        assert scene.passes(pod, scene.members[0], ETCD, ETCD_PEER) == {ETCD}
    for pod in (one, scene.operators[0]):
        assert scene.passes(pod, OUTSIDE, API_SERVER) == {API_SERVER}
    for pod in (one, scene.operators[0], scene.members[0]):
        for protocol in ("TCP", "UDP"):
            assert scene.passes(pod, scene.names[0], DNS, protocol=protocol) == {DNS}


def test_what_nobody_needs_is_cut(scene: Scene) -> None:
    replica, operator, member = scene.replicas[0], scene.operators[0], scene.members[0]
    # A replica may leave for its own service, the lock store, names and the API server alone.
    assert scene.passes(scene.strangers[0], replica, CLIENT, REPLICATION, CONTROL, HTTP, HEALTH) == set()
    assert scene.passes(scene.anybody, member, ETCD, ETCD_PEER) == set()
    assert scene.passes(operator, replica, REPLICATION, CONTROL) == set()
    assert scene.passes(member, replica, CLIENT, REPLICATION, CONTROL, HTTP) == set()
    assert scene.passes(member, OUTSIDE, API_SERVER) == set()
    assert scene.passes(replica, OUTSIDE, 80, 22) == set()
    assert scene.passes(replica, operator, METRICS, HEALTH) == set()
    assert scene.passes(scene.anybody, operator, HEALTH) == set()


def test_namespace_that_allow_from_does_not_name_reaches_no_front_door(scene: Scene, settled: Ledger) -> None:
    named = Peer(name="a pod of the namespace that is named", namespace=settled.namespace)
    asked = (CLIENT, REPLICATION, CONTROL, HTTP, HEALTH)
    assert scene.passes(named, scene.strangers[0], *asked) == {CLIENT, HTTP, HEALTH}
    assert scene.passes(scene.anybody, scene.strangers[0], *asked) == {HEALTH}
    assert scene.passes(OUTSIDE, scene.strangers[0], *asked) == {HEALTH}


def test_pod_without_the_label_of_a_policy_is_what_none_is_about(scene: Scene) -> None:
    bare = read_peer({"metadata": {"name": "bare", "namespace": NAMESPACE}, "spec": {"containers": []}, "status": {}})
    assert scene.policies.of(bare) == []
