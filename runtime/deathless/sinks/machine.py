"""What a sink does next: a machine without IO. It decides when to claim the store, which rows make a block, and when
to stop.

    IDLE      not beside a primary
    WAITING   beside a primary, store not claimed: nothing is published yet, or the store failed, until a time
    OPENING   Open is being carried out: the store fences, and then tells the tip
    READY     the tip is known, and ours
    WRITING   Write is being carried out
    STOPPED   something that an operator must see to, by name; the store is claimed and judged anew now and then, so
              that the sink goes on by itself once it is seen to

    Led           -> WAITING, and Open as soon as the topic has rows
    Opened        -> judged: READY, or STOPPED
    Looked        -> a block closes when it has `block_rows` positions, or `block_s` after its first one was seen
    Written       -> the hold moves to the new tip, READY
    BlockRefused  -> the block is halved until one position remains: STOPPED at it, with all before it stored; or
                     GiveUp, where the store keeps what it refuses
    Failed        -> WAITING, for a pause that doubles

Why halving is exact: each half is stored with the tip, as any block, so nothing is remembered but where the refused
block ended. A block's size means nothing to anybody else.

The hold is also a witness: it never stands above what was stored, and moves behind each block. A tip below it is that
of a store which was restored from a backup, and is told so. The witness counts for one adoption alone, so an operator
who adopts the store lets the sink go on from there.

Who sees what: the store never hears of holds, the topic never of tips. What is a conflict: a tip that somebody else
moved (SinkTipMismatch), another writer (Deposed), both found by the store at its commit.

Guarantees: at most one Open, Write or GiveUp is under way; the last two begin at the tip.
Does not: touch files, stores, clocks.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeAlias

import msgspec

from deathless.base.backoff import pause_after
from deathless.base.errors import (
    DeathlessError,
    Deposed,
    SinkColumnsChanged,
    SinkRowRefused,
    SinkRowsDropped,
    SinkTableUnfit,
    SinkTaken,
    SinkTipMismatch,
)
from deathless.sinks.port import Opened, Tip

AGAIN_MIN_S: Final = 0.25
AGAIN_MAX_S: Final = 30.0
DEPOSED_S: Final = 5.0
STOPPED_MIN_S: Final = 2.0
STOPPED_MAX_S: Final = 30.0


class State(Enum):
    """See the module."""

    IDLE = auto()
    WAITING = auto()
    OPENING = auto()
    READY = auto()
    WRITING = auto()
    STOPPED = auto()


class Policy(msgspec.Struct, frozen=True):
    """What the manifest says."""

    block_rows: int
    block_s: float
    hold_bytes_max: int  # 0: no limit
    dead_letters: bool = False  # the store keeps rows that it refuses, and the sink goes on


class HoldSeen(msgspec.Struct, frozen=True):
    """Our hold, as it stands."""

    position: int
    began: int  # where it was registered first
    adoption: int  # of the tip that it witnesses


class Look(msgspec.Struct, frozen=True):
    """What the topic's files show at one moment."""

    floor: int  # rows below may be gone
    first: int  # the lowest that is there
    next: int  # behind the last row
    schema: str  # of the newest rows; empty: there are none
    hold: HoldSeen | None  # ours; None: there is none
    held_bytes: int  # of files with rows from the hold on; without one: from the tip on


class Led(msgspec.Struct, frozen=True):
    """The replica beside us is the primary of this epoch."""

    epoch: int


class Ceased(msgspec.Struct, frozen=True):
    """It is no primary any more."""


class Looked(msgspec.Struct, frozen=True):
    """The topic was looked at."""

    look: Look


class StoreOpened(msgspec.Struct, frozen=True):
    """Open is done: nobody else writes any more."""

    opened: Opened


class Written(msgspec.Struct, frozen=True):
    """Write is done."""

    end: int


class WriteRefused(msgspec.Struct, frozen=True):
    """The store refuses a row of the block."""

    end: int
    why: str


class Failed(msgspec.Struct, frozen=True):
    """Open, Write, Hold or reading the rows failed: nothing was stored, or nobody knows."""

    error: DeathlessError


Event: TypeAlias = Led | Ceased | Looked | StoreOpened | Written | WriteRefused | Failed


class Open(msgspec.Struct, frozen=True):
    """Claim the store for this epoch."""

    epoch: int
    schema: str


class Write(msgspec.Struct, frozen=True):
    """Store the rows of these positions, or fewer of them from `start` on."""

    start: int
    end: int
    expected: int  # tip that the store must have


class GiveUp(msgspec.Struct, frozen=True):
    """Have the store keep the row of this position as refused, and move the tip behind it; done is Written."""

    position: int
    expected: int  # tip that the store must have
    why: str


class Hold(msgspec.Struct, frozen=True):
    """Register or move our hold, before anything that follows."""

    hold: HoldSeen


class DropHold(msgspec.Struct, frozen=True):
    """Let go of our hold, and say so."""

    held_bytes: int


class Close(msgspec.Struct, frozen=True):
    """Let go of the store, and of what is under way."""


Effect: TypeAlias = Open | Write | GiveUp | Hold | DropHold | Close


