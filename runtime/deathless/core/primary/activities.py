"""Activities of a primary: begun once the frame that asked for them is confirmed (I1), their outcomes logged.

    asked for --confirmed--> LATER (back-off) --> READY --a place is free--> RUNNING --ended--> OUTCOME is logged
                        ^                           |                           ^                         |
                        |     at most once: ATTEMPT is logged --confirmed-------'                     confirmed
                        '------------------------------- its place is free ------------------------------'

A function of the log's prefix is only what is pending; what runs is this process's own. So a new primary begins all
that is pending again, at least once. One that must run at most once and has an ATTEMPT record may have begun: nobody
knows, and its outcome is logged as OutcomeUnknown (I7).

One that must run at most once is HELD between READY and its ATTEMPT until a process is free for it: with an attempt in
the log and no process it would only be one more that a takeover gives up. While its primary lets go
(core.primary.handover) all of them are held, and so the successor begins them; or we do, when we stay after all. What
is `under_way` is waited for.

Who sees what: an outcome of a worker whose primary is deposed goes into a frame that is never confirmed. An outcome for
an invocation that ended meanwhile is logged and changes nothing.

Guarantees: at most `activities_max` run at a time, and as many as there are processes of those that must run at most
once; the rest wait in the order in which they were asked for, but that others pass those that are held (I10). Does not:
run anything, decide what is tried again (the executor does, by a further start). Imports core, codec and base.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from deathless.base.errors import NotRetryable, OutcomeUnknown, TooLarge
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import ActivityStart, Attempt, Outcome, Reference, encode_body
from deathless.codec.wire import error_reply
from deathless.core.effects import Effect, StartActivity, StopActivity
from deathless.core.primary.own_records import OwnRecords

Key = tuple[int, int]
"""(invocation, operation)."""


class Activities:
    """What is pending at one primary.

    Args:
        records: takes what is to be logged.
        processes: how many run activities; None: enough for all that may run.
    """

    def __init__(
        self, *, limits: Limits, safeguards: Safeguards, records: OwnRecords, processes: int | None = None
    ) -> None:
        self._max = limits.activities_max
        self._processes = limits.activities_max if processes is None else processes
        self._outcome_bytes_max = limits.message_bytes_max
        self._log_attempts = safeguards.log_attempt_first
        self._records = records
        self._wanted: dict[Key, ActivityStart] = {}  # confirmed, and without an outcome
        self._later: list[tuple[float, Key]] = []  # heap: (seconds of the monotonic clock, key)
        self._ready: deque[Key] = deque()
        self._held: deque[Key] = deque()  # must run at most once, and would begin if they might
        self.holding = False  # we let go: none of these begins
        self._asked: dict[Key, None] = {}  # whose ATTEMPT record is not confirmed
        self._running: dict[Key, None] = {}  # Invariant: with those asked and ending at most `activities_max`
        self._running_once = 0  # of them, those that must run at most once. Invariant: with those asked, `processes`
        self._ending = 0  # ended, and their OUTCOME records are not confirmed: a full disk holds those up
        self._ending_once = 0  # of them, those that must run at most once

    def begin(self, pending: Sequence[ActivityStart], now: float, elapsed_us: int) -> list[Effect]:
        """We lead: everything that has no outcome begins again, but for what may have begun and must not twice."""
        for start in pending:
            if start.at_most_once and start.attempted:
                text = "the primary that began it is gone, and it must run at most once"
                self._log(start, error_reply(OutcomeUnknown.code, OutcomeUnknown.__name__, text))
        free = [start for start in pending if not (start.at_most_once and start.attempted)]
        return self.frame_confirmed(free, (), now, elapsed_us)

    def frame_confirmed(
        self, starts: Sequence[ActivityStart], stops: Sequence[Reference], now: float, elapsed_us: int
    ) -> list[Effect]:
        """A proof covers a frame whose turns asked for these."""
        for start in starts:
            key = (start.invocation, start.operation)
            self._wanted[key] = start
            if start.not_before_us > elapsed_us:
                heapq.heappush(self._later, (now + (start.not_before_us - elapsed_us) / 1e6, key))
            else:
                self._ready.append(key)
        effects: list[Effect] = []
        for reference in stops:
            key = (reference.invocation, reference.operation)
            if key in self._running:
                self._free(key)
                effects.append(StopActivity(reference))
            self._wanted.pop(key, None)
        return [*effects, *self._fill()]

    def _next(self) -> Key | None:
        """Give what may begin next; None: nothing, or there is no place for it."""
        if len(self._running) + len(self._asked) + self._ending >= self._max:
            return None
        if self._held and self._once_may_begin:
            return self._held.popleft()
        return self._ready.popleft() if self._ready else None

    @property
    def _once_may_begin(self) -> bool:
        return not self.holding and self._running_once + len(self._asked) < self._processes

    def _fill(self) -> list[Effect]:
        """Begin what is ready, while there are free places."""
        effects: list[Effect] = []
        while (key := self._next()) is not None:
            start = self._wanted.get(key)
            if start is None or key in self._running or key in self._asked:
                continue  # stopped meanwhile, or told of twice
            if start.at_most_once and not self._once_may_begin:
                self._held.append(key)
            elif start.at_most_once and self._log_attempts:
                self._asked[key] = None
                attempt = Attempt(start.invocation, start.operation, start.attempt)
                self._records.add(encode(Kind.ATTEMPT, args=encode_body(attempt)), self._attempted_later(key, start))
            else:
                effects.append(self._run(key, start))
        return effects

    def _run(self, key: Key, start: ActivityStart) -> Effect:
        self._running[key] = None
        self._running_once += start.at_most_once
        return StartActivity(start)

    def _free(self, key: Key) -> None:
        """It runs no more; it is still wanted."""
        del self._running[key]
        self._running_once -= self._wanted[key].at_most_once

    def _attempted_later(self, key: Key, start: ActivityStart) -> Callable[[], Sequence[Effect]]:
        """What follows from the confirmation of an ATTEMPT record."""

        def attempted() -> Sequence[Effect]:
            del self._asked[key]
            if self._wanted.get(key) is not start:  # stopped meanwhile
                self._ready.append(key)
                return self._fill()
            return [self._run(key, msgspec.structs.replace(start, attempted=True))]

        return attempted

    def ended(self, invocation: int, operation: int, attempt: int, reply: bytes) -> list[Effect]:
        """An attempt ended; a second end, and one that nobody waits for, changes nothing."""
        key = (invocation, operation)
        start = self._wanted.get(key)
        if key not in self._running or start is None or start.attempt != attempt:
            return []
        self._free(key)
        del self._wanted[key]
        if len(reply) > self._outcome_bytes_max:
            text = f"the outcome has {len(reply)} bytes, at most {self._outcome_bytes_max}"
            reply = error_reply(NotRetryable.code, TooLarge.__name__, text)
        once = int(start.at_most_once)
        self._ending += 1
        self._ending_once += once

        def confirmed() -> Sequence[Effect]:
            # Its place is free now: not before, or outcomes that can't be logged would pile up without a maximum (I10).
            self._ending -= 1
            self._ending_once -= once
            return self._fill()

        self._log(start, reply, confirmed)
        return self._fill() if once else []  # a process is free: the next attempt goes along with the outcome

    def hold(self, holding: bool) -> list[Effect]:
        """Begin none that must run at most once from now on; or go on with those that were held, for we stay."""
        released = self.holding and not holding
        self.holding = holding
        return self._fill() if released else []

    def _log(self, start: ActivityStart, reply: bytes, then: Callable[[], Sequence[Effect]] | None = None) -> None:
        outcome = Outcome(start.invocation, start.operation, start.attempt, reply)
        self._records.add(encode(Kind.OUTCOME, args=encode_body(outcome)), then)

    def timer_fired(self, now: float) -> list[Effect]:
        """Begin what has waited long enough."""
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[1])
        return self._fill()

    def deadline(self) -> float | None:
        """When timer_fired is due."""
        return self._later[0][0] if self._later else None

    @property
    def running(self) -> int:
        """Count of activities that run."""
        return len(self._running)

    @property
    def under_way(self) -> int:
        """Count of those that must run at most once and would be given up with this primary: they may have begun, or
        will once their attempt is confirmed, and their outcome is not confirmed.
        """
        return self._running_once + len(self._asked) + self._ending_once

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        assert len(self._running) + len(self._asked) + self._ending <= self._max
        assert self._running.keys() <= self._wanted.keys()
        assert not self._running.keys() & self._asked.keys()
        assert self._running_once == sum(self._wanted[key].at_most_once for key in self._running)
        assert self._running_once + len(self._asked) <= self._processes
        assert 0 <= self._ending_once <= self._ending
