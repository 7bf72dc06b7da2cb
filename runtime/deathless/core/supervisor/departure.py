"""When the process of a pod's replica that has handed over ends: once its successor has settled.

Taking a container down and making the next one keeps a node busy for some hundred milliseconds (its container runtime,
its network plugin, the rules of its proxy; `docs/design/0005-kubernetes.md` has the figures), and the cluster's API
with it. Without this they are the milliseconds in which the successor takes over and all callers come to it at once.

Guarantees: nobody is waited for who is not heard to lead within LEAVE_MAX_S. Does not: know clocks, or what leading is.
"""

from __future__ import annotations

from typing import Final

from deathless.base.limits import LEAVE_MAX_S

SETTLED_S: Final = 1.0  # a successor has all callers so long after it was first heard to lead


class Leave:
    """One process's end.

    Args:
        waits: it waits for its successor at all; a process that no node clears away after need not.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._at: float | None = None  # when to end at the latest. Invariant: it only sinks
        self.settling = False  # the successor was heard to lead

    def is_due(self, now: float, *, handed_over: bool, led: bool) -> bool:
        """Say whether the process may end; asked with each heartbeat once its worker has ended for good.

        Args:
            now: monotonic seconds.
            handed_over: the worker named a successor.
            led: another replica is heard to lead.
        """
        if not self._waits or not handed_over:
            return True
        if self._at is None:
            self._at = now + LEAVE_MAX_S
        if led and not self.settling:
            self.settling = True
            self._at = min(self._at, now + SETTLED_S)
        return now >= self._at
