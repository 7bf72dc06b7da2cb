"""What `deathless demo` breaks, and how long the service was away as its clients saw it.

    kill        kill -9 of a replica's worker; its supervisor lives and says so at once
    kill-all    kill -9 of worker and supervisor; only silence tells
    freeze      SIGSTOP of both for ten seconds; then the old primary wakes up and must not do harm
    switchover  planned: the primary hands its role over

Guarantees: only processes that this demo's replicas announced are touched. Does not: judge (cli.demo.load does).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from deathless.base.errors import DeathlessError
from deathless.cli.change.switchover import switch
from deathless.shell.operate.status import ReplicaView, ServiceView, look
from deathless.shell.operate.target import Target

FREEZE_S = 10.0
SETTLE_S = 2.0  # an incident is over when answers have come for so long
WORDS = {
    "kill": "kill -9 of the {role}",
    "kill-all": "kill -9 of the {role} and its supervisor",
    "freeze": "SIGSTOP of the {role} for ten seconds",
    "switchover": "planned switchover",
}


@dataclass(slots=True)
class Incident:
    """One thing that was broken."""

    words: str  # what was done
    role: str  # of the replica it was done to
    replica: str
    at: float  # monotonic seconds
    epoch: int  # before
    gap_s: float = 0.0  # longest time between two answers since
    over: bool = False
    problem: str = ""

    @property
    def line(self) -> str:
        """As people read it."""
        if self.problem:
            return f"{self.words} ({self.replica}): {self.problem}"
        return f"{self.words} ({self.replica}): {self.gap_s:.2f} s without service"


class Faults:
    """Breaks replicas of one service and keeps the incidents.

    Args:
        tell: gets a line for each thing that is done.
    """

    def __init__(self, found: Target, tell: Callable[[str], None]) -> None:
        self.incidents: list[Incident] = []
        self.found = found
        self.last_answer = time.monotonic()
        self._tell = tell
        self._frozen: set[int] = set()

    def answered(self, now: float) -> None:
        """An answer came: how long did clients wait for one?"""
        gap = now - self.last_answer
        self.last_answer = now
        for incident in self.incidents[-4:]:
            if not incident.over:
                incident.gap_s = max(incident.gap_s, gap)
                incident.over = now - incident.at > SETTLE_S

    async def look(self) -> ServiceView:
        """How the replicas are now."""
        return await look(self.found.directory, self.found.access)

    async def do(self, kind: str, role: str) -> Incident | None:
        """Break the replica that has a role now. None: no replica has it."""
        view = await self.look()
        victim = next((one for one in view.replicas if one.role == role and one.state == "running"), None)
        if victim is None or not victim.worker_pid:
            self._tell(f"there is no {role} now")
            return None
        incident = Incident(WORDS[kind].format(role=role), role, victim.replica, time.monotonic(), view.epoch)
        self.incidents.append(incident)
        self._tell(f"{incident.words}: {victim.replica}")
        if kind == "freeze":
            await self._freeze(victim)
        elif kind == "switchover":
            await self._switch(incident)
        else:
            if kind == "kill-all":
                _send(victim.supervisor_pid, signal.SIGKILL)
            _send(victim.worker_pid, signal.SIGKILL)
        return incident

    async def _freeze(self, victim: ReplicaView) -> None:
        pids = {victim.supervisor_pid, victim.worker_pid}
        self._frozen |= pids
        for pid in (victim.supervisor_pid, victim.worker_pid):
            _send(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(FREEZE_S)
        finally:
            for pid in pids:
                _send(pid, signal.SIGCONT)
            self._frozen -= pids
        self._tell(f"{victim.replica} goes on after {FREEZE_S:g} s")

    async def _switch(self, incident: Incident) -> None:
        try:
            _, after, _ = await switch(self.found, "", 15.0)
            self._tell(f"{after.primary} is primary now, epoch {after.epoch}")
        except DeathlessError as error:
            incident.problem = f"refused: {error.message}"
            self._tell(incident.line)

    def thaw(self) -> None:
        """Let everything go on that was frozen, at the end."""
        for pid in self._frozen:
            _send(pid, signal.SIGCONT)
        self._frozen.clear()

    async def wait_whole(self, replicas: int, wait_s: float) -> ServiceView | None:
        """Wait until all replicas have a role again and answers come; gives the view, None when that takes too long."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            view = await self.look()
            now = time.monotonic()
            settled = not self.incidents or now - self.incidents[-1].at > SETTLE_S
            if is_whole(view, replicas) and settled and now - self.last_answer < 0.5:
                return view
            await asyncio.sleep(0.1)
        return None


def is_whole(view: ServiceView, replicas: int) -> bool:
    """All replicas run, one is primary, one checkpointer."""
    roles = sorted(one.role for one in view.replicas if one.state == "running")
    usual = ["checkpointer", "primary", "standby"]
    return view.serving and len(roles) == replicas and (replicas != len(usual) or roles == usual)


def _send(pid: int, number: signal.Signals) -> None:
    if pid > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
