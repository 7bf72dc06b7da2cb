"""Results a client waits for: of calls whose handler waits, which were answered ACCEPTED; pure.

    waiting, unsent --take--> asked for (ATTACH) --accept--> handed out
         ^----------rewind-------'   another primary, or a doubt: asking again changes nothing

What is asked for is an invocation, the same for every client and every primary, so nothing of it hangs on a session.
Guarantees: each result is handed out once per waiter, which waits for one at a time. Does not: know connections.
Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

W = TypeVar("W")


class ResultWindow(Generic[W]):
    """Results without an answer."""

    __slots__ = ("_id_of", "_next_id", "_unsent", "_waiting")

    def __init__(self) -> None:
        self._next_id = 1
        self._waiting: dict[int, tuple[int, W]] = {}  # id -> (invocation, waiter)
        self._unsent: dict[int, None] = {}  # ids, in order
        self._id_of: dict[int, int] = {}  # identity of a waiter -> its id

    def __len__(self) -> int:
        """Count of results without an answer."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Count of those that were asked for."""
        return len(self._waiting) - len(self._unsent)

    @property
    def unsent(self) -> bool:
        """Are there results to ask for?"""
        return bool(self._unsent)

    def submit(self, invocations: Sequence[int], waiters: Sequence[W]) -> None:
        """Wait for results; that of invocation i for waiter i."""
        for invocation, waiter in zip(invocations, waiters, strict=True):
            self._waiting[self._next_id] = (invocation, waiter)
            self._unsent[self._next_id] = None
            self._id_of[id(waiter)] = self._next_id
            self._next_id += 1

    def withdraw(self, waiter: W) -> bool:
        """Forget one who waits. False: not known."""
        key = self._id_of.pop(id(waiter), 0)
        self._unsent.pop(key, None)
        return self._waiting.pop(key, None) is not None

    def invocation_of(self, waiter: W) -> int:
        """Give the invocation whose result one waits for; 0: not known."""
        entry = self._waiting.get(self._id_of.get(id(waiter), 0))
        return 0 if entry is None else entry[0]

    def take(self, count_max: int) -> tuple[list[int], list[int]] | None:
        """Give (ids, invocations) of the next packet; None: nothing to ask for now."""
        ids = list(islice(self._unsent, count_max))
        for key in ids:
            del self._unsent[key]
        return (ids, [self._waiting[key][0] for key in ids]) if ids else None

    def accept(self, ids: Sequence[int], replies: Sequence[bytes]) -> tuple[list[W], list[bytes]]:
        """Take results in. Returns: (waiters, replies) of those that were waited for."""
        waiters: list[W] = []
        fresh: list[bytes] = []
        for key, reply in zip(ids, replies, strict=True):
            entry = self._waiting.pop(key, None)
            if entry is not None:
                self._unsent.pop(key, None)
                self._id_of.pop(id(entry[1]), None)
                waiters.append(entry[1])
                fresh.append(reply)
        return waiters, fresh

    def rewind(self) -> None:
        """Ask again for everything."""
        self._unsent = dict.fromkeys(self._waiting)

    def clear(self) -> list[W]:
        """Forget everything; gives the waiters."""
        waiters = [waiter for _, waiter in self._waiting.values()]
        self._waiting.clear()
        self._unsent.clear()
        self._id_of.clear()
        return waiters
