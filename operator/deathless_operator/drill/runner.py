"""The calls of a drill: several clients that call all the time, from before the fault until after it, and the verdict.

    warming     calls go well for `warm_s` in a row -> the pod becomes Ready, which is how the operator knows
    watching    `observe_s` from then on, and on until calls have gone well for `settle_s`
    finishing   no new calls; each client repeats its last one until it is answered, or its time is over
    judging     what the service holds is read, and compared

A client sends at a steady pace and one call at a time, so the time it waits for an answer is what a person would have
waited. It is impatient: it leaves whoever is silent, so it never hears what a frozen replica says when it wakes.
Witnesses do: each keeps its connection to the primary itself and calls without a pause, so that the fault finds a call
of theirs under way, and waits for its answer as long as calls are sent. How long they wait counts for nothing; what
they are answered must be held like all the rest, and a build without its fence fails that. The runner has no rights on
the cluster and is told nothing: neither when the fault comes nor what it is.

Guarantees: ends by itself at `deadline_s`, with a report; SIGTERM ends it earlier, with a report. Every call that was
sent is in the history. Does not: break anything.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from deathless_operator.drill.front_door import FrontDoor, Try
from deathless_operator.drill.judge import Call, Held, History, Judgement, judge
from deathless_operator.plan.drill.reports import RunnerReport

RETRY_PAUSE_S: Final = 0.025
TICK_S: Final = 0.05
WARM_DEADLINE_S: Final = 90.0
FINISH_S: Final = 10.0  # of the deadline kept for the last answers and for reading
CALLS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a runner calls, and for how long; seconds."""

    clients: int = 4
    witnesses: int = 2  # besides
    per_second: float = 50.0  # of all clients together
    warm_s: float = 5.0
    observe_s: float = 30.0
    settle_s: float = 10.0
    deadline_s: float = 600.0
    call_timeout_s: float = 30.0  # a call that has no answer by then is given up, and counts as not answered
    unavailable_max_s: float = 5.0
    warm_deadline_s: float = WARM_DEADLINE_S


