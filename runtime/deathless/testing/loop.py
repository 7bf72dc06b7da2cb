"""Logical time, and the order in which things happen in an environment: one at a time, in one thread.

    post    what is due now, in the order in which it was posted
    at      what is due later, by time, then in the order in which it was asked for

Time stands still while anything is due now. It moves only when somebody says so (`move_to`), so nothing ever waits for
a real clock. A `Life` is one life of a process: what was posted for one that has ended is dropped, and `Killed`, raised
anywhere in what it does, ends it.

Guarantees: the same program gives the same order. Does not: know what a service is. Imports execution and core.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from deathless.core.tables.logical_time import Anchor
from deathless.execution.values.failure import ProcessEnds

FIRST_PHASE: Final = 0.25  # of a microsecond: seconds, cut to microseconds again, give the one that they were made of
NEXT_PHASE: Final = 0.05
LAST_PHASE: Final = 0.9


class Killed(ProcessEnds):
    """Raised in a process at the point at which it is killed; not an Exception, so nothing handles it."""


class Life:
    """One life of a process.

    Args:
        name: for people.
        ended: told once it was killed, with the error that ended it where it was none of ours.
    """

    __slots__ = ("alive", "ended", "name")

    def __init__(self, name: str, ended: Callable[[BaseException | None], None]) -> None:
        self.name = name
        self.ended = ended
        self.alive = True

    def __repr__(self) -> str:
        return f"Life({self.name}, {'alive' if self.alive else 'dead'})"


class Timer:
    """What stands in the heap of a loop."""

    __slots__ = ("callback", "life")

    def __init__(self, life: Life | None, callback: Callable[[], object]) -> None:
        self.life = life
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Have it not called."""
        self.callback = None


class Loop:
    """Of one environment.

    Args:
        wall_us: what every clock on a wall shows at the beginning, microseconds since 1970.
    """

    def __init__(self, wall_us: int) -> None:
        self.now_us = 0  # since the beginning
        self._began_us = wall_us
        self._phase = FIRST_PHASE  # how far the present microsecond has come; see `later_in_it`
        self._ready: deque[tuple[Life | None, Callable[[], object]]] = deque()
        self._timers: list[tuple[int, int, Timer]] = []
        self._count = 0

    @property
    def wall_us(self) -> int:
        """Microseconds since 1970 UTC."""
        return self._began_us + self.now_us

    def seconds(self) -> float:
        """Give the time as a monotonic clock shows it."""
        return (self.now_us + self._phase) / 1e6

    def later_in_it(self) -> None:
        """Come a little later in the present microsecond.

        A deadline is a sum of seconds, which is rounded. What is due in a microsecond is so within it, whichever way.
        """
        self._phase = min(self._phase + NEXT_PHASE, LAST_PHASE)

    def us_until(self, seconds: float) -> int:
        """Give in how many microseconds something is due that is so in these seconds; 0: in the present one."""
        us = seconds * 1e6
        return max(0, math.ceil(us) if self._phase >= LAST_PHASE else round(us))

    def post(self, callback: Callable[[], object], life: Life | None = None) -> None:
        """Have something done now, behind what is due already."""
        self._ready.append((life, callback))

    def at(self, us: int, callback: Callable[[], object], life: Life | None = None) -> Timer:
        """Have something done at a time, microseconds since the beginning; at once where that has come."""
        self._count += 1
        timer = Timer(life, callback)
        heapq.heappush(self._timers, (max(us, self.now_us), self._count, timer))
        return timer

    def step(self) -> bool:
        """Do the next thing that is due now. False: there is none."""
        if not self._ready:
            return False
        life, callback = self._ready.popleft()
        self.run(callback, life)
        return True

    def run(self, callback: Callable[[], object], life: Life | None) -> None:
        """Do something as a process, if it lives."""
        if life is None:
            callback()
        elif life.alive:
            try:
                callback()
            except Killed:
                self.end(life, None)
            except Exception as error:  # noqa: BLE001  whatever it is, the one who runs the process hears of it
                self.end(life, error)

    def end(self, life: Life, error: BaseException | None) -> None:
        """End a process: nothing that was posted for it is done any more."""
        if life.alive:
            life.alive = False
            life.ended(error)

    def next_us(self) -> int | None:
        """When something is due later; None: never."""
        while self._timers:
            us, _, timer = self._timers[0]
            if timer.callback is not None and (timer.life is None or timer.life.alive):
                return us
            heapq.heappop(self._timers)
        return None

    def move_to(self, us: int) -> None:
        """Let time pass, and post what is due then; nothing may be due before."""
        assert not self._ready, "time moves once nothing is due now"
        assert us >= self.now_us, "time does not go back"
        if us > self.now_us:
            self.now_us, self._phase = us, FIRST_PHASE
        while self._timers and self._timers[0][0] <= us:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                self.post(timer.callback, timer.life)


class Clock:
    """The clocks of one machine; they agree, and nobody sets them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._anchor: Anchor | None = None
        self.now = loop.seconds

    def wall_us(self) -> int:
        """See engine.replica.outside.Clock."""
        return self._loop.wall_us

    def boot_us(self) -> int:
        """See Clock there."""
        return self._loop.now_us

    def anchor(self) -> Anchor | None:
        """See Clock there."""
        return self._anchor

    def note_anchor(self, anchor: Anchor) -> None:
        """See Clock there."""
        self._anchor = anchor
