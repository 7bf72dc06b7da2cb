"""The agent of a pipeline: keeps one Spark driver ready, and has it drive when the pipeline's service says so.

    service <--report(warm)-- agent --Order--> driver
            --Assignment-->         <--Fact---

An agent is a small process that never computes, so it reports in time however busy its machine and its driver are.
When its driver ends by itself, it says so at once, and another agent's driver goes on; when another agent was assigned,
it kills its driver, with Java and all that belongs to it, and starts a new one, which warms up and waits. An agent that
can't reach the service lets its driver be: what that decides is decided by the service alone.

Guarantees: nothing here is needed for rows to be exact. Does not: know Spark, or anything of queries. Imports
pipelines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from types import FrameType
from typing import Final, Self

from deathless.base.backoff import pause_after
from deathless.base.errors import DeathlessError
from deathless.base.pipelines.agents import AgentStatus, Role
from deathless.pipelines.assignment import Assignment
from deathless.pipelines.client import PipelineClient
from deathless.spark.line import Ended, Fact, Line, Order

REPORT_S: Final = 0.25
UNANSWERED_S: Final = 5.0  # a report without an answer for so long is told
AGAIN_S: Final = 1.0  # before a driver that ended by itself is started again
AGAIN_MAX_S: Final = 60.0
_LOG: Final = logging.getLogger("deathless.agent")


class DriverProcess:
    """One driver, in a process group of its own, with a folder that goes with it.

    Args:
        command: that starts it; `--control` with a descriptor and `--folder` are added.
    """

    def __init__(self, command: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        self._folder = tempfile.mkdtemp(prefix="deathless-driver-")
        self._line = Line(ours, Fact)
        self.warm = False
        self.number = 0  # under which it drives
        self.decided = 0  # batches
        self.ui = ""  # address of Spark's pages, once they are there
        with theirs:
            self._process = subprocess.Popen(
                [*command, "--control", str(theirs.fileno()), "--folder", self._folder],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def drive(self, number: int) -> None:
        """Have it drive; that it has ended is seen by the next `look`."""
        self.number = number
        with contextlib.suppress(Ended):
            self._line.send(Order(number))

    def look(self, wait_s: float) -> bool:
        """Take in what it tells within so many seconds; False: it has ended."""
        try:
            facts = self._line.receive(wait_s)
        except Ended:
            return False
        for fact in facts:
            self.warm = self.warm or fact.warm
            self.decided += fact.decided
            self.ui = fact.ui or self.ui
        return True

    def kill(self) -> None:
        """End it, and Java with it; what it started in groups of its own ends with Java."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._line.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Agent:
    """Reports, and has a driver do what the service says; use it as a context manager.

    Args:
        client: of the pipeline's service.
        name: unique among the agents.
        command: that starts a driver.
        tell: told what happens, and the number of the driver that it happens to; 0: it has none.
    """

    def __init__(
        self,
        client: PipelineClient,
        name: str,
        command: Sequence[str],
        tell: Callable[[str, int], object] = lambda _event, _number: None,
    ) -> None:
        self.name = name
        self._tell = tell
        self._client = client
        self._command = command
        self._driver: DriverProcess | None = None
        self._deaths = 0
        self._start_at = 0.0
        self._asked: Future[Assignment] | None = None  # a report that was not answered yet
        self._asked_at = 0.0
        self._trouble = ""  # what was told last of reports and of the pipeline; empty: all is well

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def status(self) -> AgentStatus:
        """What people are shown of it."""
        driver = self._driver
        if driver is None:
            return AgentStatus(pid=os.getpid(), agent=self.name, role="starting")
        role: Role = "driver" if driver.number else "warm" if driver.warm else "starting"
        return AgentStatus(
            pid=os.getpid(),
            agent=self.name,
            role=role,
            number=driver.number,
            driver_pid=driver.pid,
            ui=driver.ui,
        )

    def run(self, each_step: Callable[[], object] = lambda: None) -> None:
        """Work until SIGTERM or SIGINT.

        Args:
            each_step: called after each one.
        """
        ending = False

        def end(_number: int, _frame: FrameType | None) -> None:
            nonlocal ending
            ending = True

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        while not ending:
            self.step(REPORT_S)
            each_step()

    def step(self, wait_s: float) -> None:
        """Look at the driver until the last report is so old, then report, and wait for the answer for as long.

        Answers that are slow make no report later: the silence of who drives is counted in reports of those that wait.
        """
        driver = self._driver
        rest_s = min(wait_s, max(0.0, self._asked_at + wait_s - time.monotonic()))
        if driver is None:
            if time.monotonic() >= self._start_at:
                self._driver = DriverProcess(self._command)
                self._tell("starting", 0)
            else:
                time.sleep(rest_s)
        else:
            was_warm = driver.warm
            if not driver.look(rest_s):
                self._ended(driver)
            elif driver.warm and not was_warm:
                self._tell("ready", driver.number)
        self._report(wait_s)

    def _ended(self, driver: DriverProcess) -> None:
        """Say that the driver has ended by itself, and start another one after a pause."""
        driver.kill()
        self._driver = None
        self._deaths = 0 if driver.decided else self._deaths + 1
        self._start_at = time.monotonic() + pause_after(self._deaths, first_s=AGAIN_S, most_s=AGAIN_MAX_S)
        self._tell("ended", driver.number)
        if driver.number:
            self._resign(driver, ordered=False)

    def _resign(self, driver: DriverProcess, *, ordered: bool) -> None:
        """Tell the service. If it does not hear it, this agent goes on under the number with its next driver."""
        try:
            progressed = bool(driver.decided)
            self._client.resign(self.name, driver.number, progressed=progressed, ordered=ordered)
        except DeathlessError as error:
            self._said(f"the pipeline's service was not told that a driver has ended: {error}")

    def _report(self, wait_s: float) -> None:
        """Report, unless the last report has no answer yet: reports that pile up would count as so many at once."""
        if self._asked is None:
            driver = self._driver
            self._asked = self._client.report(self.name, warm=driver is not None and driver.warm)
            self._asked_at = time.monotonic()
        wait([self._asked], wait_s)
        if not self._asked.done():
            if time.monotonic() - self._asked_at > UNANSWERED_S:
                self._said("the pipeline's service does not answer")
            return
        asked, self._asked = self._asked, None
        try:
            assigned = asked.result()
        except DeathlessError as error:
            self._said(f"the pipeline's service refuses reports: {error}")
            return
        self._said(assigned.failed)
        self._follow(assigned)

    def _follow(self, assigned: Assignment) -> None:
        """Have the driver do what the service has decided."""
        driver = self._driver
        if driver is None:
            return
        if assigned.drives and not driver.number:
            driver.drive(assigned.number)
            self._tell("drives", driver.number)
        elif driver.number and not (assigned.drives and assigned.number == driver.number):
            self._tell("replaced", driver.number)
            driver.kill()
            self._driver = None
            self._start_at = 0.0

    def _said(self, trouble: str) -> None:
        """Say once what is wrong."""
        if trouble and trouble != self._trouble:
            _LOG.warning(trouble)
        self._trouble = trouble

    def close(self) -> None:
        """End the driver, and say so."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.kill()
            if driver.number:
                self._resign(driver, ordered=True)


def agent_name() -> str:
    """Give a name that no other agent has: host, process, and six digits of chance."""
    return f"{socket.gethostname()[:30]}.{os.getpid()}.{secrets.token_hex(3)}"


def driver_command(module: str, manifest: str, directory: str, conf: Sequence[str], trigger: str) -> list[str]:
    """Give the command that starts a driver of the pipeline that is found so (see `find_target`)."""
    command = [sys.executable, "-m", "deathless.spark.driver", module, "--manifest", manifest]
    command += ["--directory", directory, "--trigger", trigger]
    for each in conf:
        command += ["--conf", each]
    return command
