"""The lab itself: a real cluster of three nodes, our image in it, and each fault seen from inside a pod.

Why: an end-to-end test is worth as much as the fault it claims to make. Each test makes one and looks at what a pod
meets, then undoes it and looks again.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from lab.cluster.bare import BareCluster
from lab.cluster.cluster import LOG, SHARED, Cluster, Pod
from lab.cluster.kind import KindCluster
from lab.cluster.machine import CommandFailed, wait_until
from lab.cluster.node import NODES_MAX, Node, Place
from tests.cluster.installed import NAMESPACE

AnyCluster = BareCluster | KindCluster

# Answers "NAME" to any line, at once.
SERVER = """
import os, socketserver
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            self.wfile.write(os.environ["NAME"].encode() + b"\\n")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, request_queue_size, daemon_threads = True, 128, True
Server(("", 8080), Answer).serve_forever()
"""
ANSWER_S = 90.0  # a pod that can be reached answers within this, however busy the machine is
# Prints what the server at argv[1] answers; ends with 1 when it does not within argv[2] seconds.
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 8080), timeout=float(sys.argv[2])) as link:
    link.sendall(b"who\\n")
    print(link.recv(100).decode().strip())
"""


def server(name: str, image: str, *, node: str = "", folder: str = "") -> dict[str, Any]:
    """A pod that tells its name, without rights and with a read-only root, as a replica runs."""
    container: dict[str, Any] = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVER],
        "env": [{"name": "NAME", "value": name}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    if folder:
        spec["volumes"] = [{"name": "shared", "hostPath": {"path": folder}}]
        container["volumeMounts"] = [{"name": "shared", "mountPath": "/data"}]
    meta = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def service(name: str) -> dict[str, Any]:
    """A Service before the pod of that name."""
    spec = {"selector": {"app": name}, "ports": [{"port": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def start(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> list[Pod]:
    """Apply the objects and return the pods of the namespace once they are Ready."""
    cluster.apply(*objects, namespace=namespace)
    cluster.kubectl("-n", namespace, "wait", "pod", "--all", "--for=condition=Ready", "--timeout=180s", timeout_s=190)
    return cluster.pods(namespace)


def asks(cluster: Cluster, pod: Pod, host: str, *, within_s: float = 1.0) -> str:
    """Return what a server answers to a pod, empty when it does not answer in time."""
    try:
        return cluster.exec(pod, "python3", "-c", CLIENT, host, str(within_s)).strip()
    except CommandFailed:
        return ""


def wait_answer(cluster: Cluster, pod: Pod, host: str, name: str) -> None:
    """Wait until the server of that name answers a pod."""
    wait_until(lambda: asks(cluster, pod, host, within_s=5.0) == name, f"{name} answers {pod.name}", within_s=ANSWER_S)


def two_pods(cluster: Cluster, namespace: str, image: str) -> tuple[Pod, Pod]:
    """Two servers on two nodes."""
    one, two = cluster.workers[:2]
    pods = start(cluster, namespace, server("one", image, node=one), server("two", image, node=two))
    return pods[0], pods[1]


def test_three_workers_are_ready_and_the_image_runs_without_rights(
    cluster: AnyCluster, image: str, namespace: str
) -> None:
    assert len(cluster.ready_nodes()) == 3
    pods = start(cluster, namespace, server("plain", image))
    assert "Usage: deathless" in cluster.exec(pods[0], "deathless", "--help")
    assert "Usage: deathless-operator" in cluster.exec(pods[0], "deathless-operator", "--help")
    assert cluster.exec(pods[0], "id", "-u").strip() == "65532"
    with pytest.raises(CommandFailed, match="Read-only file system"):
        cluster.exec(pods[0], "touch", "/app/file")
    with pytest.raises(CommandFailed, match="No module named pip"):
        cluster.exec(pods[0], "/usr/bin/env", "python3", "-m", "pip", "--version")
    for tool in ("nft", "nsenter"):  # what a drill's agent breaks links with
        cluster.exec(pods[0], tool, "--version")


def test_services_are_found_by_name_across_nodes(cluster: AnyCluster, image: str, namespace: str) -> None:
    one, two = cluster.workers[:2]
    objects = server("one", image, node=one), server("two", image, node=two), service("two")
    pods = start(cluster, namespace, *objects)
    wait_answer(cluster, pods[0], f"two.{namespace}", "two")


@pytest.mark.parametrize("top", [SHARED, LOG])
def test_one_folder_is_shared_by_all_nodes(
    image: str, namespace: str, top: str, request: pytest.FixtureRequest
) -> None:
    # Nodes of kind have no log file system of their own.
    cluster: AnyCluster = request.getfixturevalue("bare" if top == LOG else "cluster")
    cluster.shared_folder(namespace)
    folder = f"{top}/{namespace}"
    one, two = cluster.workers[:2]
    servers = server("one", image, node=one, folder=folder), server("two", image, node=two, folder=folder)
    pods = start(cluster, namespace, *servers)
    cluster.exec(pods[0], "sh", "-c", "echo hello >/data/file && ln /data/file /data/linked")
    assert cluster.exec(pods[1], "cat", "/data/linked") == "hello\n"
    assert cluster.exec(pods[1], "stat", "-c", "%u %h", "/data/file") == "65532 2\n"


def test_killed_process_starts_again_in_its_pod(cluster: AnyCluster, image: str, namespace: str) -> None:
    (pod,) = start(cluster, namespace, server("one", image))
    assert cluster.kill_process(pod, "python3") == 1
    wait_until(lambda: cluster.pod(namespace, "one").restarts == 1, "the container starts again")
    wait_until(lambda: cluster.pod(namespace, "one").ready, "it is Ready again")


def test_frozen_pod_answers_nothing_until_it_goes_on(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, other = two_pods(cluster, namespace, image)
    with cluster.frozen_pod(other):
        assert asks(cluster, pod, other.address) == ""
    wait_answer(cluster, pod, other.address, "two")
    assert cluster.pod(namespace, "two").restarts == 0


def test_partition_cuts_named_addresses_alone(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, other = two_pods(cluster, namespace, image)
    with cluster.partitioned(pod, cluster.addresses(namespace, "app=two")):
        assert asks(cluster, pod, other.address) == ""
        assert asks(cluster, other, pod.address) == ""
        wait_answer(cluster, pod, pod.address, "one")
        # Probes come from its node; on a busy machine one may be late.
        wait_until(lambda: cluster.pod(namespace, "one").ready, "it is Ready", within_s=90)
    wait_answer(cluster, pod, other.address, "two")


def test_partition_from_all_makes_a_pod_not_ready(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, _ = two_pods(cluster, namespace, image)
    with cluster.partitioned(pod):
        wait_until(lambda: not cluster.pod(namespace, "one").ready, "its probes fail", within_s=90)
    wait_until(lambda: cluster.pod(namespace, "one").ready, "its probes succeed", within_s=90)


def test_slow_link_delays_every_packet(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, other = two_pods(cluster, namespace, image)
    program = (
        "import socket, sys, time; t = time.monotonic(); "
        "socket.create_connection((sys.argv[1], 8080), timeout=9); print(time.monotonic() - t)"
    )

    def connect_s() -> float:
        return float(cluster.exec(pod, "python3", "-c", program, other.address))

    with cluster.slow_link(pod, delay_s=0.2):
        assert connect_s() >= 0.2
    wait_until(lambda: connect_s() < 0.2, "packets go without delay")


def test_narrow_link_limits_what_a_pod_sends(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, other = two_pods(cluster, namespace, image)
    program = (
        "import socket, sys, time; t = time.monotonic(); s = socket.create_connection((sys.argv[1], 8080)); "
        "s.sendall(b'x' * 65535 + b'\\n'); s.recv(9); print(time.monotonic() - t)"
    )

    def send_s() -> float:
        return float(cluster.exec(pod, "python3", "-c", program, other.address))

    with cluster.narrow_link(pod, kbit_per_s=512):
        assert send_s() > 0.8  # 524 kbit
    wait_until(lambda: send_s() < 0.8, "packets go without a limit")


def test_deleted_pod_is_gone_at_once(cluster: AnyCluster, image: str, namespace: str) -> None:
    (pod,) = start(cluster, namespace, server("one", image))
    cluster.delete_pod(pod, grace_s=0)
    wait_until(lambda: not cluster.pods(namespace), "the pod is gone")


def ready(cluster: Cluster, node: str) -> bool:
    """Tell whether a node is Ready."""
    return node in cluster.ready_nodes()


def test_frozen_node_is_not_ready_until_it_goes_on(cluster: AnyCluster) -> None:
    node = cluster.workers[-1]
    with cluster.frozen_node(node):
        wait_until(lambda: not ready(cluster, node), "the node is missed", within_s=120)
    wait_until(lambda: ready(cluster, node), "the node is back", within_s=120)


def test_unplugged_node_is_not_ready_until_it_is_plugged_in(cluster: AnyCluster) -> None:
    node = cluster.workers[-1]
    with cluster.unplugged_node(node):
        wait_until(lambda: not ready(cluster, node), "the node is missed", within_s=120)
    wait_until(lambda: ready(cluster, node), "the node is back", within_s=120)


def test_crashed_node_comes_back_with_its_pods(cluster: AnyCluster, image: str, namespace: str) -> None:
    node = cluster.workers[-1]
    one = server("one", image, node=node)
    one["spec"]["tolerations"] = [{"operator": "Exists"}]  # else a machine that boots slowly has it evicted
    start(cluster, namespace, one)
    cluster.reboot_node(node)
    wait_until(lambda: cluster.pod(namespace, "one").restarts > 0, "its container starts again", within_s=120)
    wait_until(lambda: cluster.pod(namespace, "one").ready, "its pod is Ready again", within_s=120)


def wait_installation(cluster: Cluster) -> None:
    """Wait until our charts' pods are well, where they are installed: their budgets would hold up a drain."""
    for what in cluster.kubectl("-n", NAMESPACE, "get", "deployments,statefulsets", "-o", "name").split():
        cluster.wait_rolled_out(NAMESPACE, what)


def test_drained_node_gets_pods_again(cluster: AnyCluster, image: str, namespace: str) -> None:
    node = cluster.workers[0]
    start(cluster, namespace, server("one", image, node=node))
    wait_installation(cluster)
    with cluster.drained(node):
        assert cluster.pods(namespace) == []
        assert cluster.get("node", node)["spec"]["unschedulable"] is True
    assert "unschedulable" not in cluster.get("node", node)["spec"]


def test_cordoned_node_gets_no_new_pod_and_then_gets_them_again(
    cluster: AnyCluster, image: str, namespace: str
) -> None:
    node = cluster.workers[0]
    (before,) = start(cluster, namespace, server("before", image, node=node))
    with cluster.cordoned(node):
        start(cluster, namespace, server("anywhere", image), server("away", image))
        cluster.apply(only_on(node, server("there", image)), namespace=namespace)
        wait_until(lambda: unschedulable(cluster, namespace, "there"), "no node will have the pod", within_s=120)
        pods = {pod.name: pod for pod in cluster.pods(namespace)}
        assert node not in {pods["anywhere"].node, pods["away"].node}
        assert (pods["before"].uid, pods["before"].ready) == (before.uid, True)
    wait_until(lambda: cluster.pod(namespace, "there").ready, "the node gets pods again", within_s=120)
    assert cluster.pod(namespace, "there").node == node


def only_on(node: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, for the scheduler to put on that node and no other: `nodeName` would pass it by."""
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def unschedulable(cluster: Cluster, namespace: str, name: str) -> bool:
    """Has the scheduler said that a pod fits nowhere?"""
    told = cluster.get("pod", name, namespace).get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in told)


def test_pods_go_on_while_the_api_server_is_away(cluster: AnyCluster, image: str, namespace: str) -> None:
    pod, other = two_pods(cluster, namespace, image)
    with cluster.api_server_down():
        with pytest.raises(CommandFailed):
            cluster.kubectl("get", "nodes", "--request-timeout=2s")
        shown = cluster.node_exec(pod.node, "python3", "-c", CLIENT, other.address, "30")
        assert shown.strip() == "two"
    wait_answer(cluster, pod, other.address, "two")


def succeeds(cluster: Cluster, pod: Pod, *command: str) -> bool:
    """Run a program in a pod; does it end well?"""
    try:
        cluster.exec(pod, *command)
    except CommandFailed:
        return False
    return True


def etcd(name: str) -> dict[str, Any]:
    """An etcd of one member that answers on its own loopback."""
    command = ["etcd", "--data-dir=/data/etcd"]
    image = "gcr.io/etcd-development/etcd:v3.6.16"
    container: dict[str, Any] = {"name": "etcd", "image": image, "imagePullPolicy": "Never", "command": command}
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    meta = {"name": name, "labels": {"app": "store"}}
    spec = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_leader_of_an_etcd_in_pods_is_found_frozen_and_killed(cluster: AnyCluster, namespace: str) -> None:
    start(cluster, namespace, etcd("store-0"))
    health = ("etcdctl", "endpoint", "health", "--command-timeout=1s")
    with cluster.frozen_etcd_leader(namespace, "app=store") as leader:
        assert leader.name == "store-0"
        assert not succeeds(cluster, leader, *health)
    wait_until(lambda: succeeds(cluster, leader, *health), "the member is well again")
    cluster.kill_etcd_leader(namespace, "app=store")
    wait_until(lambda: cluster.pod(namespace, "store-0").restarts == 1, "the member starts again")


def test_hung_log_makes_one_node_wait_and_no_other(bare: BareCluster, image: str, namespace: str) -> None:
    bare.shared_folder(namespace)
    folder = f"{LOG}/{namespace}"
    one, two = bare.workers[:2]
    objects = server("one", image, node=one, folder=folder), server("two", image, node=two, folder=folder)
    pod, other = start(bare, namespace, *objects)
    with bare.hung_log(pod.node):
        with pytest.raises(CommandFailed):
            bare.exec(pod, "timeout", "-s", "KILL", "1", "touch", "/data/first")
        bare.exec(other, "touch", "/data/second")
    wait_until(lambda: "second" in bare.exec(pod, "ls", "/data"), "the log goes on")


def test_dead_log_fails_on_one_node_until_it_is_started(bare: BareCluster, image: str, namespace: str) -> None:
    bare.shared_folder(namespace)
    (pod,) = start(bare, namespace, server("one", image, node=bare.workers[0], folder=f"{LOG}/{namespace}"))
    bare.kill_log(pod.node)
    try:
        with pytest.raises(CommandFailed, match="not connected"):
            bare.exec(pod, "ls", "/data/")
    finally:
        bare.start_log(pod.node)
    bare.delete_pod(pod, grace_s=0)
    wait_until(lambda: not bare.pods(namespace), "the pod is gone")
    (pod,) = start(bare, namespace, server("one", image, node=bare.workers[0], folder=f"{LOG}/{namespace}"))
    bare.exec(pod, "touch", "/data/file")


def test_full_volume_refuses_writes_until_there_is_room(bare: BareCluster, image: str, namespace: str) -> None:
    with bare.small_volume(namespace, size_mb=32) as folder:
        (pod,) = start(bare, namespace, server("one", image, folder=f"{SHARED}/{namespace}"))
        write = ("dd", "if=/dev/zero", "of=/data/file", "bs=1M", "count=4")
        with bare.full_volume(folder), pytest.raises(CommandFailed, match="No space left on device"):
            bare.exec(pod, *write)
        bare.exec(pod, *write)
        bare.delete_pod(pod, grace_s=0)
        wait_until(lambda: not bare.pods(namespace), "the pod is gone")


def test_volume_without_hard_links_has_all_else(bare: BareCluster, image: str, namespace: str) -> None:
    with bare.linkless_volume(namespace):
        (pod,) = start(bare, namespace, server("one", image, folder=f"{SHARED}/{namespace}"))
        bare.exec(pod, "sh", "-c", "echo held > /data/file && mv /data/file /data/moved && grep held /data/moved")
        with pytest.raises(CommandFailed, match="Operation not permitted"):
            bare.exec(pod, "ln", "/data/moved", "/data/second")
        bare.delete_pod(pod, grace_s=0)
        wait_until(lambda: not bare.pods(namespace), "the pod is gone")


def test_node_that_hangs_with_somebody_elses_process_in_it_ends_when_it_is_told_to(bare: BareCluster) -> None:
    spare = Node(Place(name="spare", index=NODES_MAX))
    spare.boot(bare.pause, fresh=True)
    with subprocess.Popen(spare.joined(["sleep", "600"])) as child:
        try:
            last = spare.place.groups[-1] / "cgroup.procs"
            wait_until(lambda: str(child.pid) in last.read_text().split(), "it has joined all groups of the node")
            spare.freeze()
            spare.down()
        finally:
            child.kill()
            spare.thaw()  # a frozen process does not die
    assert spare.pid() is None
    assert not any(group.exists() for group in spare.place.groups)
    shutil.rmtree(spare.folder)