@dataclass(slots=True)
class Runner:
    """One run's calls.

    Args:
        door: what is called.
        pace: how.
        clock: seconds that never step.
        told: called once, when warm.
    """

    door: FrontDoor
    pace: Pace
    clock: Callable[[], float] = time.monotonic
    told: Callable[[], None] = lambda: None
    warm_at: float | None = None
    _calls: list[Call] = field(default_factory=list)
    _waiting: dict[int, float] = field(default_factory=dict)  # client -> when its open call was first sent
    _answered: set[int] = field(default_factory=set)  # clients that had an answer
    _bad_at: float = 0.0  # when a try failed last
    _problem: str = ""  # of that try
    _refused: str = ""
    _stalled_s: float = 0.0
    _stopping: bool = False  # no new calls
    _patience: dict[int, asyncio.Timeout] = field(default_factory=dict)  # of the tries of witnesses
    _ended_at: float = 0.0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _terminated: bool = False

    def terminate(self) -> None:
        """End now, with what there is."""
        self._terminated = True
        self._stop()
        self._ended.set()

    async def run(self) -> History:
        """Call, and give the history."""
        began = self._bad_at = self.clock()
        hard = began + self.pace.deadline_s
        numbers = itertools.count()
        clients = [asyncio.create_task(self._client(index, numbers, hard)) for index in range(self._count)]
        try:
            await self._watch(began, hard - FINISH_S)
            self._stop()
            if self.warm_at is not None and not self._terminated:
                await asyncio.wait(clients, timeout=max(0.0, hard - FINISH_S / 2 - self.clock()))
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        self._ended_at = self.clock()
        held = await self._read(hard)
        return History(
            calls=self._calls,
            held=held,
            warm_at=self.warm_at,
            ended=self._ended_at,
            refused=self._refused,
            stalled_s=round(self._stalled_s, 3),
            terminated=self._terminated,
            problem=self._problem,
        )

    @property
    def _count(self) -> int:
        return self.pace.clients + self.pace.witnesses

    def _stop(self) -> None:
        """No new calls, and no more patience."""
        self._stopping = True
        for patience in self._patience.values():
            if not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

    async def _watch(self, began: float, until: float) -> None:
        """Return when the calls should end."""
        expected = self.clock() + TICK_S
        while not (self._ended.is_set() or self._refused):
            now = self.clock()
            self._stalled_s = max(self._stalled_s, now - expected) if self.warm_at is not None else 0.0
            expected = now + TICK_S
            calm_s = now - max([self._bad_at, *(at for at in self._waiting.values() if now - at > TICK_S * 10)])
            if self.warm_at is None:
                if calm_s >= self.pace.warm_s and len(self._answered) == self._count:
                    self.warm_at = now
                    self.told()
                elif now - began > self.pace.warm_deadline_s:
                    return
            elif now - self.warm_at >= self.pace.observe_s and calm_s >= self.pace.settle_s:
                return
            if now >= until or len(self._calls) >= CALLS_MAX:
                return
            await asyncio.sleep(TICK_S)

    async def _client(self, index: int, numbers: itertools.count[int], hard: float) -> None:
        witness = index >= self.pace.clients
        pause = 0.0 if witness else self.pace.clients / self.pace.per_second
        due = self.clock() + pause * index / self._count
        while not self._stopping:
            await asyncio.sleep(max(0.0, due - self.clock()))
            if self._is_stopping():
                return
            await self._call(index, next(numbers), hard, witness=witness)
            due = max(due + pause, self.clock())

    def _is_stopping(self) -> bool:
        """It may have become so while a client slept."""
        return self._stopping

    async def _call(self, index: int, number: int, hard: float, *, witness: bool) -> None:
        """Send one call until it is answered or given up; it is in the history however this ends."""
        sent = self.clock()
        until = hard if witness else min(hard, sent + self.pace.call_timeout_s)
        if not witness:
            self._waiting[index] = sent
        attempts, answered = 0, None
        try:
            while answered is None and not self._refused and self.clock() < until:
                attempts += 1
                patient = witness and not self._stopping
                outcome = await (self._wait(index, number, hard) if patient else self.door.call(index, number))
                if outcome.answered:
                    answered = self.clock()
                    self._answered.add(index)
                    break
                self._problem = outcome.refused or outcome.problem
                if not witness:
                    self._bad_at = self.clock()
                self._refused = outcome.refused
                await asyncio.sleep(RETRY_PAUSE_S)
        finally:
            self._waiting.pop(index, None)
            gave_up = self.clock() if answered is None else None
            attempts = max(1, attempts)
            call = Call(
                number=number, sent=sent, answered=answered, attempts=attempts, gave_up=gave_up, witness=witness
            )
            self._calls.append(call)

    async def _wait(self, index: int, number: int, hard: float) -> Try:
        """Send a witness's call once, and wait for its answer until calls stop."""
        patience_s = max(0.0, hard - self.clock())
        try:
            async with asyncio.timeout(patience_s) as self._patience[index]:
                return await self.door.call(index, number, patience_s)
        except TimeoutError:
            return Try(problem="no answer while calls were sent")
        finally:
            del self._patience[index]

    async def _read(self, hard: float) -> Held | None:
        """Read what the service holds; it may need a moment yet."""
        hurried = self._terminated or self.warm_at is None
        until = self.clock() + FINISH_S / 5 if hurried else max(hard, self.clock() + FINISH_S / 2)
        while True:
            found = await self.door.read()
            if isinstance(found, Held):
                return found
            self._problem = found
            if self.clock() >= until:
                return None
            await asyncio.sleep(RETRY_PAUSE_S * 4)


def report(run: str, history: History, judgement: Judgement, offset_s: float, began: float) -> RunnerReport:
    """Put a judgement into words for the operator.

    Args:
        run: the run's mark.
        history: what was judged.
        judgement: its result.
        offset_s: what makes wall seconds of the history's clock.
        began: when the runner began, its clock.
    """

    def wall(at: float | None) -> float:
        return 0.0 if at is None else round(at + offset_s, 3)

    return RunnerReport(
        run=run,
        verdict=judgement.verdict,
        reason=judgement.reason,
        message=judgement.message,
        began_at=wall(began),
        warm_at=wall(history.warm_at),
        ended_at=wall(history.ended),
        unavailable_seconds=judgement.unavailable_seconds,
        unavailable_from=wall(judgement.unavailable_from),
        calls=judgement.calls,
        answered=judgement.answered,
        lost=judgement.lost,
        doubled=judgement.doubled,
        attempts=judgement.attempts,
    )


async def run_and_judge(run: str, runner: Runner, wall: Callable[[], float] = time.time) -> RunnerReport:
    """Call, judge, and give the report."""
    began = runner.clock()
    offset_s = wall() - began
    history = await runner.run()
    return report(run, history, judge(history, runner.pace.unavailable_max_s), offset_s, began)
