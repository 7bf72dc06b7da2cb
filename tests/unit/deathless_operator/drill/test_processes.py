"""A pod's processes are found by its uid in every layout of cgroups, and nobody else's are touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless_operator.drill import processes
from deathless_operator.drill.processes import PodProcess

UID = "2f1c5f9e-8a53-4b8e-9a0e-0123456789ab"
OTHER = "2f1c5f9e-8a53-4b8e-9a0e-0123456789ac"
LAYOUTS = {
    "v1_cgroupfs": "11:freezer:/kubepods/besteffort/pod{dashes}/abc\n0::/\n",
    "v1_systemd": "5:memory:/kubepods.slice/kubepods-besteffort-pod{lines}.slice/cri-abc.scope\n",
    "v2_cgroupfs": "0::/kubepods/burstable/pod{dashes}/abc\n",
    "v2_systemd": "0::/kubepods.slice/kubepods-pod{lines}.slice/cri-containerd-abc.scope\n",
    "v2_from_another_namespace": "0::/../../pod{dashes}/abc\n",
    "node_within_a_cgroup": "4:memory:/lab/kn1/kubepods/pod{dashes}/abc\n",
}


def fill(layout: str, uid: str) -> str:
    return layout.format(dashes=uid, lines=uid.replace("-", "_"))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_cgroup_names_its_pod_and_no_other(layout: str) -> None:
    assert processes.cgroup_is_of_pod(fill(layout, UID), UID)
    assert not processes.cgroup_is_of_pod(fill(layout, OTHER), UID)
    assert not processes.cgroup_is_of_pod(fill(layout, UID + "0"), UID)


def test_cgroup_of_a_plain_process_is_of_no_pod() -> None:
    assert not processes.cgroup_is_of_pod("12:pids:/user.slice\n0::/\n", UID)


@pytest.mark.parametrize("bad", ["", "  ", "bank-0", UID[:-1], UID + "/.."])
def test_uid_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        processes.check_pod_uid(bad)


def test_uid_is_taken_in_any_case() -> None:
    assert processes.check_pod_uid(f" {UID.upper()} ") == UID


def test_name_with_brackets_and_spaces_is_read() -> None:
    stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 1"
    assert processes.parse_stat(stat) == ("a) b (c", "S", 987654)


def test_worker_is_known_by_its_module_and_replica_by_its_pid() -> None:
    def process(pid: int, inner: int, *command: str) -> PodProcess:
        return PodProcess(pid=pid, inner_pid=inner, started=1, name="python", command=command, state="S")

    found = [
        process(10, 1, "deathless", "replica"),
        process(11, 7, "python", "-m", "deathless.shell.worker.worker", "x"),
        process(12, 8, "python", "-m", "deathless.shell.ingress.ingress", "x"),
    ]
    assert [one.pid for one in processes.pick(found, "worker")] == [11]
    assert [one.pid for one in processes.pick(found, "replica")] == [10]


@pytest.fixture(name="child")
def child_that_sleeps() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield child
    child.kill()
    child.wait()


def show(proc: Path, pid: int, uid: str) -> None:
    """Let a folder show a real process as one of a pod."""
    entry = proc / str(pid)
    entry.mkdir(parents=True)
    for name in ("stat", "status", "cmdline"):
        (entry / name).symlink_to(f"/proc/{pid}/{name}")
    (entry / "cgroup").write_text(fill(LAYOUTS["v1_cgroupfs"], uid))


def test_only_processes_of_the_pod_are_listed(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    show(tmp_path, child.pid, UID)
    show(tmp_path, os.getpid(), OTHER)
    (tmp_path / "self").mkdir()
    (tmp_path / "99999999").mkdir()  # gone while it was looked at
    assert [one.pid for one in processes.pod_processes(UID, tmp_path)] == [child.pid]


def test_sandbox_process_is_left_alone(tmp_path: Path) -> None:
    entry = tmp_path / "77"
    entry.mkdir()
    (entry / "cgroup").write_text(fill(LAYOUTS["v2_systemd"], UID))
    (entry / "stat").write_text("77 (pause) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 1")
    (entry / "status").write_text("Name:\tpause\nNSpid:\t77\t1\n")
    (entry / "cmdline").write_bytes(b"/pause\0")
    assert processes.pod_processes(UID, tmp_path) == []


def test_stopped_processes_stand_and_go_on(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    show(tmp_path, child.pid, UID)
    stopped = processes.stop_all(lambda: processes.pod_processes(UID, tmp_path))
    assert [one.pid for one in stopped] == [child.pid]
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    assert processes.continue_all(stopped) == 1
    assert os.WIFCONTINUED(os.waitpid(child.pid, os.WCONTINUED)[1])


def test_another_process_under_an_old_pid_is_not_signalled(child: subprocess.Popen[bytes]) -> None:
    old = PodProcess(pid=child.pid, inner_pid=1, started=1, name="python", command=(), state="S")
    assert not processes.send(old, signal.SIGKILL)
    assert child.poll() is None


def test_process_that_is_gone_is_no_error(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    show(tmp_path, child.pid, UID)
    (process,) = processes.pod_processes(UID, tmp_path)
    child.kill()
    child.wait()
    assert not processes.send(process, signal.SIGKILL)
    assert not processes.still_there(process)
