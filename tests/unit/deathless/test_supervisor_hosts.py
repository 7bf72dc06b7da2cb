"""One life of a replica through both hosts of the supervisor's machine, real processes and the simulation: one trace.

The worker is the same story told twice: it dies in a message, ends in order, refuses for good, is restarted by an
operator, fenced, let go, and stopped. What the supervisor does and what it tells the others must be the same, word for
word; only how often the same is told again, and what a worker's page counts, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.unit.deathless.shell.supervisor_bench import TICKING, ScriptedSupervisor, supervised, until

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.core.supervisor.detection import WorkerState
from deathless.core.supervisor.effects import (
    CloseLine,
    Effect,
    Exit,
    KillWorker,
    LeaveWord,
    StartWorker,
    Tell,
    TellPeers,
)
from deathless.core.supervisor.events import Begun, Fenced, RestartOrdered
from deathless.core.supervisor.records import RoleIs, Stop, Stopping, ToSupervisor, ToWorker
from deathless.simulation.nodes.supervisor_node import Host, SupervisorNode
from deathless.simulation.world.page import Page
from deathless.simulation.world.scheduler import Scheduler

GOLDEN = Path(__file__).parents[2] / "golden" / "supervisor_trace.jsonl"

LIVES = f"""
if count == 0:
    role("recovering"); role("standby")
    page[2] = 0; page[1] = 8; page[0] = 5
    os._exit(9)
if count == 1:
    role("standby"); stopping("DL2001"); os._exit(76)
if count == 2:
    role("standby"); stopping("DL4001"); os._exit(65)
{TICKING.format(told='[stopping(""), os._exit(0)]')}
"""
"""The story, for a worker that is a process."""


class Trace:
    """What a supervisor does, in order, and what it tells the others each time that changed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, effect: Effect) -> None:
        """Take one effect in."""
        match effect:
            case TellPeers(report):
                if report.state == WorkerState.DEAD and report.role not in ("dead", "fenced", "starting"):
                    return  # its last words are awaited: how long is the kernel's affair
                told = (report.state, report.role, report.problem, report.condition, report.deaths, report.successor)
                line = msgspec.json.encode(told).decode()
                if line not in self.lines[-1:]:
                    self.lines.append(line)
            case StartWorker() | KillWorker() | CloseLine() | LeaveWord() | Exit() | Tell(Stop()):
                self.lines.append(msgspec.json.encode(effect).decode())


def check(trace: Trace) -> None:
    """Compare a trace with the recorded one."""
    assert "\n".join(trace.lines) + "\n" == GOLDEN.read_text()


def test_story_as_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, do = Trace(), ScriptedSupervisor._do

    def note(supervisor: ScriptedSupervisor, effect: Effect) -> None:
        trace.note(effect)
        do(supervisor, effect)

    monkeypatch.setattr(ScriptedSupervisor, "_do", note)

    async def look(supervisor: ScriptedSupervisor) -> None:
        report = supervisor.report
        await until(lambda: report.condition == "DL4001")
        supervisor._take(RestartOrdered())
        await until(lambda: report.role == "standby" and not report.condition)
        supervisor._take(Fenced(True))
        await until(lambda: report.role == "fenced")
        supervisor._take(Fenced(False))
        await until(lambda: report.role == "standby")

    supervised(tmp_path, LIVES, look)
    check(trace)


class Stage:
    """A simulated machine whose worker is a list of what it says and does; the supervisor on it is the simulation's."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)
        self.trace = Trace()
        self.supervisor = self.scheduler.process("r0.sup", "r0", lambda *_: None)
        self.worker = self.scheduler.process("r0", "r0", self._exited)
        self.page: Page | None = None
        self.lives: Iterator[Callable[[int], None]] = iter([self._dies_in_a_message, self._ends, self._refuses])
        self.host = SimpleNamespace(
            name="r0",
            limits=Limits(),
            safeguards=ALL_SAFEGUARDS,
            worker=self.worker,
            supervisor=self.supervisor,
            page=None,
            clock=SimpleNamespace(steady_us=lambda: self.scheduler.now_us),
            door=lambda _: None,
            members=dict,
            note=lambda _: None,
            withdraw=lambda: None,
            start_worker=self.start_worker,
            tell_worker=self.tell_worker,
        )
        self.node = SupervisorNode(cast("Host", self.host))
        do = self.node._dispatch._do

        def note(effect: Effect) -> None:
            self.trace.note(effect)
            do(effect)

        self.node._dispatch._do = note

    def start_worker(self) -> int:
        """See supervisor_node.Host."""
        self.host.page = Page()
        self.worker.start(lambda: None)
        life = self.worker.generation
        script = next(self.lives, lambda life: self.say(life, RoleIs("standby", 0, "", 0)))
        self.worker.call_later(1000, lambda: script(life))
        return life

    def tell_worker(self, record: ToWorker) -> None:
        """See supervisor_node.Host."""
        if record == Stop():
            life = self.worker.generation
            self.worker.post(lambda: self._stops(life, ""))

    def say(self, life: int, record: ToSupervisor) -> None:
        """The worker says something."""
        self.scheduler.call_later(30, lambda: self.supervisor.post(lambda: self.node.worker_said(life, record)))

    def _exited(self, process: object, error: BaseException | None) -> None:
        assert error is None
        life = self.worker.generation
        self.supervisor.post(self.node.worker_ended)
        self.scheduler.call_later(60, lambda: self.supervisor.post(lambda: self.node.line_ended(life)))

    def _stops(self, life: int, code: str) -> None:
        self.say(life, Stopping(code, f"{code} so"))
        self.worker.call_later(100, self.worker.kill)

    def _dies_in_a_message(self, life: int) -> None:
        self.say(life, RoleIs("recovering", 0, "", 0))
        self.say(life, RoleIs("standby", 0, "", 0))
        assert self.host.page is not None
        self.host.page.running.enter(5, 8)
        self.worker.call_later(1000, self.worker.kill)

    def _ends(self, life: int) -> None:
        self.say(life, RoleIs("standby", 0, "", 0))
        self._stops(life, "DL2001")

    def _refuses(self, life: int) -> None:
        self.say(life, RoleIs("standby", 0, "", 0))
        self._stops(life, "DL4001")

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass."""
        for _ in range(10_000):
            if condition():
                return
            self.scheduler.run_until(self.scheduler.now_us + 1000)
        raise AssertionError(self.trace.lines)


def test_story_in_the_simulation() -> None:
    stage = Stage()
    node, report = stage.node, stage.node.report

    def begin() -> None:
        node._take(Begun("r0:3"))
        node._beat()

    stage.supervisor.start(begin)
    stage.until(lambda: report.condition == "DL4001")
    stage.supervisor.post(lambda: node._take(RestartOrdered()))
    stage.until(lambda: report.role == "standby" and not report.condition)
    stage.supervisor.post(lambda: node.fence(True))
    stage.until(lambda: report.role == "fenced")
    stage.supervisor.post(lambda: node.fence(False))
    stage.until(lambda: report.role == "standby")
    stage.supervisor.post(node.order_stop)
    stage.until(lambda: not stage.supervisor.alive)
    check(stage.trace)
