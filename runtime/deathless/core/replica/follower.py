"""A follower's work: stay on the primary's stream, read the log where the stream has a gap, take checkpoints.

    link:  APART --FollowPrimary--> ASKING --FOLLOWING(streaming)--> STREAMING
             ^--connection lost------'  |  '--FOLLOWING(read first)--> BEHIND --log read--> ASKING ...
             '--connection lost, or a newer primary-----------------------'
    reading: a stretch of the log at a time, whatever the link does meanwhile; one writer of the state

The shared log stays the truth; the stream is faster. So a gap, a lost connection or a lag behind the stream's ring is
healed by reading the log to its confirmed end and asking again; when that brought nothing new, after FOLLOW_RETRY_S.

Who sees what: everything applied here is confirmed (design 0003, "Who sees what"). The primary hears what
was applied, and of checkpoints; of the newest one also when the primary is new and has none that count yet.

Does not: decide when to take over, answer clients (core.replica). Imports core, codec and base.
"""

from __future__ import annotations

import enum
from typing import Final

from deathless.base.limits import Limits
from deathless.codec.wire import U64, CheckpointMade, Following, Type, packet, struct_packet
from deathless.core.effects import (
    AskUpstream,
    Effect,
    FollowPrimary,
    LeavePrimary,
    ReadLog,
    SendUpstream,
    TakeCheckpoint,
)

FOLLOW_RETRY_S: Final = 0.05  # a follower without stream asks again after this


class Link(enum.Enum):
    """How a follower stands to its primary; the picture is in the module's docstring."""

    APART = "apart"
    ASKING = "asking"
    BEHIND = "behind"
    STREAMING = "streaming"


class Follower:
    """What a replica that is not the primary does with the log.

    Args:
        replica: our name.
        lsn: what is applied at the start.
    """

    def __init__(self, *, replica: str, limits: Limits, lsn: int) -> None:
        self.link = Link.APART
        self.reading = False  # a stretch of the log is being applied
        self.checkpointer = ""  # replica that takes checkpoints, as the primary named it
        self._replica = replica
        self._limits = limits
        self._lsn = lsn  # applied, as far as we were told
        self._asked_lsn = -1  # applied when the primary was last asked; -1: not yet
        self._retry_at: float | None = None  # when to follow, or ask, again
        self._messages = 0  # applied since a checkpoint was last due
        self._bytes = 0
        self._writing = False  # a checkpoint of ours is being written
        self._newest: tuple[int, str] | None = None  # lsn and name of our newest checkpoint
        self._told: tuple[int, str] | None = None  # the one that this primary was told of

    # ---- the link --------------------------------------------------------------------------------------------

    def follow(self, primary: str, epoch: int) -> list[Effect]:
        """Follow a primary, if one is known and we are on our own."""
        if self.link is not Link.APART or not primary:
            return []
        self.link = Link.ASKING
        self._retry_at = None
        self._told = None
        self._asked_lsn = self._lsn
        return [FollowPrimary(primary, epoch)]

    def leave(self) -> list[Effect]:
        """End the connection."""
        if self.link is Link.APART:
            return []
        self.link = Link.APART
        self._retry_at = None
        return [LeavePrimary()]

    def retry(self, now: float) -> None:
        """Follow again after a while."""
        self.link = Link.APART
        self._retry_at = now + FOLLOW_RETRY_S

    @property
    def attached(self) -> bool:
        """Does it follow a primary, or read the log in order to?"""
        return self.link is not Link.APART

    def upstream_answered(self, following: Following) -> list[Effect]:
        """The primary streams from where we are, or we read the log first; or it names another checkpointer."""
        if self.link is Link.APART:
            return []
        self.checkpointer = following.checkpointer
        self._retry_at = None
        if following.streaming:
            self.link = Link.STREAMING
            return self._tell_checkpoint()
        self.link = Link.BEHIND
        return self._read()

    def timer_fired(self, now: float, primary: str, epoch: int) -> list[Effect]:
        """Follow or ask again when it is time."""
        if self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        if self.link is Link.BEHIND and not self.reading:
            return self._read()
        return self.follow(primary, epoch)

    def deadline(self) -> float | None:
        """When timer_fired is due; None: never."""
        return self._retry_at

    def recovered(self, lsn: int) -> None:
        """What a checkpoint and the log behind it gave is applied."""
        self._lsn = lsn

    # ---- the log ---------------------------------------------------------------------------------------------

    def frames_applied(self, lsn: int, messages: int, size: int, gap: bool) -> list[Effect]:
        """Frames of the stream were applied; behind a gap the log is read."""
        self._lsn = lsn
        if self.link is Link.APART:
            return []
        effects: list[Effect] = [SendUpstream(packet(Type.APPLIED, U64.pack(lsn)))]
        if gap:
            self.link = Link.BEHIND
            effects.extend(self._read())
        self._messages += messages
        self._bytes += size
        return [*effects, *self._maybe_checkpoint()]

    def log_read(self, lsn: int, end: bool, now: float) -> list[Effect]:
        """A stretch was applied: read the next one, or at the end ask the primary again."""
        self._lsn = lsn
        if not end:
            return [ReadLog()]
        self.reading = False
        if self.link is not Link.BEHIND:
            return []
        if lsn == self._asked_lsn:  # nothing new, and the stream does not reach back to here: no hurry
            self._asked_lsn = -1
            self._retry_at = now + FOLLOW_RETRY_S
            return []
        self._asked_lsn = lsn
        self.link = Link.ASKING
        return [AskUpstream()]

    def _read(self) -> list[Effect]:
        self._retry_at = None  # of a reading that found nothing new, when a gap makes us read again before it is due
        if self.reading:
            return []
        self.reading = True
        return [ReadLog()]

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def _maybe_checkpoint(self) -> list[Effect]:
        """I9: the checkpointer takes the checkpoints, so the primary need not."""
        limits = self._limits
        due = self._messages >= limits.checkpoint_every_messages or self._bytes >= limits.checkpoint_every_bytes
        if not due or self._writing or self.checkpointer != self._replica:
            return []
        self._writing = True
        self._messages = self._bytes = 0
        return [TakeCheckpoint()]

    def checkpoint_written(self, lsn: int, name: str) -> list[Effect]:
        """Ours stands: tell the primary, now or when there is one. Without a name it failed: try when next due."""
        self._writing = False
        if name:
            self._newest = (lsn, name)
        return self._tell_checkpoint() if self.link is Link.STREAMING else []

    def _tell_checkpoint(self) -> list[Effect]:
        if self._newest is None or self._told == self._newest:
            return []
        self._told = self._newest
        lsn, name = self._newest
        return [SendUpstream(struct_packet(Type.CHECKPOINT, CheckpointMade(name, lsn, self._replica)))]

    def check_invariants(self) -> None:
        """Raise AssertionError when the parts disagree."""
        assert self._told is None or self._newest is not None
        assert self.link in (Link.APART, Link.BEHIND) or self._retry_at is None
