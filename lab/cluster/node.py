"""A node of the `bare` cluster: one process with namespaces and cgroups of its own, and a containerd inside.

Why: a kubelet wants a machine to itself. Its pid 1 (pause.c) holds network, mount, UTS, IPC, pid and cgroup
namespaces, in which containerd, kubelet and kube-proxy run as they are. Several nodes live side by side on one
machine, and a node can lose its power, hang, or have its cable pulled, as a real one.

Guarantees:
- Nothing a node does (packet filters, forwarding, shared mounts, kernel settings of kubelet) reaches the machine,
  but for one raised limit of inotify instances.
- `crash` is a loss of power: every process and namespace of the node is gone when it returns.
- The node's folder keeps containerd's images over crashes and over clusters; all else is new with each `boot` that
  asks for it (`fresh`).
- Every file system a node sees as /srv/shared is one folder for all nodes. /srv/log is the same folder through a FUSE
  process of the node's own, so that it can hang, fail or see stale directories on one node alone.

Does not: work without cgroup v1, or know what a cluster is.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.machine import CommandFailed, LabError, run, state_folder, succeeds, wait_until

BRIDGE = "dlab0"
GROUP = "deathless-lab"  # of every cgroup hierarchy: all nodes of the lab lie below it
NETWORK = "10.89.0"  # of nodes; .1 is the machine
GATEWAY = f"{NETWORK}.1"
POD_NETWORK = "10.244"  # pods of node K have 10.244.K.0/24
NODES_MAX = 9

_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
_CGROUPS = Path("/sys/fs/cgroup")
_SHARES = 16_384  # of the processor: nodes stand for machines; the default, 1024, makes all of them one process's equal
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_MIN = 1024  # containerd, kubelet and its statistics need about fifteen on each node; the default is 128

# Folders of a node's own and where it sees them. `containerd` alone outlives a cluster: it holds the images.
_OWN = {
    "containerd": "/var/lib/containerd",
    "kubelet": "/var/lib/kubelet",
    "cni": "/etc/cni/net.d",
    "cni-state": "/var/lib/cni",
    "kubernetes": "/etc/kubernetes",
    "pods": "/var/log/pods",
    "containers": "/var/log/containers",
    "etcd": "/var/lib/etcd",
}
# Settings of the whole machine that kubelet writes; a plain file over each keeps the machine's values.
_SHIELDED = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
}

_CNI = """{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "ipMasq": false,
   "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "dataDir": "/run/cni-ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
"""

_CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0  # lowering it needs CAP_SYS_RESOURCE, which a container's root may lack
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  disable_apparmor = true
  restrict_oom_score_adj = true  # a sandbox asks for -998, which needs CAP_SYS_RESOURCE
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  max_container_log_line_size = 262144
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"  # Debian's
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "/usr/sbin/runc"
        SystemdCgroup = false
"""

# Runs as the first process of the new namespaces; what it ends with becomes the node's pid 1.
_BOOT = """set -e
hostname {name}
# A fresh sysfs shows this node's network; cgroups mounted anew have their roots at the node's own groups.
umount -R /sys
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for c in {controllers}; do mkdir /sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c; done
mkdir /sys/fs/cgroup/systemd; mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/lock /run/netns
mkdir -p /srv; mount -t tmpfs -o mode=755 tmpfs /srv
{binds}
for kv in {shielded}; do
  k=${{kv%=*}}; mkdir -p /run/sysctl; f=/run/sysctl/${{k##*/}}; echo "${{kv#*=}}" >$f; mount --bind $f /proc/sys/$k
done
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
for f in iptables ip6tables; do echo 1 >/proc/sys/net/bridge/bridge-nf-call-$f; done
ip link set lo up
exec {pause}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node is found."""

    name: str
    index: int  # in [1, NODES_MAX]

    @property
    def address(self) -> str:
        """The node's address."""
        return f"{NETWORK}.{10 + self.index}"

    @property
    def pod_network(self) -> str:
        """The network of its pods."""
        return f"{POD_NETWORK}.{self.index}.0/24"

    @property
    def folder(self) -> Path:
        """The folder that holds all of it."""
        return state_folder() / "nodes" / self.name

    @property
    def groups(self) -> list[Path]:
        """Its cgroup in every hierarchy."""
        return [_CGROUPS / one / GROUP / self.name for one in (*_CONTROLLERS, "systemd")]


class Node:
    """One node; the object holds nothing but its place, so that any process can go on with it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = place.name
        self.address = place.address
        self.folder = place.folder

    # -------------------------------------------------------------- life

    def boot(self, pause: Path, *, fresh: bool) -> None:
        """Start the node's pid 1 and plug in its cable.

        Args:
            pause: the program that is pid 1.
            fresh: forget all but containerd's images; else it is a machine that was off for a while.
        """
        if fresh:
            self._forget()
        self._write_files(pause)
        self._make_groups()
        command = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--fork", "--kill-child"]
        command += ["--propagation", "slave", "--mount-proc", "sh", str(self.folder / "boot.sh")]
        self._detach(self.joined(command), self.folder / "boot.log")
        wait_until(self._booted, f"{self.name} boots, see {self.folder}/boot.log", within_s=20)
        self._plug()

    def _booted(self) -> bool:
        """Note the pid of the node's pid 1 once it has become what it stays; no pod runs yet."""
        for pid in self._processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "pause":
                    (self.folder / "pid").write_text(str(pid))
                    return True
        return False

    def _forget(self) -> None:
        """Remove what a former cluster left, except for images."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for found in self.folder.iterdir():
            if found.name != "containerd":
                shutil.rmtree(found, ignore_errors=True) if found.is_dir() else found.unlink()
        for one in ("io.containerd.runtime.v2.task", "io.containerd.grpc.v1.cri", "io.containerd.runtime.v1.linux"):
            shutil.rmtree(self.folder / "containerd" / one, ignore_errors=True)

    def _write_files(self, pause: Path) -> None:
        """Write what the node reads when it boots."""
        for one in _OWN:
            (self.folder / one).mkdir(parents=True, exist_ok=True)
        shared = state_folder() / "shared"
        (self.folder / "hostname").write_text(f"{self.name}\n")
        (self.folder / "resolv.conf").write_text("")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (self.folder / "cni" / "10-lab.conflist").write_text(_CNI % self.place.pod_network)
        (self.folder / "containerd.toml").write_text(_CONTAINERD)
        binds = {str(self.folder / one): there for one, there in _OWN.items()} | {str(shared): "/srv/shared"}
        lines = [f"mkdir -p {there}; mount --rbind {shlex.quote(own)} {there}" for own, there in binds.items()]
        lines += [f"mount --bind {shlex.quote(str(self.folder / one))} /etc/{one}" for one in _ETC]
        boot = _BOOT.format(
            name=self.name,
            controllers=" ".join(_CONTROLLERS),
            binds="\n".join(lines),
            shielded=" ".join(f"{name}={value}" for name, value in _SHIELDED.items()),
            pause=shlex.quote(str(pause)),
        )
        (self.folder / "boot.sh").write_text(boot)

    def _make_groups(self) -> None:
        """Make the node's cgroups, without those of containers that died with a loss of power.

        A real loss of power empties them. Left behind, each costs kubelet three seconds when it starts.
        """
        for group in self.place.groups:
            for one in (group.parent, group):
                one.mkdir(exist_ok=True)
                if "cpuset" in one.parts:
                    for setting in ("cpuset.cpus", "cpuset.mems"):
                        (one / setting).write_text((_CGROUPS / "cpuset" / setting).read_text())
            if (group.parent / "cpu.shares").exists():
                (group.parent / "cpu.shares").write_text(str(_SHARES))
            remove_groups(group, itself=False)

    def crash(self) -> None:
        """Lose power: every process, mount and link of the node is gone when this returns."""
        pid = self.pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._set_frozen(frozen=False)  # a frozen process does not die
        wait_until(lambda: not self._processes(), f"all processes of {self.name} end", within_s=30)
        (self.folder / "pid").unlink(missing_ok=True)

    def down(self) -> None:
        """End the node, whatever state it is in, and remove its cgroups."""
        # Again and again: what was being started, or entered the node from outside, is not pid 1's to take along.
        wait_until(self._killed, f"all processes of {self.name} end", within_s=60)
        (self.folder / "pid").unlink(missing_ok=True)
        for group in self.place.groups:
            wait_until(lambda group=group: remove_groups(group), f"{group} is empty", within_s=30)  # type: ignore[misc]  # a default in a lambda

    def _killed(self) -> bool:
        """Kill every process of the node; tell whether there was none."""
        found = self._processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._set_frozen(frozen=False)  # a frozen process does not die
        return not found

    def pid(self) -> int | None:
        """Return the pid of the node's pid 1, None when it is off."""
        try:
            pid = int((self.folder / "pid").read_text())
            alive = Path(f"/proc/{pid}/comm").read_text().strip() == "pause"
            return pid if alive and pid in self._processes() else None
        except (OSError, ValueError):
            return None

    def _processes(self) -> list[int]:
        """Return every process of the node."""
        found: list[int] = []
        group = _CGROUPS / "pids" / GROUP / self.name
        for folder, _, _ in os.walk(group):
            with contextlib.suppress(OSError):
                found += map(int, (Path(folder) / "cgroup.procs").read_text().split())
        return found

    # -------------------------------------------------------------- running things in it

    def joined(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs another one in the node's cgroups; nsenter does not change them."""
        files = " ".join(shlex.quote(str(group / "cgroup.procs")) for group in self.place.groups)
        return ["sh", "-c", f'for f in {files}; do echo $$ >$f; done; exec "$@"', "sh", *command]

    def words(self, *command: str) -> list[str]:
        """Return a command that runs another one in the node, with `/` as working directory."""
        pid = self.pid()
        if pid is None:
            raise LabError(f"{self.name} is off")
        return self.joined(["nsenter", "-t", str(pid), "-a", "--", *command])

    def _detach(self, command: Sequence[str], log: Path) -> None:
        """Start a process that outlives us and is nobody's child; its output is added to `log`."""
        run("setsid", "--fork", "sh", "-c", f'exec "$@" </dev/null >>{shlex.quote(str(log))} 2>&1', "sh", *command)

    def exec(self, *command: str, stdin: str | bytes | None = None, timeout_s: float = 120.0) -> str:
        """Run a program in the node as root and return its output."""
        shown = f"on {self.name}: {shlex.join(command)}"
        return run(*self.words(*command), stdin=stdin, timeout_s=timeout_s, shown=shown)

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a program in the node that lives until it is killed; its output goes to NAME.log.

        It writes its pid, as seen in the node, to NAME.pid first, so that nobody ever looks for it by a pattern.
        """
        pid, log = (shlex.quote(str(self.folder / f"{name}.{kind}")) for kind in ("pid", "log"))
        (self.folder / f"{name}.pid").unlink(missing_ok=True)
        # The node's pid 1 becomes its parent: nobody outside has to wait for it, or is stopped when it is.
        detached = f'echo $$ >{pid}; exec "$@" </dev/null >>{log} 2>&1'
        self.exec("setsid", "--fork", "sh", "-c", detached, "sh", *command)
        wait_until((self.folder / f"{name}.pid").exists, f"{name} starts on {self.name}", within_s=20)

    def signal(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program that `start` started."""
        self.exec("kill", f"-{number.value}", (self.folder / f"{name}.pid").read_text().strip())

    def end(self, name: str) -> None:
        """Kill a program that `start` started, and wait until it and its ports are gone; it may have ended before."""
        pid = (self.folder / f"{name}.pid").read_text().strip()
        with contextlib.suppress(CommandFailed):
            self.exec("kill", f"-{signal.SIGKILL.value}", pid)
        wait_until(
            lambda: not succeeds(*self.words("kill", "-0", pid)), f"{name} is gone from {self.name}", within_s=60
        )

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers; containers outlive its restarts."""
        self.start("containerd", ["containerd", "-c", str(self.folder / "containerd.toml")])
        wait_until(lambda: succeeds(*self.words("ctr", "version")), f"containerd answers on {self.name}")

    def forget_containers(self) -> None:
        """Remove the containers that a former cluster left in containerd's store."""
        listed = self.exec("ctr", "-n", "k8s.io", "containers", "ls", "-q").split()
        if listed:
            self.exec("ctr", "-n", "k8s.io", "containers", "rm", *listed)

    # -------------------------------------------------------------- faults

    def freeze(self) -> None:
        """Hang the whole node."""
        self._set_frozen(frozen=True)

    def thaw(self) -> None:
        """Let it go on."""
        self._set_frozen(frozen=False)

    def _set_frozen(self, *, frozen: bool) -> None:
        """Set the state of the node's freezer, if it has one, and wait until it holds.

        A process that waits for the log's file system can't be frozen, and waits for ever where that file system's own
        process is: so pods come first, and what else of the node meets that is let go on once more.
        """
        node = _CGROUPS / "freezer" / GROUP / self.name
        if not node.exists():
            return
        pods = [each for each in node.iterdir() if each.is_dir()]
        if not frozen:
            for group in (node, *pods):
                self._wait_frozen(group, "THAWED")
            return
        for group in pods:
            self._wait_frozen(group, "FROZEN")
        wait_until(lambda: self._freezes(node), f"{self.name} is FROZEN", within_s=60)

    def _freezes(self, group: Path) -> bool:
        """Freeze a group, or let it go on where that can't be done."""
        try:
            self._wait_frozen(group, "FROZEN", within_s=2)
        except LabError:
            self._wait_frozen(group, "THAWED")
            return False
        return True

    def _wait_frozen(self, group: Path, state: str, *, within_s: float = 60) -> None:
        with contextlib.suppress(FileNotFoundError):  # a group that is gone meanwhile holds nobody
            (group / "freezer.state").write_text(state)
            wait_until(
                lambda: (group / "freezer.state").read_text().strip() == state, f"{group} is {state}", within_s=within_s
            )

    def unplug(self) -> None:
        """Pull the node's cable."""
        run("ip", "link", "set", self._cable, "down")

    def plug(self) -> None:
        """Plug it in again."""
        run("ip", "link", "set", self._cable, "up")

    @property
    def _cable(self) -> str:
        """The machine's end of the node's cable."""
        return f"dl-{self.name}"[:15]

    def _plug(self) -> None:
        """Make the node's cable, with routes between its pods and everybody else's."""
        pid = self.pid()
        assert pid is not None
        # The kernel removes a dead node's link a little after the node.
        succeeds("ip", "link", "del", self._cable)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", self._cable, "master", BRIDGE, "up")
        lines = ["link set eth0 up", f"addr add {self.address}/24 dev eth0", f"route add default via {GATEWAY}"]
        for index in range(1, NODES_MAX + 1):
            if index != self.place.index:
                other = Place(name="", index=index)
                lines.append(f"route add {other.pod_network} via {other.address}")
        self.exec("ip", "-batch", "-", stdin="\n".join(lines) + "\n")
        run("ip", "route", "replace", self.place.pod_network, "via", self.address)


_ETC = ("hosts", "resolv.conf", "hostname")


def remove_groups(top: Path, *, itself: bool = True) -> bool:
    """Remove the empty cgroups below `top`; tell whether it is gone (or empty, where it is to stay)."""
    for folder, _, _ in os.walk(top, topdown=False):
        if itself or folder != str(top):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not top.exists() if itself else not any(one.is_dir() for one in top.iterdir())


def _made_folders() -> Path:
    """Return the list of empty folders that were made on the machine as mount points."""
    return state_folder() / "made-folders"


def prepare_machine() -> None:
    """Make what all nodes share: the bridge, the shared folder, and room for inotify instances."""
    state_folder().mkdir(parents=True, exist_ok=True)
    if int(_INOTIFY.read_text()) < _INOTIFY_MIN:
        _INOTIFY.write_text(str(_INOTIFY_MIN))
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for folder in _OWN.values():
        if not Path(folder).exists():  # nodes see the machine's root, and mount folders of their own over these
            Path(folder).mkdir(parents=True)
            with _made_folders().open("a") as file:
                file.write(f"{folder}\n")
    shared = state_folder() / "shared"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    if not os.path.ismount(shared):
        # Mounts made below it later (small file systems) show up in every node.
        run("mount", "--bind", shared, shared)
    run("mount", "--make-shared", shared)


def clean_machine() -> None:
    """Remove every trace of nodes from the machine, going by what is found; images stay in the nodes' folders."""
    names = {one.name for hierarchy in _CGROUPS.glob(f"*/{GROUP}") for one in hierarchy.iterdir() if one.is_dir()}
    failed: list[LabError] = []
    for name in sorted(names):
        try:
            Node(Place(name=name, index=1)).down()
        except LabError as error:  # the others must go all the same
            failed.append(error)
    for hierarchy in _CGROUPS.glob(f"*/{GROUP}"):
        remove_groups(hierarchy)
    for link in Path("/sys/class/net").glob("dl-*"):
        succeeds("ip", "link", "del", link.name)
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        run("ip", "link", "del", BRIDGE)  # takes every route through it along
    shared = state_folder() / "shared"
    # One at a time, and looked at anew: a mount may be shown twice and go with its twin.
    wait_until(lambda: not _unmount_one(shared), f"nothing is mounted below {shared}", within_s=20)
    shutil.rmtree(shared, ignore_errors=True)
    if _made_folders().exists():
        for folder in _made_folders().read_text().split():
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        _made_folders().unlink()
    if failed:
        raise failed[0]


def _unmount_one(folder: Path) -> bool:
    """Unmount one of the file systems at and below a folder; tell whether there was any."""
    points = sorted(_mounts_below(folder))
    if points:
        succeeds("umount", "-l", points[-1])
    return bool(points)


def _mounts_below(folder: Path) -> list[str]:
    """Return the mount points at and below a folder, once for each mount."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines]
    return [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]
