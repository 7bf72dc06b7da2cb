"""How a primary lets go in order: a switchover that an operator orders, and an orderly stop.

    STAYING --ordered--> WAITING --nothing runs that must not begin again, or the wait is over--> whose turn it is:
                            |  somebody is up to date--> HANDING_OVER --drained, the target has it all--> GONE
                            |                             |  '--target lost or too slow: called off--> STAYING
                            |                             '-----the same, and we are stopping--------> ALONE
                            |  nobody is, and we stop--> ALONE --drained: a last checkpoint, then the lock--> GONE
                            '  nobody is: called off--> STAYING
    (any) --a definite no to a proof--> GONE

WAITING serves as STAYING does, but begins no activity that must run at most once (core.primary.activities holds them;
the successor begins them): of one that runs when its primary goes, nobody would know whether it was done (I7). It ends
with the last of them, at the latest `limits.handover_wait_s` after the first order; what runs then is given up as at an
unplanned takeover, or an upgrade is called off, since that may as well be made later. Who orders something that can't
be hears so at once, not after the wait.

HANDING_OVER and ALONE admit nothing (the clients send it again to whoever comes) and end what was admitted. GONE
releases nothing, ever. A stop during a switchover goes on with that switchover. Should the target die between HANDOVER
and its takeover, this process is gone as well: the detectors of the others see to it (design 0003, "Detection").

Before the target hears of it, the lock store hears of the last confirmed place (design 0013). The target writes its own
there only once it leads; where all are stopped it may end before that, with the lock, and the store then refuses ours.

Does not: know frames or activities; its owner says when it is drained, and how many are waited for. Imports core, codec
and base.
"""

from __future__ import annotations

import enum
from typing import Final

from deathless.base.errors import Deposed
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.wire import Handover, Type, struct_packet
from deathless.core.effects import Effect, Send, StopReplica, StoreConfirmed
from deathless.core.events import Conn, SwitchoverOrdered
from deathless.core.primary.stream import Stream

HANDOVER_MAX_S: Final = 5.0  # a switchover whose target does not catch up is called off after this, without the wait


class Stage(enum.Enum):
    """Where letting go stands; the picture is in the module's docstring."""

    STAYING = "staying"
    WAITING = "waiting for activities"
    HANDING_OVER = "handing over"
    ALONE = "stopping alone"
    GONE = "gone"


