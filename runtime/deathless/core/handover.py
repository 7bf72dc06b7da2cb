"""How a primary lets go in order: a switchover that an operator orders, and an orderly stop.

    STAYING --ordered, somebody is up to date--> HANDING_OVER --drained, the target has it all--> GONE
       |                                          |  |  '--target lost or too slow: called off--> STAYING
       |                                          |  '-----the same, and we are stopping--------> ALONE
       '--stopped, nobody is up to date--> ALONE -+--drained: a last checkpoint, then the lock is given up--> GONE
    (any) --a definite no to a proof--> GONE

HANDING_OVER and ALONE admit nothing (the clients send it again to whoever comes) and end what was admitted. GONE
releases nothing, ever. A stop during a switchover goes on with that switchover. Should the target die between HANDOVER
and its takeover, this process is gone as well: the detectors of the others see to it (design section 5).

Does not: know frames; its owner says when it is drained. Imports core and base.
"""

from __future__ import annotations

import enum
from typing import Final

from deathless.core.events import Conn
from deathless.core.stream import Stream

HANDOVER_MAX_S: Final = 5.0  # a switchover whose target does not catch up is called off after this


class Stage(enum.Enum):
    """Where letting go stands; the picture is in the module's docstring."""

    STAYING = "staying"
    HANDING_OVER = "handing over"
    ALONE = "stopping alone"
    GONE = "gone"


class Departure:
    """A primary's way out."""

    def __init__(self) -> None:
        self.stage = Stage.STAYING
        self.target = ""  # replica that takes over. Invariant: set while HANDING_OVER
        self.failed: tuple[Conn, int, str] | None = None  # connection, request, why; to be told to who asked
        self._stopping = False  # calling off means going alone
        self._asked: tuple[Conn, int] | None = None  # who ordered the switchover; None: a stop
        self._deadline: float | None = None  # Invariant: set while HANDING_OVER

    def switchover_ordered(self, conn: Conn, request: int, target: str, stream: Stream, now: float) -> None:
        """Begin a switchover to `target`, empty: to the best; or leave in `failed` why it can't be."""
        why = self._begin(target, stream, now)
        if why:
            self.failed = (conn, request, why)
        else:
            self._asked = (conn, request)

    def stop_ordered(self, stream: Stream, now: float) -> None:
        """Let go for good; a second order changes nothing."""
        self._stopping = True
        if self.stage is Stage.STAYING and self._begin("", stream, now):
            self.stage = Stage.ALONE

    def _begin(self, target: str, stream: Stream, now: float) -> str:
        """Gives why it can't be; empty: it is under way."""
        applied = stream.streaming
        if self.stage is not Stage.STAYING:
            return "a switchover is under way"
        if not applied:
            return "no follower is up to date"
        if target and target not in applied:
            return f"{target} is not a follower that is up to date ({', '.join(sorted(applied))})"
        standbys = applied.keys() - {stream.checkpointer} or applied.keys()
        self.target = target or max(standbys, key=lambda replica: (applied[replica], replica))
        self.stage = Stage.HANDING_OVER
        self._deadline = now + HANDOVER_MAX_S
        return ""

    def follower_lost(self, replica: str) -> None:
        """A follower's connection ended."""
        if self.stage is Stage.HANDING_OVER and replica == self.target:
            self._call_off("the target went away")

    def timer_fired(self, now: float) -> None:
        """Call a switchover off that takes too long."""
        if self.stage is Stage.HANDING_OVER and self._deadline is not None and now >= self._deadline:
            self._call_off("the target did not catch up in time")

    def deadline(self) -> float | None:
        """When timer_fired is due; None: never."""
        return self._deadline if self.stage is Stage.HANDING_OVER else None

    def gone(self) -> None:
        """Nothing leaves this process any more."""
        self.stage = Stage.GONE

    def _call_off(self, why: str) -> None:
        if self._asked is not None:
            self.failed = (*self._asked, why)
            self._asked = None
        self.target = ""
        self._deadline = None
        self.stage = Stage.ALONE if self._stopping else Stage.STAYING

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        if self.stage is Stage.HANDING_OVER:
            assert self.target
            assert self._deadline is not None
        assert self.stage is not Stage.ALONE or self._stopping
