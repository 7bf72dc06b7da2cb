"""What happens to the process of an application and its two connections, and in which order they end.

    LISTENING   both ports are bound; the application is to connect the receive port
    HALF        it is to connect the send port
    CONNECTED   both are there
    DYING       it is over: the process group was killed, and what it had sent before is read
    OVER        everything was read, or there was no more time for it

Why it exists: the death of an application is not the end of its connections. A child that it forked keeps them open, a
shell around it may die alone, and a message that it sent before it was killed still counts, since all that it depends
on is confirmed. So whichever ends first, the process or a connection, ends both: the whole process group is killed, and
what the application had sent is read to its end, for at most DRAIN_S.

Guarantees: the group is killed once, before anything else of an end; the machine hears that the connections ended only
behind everything that is read; nothing is read of an application that was ended for what it sent. Each port takes one
connection, the receive port first, and one of another user's leaves it open. Does not: IO. Imports this folder.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, assert_never

from deathless.protocols.ambrosia.events import Socket

DRAIN_S: Final = 1.0


class Phase(enum.Enum):
    """Where it stands; see the module."""

    LISTENING = enum.auto()
    HALF = enum.auto()
    CONNECTED = enum.auto()
    DYING = enum.auto()
    OVER = enum.auto()


class Cause(enum.Enum):
    """Why it is over; the values are for people."""

    EXITED = "its process ended"
    DISCONNECTED = "it closed a connection"
    NOT_CONNECTED = "it did not connect in time"
    STILL = "it stood still"
    WRONG = "it did not keep to the protocol"
    STOPPED = "it was stopped"


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Connected:
    """Somebody connected the port that is open; `ours`: a process of our own user."""

    socket: Socket
    ours: bool = True


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection ended or broke."""

    socket: Socket


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process that was started is gone."""


@dataclass(frozen=True, slots=True)
class EndOrdered:
    """It is to end now, and nothing that is still to be read of it counts."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class DrainOver:
    """DRAIN_S went by."""


LifeEvent = Connected | Disconnected | ProcessEnded | EndOrdered | DrainOver


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Refuse:
    """Close the connection that was just accepted, and go on listening."""


@dataclass(frozen=True, slots=True)
class Open:
    """Close the listener, tell the machine, and accept at the other port if that is still open."""

    socket: Socket


@dataclass(frozen=True, slots=True)
class KillGroup:
    """Kill all processes of the application's group, and close the listeners."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Read the receive connection to its end, whoever holds it back, and say DrainOver after DRAIN_S."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Tell the machine that the connections ended, then the owner; close everything."""

    cause: Cause


LifeEffect = Refuse | Open | KillGroup | Drain | Finish


class Life:
    """One application, from its start to its end."""

    __slots__ = ("cause", "phase", "process_ended")

    def __init__(self) -> None:
        self.phase = Phase.LISTENING
        self.cause: Cause | None = None  # set when it is over
        self.process_ended = False

    @property
    def accepts(self) -> Socket | None:
        """The port at which a connection is accepted now."""
        return _ACCEPTS.get(self.phase)

    def handle(self, event: LifeEvent) -> list[LifeEffect]:
        """Take what happened, and give what is to be done, in this order."""
        self.process_ended = self.process_ended or isinstance(event, ProcessEnded)
        match event:
            case Connected():
                return self._connected(event)
            case Disconnected():
                if self.phase is Phase.DYING:
                    return self._finish() if event.socket is Socket.RECEIVE else []
                return self._end(Cause.DISCONNECTED, drain=event.socket is not Socket.RECEIVE)
            case ProcessEnded():
                return [] if self.phase is Phase.DYING else self._end(Cause.EXITED, drain=True)
            case EndOrdered():
                return self._finish() if self.phase is Phase.DYING else self._end(event.cause, drain=False)
            case DrainOver():
                return self._finish() if self.phase is Phase.DYING else []
            case _:
                assert_never(event)

    def _connected(self, event: Connected) -> list[LifeEffect]:
        if self.phase in {Phase.DYING, Phase.OVER}:
            return [Refuse()]
        assert event.socket is self.accepts, event
        if not event.ours:
            return [Refuse()]
        self.phase = Phase.HALF if event.socket is Socket.RECEIVE else Phase.CONNECTED
        return [Open(event.socket)]

    def _end(self, cause: Cause, *, drain: bool) -> list[LifeEffect]:
        if self.phase is Phase.OVER:
            return []
        connected, self.cause = self.phase is not Phase.LISTENING, cause
        self.phase = Phase.DYING
        return [KillGroup(), Drain()] if drain and connected else [KillGroup(), *self._finish()]

    def _finish(self) -> list[LifeEffect]:
        assert self.cause is not None
        self.phase = Phase.OVER
        return [Finish(self.cause)]


_ACCEPTS: Final = {Phase.LISTENING: Socket.RECEIVE, Phase.HALF: Socket.SEND}
