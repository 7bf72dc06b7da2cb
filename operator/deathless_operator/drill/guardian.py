"""A process that undoes a fault when the one that caused it cannot.

It is forked before the fault begins and waits for one of three things: the word that all is undone, the end of its
parent (the pipe closes, whatever killed it), or the deadline. In the last two it undoes the fault itself.

A container's runtime kills everything in the container's cgroup when the container's first process dies, and the
kubelet kills what is left in the pod's. So the guardian leaves both cgroups before anything is done: through
`/proc/1/root`, the node's own view, which a privileged pod with `hostPID` may enter. Where that is refused it says so,
and the agent does not begin a fault that only a guardian could undo.

Guarantees: after `Guardian.start` returned, `undo` is called at the latest at the deadline unless `Guardian.release`
came first, although the parent may be killed with -9. Does not: survive the loss of the node, which undoes stopped
processes and filters by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

NODE_ROOT: Final = Path("/proc/1/root")
OWN_ROOT: Final = Path("/")
UNDO_TRIES_MAX: Final = 5
UNDO_PAUSE_S: Final = 0.2
END_S: Final = 2.0  # a guardian that is let go has nothing more to do
_RELEASED: Final = b"r"
_READY: Final = b"1"
_STUCK: Final = b"0"


def leave_cgroups(node_root: Path = NODE_ROOT) -> bool:
    """Move this process to the root of every cgroup hierarchy of the node; False: it may still be in a container's.

    Version 2 has one hierarchy, version 1 one per folder below `/sys/fs/cgroup`; a node may have both. Where the
    node's own view may not be entered, ours will do if it reaches beyond the group we are in.
    """
    found = _move_to_roots(node_root)
    if found is not None or node_root != NODE_ROOT:
        return found is True
    before = _own_groups()
    return _move_to_roots(OWN_ROOT) is True and _own_groups() != before


def _own_groups() -> str:
    return Path("/proc/self/cgroup").read_text()


def _move_to_roots(root: Path) -> bool | None:
    """Move; None: there is nothing below that root, or it may not be entered."""
    top = root / "sys/fs/cgroup"
    try:
        single = (top / "cgroup.procs").exists()
        folders = [top] if single else sorted(top.iterdir())
    except OSError:
        return None
    moved, refused = 0, 0
    for folder in folders:
        if not (folder / "cgroup.procs").exists():
            continue
        try:
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            moved += 1
        except OSError:
            refused += 1
    return moved > 0 and refused == 0


class Guardian:
    """The parent's end of a guardian.

    Args:
        undo: what the child calls; it must be safe to repeat and must need nothing of the parent.
        deadline_s: when, from the start on, whether the parent lives or not.
        node_root: where the node's file system is seen.
    """

    def __init__(self, undo: Callable[[], None], deadline_s: float, node_root: Path = NODE_ROOT) -> None:
        self._undo = undo
        self._deadline_s = deadline_s
        self._node_root = node_root
        self._pipe = -1
        self.pid = 0
        self.outside = False  # it left the container's cgroups: it outlives the container, too

    def start(self) -> None:
        """Fork; returns when the child stands guard."""
        until = time.monotonic() + self._deadline_s
        read_end, self._pipe = os.pipe()
        told_end, tell_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            os.close(told_end)
            self._watch(read_end, tell_end, until)
        os.close(read_end)
        os.close(tell_end)
        try:
            # It writes to cgroups alone before it answers, which no storage is behind; the end of it is an answer, too.
            self.outside = os.read(told_end, 1) == _READY
        finally:
            os.close(told_end)

    def release(self) -> None:
        """The fault is undone: let the child go, and wait END_S for its end at most. Safe to repeat."""
        if self._pipe < 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, _RELEASED)
        os.close(self._pipe)
        self._pipe = -1
        with contextlib.suppress(OSError):  # somebody else has taken its exit code, or no descriptor is left
            self._wait()

    def _wait(self) -> None:
        """Take its exit code; one that is undoing just now (its deadline came), or hangs in the kernel, is left."""
        descriptor = os.pidfd_open(self.pid)
        try:
            if select.select([descriptor], [], [], END_S)[0]:
                os.waitpid(self.pid, 0)
            else:
                sys.stderr.write(f"guardian: process {self.pid} has not ended after {END_S:g} s; it is left\n")
        finally:
            os.close(descriptor)

    def _watch(self, read_end: int, tell_end: int, until: float) -> NoReturn:
        """The child: never returns to the parent's code, whatever happens."""
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
            outside = leave_cgroups(self._node_root)
            os.write(tell_end, _READY if outside else _STUCK)
            os.close(tell_end)
            if self._parent_released(read_end, until):
                os._exit(0)
            self._undo_for_certain()
            os._exit(0)
        finally:
            os._exit(1)

    @staticmethod
    def _parent_released(read_end: int, until: float) -> bool:
        while (left := until - time.monotonic()) > 0:
            readable, _, _ = select.select([read_end], [], [], left)
            if readable:
                return os.read(read_end, 1) == _RELEASED
        return False

    def _undo_for_certain(self) -> None:
        for _ in range(UNDO_TRIES_MAX):
            try:
                self._undo()
            except Exception as error:  # noqa: BLE001 - whatever failed, the next try is all there is to do
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"guardian: {error}\n")
                time.sleep(UNDO_PAUSE_S)
            else:
                return