class Departure:
    """A primary's way out.

    Args:
        wait_s: how long it waits at most for activities that must run at most once; 0: it does not.
        safeguards: all on, but in tests.
    """

    def __init__(self, wait_s: float, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.stage = Stage.STAYING
        self.serving = True  # what clients and peers send is taken in. Invariant: exactly while STAYING or WAITING
        self.target = ""  # replica that takes over. Invariant: set while HANDING_OVER
        self.upgrade = b""  # id of the upgrade that the target makes; empty: none
        self.failed: tuple[Conn, int, str] | None = None  # connection, request, why; to be told to who asked
        self._wait_s = wait_s
        self._safeguards = safeguards
        self._storing = -1  # place that the lock store was asked to hear of, in this stage
        self._stored = -1  # and the last that it heard of
        self._wanted = ""  # replica that the order names; empty: the best
        self._stopping = False  # calling off means going alone
        self._asked: tuple[Conn, int] | None = None  # who ordered the switchover; None: a stop
        self._deadline: float | None = None  # of this stage. Invariant: set while WAITING or HANDING_OVER
        self._since = 0.0  # when WAITING began
        self._under_way = 0  # activities, when it was looked at last

    @property
    def waiting(self) -> tuple[int, float, float] | None:
        """How many activities are waited for, since when, and until when at the latest; None: none is."""
        if self.stage is not Stage.WAITING or not self._under_way or self._deadline is None:
            return None
        return self._under_way, self._since, self._deadline

    def switchover_ordered(self, order: SwitchoverOrdered, stream: Stream, now: float) -> None:
        """Begin a switchover to its target, empty: to the best; or leave in `failed` why it can't be.

        With an upgrade the target is the upgrader that asked for it; an upgrader is never chosen otherwise.
        """
        staying = self.stage is Stage.STAYING
        why = _choose(order.target, order.upgrade, stream)[1] if staying else "a switchover is under way"
        if why:
            self.failed = (order.conn, order.request, why)
            return
        self._asked = (order.conn, order.request)
        self._wanted, self.upgrade = order.target, order.upgrade
        self._wait(now)

    def stop_ordered(self, now: float, *, at_once: bool) -> None:
        """Let go for good; a second order changes nothing, but that one which says `at_once` ends the wait."""
        self._stopping = True
        if self.stage is Stage.WAITING and self.upgrade:  # the stop can't wait for another day, and it has standbys
            self._tell_asker("the primary stops")
            self._wanted, self.upgrade = "", b""
        if self.stage is Stage.STAYING:
            self._wait(now)
        if self.stage is Stage.WAITING and at_once:
            self._deadline = now

    def _wait(self, now: float) -> None:
        self.enter(Stage.WAITING)
        self._since, self._deadline = now, now + self._wait_s

    def look(self, stream: Stream, under_way: int, now: float) -> None:
        """Decide whether there is anything to wait for yet; asked with whatever changes the answer.

        Args:
            under_way: activities that must run at most once, have begun, and whose outcome is not in the log.
            stream: of the followers, one of whom is handed over to.
            now: monotonic seconds.
        """
        if self.stage is not Stage.WAITING:
            return
        assert self._deadline is not None
        self._under_way = under_way
        if under_way and now < self._deadline:
            return
        if under_way and self.upgrade:
            self._call_off(f"{under_way} activities that must run at most once still run")
            return
        self.target, why = _choose(self._wanted, self.upgrade, stream)
        if why:
            self._call_off(why)
            return
        self.enter(Stage.HANDING_OVER)
        self._deadline, self._storing = now + HANDOVER_MAX_S, -1

    def follower_lost(self, replica: str) -> None:
        """A follower's connection ended."""
        if self.stage is Stage.HANDING_OVER and replica == self.target:
            self._call_off("the target went away")

    def timer_fired(self, now: float) -> None:
        """Call a switchover off that takes too long."""
        if self.stage is Stage.HANDING_OVER and self._deadline is not None and now >= self._deadline:
            behind = "the target did not catch up" if self._storing < 0 else "the lock store did not answer"
            self._call_off(f"{behind} in time")

    def confirmed_stored(self, lsn: int) -> None:
        """The lock store heard of a place."""
        self._stored = max(self._stored, lsn)

    def hand_over(self, conn: Conn, epoch: int, lsn: int) -> list[Effect]:
        """Go, in favour of the target, which has everything; once the lock store has heard where we end.

        Args:
            conn: the target's connection.
            epoch: ours.
            lsn: the last confirmed, of a primary that is drained.
        """
        if self._stored < lsn and self._safeguards.witness_before_handover:
            asked, self._storing = self._storing, lsn
            return [] if asked == lsn else [StoreConfirmed(lsn)]
        self.gone()
        return [
            Send(conn, struct_packet(Type.HANDOVER, Handover(epoch, lsn, self.upgrade))),
            StopReplica(Deposed(f"handed over to {self.target}", remedy=""), self.target),
        ]

    def deadline(self) -> float | None:
        """When timer_fired, and look, are due; None: never."""
        return self._deadline if self.stage in (Stage.WAITING, Stage.HANDING_OVER) else None

    def gone(self) -> None:
        """Nothing leaves this process any more."""
        self.enter(Stage.GONE)

    def _call_off(self, why: str) -> None:
        self._tell_asker(why)
        self.target, self._wanted, self.upgrade = "", "", b""
        self._deadline = None
        self.enter(Stage.ALONE if self._stopping else Stage.STAYING)

    def _tell_asker(self, why: str) -> None:
        if self._asked is not None:
            self.failed = (*self._asked, why)
            self._asked = None

    def enter(self, stage: Stage) -> None:
        """Be at this stage."""
        self.stage = stage
        self.serving = stage in (Stage.STAYING, Stage.WAITING)

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        if self.stage is Stage.HANDING_OVER:
            assert self.target
        assert self._deadline is not None or self.stage not in (Stage.WAITING, Stage.HANDING_OVER)
        assert self.stage is not Stage.ALONE or self._stopping
        assert self.serving is (self.stage in (Stage.STAYING, Stage.WAITING))


def _choose(target: str, upgrade: bytes, stream: Stream) -> tuple[str, str]:
    """Give who takes over, `target` if one is named, and why nobody can; one of them is empty."""
    if upgrade:
        return (target, "") if target in stream.upgraders else ("", f"{target} is no upgrader that is up to date")
    applied = stream.streaming
    if not applied:
        return "", "no follower is up to date"
    if target and target not in applied:
        return "", f"{target} is not a follower that is up to date ({', '.join(sorted(applied))})"
    standbys = applied.keys() - {stream.checkpointer} or applied.keys()
    return target or max(standbys, key=lambda replica: (applied[replica], replica)), ""
