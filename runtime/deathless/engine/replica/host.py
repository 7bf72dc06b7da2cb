"""The loop around an engine: events go in, what they led to is done, and the next one comes in time.

    packets --> intake --schedule_flush--> drained --> engine
    events  --> post ---------------------------------> engine --> after: the timer, and a refused switchover

Shell and simulation give it their loop; which of the two it is makes no difference to what is done.

Guarantees: whatever was posted, a timer stands for the engine's next deadline. Does not: IO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from deathless.core import events as ev
from deathless.engine.replica.intake import Intake
from deathless.engine.replica.replica_engine import ReplicaEngine


class Cancellable(Protocol):
    """What `Loop.call_later` gives."""

    def cancel(self) -> object:
        """Have it not called."""
        ...


class Loop(Protocol):
    """An event loop."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call once what stands ready was called."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Cancellable:
        """Call after so many seconds, never before."""
        ...


class EngineHost:
    """Of one engine, which it is given with `begin`.

    Args:
        loop: where it runs.
        refused: told of a switchover that was refused: connection, request, why.
    """

    def __init__(self, loop: Loop, refused: Callable[[ev.Conn, int, str], None]) -> None:
        self.engine: ReplicaEngine
        self.intake: Intake
        self._loop = loop
        self._refused = refused
        self._flushing = False
        self._timer: Cancellable | None = None
        self._timer_at = float("inf")

    def begin(self) -> None:
        """Begin; engine and intake were given."""
        self.engine.begin()
        self._set_timer()

    def post(self, event: ev.Event) -> None:
        """Give the engine an event."""
        self.engine.post(event)
        self.after()

    def after(self) -> None:
        """Something was posted: have the timer stand right, and tell of a switchover that was refused."""
        primary = self.engine.core.primary
        if primary is not None and primary.switchover_failed is not None:
            refused = primary.switchover_failed
            primary.switchover_failed = None
            self._refused(*refused)
        self._set_timer()

    def schedule_flush(self) -> None:
        """Packets came in: tell the engine once every readable socket was read."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self.intake.drained()
        self.after()

    def _set_timer(self) -> None:
        """Have a timer that fires at the deadline or before: a deadline that keeps moving out re-arms nothing."""
        deadline = self.engine.deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._loop.now()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer_at = float("inf")
        self._timer = None
        deadline = self.engine.deadline()
        if deadline is not None and deadline <= self._loop.now():
            self.post(ev.TimerFired())
        else:
            self._set_timer()
