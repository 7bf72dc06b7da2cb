"""A cluster of kind: nodes are containers of a Docker engine. For machines that have one.

Why: it is what most developers have. The faults are those of the Docker engine, pause and unpause, kill and start; a
node is unplugged by its own packet filter, since one that is connected again to Docker's network has another address.

Guarantees: the cluster has a name of its own and no other of the user's is touched. Tests reach Services and pods by
their addresses, as they do on the `bare` cluster: the engine's machine is given routes, and loses them at the end.

Does not: give a node a log file system of its own, small volumes or links without netem; tests that need those ask
for the `bare` cluster. It builds nothing: kind, kubectl and helm come from the search path, and nodes pull the images
that are not ours. Where the engine runs in a virtual machine, its routes do not lead there from outside.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from lab.cluster.cluster import SHARED, Cluster
from lab.cluster.machine import LabError, run, say, state_folder, succeeds, wait_until

NAME = "deathless"
_CONTROL = f"{NAME}-control-plane"
_WORKERS = (f"{NAME}-worker", f"{NAME}-worker2", f"{NAME}-worker3")
_SERVICES = "10.96.0.0/16"  # kind's default
_UNPLUGGED = "deathless_lab_unplugged"
_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
_ASIDE = "/var/tmp/kube-apiserver.yaml"


def why_not() -> str | None:
    """Return why this machine cannot run it, in words for a person; None when it can."""
    missing = [name for name in ("docker", "kind", "kubectl", "helm") if shutil.which(name) is None]
    if missing:
        return f"a cluster by kind needs {', '.join(missing)} on the search path"
    if not succeeds("docker", "version"):
        return "kind needs a Docker engine, and none answers"
    return None


class KindCluster(Cluster):
    """The cluster of this user's Docker engine."""

    def __init__(self) -> None:
        self.kubeconfig = state_folder() / "kind.conf"
        self.binaries = {name: Path(shutil.which(name) or name) for name in ("kubectl", "helm")}

    @property
    def workers(self) -> list[str]:
        return list(_WORKERS)

    def running(self) -> bool:
        """Tell whether it is up and answers."""
        ready = ("--kubeconfig", self.kubeconfig, "get", "--raw", "/readyz")
        return self.kubeconfig.exists() and succeeds(self.binaries["kubectl"], *ready)

    def up(self) -> None:
        """Start it from nothing; returns when every node is Ready."""
        self.down()
        shared = state_folder() / "kind-shared"
        shared.mkdir(parents=True, exist_ok=True)
        shared.chmod(0o777)
        mounts = [{"hostPath": str(shared), "containerPath": SHARED}]
        roles = ["control-plane", *("worker" for _ in _WORKERS)]
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": role, "extraMounts": mounts} for role in roles],
        }
        say("starting kind")
        how = ["--name", NAME, "--kubeconfig", str(self.kubeconfig), "--config", "-", "--wait", "180s"]
        run("kind", "create", "cluster", *how, stdin=json.dumps(config), timeout_s=900)
        self._route("replace")

    def _route(self, verb: str) -> None:
        """Have the engine's machine know the way to Services and pods, or know it no more.

        Done from a container, since whoever may use the engine need not be root.
        """
        image = run("docker", "inspect", "--format", "{{.Image}}", _CONTROL).strip()
        ways = {}
        for node in json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]:
            address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
            ways[node["spec"]["podCIDR"]] = address
            if node["metadata"]["name"] == _CONTROL:
                ways[_SERVICES] = address
        script = " && ".join(f"ip route {verb} {addresses} via {node}" for addresses, node in ways.items())
        how = ("--rm", "--network", "host", "--cap-add", "NET_ADMIN", "--entrypoint", "sh")
        run("docker", "run", *how, image, "-c", script)

    def down(self) -> None:
        """End it, whatever is left of it."""
        if self.running():
            with suppress(LabError):  # somebody took some of them away
                self._route("delete")
        run("kind", "delete", "cluster", "--name", NAME, "--kubeconfig", self.kubeconfig, timeout_s=300)
        shutil.rmtree(state_folder() / "kind-shared", ignore_errors=True)

    def node_exec(self, node: str, *command: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        return run("docker", "exec", "-i", "--privileged", node, *command, stdin=stdin, timeout_s=timeout_s)

    def shared_folder(self, name: str) -> Path:
        """Return a new folder below /srv/shared, as this machine sees it; anybody may write to it."""
        folder = state_folder() / "kind-shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return folder

    def load_image(self, archive: Path) -> None:
        run("kind", "load", "image-archive", archive, "--name", NAME, timeout_s=600)

    def crash_node(self, node: str) -> None:
        run("docker", "kill", node)

    def start_node(self, node: str) -> None:
        run("docker", "start", node)

    def freeze_node(self, node: str) -> None:
        run("docker", "pause", node)

    def thaw_node(self, node: str) -> None:
        run("docker", "unpause", node)

    def unplug_node(self, node: str) -> None:
        # Packets that come in or go through are dropped on their way in, and so are those that leave.
        text = (
            f"table inet {_UNPLUGGED} {{\n"
            '  chain incoming { type filter hook prerouting priority -300; iifname "eth0" drop; }\n'
            '  chain outgoing { type filter hook postrouting priority 300; oifname "eth0" drop; }\n}\n'
        )
        self.node_exec(node, "nft", "-f", "-", stdin=text)

    def plug_node(self, node: str) -> None:
        self.node_exec(node, "nft", "delete", "table", "inet", _UNPLUGGED)

    def kill_api_server(self) -> None:
        # Without its manifest kubelet does not start it again; the process is killed all the same.
        self.node_exec(_CONTROL, "sh", "-c", f"mv {_MANIFEST} {_ASIDE} && pkill -KILL -x kube-apiserver")

    def start_api_server(self) -> None:
        self.node_exec(_CONTROL, "mv", _ASIDE, _MANIFEST)
        wait_until(self.running, "the API server is ready", within_s=120)
