"""What the machine of an application is told, and what it wants done.

Why it exists: the machine does nothing itself. Events say what happened, or what its owner decided: the owner alone
knows what the log holds, what is confirmed and who leads. Effects are to be carried out in the order of the list: what
`Send` holds goes to the application as one stream, and a checkpoint's parts belong to the CheckpointBegan before them.
What comes once for each output is a Struct, which costs less.

Does not: say when an event is right (`states`). Imports base.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.lanes import Difference, Expectation, LaneState
from deathless.protocols.ambrosia.messages import Oversized, Packed, Rpc


class Socket(enum.Enum):
    """One of the two connections, named as the coordinator sees them; the application connects them in this order."""

    RECEIVE = "from the application"
    SEND = "to the application"


# ---------------------------------------------------------------- events: sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOpened:
    """The application connected."""

    socket: Socket


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketEnded:
    """A connection ended or broke, or the process is gone; the other one ends with it."""

    socket: Socket


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReceived:
    """The application sent this."""

    data: bytes


# ---------------------------------------------------------------- events: decisions of the owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """First start: the log is empty, and we lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Recover from a checkpoint, whose bytes follow as LoadPart.

    Attributes:
        length: of the application's checkpoint, bytes.
        lsn: everything up to it is in the checkpoint.
        records: that were delivered before it.
        lanes: as CheckpointBegan gave them.
    """

    length: int
    lsn: int
    records: int
    lanes: tuple[LaneState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPart:
    """Some bytes of the checkpoint."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Everything in the log up to this lsn is durable, and no successor had taken over."""

    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Calls and returns of one frame of the log, in order.

    Attributes:
        lsn: of the last of them.
        rpcs: at least one, or several in one; their destinations are left out of what is sent.
    """

    lsn: int
    rpcs: tuple[Rpc | Packed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverInitial:
    """The application's own INITIAL, which the log begins with."""

    lsn: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The confirmed log, or a mark in it, says what an earlier run had emitted for a target."""

    target: str
    known: Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKnown:
    """What was emitted for a target up to there had its effect: it is logged (to oneself), or its receiver has it.

    Both stand in the confirmed log by then.
    """

    target: str
    known: Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcomed:
    """A receiver connected, and says what it holds of us, all of it confirmed; None: nothing."""

    target: str
    known: Expectation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """The receiver's connection is gone."""

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCheckpoint:
    """A checkpoint is due, behind what was delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """We lead, and all that was logged before is delivered.

    Attributes:
        with_checkpoint: the application takes one at once, as a lone one does after recovery in the original.
    """

    with_checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOutputs:
    """What is emitted from now on stays here; records that are not confirmed may be delivered meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestUpgrade:
    """Before the log is replayed in a test: the application goes over to its new code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """All that the old code has to run is delivered: the application goes over, and gives a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The upgrade stands in the log, and we lead: what was held may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The owner ends the application."""


Event = (
    SocketOpened
    | SocketEnded
    | BytesReceived
    | Begin
    | Load
    | LoadPart
    | Confirmed
    | Deliver
    | DeliverInitial
    | Expected
    | EffectKnown
    | Welcomed
    | Parted
    | TakeCheckpoint
    | Lead
    | HoldOutputs
    | TestUpgrade
    | Upgrade
    | Commit
    | Stop
)


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Write this to the application."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The checkpoint is on its way as a whole: what was logged behind it may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """The application is going to send to this service; that it says so twice changes nothing."""

    target: str


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """The application emitted this, and it is not known to have had its effect.

    It depends on records that are confirmed, and on nothing else. To oneself: an input to be logged, by whoever leads.
    To others: it may be sent from `Lane.release_from` on, by whoever leads.

    Attributes:
        target: SELF, or another service.
        position: of it among all that was ever emitted for the target.
        item: Oversized: nothing is sent, but the position is taken.
    """

    target: str
    position: int
    item: Rpc | Oversized


class ForksEmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The application emitted these forks, as `Emitted`; given to owners that want them together.

    Attributes:
        target: as above.
        position: of the first; the others follow without a gap.
        items: at least one.
    """

    target: str
    position: int
    items: tuple[Rpc, ...]


class ImpulseEmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The application leads and emitted this: to be logged before it has any effect. It has no position yet."""

    rpc: Rpc


class OutputRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The application emitted what goes nowhere; it lives on, and whoever waits for an answer is to be told.

    Attributes:
        target: that it was for.
        position: that it keeps; 0: it never had one.
        item: what it was, as far as it was read.
        reason: a sentence.
    """

    target: str
    position: int
    item: Rpc | Oversized
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialMade:
    """The application's INITIAL; it becomes the first record of the log once its first checkpoint stands."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWanted:
    """The application, which leads, asks for a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBegan:
    """A checkpoint of the application comes in.

    Attributes:
        length: bytes that follow as CheckpointPart.
        lsn: everything delivered up to it is in it, and nothing behind.
        records: that were delivered.
        lanes: what was emitted when it began; to be kept with it.
    """

    length: int
    lsn: int
    records: int
    lanes: tuple[LaneState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """Some bytes of it."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEnded:
    """It is whole. Without this there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """The application emitted something else than before; also where that is not fatal."""

    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Kill the application, if it lives, and close both connections.

    Attributes:
        error: what it did; None: it is gone by itself, or was stopped.
    """

    error: ProtocolViolated | None


Effect = (
    Send
    | Loaded
    | Attach
    | Emitted
    | ForksEmitted
    | ImpulseEmitted
    | OutputRefused
    | InitialMade
    | CheckpointWanted
    | CheckpointBegan
    | CheckpointPart
    | CheckpointEnded
    | Differs
    | End
)
