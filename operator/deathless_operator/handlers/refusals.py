"""What the API server refused of each object's plan, and when it is asked again.

Why: a refusal holds back what needs it and nothing else, so looks go on at their own pace; without a memory each of
them would ask for the refused object again. It is asked for after pauses that double, at once where what is asked for
has changed, and forgotten when it was done or is no part of the plan any more.

Guarantees: bounded by the actions of plans. Does not: survive the process: the next one asks once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deathless.base.backoff import pause_after
from deathless_operator.handlers.work_queue import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key
from deathless_operator.plan.actions import Action, Target, target
from deathless_operator.plan.snapshot import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """One action that was refused."""

    action: Action
    failure: Failure
    count: int  # how often, one after the other
    again_at: float  # seconds of the clock


class Refusals:
    """The refusals of one process.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[Key, dict[Target, _Refused]] = {}

    def failures(self, key: Key) -> tuple[Failure, ...]:
        """Return what was refused at the last look."""
        return tuple(each.failure for each in self._found.get(key, {}).values())

    def resting(self, key: Key, actions: Sequence[Action]) -> dict[Target, Failure]:
        """Return which of a plan's actions are not asked for yet, with the refusal that stands for them."""
        known, now = self._found.get(key, {}), self._clock()
        asked = {target(action): action for action in actions}
        return {
            about: each.failure
            for about, each in known.items()
            if asked.get(about) == each.action and now < each.again_at
        }

    def note(self, key: Key, actions: Sequence[Action], failures: Sequence[Failure]) -> None:
        """Note how a plan was carried out."""
        known, now = self._found.get(key, {}), self._clock()
        asked = {target(action): action for action in actions}
        found: dict[Target, _Refused] = {}
        for failure in failures:
            about = Target(failure.kind, failure.name)
            before = known.get(about)
            if before is not None and before.action == asked[about] and now < before.again_at:
                found[about] = _Refused(
                    action=before.action, failure=failure, count=before.count, again_at=before.again_at
                )
                continue
            count = before.count if before is not None else 0
            pause = pause_after(count, first_s=BACKOFF_FIRST_S, most_s=BACKOFF_MAX_S)
            found[about] = _Refused(action=asked[about], failure=failure, count=count + 1, again_at=now + pause)
        if found:
            self._found[key] = found
        else:
            self._found.pop(key, None)

    def again_in_s(self, key: Key) -> float | None:
        """Return the seconds until something is asked for again; None: nothing was refused."""
        known = self._found.get(key, {})
        return max(0.0, min(each.again_at for each in known.values()) - self._clock()) if known else None

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._found.pop(key, None)
