"""A cluster without a Docker engine: a control plane and three workers, as nodes of namespaces on this machine.

Why: the end-to-end tests need a real API server, real kubelets and real failures of nodes on machines where no
container engine answers. Every program is the real one; only the machine under each node is lent.

Guarantees: `up` gives the same cluster each time, whatever it finds; `down` removes every trace but images, whatever
state it finds, also after a crash half-way. One cluster per machine: a lock makes a second `up` wait its turn.
The control plane and DNS live on a node of their own, so that a fault of any worker leaves them alone.

Does not: work without root, on systems other than Linux, or without cgroup v1 (see `why_not`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from lab import kubernetes
from lab.cluster import certificates, images, node
from lab.cluster.cluster import LOG, SHARED, Cluster, Pod
from lab.cluster.control_plane import CONTROL, DNS_SERVICE, FIRST_SERVICE, SERVICE_NETWORK, ControlPlane
from lab.cluster.machine import LabError, missing_programs, run, say, state_folder, succeeds, wait_until
from lab.cluster.node import Node, Place

PROGRAMS = {
    "bindfs": "bindfs",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "ctr": "containerd",
    "ethtool": "ethtool",
    "gcc": "gcc",
    "ip": "iproute2",
    "iptables": "iptables",
    "mkfs.ext4": "e2fsprogs",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "setsid": "util-linux",
    "socat": "socat",
    "unshare": "util-linux",
}
"""What a node needs on the search path, and the package it comes in."""

WORKERS = ("worker1", "worker2", "worker3")
FRESH = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
"""Options of a node's log file system: each look-up asks the real directory."""
STALE = "attr_timeout=3,entry_timeout=3,negative_timeout=3,kernel_cache"
"""Options that let a node's caches be wrong for three seconds, as those of a network file system may be."""
STALE_LOG = "/srv/stale"
"""Where nodes have the shared folder with such caches, inside `stale_logs`."""


def why_not() -> str | None:
    """Return why this machine cannot run it, in words for a person; None when it can."""
    if platform.system() != "Linux":
        return f"nodes of namespaces need Linux, this is {platform.system()}"
    if os.geteuid() != 0:
        return "nodes of namespaces need root"
    if not Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        return "nodes of namespaces need cgroup v1 (memory and the other controllers mounted below /sys/fs/cgroup)"
    packages = sorted({PROGRAMS[name] for name in missing_programs(*PROGRAMS)})
    if not Path("/usr/lib/cni/bridge").exists():
        packages.append("containernetworking-plugins")
    if packages:
        return f"missing packages: apt-get install --no-install-recommends {' '.join(packages)}"
    built = all(one.there for one in kubernetes.BINARIES.values())
    if not built and shutil.which("go") is None:
        return "no Go compiler (`go`) on the search path to build Kubernetes with"
    return None


