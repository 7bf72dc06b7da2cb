"""What a cluster can do for a test, whoever provides it: kubectl, images, and faults as verbs.

Why: the same tests run on the `bare` cluster (namespaces of this machine) and on kind (containers of a Docker
engine). What they share stands here; what differs are a few methods about nodes.

Guarantees: each fault that can be undone is a context manager, and it is undone on the way out, also when the test
fails. A fault is in force when the method returns or the block begins. A method that acts on a pod acts on the pod's
processes and network themselves, from its node, so the pod has no say in it.

Does not: wait for what a fault brings about; `wait_until` and kubectl's own waiting do.
"""

from __future__ import annotations

import abc
import json
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lab.cluster.eyes import Eyes
from lab.cluster.machine import CommandFailed, LabError, run, wait_until

#: Where every node sees one and the same folder; hostPath volumes below it are ReadWriteMany.
SHARED = "/srv/shared"
#: The same folder through a file system in user space of the node's own, which can hang, fail or be stale.
LOG = "/srv/log"
_OURS = "/apis/deathless.dev/v1alpha1"
#: Where the API server has what tests look at again and again.
_PATHS = {
    "pod": "/api/v1/namespaces/{}/pods/{}",
    "dls": _OURS + "/namespaces/{}/deathlessservices/{}",
    "fdr": _OURS + "/namespaces/{}/failoverdrills/{}",
}


class NoNetem(LabError):
    """The kernel can't hold packets back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the API server described it a moment ago."""

    namespace: str
    name: str
    uid: str
    node: str  # empty while it is not scheduled
    address: str  # empty while it has none
    phase: str
    ready: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    restarts: int  # of all its containers
    going: bool  # marked for deletion

    @classmethod
    def read(cls, described: dict[str, Any]) -> Pod:
        """Return a pod from its JSON."""
        meta, status = described["metadata"], described.get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            node=described["spec"].get("nodeName", ""),
            address=status.get("podIP", ""),
            phase=status.get("phase", ""),
            ready=conditions.get("Ready") == "True",
            labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}),
            restarts=sum(one["restartCount"] for one in status.get("containerStatuses", [])),
            going="deletionTimestamp" in meta,
        )


