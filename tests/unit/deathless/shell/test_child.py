"""When a child is started again, with a pause that doubles up to a cap; nobody hangs with one that cannot end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from deathless.shell import child as module
from deathless.shell.child import AT_ONCE_S, RESTART_MAX_S, RESTART_MIN_S, STABLE_S, Child, end_all, reap


def test_failing_child_waits_longer_each_time_up_to_a_cap() -> None:
    child, waited = Child("worker"), []
    for _ in range(10):
        child.ended(0.0, at_once=False)
        waited.append(child.delay_s)
    assert waited[:3] == [RESTART_MIN_S, 2 * RESTART_MIN_S, 4 * RESTART_MIN_S]
    assert waited[-1] == child.start_at == RESTART_MAX_S


def test_long_run_or_an_orderly_end_of_a_fair_one_is_followed_at_once() -> None:
    for ran_s, at_once, waits in ((STABLE_S, False, False), (AT_ONCE_S, True, False), (AT_ONCE_S, False, True)):
        child = Child("worker")
        child.ended(ran_s, at_once=at_once)
        assert (child.delay_s > 0) == waits
        assert (child.pid, child.stopped, child.process) == (0, False, None)


class Kept(subprocess.Popen[bytes]):
    """A process that the kernel keeps, as it does one that waits for storage: it hears no signal."""

    def kill(self) -> None:
        pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(module, "END_S", 0.01)


def child_of(name: str, kind: type[subprocess.Popen[bytes]]) -> tuple[Child, subprocess.Popen[bytes]]:
    """A child whose process does nothing and ends by no signal but the kernel's."""
    child = Child(name)
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    child.process = kind([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.process.stdout is not None
    child.process.stdout.readline()
    return child, child.process


def test_children_are_killed_and_waited_for() -> None:
    made = [child_of(name, subprocess.Popen) for name in ("worker", "ingress")]
    end_all([*(child for child, _ in made), Child("none")])
    assert [process.returncode for _, process in made] == [-signal.SIGKILL, -signal.SIGKILL]
    assert [child.pid for child, _ in made] == [0, 0]
    for _, process in made:
        process.communicate()


def test_child_that_can_not_end_is_named_and_left_and_the_others_end(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    kept, kept_process = child_of("worker", Kept)
    other, process = child_of("ingress", subprocess.Popen)
    try:
        end_all([kept, other])
        assert kept_process.returncode is None
        assert "worker was killed and does not end" in caplog.text
        assert kept.pid == other.pid == 0
        process.wait()
        assert process.returncode == -signal.SIGKILL
    finally:
        os.kill(kept_process.pid, signal.SIGKILL)
        for each in (kept_process, process):
            each.communicate()


def test_process_that_can_not_end_is_not_waited_for(impatient: None) -> None:
    child, process = child_of("copy", subprocess.Popen)
    assert reap(child.pid) is None
    os.kill(process.pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == -signal.SIGKILL
    process.communicate()
