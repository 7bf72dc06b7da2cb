"""When too much is suspended: what is refused then, and what is not.

Handlers that wait, and messages that wait for the key that such a one holds, live in the memory of every replica. Each
kind of sender meets the maximum in its own way, because a FORK can't be refused once it is logged:

    CALL, REQUEST that would wait or begin a handler that waits   run, and are answered with Overloaded (execution)
    FORK of another service    held back before it is logged: the peer keeps it, and sends it again
    (core.primary.admission) FORK to ourselves          goes on: it stands in our memory either way, in the outbox or in
    the queue of the key anything else              goes on: it may be what ends the wait any CALL                   at
    CLIENTS_SHARE times the maximum, which FORKs to ourselves can reach: not admitted

What was admitted before the maximum was reached still comes in, so that it is passed by `pending_messages_max` and
`pending_bytes_max` at most.

Guarantees: a function of what is suspended. Does not: refuse. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from deathless.base.limits import Limits
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import Crowd

_FORK: Final = bytes([Kind.FORK])
CLIENTS_SHARE: Final = 2
"""At so many times the maximum clients' calls are not admitted at all."""


def crowded(crowd: Crowd, limits: Limits, times: int = 1) -> str:
    """Say which maximum is reached, or so many times it; empty: none.

    FORKs begin handlers beyond `invocations_max`, where calls are refused: they have `waiting_messages_max` beside.
    """
    if crowd.waiting >= times * limits.waiting_messages_max:
        return f"{crowd.waiting} messages wait for keys that are held (limits.waiting_messages_max)"
    if crowd.invocations >= times * (limits.invocations_max + limits.waiting_messages_max):
        return f"{crowd.invocations} handlers have begun and not ended (limits.invocations_max)"
    if crowd.bytes >= times * limits.suspended_bytes_max:
        return f"suspended handlers and messages that wait keep {crowd.bytes} bytes (limits.suspended_bytes_max)"
    return ""


class HeldBack:
    """The peers whose FORKs a primary refused last.

    Args:
        crowd: gives how much is suspended.
    """

    def __init__(self, crowd: Callable[[], Crowd], limits: Limits) -> None:
        self._crowd = crowd
        self._limits = limits
        self._why: dict[int, str] = {}  # by session; none, once there is room and somebody sends

    def first(self, session: int, messages: Sequence[bytes]) -> int | None:
        """Give the index of the first message of a peer that is held back now; None: none of them."""
        why = crowded(self._crowd(), self._limits)
        if not why:
            self._why.clear()
            return None
        at = next((at for at, message in enumerate(messages) if message[:1] == _FORK), None)
        if at is not None:
            self._why[session] = why
        return at

    def why(self, session: int) -> str:
        """Say why FORKs of this session are refused; empty: they are not."""
        return self._why.get(session, "") if crowded(self._crowd(), self._limits) else ""

    def why_clients(self) -> str:
        """Say why clients are not admitted; empty: they are."""
        return crowded(self._crowd(), self._limits, CLIENTS_SHARE)


def nobody() -> Crowd:
    """Give what is suspended where nothing ever is."""
    return Crowd(0, 0, 0)
