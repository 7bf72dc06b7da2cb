"""What a drill's runs have cost its service's callers: kept apart from its history, which forgets runs by their number.

    cost of a run           how long a client waited for an answer at most; of a run without its runner's word, that was
                            ended after its fault, all the time from then on
    a share of the window   runs that ended in it are one entry: their costs together, and when the last of them ended

Guarantees: what was spent within the window is never counted too low, however many runs there were and whatever
history keeps; an entry counts until its last run has left the window, so too long by less than one share of it. There
are never more entries than SPENT_MAX. A status of before such entries counts by its history. Pure.
Does not: say what may begin (`guard` does).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deathless_operator.model.drill import SPENT_MAX, DrillRun, DrillSpent, DrillStatus
from deathless_operator.plan.service.reading import read_time

SHARES: Final = SPENT_MAX - 2
"""Of the window, which touches one more of them; and one entry for what a broken clock dated ahead."""


def cost_of(run: DrillRun) -> DrillSpent | None:
    """Give what a run that is over has cost; None where it cost nothing."""
    seconds = run.unavailable_seconds
    if seconds is None:
        broken, over = read_time(run.fault_time), read_time(run.completion_time)
        seconds = max(0.0, over - broken) if broken is not None and over is not None else 0.0
    return DrillSpent(until=run.completion_time, seconds=seconds) if seconds > 0 else None


def costs_of(status: DrillStatus) -> tuple[DrillSpent, ...]:
    """Give what was spent, the latest first; a status that an earlier version wrote has its history alone."""
    return status.spent or tuple(cost for run in status.history if (cost := cost_of(run)) is not None)


def spent_in_window(status: DrillStatus, now: float, window_s: float) -> float:
    """Give what runs have cost within the window, seconds."""
    return sum(cost.seconds for cost in costs_of(status) if _ended(cost) >= now - window_s)


def with_cost(status: DrillStatus, run: DrillRun, now: float, window_s: float | None) -> tuple[DrillSpent, ...]:
    """Give what was spent once a run is over: what has left the window is forgotten.

    Args:
        status: of before.
        run: the one that is over.
        now: wall seconds.
        window_s: how far back the budget looks, seconds; None where the spec can't be read: nothing is forgotten.
    """
    cost = cost_of(run)
    found = [cost] if cost is not None else []
    if window_s is None:
        return _shared((*found, *costs_of(status)), share_s=1.0)
    return _shared((one for one in (*found, *costs_of(status)) if _ended(one) >= now - window_s), window_s / SHARES)


def _shared(costs: Iterable[DrillSpent], share_s: float) -> tuple[DrillSpent, ...]:
    """Put together what ended in one share of the window, and what there is no room for; the latest first."""
    entries: list[DrillSpent] = []
    for cost in sorted(costs, key=_ended, reverse=True):
        same = entries and _ended(entries[-1]) // share_s == _ended(cost) // share_s
        if same or len(entries) == SPENT_MAX:
            last = entries[-1]
            entries[-1] = DrillSpent(until=last.until, seconds=round(last.seconds + cost.seconds, 3))
        else:
            entries.append(cost)
    return tuple(entries)


def _ended(cost: DrillSpent) -> float:
    """Give when the last run of an entry ended; a time that can't be read is long ago."""
    return read_time(cost.until) or 0.0
