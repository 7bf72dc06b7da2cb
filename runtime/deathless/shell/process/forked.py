"""Work in a forked child: it shares the state's pages with the worker as they stood, and nothing else.

Why fork: a checkpoint needs a copy of all state at one moment; the kernel's copy-on-write gives it for the price of the
page tables, so the primary does not pause (I9). The worker is single-threaded, so a fork is whole. The child closes
every descriptor first, but the standard ones and those that it is to read from: a socket or lock kept open by a child
would outlive its worker.

Guarantees: `done` is called once, in the loop, with the child's success; a fork that is refused is a child that
failed, and so is one that takes longer than it may: it is killed, and not waited for, since storage that hangs keeps
it even from dying. Does not: let the child return to the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from deathless.shell.process.reaping import end_child

PR_SET_PDEATHSIG: Final = 1
NICE: Final = 10  # a helper gives way to handlers
_LOG: Final = logging.getLogger("deathless.children")
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int = 0) -> None:
    """Have the kernel kill this process when its parent dies; called in a child, before it does anything else.

    Args:
        parent: the parent's pid, where it may have died already before this call; 0: not looked at.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class Children:
    """Forked helpers of one process.

    Args:
        loop: told of each child's end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waited: dict[int, Callable[[bool], None]] = {}  # by pid: whom to tell of its end

    def run(
        self,
        work: Callable[[], bool],
        done: Callable[[bool], None],
        *,
        max_s: float,
        keep: Sequence[int] = (),
        gives_way: bool = True,
    ) -> None:
        """Fork; the child calls `work` and ends; then `done` with what it gave, True meaning success.

        Args:
            work: what the child does.
            done: told in the loop.
            max_s: a child that takes longer, seconds, is killed and has failed.
            keep: descriptors that stay open in the child.
            gives_way: handlers go before it; False: its work is what callers wait for.
        """
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _LOG.warning("can't start a helper process", extra={"why": str(error)})
            self._loop.call_soon(done, False)
            return
        if pid == 0:
            _be_child(work, parent, keep, NICE if gives_way else 0)
        try:
            descriptor = os.pidfd_open(pid)
        except OSError as error:  # no descriptor left: nobody would tell us of its end
            _LOG.warning("can't start a helper process", extra={"why": str(error)})
            end_child(pid)
            self._loop.call_soon(done, False)
            return
        self._waited[pid] = done
        timer = self._loop.call_later(max_s, self._overdue, pid, max_s)
        self._loop.add_reader(descriptor, self._ended, pid, descriptor, timer)

    def _ended(self, pid: int, descriptor: int, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)  # its descriptor told that it has ended: this does not wait
        done = self._waited.pop(pid, None)
        if done is not None:
            done(os.waitstatus_to_exitcode(status) == 0)

    def _overdue(self, pid: int, max_s: float) -> None:
        """Its descriptor stays watched, so that it is reaped whenever it comes to its end."""
        _LOG.error("a helper process hangs and is killed", extra={"pid": pid, "after_s": max_s})
        done = self._waited.pop(pid)
        os.kill(pid, signal.SIGKILL)
        done(False)


def _be_child(work: Callable[[], bool], parent: int, keep: Sequence[int], nice: int) -> None:
    """Never returns: a child must not come into its parent's loop."""
    code = 1
    try:
        die_with_parent(parent)
        os.nice(nice)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        start = 3
        for descriptor in sorted(keep):
            os.closerange(start, descriptor)
            start = descriptor + 1
        os.closerange(start, os.sysconf("SC_OPEN_MAX"))
        code = 0 if work() else 1
    except BaseException:  # noqa: BLE001  as the docstring says
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)
