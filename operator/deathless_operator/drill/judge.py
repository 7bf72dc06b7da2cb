"""What a history of probe calls says: was anything lost or doubled, and how long had a client to wait.

Every call of a run bears a number of its own, and is repeated under its idempotency key until it is answered, or given
up after the time that a call may take. The
service's built-in handler keeps which numbers were applied, and how often one came a second time. Read at the end, that
is compared with what was answered: a number that was answered and is not held is lost. One that was never answered may
be held or not.

Guarantees: lost and doubled are exact, number by number, so none hides behind another; durations come from a clock that
never steps. Losing or doubling is Failed whatever else happened. Pure: a function of its arguments. Does not: know
which fault there was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

MESSAGE_MAX: Final = 600
STALL_S: Final = 0.5  # a runner that stood still for longer says nothing about how long the service did

Verdict = Literal["Passed", "Failed", "Aborted", "Inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one client, all its attempts together."""

    number: int  # from 0, each once
    sent: float  # when it was first sent, seconds of a clock that never steps
    answered: float | None = None  # when its answer came; None: it never came
    attempts: int = 1
    gave_up: float | None = None  # when its client stopped asking; None: it was answered, or asked to the end
    witness: bool = False  # its client waits on purpose: for how long says nothing


class Held(msgspec.Struct, frozen=True):
    """What the service holds of a run, as it answers `deathless.probe.read`; what else it says is passed over."""

    ranges: list[tuple[int, int]] = []  # (first, last) of numbers applied, ascending, both ends within
    doubled_count: int = 0  # calls whose number had been applied before

    def has(self, number: int) -> bool:
        """True when the number was applied."""
        at = bisect_right(self.ranges, number, key=lambda found: found[0]) - 1
        return at >= 0 and number <= self.ranges[at][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a runner saw."""

    calls: Sequence[Call]
    held: Held | None  # read after the last answer; None: could not be read
    warm_at: float | None  # since then the fault may come; None: never warm
    ended: float  # when sending ended
    refused: str = ""  # an answer that no retry changes, in the service's words; empty: none
    stalled_s: float = 0.0  # longest time in which the runner itself stood still
    terminated: bool = False  # ended from outside
    problem: str = ""  # why the last try that failed did


class Judgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict, and what it stands on."""

    verdict: Verdict
    reason: str  # CamelCase, for machines
    message: str  # for people
    unavailable_seconds: float = 0.0  # longest wait of a client for the answer to one call, once warm
    unavailable_from: float | None = None  # when that call was sent, same clock as the history
    calls: int = 0
    answered: int = 0
    lost: int = 0
    doubled: int = 0
    attempts: int = 0


def judge(history: History, unavailable_max_s: float) -> Judgement:
    """Judge a history.

    Args:
        history: see there.
        unavailable_max_s: a longer wait fails the drill.
    """
    lost, doubled = count_lost_and_doubled(history)
    waited, since = longest_wait(history)
    verdict, reason, message = _verdict(history, lost, doubled, waited, unavailable_max_s)
    return Judgement(
        verdict=verdict,
        reason=reason,
        message=message[:MESSAGE_MAX],
        unavailable_seconds=round(waited, 3),
        unavailable_from=since,
        calls=len(history.calls),
        answered=sum(call.answered is not None for call in history.calls),
        lost=lost,
        doubled=doubled,
        attempts=sum(call.attempts for call in history.calls),
    )


def count_lost_and_doubled(history: History) -> tuple[int, int]:
    """Give how many answered calls are not held, and how many were applied again."""
    held = history.held
    if held is None:
        return 0, 0
    return sum(call.answered is not None and not held.has(call.number) for call in history.calls), held.doubled_count


def longest_wait(history: History) -> tuple[float, float | None]:
    """Give the longest time a client waited for an answer once warm, and when that wait began."""
    worst, since = 0.0, None
    answers = sorted(call.answered for call in history.calls if call.answered is not None)
    for call in history.calls:
        until = call.answered
        if until is None:
            # Giving up ends no outage: it lasts until somebody is answered again.
            after = bisect_right(answers, history.ended if call.gave_up is None else call.gave_up)
            until = answers[after] if after < len(answers) else history.ended
        if call.witness or history.warm_at is None or until <= history.warm_at:
            continue
        if until - call.sent > worst:
            worst, since = until - call.sent, call.sent
    return worst, since


def _verdict(
    history: History, lost: int, doubled: int, waited: float, unavailable_max_s: float
) -> tuple[Verdict, str, str]:
    """The first line that holds, worst first."""
    if lost or doubled:
        reason = "LostAndDoubled" if lost and doubled else "Lost" if lost else "Doubled"
        return "Failed", reason, f"{lost} answered calls are lost, {doubled} were applied again"
    if any(call.answered is not None and call.answered < call.sent for call in history.calls):
        return "Inconclusive", "BadHistory", "a call was answered before it was sent: the runner's clock is broken"
    if history.warm_at is None:
        told = history.refused or history.problem or "no calls succeeded long enough"
        return "Aborted", "NotWarm", f"the fault was not begun, for the service did not answer well before it: {told}"
    if history.refused:
        return "Failed", "Refused", f"a call was refused for good: {history.refused}"
    if history.terminated:
        return "Aborted", "Terminated", "the runner was ended from outside before it had seen the end"
    unanswered = sum(call.answered is None for call in history.calls)
    if unanswered:
        return "Failed", "NotRecovered", f"{unanswered} calls had no answer in their time: {history.problem}"
    if waited > unavailable_max_s and history.stalled_s >= STALL_S:
        return (
            "Inconclusive",
            "RunnerStalled",
            f"a client waited {waited:.2f} s, but the runner itself stood still for {history.stalled_s:.2f} s",
        )
    if waited > unavailable_max_s:
        return "Failed", "Unavailable", f"a client waited {waited:.2f} s, more than {unavailable_max_s:g} s"
    if history.held is None or not history.calls:
        return "Inconclusive", "NotRead", f"what the service holds could not be read at the end: {history.problem}"
    return "Passed", "NothingLost", f"nothing lost, nothing doubled; the longest wait was {waited:.2f} s"