class SinkMachine:
    """One sink of one shard.

    Args:
        name: of the sink, for errors.
        policy: of the manifest.
        incarnation: of the topic's source.
    """

    def __init__(self, name: str, policy: Policy, incarnation: int) -> None:
        self.state = State.IDLE
        self.problem: DeathlessError | None = None  # why nothing is stored now; None: all is well
        self.tip: Tip | None = None  # as the store last told; None: not yet
        self.look: Look | None = None  # None: not yet
        self.deadline: float | None = None  # when to call `step` at the latest; None: with the next event
        self._name = name
        self._policy = policy
        self._incarnation = incarnation
        self._epoch = 0
        self._failures = 0  # in a row
        self._since: float | None = None  # when the first row that is not stored was seen; None: there is none
        self._suspect = 0  # a refused row is below this position; 0: none is known
        self._schema = ""  # of the rows that the store was opened for

    @property
    def position(self) -> int:
        """The first position that is not stored; 0: not known."""
        tip = self.tip
        if tip is None or tip.incarnation != self._incarnation:
            return 0
        return tip.next_position

    @property
    def hold_dropped(self) -> bool:
        """Are rows, that are not stored, kept from nobody, because there are too many?"""
        look, limit = self.look, self._policy.hold_bytes_max
        return look is not None and look.hold is None and bool(limit) and look.held_bytes > limit

    def step(self, event: Event | None, now: float) -> list[Effect]:
        """Take an event; None: a deadline passed. Gives what to do, in this order."""
        effects: list[Effect] = []
        match event:
            case Led():
                if event.epoch > self._epoch or self.state is State.IDLE:
                    effects += self._let_go()
                    self._epoch, self._failures = event.epoch, 0
                    self.state, self.deadline, self.problem = State.WAITING, now, None
            case Ceased():
                effects += self._let_go()
                self.state, self.deadline, self.problem = State.IDLE, None, None
            case Looked():
                self.look = event.look
                effects += self._mind_hold()
            case StoreOpened() if self.state is State.OPENING:
                effects += self._opened(event.opened, now)
            case Written() if self.state is State.WRITING:
                effects += self._written(event.end)
            case WriteRefused() if self.state is State.WRITING:
                effects += self._refused(event, now)
            case Failed():
                effects += self._failed(event.error, now)
            case _:
                pass  # of what was let go of meanwhile
        return effects + self._go_on(now)

    def _let_go(self) -> list[Effect]:
        self._since = None
        return [] if self.state is State.IDLE else [Close()]

    # ---- what comes next ---------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> list[Effect]:
        look = self.look
        if look is None:
            return []
        if self.state in {State.WAITING, State.STOPPED} and look.schema:
            if self.deadline is not None and now < self.deadline:
                return []
            return self._open(look)
        if self.state is State.READY and look.schema != self._schema:
            return self._open(look)  # the code was changed: the store says whether its columns are the same
        if self.state is State.READY:
            return self._next_block(look, now)
        return []

    def _open(self, look: Look) -> list[Effect]:
        self.state, self.deadline, self._schema = State.OPENING, None, look.schema
        return [Open(self._epoch, look.schema)]

    def _next_block(self, look: Look, now: float) -> list[Effect]:
        tip = self.tip
        assert tip is not None
        start = tip.next_position or begin_at(look, tip)
        if look.next <= start:
            self._since = self.deadline = None
            return []
        if self._since is None:
            self._since = now
        due = self._since + self._policy.block_s
        if look.next - start < self._policy.block_rows and now < due and not self._suspect:
            self.deadline = due
            return []
        end = min(look.next, start + self._policy.block_rows)
        if self._suspect > start:
            end = min(end, start + max(1, (self._suspect - start) // 2))
        self.state, self.deadline = State.WRITING, None
        return [Write(start, end, tip.next_position)]

    # ---- the store ---------------------------------------------------------------------------------------------

    def _opened(self, opened: Opened, now: float) -> list[Effect]:
        look = self.look
        assert look is not None, "Open follows a look"
        self.tip = opened.tip
        problem = self._judge(opened, look)
        if problem is not None:
            return self._stop(problem, now)
        # What is written from now on is of this source and these columns; the store keeps both with the next block.
        self.tip = msgspec.structs.replace(opened.tip, columns=opened.columns, incarnation=self._incarnation)
        self.state, self.deadline = State.READY, None
        if not isinstance(self.problem, SinkRowRefused):
            self.problem, self._suspect = None, 0
        elif self._suspect <= opened.tip.next_position:
            self.problem, self._suspect = None, 0  # an operator has skipped it
        return self._hold_at(opened.tip.next_position or begin_at(look, opened.tip), look)

    def _judge(self, opened: Opened, look: Look) -> DeathlessError | None:
        """Say why the store is not what this sink may go on with; None: it is."""
        tip, sink = opened.tip, f"sink {self._name}"
        if opened.retired:
            return SinkTaken(f"{sink}: {opened.retired} has taken its name over in the store")
        if opened.foreign:
            return SinkTaken(f"{sink}: the store has rows under this name of {', '.join(opened.foreign)}")
        begun = bool(tip.next_position)
        if begun and tip.incarnation != self._incarnation:
            return SinkTipMismatch(
                f"{sink}: the store counts rows of incarnation {tip.incarnation}, and the topic's are of "
                f"{self._incarnation}: the service was restored"
            )
        if tip.columns and tip.columns != opened.columns:
            return SinkColumnsChanged(f"{sink}: the columns are not those that the rows before were stored with")
        return self._judge_position(tip.next_position, tip.adoption, look)

    def _judge_position(self, position: int, adoption: int, look: Look) -> DeathlessError | None:
        sink, hold = f"sink {self._name}", look.hold
        if hold is not None and hold.adoption == adoption and hold.position > max(position, hold.began):
            return SinkTipMismatch(
                f"{sink}: the store stands at position {position}, and rows below {hold.position} were stored: it was "
                "restored to an older state"
            )
        if position > look.next:
            return SinkTipMismatch(
                f"{sink}: the store stands at position {position}, and the topic's rows end at {look.next}: files of "
                "the topic are missing",
                remedy="bring the topic's files back; the sink looks again by itself",
            )
        if position and position < look.first:
            return SinkRowsDropped(
                f"{sink}: rows from position {position} are not stored, and those below {look.first} are gone"
            )
        return None

    def _written(self, end: int) -> list[Effect]:
        tip, look = self.tip, self.look
        assert tip is not None and look is not None
        self.tip = msgspec.structs.replace(tip, next_position=end)
        self.state, self._since, self._failures = State.READY, None, 0
        if end >= self._suspect:
            self.problem, self._suspect = None, 0
        return self._hold_at(end, look)

    def _refused(self, event: WriteRefused, now: float) -> list[Effect]:
        tip, look = self.tip, self.look
        assert tip is not None and look is not None
        start = tip.next_position or begin_at(look, tip)
        self._suspect = event.end
        self.state = State.READY
        if event.end - start <= 1:
            if self._policy.dead_letters:
                self.state = State.WRITING
                return [GiveUp(start, tip.next_position, event.why)]
            error = SinkRowRefused(f"sink {self._name}: position {start} is refused: {event.why}")
            self._stop(error, now)
        return []

    def _failed(self, error: DeathlessError, now: float) -> list[Effect]:
        if self.state is State.IDLE:
            return []
        if isinstance(error, SinkTableUnfit | SinkTipMismatch | SinkRowsDropped | SinkRowRefused):
            return self._stop(error, now)
        pause_s = pause_after(self._failures, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
        self._failures += 1
        self.problem = error
        self._since = None
        self.state, self.deadline = State.WAITING, now + (DEPOSED_S if isinstance(error, Deposed) else pause_s)
        return [Close()]

    def _stop(self, error: DeathlessError, now: float) -> list[Effect]:
        again = type(self.problem) is type(error)
        self._failures = self._failures + 1 if again else 0
        pause_s = pause_after(self._failures, first_s=STOPPED_MIN_S, most_s=STOPPED_MAX_S)
        self.problem = error
        self._since = None
        self.state, self.deadline = State.STOPPED, now + pause_s
        return []

    # ---- the hold ----------------------------------------------------------------------------------------------

    def _hold_at(self, position: int, look: Look) -> list[Effect]:
        """Register or move the hold, unless what it would keep is too much."""
        tip = self.tip
        assert tip is not None
        hold = look.hold
        limit = self._policy.hold_bytes_max
        if hold is None and limit and look.held_bytes > limit:
            return []
        if hold is not None and hold.adoption == tip.adoption:
            wanted = msgspec.structs.replace(hold, position=position)
        else:
            wanted = HoldSeen(position, position, tip.adoption)
        if wanted == hold:
            return []
        self.look = msgspec.structs.replace(look, hold=wanted)
        return [Hold(wanted)]

    def _mind_hold(self) -> list[Effect]:
        """Drop a hold that keeps too much; register one again once there is little left.

        A store that was never reached says no tip. Rows are held all the same, from where they are certain to be there:
        what is stored of them already is let go of as soon as the tip is known.
        """
        look, limit = self.look, self._policy.hold_bytes_max
        assert look is not None
        if self.state is State.IDLE:
            return []
        if look.hold is not None:
            if not limit or look.held_bytes <= limit:
                return []
            self.look = msgspec.structs.replace(look, hold=None)
            return [DropHold(look.held_bytes)]
        if self.tip is None and look.schema and not (limit and look.held_bytes > limit):
            hold = HoldSeen(look.floor, look.floor, 0)
            self.look = msgspec.structs.replace(look, hold=hold)
            return [Hold(hold)]
        if self.state in {State.READY, State.WRITING} and self.tip is not None:
            return self._hold_at(self.tip.next_position or begin_at(look, self.tip), look)
        return []


def begin_at(look: Look, tip: Tip) -> int:
    """Give the position at which a sink begins whose store has nothing of the source.

    That is where it held rows when it began, if it died before it stored any. A new one begins where rows are certain
    to be there, and one that was adopted with all that are.
    """
    hold = look.hold
    if hold is not None and hold.adoption == tip.adoption:
        return hold.position
    return look.first if tip.adoption else look.floor
