"""What is broken on the cluster, round by round, and how the cluster is made whole again before the next.

Between two rounds every replica is Ready, every worker has one replica and one member of the lock store, the lock store
is led from where the fault wants it, and REST_S pass. Affinity is soft and counts when a pod is placed only, so after a
node was away two pods may share one: users with three nodes meet that too, but a second loss within minutes of the
first is another fault than the one in the figure's name.

A node that comes back within the grace of its lease was never away for the API server: what stands there of its pods is
from before. So pods are asked themselves whether they are ready.

Guarantees: a fault is in force when its function returns, and undone with the stack. Does not: measure.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from lab.cluster.cluster import Pod
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Lab, Ledger

WHOLE_S: Final = 180.0  # the cluster is whole again within this
REST_S: Final = 5.0  # that pods started last is then past: a round measures its own fault alone
MOVES_MAX: Final = 4  # pods moved before a round
HEALTH_PORT: Final = 8081  # of a replica
METRICS_PORT: Final = 2381  # of a member of the lock store
ASK_S: Final = 1.0  # a pod that is ready answers within this
STATUS: Final = ("etcdctl", "endpoint", "status", "-w", "json")

Break = Callable[[Ledger, Pod, ExitStack], None]


def make_whole(ledger: Ledger, *, leader_with_primary: bool | None) -> None:
    """Wait until all is well, and spread pods over the workers again.

    Args:
        ledger: the service.
        leader_with_primary: the lock store is to be led from the primary's node, or not from it; None: from anywhere.
    """
    cluster = ledger.cluster
    wanted = len(cluster.workers)
    ledger.wait_for(lambda: len(cluster.ready_nodes()) == wanted, "every worker is Ready", WHOLE_S)
    for _ in range(MOVES_MAX):
        ledger.wait_for(
            lambda: _are_ready(members(cluster), METRICS_PORT), "the lock store's members are Ready", WHOLE_S
        )
        ledger.wait_for(lambda: _are_ready(ledger.pods(), HEALTH_PORT), "the replicas are Ready", WHOLE_S)
        ledger.wait_ready(WHOLE_S)
        moved = doubled(ledger.pods(), ledger.primary) or doubled(members(cluster), partial(etcd_leader, cluster))
        if moved is None:
            break
        cluster.delete_pod(moved)
        ledger.wait_for(lambda moved=moved: _is_replaced(cluster, moved), f"{moved.name} is replaced", WHOLE_S)  # type: ignore[misc]
    if leader_with_primary is not None:
        lead_from(ledger, ledger.primary().node, on_it=leader_with_primary)
    threading.Event().wait(REST_S)


def members(cluster: Lab) -> list[Pod]:
    """Pods of the lock store."""
    return cluster.pods(NAMESPACE, LOCK_STORE)


def etcd_leader(cluster: Lab) -> Pod:
    """The one that leads."""
    return cluster.etcd_leader(NAMESPACE, LOCK_STORE)


def doubled(pods: list[Pod], leader: Callable[[], Pod]) -> Pod | None:
    """A pod that shares its node with another of them, and does not lead; None: there is none."""
    count = Counter(pod.node for pod in pods)
    found = [pod for pod in pods if count[pod.node] > 1]
    keep = leader().uid if found else ""
    return next((pod for pod in found if pod.uid != keep), None)


def lead_from(ledger: Ledger, node: str, *, on_it: bool) -> None:
    """Have the lock store led by its member on a node, or by one elsewhere."""
    cluster = ledger.cluster
    leader = etcd_leader(cluster)
    if (leader.node == node) is on_it:
        return
    wanted = next(pod for pod in members(cluster) if (pod.node == node) is on_it)
    told = json.loads(cluster.exec(wanted, *STATUS))[0]["Status"]["header"]["member_id"]
    cluster.exec(leader, "etcdctl", "move-leader", f"{told:x}")
    ledger.wait_for(lambda: etcd_leader(cluster).uid == wanted.uid, f"{wanted.name} leads")


def _are_ready(pods: list[Pod], port: int) -> bool:
    return len(pods) > 0 and all(pod.ready and _says_so(pod, port) for pod in pods)


def _says_so(pod: Pod, port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{pod.address}:{port}/readyz", timeout=ASK_S) as answer:
            ready: bool = answer.status == 200
            return ready
    except OSError:
        return False


def _is_replaced(cluster: Lab, old: Pod) -> bool:
    found = [pod for pod in cluster.pods(old.namespace) if pod.name == old.name]
    return bool(found) and found[0].uid != old.uid and found[0].ready


# ---------------------------------------------------------------- faults


def kill(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Kill -9 of the worker."""
    ledger.cluster.kill_process(pod, "deathless.shell.worker.worker")


def delete(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Delete the pod without grace."""
    ledger.cluster.delete_pod(pod, grace_s=0)


def delete_with_leader(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Delete without grace the pod that leads the lock store, and then the service's."""
    ledger.cluster.delete_pod(etcd_leader(ledger.cluster), grace_s=0)
    delete(ledger, pod, stack)


def crash(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Cut its node's power."""
    stack.enter_context(ledger.cluster.crashed_node(pod.node))


def freeze(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Hang its node."""
    stack.enter_context(ledger.cluster.frozen_node(pod.node))


def unplug(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Cut its node's cable."""
    stack.enter_context(ledger.cluster.unplugged_node(pod.node))


def switch(ledger: Ledger, pod: Pod, _: ExitStack) -> None:
    """Delete the pod politely: it hands over."""
    ledger.cluster.delete_pod(pod)


def drain(ledger: Ledger, pod: Pod, stack: ExitStack) -> None:
    """Drain its node."""
    stack.enter_context(ledger.cluster.drained(pod.node))
