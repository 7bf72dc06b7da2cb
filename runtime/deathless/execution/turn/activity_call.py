"""What an activity's function may know of its own call: `current_activity()`.

    @shop.activity(timeout=30, heartbeat=5)
    def copy(source: str, target: str) -> int:
        call = current_activity()
        for part in parts(source):
            upload(part, target, idempotency_key=call.key)
            call.heartbeat()

Guarantees: one call at a time, that of the function that runs. Does not: send anything (its process does). Imports
base.
"""

from __future__ import annotations

from collections.abc import Callable

from deathless.base.errors import Closed


class ActivityCall:
    """One attempt of one activity.

    Attributes:
        name: of the activity.
        key: the same for every attempt and in every replica: hand it on as an idempotency key.
        attempt: from 1.
        traceparent: the W3C header of the trace that this call is a part of, to be handed on; empty: of none.
    """

    __slots__ = ("_beat", "attempt", "key", "name", "traceparent")

    def __init__(self, name: str, key: str, attempt: int, beat: Callable[[], None], traceparent: str = "") -> None:
        self.name = name
        self.key = key
        self.attempt = attempt
        self.traceparent = traceparent
        self._beat = beat

    def heartbeat(self) -> None:
        """Say that it still works; needed within each `heartbeat` of its registration, if it has one."""
        self._beat()


_current: list[ActivityCall] = []  # of this process; at most one


def current_activity() -> ActivityCall:
    """Give the call of the activity that runs. Raises: Closed outside of one."""
    if not _current:
        raise Closed("no activity runs here")
    return _current[-1]


def begin(call: ActivityCall) -> None:
    """Make it the current one."""
    _current.append(call)


def end() -> None:
    """Have none any more."""
    _current.clear()