class BareCluster(Cluster):
    """The cluster of this machine; the object finds everything again from files, so any process may have one."""

    def __init__(self) -> None:
        folder = state_folder()
        self.kubeconfig = folder / "admin.conf"
        self.binaries = {name: one.path for name, one in kubernetes.BINARIES.items()}
        self._keys_folder = folder / "keys"
        places = [Place(name=name, index=index) for index, name in enumerate((CONTROL, *WORKERS), 1)]
        self._control, *rest = (Node(place) for place in places)
        self._workers = {one.name: one for one in rest}
        keys = certificates.Keys(folder=self._keys_folder, server=f"https://{self._control.address}:6443")
        self._plane = ControlPlane(self.binaries, keys)

    @property
    def pause(self) -> Path:
        """The program that is a node's first process."""
        return state_folder() / "archives" / "pause"

    # -------------------------------------------------------------- life

    @property
    def workers(self) -> list[str]:
        return list(self._workers)

    def running(self) -> bool:
        """Tell whether it is up and answers."""
        nodes = [self._control, *self._workers.values()]
        return self.kubeconfig.exists() and all(one.pid() for one in nodes) and self._plane.ready()

    def up(self) -> None:
        """Start it from nothing; returns when every worker is Ready and names are resolved.

        Raises:
            LabError: something did not start; `down` cleans up.
        """
        kubernetes.ensure(progress=say)
        with self._alone():
            self._down()
            node.prepare_machine()
            archives = self._archives()
            certificates.make(
                self._keys_folder,
                control=self._control.address,
                service=FIRST_SERVICE,
                nodes={one.name: one.address for one in (self._control, *self._workers.values())},
            )
            with ThreadPoolExecutor(max_workers=8) as pool:
                self._start_everything(pool, archives)

    def _start_everything(self, pool: ThreadPoolExecutor, archives: Sequence[Path]) -> None:
        """Boot the nodes, start Kubernetes on them, and wait until it can be used."""
        nodes = [self._control, *self._workers.values()]
        list(pool.map(lambda one: one.boot(self.pause, fresh=True), nodes))
        say(f"{len(nodes)} nodes booted")
        containers = [pool.submit(self._start_containers, one, archives) for one in nodes]
        self._plane.start_control(self._control)
        self.kubeconfig.write_text(certificates.Keys(folder=self._keys_folder, server=self._server).kubeconfig("admin"))
        self.kubeconfig.chmod(0o600)
        say("API server ready")
        for one in containers:
            one.result()
        say("containerd ready, images loaded")
        list(pool.map(self._plane.start_node, nodes))
        self.kubectl("apply", "-f", str(Path(__file__).with_name("dns.yaml")))
        wait_until(lambda: len(self.ready_nodes()) == len(WORKERS), "all workers are Ready", poll_s=0.2)
        say(f"{len(WORKERS)} workers Ready")
        run("ip", "route", "replace", SERVICE_NETWORK, "via", self._control.address)
        self.wait_rolled_out("kube-system", "deploy/coredns")
        say(f"names are resolved by {DNS_SERVICE}")

    @property
    def _server(self) -> str:
        """The API server's address."""
        return f"https://{self._control.address}:6443"

    def _start_containers(self, one: Node, archives: Sequence[Path]) -> None:
        """Start containerd and the log's file system on a node that was booted anew, and load what every node needs."""
        one.start_containerd()
        one.forget_containers()
        self._start_log(one)
        for archive in archives:
            images.load(one, archive)

    def _archives(self) -> list[Path]:
        """Return the archives of the images that every node has, made where they are missing."""
        folder = state_folder() / "archives"
        local = "usr/local/bin"
        etcd = {f"{local}/{name}": self.binaries[name] for name in ("etcd", "etcdctl")}
        images.build_pause(folder)
        return [
            images.make(folder / "pause.tar", images.PAUSE, {"pause": self.pause}, ["/pause"], "65535:65535"),
            images.make(folder / "coredns.tar", images.COREDNS, {"coredns": self.binaries["coredns"]}, ["/coredns"]),
            images.make(folder / "etcd.tar", images.ETCD, etcd, ["/usr/local/bin/etcd"]),
        ]

    def down(self) -> None:
        """End it, whatever is left of it; images stay for the next one."""
        with self._alone():
            self._down()

    def _down(self) -> None:
        """Remove nodes, network and shared files."""
        node.clean_machine()
        self.kubeconfig.unlink(missing_ok=True)
        for disk in state_folder().glob("volume-*.img"):
            disk.unlink()
        shutil.rmtree(self._keys_folder, ignore_errors=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only one process at a time starts or ends the cluster."""
        state_folder().mkdir(parents=True, exist_ok=True)
        with (state_folder() / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another process that starts or ends the cluster")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -------------------------------------------------------------- nodes

    def _node(self, name: str) -> Node:
        """Return a node by its name."""
        return self._control if name == CONTROL else self._workers[name]

    def node_exec(self, node: str, *command: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        return self._node(node).exec(*command, stdin=stdin, timeout_s=timeout_s)

    def load_image(self, archive: Path) -> None:
        nodes = [self._control, *self._workers.values()]
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            sizes = list(pool.map(lambda one: images.load(one, archive), nodes))
        say(f"{archive.name} loaded, {max(sizes) / 1e6:.0f} MB of new layers")

    def crash_node(self, node: str) -> None:
        self._node(node).crash()

    def start_node(self, node: str) -> None:
        one = self._node(node)
        if one.pid() is None:
            one.boot(self.pause, fresh=False)
            one.start_containerd()
            self._start_log(one)
            self._plane.start_node(one)

    def freeze_node(self, node: str) -> None:
        self._node(node).freeze()

    def thaw_node(self, node: str) -> None:
        self._node(node).thaw()

    def unplug_node(self, node: str) -> None:
        self._node(node).unplug()

    def plug_node(self, node: str) -> None:
        self._node(node).plug()

    # -------------------------------------------------------------- control plane

    def kill_api_server(self) -> None:
        self._control.signal("apiserver")
        wait_until(lambda: not self._plane.ready(), "the API server is gone")

    def start_api_server(self) -> None:
        self._plane.start(self._control, "apiserver")
        self._plane.wait_ready()
        # Elsewhere they end when they can't renew their lease, and are begun again. A scheduler that has missed what
        # went on for a minute would end much later, on a pod that stands on another node than it believes.
        for name in ("controller-manager", "scheduler"):
            self._control.end(name)
            self._plane.start(self._control, name)

    # -------------------------------------------------------------- storage

    def _start_log(self, one: Node, options: str = FRESH, *, name: str = "log", folder: str = LOG) -> None:
        """Serve the shared folder a second time, through a process of the node's own."""
        one.exec("mkdir", "-p", folder)
        one.start(name, ["bindfs", "-f", "-o", options, SHARED, folder])
        wait_until(lambda: succeeds(*one.words("mountpoint", "-q", folder)), f"{folder} is mounted on {one.name}")

    @contextmanager
    def stale_logs(self) -> Iterator[str]:
        """The shared folder once more on every worker, with caches that may be wrong; gives where nodes have it."""
        try:
            for one in self._workers.values():
                self._start_log(one, STALE, name="stale-log", folder=STALE_LOG)
            yield STALE_LOG
        finally:
            for one in self._workers.values():
                with contextlib.suppress(LabError, OSError):
                    one.signal("stale-log", signal.SIGKILL)
                with contextlib.suppress(LabError):
                    one.exec("umount", "-l", STALE_LOG)

    @contextmanager
    def hung_log(self, node: str) -> Iterator[None]:
        """A node on which every call below /srv/log waits, for ever if need be."""
        one = self._node(node)
        one.signal("log", signal.SIGSTOP)
        try:
            yield
        finally:
            one.signal("log", signal.SIGCONT)

    def kill_log(self, node: str) -> None:
        """Have every call below /srv/log fail on a node, also on open files, until `start_log`."""
        self._node(node).end("log")

    def start_log(self, node: str) -> None:
        """Mount /srv/log again; pods that were there before keep the dead one until they are replaced."""
        one = self._node(node)
        with contextlib.suppress(LabError):
            one.signal("log", signal.SIGKILL)
        one.exec("umount", "-l", LOG)
        self._start_log(one)

    def shared_folder(self, name: str) -> Path:
        """Return a new folder below /srv/shared and /srv/log, as this machine sees it; anybody may write to it."""
        folder = state_folder() / "shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return folder

    @contextmanager
    def small_volume(self, name: str, *, size_mb: int) -> Iterator[Path]:
        """A folder below /srv/shared and /srv/log with a file system of its own (ext4) of `size_mb` megabytes."""
        folder = self.shared_folder(name)
        disk = state_folder() / f"volume-{name}.img"
        with disk.open("wb") as file:
            file.truncate(size_mb << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", disk)
        run("mount", "-o", "loop", disk, folder)
        folder.chmod(0o777)
        try:
            yield folder
        finally:
            run("umount", "-l", folder)
            disk.unlink()

    @contextmanager
    def linkless_volume(self, name: str) -> Iterator[None]:
        """A folder below /srv/shared with a file system of its own that has no hard links, as vfat has none."""
        library = images.build_no_links(state_folder() / "archives")
        folder, behind = self.shared_folder(name), self.shared_folder(f"{name}-behind")
        run("bindfs", behind, folder, environment={"LD_PRELOAD": str(library)})
        try:
            yield
        finally:
            run("umount", "-l", folder)
            shutil.rmtree(behind, ignore_errors=True)

    @contextmanager
    def full_volume(self, folder: Path, *, left_bytes: int = 0) -> Iterator[None]:
        """A volume of `small_volume` with no more than `left_bytes` of room."""
        ballast = folder / ".ballast"
        try:
            # Without a buffer nothing is left to be written, and to fail, when it is closed.
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            if left_bytes:
                os.truncate(ballast, max(0, ballast.stat().st_size - left_bytes))
            yield
        finally:
            ballast.unlink(missing_ok=True)

    # -------------------------------------------------------------- links

    @contextmanager
    def slow_link(self, pod: Pod, *, delay_s: float = 0.0, jitter_s: float = 0.0, loss: float = 0.0) -> Iterator[None]:
        """As `Cluster.slow_link`, also for kernels without netem: a process of ours holds the packets back."""
        network = self._network(pod)
        one = self._node(pod.node)
        # In the mangle table: kernels without nft's `queue` have iptables' target.
        queue = "7"
        rule = ["POSTROUTING", "!", "-o", "lo", "-j", "NFQUEUE", "--queue-num", queue, "--queue-bypass"]
        program = Path(__file__).with_name("slow_packets.py")
        limits = ["--delay", str(delay_s), "--jitter", str(jitter_s), "--loss", str(loss)]
        name = f"slow-{pod.uid}"
        one.start(name, [*network, sys.executable, str(program), "--queue", queue, *limits])

        def listens() -> bool:
            lines = one.exec(*network, "cat", "/proc/net/netfilter/nfnetlink_queue").splitlines()
            return any(line.split()[0] == queue for line in lines)

        try:
            wait_until(listens, f"packets of {pod.name} are held back")  # they pass undelayed before
            one.exec(*network, "iptables", "-t", "mangle", "-A", *rule)
            try:
                yield
            finally:
                self._forgive(pod, *network, "iptables", "-t", "mangle", "-D", *rule)
        finally:
            with contextlib.suppress(LabError):
                one.signal(name, signal.SIGTERM)
