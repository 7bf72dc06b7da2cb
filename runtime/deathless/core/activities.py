"""Activities of a primary: begun once the frame that asked for them is confirmed (I1), their outcomes logged.

    asked for --confirmed--> LATER (back-off) --> READY --a place is free--> RUNNING --ended--> OUTCOME is logged
                        ^                           |                           ^                         |
                        |     at most once: ATTEMPT is logged --confirmed-------'                     confirmed
                        '------------------------------- its place is free ------------------------------'

A function of the log's prefix is only what is pending; what runs is this process's own. So a new primary begins all
that is pending again, at least once. One that must run at most once and has an ATTEMPT record may have begun: nobody
knows, and its outcome is logged as OutcomeUnknown (I7).

Who sees what: an outcome of a worker whose primary is deposed goes into a frame that is never confirmed. An outcome for
an invocation that ended meanwhile is logged and changes nothing.

Guarantees: at most `activities_max` run at a time; the rest wait in the order in which they were asked for (I10). Does
not: run anything, decide what is tried again (the executor does, by a further start). Imports core, codec and base.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from deathless.base.errors import OutcomeUnknown, TooLarge
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import ActivityStart, Attempt, Outcome, Reference, encode_body
from deathless.codec.wire import error_reply
from deathless.core.effects import Effect, StartActivity, StopActivity
from deathless.core.own_records import OwnRecords

Key = tuple[int, int]
"""(invocation, operation)."""


class Activities:
    """What is pending at one primary.

    Args:
        records: takes what is to be logged.
    """

    def __init__(self, *, limits: Limits, safeguards: Safeguards, records: OwnRecords) -> None:
        self._max = limits.activities_max
        self._outcome_bytes_max = limits.message_bytes_max
        self._log_attempts = safeguards.log_attempt_first
        self._records = records
        self._wanted: dict[Key, ActivityStart] = {}  # confirmed, and without an outcome
        self._later: list[tuple[float, Key]] = []  # heap: (seconds of the monotonic clock, key)
        self._ready: deque[Key] = deque()
        self._asked: dict[Key, None] = {}  # whose ATTEMPT record is not confirmed
        self._running: dict[Key, None] = {}  # Invariant: with those asked and ending at most `activities_max`
        self._ending = 0  # ended, and their OUTCOME records are not confirmed: a full disk holds those up

    def begin(self, pending: Sequence[ActivityStart], now: float, wall_us: int) -> list[Effect]:
        """We lead: everything that has no outcome begins again, but for what may have begun and must not twice."""
        for start in pending:
            if start.at_most_once and start.attempted:
                text = "the primary that began it is gone, and it must run at most once"
                self._log(start, error_reply(OutcomeUnknown.code, OutcomeUnknown.__name__, text))
        free = [start for start in pending if not (start.at_most_once and start.attempted)]
        return self.frame_confirmed(free, (), now, wall_us)

    def frame_confirmed(
        self, starts: Sequence[ActivityStart], stops: Sequence[Reference], now: float, wall_us: int
    ) -> list[Effect]:
        """A proof covers a frame whose turns asked for these."""
        for start in starts:
            key = (start.invocation, start.operation)
            self._wanted[key] = start
            if start.not_before_us > wall_us:
                heapq.heappush(self._later, (now + (start.not_before_us - wall_us) / 1e6, key))
            else:
                self._ready.append(key)
        effects: list[Effect] = []
        for reference in stops:
            key = (reference.invocation, reference.operation)
            self._wanted.pop(key, None)
            if key in self._running:
                del self._running[key]
                effects.append(StopActivity(reference))
        return [*effects, *self._fill()]

    def _fill(self) -> list[Effect]:
        """Begin what is ready, while there are free places."""
        effects: list[Effect] = []
        while self._ready and len(self._running) + len(self._asked) + self._ending < self._max:
            key = self._ready.popleft()
            start = self._wanted.get(key)
            if start is None or key in self._running or key in self._asked:
                continue  # stopped meanwhile, or told of twice
            if start.at_most_once and self._log_attempts:
                self._asked[key] = None
                attempt = Attempt(start.invocation, start.operation, start.attempt)
                self._records.add(encode(Kind.ATTEMPT, args=encode_body(attempt)), self._attempted_later(key, start))
            else:
                self._running[key] = None
                effects.append(StartActivity(start))
        return effects

    def _attempted_later(self, key: Key, start: ActivityStart) -> Callable[[], Sequence[Effect]]:
        """What follows from the confirmation of an ATTEMPT record."""

        def attempted() -> Sequence[Effect]:
            del self._asked[key]
            if self._wanted.get(key) is not start:  # stopped meanwhile
                self._ready.append(key)
                return self._fill()
            self._running[key] = None
            return [StartActivity(msgspec.structs.replace(start, attempted=True))]

        return attempted

    def ended(self, invocation: int, operation: int, attempt: int, reply: bytes) -> list[Effect]:
        """An attempt ended; a second end, and one that nobody waits for, changes nothing."""
        key = (invocation, operation)
        start = self._wanted.get(key)
        if key not in self._running or start is None or start.attempt != attempt:
            return []
        del self._running[key], self._wanted[key]
        if len(reply) > self._outcome_bytes_max:
            text = f"the outcome has {len(reply)} bytes, at most {self._outcome_bytes_max}"
            reply = error_reply(TooLarge.code, TooLarge.__name__, text)
        self._ending += 1
        self._log(start, reply, self._outcome_confirmed)
        return []

    def _outcome_confirmed(self) -> Sequence[Effect]:
        """Its place is free now: not before, or outcomes that can't be logged would pile up without a maximum (I10)."""
        self._ending -= 1
        return self._fill()

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

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        assert len(self._running) + len(self._asked) + self._ending <= self._max
        assert self._running.keys() <= self._wanted.keys()
        assert not self._running.keys() & self._asked.keys()