class Cluster(abc.ABC):
    """A running cluster."""

    kubeconfig: Path  # of an administrator
    binaries: dict[str, Path]  # kubectl and helm

    # -------------------------------------------------------------- what a provider gives

    @property
    @abc.abstractmethod
    def workers(self) -> list[str]:
        """Names of the nodes that run ordinary pods."""

    @abc.abstractmethod
    def node_exec(self, node: str, *command: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        """Run a program as root in a node's namespaces and return its output."""

    @abc.abstractmethod
    def load_image(self, archive: Path) -> None:
        """Load a docker archive into every node."""

    @abc.abstractmethod
    def crash_node(self, node: str) -> None:
        """Cut a node's power; `start_node` gives it back."""

    @abc.abstractmethod
    def start_node(self, node: str) -> None:
        """Start a node that was crashed; it comes back with its disks and without its processes."""

    @abc.abstractmethod
    def freeze_node(self, node: str) -> None:
        """Hang everything on a node."""

    @abc.abstractmethod
    def thaw_node(self, node: str) -> None:
        """Let a frozen node go on where it was."""

    @abc.abstractmethod
    def unplug_node(self, node: str) -> None:
        """Cut a node off from all others; its own pods still reach each other."""

    @abc.abstractmethod
    def plug_node(self, node: str) -> None:
        """Undo `unplug_node`."""

    @abc.abstractmethod
    def kill_api_server(self) -> None:
        """Kill the API server with SIGKILL; it stays away until `start_api_server`."""

    @abc.abstractmethod
    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""

    # -------------------------------------------------------------- talking to it

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        """Run kubectl as administrator and return its output.

        Raises:
            CommandFailed: it said no.
        """
        return run(
            self.binaries["kubectl"],
            *arguments,
            stdin=stdin,
            timeout_s=timeout_s,
            environment={"KUBECONFIG": str(self.kubeconfig)},
        )

    def helm(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Run helm as administrator and return its output."""
        folder = self.kubeconfig.parent / "helm"
        places = {f"HELM_{one}_HOME": str(folder / one.lower()) for one in ("CACHE", "CONFIG", "DATA")}
        return run(
            self.binaries["helm"],
            *arguments,
            timeout_s=timeout_s,
            environment={"KUBECONFIG": str(self.kubeconfig), **places},
        )

    def hang_up(self) -> None:
        """Close what was opened to look at it; the next look opens it again."""
        self._eyes.close()

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> None:
        """Apply objects given as they would stand in YAML."""
        where = ("-n", namespace) if namespace else ()
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl(*where, "apply", "-f", "-", stdin=json.dumps(listed))

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object.

        Raises:
            CommandFailed: there is none.
        """
        if namespace and kind in _PATHS:
            return self._eyes.get(_PATHS[kind].format(namespace, name))
        where = ("-n", namespace) if namespace else ()
        found: dict[str, Any] = json.loads(self.kubectl(*where, "get", kind, name, "-o", "json"))
        return found

    @cached_property
    def _eyes(self) -> Eyes:
        return Eyes(lambda: self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))

    def pods(self, namespace: str, selector: str = "") -> list[Pod]:
        """Return the pods of a namespace that have the labels of `selector`, by name."""
        listed = self._eyes.get(f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}")
        return sorted((Pod.read(one) for one in listed["items"]), key=lambda pod: pod.name)

    def pod(self, namespace: str, name: str) -> Pod:
        """Return one pod."""
        return Pod.read(self.get("pod", name, namespace))

    def exec(self, pod: Pod, *command: str, container: str | None = None, timeout_s: float = 60.0) -> str:
        """Run a program in a pod, through the API server, and return its output."""
        which = ("-c", container) if container else ()
        return self.kubectl("-n", pod.namespace, "exec", pod.name, *which, "--", *command, timeout_s=timeout_s)

    def wait_rolled_out(self, namespace: str, what: str, within_s: float = 400.0) -> None:
        """Wait until a Deployment or StatefulSet (`deploy/name`, `statefulset/name`) is as its spec says."""
        limit = f"--timeout={within_s:.0f}s"
        self.kubectl("-n", namespace, "rollout", "status", what, limit, timeout_s=within_s + 10)

    def ready_nodes(self) -> list[str]:
        """Return the workers that are Ready."""
        ready = []
        for one in self._eyes.get("/api/v1/nodes")["items"]:
            conditions = {entry["type"]: entry["status"] for entry in one.get("status", {}).get("conditions", [])}
            if conditions.get("Ready") == "True":
                ready.append(one["metadata"]["name"])
        return [name for name in self.workers if name in ready]

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace that is new, and whose pods are gone afterwards; the rest of it follows some seconds later."""
        self.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")
            wait_until(lambda: not self.pods(name), f"the pods of namespace {name} are gone", within_s=120)

    # -------------------------------------------------------------- pods

    def processes(self, pod: Pod, pattern: str = "") -> list[int]:
        """Return the pids, as its node sees them, of a pod's processes whose command line has `pattern` in it.

        The sandbox's own process is left out. An empty pattern fits every other one.
        """
        # Both ways of naming cgroups: of the file system itself, and of systemd.
        groups = f"pod{pod.uid}|pod{pod.uid.replace('-', '_')}"
        script = (
            f"for p in $(grep -lE {shlex.quote(groups)} /proc/[0-9]*/cgroup 2>/dev/null); do p=${{p%/cgroup}}; "
            "printf '%s %s\\n' ${p#/proc/} \"$(tr '\\0\\n' '  ' <$p/cmdline 2>/dev/null)\"; done"
        )
        found = []
        for line in self.node_exec(pod.node, "sh", "-c", script).splitlines():
            number, _, words = line.partition(" ")
            if words and words.split()[0] != "/pause" and pattern in words:
                found.append(int(number))
        return sorted(found)

    def kill_process(
        self, pod: Pod, pattern: str = "", number: signal.Signals = signal.SIGKILL, *, within_s: float = 60.0
    ) -> int:
        """Send a signal to the processes of a pod whose command line has `pattern` in it; return how many got it.

        It waits for one: a worker may be between two lives.

        Raises:
            LabError: there was none within `within_s`.
        """
        hit: list[int] = []

        def reaches() -> bool:
            pids = self.processes(pod, pattern)
            hit[:] = [self._signal(pod, pids, number) if pids else 0]
            return hit[0] > 0

        wait_until(reaches, f"pod {pod.name} has a process with {pattern!r} in its command line", within_s=within_s)
        return hit[0]

    def _signal(self, pod: Pod, pids: Sequence[int], number: signal.Signals) -> int:
        """Send a signal to processes of a pod; return how many there still were."""
        each = " ".join(map(str, pids))
        script = f"for p in {each}; do kill -{number.value} $p 2>/dev/null && echo $p; done; true"
        return len(self.node_exec(pod.node, "sh", "-c", script).split())

    @contextmanager
    def frozen_pod(self, pod: Pod) -> Iterator[None]:
        """A pod whose processes all hang, and which goes on where it was."""
        pids = self.processes(pod)
        if not self._signal(pod, pids, signal.SIGSTOP):
            raise LabError(f"pod {pod.name} has no process on {pod.node}")
        try:
            yield
        finally:
            self._signal(pod, pids, signal.SIGCONT)

    def delete_pod(self, pod: Pod, *, grace_s: int | None = None) -> None:
        """Delete a pod; with `grace_s=0` at once and by force. Returns when the API server has taken it."""
        how = [] if grace_s is None else [f"--grace-period={grace_s}"]
        if grace_s == 0:
            how.append("--force")
        self.kubectl("-n", pod.namespace, "delete", "pod", pod.name, "--wait=false", *how)

    def addresses(self, namespace: str, selector: str) -> list[str]:
        """Return the addresses of the pods and Services that have the labels of `selector`.

        A pod that calls a Service sends to the Service's address, so a partition from pods alone would not cut it.
        """
        listed = json.loads(self.kubectl("-n", namespace, "get", "pods,services", "-l", selector, "-o", "json"))
        found = []
        for one in listed["items"]:
            address = one.get("status", {}).get("podIP") or one.get("spec", {}).get("clusterIP")
            if address and address != "None":
                found.append(address)
        return found

    @contextmanager
    def partitioned(self, pod: Pod, addresses: Sequence[str] | None = None) -> Iterator[None]:
        """A pod that exchanges no packet with the addresses (with anybody at all, when None).

        Packets are dropped in the pod's own network, both ways, those of open connections too. From the default of
        all addresses its node's probes are cut as well, so the pod becomes not Ready.
        """
        network = self._network(pod)
        table = "deathless_lab_partition"
        if addresses is None:
            rules = 'iifname != "lo" drop', 'oifname != "lo" drop'
        else:
            listed = ", ".join(addresses)
            rules = f"ip saddr {{ {listed} }} drop", f"ip daddr {{ {listed} }} drop"
        text = (
            f"table inet {table} {{\n"
            f"  chain incoming {{ type filter hook input priority -300; {rules[0]}; }}\n"
            f"  chain outgoing {{ type filter hook output priority -300; {rules[1]}; }}\n}}\n"
        )
        self.node_exec(pod.node, *network, "nft", "-f", "-", stdin=text)
        try:
            yield
        finally:
            self._forgive(pod, *network, "nft", "delete", "table", "inet", table)

    @contextmanager
    def slow_link(self, pod: Pod, *, delay_s: float = 0.0, jitter_s: float = 0.0, loss: float = 0.0) -> Iterator[None]:
        """A pod whose outgoing packets are late by `delay_s` +- `jitter_s`, or lost with probability `loss`.

        Raises:
            NoNetem: the node's kernel can't do that.
        """
        netem = f"delay {delay_s * 1e3:.3f}ms {jitter_s * 1e3:.3f}ms loss {loss * 100:.3f}%".split()
        network = self._network(pod)
        try:
            self.node_exec(pod.node, *network, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *netem)
        except CommandFailed as failed:
            if "qdisc kind is unknown" in str(failed):
                raise NoNetem(f"the kernel of {pod.node} has no netem, which slows links there") from failed
            raise
        try:
            yield
        finally:
            self._forgive(pod, *network, "tc", "qdisc", "del", "dev", "eth0", "root")

    @contextmanager
    def narrow_link(self, pod: Pod, *, kbit_per_s: int) -> Iterator[None]:
        """A pod that sends no more than `kbit_per_s`."""
        network = self._network(pod)
        shape = ["tbf", "rate", f"{kbit_per_s}kbit", "burst", "4kb", "latency", "50ms"]
        self.node_exec(pod.node, *network, "tc", "qdisc", "replace", "dev", "eth0", "root", *shape)
        try:
            yield
        finally:
            self._forgive(pod, *network, "tc", "qdisc", "del", "dev", "eth0", "root")

    def _network(self, pod: Pod) -> list[str]:
        """Return the words that run what follows in a pod's network."""
        pids = self.processes(pod)
        if not pids:
            raise LabError(f"pod {pod.name} has no process on {pod.node}")
        return ["nsenter", "-t", str(pids[0]), "--net", "--"]

    def _forgive(self, pod: Pod, *command: str) -> None:
        """Undo something in a pod; one that is gone, or whose process was replaced, took the fault along or not."""
        try:
            self.node_exec(pod.node, *command)
        except LabError:
            try:
                again = self._network(pod)
            except LabError:
                return
            self.node_exec(pod.node, *again, *command[len(again) :])

    # -------------------------------------------------------------- nodes

    @contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """A node that gets no new pods; those that it has go on."""
        self.kubectl("cordon", node)
        try:
            yield
        finally:
            self._uncordon(node)

    def _uncordon(self, node: str) -> None:
        """Undo a cordon, also the one that `drain` leaves behind."""
        self.kubectl("uncordon", node)

    def drain(self, node: str, *, within_s: float = 400.0) -> None:
        """Evict a node's pods politely, as an administrator does before maintenance; budgets are kept."""
        how = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={within_s:.0f}s"]
        self.kubectl("drain", node, *how, timeout_s=within_s + 10)

    @contextmanager
    def drained(self, node: str, *, within_s: float = 400.0) -> Iterator[None]:
        """A node without ordinary pods, which gets them again afterwards."""
        try:
            self.drain(node, within_s=within_s)
            yield
        finally:
            self._uncordon(node)

    def reboot_node(self, node: str) -> None:
        """Cut a node's power and give it back."""
        self.crash_node(node)
        self.start_node(node)

    @contextmanager
    def crashed_node(self, node: str) -> Iterator[None]:
        """A node without power."""
        self.crash_node(node)
        try:
            yield
        finally:
            self.start_node(node)

    @contextmanager
    def frozen_node(self, node: str) -> Iterator[None]:
        """A node that hangs, and goes on where it was."""
        try:
            self.freeze_node(node)
            yield
        finally:
            self.thaw_node(node)

    @contextmanager
    def unplugged_node(self, node: str) -> Iterator[None]:
        """A node that nobody reaches."""
        self.unplug_node(node)
        try:
            yield
        finally:
            self.plug_node(node)

    # -------------------------------------------------------------- control plane

    @contextmanager
    def api_server_down(self) -> Iterator[None]:
        """A cluster whose API server is away; pods go on."""
        self.kill_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    # -------------------------------------------------------------- an etcd that runs in pods

    def etcd_leader(
        self, namespace: str, selector: str, status: Sequence[str] = ("etcdctl", "endpoint", "status", "-w", "json")
    ) -> Pod:
        """Return the pod that leads an etcd whose members are the pods with the labels of `selector`.

        Args:
            namespace: of the members.
            selector: of the members.
            status: what prints etcdctl's JSON about the member itself when it runs in its pod.

        Raises:
            LabError: no member leads within two minutes.
        """
        found: list[Pod] = []

        def look() -> bool:
            for pod in self.pods(namespace, selector):
                try:
                    told = json.loads(self.exec(pod, *status, timeout_s=10))[0]["Status"]
                except (CommandFailed, ValueError, LookupError):
                    continue
                if told["leader"] == told["header"]["member_id"]:
                    found.append(pod)
            return bool(found)

        wait_until(look, f"a member of etcd leads in {namespace}", within_s=120)
        return found[0]

    def kill_etcd_leader(self, namespace: str, selector: str) -> Pod:
        """Kill the leader's process with SIGKILL and return its pod; its kubelet starts it again."""
        leader = self.etcd_leader(namespace, selector)
        self.kill_process(leader, "etcd")
        return leader

    @contextmanager
    def frozen_etcd_leader(self, namespace: str, selector: str) -> Iterator[Pod]:
        """An etcd whose leader hangs."""
        leader = self.etcd_leader(namespace, selector)
        with self.frozen_pod(leader):
            yield leader
