"""Work in a forked child: it shares the state's pages with the worker as they stood, and nothing else.

Why fork: a checkpoint needs a copy of all state at one moment; the kernel's copy-on-write gives it for the price of the
page tables, so the primary does not pause (I9). The worker is single-threaded, so a fork is whole. The child closes
every descriptor but the standard ones first: a socket or lock kept open by a child would outlive its worker.

Guarantees: `done` is called once in the loop with the child's success. Does not: let the child return to the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; called in a child."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Children:
    """Forked helpers of one process.

    Args:
        loop: told of each child's end.
        in_child: called in the child first (to have it die with its parent).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, in_child: Callable[[], None]) -> None:
        self._loop = loop
        self._in_child = in_child
        self._pids: set[int] = set()

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """Fork; the child calls `work` and ends; then `done` with what it gave. Raises OSError when fork fails."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._in_child()
                os.closerange(3, 1 << 16)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                code = 0 if work() else 1
            except BaseException:  # noqa: BLE001  a child must never return into the parent's loop
                traceback.print_exc(file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(code)
        self._pids.add(pid)
        descriptor = os.pidfd_open(pid)
        self._loop.add_reader(descriptor, self._ended, pid, descriptor, done)

    def _ended(self, pid: int, descriptor: int, done: Callable[[bool], None]) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        self._pids.discard(pid)
        done(os.waitstatus_to_exitcode(status) == 0)
