"""A guardian undoes a fault when its parent is killed with -9, and at its deadline; else it lets it be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from deathless_operator.drill import guardian
from deathless_operator.drill.guardian import Guardian, leave_cgroups

AGENT = """
import os, signal, sys
from pathlib import Path
from deathless_operator.drill.guardian import Guardian

undone, root, deadline, end = sys.argv[1:]
guardian = Guardian(lambda: Path(undone).write_text(str(os.getpid())), float(deadline), Path(root))
guardian.start()
print(guardian.outside, flush=True)
if end == "release":
    guardian.release()
elif end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    sys.stdin.read()
"""


def node(tmp_path: Path) -> Path:
    """A node's root whose one cgroup hierarchy takes whoever comes."""
    folder = tmp_path / "node/sys/fs/cgroup"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("")
    return tmp_path / "node"


def tell(write_end: int) -> None:
    """Say that it was undone."""
    os.write(write_end, b"undone")


def run_agent(tmp_path: Path, deadline: float, end: str) -> tuple[Path, bytes]:
    """Run an agent to its end, and wait until its guardian has closed the pipe it inherited, too."""
    undone = tmp_path / "undone"
    command = [sys.executable, "-c", textwrap.dedent(AGENT), str(undone), str(node(tmp_path)), str(deadline), end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        told = agent.stdout.read()  # ends when agent and guardian have both let go of it
    return undone, told


def test_guardian_undoes_what_a_killed_agent_left(tmp_path: Path) -> None:
    undone, told = run_agent(tmp_path, 600.0, "kill")
    assert told == b"True\n"
    assert undone.read_text()


def test_guardian_lets_be_what_the_agent_undid(tmp_path: Path) -> None:
    undone, _ = run_agent(tmp_path, 600.0, "release")
    assert not undone.exists()


def test_guardian_undoes_at_its_deadline_although_its_parent_lives(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    watching = Guardian(lambda: tell(write_end), 0.05, node(tmp_path))
    watching.start()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        assert told.read() == b"undone"
    watching.release()
    watching.release()


def test_guardian_ignores_the_signal_that_ends_its_container(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    watching = Guardian(lambda: tell(write_end), 600.0, node(tmp_path))
    watching.start()
    os.close(write_end)
    os.kill(watching.pid, signal.SIGTERM)
    assert os.waitpid(watching.pid, os.WNOHANG) == (0, 0)
    watching.release()
    with os.fdopen(read_end, "rb") as told:
        assert told.read() == b""


def test_guardian_that_hangs_is_left_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hangs() -> None:
        signal.alarm(60)
        signal.pause()

    monkeypatch.setattr(guardian, "END_S", 0.05)
    watching = Guardian(hangs, 0.0, node(tmp_path))
    watching.start()
    watching.release()
    os.kill(watching.pid, signal.SIGKILL)
    os.waitpid(watching.pid, 0)
    assert f"process {watching.pid} has not ended" in capsys.readouterr().err


def test_undo_that_fails_is_tried_again(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    tries = []

    def undo() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("busy")
        os.write(write_end, b"third")

    watching = Guardian(undo, 0.0, node(tmp_path))
    watching.start()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        assert told.read() == b"third"
    watching.release()


def test_guardian_moves_itself_to_the_root_of_each_hierarchy(tmp_path: Path) -> None:
    for controller in ("memory", "freezer"):
        (tmp_path / "sys/fs/cgroup" / controller).mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup" / controller / "cgroup.procs").write_text("")
    assert leave_cgroups(tmp_path)
    for controller in ("memory", "freezer"):
        assert (tmp_path / "sys/fs/cgroup" / controller / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("kind", ["nothing", "refused"])
def test_guardian_that_cannot_leave_says_so(tmp_path: Path, kind: str) -> None:
    if kind == "refused":
        (tmp_path / "sys/fs/cgroup/memory/cgroup.procs").mkdir(parents=True)  # opening a folder for writing fails
    assert not leave_cgroups(tmp_path)


def test_own_view_does_where_the_nodes_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.procs").write_text("")
    nowhere = tmp_path / "nowhere"
    monkeypatch.setattr(guardian, "NODE_ROOT", nowhere)
    monkeypatch.setattr(guardian, "OWN_ROOT", tmp_path)
    assert not leave_cgroups(nowhere)  # written, but the kernel shows the same groups as before
    shown = iter(["0::/pod1/agent", "0::/"])
    monkeypatch.setattr(guardian, "_own_groups", lambda: next(shown))
    assert leave_cgroups(nowhere)
