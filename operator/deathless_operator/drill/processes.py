"""The processes of one pod on this node: found by the pod's uid in their cgroups, hit by signals.

A container runtime names a pod's cgroup after the pod's uid: with dashes (`.../pod<uid>/<container>`, cgroupfs) or with
underscores (`kubepods-...-pod<uid>.slice`, systemd). Both stand in `/proc/<pid>/cgroup`, in one line per controller
(version 1) or in one line in all (version 2); seen from another cgroup namespace the path begins with `/..` and still
holds the uid.

Guarantees: a process counts only if its cgroup names exactly the uid asked for; the sandbox's own process (`pause`),
which holds the pod's namespaces, is never among them. A pid is checked again right before it is signalled. Does not:
know what a replica is beyond the module names on its command lines.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deathless.base.errors import InvalidArgument

PROC: Final = Path("/proc")
SANDBOX_NAMES: Final = frozenset({"pause"})
WORKER_MODULES: Final = frozenset({"deathless.shell.worker.worker", "deathless.shell.worker"})
"""What runs as the worker, in our image and in those of before: an operator is newer than its services for a while."""
FREEZE_PASSES_MAX: Final = 100  # a process that is born meanwhile is met in the next pass
FREEZE_PAUSE_S: Final = 0.01
STOPPED_STATES: Final = "TtZXx"
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Which = Literal["worker", "replica"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProcess:
    """One process of a pod, as this process's own /proc shows it."""

    pid: int  # in our pid namespace
    inner_pid: int  # in its own pid namespace; 1 is the container's first process
    started: int  # kernel ticks since boot; with the pid it names the process for good
    name: str  # as the kernel keeps it, at most 15 characters
    command: tuple[str, ...]
    state: str  # one letter, see proc(5)


def check_pod_uid(uid: str) -> str:
    """Give the uid in lower case. Raises: InvalidArgument for what is none; an empty uid would match every pod."""
    lowered = uid.strip().lower()
    if not _UID.fullmatch(lowered):
        raise InvalidArgument(f"pod uid {uid!r} is none", remedy="use .metadata.uid of the pod")
    return lowered


def cgroup_is_of_pod(cgroup_text: str, uid: str) -> bool:
    """True when a `/proc/<pid>/cgroup` names the pod.

    Args:
        cgroup_text: lines `id:controllers:path`.
        uid: checked by `check_pod_uid`.
    """
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
    for line in cgroup_text.splitlines():
        for part in line.split(":", 2)[-1].split("/"):
            bare = part.removesuffix(".slice")
            if any(bare == name or bare.endswith(f"-{name}") for name in names):
                return True
    return False


def pod_processes(uid: str, proc: Path = PROC) -> list[PodProcess]:
    """Give the pod's processes by pid, the sandbox's own left out."""
    entries = [entry for entry in proc.iterdir() if entry.name.isdecimal()]
    found = [process for entry in entries if (process := _read(entry, uid)) is not None]
    return sorted(found, key=lambda process: process.pid)


def _read(entry: Path, uid: str) -> PodProcess | None:
    """Read one process; None: of another pod, or gone meanwhile."""
    try:
        if not cgroup_is_of_pod((entry / "cgroup").read_text(), uid):
            return None
        name, state, started = parse_stat((entry / "stat").read_text())
        status = (entry / "status").read_text()
        command = (entry / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if name in SANDBOX_NAMES:
        return None
    pids = re.search(r"^NSpid:\s*(.*)$", status, re.MULTILINE)
    inner = int(pids.group(1).split()[-1]) if pids is not None else int(entry.name)
    words = tuple(word.decode(errors="replace") for word in command.rstrip(b"\0").split(b"\0"))
    return PodProcess(pid=int(entry.name), inner_pid=inner, started=started, name=name, command=words, state=state)


def parse_stat(text: str) -> tuple[str, str, int]:
    """Give name, state and start of a `/proc/<pid>/stat`; the name stands in brackets and may hold any of its own."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return head.partition("(")[2], fields[0], int(fields[19])


def pick(processes: Sequence[PodProcess], which: Which) -> list[PodProcess]:
    """Give what a ProcessKill is to kill: the workers, or the first process of each container."""
    if which == "worker":
        return [process for process in processes if not WORKER_MODULES.isdisjoint(process.command)]
    return [process for process in processes if process.inner_pid == 1]


def still_there(process: PodProcess, proc: Path = PROC) -> bool:
    """True while the pid is still that process."""
    try:
        return parse_stat((proc / str(process.pid) / "stat").read_text())[2] == process.started
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(process: PodProcess, number: signal.Signals, proc: Path = PROC) -> bool:
    """Signal a process; False: it is gone. Another process that got its pid is left alone."""
    try:
        handle = os.pidfd_open(process.pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if not still_there(process, proc):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def stop_all(list_processes: Callable[[], list[PodProcess]]) -> list[PodProcess]:
    """Stop every process of a pod, those that are born meanwhile too; gives the stopped ones.

    The kernel lets an ancestor's namespace stop a container's first process, too. Returns when all stand; a process
    in an uninterruptible wait stands when it comes back from it, and is not waited for beyond the last pass.
    """
    stopped: dict[tuple[int, int], PodProcess] = {}
    for _ in range(FREEZE_PASSES_MAX):
        running = [one for one in list_processes() if one.state not in STOPPED_STATES]
        if not running:
            break
        for process in running:
            if send(process, signal.SIGSTOP):
                stopped[process.pid, process.started] = process
        time.sleep(FREEZE_PAUSE_S)
    return sorted(stopped.values(), key=lambda process: process.pid)


def continue_all(processes: Sequence[PodProcess]) -> int:
    """Continue processes; gives how many were still there. Safe to repeat."""
    return sum(send(process, signal.SIGCONT) for process in processes)
