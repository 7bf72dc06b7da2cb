"""The loop around an engine: packets of one turn make one flush, and a timer stands for the next deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from deathless.core import events as ev
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.replica_engine import ReplicaEngine


class Engine:
    """Keeps what it is told; its deadline is set by the test."""

    class core:  # noqa: N801  an attribute of the engine
        primary: object = None

    def __init__(self) -> None:
        self.posted: list[ev.Event] = []
        self.at: float | None = None

    def begin(self) -> None:
        self.at = 5.0

    def post(self, event: ev.Event) -> None:
        self.posted.append(event)

    def deadline(self) -> float | None:
        return self.at


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback, self.cancelled = at, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose time the test moves."""

    def __init__(self) -> None:
        self.time = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.time + seconds, callback))
        return self.timers[-1]

    def fire(self) -> None:
        """Let the timer that stands fire."""
        [timer] = [each for each in self.timers if not each.cancelled]
        self.timers.clear()
        self.time = max(self.time, timer.at)
        timer.callback()


class Drained:
    def __init__(self) -> None:
        self.times = 0

    def drained(self) -> None:
        self.times += 1


def hosted() -> tuple[EngineHost, Engine, Loop, Drained, list[tuple[int, int, str]]]:
    loop, engine, intake = Loop(), Engine(), Drained()
    refused: list[tuple[int, int, str]] = []
    host = EngineHost(loop, lambda *told: refused.append(told))
    host.engine, host.intake = cast("ReplicaEngine", engine), cast("Intake", intake)
    return host, engine, loop, intake, refused


def test_timer_stands_for_the_deadline_and_fires_at_it() -> None:
    host, engine, loop, _, _ = hosted()
    host.begin()
    assert [each.at for each in loop.timers] == [5.0]
    loop.fire()
    assert engine.posted == [ev.TimerFired()]


def test_deadline_that_moves_out_re_arms_nothing_and_one_that_comes_nearer_does() -> None:
    host, engine, loop, _, _ = hosted()
    host.begin()
    engine.at = 9.0
    host.after()
    assert [each.at for each in loop.timers] == [5.0]
    loop.fire()
    assert engine.posted == [], "it fired before the deadline: nothing is told"
    assert [each.at for each in loop.timers] == [9.0]
    engine.at = 6.0
    host.after()
    assert [(each.at, each.cancelled) for each in loop.timers] == [(9.0, True), (6.0, False)]


def test_packets_of_one_turn_of_the_loop_are_one_flush() -> None:
    host, _, loop, intake, _ = hosted()
    host.schedule_flush()
    host.schedule_flush()
    [flush] = loop.soon
    flush()
    assert intake.times == 1
    host.schedule_flush()
    assert len(loop.soon) == 2


def test_switchover_that_is_refused_is_told_once() -> None:
    host, engine, _, _, refused = hosted()

    class Primary:
        switchover_failed: tuple[ev.Conn, int, str] | None = (ev.Conn(7), 3, "nobody follows")

    engine.core.primary = Primary()
    try:
        host.post(ev.StopOrdered())
        host.post(ev.StopOrdered())
    finally:
        engine.core.primary = None
    assert refused == [(7, 3, "nobody follows")]
    assert engine.posted == [ev.StopOrdered(), ev.StopOrdered()]
