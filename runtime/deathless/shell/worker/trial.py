"""Runs the messages of a frame in a copy of the worker, which may die of them instead of it (I11).

The copy is a fork: it has the state as it stands, and nothing it does to its memory is seen here. The worker waits for
its end, for `core.primary.suspicion` asks for this only where a message has ended a process before. The page in which
the message being run is written down is shared, so it names the culprit after the copy's death.

Guarantees: the state here stays as it is; a copy that takes longer than `max_s` is killed and has died in what it was
running, and one that hangs in the kernel even then is left, and names no message. Does not: keep a handler's effects on
the outside world from happening twice, as a replay does not either.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Callable
from typing import Final, NoReturn

from deathless.base.limits import END_S
from deathless.execution.turn.running import Running
from deathless.shell.link.status_page import Page
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.reaping import end_child, reap

_LOG: Final = logging.getLogger("deathless.trial")
OOM: Final = "/proc/self/oom_score_adj"  # where memory is short, a copy goes first
_exit: Final = os._exit  # also in a turn, where what others get to see of it is guarded
TRIAL_SHARE: Final = 0.8  # of `turn_max_s`: before the supervisor ends the worker that waits
END_SHARE: Final = 0.125  # of a trial's time, and END_S at most: its end has so long on top, and fits likewise


def try_out(work: Callable[[], object], page: Page, max_s: float) -> Running | None:
    """Run `work` in a copy; give the message in which the copy died. None: it survived, or nobody can tell.

    Args:
        work: runs a frame.
        page: the worker's own; nothing is being run.
        max_s: seconds.
    """
    assert page.running is not None
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        _LOG.warning("can't make a copy of the process", extra={"why": str(error)})
        return None
    if pid == 0:
        _be_copy(work, parent)
    status = reap(pid, max_s)
    if status is None:
        status = end_child(pid, min(END_S, END_SHARE * max_s))  # None again: it hangs in the kernel
    killer = page.read_running() if status else None
    page.running.leave()
    if status and killer is not None:
        extra = {"session": killer.session, "seq": killer.seq, "exit_code": os.waitstatus_to_exitcode(status)}
        _LOG.warning("a message ends the process that runs it and is set aside", extra=extra)
    return killer


def _be_copy(work: Callable[[], object], parent: int) -> NoReturn:
    """Never returns: a copy must not come into its parent's loop. It says nothing: what survives says it again."""
    code = 1
    try:
        die_with_parent(parent)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError), open(OOM, "w") as file:
            file.write("1000")
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        work()
        code = 0
    except BaseException:  # noqa: BLE001, S110  it has died of it: the page says in which message
        pass
    _exit(code)
