"""Says when an application has been still for longer than it may, and what it should have done.

Why it exists: an application that is frozen keeps its connections, so nothing but time tells it from one that works.
Over the loopback interface the kernel acknowledges what nobody has read yet; so what waits for an application is what
was not sent, and what lies unread in its socket.

    work         what is due                                    limit, and what ends it
    CONNECTING   both connections                               connect_s in all
    LOADING      it reads the checkpoint that it goes on from   load_s in all
    SNAPSHOT     the checkpoint that it was asked for           snapshot_s in all
    REPLAYING    it runs the log, and nobody waits for it       none
    HANDLING     it runs what is logged                         handler_s in which bytes wait for it and nothing moves

Guarantees: time counts only while the application could work: not while its owner reads nothing from it, and not while
this process stood still itself, beyond LOOK_MAX_S for each look. An application for which nothing waits is never
overdue in HANDLING: whether something is missing of what it should have emitted is its owner's to see. Does not: read a
clock, measure, end anything. Imports this folder.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.protocols.ambrosia.states import State

LOOK_MAX_S: Final = 2.0
"""Of the time between two looks, so much counts: who looks once a second and comes later did not run either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an application may take, seconds, each at least 0; 0: for ever."""

    connect_s: float = 30.0
    load_s: float = 600.0
    snapshot_s: float = 600.0
    handler_s: float = 60.0


class Work(enum.Enum):
    """What an application is at; the values are for people."""

    CONNECTING = "connecting to both ports"
    LOADING = "reading the checkpoint that it goes on from"
    SNAPSHOT = "giving the checkpoint that it was asked for"
    REPLAYING = "running the log again"
    HANDLING = "running what is logged"


class Seen(NamedTuple):
    """What a look at an application shows.

    Attributes:
        now: monotonic seconds.
        work: see the module.
        waiting: bytes for it that it has not read, wherever they are.
        moved: bytes that it has read and written since its start.
        held: at some time since the last look its owner did not read from it.
    """

    now: float
    work: Work
    waiting: int
    moved: int
    held: bool = False


def work_of(state: State, *, loading: bool, replaying: bool) -> Work:
    """Give what an application is at.

    Args:
        state: of its machine.
        loading: some of its checkpoint is not read yet.
        replaying: it runs the log, and nobody waits for what comes of it.
    """
    if state in {State.CONNECTING, State.WAITING}:
        return Work.CONNECTING if state is State.CONNECTING else Work.REPLAYING
    if loading or state is State.LOADING:
        return Work.LOADING
    if state in _CHECKPOINT_DUE:
        return Work.SNAPSHOT
    return Work.REPLAYING if replaying else Work.HANDLING


_CHECKPOINT_DUE: Final = frozenset(
    {
        State.STARTING,
        State.INITIALIZING,
        State.SNAPSHOT,
        State.TESTING_SNAPSHOT,
        State.LEADING_SNAPSHOT,
        State.SWITCHING,
    }
)


class Watch:
    """Looks at one application.

    Args:
        patience: its limits.
    """

    __slots__ = ("_counted_s", "_last", "_patience")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._last: Seen | None = None
        self._counted_s = 0.0  # of the present work, or in HANDLING since something moved

    @property
    def still_s(self) -> float:
        """Seconds that count against it just now."""
        return self._counted_s

    def look(self, seen: Seen) -> str:
        """Take a look; gives what is overdue, a sentence, or "" where nothing is."""
        last, self._last = self._last, seen
        if last is None or last.work is not seen.work:
            self._counted_s = 0.0
            return ""
        assert seen.now >= last.now, (last, seen)
        if seen.work is Work.HANDLING and (seen.moved > last.moved or not seen.waiting):
            self._counted_s = 0.0
        elif not seen.held:
            self._counted_s += min(seen.now - last.now, LOOK_MAX_S)
        limit = self._limit(seen.work)
        if not limit or self._counted_s < limit:
            return ""
        waits = f"{seen.waiting} bytes wait for it" if seen.waiting else "it has read everything that it was sent"
        return f"{limit:g} s went by without an end of {seen.work.value}; {waits}"

    def _limit(self, work: Work) -> float:
        """Give how long it may take; 0: for ever."""
        match work:
            case Work.CONNECTING:
                return self._patience.connect_s
            case Work.LOADING:
                return self._patience.load_s
            case Work.SNAPSHOT:
                return self._patience.snapshot_s
            case Work.HANDLING:
                return self._patience.handler_s
            case Work.REPLAYING:
                return 0.0
