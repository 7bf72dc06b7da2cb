"""The programs of Kubernetes on the nodes of the `bare` cluster: their flags, their settings, their order.

Why: this is what an installer would do; here it is short enough to be read, and each program can be killed and
started alone.

Guarantees: the control plane is started in the only order that works (etcd, API server until it is ready, the rest);
a program is started with the same flags each time. Times that only make failures slow to notice are short: a node
that is silent for `NODE_GRACE_S` is NotReady, its pods are evicted `TOLERATION_S` later, a crashed container starts
again after two seconds at most.

Does not: restart anything by itself.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from lab.cluster import certificates
from lab.cluster.machine import wait_until
from lab.cluster.node import Node

SERVICE_NETWORK = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"  # the Service `kubernetes`
DNS_SERVICE = "10.96.0.10"
POD_NETWORKS = "10.244.0.0/16"
NODE_GRACE_S = 8
TOLERATION_S = 5
CONTROL = "control"
"""Name of the node that runs the control plane; its taint keeps ordinary pods away."""

_HOME = "/etc/kubernetes"  # on each node
_ON_CONTROL = ("etcd", "apiserver", "controller-manager", "scheduler")


class ControlPlane:
    """Starts and stops the programs of Kubernetes on nodes that are up."""

    def __init__(self, binaries: Mapping[str, Path], keys: certificates.Keys) -> None:
        self._binaries = binaries
        self._keys = keys

    # -------------------------------------------------------------- control plane

    def start_control(self, node: Node) -> None:
        """Start the control plane on its node and wait until the API server is ready."""
        home = node.folder / "kubernetes"
        for one in self._keys.folder.iterdir():
            (home / one.name).write_bytes(one.read_bytes())
        for user in ("controller-manager", "scheduler"):
            (home / f"{user}.conf").write_text(self._keys.kubeconfig(user))
        for name in _ON_CONTROL:
            self.start(node, name)
            if name == "apiserver":
                # The controller manager ends when it comes before the roles it needs.
                self.wait_ready()

    def start(self, node: Node, name: str) -> None:
        """Start one program: etcd, apiserver, controller-manager, scheduler, kubelet or kube-proxy."""
        flags = {
            "etcd": self._etcd,
            "apiserver": self._apiserver,
            "controller-manager": self._controller_manager,
            "scheduler": self._scheduler,
            "kubelet": self._kubelet,
            "kube-proxy": self._kube_proxy,
        }[name](node)
        binary = name if name in self._binaries else f"kube-{name}"
        node.start(name, [str(self._binaries[binary]), *flags])

    def ready(self) -> bool:
        """Tell whether the API server says that it is ready."""
        context = ssl.create_default_context(cafile=str(self._keys.folder / "ca.crt"))
        context.load_cert_chain(self._keys.folder / "admin.crt", self._keys.folder / "admin.key")
        try:
            with urllib.request.urlopen(f"{self._keys.server}/readyz", timeout=2, context=context) as answer:
                return bool(answer.read() == b"ok")
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self) -> None:
        """Wait until the API server is ready."""
        wait_until(self.ready, "the API server is ready", within_s=90)

    def _etcd(self, node: Node) -> list[str]:
        """Return etcd's flags; only this node reaches it."""
        return [
            f"--name={node.name}",
            "--data-dir=/var/lib/etcd/control-plane",
            "--listen-client-urls=https://127.0.0.1:2379",
            "--advertise-client-urls=https://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            f"--cert-file={_HOME}/etcd.crt",
            f"--key-file={_HOME}/etcd.key",
            "--client-cert-auth",
            f"--trusted-ca-file={_HOME}/etcd-ca.crt",
            "--quota-backend-bytes=2147483648",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=30m",
            # Nothing ever cuts this node's power, and `up` starts afresh; a disk that stalls would fail every test.
            "--unsafe-no-fsync",
        ]

    def _apiserver(self, node: Node) -> list[str]:
        """Return the API server's flags."""
        return [
            f"--advertise-address={node.address}",
            "--secure-port=6443",
            "--allow-privileged=true",
            "--etcd-servers=https://127.0.0.1:2379",
            f"--etcd-cafile={_HOME}/etcd-ca.crt",
            f"--etcd-certfile={_HOME}/etcd-client.crt",
            f"--etcd-keyfile={_HOME}/etcd-client.key",
            f"--client-ca-file={_HOME}/ca.crt",
            f"--tls-cert-file={_HOME}/apiserver.crt",
            f"--tls-private-key-file={_HOME}/apiserver.key",
            f"--kubelet-client-certificate={_HOME}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={_HOME}/apiserver-kubelet-client.key",
            f"--kubelet-certificate-authority={_HOME}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            f"--service-account-key-file={_HOME}/sa.pub",
            f"--service-account-signing-key-file={_HOME}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--requestheader-client-ca-file={_HOME}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={_HOME}/front-proxy-client.crt",
            f"--proxy-client-key-file={_HOME}/front-proxy-client.key",
            f"--default-not-ready-toleration-seconds={TOLERATION_S}",
            f"--default-unreachable-toleration-seconds={TOLERATION_S}",
        ]

    def _controller_manager(self, node: Node) -> list[str]:
        """Return the controller manager's flags; its own limits of calls would add five seconds to a start."""
        return [
            *self._client("controller-manager"),
            f"--root-ca-file={_HOME}/ca.crt",
            f"--service-account-private-key-file={_HOME}/sa.key",
            "--use-service-account-credentials=true",
            f"--cluster-signing-cert-file={_HOME}/ca.crt",
            f"--cluster-signing-key-file={_HOME}/ca.key",
            f"--cluster-cidr={POD_NETWORKS}",
            "--allocate-node-cidrs=false",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--node-monitor-period=2s",
            # A claim that comes before its volume would wait for the next round, which is 15 s by default.
            "--pvclaimbinder-sync-period=1s",
        ]

    def _scheduler(self, node: Node) -> list[str]:
        """Return the scheduler's flags."""
        return self._client("scheduler")

    def _client(self, name: str) -> list[str]:
        """Return the flags of a program of the control plane that is a client of the API server."""
        config = f"{_HOME}/{name}.conf"
        return [
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--bind-address=127.0.0.1",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
            "--leader-elect=false",
        ]

    # -------------------------------------------------------------- every node

    def start_node(self, node: Node) -> None:
        """Start kubelet and kube-proxy; the node registers itself."""
        home = node.folder / "kubernetes"
        for name in ("ca.crt", f"kubelet-{node.name}.crt", f"kubelet-{node.name}.key"):
            (home / name).write_bytes((self._keys.folder / name).read_bytes())
        (home / "kubelet.conf").write_text(self._keys.kubeconfig(f"kubelet-{node.name}"))
        (home / "kube-proxy.conf").write_text(self._keys.kubeconfig("kube-proxy"))
        (home / "kubelet.yaml").write_text(json.dumps(_kubelet_settings(node.name), indent=1))
        # kube-proxy ends by itself when its settings change, so they are written once.
        (home / "kube-proxy.yaml").write_text(json.dumps(_kube_proxy_settings(node.name), indent=1))
        self.start(node, "kubelet")
        self.start(node, "kube-proxy")

    def _kubelet(self, node: Node) -> list[str]:
        """Return kubelet's flags."""
        return [
            f"--config={_HOME}/kubelet.yaml",
            f"--kubeconfig={_HOME}/kubelet.conf",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{node.name}",
        ]

    def _kube_proxy(self, node: Node) -> list[str]:
        """Return kube-proxy's flags."""
        return [f"--config={_HOME}/kube-proxy.yaml"]


