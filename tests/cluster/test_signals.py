"""The lab's signals reach a pod's processes also where some of them end meanwhile; needs no cluster."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
from lab.cluster.bare import BareCluster
from lab.cluster.cluster import Pod
from lab.cluster.machine import LabError, run

POD = Pod.read({"metadata": {"namespace": "ns", "name": "bank-0", "uid": "u"}, "spec": {}})


class Here(BareCluster):
    """Its one node is this machine, its pod's processes are those that it is given."""

    def __init__(self, *pids: int) -> None:
        super().__init__()
        self.pids = list(pids)

    def node_exec(self, node: str, *command: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        return run(*command, stdin=stdin, timeout_s=timeout_s)

    def processes(self, pod: Pod, pattern: str = "") -> list[int]:
        return self.pids


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes on until it is killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as found:
        yield found
        found.kill()


def over() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen(["true"]) as found:
        found.wait()
    return found.pid


def test_signal_reaches_those_that_are_left_and_says_how_many(process: subprocess.Popen[bytes]) -> None:
    assert Here(over(), process.pid, over()).kill_process(POD) == 1
    assert process.wait(60) == -signal.SIGKILL


def test_signal_that_reaches_nobody_is_refused() -> None:
    for nobody in (Here(over()), Here()):
        with pytest.raises(LabError, match="has a process"):
            nobody.kill_process(POD, within_s=0)


def test_signal_waits_for_a_process_that_is_yet_to_come(process: subprocess.Popen[bytes]) -> None:
    lives: list[list[int]] = [[], [over()], [process.pid]]

    class Later(Here):
        def processes(self, pod: Pod, pattern: str = "") -> list[int]:
            return lives.pop(0)

    assert Later().kill_process(POD) == 1
    assert process.wait(60) == -signal.SIGKILL


def test_pod_is_frozen_also_where_a_process_ends_meanwhile(process: subprocess.Popen[bytes]) -> None:
    with Here(over(), process.pid).frozen_pod(POD):
        process.kill()
        process.wait(60)
    with pytest.raises(LabError, match="no process"), Here(over()).frozen_pod(POD):
        pass
