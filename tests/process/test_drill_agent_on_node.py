"""A drill's agent on a real node: real cgroups, a network namespace, nft; and what is left when it is killed with -9.

Plain processes in a cgroup named as a pod's stand in for a pod. Needs root, and says so in the table of test_tidy.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from replica_set import children_of, send_signal

from deathless_operator.drill.processes import pod_processes
from deathless_operator.plan.drill.reports import AgentReport, read_report

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "nsenter"))),
        reason="cgroups and a network of its own need root, ip, nft and nsenter",
    ),
]
SLEEPER = "import signal; signal.pause()"
SERVER = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
while True:
    listening.accept()[0].close()
"""
PORT = 7402
PATIENCE_S = 60.0


def cgroup_root() -> Path:
    """One hierarchy that names processes' groups: all of version 2, or one of version 1."""
    top = Path("/sys/fs/cgroup")
    return top if (top / "cgroup.procs").exists() else top / "freezer"


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that happens soon."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"{what} did not happen within {PATIENCE_S} s"
        os.sched_yield()


class Node:
    """A pod of plain processes, and an agent in a cgroup of its own."""

    def __init__(self) -> None:
        self.uid = str(uuid.uuid4())
        self.pod = cgroup_root() / "drilltest" / f"pod{self.uid}" / "c1"
        self.own = cgroup_root() / "drilltest" / f"agent{self.uid}"
        for folder in (self.pod, self.own):
            folder.mkdir(parents=True)
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, folder: Path, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a cgroup."""
        joined = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh", *command]
        child = subprocess.Popen(joined, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        return child

    def add(self, *command: str) -> subprocess.Popen[bytes]:
        """Start one of the pod's processes."""
        words = command or (sys.executable, "-c", SLEEPER)
        child = self.start(self.pod, *words)

        def runs() -> bool:
            """The kernel shows the name of what is executed a little before its command line."""
            found = [one for one in pod_processes(self.uid) if one.pid == child.pid]
            return any(one.name != "sh" and one.command[-1] == words[-1] for one in found)

        wait_until(runs, "start")
        return child

    def agent(self, *words: str) -> subprocess.Popen[bytes]:
        """Start an agent."""
        program = (sys.executable, "-m", "deathless_operator.cli.main", "drill-agent", f"--pod-uid={self.uid}")
        return self.start(self.own, *program, "--report=/dev/null", *words)

    def kill_agents_container(self) -> None:
        """Do what a container's runtime does when its first process dies: kill all that is left in its cgroup."""
        while pids := [int(line) for line in (self.own / "cgroup.procs").read_text().split()]:
            for pid in pids:
                send_signal(pid, signal.SIGKILL)
            for child in self.children:
                child.poll()

    def remove(self) -> None:
        """End everything."""
        for child in self.children:
            child.kill()
            child.wait()
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
        for folder in (self.pod, self.pod.parent, self.own):
            wait_until(lambda folder=folder: gone(folder), f"{folder} becoming empty")  # type: ignore[misc]
        gone(self.own.parent)  # unless another pod stands there, too