def _kubelet_settings(name: str) -> dict[str, object]:
    """Return kubelet's settings on a node."""
    settings: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{_HOME}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{_HOME}/kubelet-{name}.crt",
        "tlsPrivateKeyFile": f"{_HOME}/kubelet-{name}.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": "",  # there is nothing to resolve outside
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # -999 needs CAP_SYS_RESOURCE
        "maxOpenFiles": 20000,
        "imageGCHighThresholdPercent": 100,  # nobody could pull an image again
        "evictionHard": {
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "memory.available": "100Mi",
        },
        # The lease is renewed every quarter of its time; NODE_GRACE_S must exceed several of those.
        "nodeLeaseDurationSeconds": 4,
        # Look often, so that a node is Ready again soon, but write on change only.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "5m",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }
    if name == CONTROL:
        settings["registerWithTaints"] = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    return settings


def _kube_proxy_settings(name: str) -> dict[str, object]:
    """Return kube-proxy's settings on a node."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        # With the default of 1 s the second of two changes in a row is in force a second late; 0s counts as unset.
        "nftables": {"minSyncPeriod": "20ms", "syncPeriod": "1h"},
        "clientConnection": {"kubeconfig": f"{_HOME}/kube-proxy.conf"},
        "hostnameOverride": name,
        "clusterCIDR": POD_NETWORKS,
        # The table's size is the machine's and read-only in a node.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }
