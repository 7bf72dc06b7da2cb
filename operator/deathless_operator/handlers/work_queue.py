"""Keys of objects that have to be looked at: each at most once in the queue, and by one worker at a time.

    add(key)                      waiting -> ready when its time comes; a second `add` before that changes nothing, or
                                  makes it earlier
    get() -> key                  ready -> in work
    add(key) while it is in work  noted, and waits for its time when `done`: nothing that happened meanwhile is missed
    done(key, again_in_s=...)     out of work; waits again, or leaves
    failed(key)                   as done, again after 0.25, 0.5, 1, ... `BACKOFF_MAX_S` seconds until `done` forgets it

Guarantees: an event costs one entry however often it repeats, so memory is bounded by the objects there are. A key
that fails does not hold up another. Does not: know what a key means, or start workers.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from dataclasses import dataclass, field

from deathless.base.backoff import pause_after

BACKOFF_FIRST_S = 0.25
BACKOFF_MAX_S = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(slots=True)
class WorkQueue:
    """The queue; belongs to one event loop."""

    _due: dict[Key, float] = field(default_factory=dict)  # waiting: key -> loop time
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)  # of `_due`, with stale entries
    _busy: dict[Key, float] = field(default_factory=dict)  # in work since, loop time
    _again: dict[Key, float] = field(default_factory=dict)  # in work, added meanwhile: key -> loop time when due
    _failures: dict[Key, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _closed: bool = False

    def add(self, key: Key, *, delay_s: float = 0.0) -> None:
        """Have `key` looked at after `delay_s` seconds, or earlier where it already waits for less."""
        if self._closed:
            return
        due = self._now() + delay_s
        if key in self._busy:
            self._again[key] = min(due, self._again.get(key, due))
        else:
            self._schedule(key, due)

    def _schedule(self, key: Key, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._changed.set()

    async def get(self) -> Key | None:
        """Wait for a key that is due and take it into work; None when the queue is closed."""
        while not self._closed:
            wait = self._skip_stale()
            if wait is not None and wait <= 0:
                _, _, key = heapq.heappop(self._heap)
                del self._due[key]
                self._busy[key] = self._now()
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def _skip_stale(self) -> float | None:
        """Drop entries that were made earlier or taken; gives the seconds until the first one is due, None without."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] - self._now() if self._heap else None

    def done(self, key: Key, *, again_in_s: float | None = None) -> None:
        """Take `key` out of work; look again after `again_in_s` seconds, None: when it is added."""
        self._failures.pop(key, None)
        self._leave(key, again_in_s)

    def failed(self, key: Key) -> float:
        """Take `key` out of work and have it tried again later; gives the seconds until then."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        pause = pause_after(count, first_s=BACKOFF_FIRST_S, most_s=BACKOFF_MAX_S)
        # What was added meanwhile waits as well: an object that cannot be served must not be tried in a circle.
        self._again.pop(key, None)
        self._leave(key, pause)
        return pause

    def _leave(self, key: Key, again_in_s: float | None) -> None:
        del self._busy[key]
        again_at = self._again.pop(key, None)
        if self._closed:
            return
        if again_at is not None:
            self._schedule(key, again_at)
        if again_in_s is not None:
            self._schedule(key, self._now() + again_in_s)

    def close(self) -> None:
        """Give out no more keys; who waits gets None."""
        self._closed = True
        self._changed.set()

    @property
    def depth(self) -> int:
        """How many keys are due and wait for a worker."""
        now = self._now()
        return sum(due <= now for due in self._due.values())

    @property
    def busy(self) -> int:
        """How many keys are in work."""
        return len(self._busy)

    def longest_s(self) -> float:
        """Seconds for which the key that has been in work longest has been so; 0 when none is."""
        return max((self._now() - since for since in self._busy.values()), default=0.0)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