def gone(folder: Path) -> bool:
    """Remove a cgroup; False while somebody is in it."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@pytest.fixture(name="node")
def node_with_a_pod() -> Iterator[Node]:
    node = Node()
    yield node
    node.remove()


def state(child: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]


def report_of(agent: subprocess.Popen[bytes]) -> AgentReport:
    out, errors = agent.communicate(timeout=PATIENCE_S * 2)
    report = read_report(out.decode(), AgentReport)
    assert report is not None, errors.decode()
    return report


def test_frozen_pod_stands_and_goes_on(node: Node) -> None:
    children = [node.add(), node.add()]
    agent = node.agent("--fault=Freeze", "--duration=5")
    wait_until(lambda: all(state(child) == "T" for child in children), "the freeze")
    report = report_of(agent)
    assert (report.touched, report.problem) == (2, "")
    assert report.ended - report.began >= 5.0
    assert all(state(child) != "T" for child in children)


def test_pod_is_thawed_although_agent_and_its_container_are_killed(node: Node) -> None:
    child = node.add()
    node.agent("--fault=Freeze", "--duration=600")
    wait_until(lambda: state(child) == "T", "the freeze")
    node.kill_agents_container()
    wait_until(lambda: state(child) == "S", "the thaw by the guardian")


def test_terminated_agent_thaws_the_pod(node: Node) -> None:
    child = node.add()
    agent = node.agent("--fault=Freeze", "--duration=600")
    wait_until(lambda: state(child) == "T", "the freeze")
    agent.terminate()
    assert report_of(agent).touched == 1
    assert state(child) != "T"


def test_kill_leaves_other_pods_alone(node: Node) -> None:
    other = Node()
    try:
        bystander = other.add(sys.executable, "-c", SLEEPER, "deathless.shell.worker.worker")
        worker, rest = node.add(sys.executable, "-c", SLEEPER, "deathless.shell.worker.worker"), node.add()
        assert report_of(node.agent("--fault=ProcessKill")).touched == 1
        assert worker.wait(PATIENCE_S) == -signal.SIGKILL
        assert bystander.poll() is None
        assert rest.poll() is None
    finally:
        other.remove()


@pytest.fixture(name="network")
def network_of_the_pod() -> Iterator[tuple[str, str]]:
    """A namespace joined to this one by a wire; yields its name and its address."""
    number = os.getpid()
    name, here, there = f"drill{number}", f"dr{number}a", f"dr{number}b"
    subnet = f"10.{150 + number % 50}.{number // 50 % 250}"
    for words in (
        f"netns add {name}",
        f"link add {here} type veth peer name {there} netns {name}",
        f"addr add {subnet}.1/24 dev {here}",
        f"link set {here} up",
        f"-n {name} addr add {subnet}.2/24 dev {there}",
        f"-n {name} link set {there} up",
        f"-n {name} link set lo up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    yield name, f"{subnet}.2"
    subprocess.run(["ip", "link", "del", here], check=True)
    subprocess.run(["ip", "netns", "del", name], check=True)


def reaches(address: str) -> bool:
    try:
        with socket.create_connection((address, PORT), 0.3):
            return True
    except OSError:
        return False


@pytest.fixture(name="address")
def address_of_a_server_in_the_pod(node: Node, network: tuple[str, str]) -> str:
    name, address = network
    server = node.add("ip", "netns", "exec", name, sys.executable, "-c", SERVER, address, str(PORT))
    assert server.stdout is not None
    assert server.stdout.readline() == b"listens\n"
    wait_until(lambda: reaches(address), "the server's answer over a wire that is new")
    return address


def test_partition_ends_with_its_duration(node: Node, address: str) -> None:
    agent = node.agent("--fault=Partition", f"--served={PORT}", "--duration=10")
    wait_until(lambda: not reaches(address), "the partition")
    assert report_of(agent).problem == ""
    wait_until(lambda: reaches(address), "the join")


def test_everything_is_cut_and_joined_again(node: Node, address: str) -> None:
    agent = node.agent("--fault=Partition", "--everything", "--duration=600")
    wait_until(lambda: not reaches(address), "the partition")
    agent.terminate()
    assert report_of(agent).touched == 1
    wait_until(lambda: reaches(address), "the join")


def test_partition_is_undone_by_the_guardian(node: Node, address: str) -> None:
    node.agent("--fault=Partition", "--everything", "--duration=600")
    wait_until(lambda: not reaches(address), "the partition")
    node.kill_agents_container()
    wait_until(lambda: reaches(address), "the guardian's undoing")


def test_partition_is_forgotten_by_the_kernel_when_nobody_lives(node: Node, address: str) -> None:
    agent = node.agent("--fault=Partition", f"--served={PORT}", "--duration=20")
    wait_until(lambda: str(PORT) in rules(node), "the partition")
    agent.send_signal(signal.SIGSTOP)  # neither of them sees the other go
    wait_until(lambda: state(agent) == "T", "the agent's stop")
    guardians = children_of(agent.pid, "drill-agent")
    assert guardians
    for pid in [*guardians, agent.pid]:
        send_signal(pid, signal.SIGKILL)
    agent.wait(PATIENCE_S)
    assert not reaches(address)
    wait_until(lambda: reaches(address), "the kernel's forgetting")


def test_lock_outage_cuts_what_the_pod_calls_alone(node: Node, address: str) -> None:
    agent = node.agent("--fault=LockOutage", "--called=2379", "--duration=600")
    wait_until(lambda: "2379" in rules(node), "the outage")
    assert reaches(address)
    agent.terminate()
    assert report_of(agent).touched == 1
    assert rules(node) == ""


def rules(node: Node) -> str:
    """What nft holds in the pod's network."""
    pid = pod_processes(node.uid)[0].pid
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", "nft", "list", "ruleset"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
