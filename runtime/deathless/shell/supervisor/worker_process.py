"""The worker as a process: started with a fresh page and one end of a socket pair, watched, ended.

    supervisor --(socket pair: orders, roles)--> worker
        '-----(page: ticks, message run)----'

Guarantees: what a former worker said is never told as the present one's. Does not: decide when to start or end it
(`core.supervisor.machine` does); wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from deathless.base.config import ReplicaConfig
from deathless.core.supervisor.events import (
    Event,
    LineEnded,
    LineOpened,
    MessageId,
    PageRead,
    WorkerExited,
    WorkerSaid,
    WorkerSuspended,
)
from deathless.core.supervisor.records import ToSupervisor, ToWorker
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.status_page import (
    CALLS,
    LOCK_ANSWERS,
    LSN,
    SLOWEST,
    STORAGE,
    TICKS,
    UNPROVED,
    UPSTREAM,
    Page,
    open_page,
)

HUGE_PAGES: Final = "glibc.malloc.hugetlb=1"
"""State in few large pages: a fork for a checkpoint copies a short table."""


class Change(NamedTuple):
    """What has become of a child."""

    exit_code: int | None  # None: it has not ended
    suspended: bool  # a signal stopped it


class WorkerProcess:
    """The worker of one replica, whichever life of it.

    Args:
        config: the replica's.
        tell: takes what happens to it.
    """

    def __init__(self, config: ReplicaConfig, tell: Callable[[Event], None]) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.page: Page | None = None
        self.line: LineProtocol | None = None
        self._config = config
        self._tell = tell
        self._attaching: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """Process id; 0: none runs."""
        return self.process.pid if self.process is not None else 0

    def open_page(self, *, fresh: bool = True) -> Page:
        """Open the page, for the next worker to write. Raises: as `open_page`."""
        config = self._config
        self.page = open_page(config.directory, config.replica, instance=config.instance, fresh=fresh)
        return self.page

    def start(self, command: Callable[[int], list[str]], environment: dict[str, str]) -> None:
        """Start one.

        Args:
            command: given the descriptor of its end of the socket pair.
            environment: of the process.

        Raises: OSError: the page can't be opened, or no process be made.
        """
        self.open_page()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            descriptor = theirs.fileno()
            self.process = subprocess.Popen(
                command(descriptor),
                pass_fds=(descriptor,),
                env={"GLIBC_TUNABLES": HUGE_PAGES, **environment},
                stdin=subprocess.DEVNULL,
            )
            stack.pop_all()
        line = LineProtocol(ToSupervisor, lambda record: self.said(line, record), lambda: self._ended(line))
        self.line = line
        task = asyncio.get_running_loop().create_task(self._attach(line, ours))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _attach(self, line: LineProtocol, ours: socket.socket) -> None:
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        if line is self.line and line.open:
            self._tell(LineOpened())

    def said(self, line: LineProtocol, record: object) -> None:
        """Take what came on a line; of a former worker's nothing is told."""
        if line is self.line:
            self._tell(WorkerSaid(record))  # type: ignore[arg-type]  # the line decodes this union alone

    def _ended(self, line: LineProtocol) -> None:
        if line is self.line:
            self._tell(LineEnded())

    def send(self, record: ToWorker) -> None:
        """Tell it; lost when it does not hear any more."""
        if self.line is not None:
            self.line.send(record)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()

    def close_line(self) -> None:
        """Everything it said was told."""
        line, self.line = self.line, None
        if line is not None:
            line.close()

    def look(self) -> None:
        """SIGCHLD: tell what has become of it."""
        for change in changes_of(self.process):
            if change.exit_code is None:
                self._tell(WorkerSuspended(change.suspended))
            else:
                self.process = None
                self._tell(WorkerExited(change.exit_code, self.take_running()))

    def take_running(self) -> MessageId | None:
        """Give the message that stands in the page of a worker that is gone; once, since a death counts once."""
        if self.page is None or (running := self.page.read_running()) is None:
            return None
        self.page.clear()  # without the storage
        return running

    def read(self) -> PageRead | None:
        """What the page shows just now; None: there is none yet."""
        page = self.page
        if page is None:
            return None
        cells, running = page.cells, page.read_running()
        heard_ns = cells[UPSTREAM]
        return PageRead(
            running=running,
            ticks=cells[TICKS],
            calls=cells[CALLS],
            lsn=cells[LSN],
            full=page.full,
            outbox_full=page.outbox_full,
            clock=page.clock,
            unproved_s=cells[UNPROVED] / 1000,
            slowest_ms=cells[SLOWEST],
            storage=cells[STORAGE],
            upstream_age_s=(time.monotonic_ns() - heard_ns) / 1e9 if heard_ns else float("inf"),
            lock_answers_s=cells[LOCK_ANSWERS] / 1000,
        )


def changes_of(process: subprocess.Popen[bytes] | None) -> Iterator[Change]:
    """Give what has become of a child since it was asked last; its end is the last, and is given once."""
    while process is not None:
        # A kill looks whether it runs, and may have found that it does not.
        pid, status = (process.pid, 0) if process.returncode is not None else _wait(process.pid)
        if pid == 0:
            return
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            yield Change(None, suspended=os.WIFSTOPPED(status))
            continue
        if process.returncode is None:
            process.returncode = os.waitstatus_to_exitcode(status)
        yield Change(process.returncode, suspended=False)
        return


def _wait(pid: int) -> tuple[int, int]:
    """Give its process id and a wait status; 0: nothing has become of it."""
    try:
        return os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
    except ChildProcessError:  # somebody else took note of its end
        return pid, 0
