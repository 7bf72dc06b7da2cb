"""An agent's fault begins, lasts and ends as ordered, on plain processes that a folder shows as a pod's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from deathless.base.errors import InvalidArgument
from deathless_operator.drill.agent import FaultName, Order, run
from deathless_operator.drill.filters import Cut
from deathless_operator.model.drill import AGENT_FAULTS

UID = "2f1c5f9e-8a53-4b8e-9a0e-0123456789ab"


class Pod:
    """Plain processes that a folder shows as a pod's."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.node = folder / "proc", folder / "node"
        self.proc.mkdir()
        procs = self.node / "sys/fs/cgroup/cgroup.procs"
        procs.parent.mkdir(parents=True)
        procs.write_text("")
        self.children: list[subprocess.Popen[bytes]] = []

    def add(self, *arguments: str, inner_pid: int = 7) -> subprocess.Popen[bytes]:
        """Start one; returns once it runs, for the kernel shows its command line a little after it was executed."""
        program = "import signal; print(flush=True); signal.pause()"
        child = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)
        self.children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        entry = self.proc / str(child.pid)
        entry.mkdir()
        for name in ("stat", "cmdline"):
            (entry / name).symlink_to(f"/proc/{child.pid}/{name}")
        (entry / "status").write_text(f"NSpid:\t{child.pid}\t{inner_pid}\n")
        (entry / "cgroup").write_text(f"0::/kubepods/pod{UID}/abc\n")
        return child


@pytest.fixture(name="pod")
def pod_of_plain_processes(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path)
    yield pod
    for child in pod.children:
        child.kill()
        child.communicate()


def is_stopped(child: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_kill_hits_the_worker_alone(pod: Pod) -> None:
    replica, worker = pod.add("replica", inner_pid=1), pod.add("deathless.shell.worker.worker")
    report = run(Order(pod_uid=UID, fault="ProcessKill", proc=pod.proc))
    assert (report.touched, report.problem) == (1, "")
    assert worker.wait() == -signal.SIGKILL
    assert replica.poll() is None


def test_kill_of_the_replica_hits_the_first_process(pod: Pod) -> None:
    replica, worker = pod.add("replica", inner_pid=1), pod.add("deathless.shell.worker.worker")
    assert run(Order(pod_uid=UID, fault="ProcessKill", process="replica", proc=pod.proc)).touched == 1
    assert replica.wait() == -signal.SIGKILL
    assert worker.poll() is None


def test_frozen_pod_stands_for_the_time_and_goes_on(pod: Pod) -> None:
    children = [pod.add("replica", inner_pid=1), pod.add("deathless.shell.worker.worker")]
    seen = []

    def wait(seconds: float) -> None:
        seen.append((seconds, [is_stopped(child) for child in children]))

    report = run(Order(pod_uid=UID, fault="Freeze", duration_s=9, proc=pod.proc, node_root=pod.node), wait)
    assert seen == [(9, [True, True])]
    assert report.touched == 2
    assert report.began <= report.ended
    assert not any(is_stopped(child) for child in children)


def test_pod_is_thawed_although_waiting_failed(pod: Pod) -> None:
    child = pod.add("replica", inner_pid=1)

    def wait(seconds: float) -> None:
        raise OSError(f"not even {seconds} s")

    report = run(Order(pod_uid=UID, fault="Freeze", proc=pod.proc, node_root=pod.node), wait)
    assert "not even" in report.problem
    assert not is_stopped(child)


def test_pod_is_not_frozen_without_a_guardian_that_outlives_the_container(pod: Pod, tmp_path: Path) -> None:
    child = pod.add("replica", inner_pid=1)
    report = run(Order(pod_uid=UID, fault="Freeze", proc=pod.proc, node_root=tmp_path / "none"), lambda _: None)
    assert "guardian" in report.problem
    assert report.touched == 0
    assert not is_stopped(child)


def test_terminated_agent_ends_its_fault_at_once(pod: Pod) -> None:
    child = pod.add("replica", inner_pid=1)
    before = signal.getsignal(signal.SIGTERM)

    def terminate_once(seconds: float) -> None:
        assert is_stopped(child)
        os.kill(os.getpid(), signal.SIGTERM)

    report = run(Order(pod_uid=UID, fault="Freeze", duration_s=3600, proc=pod.proc, node_root=pod.node), terminate_once)
    assert report.problem == ""
    assert not is_stopped(child)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("fault", ["ProcessKill", "Freeze"])
def test_pod_without_processes_is_reported(pod: Pod, fault: str) -> None:
    report = run(Order(pod_uid=UID, fault=fault, proc=pod.proc, node_root=pod.node))  # type: ignore[arg-type]
    assert "no process" in report.problem
    assert report.began == 0


def test_pod_on_the_nodes_own_network_is_not_cut_off(pod: Pod) -> None:
    child = pod.add("replica", inner_pid=1)
    (pod.proc / str(child.pid) / "ns").symlink_to(f"/proc/{child.pid}/ns")
    order = Order(
        pod_uid=UID, fault="Partition", cut=Cut(everything=True), proc=pod.proc, node_root=Path("/proc/self/root")
    )
    assert "own network" in run(order).problem


@pytest.mark.parametrize(
    "order",
    [
        Order(pod_uid="", fault="Freeze"),
        Order(pod_uid=UID, fault="Freeze", duration_s=-1),
        Order(pod_uid=UID, fault="Freeze", duration_s=1e9),
        Order(pod_uid=UID, fault="Partition"),
        Order(pod_uid=UID, fault="LockOutage"),
    ],
)
def test_order_that_makes_no_sense_is_refused(order: Order) -> None:
    with pytest.raises(InvalidArgument):
        run(order)


def test_an_agent_does_each_fault_that_the_api_server_can_not_do_alone() -> None:
    assert get_args(FaultName) == AGENT_FAULTS
